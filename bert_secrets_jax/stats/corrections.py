"""Corrections of p-values for the number of tests. Axes: M tests, R resamples."""

from collections.abc import Hashable, Iterable

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.stats.scores import PerMask
from bert_secrets_jax.stats.student import LEVEL


@checked
def holm(p_values: PerMask) -> PerMask:
    """Return p-values [M] adjusted for all M tests (Holm 1979).

    If p-values up to a level count as significant, the chance of any error among them is at most
    that level, however the tests depend on each other. NaN stays NaN, and counts as a test.
    ValueError if a p-value is outside [0, 1].
    """
    known = _known(p_values)
    order = np.argsort(known)
    steps = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(steps, 1)
    return np.where(np.isnan(p_values), np.nan, adjusted)


@checked
def benjamini_hochberg(p_values: PerMask) -> PerMask:
    """Return p-values [M] adjusted for all M tests (Benjamini and Hochberg 1995).

    If p-values up to a level count as significant, the expected share of errors among them is at
    most that level, for independent and for positively dependent tests (Benjamini and Yekutieli
    2001). NaN and errors are as in `holm`.
    """
    adjusted = scipy.stats.false_discovery_control(_known(p_values))
    return np.where(np.isnan(p_values), np.nan, adjusted)


def max_t(t: PerMask, greatest: Float[np.ndarray, ' R'], *, all_of_them: bool = False) -> PerMask:
    """Return p-values [M] adjusted for all M tests (Westfall and Young 1993).

    Args:
      t: The statistics, of which large ones count against the hypotheses.
      greatest: The greatest of the M statistics in each resample without any effect.
      all_of_them: Whether resamples are all there can be, and the sample is one of these.
    """
    as_great = (greatest[:, None] >= t).sum(axis=0)
    return as_great / len(greatest) if all_of_them else (1 + as_great) / (1 + len(greatest))


def calibrated_count(
    p_values: PerMask, resampled: Float[np.ndarray, 'R M'], *, level: float = LEVEL
) -> int:
    """Return the number of masks that have an effect, at least, with a certainty of 1 - level.

    It says how many, and not which. `resampled` are p-values in which no mask has an effect. It
    holds however masks depend on each other, and for skewed data as far as resamples do. Simes'
    line is lowered until a share `level` of the resamples has a p-value below it (Blanchard,
    Neuvial and Roquain 2020, "Post hoc confidence bounds on false positives").
    """
    masks = len(p_values)
    ranks = np.arange(1, masks + 1)
    lowest = np.sort((np.sort(resampled, axis=1) * masks / ranks).min(axis=1))
    line = lowest[int(level * (len(lowest) + 1)) - 1] * ranks / masks
    # At most k - 1 masks without an effect are below the k-th value of the line.
    below = np.searchsorted(np.sort(p_values), line)
    return max(int((below - ranks + 1).max()), 0)


def _known(p_values) -> np.ndarray:
    known = np.nan_to_num(p_values, nan=1.0)
    if p_values.ndim != 1 or not ((known >= 0) & (known <= 1)).all():
        raise ValueError('P-values must be [M] within 0 and 1.')
    return known


def corrected(claims: Iterable[Hashable], p_values: Iterable[float]) -> np.ndarray:
    """Correct the p-values of claims that are each tested on several tasks and models.

    After Benjamini and Bogomolov (2014), in two levels. A claim is a family of tests, with the
    p-value of its best test after Bonferroni. First, claims are selected by the method of Benjamini
    and Hochberg. Then a test counts if it does so after Bonferroni within its claim, at the level
    times the share of the claims that were selected.

    This bounds the expected mean, over the selected claims, of whether any verdict on the claim is
    wrong. It is proved for independent claims; `tests/analyses` simulates claims that share
    examples. Either verdict may come out, so p-values are doubled first.

    The columns `claim` and `p` of `bs.read_results(folder)['claims']` may be the arguments, to
    correct claims of several runs.

    P-values are the smaller ones of tests (`Verdict.p`); NaN stays NaN and is no test.
    """
    claims, p_values = list(claims), np.array(list(p_values), np.float64)
    known = np.flatnonzero(~np.isnan(p_values))
    numbers: dict[Hashable, int] = {}
    family = np.array([numbers.setdefault(claims[index], len(numbers)) for index in known], int)
    adjusted = np.full(len(p_values), np.nan)
    if not len(known):
        return adjusted
    within = np.minimum(2 * p_values[known] * np.bincount(family)[family], 1.0)
    best = np.ones(len(numbers))
    np.minimum.at(best, family, within)
    # The level from which on so many claims are selected, for each number of them.
    levels = np.sort(benjamini_hochberg(best))
    share = len(numbers) / np.arange(1, len(numbers) + 1)
    found = np.maximum(levels, within[:, None] * share).min(axis=1)
    adjusted[known] = np.minimum(found, 1.0)
    return adjusted
