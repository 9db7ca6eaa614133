"""Training the classifier of patterns, and what it is held against.

Shapes: M maps, X side of an image, C classes, F features.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bert_secrets_jax.patterns.cnn import CLASSES, PatternCNN, image
from bert_secrets_jax.patterns.sample import Maps


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """How the network is trained.

    Attributes:
      epochs, batch_size: of maps.
      learning_rate: of AdamW at its peak, after which it falls to 0 as a cosine.
      weight_decay: of kernels and biases.
      seed: of initial weights, order and dropout.
    """

    epochs: int = 60
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    seed: int = 0


def images_of(maps: Maps) -> np.ndarray:
    """Return [M, X, X, 2] images of maps of any length."""
    longest = max(len(value) for value in maps.values)
    convert = jax.jit(image)
    return np.stack(
        [
            convert(np.pad(value.astype(np.float32), (0, longest - len(value))), len(value), first)
            for value, first in zip(maps.values, maps.first_text, strict=True)
        ]
    )


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return [M] weights by which every class weighs as much as another, 1 on average."""
    counts = np.bincount(labels, minlength=len(CLASSES))
    return (len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)))[labels]


def fit(images: np.ndarray, labels: np.ndarray, config: TrainConfig = TrainConfig()):
    """Train the network; returns its parameters.

    Args:
      images: [M, X, X, 2].
      labels: [M] class ids, in the order of CLASSES.
      config: of the training.
    """
    rng = np.random.default_rng(config.seed)
    steps = -(-len(images) // config.batch_size)
    orders = []
    for _ in range(config.epochs):
        order = rng.permutation(len(images))
        orders.append(np.resize(order, (steps, config.batch_size)))
    return _fit(
        config,
        jnp.asarray(images),
        jnp.asarray(labels),
        jnp.asarray(class_weights(labels), jnp.float32),
        jnp.asarray(np.concatenate(orders)),
    )


@functools.partial(jax.jit, static_argnums=0)
def _fit(config: TrainConfig, images, labels, weights, order):
    model = PatternCNN()
    initial, dropout = jax.random.split(jax.random.key(config.seed))
    params = model.init(initial, images[:1])['params']
    schedule = optax.warmup_cosine_decay_schedule(
        0, config.learning_rate, len(order) // 20 + 1, len(order)
    )
    optimizer = optax.adamw(schedule, weight_decay=config.weight_decay)

    def loss(params, chosen, key):
        logits = model.apply(
            {'params': params}, images[chosen], deterministic=False, rngs={'dropout': key}
        )
        each = optax.softmax_cross_entropy_with_integer_labels(logits, labels[chosen])
        return (each * weights[chosen]).mean()

    def step(state, inputs):
        params, momenta = state
        gradient = jax.grad(loss)(params, *inputs)
        updates, momenta = optimizer.update(gradient, momenta, params)
        return (optax.apply_updates(params, updates), momenta), None

    keys = jax.random.split(dropout, len(order))
    (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), (order, keys))
    return params


@jax.jit
def predict(params, images) -> jax.Array:
    """Return [M, C] logits."""
    return PatternCNN().apply({'params': params}, images)


def hand_made_features(maps: Maps) -> np.ndarray:
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


def cross_validate(
    maps: Maps, images: np.ndarray, labels: np.ndarray, config: TrainConfig, *, folds: int = 5
) -> dict[str, np.ndarray]:
    """Predict every map by models that saw neither it nor another map of its text.

    Returns:
      Name of the model to class ids [M]: 'CNN', 'hand-made features', 'majority'.
    """
    splits = StratifiedGroupKFold(folds, shuffle=True, random_state=config.seed)
    features = hand_made_features(maps)
    found = {name: np.full(len(labels), -1) for name in ('CNN', 'hand-made features', 'majority')}
    for train, test in splits.split(features, labels, groups=maps.example):
        params = fit(images[train], labels[train], config)
        found['CNN'][test] = np.asarray(predict(params, images[test])).argmax(axis=1)
        by_hand = make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=2000, class_weight='balanced')
        ).fit(features[train], labels[train])
        found['hand-made features'][test] = by_hand.predict(features[test])
        found['majority'][test] = np.bincount(labels[train]).argmax()
    return found
