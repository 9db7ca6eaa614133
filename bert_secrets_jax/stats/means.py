"""Tests of means over examples that hold where single changes are skewed.

Every outcome of a mask is a mean over examples, or its linear part is one. Student's t is compared
with the greatest t of all masks in resamples of the examples (bootstrap-t, Efron and Tibshirani
1993, chapter 12; max-T, Westfall and Young 1993). Flips of signs would find too much, because
changes of a loss are skewed.

Axes: M masks, E examples, R resamples, 2 sides.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.checks import shortened
from bert_secrets_jax.stats.corrections import benjamini_hochberg, calibrated_count, max_t
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.influence import limits, p_unseen, share_unseen
from bert_secrets_jax.stats.resampling import bootstrap_t
from bert_secrets_jax.stats.scores import ROUNDING, PerMask
from bert_secrets_jax.stats.student import LEVEL, detectable, p_above, reach

# Fewer examples give no interval at all, and fewer than the second one a little too narrow.
FEWEST, FEW = 2, 50


def assess_means(
    difference: PerMask,
    linear: Float[np.ndarray, 'M E'],
    *,
    names: Sequence[str],
    outcome: Outcome,
    intact: float,
    share: Float[np.ndarray, ' E'] | None = None,
    sample_of: str = 'examples',
    seed: int = 0,
) -> Effects:
    """Return effects with their intervals, and p-values of max-T by a bootstrap of examples.

    Intervals and p-values allow for few texts that carry a change, and for such of which none was
    seen (`influence.limits`): one may change as much as the farthest text of the median mask.

    A mask of which `outcome.counts_from` is above 0 is tested in one direction: whether its
    difference is greater than that.

    Args:
      difference: The differences from the intact model [M].
      linear: The part of each example in each difference: its values have a mean of 0, and the mean
        of `difference + linear` over other examples would be theirs.
      names, outcome, sample_of: As in `Effects`.
      intact: The outcome of the intact model.
      share: The weight of each example in a ratio, with a mean of 1 [E]; None weighs all alike.
      seed: The seed of the resamples.

    Raises:
      ValueError: There are fewer than two examples.
      FloatingPointError: A difference is NaN or infinite; it would spoil the test of all others.
    """
    masks, count = linear.shape
    if count < FEWEST:
        raise ValueError(
            f'An interval over {sample_of} needs at least {FEWEST}, and there are {count}.'
        )
    broken = ~(np.isfinite(difference) & np.isfinite(linear).all(axis=1))
    if broken.any():
        named = shortened(', '.join(np.array(names)[broken]))
        raise FloatingPointError(
            f'The changes of {outcome.name} without {named} are NaN or infinite: leave these out.'
        )
    share, margin, grows = np.ones(count) if share is None else share, outcome.margin, outcome.grows
    error = linear.std(axis=1, ddof=1) / np.sqrt(count)
    scale = np.abs(linear + difference[:, None] * share).max(axis=1)
    # A change that is the same everywhere has no error, but for rounding.
    error[error <= ROUNDING * scale] = 0.0
    resampled = bootstrap_t(linear, share, seed=seed)
    size, either = np.abs(difference), np.abs(resampled).max(axis=1)
    ahead, largest = (difference, resampled.max(axis=1)) if grows else (size, either)
    # Texts that were not seen may change as much as the farthest one of a typical mask.
    farthest, sides = float(np.median(scale)), 2 - grows
    about = {'largest': largest, 'sides': sides, 'farthest': farthest, 'count': count}
    p_values, corrected = _p_exceeding(ahead - outcome.counts_from, error, **about)
    _, beyond = _p_exceeding(ahead - margin, error, **about)
    about |= {'largest': either, 'sides': 1}
    fewest = None
    if not grows:
        upper = p_above(resampled, count - 1)
        # A resample that counts against any finding counts on either side.
        under = np.where(np.isinf(resampled), 0.0, 1 - upper)
        below, above = (
            _p_exceeding(sign * difference - margin, error, **about)[0] for sign in (-1, 1)
        )
        # One sentence says both.
        half = LEVEL / 2
        fewest = (
            calibrated_count(below, under, level=half),
            calibrated_count(above, upper, level=half),
        )
    # Where most masks change nothing, those that do tell how far a text can move one.
    about['farthest'] = farthest or float(scale.max())
    _, equivalent = _p_exceeding(margin - size, np.where(error > 0, error, ROUNDING), **about)
    # Bonferroni's bar, or that of max-T if it is higher: what is said to be found is found.
    level = LEVEL / sides / masks
    bar = max(reach(count - 1, level), np.quantile(largest, 1 - LEVEL, method='higher'))
    # A mask without an error has NaN where the bar is infinite.
    with np.errstate(invalid='ignore'):
        found = np.fmax(detectable(error, bar), farthest * share_unseen(level, count))
    low, high = limits(difference, linear, of_one=(farthest, farthest))
    return Effects(
        names=names,
        difference=difference,
        low=low,
        high=high,
        p_value=p_values,
        corrected=corrected,
        sample=count,
        sample_of=sample_of,
        outcome=outcome,
        intact=intact,
        test="Student's t",
        correction='max-T',
        benjamini_hochberg=benjamini_hochberg(p_values),
        detectable=outcome.counts_from + found,
        beyond=beyond,
        equivalent=equivalent if margin else None,
        fewest=fewest,
    )


def _p_exceeding(
    ahead: PerMask,
    error: PerMask,
    *,
    largest: Float[np.ndarray, ' R'],
    sides: int,
    farthest: float,
    count: int,
) -> tuple[PerMask, PerMask]:
    """Return p-values [M] of changes that are not ahead of a bound: alone, and for all masks.

    The largest t of all masks in resamples is that of either side if both are tested.
    """
    t = ahead / np.where(error > 0, error, np.inf)
    unseen = np.minimum(sides * p_unseen(np.maximum(ahead, 0), farthest, count), 1)
    alone = np.minimum(np.maximum(sides * p_above(t, count - 1), unseen), 1)
    return alone, np.maximum(max_t(t, largest), np.minimum(len(ahead) * unseen, 1))
