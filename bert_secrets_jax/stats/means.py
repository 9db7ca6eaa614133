"""Tests of means over examples that hold where single changes are skewed.

Every outcome of a mask is a mean over examples, or its linear part is one. Student's t is compared
with the greatest t of all masks in resamples of the examples (bootstrap-t, Efron and Tibshirani
1993, chapter 12; max-T, Westfall and Young 1993). Flips of signs would find too much, because
changes of a loss are skewed.

Axes: M masks, E examples, R resamples.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.brief import shortened
from bert_secrets_jax.stats.corrections import benjamini_hochberg, max_t
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.influence import limits, p_unseen, share_unseen
from bert_secrets_jax.stats.resampling import bootstrap_t
from bert_secrets_jax.stats.scores import ROUNDING, PerMask
from bert_secrets_jax.stats.shrinkage import calibrated_count, shrink
from bert_secrets_jax.stats.student import LEVEL, detectable, p_above

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
    margin: tuple[float, Float[np.ndarray, ' E']] | None = None,
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
      margin: The size of a difference from which on it matters, and the part of each example in it
        [E]; `equivalent` is then tested, by two one-sided tests and max-T. None tests nothing.
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
    share = np.ones(count) if share is None else share
    error = linear.std(axis=1, ddof=1) / np.sqrt(count)
    # A change that is the same everywhere, up to rounding, has no error and is not tested.
    scale = np.abs(linear + difference[:, None] * share).max(axis=1)
    tested = error > ROUNDING * scale
    t = (difference - outcome.counts_from) / np.where(tested, error, np.inf)
    one_sided = outcome.counts_from > 0
    extreme = t if one_sided else np.abs(t)
    # Texts that were not seen may change as much as the farthest one of a typical mask.
    farthest, sides = float(np.median(scale)), 2 - one_sided
    unseen = sides * p_unseen(np.abs(difference - outcome.counts_from), farthest, count)
    p_values = np.minimum(np.maximum(sides * p_above(extreme, count - 1), unseen), 1)
    resampled = bootstrap_t(linear, share, seed=seed)
    largest = (resampled if one_sided else np.abs(resampled)).max(axis=1)
    shrunken = fewest = None
    if not one_sided:
        upper = p_above(resampled, count - 1)
        # A resample that counts against any finding counts on either side.
        lower = np.where(np.isinf(resampled), 0, 1 - upper)
        shrunken = shrink(
            difference,
            np.where(np.isinf(t), 0, error),
            at_least=calibrated_count(p_values, 2 * np.minimum(upper, lower)),
        )
        # One sentence says both.
        fewest = (
            calibrated_count(p_above(-t, count - 1), lower, level=LEVEL / 2),
            calibrated_count(p_above(t, count - 1), upper, level=LEVEL / 2),
        )
    # Bonferroni's bar, which max-T is below: what is said to be found is found.
    level = LEVEL / sides / masks
    found = detectable(error, count - 1, level)
    found = np.maximum(found, farthest * share_unseen(level, count))
    equivalent = None
    if margin is not None:
        inside = np.maximum(margin[0] - np.abs(difference), 0)
        equivalent = np.maximum(
            _equivalent(difference, linear, *margin, seed=seed),
            np.minimum(masks * p_unseen(inside, farthest, count), 1),
        )
    low, high = limits(difference, linear, of_one=(farthest, farthest))
    return Effects(
        names=names,
        difference=difference,
        low=low,
        high=high,
        p_value=p_values,
        corrected=np.maximum(max_t(extreme, largest), np.minimum(masks * unseen, 1)),
        sample=count,
        sample_of=sample_of,
        outcome=outcome,
        intact=intact,
        test="Student's t",
        correction='max-T',
        benjamini_hochberg=benjamini_hochberg(p_values),
        detectable=outcome.counts_from + found,
        margin=max(margin[0], 0.0) if margin else np.nan,
        equivalent=equivalent,
        shrunken=shrunken,
        fewest=fewest,
    )


def _equivalent(
    difference: PerMask,
    linear: Float[np.ndarray, 'M E'],
    margin: float,
    part: Float[np.ndarray, ' E'],
    *,
    seed: int,
) -> PerMask:
    """Return p-values of differences that reach the margin on either side, corrected by max-T.

    The margin is measured on the same examples, and its error counts.
    """
    count = len(part)
    distance = np.concatenate([margin - difference, margin + difference])
    inside = np.concatenate([part - linear, part + linear])
    error = inside.std(axis=1, ddof=1) / np.sqrt(count)
    t = (distance / np.where(error > 0, error, np.inf)).reshape(2, -1).min(axis=0)
    return max_t(t, bootstrap_t(inside, np.ones(count), seed=seed).max(axis=1))
