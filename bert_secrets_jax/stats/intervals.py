"""Intervals and tests of differences between scores that hold where few predictions change.

A bootstrap repeats the examples that it has: its interval of no change is [0, 0]. So the
differences are counted, and a score test is inverted: Tango's (1998) for accuracy, and the same
idea for any function of the confusion matrix, by its derivative. The variance is that of the
distribution which fits the counts best among those with the difference in question, so that changes
which never occurred count, too. Where a class is rare, intervals are wide.

Axes: M masks, K kinds of examples (true class, answer of the intact model, answer of the mask) of
those that occur, C classes.
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.scores import PerExample, PerMask, Predictions, bisected, check
from bert_secrets_jax.stats.student import p_above, reach

# Halvings of an interval: its ends are exact to 2 / 2**32.
_HALVINGS = 32
_TINY = 1e-300
# The statistic of a difference that no distribution of the examples could have.
_IMPOSSIBLE = 1e9


@dataclasses.dataclass(frozen=True)
class Counted:
    """How often the intact model and each mask do what to an example.

    Attributes:
      counts: [M, K] The number of examples of each kind.
      kinds: [K, 3] The true class of each kind, the intact model's answer and the mask's. With a
        kind, the one with both answers swapped is here, too.
    """

    metric: str
    counts: Float[np.ndarray, 'M K']
    kinds: Int[np.ndarray, 'K 3']
    classes: int

    @property
    def confusions(self) -> Float[np.ndarray, '2 M C C']:
        """The shares of examples by class and answer, of the intact model and of each mask."""
        labels, *answers = self.kinds.T
        shares = self.counts / self.counts.sum(axis=1, keepdims=True)
        matrices = np.zeros((2, len(shares), self.classes, self.classes))
        for matrix, answer in zip(matrices, answers, strict=True):
            np.add.at(matrix.T, (answer, labels), shares.T)
        return matrices


def count(
    metric: str, predictions: Predictions, baseline: PerExample, labels: PerExample
) -> Counted:
    """Count the kinds of examples; raises ValueError for a metric that is not one of classes."""
    check(metric, predictions, labels, baseline)
    check_name('metric', metric, confusion.METRICS)
    given, classes = np.stack([labels, baseline, *predictions]), 2
    if metric in confusion.OF_ONE:
        numbers = np.array(confusion.of_one(metric, *given), int)
    else:
        names, numbers = np.unique(given, return_inverse=True)
        classes = len(names)
    labels, baseline, predictions = numbers[0], numbers[1], numbers[2:]
    codes = (labels * classes + baseline) * classes + predictions
    swapped = (labels * classes + predictions) * classes + baseline
    occurring = np.union1d(codes, swapped)
    places = np.searchsorted(occurring, codes)
    counts = np.stack([np.bincount(row, minlength=len(occurring)) for row in places])
    kinds = np.stack(np.unravel_index(occurring, (classes,) * 3), axis=1)
    return Counted(metric, counts.astype(np.float64), kinds, classes)


def score_statistics(
    counted: Counted, differences: PerMask, *, half: bool = False, tangent: '_Tangent | None' = None
) -> PerMask:
    """Return how far the counts lie above hypothetical differences [M], in standard errors.

    The difference, as a function of the shares of all C^3 kinds of examples, is replaced by its
    tangent at the counts, which several differences may share. Its sample mean, less the
    hypothesis, is divided by its standard error under the distribution over all kinds that has the
    mean 0 and the greatest likelihood. `half` moves the counts by half a changed prediction towards
    the hypothesis: this correction for continuity keeps a test of a few counts to its level.
    """
    examples = counted.counts.sum(axis=1)
    shares = counted.counts / examples[:, None]
    tangent = tangent or _tangent(counted)
    ahead = tangent.difference - differences
    values = tangent.influences + ahead[:, None]
    greatest, least = tangent.greatest + ahead, tangent.least + ahead
    # The greatest likelihood under the constraint divides each share by 1 + tilt * value; the right
    # tilt makes the mean 0. Bounds keep all shares positive. Where even these leave a mean, a kind
    # that never occurred takes what is missing from 1.
    possible = (greatest > 0) & (least < 0)

    def tilted(tilt: PerMask) -> np.ndarray:
        return shares / np.maximum(1 + tilt[:, None] * values, _TINY)

    low, high = bisected(
        lambda tilt: ~((tilted(tilt) * values).sum(axis=1) > 0),
        -1 / np.where(possible, greatest, 1),
        -1 / np.where(possible, least, -1),
        _HALVINGS - 1,
    )
    tilt = (low + high) / 2
    fitted = tilted(tilt)
    extreme = np.where(tilt < 0, greatest, least)
    missing = np.maximum(1 - fitted.sum(axis=1), 0)
    variance = (fitted * values**2).sum(axis=1) + missing * extreme**2
    mean = (shares * values).sum(axis=1)
    if half:
        step = np.maximum(tangent.greatest_changed + ahead, -tangent.least_changed - ahead)
        step = step / 2 / examples
        mean = np.sign(mean) * np.maximum(np.abs(mean) - step, 0)
    possible &= variance > 0
    statistic = mean * np.sqrt(examples / np.where(possible, variance, 1))
    # Without any influence, no score is defined.
    impossible = np.where(tangent.greatest > tangent.least, np.sign(mean) * _IMPOSSIBLE, 0)
    return np.where(possible, statistic, impossible)


def score_limits(
    counted: Counted, *, below: float, above: float, alone: bool = False
) -> tuple[PerMask, PerMask]:
    """Return the ends [M] of the intervals that differences are below and above so seldom.

    They are those of the masks' scores themselves, and of no difference, if `alone`.
    """
    # First all lower ends, then all upper ones.
    masks = len(counted.counts)
    twice = dataclasses.replace(counted, counts=np.tile(counted.counts, (2, 1)))
    tangent = _tangent(twice, alone=alone)
    limits = np.repeat(reach(tail=[below, above]), masks)
    furthest = 2.0 if counted.metric == 'matthews' else 1.0
    inside, _ = bisected(
        lambda middle: np.abs(score_statistics(twice, middle, tangent=tangent)) > limits,
        tangent.difference,
        np.repeat([-furthest, furthest], masks),
        _HALVINGS,
    )
    return inside[:masks], inside[masks:]


def score_interval(metric: str, predicted: PerExample, labels: PerExample) -> tuple[float, float]:
    """Return the ends of the 95 % interval of a score itself, by the same test."""
    counted = count(metric, predicted[None], labels, labels)
    ends = np.concatenate(score_limits(counted, below=0.025, above=0.025, alone=True))
    low, high = np.clip(ends, -1 if metric == 'matthews' else 0, 1).tolist()
    return low, high


def against_margin(counted: Counted, margin: float) -> tuple[PerMask, PerMask]:
    """Return p-values [M] of a difference of the margin or more, and of one of less.

    The first are of two one-sided tests (TOST, Schuirmann 1987), the second of either side.
    """
    margins = np.full(len(counted.counts), margin)
    above = score_statistics(counted, -margins, half=True)
    below = score_statistics(counted, margins, half=True)
    outside = 2 * p_above(np.maximum(below, -above))
    return p_above(np.minimum(above, -below)), np.minimum(outside, 1)


@dataclasses.dataclass(frozen=True)
class _Tangent:
    """The difference of the scores near the counts, and the influences of kinds on it.

    Attributes:
      influences: [M, K] Those of one example of each kind, times the number of examples.
      least, greatest: [M] The ends of their range, over all C^3 kinds.
      least_changed, greatest_changed: [M] The same over kinds with two different answers.
    """

    difference: PerMask
    influences: Float[np.ndarray, 'M K']
    least: PerMask
    greatest: PerMask
    least_changed: PerMask
    greatest_changed: PerMask


def _tangent(counted: Counted, *, alone: bool = False) -> _Tangent:
    labels, intact, masked = counted.kinds.T
    confusions = counted.confusions
    whole, without = confusion.score(counted.metric, confusions)
    of_intact, of_mask = confusion.gradient(counted.metric, confusions)
    if alone:
        whole, of_intact = np.zeros_like(whole), np.zeros_like(of_intact)
    changed = ~np.eye(counted.classes, dtype=bool)
    ends = []
    for label in range(counted.classes):
        of_label = of_mask[:, label, None, :] - of_intact[:, label, :, None]
        for some in (True, changed):
            ends.append(of_label.min(axis=(1, 2), where=some, initial=np.inf))
            ends.append(of_label.max(axis=(1, 2), where=some, initial=-np.inf))
    return _Tangent(
        difference=without - whole,
        influences=of_mask[:, labels, masked] - of_intact[:, labels, intact],
        least=np.min(ends[0::4], axis=0),
        greatest=np.max(ends[1::4], axis=0),
        least_changed=np.min(ends[2::4], axis=0),
        greatest_changed=np.max(ends[3::4], axis=0),
    )
