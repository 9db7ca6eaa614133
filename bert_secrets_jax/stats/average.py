"""The effect of disabling a random head: the mean over masks, with its error over examples.

Axes: M masks, E examples.
"""

import dataclasses

import numpy as np

from bert_secrets_jax.stats import influence, scores
from bert_secrets_jax.stats.student import reach


@dataclasses.dataclass(frozen=True)
class MeanEffect:
    """The difference between masks and the intact model, on average over the masks.

    Attributes:
      difference: The mean of the masks' scores minus the intact model's; NaN if none is defined.
      low, high: The ends of its 95 % interval over examples (see `stats.influence`).
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
    metric: str,
    predictions: scores.Predictions,
    baseline: scores.PerExample,
    labels: scores.PerExample,
) -> MeanEffect:
    """Compare the masks with the intact model on average: what losing a random head does.

    Masks whose score is undefined do not count. Arguments are those of `significance.assess`.
    """
    difference = scores.differences(metric, predictions, baseline, labels)[0]
    mean = scores.quietly(np.nanmean, difference)
    low, high = np.full((2, 1), np.nan)
    if not np.isnan(mean) and len(labels) > 1:
        known = predictions[~np.isnan(difference)]
        parts = influence.parts_of_difference(metric, known, baseline, labels)
        of_one = influence.unseen(metric, baseline, labels)
        parts = parts.mean(axis=0, keepdims=True)
        low, high = influence.limits(np.array([mean]), parts, of_one=of_one)
    return MeanEffect(
        difference=float(mean),
        error=float(max(high[0] - mean, mean - low[0]) / reach(max(len(labels) - 1, 1))),
        low=float(low[0]),
        high=float(high[0]),
        changed=int(np.any(predictions != baseline, axis=0).sum()),
        examples=len(labels),
    )
