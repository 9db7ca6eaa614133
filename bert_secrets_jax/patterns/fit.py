"""Fitting the classifier of patterns to labelled maps.

Shapes: A or M maps, C classes, F features.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import Classifier, judge, standardised
from bert_secrets_jax.patterns.features import features

# The kernel falls to 1/e where features differ by 1.4 standard deviations (root mean square), and
# the labels carry about this much noise. Chosen leaving models out, on a flat optimum: from a third
# to twice the width and a third of the noise, macro F1 stays within .02.
_WIDTH, _NOISE = 0.003, 0.6
# The share of labelled maps that are farther than `Classifier.far` from those of all other texts.
FAR = 0.05


@dataclasses.dataclass(frozen=True)
class MapSample:
    """Attention maps of different lengths, and the origin [A] of each."""

    values: Sequence[np.ndarray]  # [T, T]; rows are queries
    first_text: np.ndarray  # the length of [CLS] A [SEP]; all of a single sentence
    source: np.ndarray  # the model and the texts, such as 'gte-small, fine-tuned on MRPC'
    example: np.ndarray  # the id, such as 'mrpc/dev/17'
    layer: np.ndarray  # from 0
    head: np.ndarray  # from 0
    # A number that examples with a common sentence share: one must not test what another trained.
    text: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def take(self, chosen: Sequence[int] | np.ndarray) -> 'MapSample':
        chosen = np.asarray(chosen)
        arrays = {name: getattr(self, name)[chosen] for name in ARRAYS}
        return MapSample([self.values[index] for index in chosen], **arrays)


ARRAYS = ('first_text', 'source', 'example', 'layer', 'head', 'text')


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


_BATCH = 16  # the maps whose features are computed at a time


def features_of(maps: MapSample) -> np.ndarray:
    """Return the features [M, F] of maps of any length."""
    by_map = {}
    lengths = np.array([len(value) for value in maps.values])
    # Few sizes, so few compilations.
    rooms = -(-lengths // 64) * 64
    for room in np.unique(rooms):
        chosen = np.flatnonzero(rooms == room)
        # Whole batches: a smaller last one would be compiled for itself.
        chosen = np.resize(chosen, -(-len(chosen) // _BATCH) * _BATCH)
        padded = np.zeros((len(chosen), room, room), np.float32)
        for row, index in enumerate(chosen.tolist()):
            padded[row, : lengths[index], : lengths[index]] = maps.values[index]
        seen = _features(padded, lengths[chosen], np.asarray(maps.first_text)[chosen])
        by_map |= dict(zip(chosen.tolist(), np.asarray(seen), strict=True))
    return np.stack([by_map[index] for index in range(len(maps))])


@jax.jit
def _features(padded, lengths, first_text):
    every = padded, lengths, first_text
    return jax.lax.map(lambda each: features(*each), every, batch_size=_BATCH)


def predict(classifier: Classifier, maps: MapSample) -> np.ndarray:
    """Return the logits of each map [M, C]."""
    return np.asarray(judge(classifier, features_of(maps)))[:, :-1]


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return the weight of each map in the loss [M], 1 on average.

    Those of a class sum to the root of its number of maps: so rare classes are learnt, too.
    """
    weights = 1 / np.sqrt(np.bincount(labels, minlength=len(CLASSES))[labels])
    return weights / weights.mean()


def f1_of(confusions: np.ndarray) -> np.ndarray:
    """Return the F1 of each class from confusions [..., C, C]; NaN for one that never occurs."""
    both = confusions.sum(axis=-1) + confusions.sum(axis=-2)
    right = np.einsum('...CC->...C', confusions)
    return np.where(both > 0, 2 * right / np.maximum(both, 1), np.nan)
