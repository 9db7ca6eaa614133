"""Tables of results are read as they were written, and are not changed by those who read them."""

import numpy as np
import pandas as pd
import pytest

from bert_secrets_jax.analyses.common.tables import records, table
from bert_secrets_jax.runs.result import Result


class Kept(Result):
    """A result with tables alone."""


def test_tables_are_read_as_they_were_written(tmp_path):
    frames = {
        'mixed': records('Rows with gaps.', [{'a': 1, 'b': True}, {'a': 'x', 'c': None}]),
        'plain': table('Numbers.', whole=np.arange(2), flag=[True, False], name=['L1-H2', '-']),
        'empty': table('No row.', number=[], text=[]),
    }
    frames['plain'].attrs['shown'] = ['whole']
    result = Kept().with_frames(frames)
    result.frames()['plain'].insert(0, 'more', 1)
    result.save(tmp_path / 'kept.npz')
    for name, frame in Kept.load(tmp_path / 'kept.npz').frames().items():
        pd.testing.assert_frame_equal(frame, frames[name])
        assert frame.attrs == frames[name].attrs


def test_what_could_not_be_kept_is_refused():
    twice, more = pd.DataFrame([[1, 2]], columns=['a', 'a']), pd.DataFrame({'a': [1]})
    assert Kept().with_frames({'of': more}).frames()['of'].equals(more)
    more.attrs['source'] = 'here'
    for frame, said in ((twice, "'a'"), (more, "'source'")):
        with pytest.raises(ValueError, match=said):
            Kept().with_frames({'of': frame})
