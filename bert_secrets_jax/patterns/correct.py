"""Shares of classes, corrected for what the classifier mistakes.

A classifier that takes one heterogeneous map in ten for a vertical one finds too many vertical maps
where many are heterogeneous. Rogan and Gladen (1978, American Journal of Epidemiology 107) correct
the share of one class by the error rates of a test. For several classes, the shares are those under
which the predicted ones are most likely, with the error rates of the confusion matrix; they are
never below 0.

Shapes: C classes, K as many or none, D draws.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

# Steps of the EM algorithm; on tables like ours it moves by less than 1e-4 after a tenth of them.
_STEPS = 1000


@dataclasses.dataclass(frozen=True)
class Corrected:
    """Corrected shares of classes.

    Attributes:
      shares: [C] The shares, which sum to 1.
      low, high: [C] Their 95 % intervals. They carry the sampling of the maps and that of the
        confusion matrix, but not that a model may be mistaken in other ways than the labelled ones.
    """

    shares: np.ndarray
    low: np.ndarray
    high: np.ndarray


def corrected(
    found: Float[np.ndarray, ' C'],
    confusion: Int[np.ndarray, 'K K'],
    *,
    size: float | int,
    draws: int = 1000,
    seed: int = 0,
) -> Corrected | None:
    """Correct the shares of classes for what a classifier mistakes.

    Args:
      found: The shares of the predicted classes.
      confusion: The number of labelled maps by label (rows) and prediction (columns).
      size: The number of independent maps that the shares are of.
      draws: The number of draws of the interval: of the shares, and of the error rates given the
        confusion matrix (Dirichlet with one map more in each row, spread evenly).
      seed: The seed of the draws.

    Returns:
      The corrected shares; None if there is no labelled map of some class, so that nobody knows
      what it is taken for.
    """
    confusion = np.asarray(confusion)
    if not confusion.size or (confusion.sum(axis=1) == 0).any():
        return None
    rng = np.random.default_rng(seed)
    classes = len(confusion)
    rates = rng.standard_gamma(confusion + 1 / classes, (draws, classes, classes))
    rates = rates / rates.sum(axis=-1, keepdims=True)
    shares = rng.standard_gamma(found * size + 1e-3, (draws, classes))
    shares = shares / shares.sum(axis=-1, keepdims=True)
    low, high = np.quantile(most_likely(shares, rates), (0.025, 0.975), axis=0)
    best = most_likely(found, confusion / confusion.sum(axis=1, keepdims=True))
    return Corrected(best, np.minimum(low, best), np.maximum(high, best))


def most_likely(
    found: Float[np.ndarray, '*D C'], rates: Float[np.ndarray, '*D C C']
) -> Float[np.ndarray, '*D C']:
    """Return the shares of classes under which the predicted shares are most likely.

    Args:
      found: The shares of the predicted classes.
      rates: The probability of each prediction (columns) for each class (rows).
    """
    # EM: each predicted class is divided among those that it may be.
    shares = np.full(np.shape(found), 1 / np.shape(found)[-1])
    for _ in range(_STEPS):
        expected = np.einsum('...T,...TP->...P', shares, rates)
        shares = shares * np.einsum('...TP,...P->...T', rates, found / np.maximum(expected, 1e-300))
    return shares / shares.sum(axis=-1, keepdims=True)
