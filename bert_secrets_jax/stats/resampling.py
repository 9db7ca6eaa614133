"""Resampling: flips of signs, the bootstrap, the jackknife, and intervals of draws.

Axes: Q quantities, E examples, R resamples.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from bert_secrets_jax.checks import check_enough, check_numbers, check_shape
from bert_secrets_jax.stats.corrections import max_t
from bert_secrets_jax.stats.scores import ROUNDING, blocks
from bert_secrets_jax.stats.student import LEVEL, p_above

_RESAMPLES = 5000
# Each group that is left out costs the statistic, and more groups give the same interval.
_GROUPS = 20


def sign_flip_test(
    values: Real[np.ndarray, 'Q E'],
    *,
    alternative: Literal['two-sided', 'greater'] = 'two-sided',
    rounds: int = 2000,
    seed: int = 0,
) -> tuple[Float[np.ndarray, ' Q'], Float[np.ndarray, ' Q']]:
    """Return p-values of zero means [Q], uncorrected and corrected for all quantities.

    If values are distributed symmetrically about zero, their signs may be flipped. Each round flips
    all values of random examples, the same for all quantities, so that the largest t (or |t|) shows
    how large the strongest of many becomes by chance, whatever the dependence between them
    (Westfall and Young 1993; Romano and Wolf 2005). All flips are made where there are at most
    `rounds` of them (the test is exact then, and its smallest two-sided p-value is two divided by
    their number). With few examples and skewed values the two-sided test finds too much; so does
    the one-sided test where they are skewed to the left.

    The uncorrected p-values are of Student's t-test. Both are 1 for a quantity that is 0
    everywhere.
    """
    values = np.asarray(values, np.float64)
    check_shape('values', values, quantities=None, examples=None)
    check_enough('examples', values.T, 2)
    check_numbers('values', values)
    two_sided = alternative == 'two-sided'
    examples = values.shape[1]
    # Flipping signs does not change the sum of squares.
    square = (values**2).mean(axis=1)

    def t(mean):
        variance = np.maximum(square - mean**2, ROUNDING * square) / (examples - 1)
        found = mean / np.sqrt(np.where(square > 0, variance, 1))
        return np.abs(found) if two_sided else found

    observed = t(values.mean(axis=1))
    # Values that differ only by rounding count as equal.
    bar = observed - ROUNDING * np.abs(observed)
    exact, choices = coin_falls(examples, rounds, width=max(values.shape), seed=seed)
    greatest = [t((2.0 * each - 1) @ values.T / examples).max(axis=1) for each in choices]
    p_values = (1 + two_sided) * p_above(observed, examples - 1)
    nothing = square == 0
    # Among all flips is the one that leaves everything as it is; random ones are joined by it.
    corrected = max_t(bar, np.concatenate(greatest), all_of_them=exact)
    return np.where(nothing, 1, p_values), np.where(nothing, 1, corrected)


def coin_falls(
    coins: int, rounds: int, *, width: int, seed: int, dtype: type = np.int64
) -> tuple[bool, Iterator[Int[np.ndarray, 'R C'] | Bool[np.ndarray, 'R C']]]:
    """Return whether coins can fall in at most `rounds` ways, and these ways or random ones.

    They come in blocks [R, coins] of which several [R, width] fit into memory.
    """
    exact, rng = 2**coins <= rounds, np.random.default_rng(seed)
    return exact, (
        (np.arange(start, stop)[:, None] >> np.arange(coins)) & 1
        if exact
        else rng.integers(2, size=(stop - start, coins), dtype=dtype)
        for start, stop in blocks(2**coins if exact else rounds, width)
    )


def bootstrap_t(
    linear: Float[np.ndarray, 'Q E'], share: Float[np.ndarray, ' E'], *, seed: int
) -> Float[np.ndarray, 'R Q']:
    """Return Student's t of all quantities in each resample of the examples, if none has an effect.

    Arguments are those of `means.assess_means`: the mean of `linear` is 0 for each quantity.
    """
    count = len(share)
    rng = np.random.default_rng(seed)
    found = []
    for start, stop in blocks(_RESAMPLES, count):
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=stop - start)
        drawn = drawn.astype(np.float64)
        weight = drawn @ share
        mean = drawn @ linear.T / weight[:, None]
        squares = drawn @ (linear**2).T
        square = (
            squares
            - 2 * mean * (drawn @ (linear * share).T)
            + mean**2 * (drawn @ share**2)[:, None]
        )
        # Rounding may leave a little less, or more, than nothing.
        error = np.sqrt(np.maximum(square, ROUNDING * squares) / (count - 1) / count)
        t = mean * (weight / count)[:, None] / np.where(error > 0, error, np.inf)
        # A resample of few texts may be one text many times, and counts against any finding.
        found.append(np.where(drawn.max(axis=1, keepdims=True) == count, np.inf, t))
    return np.concatenate(found)


def jackknife(statistic: Callable[[slice], Any], parts: int, groups: int = _GROUPS) -> list[Any]:
    """Return a statistic without each group of parts; none for a single part.

    Neighbours may be alike: each group has parts of the whole sample.

    Args:
      statistic: A function of the slice of the parts that are left out.
      parts: The number of parts.
      groups: The number of groups, at most; that of the parts leaves out one at a time.
    """
    groups = min(groups, parts)
    return [statistic(slice(start, None, groups)) for start in range(groups)] if parts > 1 else []


def percentile_99(draws: Float[np.ndarray, 'R *Q']) -> Float[np.ndarray, '*Q']:
    """Return the number that one draw in a hundred exceeds."""
    return np.quantile(draws, 0.99, axis=0, method='higher')


def drawn_interval(estimate: float, draws: Float[np.ndarray, ' R']) -> tuple[float, float, float]:
    """Return an estimate and the ends of its 95 % interval, between which most draws lie."""
    low, high = np.quantile(draws, (LEVEL / 2, 1 - LEVEL / 2))
    return estimate, float(min(low, estimate)), float(max(high, estimate))
