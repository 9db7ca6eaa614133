"""Intervals of means that hold at all times, however long one goes on.

Each is that of the anytime-valid t-test (Wang and Ramdas 2023), which is exact for normal changes,
and for others as the number of examples grows (Waudby-Smith et al. 2024, "Time-uniform central
limit theory and asymptotic confidence sequences"). Masks share the level equally (Bonferroni).
Where changes are skewed, that alone errs too often: a few examples that change much may not have
come yet. So each interval also reckons with two unseen examples, which change by as many spreads as
the most extreme example of any mask so far, and at least as much as the farthest examples of three
tenths of the masks. These numbers were chosen by simulation (`benchmarks.errors`). With ten masks,
of which one example in a hundred carries all changes, intervals err in a fifth of the worlds.

Axes: m masks, E examples.
"""

import math

import numpy as np
from jaxtyping import Float

# The interval is narrowest at about eight times as many examples.
_TUNED_TO = 50
_UNSEEN = 2
# Some masks: all but this share of them, of which the farthest examples are nearest.
_NEAR = 0.7


def intervals(
    changes: Float[np.ndarray, 'm E'], extreme: tuple[float, float], *, level: float
) -> tuple[Float[np.ndarray, ' m'], Float[np.ndarray, ' m'], tuple[float, float]]:
    """Return means over all examples so far, halves of their intervals, and the new `extreme`.

    Args:
      changes: The changes of masks on all examples so far, at least two.
      extreme: The greatest that was seen so far of two numbers, at first (0, 0): how far an example
        is from its mask's mean, in standard deviations; and how far the farthest examples of
        three tenths of the masks are at least, in the unit of the changes.
      level: The chance that the mean of a mask is ever outside.
    """
    mean, spread = changes.mean(axis=1), changes.std(axis=1)
    farthest = np.abs(changes - mean[:, None]).max(axis=1)
    relative = farthest / np.where(spread > 0, spread, np.inf)
    near = np.quantile(farthest, _NEAR, method='lower')
    extreme = max(extreme[0], float(relative.max())), max(extreme[1], float(near))
    # A mask of which no great change was seen yet may have as great ones as some others.
    unseen = np.maximum(extreme[0] * spread, extreme[1])
    examples = changes.shape[1]
    # The prior of the effect, in standard deviations, is normal with a variance of 1 / _TUNED_TO.
    share = _TUNED_TO / (examples + _TUNED_TO)
    growth = math.exp(-2 / examples * (math.log(level) + math.log(share) / 2))
    if share * growth >= 1:
        return mean, np.full(len(mean), np.inf), extreme
    t = math.sqrt((examples - 1) * (growth - 1) / (1 - share * growth))
    # As if `_UNSEEN` examples were missing that deviate by `unseen`.
    count = examples + _UNSEEN
    moved = _UNSEEN * unseen / count
    variance = (examples * spread**2 + _UNSEEN * unseen**2) / count - moved**2
    return mean, moved + t * np.sqrt(variance / (count - 1)), extreme
