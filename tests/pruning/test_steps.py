"""Which heads go first, and how many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_secrets_jax.pruning.steps import SHARES, nested_masks, ranks, removed_heads, without_least


def test_tenths_of_all_heads():
    assert removed_heads(72) == [0, 7, 14, 22, 29, 36, 43, 50, 58, 65]
    assert removed_heads(144, (0.25, 0.5)) == [36, 72]


@pytest.mark.parametrize('shares', [(), (0.2, 0.1), (0.1, 0.1), (-0.1,), (0.5, 1.0)])
def test_shares_that_are_refused(shares):
    with pytest.raises(ValueError, match='must ascend from 0 or more to less than 1'):
        removed_heads(10, shares)


@given(
    seed=st.integers(0, 10**6), layers=st.integers(1, 5), heads=st.integers(1, 6), data=st.data()
)
def test_the_least_needed_heads_are_gone(seed, layers, heads, data):
    at_least = data.draw(st.integers(0, heads))
    scores = np.random.default_rng(seed).permutation(layers * heads).reshape(layers, heads)
    masks = nested_masks(lambda mask: scores, (layers, heads), at_least=at_least)
    assert masks.shape == (len(SHARES), layers, heads) and masks.dtype == np.float32
    assert (np.diff(masks, axis=0) <= 0).all() and (masks[0] == 1).all()
    most = layers * (heads - at_least)
    for mask, count in zip(masks, removed_heads(layers * heads), strict=True):
        assert (mask == 0).sum() == min(count, most)
        assert (mask.sum(axis=1) >= at_least).all()
        for layer in range(layers):
            gone, kept = scores[layer][mask[layer] == 0], scores[layer][mask[layer] == 1]
            assert not len(gone) or not len(kept) or gone.max() < kept.min()
        if not at_least and (mask == 0).any() and (mask == 1).any():
            assert scores[mask == 0].max() < scores[mask == 1].min()
    np.testing.assert_allclose(ranks(masks), masks.mean(axis=0))


def test_scores_are_asked_for_anew_without_the_removed_heads():
    asked = []

    def score(mask):
        asked.append(mask)
        # Whatever was first becomes the best of all without its neighbours.
        return np.where(mask.sum() == 4, [[0, 1], [2, 3]], [[9, 7], [5, 6]])

    masks = nested_masks(score, (2, 2), shares=(0, 0.25, 0.5))
    assert [mask.tolist() for mask in masks] == [
        [[1, 1], [1, 1]], [[0, 1], [1, 1]], [[0, 1], [0, 1]],
    ]  # fmt: skip
    assert [mask.sum() for mask in asked] == [4, 3]


def test_what_is_gone_needs_no_number():
    mask = np.array([[0, 1], [1, 1]], np.float32)
    scores = np.array([[np.nan, 1], [2, 3]])
    assert without_least(mask, scores, 1).tolist() == [[0, 0], [1, 1]]
    assert without_least(mask, scores, 9).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError, match='NaN for heads that are left'):
        without_least(np.ones((2, 2), np.float32), scores, 1)
    with pytest.raises(ValueError, match='at_least=3 must be 0 to 2'):
        nested_masks(lambda mask: mask, (2, 2), at_least=3)
