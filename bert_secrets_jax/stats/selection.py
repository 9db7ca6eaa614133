"""The gain of the best of many masks, without the luck of having been chosen.

Axes: M masks, E examples, R resamples.
"""

import dataclasses

import numpy as np

from bert_secrets_jax.checks import check_lengths
from bert_secrets_jax.stats import influence, scores
from bert_secrets_jax.stats.student import LEVEL

FOLDS = 10


@dataclasses.dataclass(frozen=True)
class SelectedGain:
    """The gain of the best mask, with and without the luck of having been chosen.

    Attributes:
      best: The mask that is best on all examples, the first of several; -1 if none has a score.
      naive: The difference of this mask on the examples on which it was chosen.
      from_nine_tenths: The mean difference where nine tenths of the examples choose the mask and
        the last tenth measures it (10-fold cross-validation); tenths are joined into one score.
      low, high: The ends of a 95 % interval of the true gain of `best`, chosen as it was.
      chosen: [M] The share of the nine tenths on which each mask was the best.
    """

    best: int
    naive: float
    from_nine_tenths: float
    low: float
    high: float
    chosen: scores.PerMask


@dataclasses.dataclass(frozen=True)
class Answers:
    """The predictions [M, E] of all models, those [E] of the intact one, and true labels [E]."""

    predictions: scores.Predictions
    baseline: scores.PerExample
    labels: scores.PerExample


@dataclasses.dataclass(frozen=True)
class ChosenElsewhere:
    """The gain of a mask that was chosen on other examples.

    Attributes:
      best: The mask that is best on the examples for choosing, the first of several.
      where_chosen, gain: Its difference on those examples, and on those for measuring.
      low, high: The ends of the 95 % interval of `gain`, which needs no correction.
      choosing: The number of examples for choosing.
    """

    best: int
    where_chosen: float
    gain: float
    low: float
    high: float
    choosing: int


def selected_gain(
    metric: str,
    predictions: scores.Predictions,
    baseline: scores.PerExample,
    labels: scores.PerExample,
    *,
    repeats: int = 20,
    seed: int = 0,
) -> SelectedGain:
    """Compute the gain of the best mask on the examples on which it was chosen, and on others.

    The best of many masks is partly the luckiest one. So the examples are dealt into tenths at
    random, several times: the mask that is best on nine of them is measured on the last one. Ties
    for the best mask are broken at random.

    The interval is about the mask that is best on all examples. Its upper end is an ordinary one,
    because luck has only raised the gain; its lower end is corrected for all M masks (Bonferroni):
    see `tails`. It misses in at most about 5 % of samples. The range over random splits would cover
    in 74 %, and that of the joined tenths in 70 to 95 %: splits share their examples.

    Args:
      metric, predictions, baseline, labels, seed: As in `assess`, with its errors.
      repeats: The number of random divisions into tenths.
    """
    scores.check(metric, predictions, labels, baseline)
    masks, examples = predictions.shape
    if examples < 2:
        raise ValueError('One example cannot be divided: give two at least.')
    given = metric, predictions, baseline, labels
    rng, folds = np.random.default_rng(seed), min(FOLDS, examples)
    joined, chosen = [], np.zeros(masks)
    for start, stop in scores.blocks(repeats, folds * max(examples, masks)):
        dealt = np.tile(np.arange(examples) % folds, (stop - start, 1))
        dealt = rng.permuted(dealt, axis=1)  # [R, E]
        others = dealt[:, None] != np.arange(folds)[:, None]  # [R, folds, E]
        gains = scores.differences(*given, others.reshape(-1, examples))
        known = np.where(np.isnan(gains), -np.inf, gains)
        ties = known == known.max(axis=-1, keepdims=True)
        best = np.where(ties, rng.random(ties.shape), -1).argmax(axis=-1)
        chosen += np.bincount(best, minlength=masks)
        best = np.take_along_axis(best.reshape(-1, folds), dealt, axis=1)  # [R, E]
        answers = np.take_along_axis(predictions, best, axis=0)
        joined.append(scores.weighted_scores(metric, answers, labels)[0])
    intact = scores.weighted_scores(metric, baseline[None], labels)[0, 0]
    overall = scores.differences(*given)[0]
    best = _first_best(overall)
    low = high = np.nan
    if best >= 0:
        below, above = tails(masks)
        ends = influence.interval(*given, below=below, above=above, chosen=True)
        low, high = (float(end[best]) for end in ends)
    return SelectedGain(
        best=best,
        naive=float(overall[best]) if best >= 0 else np.nan,
        from_nine_tenths=float(scores.quietly(np.nanmean, np.concatenate(joined) - intact)),
        low=low,
        high=high,
        chosen=chosen / chosen.sum(),
    )


def tails(masks: int) -> tuple[float, float]:
    """Return the probabilities that the best mask's true gain is below and above its interval.

    Only the lower is corrected for all masks; where one is by far the best, both sum to 5 %.
    """
    return LEVEL / (masks + 1), LEVEL * masks / (masks + 1)


def gain_of_choice(metric: str, choose: Answers, measure: Answers) -> ChosenElsewhere:
    """Choose the best mask on some examples, and measure it on others, on one of METRICS.

    If no example is in both sets, the gain is unbiased, and its interval needs no correction for
    the number of masks. Examples on which the model was trained choose badly: it has most of them
    right already.

    ValueError as in `assess`, for different numbers of masks, or if no mask has a score.
    """
    for answers in (choose, measure):
        scores.check(metric, answers.predictions, answers.labels, answers.baseline)
    check_lengths(
        'choose and measure the same ones',
        masks_to_choose_from=choose.predictions,
        masks_to_measure=measure.predictions,
    )
    where_chosen = scores.differences(metric, choose.predictions, choose.baseline, choose.labels)[0]
    best = _first_best(where_chosen)
    if best < 0:
        raise ValueError('No mask has a score on the examples for choosing: they are constant.')
    alone = metric, measure.predictions[best : best + 1], measure.baseline, measure.labels
    low, high = influence.interval(*alone)
    return ChosenElsewhere(
        best=best,
        where_chosen=float(where_chosen[best]),
        gain=float(scores.differences(*alone)[0, 0]),
        low=float(low[0]),
        high=float(high[0]),
        choosing=len(choose.labels),
    )


def _first_best(gains: scores.PerMask) -> int:
    known = np.where(np.isnan(gains), -np.inf, gains)
    return int(known.argmax()) if np.isfinite(known.max()) else -1
