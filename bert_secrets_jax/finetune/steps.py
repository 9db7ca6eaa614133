"""The steps of several trainings of one model at once.

Parameters, optimiser state and batches have a leading axis G of runs, such as one per seed. Data
order and dropout follow from the step and the seed alone.
"""

import dataclasses
import functools
import operator
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Float32, Int, Key, Num

from bert_secrets_jax.compute import DATA, SEEDS, fetch, place, replicate
from bert_secrets_jax.data import encoding
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.loop import Rows, TrainState
from bert_secrets_jax.finetune.losses import NONE, terms
from bert_secrets_jax.model.bert import Bert, all_layers
from bert_secrets_jax.model.config import SEQUENCES, TOKENS
from bert_secrets_jax.progress import progress


@dataclasses.dataclass(frozen=True)
class Data:
    """The examples that a model is trained and evaluated on.

    Labels are class ids or values [E]; of tokens or answers what `losses.loss_per_example` takes
    [E, T] or [E, 2]. For these, `evaluate` makes the values of the metrics, their mean 'score' and
    what the test of a model needs from the metrics and the logits [E, T, C].
    """

    train: encoding.Encoded | encoding.Paired
    train_labels: np.ndarray
    train_ids: Sequence[str]
    dev: Sequence[encoding.Batch]
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
        each = terms(self.train_labels[rows], head=self.head)
        return np.maximum(np.where(rows >= 0, each, 0).sum(axis=1), 1).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps of several runs, each with parameters and a seed of its own.

    Attributes:
      loss: A function of the model, the parameters of a run, a micro-batch, its labels and a key
        that returns the loss of each example. It is also given `fixed`, and as `embeds` the
        embeddings of the wordpieces where parameters have a table of them.
      optimizer: The optimiser of one run, which gets its part of all arrays [G, ...] of `of_runs`.
      fixed: The values that all runs share and none changes.
      given_after: The steps, counted from 1, in which it gets them; None is all.
      mesh: The devices, along an axis `data` and perhaps a second one, `seeds`. Along `data` alone
        lie the runs or, where their number does not allow that, the micro-batches. Beside `seeds`
        it is always these.
      what: The name of the runs in errors.
    """

    bert: Bert
    loss: Callable[..., Float[Array, ' B']]
    optimizer: optax.GradientTransformation
    data: Data
    config: FinetuneConfig
    seeds: tuple[int, ...]
    fixed: Any = None
    of_runs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    given_after: Container[int] | None = None
    mesh: Mesh | None = None
    what: str = 'seeds'

    @property
    def at_once(self) -> bool:
        """Whether runs are computed at once (vmap), or on one CPU one after the other."""
        return self.mesh is not None or jax.default_backend() != 'cpu'

    @property
    def per_epoch(self) -> int:
        """The number of steps of an epoch, the last of which may be short."""
        return per_epoch(self.data, self.config)

    @functools.cached_property
    def lengths(self) -> Int[np.ndarray, ' lengths']:
        """The lengths to which micro-batches are padded, in ascending order."""
        data, config = self.data, self.config
        if config.buckets is not None:
            return encoding.padded_lengths(config.buckets, config.max_length, data.train.lengths)
        # [steps of the first epoch, G, B]
        rows = np.stack([self.rows(step) for step in range(self.per_epoch)])
        lengths = np.sort(np.where(rows >= 0, data.train.lengths[rows], 0), axis=-1)
        longest = lengths.reshape(self.per_epoch, len(self.seeds), -1, config.micro_batch)
        # Micro-batches of runs that are computed at once are padded to one length.
        longest = longest.max(axis=(1, 3) if self.at_once else 3)
        # A training pass takes about as long as three, and each micro-batch counts once here.
        passes = 3.0 * config.epochs * config.micro_batch
        return encoding.padded_lengths(None, config.max_length, longest[longest > 0], passes=passes)

    @functools.cached_property
    def _shardings(self) -> tuple[Any, Any]:
        """How parameters [G, ...] and batches [G, B, ...] lie on the devices."""
        mesh, runs, micro_batch = self.mesh, len(self.seeds), self.config.micro_batch
        if mesh is None:
            return None, None
        devices, groups = mesh.shape[DATA], mesh.shape.get(SEEDS, 1)
        of_runs = SEEDS if SEEDS in mesh.shape else None
        if runs % devices == 0 and groups == 1:
            spread = NamedSharding(mesh, PartitionSpec(DATA))
            return spread, spread
        if runs % groups:
            raise ValueError(
                f'{runs} {self.what} do not split over {groups} groups of devices: choose their '
                f'number as a multiple of {groups}.'
            )
        if micro_batch % devices == 0:
            return (
                NamedSharding(mesh, PartitionSpec(of_runs)),
                NamedSharding(mesh, PartitionSpec(of_runs, DATA)),
            )
        raise ValueError(
            f'Neither {runs} {self.what} nor micro-batches of {micro_batch} split over {devices} '
            f'devices: choose the number of {self.what}, or micro_batch, as a multiple of '
            f'{devices}.'
        )

    @functools.cached_property
    def _of_runs(self) -> Mapping[str, Any]:
        return place(self.of_runs, self._shardings[0])

    def begin(self, params: Any) -> TrainState:
        """Return the state before training from parameters with a leading axis G of runs."""
        of_runs, _ = self._shardings
        params = place(params, of_runs)
        # Told where they lie: constants would lie on one device, which several processes cannot
        # save.
        moments = jax.jit(jax.vmap(self.optimizer.init), out_shardings=of_runs)(params)
        return TrainState(replicate(jnp.int32(0), self.mesh), params, moments)

    def rows(self, step: int) -> Int[np.ndarray, 'G B']:
        """Return the examples of each run at a step; -1 fills the last batch of an epoch up."""
        count, size = len(self.data.train_labels), self.config.batch_size
        return np.stack(
            [rows_of_step(seed, step, count, size, self.per_epoch) for seed in self.seeds]
        )

    def take(self, state: TrainState, step: int) -> tuple[TrainState, Float[Array, ' G']]:
        """Take one step, counted from 0, with every run; return the new state and the losses."""
        of_runs, of_batches = self._shardings
        rows, keys = self.rows(step), keys_of_step(np.array(self.seeds), step)
        counts, losses = self.data.terms(rows), []
        given_now = self.given_after is None or step + 1 in self.given_after
        of_each = self._of_runs if given_now else {}
        # One by one, the micro-batches of each run are padded to lengths of its own.
        for run in [None] if self.at_once else range(len(rows)):
            own = slice(None) if run is None else slice(run, run + 1)
            gradients = _no_gradients(state.params, self.at_once, of_runs)
            loss = jnp.zeros(len(rows[own]))
            for batch, labels in self.micro_batches(rows[own]):
                given = *place((batch, labels), of_batches), keys[own], counts[own]
                gradients, loss = _add_gradients(
                    self.bert, self.loss, state.params, self.fixed, gradients, loss, run, given
                )
            state = _update(self.optimizer, state, gradients, run, of_each)
            losses.append(loss)
        return dataclasses.replace(state, step=state.step + 1), jnp.concatenate(losses)

    def micro_batches(
        self, rows: Int[np.ndarray, 'g B']
    ) -> Iterator[tuple[encoding.Batch, Num[np.ndarray, 'g b']]]:
        """Yield batches with a leading axis of runs and their labels, the short examples first."""
        data, size = self.data, self.config.micro_batch
        lengths = np.where(rows >= 0, data.train.lengths[rows], 0)
        order = np.argsort(lengths, axis=1, kind='stable')
        rows, lengths = (np.take_along_axis(array, order, axis=1) for array in (rows, lengths))
        for start in range(0, self.config.batch_size, size):
            part = slice(start, start + size)
            longest = lengths[:, part].max()
            if longest == 0:
                continue
            length = int(self.lengths[np.searchsorted(self.lengths, longest)])
            batches = [data.train.batch(of_run, length) for of_run in rows[:, part]]
            batch = jax.tree.map(lambda *arrays: np.stack(arrays), *batches)
            yield batch, data.labels(rows[:, part], length)

    def train(
        self,
        params: Any,
        folder: str | os.PathLike[str] | None,
        *,
        what: str,
        stage: int,
        **noted: Callable,
    ) -> tuple[TrainState, loop.Record]:
        """Take all steps of parameters with a leading axis G (runs), in a `loop.TrainingCurve`."""
        config, total = self.config, self.per_epoch * self.config.epochs
        curve = loop.TrainingCurve(
            rows_after={*range(0, total, config.log_every), *config.maps_after(total)},
            checkpoint_every=config.checkpoint_every,
            stage=stage,
            **noted,
        )
        return loop.train(
            self.take,
            self.begin(params),
            range(total),
            what=what,
            size=lambda _: config.batch_size * len(self.seeds),
            curve=curve,
            folder=folder,
        )

    def mean_rows(self, steps: Sequence[int], losses: Sequence[Any]) -> Rows:
        """Return a row of the curve for each run, with its mean loss over some steps."""
        done = {'step': steps[-1] + 1, 'epoch': (steps[-1] + 1) / self.per_epoch}
        means = np.array(losses, np.float32).mean(axis=0)
        return [
            {'split': 'train', 'seed': seed, **done, 'loss': float(mean)}
            for seed, mean in zip(self.seeds, means, strict=True)
        ]


def per_epoch(data: Data, config: FinetuneConfig) -> int:
    """Return the number of steps of an epoch, the last of which may be short."""
    return -(-len(data.train_labels) // config.batch_size)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _no_gradients(params, at_once, sharding):
    """Return zeros like the gradients of all runs, or of one."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros_like(leaf if at_once else leaf[0]), params)
    # Untold, constants would lie whole on every device.
    return zeros if sharding is None else jax.lax.with_sharding_constraint(zeros, sharding)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=(4, 5))
def _add_gradients(bert, loss, params, fixed, gradients, losses: Float[Array, ' g'], run, given):
    """Add a micro-batch's share of the step's mean loss and of its gradient.

    If `run` is None, all runs are computed, and gradients have an axis G as parameters do; else
    they are of this run alone, and g is 1. What is given has the axis g: the batch, its labels,
    keys, and over how many labels the mean is. The embeddings of wordpieces are looked up outside
    of what is differentiated: a micro-batch changes few rows of their table, which is half of a
    small model.
    """

    def share(trained, embeds, batch, labels, key, terms):
        each = loss(bert, trained, batch, labels, key, embeds=embeds, fixed=fixed)
        return jnp.where(batch.example >= 0, each, 0).sum() / terms

    def added(trained, embeds, gradients, batch, *others):
        found, (new, of_embeds) = jax.value_and_grad(share, argnums=(0, 1))(
            trained, embeds, batch, *others
        )
        table, rest = _words_apart(gradients)
        table = jax.tree.map(lambda old, new: old.at[batch.input_ids].add(new), table, of_embeds)
        return _with_words(jax.tree.map(jnp.add, rest, new), table), found

    table, trained = _words_apart(params)
    input_ids = given[0].input_ids
    if run is None:
        embeds = jax.tree.map(lambda each: jax.vmap(operator.getitem)(each, input_ids), table)
        gradients, found = jax.vmap(added)(trained, embeds, gradients, *given)
        return gradients, losses + found
    embeds = jax.tree.map(lambda each: each[run, input_ids[0]], table)
    trained, given = _take_run(trained, run), _take_run(given, 0)
    gradients, found = added(trained, embeds, gradients, *given)
    return gradients, losses + found


def _take_run(tree, run):
    return jax.tree.map(lambda leaf: leaf[run], tree)


def _words_apart(params) -> tuple[Any, dict]:
    """Return the table of the embeddings of wordpieces, or None, and all other parameters."""
    if 'embeddings' not in params:
        return None, params
    embeddings = dict(params['embeddings'])
    words = embeddings.pop('word')
    return words['embedding'], params | {'embeddings': embeddings}


def _with_words(params, table) -> dict:
    """Return all parameters: the inverse of `_words_apart`."""
    if table is None:
        return params
    word = {'word': {'embedding': table}}
    return params | {'embeddings': params['embeddings'] | word}


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(optimizer, state, gradients, run, of_runs):
    """Return the state after a step of all runs, or of one, which is not yet counted."""

    def updated(params, moments, gradients, own):
        updates, moments = optimizer.update(gradients, moments, params, **own)
        return optax.apply_updates(params, updates), moments

    former = state.params, state.optimizer
    if run is None:
        new = jax.vmap(updated)(*former, gradients, of_runs)
    else:
        params, moments = _take_run(former, run)
        of_run = updated(params, moments, gradients, _take_run(of_runs, run))
        new = jax.tree.map(lambda whole, own: whole.at[run].set(own), former, of_run)
    return TrainState(state.step, *new)


def predict(
    bert: Bert,
    models: Mapping[str, Any],
    batches: Sequence[encoding.Batch],
    *,
    fixed: Mapping[str, Any] | None = None,
    at_once: bool = False,
    what: str = '',
    compiles: bool = True,
) -> Float32[np.ndarray, 'G E *tokens C']:
    """Return the logits of every run on all examples, in the order of the examples.

    Those of tokens are 0 beyond the padded length. `models` has the parameters 'params' or the
    masks 'head_mask' for the baseline 'zero', or both, along an axis G; `fixed` has those that all
    runs share. Progress is shown under the name `what`, if any.
    """
    runs = len(jax.tree.leaves(models)[0])
    shown = batches
    if what:
        shown = progress(batches, what, size=lambda each: each.size * runs, compiles=compiles)
    logits = (fetch(_predict(bert, at_once, models, fixed or {}, batch)) for batch in shown)
    return encoding.in_order(
        [batch.example for batch in batches], encoding.to_one_length(logits), axis=1
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(bert, at_once, models, fixed, batch) -> Float[Array, 'G B *tokens C']:
    def forward(model):
        params = all_layers(bert.config, (fixed | model)['params'])
        mask = model.get('head_mask')
        return bert.apply(
            {'params': params}, **batch.inputs, head_mask=mask, baseline='zero'
        ).logits

    if at_once:
        return jax.vmap(forward)(models)
    # On one CPU this is many times faster: a batched matrix product of several runs' weights leaves
    # its cache, and XLA does not hand it to the fast routine for a plain one.
    return jax.lax.map(forward, models)


@jax.jit
def keys_of_step(seeds: Int[Array, ' G'], step) -> Key[Array, ' G']:
    """Return a key for every seed, which determines what is random at a step."""
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), step))(seeds)


def rows_of_step(
    seed: int, step: int, count: int, batch_size: int, per_epoch: int
) -> Int[np.ndarray, ' B']:
    """Return the examples that a seed sees at a step; -1 fills the last batch of an epoch up."""
    epoch, place = divmod(step, per_epoch)
    order = _order(seed, epoch, count)
    rows = order[place * batch_size : (place + 1) * batch_size]
    return np.pad(rows, (0, batch_size - len(rows)), constant_values=-1)


@functools.lru_cache(maxsize=64)
def _order(seed: int, epoch: int, count: int) -> Int[np.ndarray, ' E']:
    return np.random.default_rng([seed, epoch]).permutation(count)
