"""The trained classifier of patterns: from BERT's maps to their classes, on the device.

    classifier = bs.patterns.load_classifier()
    tables = bs.collect(pretrained, batches, bs.patterns.pattern_statistics(classifier))
    tables['pattern: vertical'].mean  # [layer, head]: the share of examples with this pattern

Shapes: L layers, N heads, T positions, C classes.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float

from bert_secrets_jax.files import checksum, open_regular, parse_json, write_atomically
from bert_secrets_jax.measure.catalogue import Described, Family
from bert_secrets_jax.measure.statistics import Comparison, Maps, Marks, Result, Statistic
from bert_secrets_jax.patterns.cnn import CLASSES, SIDE, TITLES, PatternCNN, image
from bert_secrets_jax.ranges import Range

# The name, beside those of the classes, of the last value of `pattern_change`: whether the class
# of the map is another one in the second model.
CHANGED = 'changed'
_SOURCE = 'Kovaleva et al. 2019, section 4.1'
_CLASS_TITLES = {
    name: f'maps of the class {title}' for name, title in zip(CLASSES, TITLES, strict=True)
}


# By identity: jit recognises what it has compiled for, and arrays cannot be hashed.
@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A trained network.

    Attributes:
      params: The parameters of `PatternCNN`.
      side, longest: The size of the images on which it was trained, as in `cnn.image`.
      confusion: [C, C] The number of maps for each class given by a person (rows) and each class
        predicted by a network that was trained without the map (columns; cross-validation).
    """

    params: Mapping[str, Any]
    side: int = SIDE
    longest: int | None = None
    confusion: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 0), int))


def load_classifier(path: str | pathlib.Path | None = None) -> Classifier:
    """Load a classifier.

    Args:
      path: A file that `save_classifier` wrote; by default the one that comes with the package.

    Raises:
      ValueError: The file is no classifier, or one of other classes.
    """
    path = path or resources.files(__package__).joinpath('classifier.safetensors')
    open_regular(path).close()
    try:
        with safetensors.safe_open(path, framework='numpy') as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = file.metadata() or {}
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f'{path} is no safetensors file ({error}).') from error
    expected = about.pop('sha256', None)
    if expected is not None and expected != checksum(about, arrays):
        raise ValueError(f'{path} is damaged: what it holds is not what was written.')
    about = {name: _json(text) for name, text in about.items()}
    if about.get('classes') != list(CLASSES) or about.keys() != _ABOUT:
        raise ValueError(
            f'{path} is no classifier of {", ".join(CLASSES)}: make one with '
            'bs.patterns.fit(maps, labels) and bs.patterns.save_classifier(path, classifier).'
        )
    params = flax.traverse_util.unflatten_dict(arrays, sep='/')

    def network():
        return PatternCNN().init(jax.random.key(0), jnp.zeros((1, SIDE, SIDE, 3)))

    expected = jax.eval_shape(network)['params']

    def alike(leaf, other):
        return (leaf.shape, leaf.dtype) == (other.shape, other.dtype)

    if jax.tree.structure(params) != jax.tree.structure(expected) or not jax.tree.all(
        jax.tree.map(alike, params, expected)
    ):
        raise ValueError(
            f"{path} has not the weights of this version's network: make it anew with "
            'bs.patterns.fit(maps, labels) and bs.patterns.save_classifier(path, classifier).'
        )
    side, longest, confusion = about['side'], about['longest'], about['confusion']
    if side not in _SIDE or longest not in _LONGEST or not _is_confusion(confusion):
        raise ValueError(
            f'{path} is damaged: {side=} must be {_SIDE}, {longest=} {_LONGEST}, and the confusion '
            'a table of numbers of maps.'
        )
    return Classifier(
        params=params,
        side=side,
        longest=longest,
        confusion=np.array(confusion, int).reshape(len(confusion), len(confusion)),
    )


_SIDE, _LONGEST = Range(1, 10_000), Range(1, 1_000_000, optional=True)


def _is_confusion(value: Any) -> bool:
    """Whether a value is a square table of counts; it may be empty."""
    return isinstance(value, list) and all(
        isinstance(row, list) and len(row) == len(value) and all(each in _MAPS for each in row)
        for row in value
    )


_MAPS = Range(0, 10**9)


_ABOUT = {'classes', 'side', 'longest', 'confusion'}


def _json(text: str):
    try:
        return parse_json(text)
    except ValueError:
        return None


def save_classifier(path: pathlib.Path, classifier: Classifier) -> None:
    """Write a classifier to a file.

    Args:
      path: The file (.safetensors).
      classifier: The classifier.
    """
    about = {
        'classes': json.dumps(CLASSES),
        'side': json.dumps(classifier.side),
        'longest': json.dumps(classifier.longest),
        'confusion': json.dumps(np.asarray(classifier.confusion).tolist()),
    }
    arrays = flax.traverse_util.flatten_dict(jax.device_get(classifier.params), sep='/')
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    about['sha256'] = checksum(about, arrays)
    write_atomically(path, safetensors.numpy.save(arrays, metadata=about))


def classify(classifier: Classifier, attentions: Maps, marks: Marks) -> Float[Array, 'L N C']:
    """Return the logits of each class for the maps of one example [L, N, C].

    Args:
      classifier: The classifier of maps.
      attentions: The maps [L, N, T, T].
      marks: The marks of the example, of which 'token' and 'sep' are read.
    """
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
def pattern(classifier: Classifier, classes: tuple[str, ...] = CLASSES) -> Statistic:
    """Return the statistic "the map is of this class" (section 4.1), a value [L, N, C] of 0 and 1.

    Its mean over a corpus is the share of a head's maps in each class.

    Args:
      classifier: The classifier of maps.
      classes: The classes to return, in this order; all by default.
    """
    chosen = tuple(map(CLASSES.index, classes))

    def statistic(attentions: Maps, marks: Marks) -> Result:
        return _take(_one_of(classify(classifier, attentions, marks)), chosen), jnp.ones(())

    statistic.__name__ = 'pattern'
    return statistic


@functools.cache
def pattern_change(
    classifier: Classifier, parts: tuple[str, ...] = (*CLASSES, CHANGED)
) -> Comparison:
    """Return, for `compare`, the class of the second model's map, and whether it is another one.

    By default the value is [L, N, C + 1]: that of `pattern` for the second model, and then 1 where
    the first model's class is another one, and 0 elsewhere.

    Args:
      classifier: The classifier of maps.
      parts: The values to return, in this order: names of classes, and CHANGED.
    """
    chosen = tuple(map((*CLASSES, CHANGED).index, parts))

    def statistic(attentions: Maps, others: Maps, marks: Marks) -> Result:
        before, after = (
            _one_of(classify(classifier, maps, marks)) for maps in (attentions, others)
        )
        changed = 1 - jnp.einsum('LNC,LNC->LN', before, after)
        return _take(jnp.concatenate([after, changed[..., None]], axis=-1), chosen), jnp.ones(())

    statistic.__name__ = 'pattern_change'
    return statistic


def pattern_statistics(classifier: Classifier) -> list[Described]:
    """Return the statistics 'pattern: vertical' and so on, one for each of CLASSES.

    The value of each is the share of maps in its class. Together they cost as much as one of them.

    Args:
      classifier: The classifier of maps.
    """
    return [
        _described(classifier, part, title, pattern, pairwise=False)
        for part, title in _CLASS_TITLES.items()
    ]


def pattern_comparisons(classifier: Classifier) -> list[Described]:
    """Return statistics for `compare`: the second model's shares, and 'pattern: changed'.

    There is one share for each of CLASSES. 'pattern: changed' is the share of maps whose class in
    the second model is another than in the first.

    Args:
      classifier: The classifier of maps.
    """
    titles = _CLASS_TITLES | {CHANGED: 'maps that change their class'}
    return [
        _described(classifier, part, title, pattern_change, pairwise=True)
        for part, title in titles.items()
    ]


def _described(
    classifier: Classifier, part: str, title: str, make: Callable, *, pairwise: bool
) -> Described:
    return Described(
        name=f'pattern: {part}',
        title=title,
        function=_only(make(classifier, (part,))),
        unit='share of maps',
        limits=(0.0, 1.0),
        source=_SOURCE,
        pairwise=pairwise,
        classifier=classifier,
        family=Family(_of_classifier, (('make', make), ('classifier', classifier))),
        argument=part,
    )


def _of_classifier(
    parts: tuple[str, ...], *, make: Callable, classifier: Classifier
) -> Statistic | Comparison:
    return make(classifier, parts)


@functools.cache
def _only(stacked: Callable) -> Callable:
    """Return a statistic [L, N] for a stack of a single one, [L, N, 1]."""

    def statistic(*maps_and_marks):
        value, weight = stacked(*maps_and_marks)
        return value[..., 0], weight

    statistic.__name__ = stacked.__name__
    return statistic


def _take(values: Float[Array, 'L N C'], chosen: tuple[int, ...]) -> Float[Array, 'L N F']:
    return values[..., np.array(chosen)]


def _one_of(logits: Float[Array, 'L N C']) -> Float[Array, 'L N C']:
    return jax.nn.one_hot(logits.argmax(axis=-1), len(CLASSES))
