"""Fine-tuning of several seeds at once, in one loop that can be killed at any time.

Everything that differs between seeds has a leading axis R ("run"): parameters, optimiser state and
batches. What happens at a step follows from the step and the seed alone (data order, dropout), so a
checkpoint of parameters and step is a checkpoint of everything.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_secrets_jax.data.encoding import BUCKETS, Batch, Encoded, in_order, padded_lengths
from bert_secrets_jax.finetune import checkpoints, optimizers
from bert_secrets_jax.finetune.metrics import evaluate
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.progress import progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """The defaults are those of the original study and of the authors' script.

    Attributes:
      seeds: one run each: of the fresh classifier, the data order and dropout.
      epochs: passes over the training examples.
      batch_size: examples per step and run.
      micro_batch: examples per forward and backward pass. A step's examples are sorted by length
        and cut into micro-batches, each padded to its own longest and their gradients added: the
        same step (only rounding differs) in less memory and with less padding.
      learning_rate: at its peak.
      warmup: share of the steps in which it rises.
      weight_decay: on all but biases and LayerNorm.
      clip: greatest norm of the gradient.
      optimizer: 'adamw' or 'bert_adam' (`optimizers.make_optimizer`).
      max_length: padded length at most.
      buckets: padded lengths.
      log_every: steps between lines of the training curve.
      checkpoint_every: steps between checkpoints, besides one per epoch.
    """

    seeds: tuple[int, ...] = (0,)
    epochs: int = 3
    batch_size: int = 32
    micro_batch: int = 8
    learning_rate: float = 5e-5
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0
    optimizer: str = 'adamw'
    max_length: int = 128
    buckets: tuple[int, ...] = BUCKETS
    log_every: int = 20
    checkpoint_every: int = 500

    def __post_init__(self):
        if self.optimizer not in optimizers.NAMES:
            raise ValueError(f'{self.optimizer=} is unknown; choose one of {optimizers.NAMES}.')
        if self.batch_size % self.micro_batch:
            raise ValueError(f'{self.micro_batch=} must divide {self.batch_size=}.')
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f'{self.seeds=} must be different numbers, at least one.')


@dataclasses.dataclass(frozen=True)
class Data:
    """What is trained and evaluated on.

    Attributes:
      train: tokenised training examples.
      train_labels: [E] class ids, or values of a regression.
      train_ids: names of the training examples, for errors.
      dev: batches of the dev examples.
      dev_labels: [E'].
      metrics: names of GLUE's metrics for the task.
    """

    train: Encoded
    train_labels: np.ndarray
    train_ids: Sequence[str]
    dev: Sequence[Batch]
    dev_labels: np.ndarray
    metrics: tuple[str, ...]


@flax.struct.dataclass
class TrainState:
    """What a step changes, with a leading axis R for runs."""

    step: Any
    params: Any
    optimizer: Any


class NonFiniteLossError(FloatingPointError):
    """The loss became infinite or NaN; the last checkpoint was saved before that."""


def finetune(
    bert: Bert,
    params: Sequence[Any],
    data: Data,
    config: FinetuneConfig,
    directory: Any,
    *,
    save: Callable[[int, str, Any], None] = lambda seed, which, params: None,
    mesh: Mesh | None = None,
) -> list[dict[str, Any]]:
    """Fine-tune one run per seed; called again after a kill, go on to the same result.

    Args:
      bert: with a classification or regression head.
      params: initial parameters of each run.
      data: training and dev examples.
      config: settings.
      directory: folder of checkpoints and curves (`curve.jsonl`, `curve.csv`).
      save: called with a seed, 'best' or 'last', and its parameters: whenever its dev score is the
        best so far, and after the last step.
      mesh: devices along an axis `data`; takes the runs apart, or else the micro-batches.

    Returns:
      The history: a dictionary per logged step and run ('split' is 'train', with 'loss' and
      'learning_rate'), and per epoch and run ('dev', with the metrics, their mean 'score', and
      'loss'). Epoch 0 is the model before training.

    Raises:
      NonFiniteLossError: naming the step, the learning rate and the examples.
      ValueError: if neither runs nor micro-batches split over the devices.
    """
    count = len(data.train_labels)
    per_epoch = -(-count // config.batch_size)
    total = per_epoch * config.epochs
    schedule = optimizers.make_schedule(config.learning_rate, total, config.warmup)
    optimizer = _optimizer(config, total)
    at_once = mesh is not None or jax.default_backend() != 'cpu'
    of_runs, of_batches = _shardings(mesh, len(config.seeds), config.micro_batch)
    stacked = jax.device_put(jax.tree.map(lambda *leaves: jnp.stack(leaves), *params), of_runs)
    state = TrainState(jnp.int32(0), stacked, jax.jit(jax.vmap(optimizer.init))(stacked))
    with checkpoints.Checkpoints(directory) as saved:
        state, history = saved.restore_latest(state)
        if not history:
            history = _evaluate(bert, at_once, state, data, config, 0, save)
            saved.save(state, history)
        losses = []
        first = int(state.step)
        for step in progress(
            range(first, total),
            'Fine-tuning',
            size=lambda _: config.batch_size * len(config.seeds),
        ):
            rows = np.stack(
                [_rows(seed, step, count, config.batch_size, per_epoch) for seed in config.seeds]
            )
            gradients, loss = None, 0
            keys = _keys(np.array(config.seeds), step)
            counts = (rows >= 0).sum(axis=1).astype(np.float32)
            for batch, labels in _micro_batches(data, rows, config):
                batch, labels = jax.device_put((batch, labels), of_batches)
                gradients, part = _accumulate(
                    bert, at_once, state.params, gradients, batch, labels, keys, counts
                )
                loss = loss + part
            state = _update(optimizer, state, gradients)
            losses.append((step, loss))
            done = step + 1
            is_epoch = done % per_epoch == 0
            if done % config.log_every == 0 or is_epoch or done % config.checkpoint_every == 0:
                history += _check(losses, schedule, data, config, per_epoch)
                losses = []
            if is_epoch:
                epoch = done // per_epoch
                history += _evaluate(bert, at_once, state, data, config, epoch, save, history)
            if is_epoch or done % config.checkpoint_every == 0:
                saved.save(state, history)
    for run, seed in enumerate(config.seeds):
        save(seed, 'last', _of_run(state.params, run))
    return history


@functools.lru_cache(maxsize=8)
def _optimizer(config: FinetuneConfig, steps: int) -> optax.GradientTransformation:
    """Return the same object for the same settings: jit knows it by its identity."""
    return optimizers.make_optimizer(
        config.optimizer,
        optimizers.make_schedule(config.learning_rate, steps, config.warmup),
        weight_decay=config.weight_decay,
        clip=config.clip,
    )


def _of_run(params: Any, run: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[run], params)


def predict(
    bert: Bert, params: Any, batches: Sequence[Batch], *, at_once: bool = False
) -> np.ndarray:
    """Return logits [R, E, C] of every run on all examples, in their order.

    Args:
      bert: the model.
      params: with a leading axis of runs.
      batches: from one call of `encode`.
      at_once: whether the runs are vmapped, or follow each other.
    """
    logits = [np.asarray(_predict(bert, at_once, params, batch)) for batch in batches]
    return in_order([batch.example for batch in batches], logits, axis=1)


def loss_per_example(logits, labels):
    """Return [B]: cross entropy, or the squared error of a regression (C = 1)."""
    if logits.shape[-1] == 1:
        return (logits[:, 0] - labels) ** 2
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels.astype(jnp.int32))


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=3)
def _accumulate(bert, at_once, params, gradients, batch, labels, keys, counts):
    """Add a micro-batch's share of the gradient of the step's mean loss, for every run."""

    def loss(params, batch, labels, key, count):
        output = bert.apply(
            {'params': params},
            **batch.inputs,
            deterministic=False,
            rngs={'dropout': key},
            example_ids=batch.example,
        )
        each = loss_per_example(output.logits, labels)
        return jnp.where(batch.example >= 0, each, 0).sum() / count

    value, new = _over_runs(jax.value_and_grad(loss), at_once, params, batch, labels, keys, counts)
    return new if gradients is None else jax.tree.map(jnp.add, gradients, new), value


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(optimizer, state, gradients):
    # Elementwise work has no use for one run after the other.
    updates, moments = jax.vmap(optimizer.update)(gradients, state.optimizer, state.params)
    return TrainState(state.step + 1, optax.apply_updates(state.params, updates), moments)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(bert, at_once, params, batch):
    forward = lambda of_run: bert.apply({'params': of_run}, **batch.inputs).logits
    return _over_runs(forward, at_once, params)


def _over_runs(function, at_once: bool, *arguments):
    """Apply a function to every run: all at once, or one after the other in one program.

    On one CPU the latter is many times faster: a batched matrix product of several runs' weights
    leaves its cache, and XLA does not hand it to the fast routine for a plain one.
    """
    if at_once:
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda of_one: function(*of_one), arguments)


@jax.jit
def _keys(seeds, step):
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(seeds)


def _rows(seed: int, step: int, count: int, batch_size: int, per_epoch: int) -> np.ndarray:
    """Return which examples a run sees at a step; -1 fills the last batch of an epoch up."""
    epoch, place = divmod(step, per_epoch)
    order = _order(seed, epoch, count)
    rows = order[place * batch_size : (place + 1) * batch_size]
    return np.pad(rows, (0, batch_size - len(rows)), constant_values=-1)


@functools.lru_cache(maxsize=64)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(count)


def _micro_batches(data: Data, rows: np.ndarray, config: FinetuneConfig):
    """Yield batches [R, B, T] and labels [R, B], the short examples first."""
    lengths = np.where(rows >= 0, data.train.lengths[rows], 0)
    order = np.argsort(lengths, axis=1, kind='stable')
    rows, lengths = (np.take_along_axis(array, order, axis=1) for array in (rows, lengths))
    edges = padded_lengths(config.buckets, config.max_length)
    for start in range(0, config.batch_size, config.micro_batch):
        part = slice(start, start + config.micro_batch)
        longest = lengths[:, part].max()
        if longest == 0:
            continue
        length = int(edges[np.searchsorted(edges, longest)])
        runs = [data.train.batch(of_run, length) for of_run in rows[:, part]]
        batch = jax.tree.map(lambda *arrays: np.stack(arrays), *runs)
        yield batch, data.train_labels[rows[:, part]].astype(np.float32)


def _check(losses, schedule, data, config, per_epoch) -> list[dict[str, Any]]:
    """Return the mean training loss since the last check; stop where it is not finite."""
    steps = [step for step, _ in losses]
    values = np.stack([np.asarray(loss) for _, loss in losses])
    for step, of_runs in zip(steps, values, strict=True):
        for seed, value in zip(config.seeds, of_runs, strict=True):
            if not np.isfinite(value):
                count = len(data.train_labels)
                rows = _rows(seed, step, count, config.batch_size, per_epoch)
                names = ', '.join(data.train_ids[row] for row in rows if row >= 0)
                raise NonFiniteLossError(
                    f'The loss of seed {seed} is {value} at step {step + 1} (learning rate '
                    f'{float(schedule(step)):.3g}). The last checkpoint is from before; lower the '
                    f'learning rate or look at the examples of that step: {names}.'
                )
    done = steps[-1] + 1
    return [
        {
            'split': 'train',
            'seed': seed,
            'step': done,
            'epoch': done / per_epoch,
            'loss': float(mean),
            'learning_rate': float(schedule(steps[-1])),
        }
        for seed, mean in zip(config.seeds, values.mean(axis=0), strict=True)
    ]


def _evaluate(bert, at_once, state, data, config, epoch, save, history=()) -> list[dict[str, Any]]:
    logits = predict(bert, state.params, data.dev, at_once=at_once)
    rows = []
    for run, seed in enumerate(config.seeds):
        former = [row['score'] for row in history if row['split'] == 'dev' and row['seed'] == seed]
        loss = loss_per_example(jnp.asarray(logits[run]), jnp.asarray(data.dev_labels))
        row = {
            'split': 'dev',
            'seed': seed,
            'step': int(state.step),
            'epoch': epoch,
            'loss': float(loss.mean()),
            **evaluate(data.metrics, logits[run], data.dev_labels),
        }
        rows.append(row)
        # Before training there is nothing to keep: epoch 0 is the model that one started from.
        if epoch and not any(_rank(score) >= _rank(row['score']) for score in former[1:]):
            save(seed, 'best', _of_run(state.params, run))
    return rows


def _shardings(mesh: Mesh | None, runs: int, micro_batch: int):
    """Return how runs and how batches [R, B, ...] lie on the devices."""
    if mesh is None:
        return None, None
    devices = mesh.shape['data']
    if runs % devices == 0:
        return (NamedSharding(mesh, PartitionSpec('data')),) * 2
    if micro_batch % devices == 0:
        return (
            NamedSharding(mesh, PartitionSpec()),
            NamedSharding(mesh, PartitionSpec(None, 'data')),
        )
    raise ValueError(
        f'Neither {runs} runs nor micro-batches of {micro_batch} split over {devices} devices: '
        f'choose train.num_seeds or train.micro_batch as a multiple of {devices}.'
    )


def _rank(score: float) -> float:
    """Order scores; NaN (constant predictions have no correlation) is worse than anything."""
    return -np.inf if np.isnan(score) else score


def best_rows(history: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the dev row with the best score of each seed, epoch 0 left out."""
    trained = [row for row in history if row['split'] == 'dev' and row['epoch'] > 0]
    by_seed = itertools.groupby(sorted(trained, key=lambda r: r['seed']), lambda r: r['seed'])
    return {seed: max(rows, key=lambda row: _rank(row['score'])) for seed, rows in by_seed}
