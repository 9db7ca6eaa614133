"""Correlations and their intervals, which are on Fisher's scale (1921).

Shapes: P parts of a sample (examples, mostly), H whatever is ranked (heads), of any shape.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.stats.resampling import jackknife
from bert_secrets_jax.stats.student import reach

# A correlation of 1 has no finite value on Fisher's scale.
_GREATEST = 1 - 1e-9


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Spearman's rank correlation with its 95 % interval; NaN where there is none."""

    rank: float
    low: float
    high: float


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Return the rank correlation of two arrays of one shape, without places where either is NaN.

    It is NaN where it is not defined: if all remaining numbers of an array are equal.
    """
    both = np.stack([np.ravel(one), np.ravel(other)])
    both = both[:, ~np.isnan(both).any(axis=0)]
    # For these SciPy would warn.
    if any(len(np.unique(values)) < 2 for values in both):
        return float('nan')
    return float(np.asarray(scipy.stats.spearmanr(*both))[0])


def p_uncorrelated(correlation: float, examples: int) -> float:
    """Return the one-sided p-value of Pearson's r of normal values without any correlation."""
    shape = examples / 2 - 1
    return float(scipy.stats.beta.sf(correlation, shape, shape, loc=-1, scale=2))


def _on_fishers_scale(correlations: Any, limit: float = _GREATEST) -> Any:
    return np.arctanh(np.clip(correlations, -limit, limit))


def fisher_interval(
    correlation: float | int, error: float, freedom: float | int = np.inf
) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a correlation, from its error on Fisher's scale."""
    centre, half = _on_fishers_scale(correlation), reach(freedom) * error
    low, high = np.tanh(centre - half), np.tanh(centre + half)
    # A correlation of 1 is beyond the transformation, and within its interval all the same.
    return float(min(low, correlation)), float(max(high, correlation))


def jackknifed(statistic: Callable[[slice], float], parts: int) -> RankAgreement:
    """Return a correlation with its interval of the jackknife over parts, one at a time.

    `statistic` is the correlation without a slice of the parts.
    """
    estimate = statistic(slice(0))
    return RankAgreement(
        estimate, *_jackknife_interval(estimate, [jackknife(statistic, parts, parts)])
    )


def _jackknife_interval(estimate: float, samples: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the 95 % interval of a correlation from those without each part of each sample.

    It is on Fisher's scale, with Student's t (Efron and Tibshirani 1993, chapter 11).
    """
    if min(map(len, samples)) < 2 or np.isnan(estimate):
        return np.nan, np.nan
    variance = 0.0
    for found in samples:
        z = _on_fishers_scale(found)
        variance += (len(z) - 1) / len(z) * float(((z - z.mean()) ** 2).sum())
    return fisher_interval(estimate, np.sqrt(variance), min(map(len, samples)) - 1)


def interval_of_resamples(values: Float[np.ndarray, ' R']) -> tuple[float, float, float]:
    """Return the first correlation with its 95 % interval, from how the others scatter.

    It is on Fisher's scale, where 1 would be too far out: it counts as the greatest of the others.
    Quantiles would lie too low: resamples are noisier than the sample.
    """
    below = np.abs(values)[np.abs(values) < _GREATEST]
    limit = below.max(initial=0) or _GREATEST
    z = _on_fishers_scale(values, limit)
    error = float(np.std(z[1:], ddof=1)) if len(values) > 2 else np.nan
    low, high = fisher_interval(np.tanh(z[0]), error)
    return float(values[0]), low, max(high, float(values[0]))


def rank_agreement(
    first: Float[np.ndarray, 'P *H'],
    second: Float[np.ndarray, 'Q *H'],
    *,
    paired: bool,
    score: Callable[[np.ndarray], np.ndarray] = lambda means: means,
) -> RankAgreement:
    """Return the rank correlation of two rankings, with an interval over both samples.

    It is that of the jackknife over groups of parts. Where effects are small against their errors,
    larger samples would show a greater correlation. Paired samples are of the same parts, which are
    left out together. `score` makes of the mean of the first what is ranked.
    """
    if paired and len(first) != len(second):
        raise ValueError(f'Paired samples are of one size, not {len(first)} and {len(second)}.')

    def rank(left: slice, right: slice) -> float:
        return spearman(score(_mean_without(first, left)), _mean_without(second, right))

    nothing = slice(0)
    samples = [jackknife(lambda left: rank(left, left if paired else nothing), len(first))]
    if not paired:
        samples.append(jackknife(lambda left: rank(nothing, left), len(second)))
    estimate = rank(nothing, nothing)
    return RankAgreement(estimate, *_jackknife_interval(estimate, samples))


def _mean_without(parts: np.ndarray, left: slice) -> np.ndarray:
    gone = parts[left]
    return (parts.sum(axis=0) - gone.sum(axis=0)) / (len(parts) - len(gone))
