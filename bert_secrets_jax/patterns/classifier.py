"""The trained classifier of patterns: from BERT's maps to their classes, on the device.

    classifier = bs.patterns.load_classifier()
    tables = bs.collect(pretrained, batches, bs.patterns.pattern_statistics(classifier))
    tables['pattern: vertical'].mean  # [layer, head]: the share of examples with this pattern

The classifier is a kernel machine: least-squares classification with Gaussian kernels on the
labelled maps (Rasmussen and Williams 2006, Gaussian Processes for Machine Learning, section 6.5),
on features that hardly depend on a model's contrast. The paper's convolutional network sees pixels.
One linear system fits this one, so that whole models can be left out in evaluation, and its
distances also tell which maps are unlike all labelled ones.

Shapes: L layers, N heads, T positions, C classes, M labelled maps, F features, B maps.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float, Int

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.files import checksum, open_regular, parse_json, write_atomically
from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.statistics import Comparison, Maps, Marks, Result, Statistic
from bert_secrets_jax.patterns.classes import CLASSES, TITLES
from bert_secrets_jax.patterns.features import NUMBER, features
from bert_secrets_jax.ranges import Range

# Names beside those of the classes: whether a map is unlike all labelled ones, and, the last value
# of `pattern_change`, whether the class of the map is another one in the second model.
UNLIKE, CHANGED = 'unlike', 'changed'
_CLASS_TITLES = {
    name: f'maps of the class {title}' for name, title in zip(CLASSES, TITLES, strict=True)
} | {UNLIKE: 'maps that are unlike all labelled ones'}
# The share of labelled maps that are farther than `Classifier.far` from those of all other texts.
FAR = 0.05


# Computed on the device, or fitted and read as NumPy arrays.
_AnyArray = Array | np.ndarray


# By identity: jit recognises what it has compiled for, and arrays cannot be hashed.
@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A fitted kernel machine.

    Attributes:
      center, scale: [F] The mean and the standard deviation of each feature of the labelled maps.
      known: [M, F] The standardised features of the labelled maps.
      weights: [M, C] How much each labelled map speaks for each class.
      width: The factor of the squared distance in the kernel.
      temperature: The number that scores are divided by, so that their softmax is a probability.
      far: The distance to the nearest labelled map from which on a map is unlike all of them. A
        distance is the root of the mean squared difference of standardised features.
      confusions: [G, C, C] The maps of each labelled model by a person's class (rows) and that of a
        classifier fitted without this model (columns); empty if they are not known.
    """

    center: np.ndarray
    scale: np.ndarray
    known: np.ndarray
    weights: np.ndarray
    width: float
    temperature: float = 1.0
    far: float = float('inf')
    confusions: np.ndarray = dataclasses.field(
        default_factory=lambda: np.zeros((0, len(CLASSES), len(CLASSES)), int)
    )


def load_classifier(path: str | pathlib.Path | None = None) -> Classifier:
    """Load a classifier from a file of `save_classifier`, or by default that of the package.

    Raises:
      ValueError: The file is no classifier, or one of other classes.
    """
    path = path or pathlib.Path(__file__).parent / 'classifier.safetensors'
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
    known = {'classes', 'confusions', *_NUMBERS}
    if about.get('classes') != list(CLASSES) or about.keys() != known:
        raise ValueError(
            f'{path} is no classifier of {", ".join(CLASSES)}, or one of another version: in a '
            'clone, `python -m experiments.train_patterns` makes one.'
        )
    if not _are_weights(arrays):
        raise ValueError(
            f"{path} has not the weights of this version's classifier: in a clone, `python -m "
            'experiments.train_patterns` makes it anew.'
        )
    confusions = about['confusions']
    # In JSON, an infinite distance is null.
    numbers = {name: about[name] for name in _NUMBERS if (name, about[name]) != ('far', None)}
    if not all(each in _POSITIVE for each in numbers.values()) or not _are_confusions(confusions):
        raise ValueError(
            f'{path} is damaged: {", ".join(_NUMBERS)} must be numbers above 0, and the confusions '
            'tables of numbers of maps.'
        )
    fields: dict[str, Any] = {**arrays, **{name: float(each) for name, each in numbers.items()}}
    return Classifier(
        **fields,
        confusions=np.array(confusions, int).reshape(len(confusions), len(CLASSES), len(CLASSES)),
    )


_NUMBERS = ('width', 'temperature', 'far')
_POSITIVE = Range(0, float(np.finfo(float).max), whole=False, without=0)


def _are_weights(arrays: Mapping[str, np.ndarray]) -> bool:
    """Whether arrays are those of a classifier, of the features of this version, all finite."""
    maps = len(np.atleast_1d(arrays.get('weights', 0)))
    shapes = {'center': (NUMBER,), 'scale': (NUMBER,), 'known': (maps, NUMBER)}
    shapes['weights'] = (maps, len(CLASSES))
    is_whole = maps > 0 and {name: each.shape for name, each in arrays.items()} == shapes
    return is_whole and all(
        each.dtype == np.float32 and np.isfinite(each).all() for each in arrays.values()
    )


def _are_confusions(value: Any) -> bool:
    """Whether a value is a list of tables of counts, of classes by classes; it may be empty."""
    counts = np.array(value, object)
    is_filled = counts.shape[1:] == (len(CLASSES), len(CLASSES))
    return (is_filled or value == []) and all(each in _MAPS for each in counts.flat)


_MAPS = Range(0, 10**9)


def _json(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return None


def save_classifier(path: pathlib.Path, classifier: Classifier) -> None:
    """Write a classifier to a file (.safetensors)."""
    about = {
        'classes': CLASSES,
        'width': classifier.width,
        'temperature': classifier.temperature,
        'far': classifier.far if np.isfinite(classifier.far) else None,
        'confusions': np.asarray(classifier.confusions).tolist(),
    }
    about = {name: json.dumps(each) for name, each in about.items()}
    arrays = {
        name: np.asarray(getattr(classifier, name), np.float32)
        for name in ('center', 'scale', 'known', 'weights')
    }
    about['sha256'] = checksum(about, arrays)
    write_atomically(path, safetensors.numpy.save(arrays, metadata=about))


def judge(classifier: Classifier, seen: Float[_AnyArray, 'B F']) -> Float[Array, 'B D']:
    """Return C logits, calibrated on models without labels, and the distance to the nearest map."""
    standard = standardised(seen, classifier.center, classifier.scale)
    known = jnp.asarray(classifier.known)
    squares = (
        jnp.square(standard).sum(axis=1)[:, None]
        + jnp.square(known).sum(axis=1)[None]
        - 2 * product('BF,MF->BM', standard, known)
    )
    squares = jnp.maximum(squares, 0)
    kernel = jnp.exp(-classifier.width * squares)
    scores = product('BM,MC->BC', kernel, classifier.weights)
    distance = jnp.sqrt(squares.min(axis=1, keepdims=True) / known.shape[1])
    return jnp.concatenate([scores / classifier.temperature, distance], axis=1)


def standardised(
    seen: Float[_AnyArray, 'B F'], center: Float[_AnyArray, ' F'], scale: Float[_AnyArray, ' F']
) -> Float[Array, 'B F']:
    """Return features in standard deviations, at most 4, so that no single one decides."""
    return jnp.clip((seen - center[None]) / scale[None], -4, 4)


def judge_maps(classifier: Classifier, attentions: Maps, marks: Marks) -> Float[Array, 'L N D']:
    """Return what `judge` does for the maps of one example."""
    length = marks['token'].sum()
    # Two texts are told apart by the first separator; what has none is one text.
    first_text = jnp.where(marks['sep'].any(), 1 + jnp.argmax(marks['sep']), length)

    def judge_layer(maps):
        return judge(classifier, jax.vmap(features, (0, None, None))(maps, length, first_text))

    # Layer by layer: what is computed of all maps of a large batch would not fit.
    return jax.lax.map(judge_layer, attentions)


def _values(classifier: Classifier, attentions: Maps, marks: Marks) -> Float[Array, 'L N D']:
    """Return 1 for the class of each map, and last, whether it is unlike all labelled ones."""
    judged = judge_maps(classifier, attentions, marks)
    one = jax.nn.one_hot(judged[..., :-1].argmax(axis=-1), len(CLASSES))
    unlike = judged[..., -1:] > classifier.far
    return jnp.concatenate([one, unlike.astype(one.dtype)], axis=-1)


@functools.cache
def pattern(classifier: Classifier, classes: tuple[str, ...] = CLASSES) -> Statistic:
    """Return the statistic "the map is of this class" (section 4.1), a value [L, N, C] of 0 and 1.

    Its mean over a corpus is the share of a head's maps in each class. UNLIKE is 1 where the map is
    unlike all labelled ones, whatever its class.
    """
    chosen = _places(classes, (*CLASSES, UNLIKE))

    def statistic(attentions: Maps, marks: Marks) -> Result:
        return _values(classifier, attentions, marks)[..., chosen], jnp.ones(())

    statistic.__name__ = 'pattern'
    return statistic


@functools.cache
def pattern_change(
    classifier: Classifier, parts: tuple[str, ...] = (*CLASSES, CHANGED)
) -> Comparison:
    """Return, for `compare`, the class of the second model's map, and whether it is another one.

    By default the value is [L, N, C + 1]: that of `pattern` for the second model, and then 1 where
    the first model's class is another one, and 0 elsewhere. Parts are names of classes, UNLIKE and
    CHANGED.
    """
    chosen = _places(parts, (*CLASSES, UNLIKE, CHANGED))

    def statistic(attentions: Maps, others: Maps, marks: Marks) -> Result:
        # One after the other, so that the features of maps are compiled once for both models.
        before, after = jax.lax.map(
            lambda maps: _values(classifier, maps, marks), jnp.stack([attentions, others])
        )
        changed = 1 - jnp.einsum('LNC,LNC->LN', before[..., :-1], after[..., :-1])
        both = jnp.concatenate([after, changed[..., None]], axis=-1)
        return both[..., chosen], jnp.ones(())

    statistic.__name__ = 'pattern_change'
    return statistic


def _places(names: tuple[str, ...], among: tuple[str, ...]) -> Int[np.ndarray, ' C']:
    """Return the place of each of several names among others."""
    for name in names:
        check_name('classes', name, among)
    return np.array([among.index(name) for name in names])


def pattern_statistics(classifier: Classifier) -> list[Described]:
    """Return the statistics 'pattern: vertical' and so on, and 'pattern: unlike'.

    The value of each is the share of maps in its class, and of those that are unlike all labelled
    ones. Together they cost as much as one of them.
    """
    return _described(classifier, pattern, _CLASS_TITLES, pairwise=False)


def pattern_comparisons(classifier: Classifier) -> list[Described]:
    """Return statistics for `compare`: the second model's shares, and 'pattern: changed'.

    There is one share for each of CLASSES, and 'pattern: unlike'. 'pattern: changed' is the share
    of maps whose class in the second model is another than in the first.
    """
    titles = _CLASS_TITLES | {CHANGED: 'maps that change their class'}
    return _described(classifier, pattern_change, titles, pairwise=True)


def _described(
    classifier: Classifier, make: Callable, titles: Mapping[str, str], *, pairwise: bool
) -> list[Described]:
    function = make(classifier, tuple(titles))
    return [
        Described(
            name=f'pattern: {part}',
            title=title,
            function=function,
            unit='share of maps',
            limits=(0.0, 1.0),
            source='Kovaleva et al. 2019, section 4.1',
            pairwise=pairwise,
            classifier=classifier,
            part=place,
        )
        for place, (part, title) in enumerate(titles.items())
    ]
