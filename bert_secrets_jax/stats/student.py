"""Intervals and tests of means by Student's t, and of ratios of two means.

With infinitely many degrees of freedom, t is normal.
"""

import math
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Num

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
