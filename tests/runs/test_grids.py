"""The numbers of heads in frames of every form."""

import dataclasses

import numpy as np
import pandas
import pytest
from bert_secrets_jax.runs.grids import head_grids

from bert_secrets_jax.runs.result import Result

LAYER, HEAD = np.indices((2, 3)).reshape(2, -1) + 1
VALUES = np.arange(6.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Framed(Result):
    frame: pandas.DataFrame

    def frames(self):
        return {'all_heads': self.frame}


def found(**columns):
    return head_grids(Framed(pandas.DataFrame(columns)))


def test_columns_of_numbers_are_statistics_and_those_of_tests_are_not():
    grids = found(layer=LAYER, head=HEAD, gate=VALUES, p_value=VALUES, low=VALUES, examples=VALUES)
    assert list(grids) == ['all heads: gate']
    assert grids['all heads: gate'].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_names_of_heads_are_places_in_any_order():
    names = [f'L{layer}-H{head}' for layer, head in zip(LAYER, HEAD, strict=True)]
    grids = found(metric='f1', test='exact', disabled=names[::-1], score=VALUES)
    assert grids['all heads: f1, score'].tolist() == [[5, 4, 3], [2, 1, 0]]


def test_sets_are_told_apart_and_seeds_are_averaged():
    both = np.concatenate
    grids = found(
        seed=np.repeat(['0', '1'], 12),
        statistic=np.tile(np.repeat(['self', '[SEP]'], 6), 2),
        layer=np.tile(LAYER, 4),
        head=np.tile(HEAD, 4),
        mean=both([VALUES, -VALUES, VALUES + 2, -VALUES]),
        unit='share',
    )
    assert list(grids) == ['all heads: self', 'all heads: [SEP]']
    assert grids['all heads: self'].ravel() == pytest.approx(VALUES + 1)
    # The main behaviour of heads divides them, and is no set of all.
    kinds = ['a', 'b', 'a', 'b', 'b', 'a']
    assert list(found(layer=LAYER, head=HEAD, mostly=kinds, share=VALUES)) == ['all heads: share']


def test_a_frame_of_some_heads_has_no_grid():
    assert not found(layer=LAYER[:5], head=HEAD[:5], share=VALUES[:5])
    assert not found(layer=LAYER, share=VALUES)
