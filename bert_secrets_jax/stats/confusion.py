"""Scores that follow from sums over examples: of predicted classes, and Pearson's correlation.

Those of classes are functions of the confusion matrix, and have derivatives. Such a matrix counts
examples by their true class (rows) and the predicted one (columns), or has their shares. What is
0 / 0 counts as 0, as in scikit-learn. Axes: E examples, C classes.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Real

# Every metric of predicted classes. 'f1' is that of class 1, and needs two classes to mean it.
METRICS = ('accuracy', 'f1', 'f1_macro', 'f1_micro', 'matthews')
# Those of one class alone: of right answers, or of class 1.
OF_ONE = ('accuracy', 'f1', 'f1_micro')

# The greatest rounding error of sums that are 0: relative for variances, absolute for scores.
ROUNDING = 1e-12
# A step in the imaginary direction gives a derivative without any difference of near numbers.
_STEP = 1e-30


def of_one(metric: str, labels: np.ndarray, *answers: np.ndarray) -> list[np.ndarray]:
    """Return what a metric of one class sees of labels and answers: those that are of the class.

    The class is 1 or, for an accuracy, that of right answers, which all should be.
    """
    if metric == 'f1':
        return [each == 1 for each in (labels, *answers)]
    return [each == labels for each in (labels, *answers)]


def summands(
    metric: str,
    predicted: Real[np.ndarray, '*models E'],
    labels: Real[np.ndarray, ' E'],
    centre: float | np.ndarray = 0.0,
) -> list[Bool[np.ndarray, '...'] | Float[np.ndarray, '...']]:
    """Return arrays from whose sums over examples, weighted or not, `score_of_sums` has the score.

    Of each class, they say whether an answer is right, then for each whether it is given, and
    whether it is true. For a correlation, they are products of values less a centre. They are
    [..., E], or have 1 in place of all models. They may be booleans, which NumPy multiplies without
    BLAS, and slowly: make them floats first.
    """
    labels, classes = labels[(None,) * (predicted.ndim - 1)], [True]
    if metric not in METRICS:
        # Without centring, variances would be small differences of large numbers.
        x, y = predicted.astype(np.float64) - centre, labels - labels.mean(dtype=np.float64)
        return [np.ones(y.shape), x, y, x * x, y * y, x * y]
    if metric in OF_ONE:
        labels, predicted = of_one(metric, labels, predicted)
    else:
        classes = np.union1d(labels, predicted)
    given, true = ([each == one for one in classes] for each in (predicted, labels))
    return [a & b for a, b in zip(given, true, strict=True)] + given + true


def score_of_sums(metric: str, sums: Sequence[np.ndarray | float] | np.ndarray) -> np.ndarray:
    """Return the scores from the sums of the arrays of `summands`, as many as each sum has."""
    if metric not in METRICS:
        return _correlation(*sums)
    sums = np.stack(np.broadcast_arrays(*sums))
    right, predicted, true = sums.reshape(3, -1, *sums.shape[1:])
    if metric in ('accuracy', 'f1_micro'):
        return _ratio(right.sum(axis=0), true.sum(axis=0))
    if metric == 'matthews':
        count = true.sum(axis=0)
        covariance = count * right.sum(axis=0) - (predicted * true).sum(axis=0)
        return _ratio(covariance, np.sqrt(_variance(count, predicted) * _variance(count, true)))
    f1 = _ratio(2 * right, predicted + true)
    if metric == 'f1':
        return f1[-1, ...]
    occurs = true.real > 0
    return _ratio((occurs * f1).sum(axis=0), occurs.sum(axis=0))


def score(metric: str, confusion: Float[np.ndarray, '*models C C']) -> Float[np.ndarray, '*models']:
    """Return the scores [...] of confusion matrices, of counts or shares."""
    return score_of_sums(metric, _sums(confusion))


def gradient(
    metric: str, confusion: Float[np.ndarray, '*models C C']
) -> Float[np.ndarray, '*models C C']:
    """Return the derivative of the score by each cell of the confusion matrix, which has shares.

    It says what one further example in that cell changes, times the number of examples: the
    influence of the cell (Hampel 1974). Weighted by the shares, all cells add up to 0. Where the
    score is 0 / 0, the derivative is 0.
    """
    sums = _sums(confusion)
    slopes = np.zeros(sums.shape)
    for one in range(len(sums)):
        moved = sums.astype(complex)
        moved[one] += _STEP * 1j
        slopes[one] = np.imag(score_of_sums(metric, moved)) / _STEP
    right, predicted, true = np.split(np.moveaxis(slopes, 0, -1), 3, axis=-1)
    same = np.eye(confusion.shape[-1])
    return same * right[..., None, :] + predicted[..., None, :] + true[..., :, None]


def _sums(confusion: np.ndarray) -> np.ndarray:
    """Return the sums of the arrays of `summands` of all examples [3 C, ...]."""
    right = np.einsum('...CC->...C', confusion)
    sums = right, confusion.sum(axis=-2), confusion.sum(axis=-1)
    return np.moveaxis(np.concatenate(sums, axis=-1), -1, 0)


def _variance(count, of_classes) -> np.ndarray:
    """Return 1 minus the chance that two examples are of one class, times the square of all."""
    variance = count**2 - (of_classes**2).sum(axis=0)
    return np.where(variance.real > ROUNDING * count.real**2, variance, 0)


def _ratio(numerator, denominator) -> np.ndarray:
    above = denominator.real > 0
    return np.where(above, numerator / np.where(above, denominator, 1), 0)


def _correlation(count, x, y, xx, yy, xy) -> np.ndarray:
    with np.errstate(divide='ignore', invalid='ignore'):
        variance_x, variance_y = xx - x * x / count, yy - y * y / count
        correlation = (xy - x * y / count) / np.sqrt(variance_x * variance_y)
        defined = (variance_x > ROUNDING * xx) & (variance_y > ROUNDING * yy)
        return np.clip(np.where(defined, correlation, np.nan), -1, 1)
