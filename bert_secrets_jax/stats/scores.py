"""Scores of many ablated models on many resamples of the examples.

Axes: M masks (each makes one ablated model), E examples, R resamples. Predictions are class ids for
the metrics of `stats.confusion`, values for 'pearson' and 'spearman'.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Real

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.confusion import ROUNDING as ROUNDING
from bert_secrets_jax.stats.confusion import score_of_sums, summands

METRICS = (*confusion.METRICS, 'pearson', 'spearman')

# Numbers in one block of resamples or masks: 8 MB, for any number of examples.
_BLOCK = 1_000_000

Predictions = Real[np.ndarray, 'M E']
PerExample = Real[np.ndarray, ' E']
PerMask = Float[np.ndarray, ' M']
Weights = Real[np.ndarray, 'R E'] | Bool[np.ndarray, 'R E']


def weighted_scores(
    metric: str, predictions: Predictions, labels: PerExample, weights: Weights | None = None
) -> Float[np.ndarray, 'R M']:
    """Score every mask on every resample [R, M], as `finetune.metrics` scores repeated examples.

    It is NaN where a correlation is undefined. Pearson's is if the variance in a resample is below
    1e-12 times its mean square about the mean of all examples. `weights` [R, E] say how often each
    resample contains each example; None counts each once (R = 1).
    """
    check(metric, predictions, labels)
    weights = np.ones((1, len(labels))) if weights is None else weights
    if weights.ndim != 2 or weights.shape[1] != len(labels):
        raise ValueError(f'Weights must be [R, {len(labels)}], got {list(weights.shape)}.')
    weights = weights.astype(np.float64)
    if not (weights >= 0).all():
        raise ValueError('Weights must not be negative.')
    if metric == 'spearman':
        return _spearman(predictions, labels, weights)
    scores = []
    for start, stop in blocks(*predictions.shape):
        block = predictions[start:stop]
        features = summands(metric, block, labels, block.mean(axis=1, keepdims=True))
        sums = [weights @ feature.T.astype(np.float64, copy=False) for feature in features]
        scores.append(score_of_sums(metric, sums))
    return np.concatenate(scores, axis=1)


def check(metric, predictions, labels, baseline=None):
    check_name('metric', metric, METRICS)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f'Labels must be [E], at least one, got {list(labels.shape)}.')
    if predictions.ndim != 2 or predictions.shape[1] != len(labels) or not len(predictions):
        raise ValueError(
            f'Predictions must be [M, {len(labels)}] like the labels, at least one mask, got '
            f'{list(predictions.shape)}.'
        )
    if baseline is not None and baseline.shape != labels.shape:
        raise ValueError(f'The baseline must be [{len(labels)}], got {list(baseline.shape)}.')
    given = [predictions, labels] if baseline is None else [predictions, labels, baseline]
    if not all(np.isfinite(values).all() for values in given):
        raise ValueError('Some predictions or labels are not finite.')


def blocks(rows: int, width: int) -> list[tuple[int, int]]:
    """Return start and stop of blocks of rows, of which several fit into memory at once."""
    if rows < 1:
        raise ValueError(f'Rounds and splits must be at least 1, got {rows}.')
    most = max(1, _BLOCK // width)
    return [(start, min(start + most, rows)) for start in range(0, rows, most)]


def differences(metric, predictions, baseline, labels, weights=None) -> np.ndarray:
    """Return the differences [R, M] from the intact model; arguments as in `weighted_scores`."""
    scores = weighted_scores(metric, predictions, labels, weights)
    return scores - weighted_scores(metric, baseline[None], labels, weights)


def _spearman(predictions, labels, weights) -> np.ndarray:
    y = _ranks(labels, weights)
    scores = []
    for values in predictions:
        x = _ranks(values, weights)
        xy, xx, yy = (np.einsum('RE,RE->R', weights * a, b) for a, b in ((x, y), (x, x), (y, y)))
        with np.errstate(invalid='ignore'):
            scores.append(np.clip(xy / np.sqrt(xx * yy), -1, 1))
    return np.stack(scores, axis=1)


def _ranks(values, weights) -> np.ndarray:
    """Return the average ranks [R, E] in each resample minus their mean, sorting values once."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes) - 1
    upto = np.cumsum(weights[:, np.argsort(group)], axis=1)[:, ends]
    # Equal values share the middle of their ranks. The mean of all ranks is half their number.
    middle = upto - np.diff(upto, axis=1, prepend=0) / 2
    return (middle - upto[:, -1:] / 2)[:, group]


def bisected(reached, low, high, halvings: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ends [M] close around the places between two others where `reached` becomes true."""
    for _ in range(halvings):
        middle = (low + high) / 2
        enough = reached(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return low, high


def quietly(function: Callable[..., Any], values, *args, **kwargs) -> Any:
    """Call a function whose result is NaN where it would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        return function(values, *args, **kwargs)
