"""Scores of predicted classes: functions of the confusion matrix, and their derivatives.

A confusion matrix counts examples by their true class (rows) and the predicted one (columns), or
has their shares. What is 0 / 0 counts as 0, as in scikit-learn. Axes: E examples, C classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Real, Shaped

# Every metric of predicted classes. 'f1' is that of class 1, and needs two classes to mean it.
METRICS = ('accuracy', 'f1', 'f1_macro', 'f1_micro', 'matthews')

# The greatest rounding error of a variance that is exactly 0, relative to the largest possible.
_ROUNDING = 1e-12


def summands(
    metric: str, predicted: Real[np.ndarray, '*models E'], labels: Real[np.ndarray, ' E']
) -> list[Shaped[np.ndarray, '...']]:
    """Return arrays from whose sums over examples, weighted or not, `score_of_sums` has the score.

    They are [..., E], or have 1 in place of all models where they depend on labels alone.
    """
    labels = labels[(None,) * (predicted.ndim - 1)]
    every = np.ones(labels.shape)
    right = predicted == labels
    match metric:
        case 'accuracy' | 'f1_micro':
            return [every, right]
        case 'f1':
            return [right & (labels == 1), (predicted == 1) != (labels == 1)]
        case 'f1_macro':
            classes = np.unique(labels)
            either = [np.add(predicted == each, labels == each, dtype=np.int8) for each in classes]
            true = [labels == each for each in classes]
            return [right & each for each in true] + either + true
        case 'matthews':
            classes = np.union1d(np.unique(labels), np.unique(predicted))
            answers = [predicted == each for each in classes]
            return [every, right, *answers, *(labels == each for each in classes)]
    raise ValueError(f'Unknown metric {metric!r}: one of {", ".join(METRICS)}.')


def score_of_sums(
    metric: str, sums: Sequence[np.ndarray | float] | np.ndarray
) -> np.ndarray | float:
    """Return the scores from the sums of the arrays of `summands`, as many as each sum has."""
    match metric:
        case 'accuracy' | 'f1_micro':
            return _ratio(sums[1], sums[0])
        case 'f1':
            return _ratio(2 * sums[0], 2 * sums[0] + sums[1])
        case 'f1_macro':
            right, either, true = np.split(np.stack(np.broadcast_arrays(*sums)), 3)
            occurs = true > 0
            return _ratio((occurs * _ratio(2 * right, either)).sum(axis=0), occurs.sum(axis=0))
        case 'matthews':
            count, right = sums[:2]
            predicted, true = np.split(np.stack(np.broadcast_arrays(*sums[2:])), 2)
            covariance = count * right - (predicted * true).sum(axis=0)
            squares = _variance(count, predicted) * _variance(count, true)
            return _ratio(covariance, np.sqrt(squares))
    raise ValueError(f'Unknown metric {metric!r}: one of {", ".join(METRICS)}.')


def score(metric: str, confusion: Float[np.ndarray, '*models C C']) -> np.ndarray | float:
    """Return the scores [...] of confusion matrices, of counts or shares."""
    right = np.einsum('...CC->...C', confusion)
    true, predicted = confusion.sum(axis=-1), confusion.sum(axis=-2)
    count = true.sum(axis=-1)
    match metric:
        case 'accuracy' | 'f1_micro':
            sums = [count, right.sum(axis=-1)]
        case 'f1':
            of_one = right[..., 1]
            sums = [of_one, true[..., 1] + predicted[..., 1] - 2 * of_one]
        case 'f1_macro':
            sums = [*_by_class(right), *_by_class(true + predicted), *_by_class(true)]
        case _:
            sums = [count, right.sum(axis=-1), *_by_class(predicted), *_by_class(true)]
    return score_of_sums(metric, sums)


def gradient(
    metric: str, confusion: Float[np.ndarray, '*models C C']
) -> Float[np.ndarray, '*models C C']:
    """Return the derivative of the score by each cell of the confusion matrix, which has shares.

    It says what one further example in that cell changes, times the number of examples: the
    influence of the cell (Hampel 1974). Weighted by the shares, all cells add up to 0. Where the
    score is 0 / 0, the derivative is 0.
    """
    same = np.eye(confusion.shape[-1])
    right = np.einsum('...CC->...C', confusion)
    true, predicted = confusion.sum(axis=-1), confusion.sum(axis=-2)
    count, all_right = true.sum(axis=-1)[..., None, None], right.sum(axis=-1)[..., None, None]
    if metric in ('accuracy', 'f1_micro'):
        return (same - all_right / count) / count
    if metric in ('f1', 'f1_macro'):
        either = true + predicted
        one = np.arange(len(same)) == 1
        part = one * 1.0 if metric == 'f1' else (true > 0) / (true > 0).sum(axis=-1, keepdims=True)
        of_each, weight = _ratio(2 * right, either), _ratio(part, either)
        taken = of_each * weight
        return 2 * same * weight[..., None, :] - taken[..., :, None] - taken[..., None, :]
    if metric != 'matthews':
        raise ValueError(f'Unknown metric {metric!r}: one of {", ".join(METRICS)}.')
    covariance = count * all_right - (true * predicted).sum(axis=-1)[..., None, None]
    of_predicted, of_true = (
        _variance(count[..., 0, 0], np.moveaxis(each, -1, 0))[..., None, None]
        for each in (predicted, true)
    )
    scale = np.sqrt(of_predicted * of_true)
    rises = count * same + all_right - true[..., None, :] - predicted[..., :, None]
    widens = _ratio(count - predicted[..., None, :], of_predicted)
    widens = widens + _ratio(count - true[..., :, None], of_true)
    return np.where(scale > 0, _ratio(rises, scale) - _ratio(covariance, scale) * widens, 0)


def _by_class(values: np.ndarray) -> list[Any]:
    return list(np.moveaxis(values, -1, 0))


def _variance(count, of_classes) -> np.ndarray:
    """Return 1 minus the chance that two examples are of one class, times the square of all."""
    variance = count**2 - (of_classes**2).sum(axis=0)
    return np.where(variance > _ROUNDING * count**2, variance, 0)


def _ratio(numerator, denominator) -> np.ndarray:
    numerator, denominator = np.asarray(numerator), np.asarray(denominator)
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1), 0)
