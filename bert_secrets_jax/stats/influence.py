"""The part that each example has in a score, and inference from these parts where tails are heavy.

A score is not a mean over examples, but close to one: that of the values of `per_example`. So the
difference of two scores has an error. Where a few texts carry most of it, Student's t is too
narrow: the next sample may have more of such texts. Two things are done about it. The skewness of
the parts moves an end of the interval outwards (Johnson 1978), never inwards. And two texts more,
as extreme as the most extreme one on that side, widen it, by so much as this text goes beyond what
normal values reach. If a text has an effect of 1 or none, this is nearly the exact interval of a
Poisson mean.

A sample may lack texts that a mask changes. For a correlation, one more text can do so much: see
`unseen`. An end of an interval is at least as far out as a share of such texts, of which none is
seen with the probability in question, would move it. For a mean of losses, such a text is taken to
change as much as the farthest one of the median mask (`means.assess_means`).

Axes: M masks, E examples.
"""

import dataclasses

import numpy as np
import scipy.stats
from jaxtyping import Float, Real

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.stats import confusion, student
from bert_secrets_jax.stats.confusion import score_of_sums, summands
from bert_secrets_jax.stats.intervals import count, score_limits
from bert_secrets_jax.stats.scores import (
    METRICS,
    ROUNDING,
    PerExample,
    PerMask,
    Predictions,
    differences,
    quietly,
    weighted_scores,
)

# The parts [M, E] of examples in differences [M]; their means are 0.
Parts = Float[np.ndarray, 'M E']
# A spread that fewer texts carry is not known well enough to show that a mask does not matter.
FEWEST_CARRIERS = 10


def per_example(
    metric: str, predictions: Real[np.ndarray, '*models E'], labels: Real[np.ndarray, ' E']
) -> Float[np.ndarray, '*models E']:
    """Return a value [..., E] for each example whose mean is the score of the model [...].

    It is the jackknife's (Efron and Tibshirani 1993, chapter 11), and for Spearman's correlation
    its limit, the influence function; NaN where the score is undefined.
    """
    check_name('metric', metric, METRICS)
    if metric in ('accuracy', 'f1_micro'):
        return (predictions == labels).astype(np.float64)
    if metric == 'spearman':
        return _of_ranks(predictions, labels)
    # Without their mean, values lose nothing to rounding.
    centre = predictions.mean(axis=-1, keepdims=True, dtype=np.float64)
    features = summands(metric, predictions, labels, centre)
    sums = [each.sum(axis=-1, keepdims=True, dtype=np.float64) for each in features]
    score = score_of_sums(metric, sums)
    without = score_of_sums(metric, [s - each for s, each in zip(sums, features, strict=True)])
    influence = without.mean(axis=-1, keepdims=True) - without
    return score + (len(labels) - 1) * influence


def parts_of_difference(
    metric: str, predictions: Predictions, baseline: PerExample, labels: PerExample
) -> Parts:
    """Return the part [M, E] of each example in the differences of scores, less their mean."""
    parts = per_example(metric, predictions, labels) - per_example(metric, baseline, labels)
    return parts - parts.mean(axis=1, keepdims=True)


def interval(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    below: float = 0.025,
    above: float = 0.025,
    chosen: bool = False,
) -> tuple[PerMask, PerMask]:
    """Return the ends [M] of the intervals of differences of scores, by `score_limits` or `limits`.

    The true difference is below or above them with these probabilities.
    """
    given = metric, predictions, baseline, labels
    if metric in confusion.METRICS:
        return score_limits(count(*given), below=below, above=above)
    difference, parts = differences(*given)[0], parts_of_difference(*given)
    of_one = unseen(metric, baseline, labels)
    return limits(difference, parts, below=below, above=above, chosen=chosen, of_one=of_one)


def unseen(metric: str, baseline: PerExample, labels: PerExample) -> tuple[float, float]:
    """Return how far one text can lower and raise a difference of correlations, times E.

    A text of which the answer turns round takes 1 + r from a correlation r, on average, and one of
    which it becomes right adds 1 - r. For metrics of classes it is 0: `score_limits` counts texts.
    """
    if metric in confusion.METRICS:
        return 0.0, 0.0
    score = float(weighted_scores(metric, baseline[None], labels)[0, 0])
    return 1 + score, 1 - score


def p_unseen(ahead: PerMask, of_one: float, examples: int) -> PerMask:
    """Return the p-values [M] that none was seen of the texts that would move a mean so far.

    `of_one` is how far one text can move it, times E; 0 means that there are no such texts.
    """
    share = np.divide(ahead, of_one, out=np.ones_like(ahead), where=of_one > 0)
    return (1 - np.minimum(share, 1)) ** examples


def share_unseen(tail: float, examples: int) -> float:
    """Return the share of texts of which none is among the examples with this probability."""
    return 1 - tail ** (1 / examples)


def limits(
    difference: PerMask,
    parts: Parts,
    *,
    below: float = 0.025,
    above: float = 0.025,
    chosen: bool = False,
    of_one: tuple[float, float] = (0.0, 0.0),
) -> tuple[PerMask, PerMask]:
    """Return the ends [M] of intervals; the true difference is below or above them so often.

    Masks that are `chosen` by their effects may be those of which no extreme text was seen: as
    extreme ones are assumed as the median mask has. `of_one` is what `unseen` returns.
    """
    ends, examples = [], parts.shape[-1]
    for tail, side, most in ((below, -parts, of_one[0]), (above, parts, of_one[1])):
        error, skew = _side(side, chosen)
        t = student.reach(examples - 1, tail)
        reach = error * (t + skew * (2 * t**2 + 1) / 6)
        ends.append(np.maximum(reach, most * share_unseen(tail, examples)))
    return difference - ends[0], difference + ends[1]


def p_above(
    difference: PerMask,
    parts: Parts,
    bound: float = 0.0,
    *,
    of_one: float = 0.0,
    chosen: bool = False,
) -> PerMask:
    """Return the p-values [M] of the hypotheses that a true difference is the bound or above it.

    They are those of `limits`: at 0.025, the upper end of the interval is at the bound. `of_one` is
    how far one text can raise the difference, times E; `chosen` is as there.
    """
    examples, ahead = parts.shape[-1], np.maximum(bound - difference, 0)
    error, skew = _side(parts, chosen)
    # The root of t + skew (2 t^2 + 1) / 6 = distance.
    # Scores that are the same but for rounding have no error.
    distance = (bound - difference) / np.maximum(error, ROUNDING) - skew / 6
    t = 2 * distance / (1 + np.sqrt(1 + 4 * skew / 3 * np.maximum(distance, 0)))
    return np.maximum(student.p_above(t, examples - 1), p_unseen(ahead, of_one, examples))


def p_within(
    difference: PerMask,
    parts: Parts,
    margin: float = 0.0,
    *,
    of_one: tuple[float, float] = (0.0, 0.0),
) -> PerMask:
    """Return the two-sided p-values [M] of a true difference of at most the margin, or of none.

    Masks that seem to gain, or to lose, may be those of which no extreme text was seen (`chosen`).
    """
    lower = p_above(difference, parts, -margin, of_one=of_one[1], chosen=True)
    higher = p_above(-difference, -parts, -margin, of_one=of_one[0], chosen=True)
    return np.minimum(2 * np.minimum(lower, higher), 1)


def p_matters(
    difference: PerMask, parts: Parts, margin: float, *, of_one: tuple[float, float] = (0.0, 0.0)
) -> PerMask:
    """Return the p-values [M] of a true difference of at least the margin, in either direction.

    These are two one-sided tests. The p-value is 1 where fewer than FEWEST_CARRIERS texts carry the
    spread, by (sum of squares)^2 / sum of fourth powers, and as many texts more like the one that
    changes most would make the margin.
    """
    below = p_above(difference, parts, margin, of_one=of_one[1])
    p_values = np.maximum(below, p_above(-difference, -parts, margin, of_one=of_one[0]))
    squares = np.square(parts)
    few = squares.sum(axis=-1) ** 2 < FEWEST_CARRIERS * np.square(squares).sum(axis=-1)
    large = FEWEST_CARRIERS * np.sqrt(squares.max(axis=-1)) >= margin * parts.shape[-1]
    return np.where(few & large, 1.0, p_values)


@dataclasses.dataclass(frozen=True)
class MeanEffect:
    """The difference between masks and the intact model, on average over the masks.

    Attributes:
      difference: The mean of the masks' scores minus the intact model's; NaN if none is defined.
      low, high: The ends of its 95 % interval over examples.
      error: The standard error that the longer side of the interval stands for.
      changed: The number of examples on which some mask changes the prediction.
    """

    difference: float
    error: float
    low: float
    high: float
    changed: int
    examples: int


def mean_effect(
    metric: str, predictions: Predictions, baseline: PerExample, labels: PerExample
) -> MeanEffect:
    """Compare the masks with the intact model on average: what losing a random head does.

    Masks whose score is undefined do not count. Arguments are those of `significance.assess`.
    """
    difference = differences(metric, predictions, baseline, labels)[0]
    mean = quietly(np.nanmean, difference)
    low, high = np.full((2, 1), np.nan)
    if not np.isnan(mean) and len(labels) > 1:
        known = predictions[~np.isnan(difference)]
        parts = parts_of_difference(metric, known, baseline, labels)
        of_one = unseen(metric, baseline, labels)
        parts = parts.mean(axis=0, keepdims=True)
        low, high = limits(np.array([mean]), parts, of_one=of_one)
    return MeanEffect(
        difference=float(mean),
        error=float(max(high[0] - mean, mean - low[0]) / student.reach(max(len(labels) - 1, 1))),
        low=float(low[0]),
        high=float(high[0]),
        changed=int(np.any(predictions != baseline, axis=0).sum()),
        examples=len(labels),
    )


def _side(parts: Parts, chosen: bool = False) -> tuple[PerMask, PerMask]:
    """Return the error [M] and the skewness [M] for the upper end of an interval."""
    examples = parts.shape[-1]
    squares = np.square(parts).sum(axis=-1)
    beyond = np.maximum(parts.max(axis=-1), 0) ** 2 - 2 * np.log(examples) * squares / examples
    least = np.finfo(np.float64).tiny
    lean = (parts**3).sum(axis=-1) / np.maximum(squares, least)
    if chosen:
        beyond, lean = (np.maximum(each, quietly(np.nanmedian, each)) for each in (beyond, lean))
    total = squares + 2 * np.maximum(beyond, 0)
    skew = np.maximum(lean, 0) / np.sqrt(np.maximum(total, least))
    return np.sqrt(total / (examples * (examples - 1))), skew


def _of_ranks(predictions, labels) -> np.ndarray:
    """Return the values [..., E] of Spearman's correlation: those of Pearson's, of ranks.

    Ranks depend on all examples, too: each one raises the ranks of those above it.
    """
    models = predictions.reshape(-1, len(labels))
    ranks = [scipy.stats.rankdata(each, axis=-1) for each in (models, labels)]
    x, y = (_standardized(each) for each in ranks)
    # The means of products of standardized values are correlations.
    score = np.clip((x * y).mean(axis=-1, keepdims=True), -1, 1)
    values = score + x * y - score * (x**2 + y**2) / 2
    for model, own in enumerate(ranks[0]):
        for one, other, rank in ((x[model], y, own), (y, x[model], ranks[1])):
            slopes = (other - score[model] * one) / rank.std()
            _, group = np.unique(rank, return_inverse=True)
            alike = np.bincount(group, slopes)
            values[model] += (alike.sum() - np.cumsum(alike) + alike / 2)[group]
    return values.reshape(predictions.shape)


def _standardized(values: np.ndarray) -> np.ndarray:
    """Return values [..., E] with mean 0 and mean square 1; NaN where all are equal."""
    centred = values - values.mean(axis=-1, keepdims=True, dtype=np.float64)
    scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True))
    flat = scale <= 1e-12 * np.abs(values).max(axis=-1, keepdims=True)
    return centred / np.where(flat, np.nan, scale)
