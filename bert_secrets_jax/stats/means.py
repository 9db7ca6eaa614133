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

from bert_secrets_jax.brief import shortened
from bert_secrets_jax.stats.corrections import benjamini_hochberg, calibrated_count, max_t
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.influence import limits, p_unseen, share_unseen
from bert_secrets_jax.stats.resampling import bootstrap_t
from bert_secrets_jax.stats.scores import ROUNDING, PerMask
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
        [E]. Whether differences are beyond it or within it is then tested, by one-sided tests on
        either side and max-T. None counts any difference.
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
    # Bonferroni's bar, which max-T is below: what is said to be found is found.
    level = LEVEL / sides / masks
    found = detectable(error, count - 1, level)
    found = np.maximum(found, farthest * share_unseen(level, count))
    bar, part = (0.0, 0 * share) if margin is None or margin[0] <= 0 else margin
    outside, drawn = np.stack([t, -t]), np.stack([resampled, _turned(resampled)])
    corrected = np.maximum(max_t(extreme, largest), np.minimum(masks * unseen, 1))
    beyond, equivalent, fewest = corrected, None, None
    if margin is not None:
        inside, within = _within(difference, linear, bar, part, seed=seed)
        outside, drawn = -inside, _turned(within)
        unseen_inside = p_unseen(np.maximum(bar - np.abs(difference), 0), farthest, count)
        equivalent = max_t(inside.min(axis=0), within.max(axis=(0, 2)))
        equivalent = np.maximum(equivalent, np.minimum(masks * unseen_inside, 1))
    if not one_sided:
        ahead = np.maximum(np.abs(difference) - bar, 0)
        unseen_outside = np.minimum(sides * p_unseen(ahead, farthest, count), 1)
        beyond = max_t(outside.max(axis=0), drawn.max(axis=(0, 2)))
        beyond = np.maximum(beyond, np.minimum(masks * unseen_outside, 1))
        beyond = np.maximum(beyond, corrected)
        # One sentence says both, so each has half of the level.
        higher, lower = (
            calibrated_count(
                np.maximum(p_above(each, count - 1), unseen_outside),
                p_above(at_random, count - 1),
                level=LEVEL / 2,
            )
            for each, at_random in zip(outside, drawn, strict=True)
        )
        fewest = lower, higher
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
        margin=outcome.counts_from or bar,
        beyond=beyond,
        equivalent=equivalent,
        fewest=fewest,
    )


def _within(
    difference: PerMask,
    linear: Float[np.ndarray, 'M E'],
    margin: float,
    part: Float[np.ndarray, ' E'],
    *,
    seed: int,
) -> tuple[Float[np.ndarray, '2 M'], Float[np.ndarray, '2 R M']]:
    """Return t of how far differences are below the margin and above minus the margin.

    The second value is that of resamples in which all differences are at that border. The margin
    is measured on the same examples, and its error counts.
    """
    distance = np.stack([margin - difference, margin + difference])
    inside = np.stack([part - linear, part + linear])
    error = inside.std(axis=2, ddof=1) / np.sqrt(len(part))
    # A change that is the same everywhere has no error, and may be small, but not too great.
    t = np.where(distance > 0, np.inf, 0.0)
    np.divide(distance, error, out=t, where=error > 0)
    resampled = bootstrap_t(np.concatenate(inside), np.ones(len(part)), seed=seed)
    return t, resampled.reshape(len(resampled), *t.shape).swapaxes(0, 1)


def _turned(resampled: np.ndarray) -> np.ndarray:
    """Return t with its sign turned; a resample that counts against any finding still does."""
    return np.where(np.isinf(resampled), np.inf, -resampled)
