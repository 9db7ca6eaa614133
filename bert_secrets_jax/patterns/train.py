"""Training the classifier of patterns, and what it is held against.

Shapes: M maps, X side of an image, C classes, F features.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bert_secrets_jax.patterns.classifier import Classifier
from bert_secrets_jax.patterns.cnn import CLASSES, SIDE, PatternCNN, image
from bert_secrets_jax.patterns.sample import MapSample


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How the network is trained.

    Attributes:
      epochs, batch_size: of maps.
      learning_rate: of AdamW at its peak, after which it falls to 0 as a cosine.
      weight_decay: of kernels and biases.
      keep: least share of the tokens that `thinned` keeps; 1 for all.
      side, longest: of the images, see `cnn.image`.
      seed: of initial weights, order, dropout and thinning.
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
    """Return [M, X, X, 3] images of maps of any length; further arguments as in `image`."""
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
    """Leave tokens out at random, as if texts were shorter; first, last and [SEP] stay.

    What class a map is of it mostly stays: columns, diagonals and blocks are still there.

    Args:
      maps: M maps.
      keep: the least share of tokens that are kept; each map has its own share.
      rng: draws.
    """
    values, first_text = [], []
    for value, first in zip(maps.values, maps.first_text, strict=True):
        kept = rng.uniform(size=len(value)) < rng.uniform(keep, 1)
        kept[[0, first - 1, -1]] = True
        values.append(value[np.ix_(kept, kept)])
        first_text.append(kept[:first].sum())
    return dataclasses.replace(maps, values=values, first_text=np.array(first_text))


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return [M] weights, 1 on average: a class counts as the square root of its number of maps.

    By its number the rare ones would not be learnt, and all alike, few maps would outweigh many.
    """
    weights = 1 / np.sqrt(np.bincount(labels, minlength=len(CLASSES))[labels])
    return weights / weights.mean()


def fit(maps: MapSample, labels: np.ndarray, config: TrainConfig = TrainConfig()) -> Classifier:
    """Train the network.

    Args:
      maps: M maps.
      labels: [M] class ids, in the order of CLASSES.
      config: of the training.

    Raises:
      ValueError: images of fewer than 32 pixels, of which the convolutions leave nothing.
    """
    if config.side < 32:
        raise ValueError(f'Images of side={config.side} pixels are too small: take 32 or more.')
    rng = np.random.default_rng(config.seed)
    steps = -(-len(maps) // config.batch_size)
    initial, dropout = jax.random.split(jax.random.key(config.seed))
    params = PatternCNN().init(initial, jnp.zeros((1, config.side, config.side, 3)))['params']
    optimizer = _optimizer(config, config.epochs * steps)
    state = (params, optimizer.init(params))
    weights = class_weights(labels).astype(np.float32)
    for epoch in range(config.epochs):
        shown = thinned(maps, config.keep, rng) if config.keep < 1 else maps
        images = images_of(shown, side=config.side, longest=config.longest)
        order = np.resize(rng.permutation(len(maps)), (steps, config.batch_size))
        # A loop of steps and not a scan, in which XLA's convolutions on a CPU are slow to train.
        for step, chosen in enumerate(order, epoch * steps):
            batch = images[chosen], labels[chosen], weights[chosen]
            key = jax.random.fold_in(dropout, step)
            state = _step(config, config.epochs * steps, state, *batch, key)
    return Classifier(jax.device_get(state[0]), side=config.side, longest=config.longest)


def _optimizer(config: TrainConfig, steps: int) -> optax.GradientTransformation:
    warmup = min(steps // 20 + 1, steps - 1)
    schedule = optax.warmup_cosine_decay_schedule(0, config.learning_rate, warmup, steps)
    return optax.adamw(schedule, weight_decay=config.weight_decay)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _step(config, steps, state, images, labels, weights, key):
    to_drop, to_reverse = jax.random.split(key)
    # Read from its end, a text's map is of the same class: half of the images are turned so.
    reverse = jax.random.bernoulli(to_reverse, shape=(len(images), 1, 1, 1))
    images = jnp.where(reverse, images[:, ::-1, ::-1], images)

    def loss(params):
        logits = PatternCNN().apply(
            {'params': params}, images, deterministic=False, rngs={'dropout': to_drop}
        )
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return (each * weights).mean()

    params, momenta = state
    updates, momenta = _optimizer(config, steps).update(jax.grad(loss)(params), momenta, params)
    return optax.apply_updates(params, updates), momenta


def predict(classifier: Classifier, maps: MapSample) -> np.ndarray:
    """Return [M, C] logits."""
    images = images_of(maps, side=classifier.side, longest=classifier.longest)
    return np.asarray(_forward(classifier.params, images))


@jax.jit
def _forward(params, images):
    return PatternCNN().apply({'params': params}, images)


def hand_made_features(maps: MapSample) -> np.ndarray:
    """Return [M, F] what one would compute by hand: the baseline of the network.

    Mass of the two heaviest columns, of the [CLS] and [SEP] columns, on the diagonal and its
    neighbours, within texts beyond what their sizes give, and the entropy of rows.
    """
    return np.stack(
        [
            _features(value.astype(np.float64), int(first))
            for value, first in zip(maps.values, maps.first_text, strict=True)
        ]
    )


def _features(values: np.ndarray, first: int) -> list[float]:
    length = len(values)
    columns = values.mean(axis=0)
    heaviest = np.sort(columns)[::-1]
    band = {offset: np.diagonal(values, offset).sum() / length for offset in (-2, -1, 0, 1, 2)}
    text = np.arange(length) < first
    same = text[:, None] == text[None, :]
    rows = values / np.maximum(values.sum(axis=1, keepdims=True), 1e-9)
    entropy = -(rows * np.log(np.maximum(rows, 1e-9))).sum(axis=1).mean()
    return [
        *heaviest[:2],
        columns[0],
        columns[[first - 1, -1]].max(),
        *band.values(),
        sum(band.values()),
        (values * same).sum() / length - same.mean(),
        entropy / np.log(max(length, 2)),
        np.log(length),
        float(first < length),
    ]


def _by_cnn(config, maps, labels, unlabelled) -> np.ndarray:
    return predict(fit(maps, labels, config), unlabelled).argmax(axis=1)


def _by_hand(config, maps, labels, unlabelled) -> np.ndarray:
    sklearn = _scikit_learn()
    model = sklearn.pipeline.make_pipeline(
        sklearn.preprocessing.StandardScaler(),
        sklearn.linear_model.LogisticRegression(max_iter=2000, class_weight='balanced'),
    )
    return model.fit(hand_made_features(maps), labels).predict(hand_made_features(unlabelled))


def _scikit_learn():
    """Import scikit-learn, which only the comparison with other classifiers needs."""
    try:
        import sklearn.linear_model
        import sklearn.model_selection
        import sklearn.pipeline
        import sklearn.preprocessing
    except ImportError as error:
        raise ImportError(
            'Cross-validation of the classifier of patterns needs scikit-learn: '
            "pip install 'bert_secrets_jax[patterns]'"
        ) from error
    return sklearn


def _majority(config, maps, labels, unlabelled) -> np.ndarray:
    return np.full(len(unlabelled), np.bincount(labels).argmax())


# Ways to find the classes of maps when others are labelled.
MODELS = {'CNN': _by_cnn, 'hand-made features': _by_hand, 'majority': _majority}


def cross_validate(
    model: Callable[[TrainConfig, MapSample, np.ndarray, MapSample], np.ndarray],
    maps: MapSample,
    labels: np.ndarray,
    config: TrainConfig,
    *,
    folds: int = 5,
) -> np.ndarray:
    """Predict every map by models that saw no map of its text or of one that shares a sentence.

    Args:
      model: of MODELS.
      maps: M maps.
      labels: [M] class ids.
      config: of the network's training; its seed draws the folds.
      folds: parts, with about the same share of each class.

    Returns:
      [M] class ids.

    Raises:
      ValueError: fewer texts than folds.
    """
    texts = len(np.unique(maps.text))
    if texts < folds:
        raise ValueError(f'{folds} folds need as many texts, and the maps are of {texts}.')
    sklearn = _scikit_learn()
    splits = sklearn.model_selection.StratifiedGroupKFold(
        folds, shuffle=True, random_state=config.seed
    )
    predicted = np.full(len(labels), -1)
    for train, test in splits.split(labels, labels, groups=maps.text):
        predicted[test] = model(config, maps.take(train), labels[train], maps.take(test))
    return predicted


@dataclasses.dataclass(frozen=True)
class Scores:
    """How well classes were found.

    Attributes:
      macro_f1: mean over the classes, each as important as another.
      weighted_f1: mean over the classes by their number of maps.
      accuracy: share of maps.
      f1: [C] of each class.
      macro_interval, weighted_interval, accuracy_interval: central 95 % over bootstrap resamples.
    """

    macro_f1: float
    weighted_f1: float
    accuracy: float
    f1: np.ndarray
    macro_interval: tuple[float, float]
    weighted_interval: tuple[float, float]
    accuracy_interval: tuple[float, float]


def confusion(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return [C, C] numbers of maps by label (rows) and prediction (columns)."""
    return np.bincount(labels * len(CLASSES) + predicted, minlength=len(CLASSES) ** 2).reshape(
        len(CLASSES), len(CLASSES)
    )


def f1_of(confusions: np.ndarray) -> np.ndarray:
    """Return F1 [..., C] of each class from confusions [..., C, C]; NaN for one that never occurs.

    As in scikit-learn, the macro mean is over the classes that occur as labels or predictions.
    """
    both = confusions.sum(axis=-1) + confusions.sum(axis=-2)
    right = np.einsum('...CC->...C', confusions)
    return np.where(both > 0, 2 * right / np.maximum(both, 1), np.nan)


def score(
    labels: np.ndarray,
    predicted: np.ndarray,
    groups: np.ndarray,
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Scores:
    """Score predictions, with intervals that know that maps of one text go together.

    Args:
      labels, predicted: [M] class ids.
      groups: [M] texts; whole texts are drawn again.
      resamples: of the bootstrap.
      seed: of the resamples.
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
    interval = lambda values: tuple(np.quantile(values[1:], (0.025, 0.975)).tolist())
    return Scores(
        macro_f1=float(macro[0]),
        weighted_f1=float(weighted[0]),
        accuracy=float(accuracy[0]),
        f1=f1[0],
        macro_interval=interval(macro),
        weighted_interval=interval(weighted),
        accuracy_interval=interval(accuracy),
    )
