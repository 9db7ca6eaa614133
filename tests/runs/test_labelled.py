"""Tables of results are read as they were written."""

import dataclasses

import numpy as np
import pandas as pd

from bert_secrets_jax.analyses.common.tables import grids_frame, records, table
from bert_secrets_jax.runs.result import Result


class Kept(Result):
    """A result with tables alone."""


def test_tables_are_read_as_they_were_written(tmp_path):
    frames = {
        'heads': grids_frame(
            {'share': np.eye(2), 'low': np.zeros((2, 2)), 'mark': [['a', ''], ['b', 'c']]},
            'Each head.',
            by={'seed': [0]},
            sure={'share': ('low',)},
            red={('share', ''): 0.5},
        ),
        'mixed': records('Rows with gaps.', [{'a': 1, 'b': True}, {'a': 'x', 'c': None}]),
        'plain': table('Numbers.', whole=np.arange(2), flag=[True, False], name=['L1-H2', 'L2-H1']),
        'empty': table('No row.', number=[], text=[]),
    }
    frames['plain'].attrs['shown'] = ['whole']
    Kept().with_frames(frames).save(tmp_path / 'kept.npz')
    read = Kept.load(tmp_path / 'kept.npz').frames()
    assert [*read] == [*frames]
    for name, frame in frames.items():
        pd.testing.assert_frame_equal(read[name], frame)
        assert read[name].attrs == frame.attrs


def test_a_frame_that_is_changed_changes_no_result():
    result = Kept().with_frames({'plain': table('Numbers.', whole=np.arange(2))})
    frame = result.frames()['plain']
    frame.loc[0, 'whole'] = 7
    assert result.frames()['plain']['whole'].tolist() == [0, 1]
    assert dataclasses.replace(result).frames().keys() == {'plain'}
