"""The training loop: several seeds at once, and it can be killed at any time.

Parameters, optimiser state and batches have a leading axis G of seeds. Data order and dropout
follow from the step and the seed alone, so a checkpoint of the parameters, the optimiser state and
the step is a checkpoint of everything.
"""

import dataclasses
import functools
import itertools
import math
import numbers
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32, Int, Key, Num

from bert_secrets_jax.data.encoding import Batch, Encoded, in_order, padded_lengths
from bert_secrets_jax.devices import DATA, SEEDS, fetch, place, replicate
from bert_secrets_jax.finetune import optimizers
from bert_secrets_jax.finetune.checkpoints import Checkpoints, Memory
from bert_secrets_jax.finetune.losses import NONE, loss_per_example, terms
from bert_secrets_jax.finetune.metrics import (
    accuracy,
    evaluate,
    p_matthews,
    pearson,
    predictions,
    tested,
)
from bert_secrets_jax.model.bert import Bert, all_layers, check_finite, own_layers
from bert_secrets_jax.model.config import QUESTIONS, SEQUENCES, TOKENS
from bert_secrets_jax.progress import progress

# A checkpoint is written when the last one is this old, whatever the step, ...
CHECKPOINT_SECONDS = 120
# ... unless writing would take more than this share of the time: many seeds are gigabytes.
CHECKPOINT_SHARE = 0.05
# Smaller evaluations take a moment and show no progress of their own.
_LARGE_EVALUATION = 2000

Save = Callable[[int, str, Any], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """The settings of a training. The defaults are those of the paper and of its authors' script.

    Attributes:
      seeds: The seeds. One model is trained per seed, which determines the fresh classifier, the
        order of the data and dropout.
      epochs: The number of passes over the training examples.
      batch_size: The number of examples per step and seed.
      micro_batch: The number of examples per forward and backward pass; it must divide
        `batch_size`. The examples of a step are sorted by length and cut into micro-batches, each
        padded to its own longest example, and their gradients are added. The step is the same up to
        rounding and needs less memory and less padding.
      learning_rate: The learning rate at its peak.
      warmup: The share of the steps in which the learning rate rises.
      weight_decay: The decoupled weight decay of all weights except biases and LayerNorm.
      clip: The greatest norm of the gradient; a larger gradient is scaled down.
      optimizer: The optimiser: 'adamw' or 'bert_adam' (see `optimizers.make_optimizer`).
      max_length: The greatest number of tokens of an example; longer ones are cut.
      buckets: The lengths to which examples are padded; None takes few that fit the micro-batches.
      log_every: The number of steps between two rows of the training curve.
      checkpoint_every: The number of steps between two checkpoints. There is also one per epoch,
        and one whenever the last is two minutes old, or older where writing takes long.
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
    buckets: tuple[int, ...] | None = None
    log_every: int = 20
    checkpoint_every: int = 500

    def __post_init__(self):
        for name in (
            'epochs', 'batch_size', 'micro_batch', 'max_length', 'log_every', 'checkpoint_every',
        ):  # fmt: skip
            value = getattr(self, name)
            if not _is_whole(value) or value < 1:
                raise ValueError(f'{name}={value!r} must be a whole number, at least 1.')
        for name in ('learning_rate', 'clip', 'weight_decay', 'warmup'):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or isinstance(value, bool):
                raise ValueError(f'{name}={value!r} must be a number.')
        for name in ('learning_rate', 'clip'):
            value = getattr(self, name)
            # Written so that NaN is refused as well.
            if not 0 < value < math.inf:
                raise ValueError(f'{name}={value!r} must be a number above 0.')
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f'weight_decay={self.weight_decay!r} must be a number, at least 0.')
        if not 0 <= self.warmup < 1:
            raise ValueError(
                f'warmup={self.warmup!r} is a share of the steps: at least 0 and below 1.'
            )
        if self.optimizer not in optimizers.NAMES:
            raise ValueError(f'optimizer={self.optimizer!r} must be one of {optimizers.NAMES}.')
        if self.batch_size % self.micro_batch:
            raise ValueError(
                f'micro_batch={self.micro_batch} must divide batch_size={self.batch_size}.'
            )
        seeds = self.seeds
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f'{seeds=} must be different numbers, at least one.')
        for seed in seeds:
            # Greater ones give the numbers of smaller ones.
            if not _is_whole(seed) or not 0 <= seed < 2**32:
                raise ValueError(f'{seeds=} must be whole numbers, at least 0 and below 2**32.')


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class Data:
    """The examples that a model is trained and evaluated on.

    Attributes:
      train: The tokenised training examples.
      train_labels: The class ids of the training examples, or the values of a regression [E]; of
        single tokens or of answers what `losses.loss_per_example` takes [E, T] or [E, 2].
      train_ids: The ids of the training examples, for error messages.
      dev: The batches of the dev examples.
      dev_labels: The same of the dev examples, in the order of `Batch.example`.
      metrics: The names of the metrics that the dev examples are scored with.
      head: The kind of head on the encoder, one of `model.config.HEADS`.
      evaluate: A function of the metrics and the logits [E, T, C] that returns their values, their
        mean 'score' and what the test of a model needs; None for labels of whole examples.
    """

    train: Encoded
    train_labels: np.ndarray
    train_ids: Sequence[str]
    dev: Sequence[Batch]
    dev_labels: np.ndarray
    metrics: tuple[str, ...]
    head: str = SEQUENCES
    evaluate: Callable[[Sequence[str], np.ndarray], dict[str, float]] | None = None

    def labels(self, rows: Int[np.ndarray, 'G B'], length: int) -> np.ndarray:
        """Return the labels of examples that are padded to a length."""
        labels = self.train_labels[rows]
        if self.head == TOKENS:
            labels = labels[..., :length]
            missing = length - labels.shape[-1]
            labels = np.pad(labels, [(0, 0), (0, 0), (0, missing)], constant_values=NONE)
        return labels.astype(np.float32)

    def terms(self, rows: Int[np.ndarray, 'G B']) -> Float32[np.ndarray, ' G']:
        """Return over how many labels the loss of a step is the mean; -1 is no example."""
        each = np.ones(rows.shape)
        if self.head != SEQUENCES:
            each = terms(self.train_labels[rows], head=self.head)
        return np.maximum(np.where(rows >= 0, each, 0).sum(axis=1), 1).astype(np.float32)


@flax.struct.dataclass
class TrainState:
    """The state that a step changes.

    Attributes:
      step: The number of steps done so far, the same for all seeds.
      params: The parameters, with a leading axis G of seeds.
      optimizer: The state of the optimiser, with a leading axis G of seeds.
    """

    step: Any
    params: Any
    optimizer: Any


class NonFiniteLossError(FloatingPointError):
    """The loss became infinite or NaN. Checkpoints hold only the state before that."""


def save_nothing(seed: int, which: str, params: Any) -> None:
    """Save no parameters."""


def train_runs(
    bert: Bert,
    params: Sequence[Any],
    data: Data,
    config: FinetuneConfig,
    folder: Any = None,
    *,
    save: Save = save_nothing,
    mesh: Mesh | None = None,
) -> list[dict[str, Any]]:
    """Train one model per seed. A call after an interruption goes on and has the same result.

    Args:
      bert: A model with a classification or regression head.
      params: The initial parameters of each seed.
      data: The training and dev examples.
      config: The settings of the training.
      folder: The folder of checkpoints and curves (`curve.jsonl`, `curve.csv`). None writes
        nothing.
      save: A function of a seed, 'best' or 'last', and the parameters of that seed. It is called
        whenever the dev score of the seed is the best so far, and after the last step.
      mesh: The devices, along an axis `data`, over which the seeds are spread or, where their
        number does not allow that, the micro-batches. None uses one device.

    Returns:
      The history, a list of dictionaries: one per logged step and seed ('split' is 'train', with
      'loss' and 'learning_rate'), and one per epoch and seed ('split' is 'dev', with 'loss', the
      metrics, their mean 'score', and always 'accuracy' or, for a regression, 'pearson'). Epoch 0
      is the model before training.

    Raises:
      NonFiniteLossError: The loss is not finite. The error names the step, the learning rate and
        the examples.
      ValueError: Neither the seeds nor the micro-batches can be spread over the devices.
    """
    count = len(data.train_labels)
    per_epoch = -(-count // config.batch_size)
    total = per_epoch * config.epochs
    optimizer = _optimizer(config, total)
    at_once = mesh is not None or jax.default_backend() != 'cpu'
    of_seeds, of_batches = shardings(mesh, len(config.seeds), config.micro_batch)
    # Layers that are one layer are trained as one.
    own = [own_layers(bert.config, each) for each in params]
    stacked = place(jax.tree.map(_stack, *own), of_seeds)
    # Told where they lie: constants would lie on one device, which several processes cannot save.
    moments = jax.jit(jax.vmap(optimizer.init), out_shardings=of_seeds)(stacked)
    state = TrainState(replicate(jnp.int32(0), mesh), stacked, moments)
    zeros = jax.jit(_zeros, out_shardings=of_seeds)(stacked if at_once else own[0])
    steps = _Steps(
        bert, optimizer, data, config, at_once, per_epoch,
        training_lengths(data, config, at_once=at_once), of_seeds, of_batches,
    )  # fmt: skip

    def examples_in(_) -> int:
        return config.batch_size * len(config.seeds)

    with Memory() if folder is None else Checkpoints(folder) as checkpoints:
        state, record = checkpoints.restore_latest(state)
        if not record.history:
            record.history += _evaluate(bert, at_once, state, data, config, 0, save)
            checkpoints.save(state, record)
        saved_at, took = time.monotonic(), 0.0
        previous = None
        for step in progress(range(int(state.step), total), 'Fine-tuning', size=examples_in):
            state, zeros, losses = _step(steps, state, zeros, step)
            # The device may be one step behind, not twenty: the time that has passed and the
            # progress that is shown are those of steps that are done.
            jax.block_until_ready(previous)
            previous = losses
            record.pending.append((step, losses))
            done = step + 1
            is_epoch = done % per_epoch == 0
            is_checkpoint = is_epoch or done % config.checkpoint_every == 0
            if is_checkpoint or done % config.log_every == 0:
                record.history += _train_rows(record.pending, data, config, per_epoch)
                record.pending.clear()
            if is_epoch:
                epoch = done // per_epoch
                record.history += _evaluate(
                    bert, at_once, state, data, config, epoch, save, record.history
                )
            if is_checkpoint or is_due(saved_at, took):
                record.pending[:] = _checked(record.pending, data, config, per_epoch)
                started = time.monotonic()
                checkpoints.save(state, record)
                saved_at = time.monotonic()
                took = saved_at - started
    for index, seed in enumerate(config.seeds):
        save(seed, 'last', _select(bert, state.params, index))
    return record.history


@dataclasses.dataclass(frozen=True)
class _Steps:
    """All that the steps of a training share.

    Attributes:
      bert, optimizer, data, config: Those of the training.
      at_once: Whether the gradients of all seeds are computed together.
      per_epoch: The number of steps of an epoch.
      edges: The padded lengths of micro-batches.
      of_seeds, of_batches: Where parameters and batches lie (`shardings`).
    """

    bert: Bert
    optimizer: optax.GradientTransformation
    data: Data
    config: FinetuneConfig
    at_once: bool
    per_epoch: int
    edges: Any
    of_seeds: Any
    of_batches: Any


def _step(steps: _Steps, state: TrainState, zeros: Any, step: int):
    """Take one step with every seed; returns the new state, the zeros again, and losses [G].

    `zeros` are like the gradients of all seeds, or of one where they are computed one by one, each
    padded to its own lengths.
    """
    data, config = steps.data, steps.config
    rows = np.stack(
        [
            rows_of_step(seed, step, len(data.train_labels), config.batch_size, steps.per_epoch)
            for seed in config.seeds
        ]
    )
    keys, counts = keys_of_step(np.array(config.seeds), step), data.terms(rows)
    losses = []
    for seed in [None] if steps.at_once else range(len(rows)):
        own = slice(None) if seed is None else slice(seed, seed + 1)
        gradients, loss = zeros, jnp.zeros(len(rows[own]))
        for batch, labels in micro_batches(data, rows[own], config, steps.edges):
            batch, labels = place((batch, labels), steps.of_batches)
            gradients, loss = _add_gradients(
                steps.bert,
                state.params,
                gradients,
                loss,
                seed,
                batch,
                labels,
                keys[own],
                counts[own],
            )
        state, zeros = _update(steps.optimizer, state, gradients, seed, steps.of_seeds)
        losses.append(loss)
    return state.replace(step=state.step + 1), zeros, jnp.concatenate(losses)


def is_due(saved_at: float, took: float) -> bool:
    """Return whether the last checkpoint, whose writing took so many seconds, is old.

    Several processes write a checkpoint together, and their clocks differ: they write by step only.

    Args:
      saved_at: The time at which it was written (`time.monotonic`).
      took: How many seconds writing took.
    """
    old = max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)
    return jax.process_count() == 1 and time.monotonic() - saved_at >= old


@functools.lru_cache(maxsize=8)
def _optimizer(config: FinetuneConfig, steps: int) -> optax.GradientTransformation:
    """Return the same object for the same settings: jit knows it by its identity."""
    return optimizers.make_optimizer(
        config.optimizer,
        _schedule(config, steps),
        weight_decay=config.weight_decay,
        clip=config.clip,
    )


def _schedule(config: FinetuneConfig, steps: int) -> optax.Schedule:
    return optimizers.make_schedule(config.learning_rate, steps, config.warmup)


def _zeros(params):
    return jax.tree.map(jnp.zeros_like, params)


def _stack(*leaves):
    return jnp.stack(leaves)


def _select(bert: Bert, params: Any, index: int) -> Any:
    """Return the parameters of one seed, with all layers."""
    return all_layers(bert.config, jax.tree.map(operator.itemgetter(index), params))


def predict(
    bert: Bert,
    params: Any,
    batches: Sequence[Batch],
    *,
    at_once: bool = False,
    show_progress: bool = False,
    compiles: bool = True,
) -> Float32[np.ndarray, 'G E *tokens C']:
    """Return the logits of every seed on all examples, in the order of the examples [G, E, C].

    Those of single tokens are [G, E, T, C], 0 beyond the padded length of an example.

    Args:
      bert: The model.
      params: The parameters, with a leading axis G of seeds.
      batches: The batches from one call of `encode`.
      at_once: Whether all seeds are computed at once (vmap) rather than one after the other.
      show_progress: Whether to show the progress.
      compiles: Whether the progress says that the first batch is likely to wait for a compilation.
    """
    seeds = len(jax.tree.leaves(params)[0])

    def examples_in(batch: Batch) -> int:
        return batch.size * seeds

    shown = batches
    if show_progress:
        shown = progress(batches, 'Evaluating', size=examples_in, compiles=compiles)
    logits = [fetch(_predict(bert, at_once, params, batch)) for batch in shown]
    if bert.config.head != SEQUENCES:
        longest = max(each.shape[2] for each in logits)
        logits = [
            np.pad(each, [(0, 0), (0, 0), (0, longest - each.shape[2]), (0, 0)]) for each in logits
        ]
    return in_order([batch.example for batch in batches], logits, axis=1)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=(2, 3))
def _add_gradients(
    bert,
    params,
    gradients,
    losses: Float[Array, ' g'],
    seed,
    batch,
    labels: Float[Array, 'g B *tokens'],
    keys: Key[Array, ' g'],
    counts: Float[Array, ' g'],
):
    """Add a micro-batch's share of the step's mean loss and of its gradient.

    Parameters have an axis G of seeds. If `seed` is None, all are computed, and so many gradients
    have that axis, too; else the gradients are those of this seed alone, and g is 1.

    The embeddings of wordpieces are looked up outside of what is differentiated: a micro-batch
    changes few rows of their table, and the table is half of a small model.
    """

    def loss(trained, embeds, batch, labels, key, terms):
        output = bert.apply(
            {'params': all_layers(bert.config, trained)},
            **batch.inputs,
            inputs_embeds=embeds,
            deterministic=False,
            rngs={'dropout': key},
            example_ids=batch.example,
        )
        each = loss_per_example(
            output.logits, labels, head=bert.config.head, real=batch.marks['token']
        )
        return jnp.where(batch.example >= 0, each, 0).sum() / terms

    def added(trained, embeds, gradients, batch, *others):
        found, (new, of_embeds) = jax.value_and_grad(loss, argnums=(0, 1))(
            trained, embeds, batch, *others
        )
        table, rest = _words_apart(gradients)
        table = table.at[batch.input_ids].add(of_embeds)
        return _with_words(jax.tree.map(jnp.add, rest, new), table), found

    table, trained = _words_apart(params)
    given = batch, labels, keys, counts
    if seed is None:
        embeds = jax.vmap(operator.getitem)(table, batch.input_ids)
        gradients, found = jax.vmap(added)(trained, embeds, gradients, *given)
        return gradients, losses + found
    embeds = table[seed, batch.input_ids[0]]
    trained, given = _of_seed(trained, seed), _of_seed(given, 0)
    gradients, found = added(trained, embeds, gradients, *given)
    return gradients, losses + found


def _of_seed(tree, seed):
    """Return what one seed has of arrays [G, ...]."""
    return jax.tree.map(lambda leaf: leaf[seed], tree)


def _words_apart(params) -> tuple[Any, dict]:
    """Return the table of the embeddings of wordpieces, and all other parameters."""
    embeddings = dict(params['embeddings'])
    words = embeddings.pop('word')
    return words['embedding'], params | {'embeddings': embeddings}


def _with_words(params, table) -> dict:
    """Return all parameters: the inverse of `_words_apart`."""
    word = {'word': {'embedding': table}}
    return params | {'embeddings': params['embeddings'] | word}


@functools.partial(jax.jit, static_argnums=(0, 4), donate_argnums=(1, 2))
def _update(optimizer, state, gradients, seed, sharding):
    """Return the state after a step of all seeds, or of one, and zeros for the next gradients."""

    def updated(params, moments, gradients):
        updates, moments = optimizer.update(gradients, moments, params)
        return optax.apply_updates(params, updates), moments

    former = state.params, state.optimizer
    if seed is None:
        new = jax.vmap(updated)(*former, gradients)
    else:
        of_seed = updated(*_of_seed(former, seed), gradients)
        new = jax.tree.map(lambda whole, own: whole.at[seed].set(own), former, of_seed)
    zeros = _zeros(gradients)
    if sharding is not None:
        # Untold, constants would lie whole on every device.
        zeros = jax.lax.with_sharding_constraint(zeros, sharding)
    return TrainState(state.step, *new), zeros


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(bert, at_once, params, batch) -> Float[Array, 'G B *tokens C']:
    def forward(params):
        return bert.apply({'params': all_layers(bert.config, params)}, **batch.inputs).logits

    return over_seeds(forward, at_once, params)


def over_seeds(function, at_once: bool, *arguments):
    """Apply a function to every seed: all at once, or one after the other in one program.

    On one CPU the latter is many times faster: a batched matrix product of several seeds' weights
    leaves its cache, and XLA does not hand it to the fast routine for a plain one.

    Args:
      function: The function of what one seed has.
      at_once: Whether all seeds are computed at once (vmap).
      *arguments: The arguments of the function, with a leading axis G of seeds.
    """
    if at_once:
        return jax.vmap(function)(*arguments)
    return jax.lax.map(lambda of_seed: function(*of_seed), arguments)


@jax.jit
def keys_of_step(seeds: Int[Array, ' G'], step) -> Key[Array, ' G']:
    """Return a key for every seed, which determines what is random at a step."""
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(seeds)


def rows_of_step(
    seed: int, step: int, count: int, batch_size: int, per_epoch: int
) -> Int[np.ndarray, ' B']:
    """Return the examples that a seed sees at a step; -1 fills the last batch of an epoch up.

    Args:
      seed: The seed, which determines the order of the examples in each epoch.
      step: The step, counted from 0.
      count: The number of training examples.
      batch_size: The number of examples per step.
      per_epoch: The number of steps per epoch.
    """
    epoch, place = divmod(step, per_epoch)
    order = _order(seed, epoch, count)
    rows = order[place * batch_size : (place + 1) * batch_size]
    return np.pad(rows, (0, batch_size - len(rows)), constant_values=-1)


@functools.lru_cache(maxsize=64)
def _order(seed: int, epoch: int, count: int) -> Int[np.ndarray, ' E']:
    return np.random.default_rng([seed, epoch]).permutation(count)


def training_lengths(data: Data, config: FinetuneConfig, *, at_once: bool) -> np.ndarray:
    """Return the lengths to which micro-batches are padded, in ascending order.

    Args:
      data: The training examples.
      config: The settings of the training.
      at_once: Whether the micro-batches of all seeds are padded to one length.
    """
    if config.buckets is not None:
        return padded_lengths(config.buckets, config.max_length, data.train.lengths)
    count, size = len(data.train_labels), config.batch_size
    per_epoch = -(-count // size)
    # [G, steps of the first epoch, B]
    rows = np.stack(
        [
            [rows_of_step(seed, step, count, size, per_epoch) for step in range(per_epoch)]
            for seed in config.seeds
        ]
    )
    lengths = np.sort(np.where(rows >= 0, data.train.lengths[rows], 0), axis=-1)
    longest = lengths.reshape(len(config.seeds), -1, config.micro_batch).max(axis=-1)
    if at_once:
        longest = longest.max(axis=0)
    # A training pass takes about as long as three, and each micro-batch counts once here.
    passes = 3.0 * config.epochs * config.micro_batch
    return padded_lengths(None, config.max_length, longest[longest > 0], passes=passes)


def micro_batches(
    data: Data, rows: Int[np.ndarray, 'G B'], config: FinetuneConfig, edges: Int[np.ndarray, ' K']
) -> Iterator[tuple[Batch, Num[np.ndarray, 'G b']]]:
    """Yield batches with a leading axis of seeds and their labels, the short examples first.

    Args:
      data: The training examples.
      rows: The examples of each seed at one step; -1 is none.
      config: The settings of the training.
      edges: The lengths to which they are padded, from `training_lengths`.
    """
    lengths = np.where(rows >= 0, data.train.lengths[rows], 0)
    order = np.argsort(lengths, axis=1, kind='stable')
    rows, lengths = (np.take_along_axis(array, order, axis=1) for array in (rows, lengths))
    for start in range(0, config.batch_size, config.micro_batch):
        part = slice(start, start + config.micro_batch)
        longest = lengths[:, part].max()
        if longest == 0:
            continue
        length = int(edges[np.searchsorted(edges, longest)])
        batches = [data.train.batch(of_seed, length) for of_seed in rows[:, part]]
        batch = jax.tree.map(lambda *arrays: np.stack(arrays), *batches)
        yield batch, data.labels(rows[:, part], length)


def _checked(
    pending, data: Data, config: FinetuneConfig, per_epoch: int
) -> list[tuple[int, list[float]]]:
    """Return steps and losses as plain numbers; refuse losses that are not finite."""
    count = len(data.train_labels)
    checked = []
    for step, losses in pending:
        losses = np.asarray(fetch(losses), np.float32)
        for seed, loss in zip(config.seeds, losses, strict=True):
            if not np.isfinite(loss):
                rate = float(_schedule(config, per_epoch * config.epochs)(step))
                rows = rows_of_step(seed, step, count, config.batch_size, per_epoch)
                names = ', '.join(data.train_ids[row] for row in rows if row >= 0)
                raise NonFiniteLossError(
                    f'The loss of seed {seed} is {loss} at step {step + 1} (learning rate '
                    f'{rate:.3g}). Lower the learning rate, or look at the examples of that '
                    f'step: {names}.'
                )
        # A float32 is the same number again when it comes back as a Python float.
        checked.append((step, losses.tolist()))
    return checked


def _train_rows(
    pending, data: Data, config: FinetuneConfig, per_epoch: int
) -> list[dict[str, Any]]:
    """Return the mean training loss since the last row of the curve, for every seed."""
    steps, losses = zip(*_checked(pending, data, config, per_epoch), strict=True)
    means = np.array(losses, np.float32).mean(axis=0)
    rate = float(_schedule(config, per_epoch * config.epochs)(steps[-1]))
    done = steps[-1] + 1
    return [
        {
            'split': 'train',
            'seed': seed,
            'step': done,
            'epoch': done / per_epoch,
            'loss': float(mean),
            'learning_rate': rate,
        }
        for seed, mean in zip(config.seeds, means, strict=True)
    ]


def _evaluate(
    bert: Bert,
    at_once: bool,
    state: TrainState,
    data: Data,
    config: FinetuneConfig,
    epoch: int,
    save: Save,
    history: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """Return the dev rows of an epoch; save every seed that is better than before."""
    large = len(data.dev_labels) * len(config.seeds) >= _LARGE_EVALUATION
    logits = predict(
        bert, state.params, data.dev, at_once=at_once, show_progress=large, compiles=epoch == 0
    )
    rows = []
    real = None
    if data.head == QUESTIONS:
        lengths = in_order([each.example for each in data.dev], [each.lengths for each in data.dev])
        real = np.arange(logits.shape[2]) < lengths[:, None]
    for index, seed in enumerate(config.seeds):
        former = [row['score'] for row in history if row['split'] == 'dev' and row['seed'] == seed]
        labels = data.dev_labels
        loss = loss_per_example(
            jnp.asarray(logits[index]), jnp.asarray(labels), head=data.head, real=real
        )
        count = len(labels) if data.head == SEQUENCES else terms(labels, head=data.head).sum()
        row = {
            'split': 'dev',
            'seed': seed,
            'step': int(state.step),
            'epoch': epoch,
            'loss': float(loss.sum() / count),
        }
        if data.evaluate is not None:
            check_finite(logits[index])
            row |= data.evaluate(data.metrics, logits[index])
        else:
            row |= evaluate(data.metrics, logits[index], labels)
            row |= _tested(data.metrics, logits[index], labels)
        rows.append(row)
        # Before training there is nothing to keep: epoch 0 is the model that one started from.
        if epoch and not any(_rank(score) >= _rank(row['score']) for score in former[1:]):
            save(seed, 'best', _select(bert, state.params, index))
    return rows


def _tested(
    metrics: Sequence[str], logits: Float[np.ndarray, 'E C'], labels: Num[np.ndarray, ' E']
) -> dict[str, Any]:
    """Return what the test of a model needs (`Finetuned.p_learnt`), whichever metrics it has."""
    predicted = predictions(logits)
    if logits.shape[1] == 1:
        return {'pearson': pearson(predicted, labels)}
    found = {'accuracy': accuracy(predicted, labels)}
    if tested(metrics, logits.shape[1]) == 'matthews':
        found['p_learnt'] = p_matthews(predicted, labels)
    return found


def shardings(mesh: Mesh | None, seeds: int, micro_batch: int, *, what: str = 'seeds'):
    """Return how parameters [G, ...] and batches [G, B, ...] lie on the devices.

    Args:
      mesh: The devices, along an axis `data` and perhaps a second one, `seeds`; None uses one
        device. Along `data` alone lie the seeds or, where their number does not allow that, the
        micro-batches. Beside `seeds` it is always these.
      seeds: The number of seeds G, or of other runs.
      micro_batch: The number of examples per forward and backward pass.
      what: The name of the runs in the error.

    Raises:
      ValueError: Neither the seeds nor the micro-batches can be spread over the devices.
    """
    if mesh is None:
        return None, None
    devices, groups = mesh.shape[DATA], mesh.shape.get(SEEDS, 1)
    of_seeds = SEEDS if SEEDS in mesh.shape else None
    if seeds % devices == 0 and groups == 1:
        return (NamedSharding(mesh, PartitionSpec(DATA)),) * 2
    if seeds % groups:
        raise ValueError(
            f'{seeds} {what} do not split over {groups} groups of devices: choose their number as '
            f'a multiple of {groups}.'
        )
    if micro_batch % devices == 0:
        return (
            NamedSharding(mesh, PartitionSpec(of_seeds)),
            NamedSharding(mesh, PartitionSpec(of_seeds, DATA)),
        )
    raise ValueError(
        f'Neither {seeds} {what} nor micro-batches of {micro_batch} split over {devices} devices: '
        f'choose the number of {what}, or micro_batch, as a multiple of {devices}.'
    )


def _rank(score: float) -> float:
    """Order scores; NaN (constant predictions have no correlation) is worse than anything."""
    return -np.inf if np.isnan(score) else score


def best_rows(history: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the dev row with the best score of each seed, without epoch 0.

    Args:
      history: The rows that `train_runs` returned.
    """
    trained = [row for row in history if row['split'] == 'dev' and row['epoch'] > 0]
    by_seed = operator.itemgetter('seed')
    return {
        seed: max(rows, key=lambda row: _rank(row['score']))
        for seed, rows in itertools.groupby(sorted(trained, key=by_seed), by_seed)
    }
