"""Intervals and tests of means by Student's t, of ratios of two means, and of shares.

With infinitely many degrees of freedom, t is normal.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float, Num, Real

# The chance of any false discovery among all tests that is accepted.
LEVEL = 0.05
# The probability with which an effect is found that counts as detectable.
POWER = 0.8


def reach(freedom: Any = math.inf, tail: Any = LEVEL / 2) -> Any:
    """Return the t that is exceeded with the probability `tail`, by default that of an interval."""
    return scipy.stats.t.isf(tail, freedom)


def p_above(t: Any, freedom: Any = math.inf) -> Any:
    """Return the one-sided p-values of the hypotheses that a number is at most 0."""
    return scipy.stats.t.sf(t, freedom)


def p_zero(t: Any, freedom: Any = math.inf) -> Any:
    """Return the two-sided p-values of the hypotheses that a number is 0."""
    return 2 * p_above(np.abs(t), freedom)


def detectable(error: Any, bar: Any) -> Any:
    """Return the numbers that a one-sided test, whose t has to reach a bar, finds with POWER."""
    return (bar + reach(tail=1 - POWER)) * error


def interval(
    mean: Any, error: Any, freedom: Any, limits: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[Any, Any, Any]:
    """Return numbers and the ends of their 95 % intervals, which stay within the limits."""
    return within(mean, reach(freedom) * error, limits)


def within(mean: Any, half: Any, limits: tuple[float, float]) -> tuple[Any, Any, Any]:
    """Return means and the ends of their intervals, which stay within the limits of the numbers."""
    return mean, np.maximum(mean - half, limits[0]), np.minimum(mean + half, limits[1])


def of_sum(squares: Iterable[Any], freedoms: Iterable[Any]) -> tuple[Any, Any]:
    """Return a sum of squared errors, and its degrees of freedom (Satterthwaite 1946)."""
    squares = list(squares)
    each = [square**2 / freedom for square, freedom in zip(squares, freedoms, strict=True)]
    return sum(squares), sum(squares) ** 2 / sum(each)


def mean_interval(
    values: np.ndarray, limits: tuple[float, float] = (-math.inf, math.inf)
) -> tuple[Any, Any, Any]:
    """Return means over the last axis and the ends of their 95 % intervals.

    A single value has no interval, and then the ends are NaN. Ends are within the limits of values.
    """
    mean, count = values.mean(axis=-1), values.shape[-1]
    if count < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    return interval(mean, values.std(axis=-1, ddof=1) / math.sqrt(count), count - 1, limits)


def p_above_zero(values: Num[np.ndarray, ' E']) -> float:
    """Return the one-sided p-value of a mean of at most 0; 1 for one value.

    It is never below that of as many fair coins which all fall alike.
    """
    if len(values) < 2:
        return 1.0
    error = values.std(ddof=1) / np.sqrt(len(values))
    if error == 0:
        return 0.5 ** len(values) if values[0] > 0 else 1.0
    return max(float(p_above(values.mean() / error, len(values) - 1)), 0.5 ** len(values))


def ratio_interval(
    above: float, below: float, squares: tuple[float, float], product: float, freedom: float | int
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a ratio of two means (Fieller 1954).

    Args:
      above, below: The numerator and the denominator, which is above 0.
      squares, product: Their squared errors, and the covariance of these errors.
      freedom: The degrees of freedom of all three.

    Returns:
      The lower and the upper end, which is infinite where the denominator may be 0.
    """
    bound = reach(freedom) ** 2
    # The ratios that are not refuted lie between the roots of a polynomial.
    square, linear = below**2 - bound * squares[1], below * above - bound * product
    constant = above**2 - bound * squares[0]
    root = math.sqrt(max(linear**2 - square * constant, 0.0))
    if square > 0:
        return (linear - root) / square, (linear + root) / square
    return constant / (linear + root) if linear + root > 0 else -math.inf, math.inf


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
