"""Remove heads step by step, those first that a score says are needed least (Michel et al. 2019).

Shapes: L layers, N heads, K numbers of heads that are removed.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float, Shaped

# As published: tenths of all heads.
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def removed_heads(heads: int, shares: Sequence[float | int] = SHARES) -> list[int]:
    """Return how many heads are removed at each share of all of them, rounded to whole ones."""
    if not len(shares) or not (np.diff(shares) > 0).all() or not 0 <= shares[0] <= shares[-1] < 1:
        raise ValueError(
            f'The shares of heads to remove must ascend from 0 or more to less than 1: {shares}.'
        )
    return [round(share * heads) for share in shares]


def nested_masks(
    score: Callable[[Float[np.ndarray, 'L N']], Shaped[np.ndarray, 'L N']],
    shape: tuple[int, int],
    *,
    shares: Sequence[float | int] = SHARES,
    at_least: int = 0,
) -> Float[np.ndarray, 'K L N']:
    """Return a mask for each share of heads that is removed; each mask removes more than the last.

    Args:
      score: A function of the mask so far that returns how much each head is needed; those that it
        has removed may have any number. For a score that does not change, give `lambda mask:
        scores`.
      shape: The numbers of layers and heads.
      shares: The shares of all heads that are removed: ascending, each from 0 to less than 1.
      at_least: The least number of heads that each layer keeps. Where the others do not suffice, a
        mask removes fewer heads than its share.

    Raises:
      ValueError: The shares are not as they should be, a layer cannot keep as many heads, or a head
        that is left has no number.
    """
    layers, heads = shape
    if not 0 <= at_least <= heads:
        raise ValueError(f'{at_least=} must be 0 to {heads}, the number of heads of a layer.')
    mask, masks = np.ones(shape, np.float32), []
    for count in removed_heads(layers * heads, shares):
        removed = int((mask == 0).sum())
        if count > removed:
            mask = without_least(mask, score(mask), count - removed, at_least=at_least)
        masks.append(mask)
    return np.stack(masks)


def without_least(
    mask: Float[np.ndarray, 'L N'],
    scores: Shaped[np.ndarray, 'L N'],
    count: int,
    *,
    at_least: int = 0,
) -> Float[np.ndarray, 'L N']:
    """Return a mask that also removes the heads with the least scores, of equal ones the lower.

    Fewer than `count` are removed where layers keep `at_least` heads.
    """
    scores = np.asarray(scores, np.float64)
    left = mask != 0
    if np.isnan(scores[left]).any():
        raise ValueError(
            'A score is NaN for heads that are left: measure it on examples to which it applies.'
        )
    order = np.argsort(np.where(left, scores, np.inf), axis=None, kind='stable')
    removed = 0
    for layer, head in zip(*np.unravel_index(order, mask.shape), strict=True):
        if removed == count or not left[layer, head]:
            break
        if left[layer].sum() > at_least:
            left[layer, head] = False
            removed += 1
    return np.where(left, mask, 0).astype(np.float32)


def ranks(masks: Float[np.ndarray, 'K L N']) -> Float[np.ndarray, 'L N']:
    """Return the share of nested masks that keep each head: 1 if none removes it."""
    kept: Bool[np.ndarray, 'K L N'] = masks != 0
    return kept.mean(axis=0)
