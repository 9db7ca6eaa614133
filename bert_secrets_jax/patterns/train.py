"""Training of the classifier of patterns, and the baselines that it is compared with.

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


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return the weight of each map in the loss [M], 1 on average.

    The weights of a class sum to the square root of its number of maps. If every map weighed the
    same, the rare classes would not be learnt. If every class weighed the same, a few maps would
    outweigh hundreds.
    """
    weights = 1 / np.sqrt(np.bincount(labels, minlength=len(CLASSES))[labels])
    return weights / weights.mean()


def fit(maps: MapSample, labels: np.ndarray, config: TrainConfig = TrainConfig()) -> Classifier:
    """Train the network on labelled maps.

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
    # The map of a text that is read backwards has the same class: half of the images are turned.
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
    """Return the logits of each map [M, C]."""
    images = images_of(maps, side=classifier.side, longest=classifier.longest)
    return np.asarray(_forward(classifier.params, images))


@jax.jit
def _forward(params, images):
    return PatternCNN().apply({'params': params}, images)


def hand_made_features(maps: MapSample) -> np.ndarray:
    """Return features that somebody would think of [M, F], the baseline of the network.

    These are the mass on the two heaviest columns, on [CLS] and [SEP], on the diagonal and the two
    diagonals on each side of it; how far the mass within texts exceeds their share of the cells;
    the mean entropy of the rows; the length; and whether there are two texts.
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


# Ways to predict the classes of maps from other maps with labels.
MODELS = {'CNN': _by_cnn, 'hand-made features': _by_hand, 'majority': _majority}


def cross_validate(
    model: Callable[[TrainConfig, MapSample, np.ndarray, MapSample], np.ndarray],
    maps: MapSample,
    labels: np.ndarray,
    config: TrainConfig,
    *,
    folds: int = 5,
) -> np.ndarray:
    """Predict the class of every map by a model that saw neither its text nor one like it.

    Args:
      model: One of `MODELS`.
      maps: The maps. Those with the same number in `maps.text` share a sentence and are never
        divided between training and prediction.
      labels: The class of each map [M].
      config: The settings of the training; its seed also draws the folds.
      folds: The number of folds, in which each class has about the same share.

    Returns:
      The predicted class of each map [M].

    Raises:
      ImportError: scikit-learn is not installed.
      ValueError: There are fewer texts than folds.
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


def confusion(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the numbers of maps [C, C] by label (rows) and prediction (columns)."""
    return np.bincount(labels * len(CLASSES) + predicted, minlength=len(CLASSES) ** 2).reshape(
        len(CLASSES), len(CLASSES)
    )


def f1_of(confusions: np.ndarray) -> np.ndarray:
    """Return the F1 of each class [..., C] from confusion matrices [..., C, C].

    It is NaN for a class that never occurs, neither as a label nor as a prediction, so that a mean
    leaves such a class out, as scikit-learn does.
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
