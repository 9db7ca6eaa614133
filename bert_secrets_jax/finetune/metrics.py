"""GLUE's metrics, computed from the logits of all examples together."""

from collections.abc import Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float, Num, Shaped

from bert_secrets_jax.model.bert import check_finite


def accuracy(predicted: Shaped[np.ndarray, ' E'], labels: Shaped[np.ndarray, ' E']) -> float:
    """Return the share of examples whose class was predicted."""
    return float(np.mean(predicted == labels))


def f1(predicted: Shaped[np.ndarray, ' E'], labels: Shaped[np.ndarray, ' E']) -> float:
    """Return the F1 score of class 1, which GLUE uses for MRPC and QQP.

    It is 0 if class 1 is never predicted correctly.
    """
    right = np.sum((predicted == 1) & (labels == 1))
    wrong = np.sum((predicted == 1) != (labels == 1))
    return float(2 * right / (2 * right + wrong)) if right else 0.0


def pearson(predicted: Num[np.ndarray, ' E'], labels: Num[np.ndarray, ' E']) -> float:
    """Return Pearson's correlation; NaN where predictions or labels are all the same."""
    return _correlation(scipy.stats.pearsonr, predicted, labels)


def spearman(predicted: Num[np.ndarray, ' E'], labels: Num[np.ndarray, ' E']) -> float:
    """Return Spearman's rank correlation; NaN where predictions or labels are all the same."""
    return _correlation(scipy.stats.spearmanr, predicted, labels)


def _correlation(function, predicted: np.ndarray, labels: np.ndarray) -> float:
    # Values that are all the same have no correlation. SciPy is not asked for it: it would warn.
    if np.all(predicted == predicted[:1]) or np.all(labels == labels[:1]):
        return float('nan')
    return float(function(predicted.astype(np.float64), labels.astype(np.float64)).statistic)


_METRICS = {'accuracy': accuracy, 'f1': f1, 'pearson': pearson, 'spearman': spearman}
# How the metrics are written for people.
TITLES = {'accuracy': 'accuracy', 'f1': 'F1', 'pearson': "Pearson's r", 'spearman': "Spearman's ρ"}


def metrics_for(classes: int) -> tuple[str, ...]:
    """Return the names of the metrics that GLUE reports for a task with this many classes.

    Args:
      classes: The number of classes; 1 means regression.
    """
    match classes:
        case 1:
            return ('pearson', 'spearman')
        case 2:
            return ('f1', 'accuracy')
        case _:
            return ('accuracy',)


def check_metrics(metrics: Sequence[str], classes: int) -> None:
    """Refuse metrics that are unknown, or not defined for the number of classes.

    Args:
      metrics: The names of the metrics.
      classes: The number of classes; 1 means regression.

    Raises:
      ValueError: There are no metrics, or one does not fit. The error names it and the metrics that
        do.
    """
    usable = metrics_for(classes) if classes <= 2 else ('accuracy',)
    kind = 'a regression' if classes == 1 else f'{classes} classes'
    if isinstance(metrics, str) or not metrics:
        raise ValueError(f'{metrics=} must be a sequence of at least one name, such as {usable}.')
    for name in metrics:
        if name not in usable:
            raise ValueError(f'The metric {name!r} is not for {kind}; choose among {usable}.')


def predictions(logits: Float[np.ndarray, 'E C']) -> Num[np.ndarray, ' E']:
    """Return the predicted class of each example, or the predicted values of a regression [E].

    Args:
      logits: The class scores [E, C]; a single column has the predicted values of a regression.

    Raises:
      FloatingPointError: Some are NaN or infinite. The greatest of them would be the first class,
        whatever the example.
    """
    check_finite(logits)
    return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def evaluate(
    metrics: Sequence[str], logits: Float[np.ndarray, 'E C'], labels: Num[np.ndarray, ' E']
) -> dict[str, float]:
    """Return the named metrics and their mean, `score`, which chooses the best checkpoint.

    Args:
      metrics: The names of the metrics, as in `Task.metrics`.
      logits: The class scores [E, C]; a single column has the predicted values of a regression.
      labels: The class ids [E], or the values of a regression.
    """
    predicted = predictions(logits)
    values = {name: _METRICS[name](predicted, labels) for name in metrics}
    return values | {'score': float(np.mean(list(values.values())))}
