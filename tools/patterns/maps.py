"""Maps of different lengths, their features, and the classes that a classifier finds.

Shapes: A or M maps, C classes, F features.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from bert_secrets_jax.patterns.classifier import Classifier, judge
from bert_secrets_jax.patterns.features import features


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
