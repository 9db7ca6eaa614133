"""Corrections of p-values for the number of tests. Axes: M tests, R resamples."""

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.stats.scores import PerMask


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


def _known(p_values) -> np.ndarray:
    known = np.nan_to_num(p_values, nan=1.0)
    if p_values.ndim != 1 or not ((known >= 0) & (known <= 1)).all():
        raise ValueError('P-values must be [M] within 0 and 1.')
    return known
