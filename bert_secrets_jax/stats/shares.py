"""Intervals of shares: of independent trials, and of links that come in texts."""

from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float, Real

from bert_secrets_jax.stats.student import LEVEL, reach


def exact_interval(
    successes: Real[np.ndarray, ' M'], trials: int
) -> tuple[Float[np.ndarray, ' M'], Float[np.ndarray, ' M']]:
    """Return the ends [M] of 95 % intervals of shares (Clopper and Pearson 1934)."""
    failures = trials - successes
    low = scipy.stats.beta.ppf(LEVEL / 2, np.maximum(successes, 1), failures + 1)
    high = scipy.stats.beta.isf(LEVEL / 2, successes + 1, np.maximum(failures, 1))
    return np.where(successes > 0, low, 0.0), np.where(failures > 0, high, 1.0)


def p_even(fewer: Any, trials: Any) -> Any:
    """Return the two-sided p-values of the exact sign test, from the rarer outcome of trials."""
    return np.minimum(2 * scipy.stats.binom.cdf(fewer, trials, 0.5), 1)


def wilson(
    share: np.ndarray, error: np.ndarray, links: np.ndarray, texts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of 95 % intervals of shares whose links come in texts.

    They are Wilson's score intervals for as many independent links as have the same standard error
    over texts (Korn and Graubard 1998), with the quantile of Student's t for the number of texts.
    """
    variance = share * (1 - share)
    with np.errstate(divide='ignore', invalid='ignore'):
        # Links that are alike in a text count as fewer; never as more than there are.
        effective = np.where(variance > 0, np.minimum(variance / error**2, links), texts)
        z = reach(np.maximum(texts - 1, 1))
        middle = (share + z**2 / (2 * effective)) / (1 + z**2 / effective)
        half = (
            z / (1 + z**2 / effective) * np.sqrt(variance / effective + z**2 / (4 * effective**2))
        )
    return np.maximum(middle - half, 0), np.minimum(middle + half, 1)
