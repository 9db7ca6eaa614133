"""Interactions of heads: the effect of two heads together beyond the sum of their single effects.

The interaction of heads a and b is effect(a, b) - effect(a) - effect(b), and 0 where they are
independent. In a score it is negative where one head can stand in for the other, and positive where
their damages overlap; in a loss, the signs are the other way round.

P is the number of pairs of heads, in the order of `itertools.combinations`.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int, Real

from bert_secrets_jax.ablation import masks
from bert_secrets_jax.checks import check_lengths
from bert_secrets_jax.model.config import BertConfig


def single_and_pair_masks(
    config: BertConfig, heads: Sequence[masks.Place] | None = None
) -> masks.Masks:
    """Return a mask per head, in their order, and then one per pair of them, as `masks.pairs`."""
    heads = masks.all_heads(config) if heads is None else heads
    alone = masks.disable(config, [[head] for head in heads])
    return np.concatenate([alone, masks.pairs(config, heads)])


def pairs_of(count: int) -> Int[np.ndarray, 'P 2']:
    """Return the two heads of each pair [P, 2], as indices into a list of `count` heads.

    >>> pairs_of(3).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return np.transpose(np.triu_indices(count, 1))


def interactions(
    effects: Real[np.ndarray, 'M *values'], count: int
) -> Real[np.ndarray, 'P *values']:
    """Return effect(a, b) - effect(a) - effect(b) from those of `single_and_pair_masks`."""
    pairs = pairs_of(count)
    check_lengths(effects=effects, heads_and_pairs=range(count + len(pairs)))
    first, second = pairs.T
    return effects[count:] - effects[first] - effects[second]


def as_matrix(values: Float[np.ndarray, ' P'], count: int) -> Float[np.ndarray, 'count count']:
    """Arrange one value per pair in a symmetric matrix [count, count], whose diagonal is NaN."""
    first, second = pairs_of(count).T
    matrix = np.full((count, count), np.nan)
    matrix[first, second] = matrix[second, first] = values
    return matrix
