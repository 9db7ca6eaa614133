"""Intervals and tests of differences of accuracy or F1 that hold where few predictions change.

A bootstrap repeats the examples that it has. Where only a few of some hundred predictions change,
it misses what these few happen to lack, and its intervals cover too seldom (an interval of none is
[0, 0]). So the differences are counted, and a score test is inverted: Tango's (1998) for accuracy,
and the same idea for F1. The variance is that of the distribution which fits the counts best among
those that have the difference in question, so that changes which never occurred count, too.

Axes: M masks, C kinds of examples that a score can tell apart.
"""

import dataclasses

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.ablation.scores import PerExample, PerMask, Predictions, check

# Halvings of an interval: its ends are exact to 2 / 2**32.
_HALVINGS = 32
# What keeps a division by 0 from being one.
_TINY = 1e-300


@dataclasses.dataclass(frozen=True)
class Counted:
    """How often the intact model and each mask do what to an example.

    A score is the sum of numerators over the sum of denominators: of 1 for each right answer over 1
    for each example (accuracy), or of 2 for each true positive over 2 for each true positive and 1
    for each wrong answer about class 1 (F1).

    Attributes:
      counts: [M, C] The number of examples of each kind.
      numerators: [2, C] What an example of each kind adds to the numerator of the intact model and
        of the mask.
      denominators: [2, C] The same for the denominator.
    """

    counts: Float[np.ndarray, 'M C']
    numerators: Float[np.ndarray, '2 C']
    denominators: Float[np.ndarray, '2 C']

    @property
    def differences(self) -> PerMask:
        """The score of each mask minus that of the intact model [M]; 0 of nothing counts as 0."""
        scores = [
            _ratio(self.counts @ numerator, self.counts @ denominator)
            for numerator, denominator in zip(self.numerators, self.denominators, strict=True)
        ]
        return scores[1] - scores[0]


def count(
    metric: str, predictions: Predictions, baseline: PerExample, labels: PerExample
) -> Counted:
    """Count the kinds of examples.

    Args:
      metric: 'accuracy' or 'f1'.
      predictions: [M, E] The predictions under each mask.
      baseline: [E] The predictions of the intact model.
      labels: [E] The true labels.

    Raises:
      ValueError: The metric is another one, or the shapes do not fit.
    """
    check(metric, predictions, labels, baseline)
    if metric == 'accuracy':
        intact, masked = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        kinds = 2 * (baseline == labels) + (predictions == labels)
        numerators, denominators = np.stack([intact, masked]), np.ones((2, 4))
    elif metric == 'f1':
        label, intact, masked = np.indices((2, 2, 2)).reshape(3, 8)
        kinds = 4 * (labels == 1) + 2 * (baseline == 1) + (predictions == 1)
        numerators = 2 * label * np.stack([intact, masked])
        denominators = numerators + (np.stack([intact, masked]) != label)
    else:
        raise ValueError(f"Only 'accuracy' and 'f1' are counted, not {metric!r}.")
    counts = np.stack([np.bincount(row, minlength=numerators.shape[1]) for row in kinds])
    return Counted(*(each.astype(np.float64) for each in (counts, numerators, denominators)))


def score_statistics(counted: Counted, differences: PerMask, *, half: bool = False) -> PerMask:
    """Return how far the counts lie above a hypothetical difference, in standard errors.

    With S for the score of the intact model and d for the difference, the sample mean of

        (numerator - (S + d) denominator) of the mask
        - (numerator - S denominator) of the intact model

    is expected to be 0. It is divided by its standard error under the distribution over all C kinds
    that has this mean and the greatest likelihood. For accuracy, this is Tango's statistic.

    Args:
      counted: The counts.
      differences: [M] The hypothetical differences.
      half: Whether to move the counts by half a changed prediction towards the hypothesis. This
        correction for continuity keeps a test of a few counts to its level.

    Returns:
      The statistics [M], approximately standard normal if the hypothesis is true. They are 0 where
      no score is defined, because no example and no prediction is of class 1.
    """
    examples = counted.counts.sum(axis=1)
    shares = counted.counts / examples[:, None]
    (of_intact, of_mask), (per_intact, per_mask) = counted.numerators, counted.denominators
    score = _ratio(shares @ of_intact, shares @ per_intact)[:, None]
    values = (of_mask - (score + differences[:, None]) * per_mask) - (
        of_intact - score * per_intact
    )
    # The greatest likelihood under the constraint divides each share by 1 + tilt * value; the right
    # tilt makes the mean 0. Bounds keep all shares positive. Where even these leave a mean, a kind
    # that never occurred takes what is missing from 1.
    greatest, least = values.max(axis=1), values.min(axis=1)
    defined = (greatest > 0) & (least < 0)
    low = -1 / np.where(defined, greatest, 1)
    high = -1 / np.where(defined, least, -1)
    for _ in range(_HALVINGS):
        tilt = (low + high) / 2
        tilted = shares / np.maximum(1 + tilt[:, None] * values, _TINY)
        above = (tilted * values).sum(axis=1) > 0
        low, high = np.where(above, tilt, low), np.where(above, high, tilt)
    extreme = np.where(tilt < 0, greatest, least)
    missing = np.maximum(1 - tilted.sum(axis=1), 0)
    variance = (tilted * values**2).sum(axis=1) + missing * extreme**2
    mean = (shares * values).sum(axis=1)
    if half:
        changed = (of_intact != of_mask) | (per_intact != per_mask)
        step = np.abs(values * changed).max(axis=1) / 2 / examples
        mean = np.sign(mean) * np.maximum(np.abs(mean) - step, 0)
    known = defined & (variance > 0)
    return np.where(known, mean * np.sqrt(examples / np.where(known, variance, 1)), 0)


def score_limits(counted: Counted, *, below: float, above: float) -> tuple[PerMask, PerMask]:
    """Return the ends of the intervals of the differences: those that the test does not refute.

    Args:
      counted: The counts.
      below: The probability that a difference lies below its interval.
      above: The probability that it lies above.

    Returns:
      The lower ends [M] and the upper ends [M].
    """
    # Both ends at once: first all lower ones, then all upper ones.
    masks = len(counted.counts)
    twice = dataclasses.replace(counted, counts=np.tile(counted.counts, (2, 1)))
    limits = np.repeat(scipy.stats.norm.isf([below, above]), masks)
    inside, outside = twice.differences, np.repeat([-1.0, 1.0], masks)
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        within = np.abs(score_statistics(twice, middle)) <= limits
        inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
    return inside[:masks], inside[masks:]


def score_equivalence(counted: Counted, margin: float) -> PerMask:
    """Return p-values [M] of the hypothesis that a difference is at least the margin.

    These are two one-sided tests (TOST, Schuirmann 1987): that the score falls by the margin or
    more, and that it rises as much. The larger of their p-values counts.

    Args:
      counted: The counts.
      margin: The smallest difference, in either direction, that would matter.
    """
    margins = np.full(len(counted.counts), margin)
    above = score_statistics(counted, -margins, half=True)
    below = score_statistics(counted, margins, half=True)
    return scipy.stats.norm.sf(np.minimum(above, -below))


def _ratio(numerator, denominator) -> np.ndarray:
    return numerator / np.where(denominator > 0, denominator, 1)
