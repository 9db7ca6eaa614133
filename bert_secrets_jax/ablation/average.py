"""The effect of disabling a random head: the mean over masks, with its error over examples.

Axes: M masks, E examples.
"""

import dataclasses

import numpy as np

from bert_secrets_jax.ablation import scores


@dataclasses.dataclass(frozen=True)
class MeanEffect:
    """The difference between masks and the intact model, on average over the masks.

    Attributes:
      difference: The mean of the masks' scores minus the intact model's; NaN if none is defined.
      error, low, high: Its standard error over examples, and 95 % interval (bootstrap).
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
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> MeanEffect:
    """Compare the masks with the intact model on average: what losing a random head does.

    All masks are scored on the same resamples. Arguments are those of `significance.assess`.
    """
    given = metric, predictions, baseline, labels
    resampled = scores.resampled_differences(*given, resamples=resamples, seed=seed)
    means = scores.quietly(np.nanmean, resampled, axis=1)
    known = means[~np.isnan(means)]
    error = low = high = np.nan
    if len(known) > 1:
        error, (low, high) = known.std(ddof=1), np.quantile(known, [0.025, 0.975])
    return MeanEffect(
        difference=float(scores.quietly(np.nanmean, scores.differences(*given))),
        error=float(error),
        low=float(low),
        high=float(high),
        changed=int(np.any(predictions != baseline[None], axis=0).sum()),
        examples=len(labels),
    )
