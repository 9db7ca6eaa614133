"""GLUE's metrics, from gathered predictions."""

import warnings

import numpy as np
import scipy.stats


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Share of right classes."""
    return float(np.mean(predicted == labels))


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1, as GLUE has it for MRPC and QQP; 0 where class 1 is never right."""
    right = np.sum((predicted == 1) & (labels == 1))
    wrong = np.sum((predicted == 1) != (labels == 1))
    return float(2 * right / (2 * right + wrong)) if right else 0.0


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Pearson's correlation; NaN where the predictions are all the same."""
    return _correlation(scipy.stats.pearsonr, predicted, labels)


def spearman(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where the predictions are all the same."""
    return _correlation(scipy.stats.spearmanr, predicted, labels)


def _correlation(function, predicted: np.ndarray, labels: np.ndarray) -> float:
    with warnings.catch_warnings():
        # Constant predictions have no correlation; NaN says so.
        warnings.simplefilter('ignore', scipy.stats.ConstantInputWarning)
        return float(function(predicted.astype(np.float64), labels.astype(np.float64)).statistic)


_METRICS = {'accuracy': accuracy, 'f1': f1, 'pearson': pearson, 'spearman': spearman}
# As a person writes them.
TITLES = {'accuracy': 'accuracy', 'f1': 'F1', 'pearson': "Pearson's r", 'spearman': "Spearman's ρ"}


def evaluate(metrics: tuple[str, ...], logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the named metrics and their mean, `score`, which chooses the best checkpoint.

    Args:
      metrics: names, as in `Task.metrics`.
      logits: [E, C] class scores, or [E, 1] predicted values of a regression.
      labels: [E] class ids or values.
    """
    predicted = logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)
    values = {name: _METRICS[name](predicted, labels) for name in metrics}
    return values | {'score': float(np.mean(list(values.values())))}
