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
    given = metric, predictions, baseline, labels
    difference = scores.differences(*given)[0]
    known = ~np.isnan(difference)
    error = low = high = np.array([np.nan])
    if known.any() and len(labels) > 1:
        difference = difference[known].mean(keepdims=True)
        parts = influence.parts_of_difference(metric, predictions[known], baseline, labels)
        parts = parts.mean(axis=0, keepdims=True)
        low, high = influence.limits(difference, parts)
        longer = np.maximum(high - difference, difference - low)
        error = longer / reach(len(labels) - 1)
    return MeanEffect(
        difference=float(difference[0]) if known.any() else np.nan,
        error=float(error[0]),
        low=float(low[0]),
        high=float(high[0]),
        changed=int(np.any(predictions != baseline[None], axis=0).sum()),
        examples=len(labels),
    )
