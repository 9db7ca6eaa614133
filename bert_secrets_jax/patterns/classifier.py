"""The trained classifier of patterns: from BERT's maps to their classes, on the device.

    classifier = bs.patterns.load_classifier()
    tables = bs.collect(bert, params, batches, {'pattern': bs.patterns.pattern(classifier)})
    tables['pattern'].mean  # [layer, head, class]: the share of examples in each of CLASSES

Shapes: L layers, N heads, T positions, C classes.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.measure.statistics import Comparison, Maps, Marks, Result, Statistic
from bert_secrets_jax.patterns.cnn import CLASSES, SIDE, PatternCNN, image


# By identity: jit recognises what it has compiled for, and arrays cannot be hashed.
@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A trained network.

    Attributes:
      params: of `PatternCNN`.
      side, longest: of the images that it was trained on, see `cnn.image`.
      confusion: [C, C] numbers of maps, labelled (rows) as and found to be (columns) of a class by
        models that were trained without them (cross-validation).
    """

    params: Mapping[str, Any]
    side: int = SIDE
    longest: int | None = None
    confusion: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0), int))


def load_classifier(path: str | pathlib.Path | None = None) -> Classifier:
    """Load a classifier that `save_classifier` wrote; by default the one that ships.

    Raises:
      ValueError: for a file that is none, or of other classes.
    """
    path = path or resources.files(__package__).joinpath('classifier.safetensors')
    try:
        with safetensors.safe_open(path, framework='numpy') as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise ValueError(f'{path} is no safetensors file ({error}).') from error
    about = {name: _json(text) for name, text in about.items()}
    if about.get('classes') != list(CLASSES) or about.keys() != _ABOUT:
        raise ValueError(
            f'{path} is no classifier of {", ".join(CLASSES)}: make one with '
            '`python -m experiments.train_patterns`.'
        )
    params = flax.traverse_util.unflatten_dict(arrays, sep='/')
    network = lambda: PatternCNN().init(jax.random.key(0), jnp.zeros((1, SIDE, SIDE, 3)))
    expected = jax.eval_shape(network)['params']
    alike = lambda leaf, other: (leaf.shape, leaf.dtype) == (other.shape, other.dtype)
    if jax.tree.structure(params) != jax.tree.structure(expected) or not jax.tree.all(
        jax.tree.map(alike, params, expected)
    ):
        raise ValueError(
            f"{path} has not the weights of this version's network: make it anew with "
            '`python -m experiments.train_patterns`.'
        )
    return Classifier(
        params=params,
        side=about['side'],
        longest=about['longest'],
        confusion=np.array(about['confusion'], int),
    )


_ABOUT = {'classes', 'side', 'longest', 'confusion'}


def _json(text: str):
    try:
        return json.loads(text)
    except ValueError:
        return None


def save_classifier(path: pathlib.Path, classifier: Classifier) -> None:
    """Write a classifier (.safetensors)."""
    about = {
        'classes': json.dumps(CLASSES),
        'side': json.dumps(classifier.side),
        'longest': json.dumps(classifier.longest),
        'confusion': json.dumps(np.asarray(classifier.confusion).tolist()),
    }
    arrays = flax.traverse_util.flatten_dict(jax.device_get(classifier.params), sep='/')
    write_atomically(path, safetensors.numpy.save(arrays, metadata=about))


def classify(classifier: Classifier, attentions: Maps, marks: Marks) -> jax.Array:
    """Return logits [L, N, C] of one example's maps [L, N, T, T]."""
    length = marks['token'].sum()
    # Two texts are told apart by the first separator; what has none is one text.
    first_text = jnp.where(marks['sep'].any(), 1 + jnp.argmax(marks['sep']), length)
    to_image = functools.partial(image, side=classifier.side, longest=classifier.longest)

    def of_layer(maps):
        images = jax.vmap(to_image, (0, None, None))(maps, length, first_text)
        return PatternCNN().apply({'params': classifier.params}, images)

    # Layer by layer: the features of all maps of a large batch would not fit.
    return jax.lax.map(of_layer, attentions)


@functools.cache
def pattern(classifier: Classifier) -> Statistic:
    """Return the statistic "is of this class" (section 4.1), a value [L, N, C] of zeros and a one.

    Its mean over a corpus is the share of a head's maps in each of CLASSES.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        return _one_of(classify(classifier, attentions, marks)), jnp.ones(())

    statistic.__name__ = 'pattern'
    return statistic


@functools.cache
def pattern_change(classifier: Classifier) -> Comparison:
    """Return, for `compare`, the class of the second model's map, and whether it is another one.

    A value [L, N, C + 1]: `pattern` of the second model, and 1 where the first one's differs.
    """

    def statistic(attentions: Maps, others: Maps, marks: Marks) -> Result:
        before, after = (
            _one_of(classify(classifier, maps, marks)) for maps in (attentions, others)
        )
        changed = 1 - jnp.einsum('LNC,LNC->LN', before, after)
        return jnp.concatenate([after, changed[..., None]], axis=-1), jnp.ones(())

    statistic.__name__ = 'pattern_change'
    return statistic


def _one_of(logits: jax.Array) -> jax.Array:
    return jax.nn.one_hot(logits.argmax(axis=-1), len(CLASSES))
