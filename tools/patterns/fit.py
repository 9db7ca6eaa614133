"""Fitting the classifier of patterns to labelled maps.

Shapes: M maps, F features.
"""

import numpy as np

from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import FAR, Classifier, standardised
from tools.patterns.maps import MapSample, features_of

# The kernel falls to 1/e where features differ by 1.4 standard deviations (root mean square), and
# the labels carry about this much noise. Chosen leaving models out, on a flat optimum: from a third
# to twice the width and a third of the noise, macro F1 stays within .02.
_WIDTH, _NOISE = 0.003, 0.6


def fit(maps: MapSample, labels: np.ndarray) -> Classifier:
    """Fit the classifier to maps, labelled [M] with places in `CLASSES`.

    What needs predictions for maps of other models is not known then: the temperature is 1, and the
    confusions are empty (`tools.patterns.rivals.calibrated`).
    """
    return fit_features(features_of(maps), labels, maps.text)


def fit_features(seen: np.ndarray, labels: np.ndarray, texts: np.ndarray) -> Classifier:
    center, scale = seen.mean(axis=0), seen.std(axis=0) + np.float32(1e-6)
    known = np.asarray(standardised(seen, center, scale))
    exact = known.astype(np.float64)
    squares = np.square(exact).sum(axis=1)
    squares = np.maximum(squares[:, None] + squares - 2 * exact @ exact.T, 0)
    # A map with a small weight may be missed by more.
    system = np.exp(-_WIDTH * squares) + np.diag(_NOISE / class_weights(labels))
    targets = np.eye(len(CLASSES))[labels] - 1 / len(CLASSES)
    # To the nearest map of another text, as a map that is judged is of one.
    other = np.where(texts[:, None] == texts, np.inf, squares).min(axis=1)
    other = np.sqrt(other[np.isfinite(other)] / known.shape[1])
    far = float(np.quantile(other, 1 - FAR)) if other.size else float('inf')
    weights = np.linalg.solve(system, targets).astype(np.float32)
    return Classifier(center, scale, known, weights, width=_WIDTH, far=far)


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return the weight of each map in the loss [M], 1 on average.

    Those of a class sum to the root of its number of maps: so rare classes are learnt, too.
    """
    weights = 1 / np.sqrt(np.bincount(labels, minlength=len(CLASSES))[labels])
    return weights / weights.mean()
