"""Evaluation of the classifier of patterns, and the classifiers that it is compared with.

Shapes: M maps, X side of an image, C classes, F features, D values that a model says of a map.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_secrets_jax.finetune import loop
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.classifier import Classifier, judge, standardised
from bert_secrets_jax.patterns.correct import f1_of
from tools.patterns.cnn import SIDE, PatternCNN, image
from tools.patterns.fit import class_weights, fit_features
from tools.patterns.maps import MapSample, features_of
from tools.patterns.sample import origins


def calibrated(
    classifier: Classifier, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray
) -> Classifier:
    """Return a classifier with what is known from predictions for maps that it was not fitted to.

    Their logits [M, C] are those of classifiers that were fitted without the model of each map
    (`cross_validate`), at the temperature 1; groups are these models [M] (`groups_of`).
    """
    predicted = logits.argmax(axis=1)
    members = [groups == group for group in np.unique(groups)]
    tables = np.stack([confusion(labels[each], predicted[each]) for each in members])
    best = temperature(logits, labels)
    return dataclasses.replace(classifier, temperature=best, confusions=tables)


def temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature for logits [M, C] and their labels (Guo et al. 2017, section 4.2)."""
    tried = np.geomspace(0.01, 10, 301)
    scaled = logits / tried[:, None, None]
    right = np.take_along_axis(scaled, labels[None, :, None], axis=2)[..., 0]
    return float(tried[(right - np.logaddexp.reduce(scaled, axis=2)).sum(axis=1).argmax()])


def unlike(classifier: Classifier, maps: MapSample) -> np.ndarray:
    """Return whether each map is unlike all labelled ones [M]."""
    return np.asarray(judge(classifier, features_of(maps)))[:, -1] > classifier.far


def confusion(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the numbers of maps [C, C] by label (rows) and prediction (columns)."""
    size = len(CLASSES)
    return np.bincount(labels * size + predicted, minlength=size**2).reshape(size, size)


def probabilities(logits: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the probabilities [M, C] of logits, each at the temperature that the others have.

    Args:
      logits: [M, C] Logits at the temperature 1.
      labels: The class of each map [M].
      groups: The origin of each map [M]; its temperature is that of all other origins.
    """
    found = np.zeros(logits.shape)
    for group in np.unique(groups):
        here = groups == group
        scaled = logits[here] / temperature(logits[~here], labels[~here])
        found[here] = np.exp(scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True))
    return found


def calibration_error(found: np.ndarray, labels: np.ndarray, *, bins: int = 10) -> float:
    """Return the expected calibration error of probabilities (Guo et al. 2017, section 2).

    Args:
      found: The probabilities [M, C].
      labels: The class of each map [M].
      bins: The number of classes of confidence, equally wide, over which the difference of
        confidence and accuracy is averaged.
    """
    sure, right = found.max(axis=1), found.argmax(axis=1) == labels
    which = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(which, weights=sure - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(labels))


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How the convolutional network is trained, with which the classifier is compared.

    Attributes:
      epochs: The number of times that every map is shown.
      batch_size: The number of maps in a batch.
      learning_rate: The greatest learning rate of AdamW, from which it falls to 0 like a cosine.
      weight_decay: The weight decay of kernels and biases.
      keep: The least share of the tokens that `thinned` keeps; 1 keeps all.
      side, longest: The size of the images and what fills them, as in `cnn.image`.
      seed: The seed of the initial weights, the order of the maps, dropout and thinning.
    """

    epochs: int = 100
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    keep: float = 0.7
    side: int = SIDE
    longest: int | None = None
    seed: int = 0


def images_of(maps: MapSample, *, side: int = SIDE, longest: int | None = None) -> np.ndarray:
    """Return the images [M, X, X, 3] of maps of any length, with the arguments of `cnn.image`."""
    lengths = np.array([len(value) for value in maps.values])
    # Few sizes, so few compilations.
    room = -(-lengths.max() // 32) * 32
    padded = np.zeros((len(maps), room, room), np.float32)
    for row, value in enumerate(maps.values):
        padded[row, : len(value), : len(value)] = value
    return np.asarray(_images(padded, lengths, np.asarray(maps.first_text), side, longest))


@functools.partial(jax.jit, static_argnums=(3, 4))
def _images(padded, lengths, first_text, side, longest):
    convert = functools.partial(image, side=side, longest=longest)
    return jax.lax.map(lambda each: convert(*each), (padded, lengths, first_text), batch_size=64)


def thinned(maps: MapSample, keep: float, rng: np.random.Generator) -> MapSample:
    """Leave tokens of each map out at random, as if its text were shorter.

    This gives more maps to train on. A map mostly keeps its class, because columns, diagonals and
    blocks are still there. The first token, the last one and [SEP] always stay.

    Args:
      maps: The maps.
      keep: The least share of the tokens that is kept. Each map draws a share from `keep` to 1.
      rng: The source of the draws.
    """
    values, first_text = [], []
    for value, first in zip(maps.values, maps.first_text, strict=True):
        kept = rng.uniform(size=len(value)) < rng.uniform(keep, 1)
        kept[[0, first - 1, -1]] = True
        values.append(value[np.ix_(kept, kept)])
        first_text.append(kept[:first].sum())
    return dataclasses.replace(maps, values=values, first_text=np.array(first_text))


class Network(NamedTuple):
    """A trained convolutional network: the parameters of `PatternCNN`, the size of its images."""

    params: Mapping[str, Any]
    side: int
    longest: int | None


def fit_network(
    maps: MapSample, labels: np.ndarray, config: TrainConfig = TrainConfig()
) -> Network:
    """Train a network like the paper's on labelled maps.

    Args:
      maps: The maps.
      labels: The class of each map [M], as its place in `CLASSES`.
      config: The settings of the training.

    Raises:
      ValueError: The images have fewer than 32 pixels, of which the convolutions leave nothing.
    """
    if config.side < 32:
        raise ValueError(f'Images of side={config.side} pixels are too small: take 32 or more.')
    rng = np.random.default_rng(config.seed)
    steps = -(-len(maps) // config.batch_size)
    total = config.epochs * steps
    initial, dropout = jax.random.split(jax.random.key(config.seed))
    params = PatternCNN().init(initial, jnp.zeros((1, config.side, config.side, 3)))['params']
    weights = class_weights(labels).astype(np.float32)

    optimizer = _optimizer(config, total)

    def batches():
        for _ in range(config.epochs):
            shown = thinned(maps, config.keep, rng) if config.keep < 1 else maps
            images = images_of(shown, side=config.side, longest=config.longest)
            for chosen in np.resize(rng.permutation(len(maps)), (steps, config.batch_size)):
                yield images[chosen], labels[chosen], weights[chosen]

    drawn = batches()

    def take(state, step):
        return _step(config, total, state, *next(drawn), jax.random.fold_in(dropout, step))

    state = loop.TrainState(0, params, optimizer.init(params))
    # A loop of steps and not a scan, in which XLA's convolutions on a CPU are slow to train.
    state, _ = loop.train(
        take, state, range(total), what='Network', size=lambda _: config.batch_size, unit='maps'
    )
    return Network(jax.device_get(state.params), side=config.side, longest=config.longest)


def _optimizer(config: TrainConfig, steps: int) -> optax.GradientTransformation:
    warmup = min(steps // 20 + 1, steps - 1)
    schedule = optax.warmup_cosine_decay_schedule(0, config.learning_rate, warmup, steps)
    return optax.adamw(schedule, weight_decay=config.weight_decay)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _step(config, steps, state, images, labels, weights, key):
    to_drop, to_reverse = jax.random.split(key)
    # The map of a text that is read backwards has the same class: half of the images are turned.
    reverse = jax.random.bernoulli(to_reverse, shape=(len(images), 1, 1, 1))
    images = jnp.where(reverse, images[:, ::-1, ::-1], images)

    def loss(params):
        logits = PatternCNN().apply(
            {'params': params}, images, deterministic=False, rngs={'dropout': to_drop}
        )
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return (each * weights).mean()

    found, gradients = jax.value_and_grad(loss)(state.params)
    optimizer = _optimizer(config, steps)
    updates, momenta = optimizer.update(gradients, state.optimizer, state.params)
    params = optax.apply_updates(state.params, updates)
    return loop.TrainState(state.step + 1, params, momenta), found


def predict_network(network: Network, maps: MapSample) -> np.ndarray:
    """Return the logits of each map [M, C]."""
    images = images_of(maps, side=network.side, longest=network.longest)
    return np.asarray(_forward(network.params, images))


@jax.jit
def _forward(params, images):
    return PatternCNN().apply({'params': params}, images)


class Inputs(NamedTuple):
    """Maps, and their features [M, F], so that each is computed once for all folds."""

    maps: MapSample
    seen: np.ndarray

    def take(self, chosen: np.ndarray) -> 'Inputs':
        return Inputs(self.maps.take(chosen), self.seen[chosen])


def _by_kernel(config, known, labels, unlabelled) -> np.ndarray:
    fitted = fit_features(known.seen, labels, known.maps.text)
    return np.asarray(judge(fitted, unlabelled.seen))[:, :-1]


def _by_network(config, known, labels, unlabelled) -> np.ndarray:
    return predict_network(fit_network(known.maps, labels, config), unlabelled.maps)


def _by_regression(config, known, labels, unlabelled) -> np.ndarray:
    # Loaded where it is used, since it takes a second.
    import sklearn.linear_model

    model = sklearn.linear_model.LogisticRegression(C=0.05, max_iter=2000)
    center, scale = known.seen.mean(axis=0), known.seen.std(axis=0) + 1e-6
    standard, others = (
        np.asarray(standardised(each.seen, center, scale)) for each in (known, unlabelled)
    )
    model.fit(standard, labels, sample_weight=class_weights(labels))
    found = np.full((len(others), len(CLASSES)), -np.inf)
    found[:, model.classes_] = model.predict_log_proba(others)
    return found


def _majority(config, known, labels, unlabelled) -> np.ndarray:
    return np.tile(np.bincount(labels, minlength=len(CLASSES)), (len(unlabelled.seen), 1))


def _majority_of_head(config, known, labels, unlabelled) -> np.ndarray:
    """The majority class of the head in other texts; of all maps for heads that are not known."""
    counts = {}
    for head, label in zip(heads(known.maps), labels, strict=True):
        counts.setdefault(head, np.zeros(len(CLASSES)))[label] += 1
    # A little of the majority, which decides ties.
    every = np.bincount(labels, minlength=len(CLASSES)) / len(labels) / 2
    return np.stack([counts.get(head, 0) + every for head in heads(unlabelled.maps)])


# Ways to judge maps by other maps with labels. Each takes the settings, the labelled `Inputs` and
# their labels, and the other inputs, and returns a score of each class [M, C], the greatest for the
# class that it predicts.
MODELS = {
    'kernel': _by_kernel,
    'regression': _by_regression,
    'head majority': _majority_of_head,
    'majority': _majority,
    'CNN': _by_network,
}
# The properties that the predicted maps share with no other map. They are the text, the head, or
# the whole model with all that was fine-tuned from it.
LEAVE_OUT = ('text', 'head', 'model')


def heads(maps: MapSample) -> list[tuple[str, int, int]]:
    """Return the head of each map: its origin, layer and head."""
    return list(zip(origins(maps).tolist(), maps.layer.tolist(), maps.head.tolist(), strict=True))


def groups_of(maps: MapSample, leave_out: str) -> np.ndarray:
    """Return a number for each map [M], the same for maps that an evaluation never divides.

    Args:
      maps: The maps.
      leave_out: One of `LEAVE_OUT`.

    Raises:
      ValueError: It is none of these.
    """
    if leave_out not in LEAVE_OUT:
        raise ValueError(f'Leave out one of {", ".join(LEAVE_OUT)}, not {leave_out!r}.')
    if leave_out == 'text':
        return np.asarray(maps.text)
    names = origins(maps) if leave_out == 'model' else [str(head) for head in heads(maps)]
    return np.unique(names, return_inverse=True)[1]


def cross_validate(
    model: Callable[[TrainConfig, Inputs, np.ndarray, Inputs], np.ndarray],
    inputs: Inputs,
    labels: np.ndarray,
    config: TrainConfig,
    *,
    leave_out: str = 'text',
    folds: int = 5,
) -> np.ndarray:
    """Judge every map by a model that saw none of its text, of its head, or of its model.

    Args:
      model: One of `MODELS`.
      inputs: The maps and their features.
      labels: The class of each map [M].
      config: The settings of the training; its seed also draws the folds.
      leave_out: 'text': maps with the same number in `maps.text` are never divided between
        training and prediction. 'head': no head of a model is on both sides. 'model': each origin
        (`sample.origins`) is predicted from all others.
      folds: The number of folds of texts or heads, in which each class has about the same share.

    Returns:
      The score of each class for each map [M, C].

    Raises:
      ImportError: scikit-learn is not installed.
      ValueError: There are fewer texts or heads than folds, or maps of one origin only.
    """
    groups = groups_of(inputs.maps, leave_out)
    found = len(np.unique(groups))
    least = 2 if leave_out == 'model' else folds
    if found < least:
        raise ValueError(f'{least} folds need as many {leave_out}s, and the maps are of {found}.')
    import sklearn.model_selection

    splitter = sklearn.model_selection
    if leave_out == 'model':
        splits = splitter.LeaveOneGroupOut()
    else:
        splits = splitter.StratifiedGroupKFold(folds, shuffle=True, random_state=config.seed)
    scores = np.full((len(labels), len(CLASSES)), np.nan)
    for train, test in splits.split(labels, labels, groups=groups):
        scores[test] = model(config, inputs.take(train), labels[train], inputs.take(test))
    return scores


@dataclasses.dataclass(frozen=True)
class Scores:
    """How well the classes of maps were predicted.

    Attributes:
      macro_f1: The mean of the classes' F1, each class with the same weight.
      weighted_f1: The mean of the classes' F1, weighted by their numbers of maps.
      accuracy: The share of the maps whose class was predicted.
      f1: The F1 of each class [C].
      macro_interval, weighted_interval, accuracy_interval: The 95 % intervals of the three, from
        bootstrap resamples of whole texts.
    """

    macro_f1: float
    weighted_f1: float
    accuracy: float
    f1: np.ndarray
    macro_interval: tuple[float, float]
    weighted_interval: tuple[float, float]
    accuracy_interval: tuple[float, float]


def score(
    labels: np.ndarray,
    predicted: np.ndarray,
    groups: np.ndarray,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Scores:
    """Score predictions, with intervals that allow for several maps of one text.

    Args:
      labels: The true class of each map [M].
      predicted: The predicted class of each map [M].
      groups: The text of each map [M]. The bootstrap draws whole texts.
      resamples: The number of bootstrap resamples.
      seed: The seed of the resamples.
    """
    _, group = np.unique(groups, return_inverse=True)
    of_group = np.zeros((group.max() + 1, len(CLASSES) ** 2))
    np.add.at(of_group, (group, labels * len(CLASSES) + predicted), 1)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(of_group), np.full(len(of_group), 1 / len(of_group)), resamples)
    counts = np.concatenate([of_group.sum(axis=0)[None], drawn @ of_group])
    counts = counts.reshape(-1, len(CLASSES), len(CLASSES))
    f1, labelled = f1_of(counts), counts.sum(axis=2)
    macro = np.nanmean(f1, axis=1)
    weighted = (np.nan_to_num(f1) * labelled).sum(axis=1) / labelled.sum(axis=1)
    accuracy = np.einsum('RCC->R', counts) / labelled.sum(axis=1)

    def interval(values):
        return tuple(np.quantile(values[1:], (0.025, 0.975)).tolist())

    return Scores(
        macro_f1=float(macro[0]),
        weighted_f1=float(weighted[0]),
        accuracy=float(accuracy[0]),
        f1=f1[0],
        macro_interval=interval(macro),
        weighted_interval=interval(weighted),
        accuracy_interval=interval(accuracy),
    )
