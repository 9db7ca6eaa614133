"""Interactions: 0 where effects add up, and what two heads do beyond that."""

import itertools

import numpy as np
import pytest

from bert_secrets_jax.analyses.interactions import (
    as_matrix,
    beyond_the_sum,
    pairs_of,
    single_and_pair_masks,
)


def test_masks_of_each_head_and_each_pair(config):
    heads = [(2, 0), (0, 1), (1, 3)]
    masks = single_and_pair_masks(config, heads)
    sets = [{tuple(place) for place in np.argwhere(mask == 0)} for mask in masks]
    assert sets[:3] == [{head} for head in heads]
    assert sets[3:] == [{heads[a], heads[b]} for a, b in pairs_of(3)]
    assert len(single_and_pair_masks(config)) == 12 + 66


@pytest.mark.parametrize('shape', [(), (7,)])
def test_what_is_put_in_is_recovered(shape):
    rng = np.random.default_rng(0)
    alone = rng.normal(size=(5, *shape))
    beyond = rng.normal(size=(10, *shape))
    together = [alone[a] + alone[b] for a, b in itertools.combinations(range(5), 2)]
    effects = np.concatenate([alone, np.array(together) + beyond])
    np.testing.assert_allclose(beyond_the_sum(effects, 5), beyond, atol=1e-12)
    independent = np.concatenate([alone, together])
    np.testing.assert_allclose(beyond_the_sum(independent, 5), 0, atol=1e-12)


def test_another_number_of_effects_is_refused():
    with pytest.raises(ValueError, match='There are 9 effects and 10 heads and pairs'):
        beyond_the_sum(np.zeros(9), 4)


def test_matrix_is_symmetric():
    matrix = as_matrix(np.array([1.0, 2.0, 3.0]), 3)
    np.testing.assert_array_equal(matrix, [[np.nan, 1, 2], [1, np.nan, 3], [2, 3, np.nan]])
