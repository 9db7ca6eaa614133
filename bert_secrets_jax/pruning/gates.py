"""Gates of heads that learn to close (Voita et al. 2019, section 6).

Each head has a gate g, its output is multiplied by g, and what is learnt is how far the gates are
open: the loss is that of the task plus lambda times the expected number of open heads. While they
are learnt, gates are random, of the Hard Concrete distribution (Louizos et al. 2018, section 2.2):

    g = min(1, max(0, 1.2 s - 0.1)),  s = sigmoid((log u - log(1 - u) + log alpha) / 0.33)

with u between 0 and 1 by chance. So a gate is exactly 0 or exactly 1 with some probability, and the
probability of being open, P(g > 0) = sigmoid(log alpha - 0.33 log(0.1 / 1.1)), has a gradient.

Shapes: K runs (each coefficient lambda with each seed), L layers, N heads, P points of a curve, E
examples, C classes, B examples of a batch, G runs as `finetune.loop` calls them.
"""

import dataclasses
import functools
import itertools
import math
import numbers
import operator
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key, Real

from bert_secrets_jax import processes
from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import Batch, in_order
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.devices import fetch, place, replicate
from bert_secrets_jax.finetune import optimizers
from bert_secrets_jax.finetune.checkpoints import Checkpoints, Memory
from bert_secrets_jax.finetune.loop import (
    Data,
    FinetuneConfig,
    NonFiniteLossError,
    is_due,
    keys_of_step,
    micro_batches,
    over_seeds,
    rows_of_step,
    shardings,
    training_lengths,
)
from bert_secrets_jax.finetune.losses import loss_per_example
from bert_secrets_jax.finetune.metrics import evaluate
from bert_secrets_jax.finetune.train import (
    check_examples,
    claim,
    digests,
    encode_data,
    listed_seeds,
)
from bert_secrets_jax.model.bert import Bert, all_layers, own_layers
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained, check_pretrained
from bert_secrets_jax.progress import progress

# Those of the published code (`lib/layers/concrete_gate.py`).
TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1
EPSILON = 1e-6

Gates = Float[Array | np.ndarray, '*K L N']


def sample_gates(key: Key[Array, ''], log_alpha: Gates) -> Gates:
    """Draw gates from the Hard Concrete distribution.

    Args:
      key: The key of the draw.
      log_alpha: How far each gate is open: at 0 as likely above 1/2 as below.
    """
    u = jax.random.uniform(key, jnp.shape(log_alpha), minval=EPSILON, maxval=1 - EPSILON)
    logistic = jnp.log(u) - jnp.log1p(-u)
    return _stretched(jax.nn.sigmoid((logistic + log_alpha) / TEMPERATURE))


def settled_gates(log_alpha: Gates) -> Gates:
    """Return the gates of a model that is used: nothing is random, and there is no temperature.

    They are those of the published code, min(1, max(0, 1.2 sigmoid(log alpha) - 0.1)): 0 up to a
    log alpha of -2.4, and 1 from 2.4 on.

    Args:
      log_alpha: How far each gate is open.
    """
    return _stretched(jax.nn.sigmoid(log_alpha))


def probability_open(log_alpha: Gates) -> Gates:
    """Return the probability that a gate is not 0 while it is learnt.

    The published code keeps it within 1e-6 of 0 and 1, which is not done here.

    Args:
      log_alpha: How far each gate is open.
    """
    return jax.nn.sigmoid(log_alpha - TEMPERATURE * math.log(-LOW / HIGH))


def _stretched(concrete: Gates) -> Gates:
    return jnp.clip(concrete * (HIGH - LOW) + LOW, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gated:
    """The outcome of `train_gates`: the gates of every run, and what its model answers.

    Attributes:
      frozen: Whether the weights of the model stayed as they were.
      coefficients: [K] The coefficient lambda of each run.
      seeds: [K] The seed of each run.
      log_alpha: [K, L, N] How far each gate is open at the end.
      steps: [P] The steps at which there is a point of the curves.
      expected_open: [K, P] The expected number of open heads after these steps.
      losses: [K, P] The loss of the task, without the price of heads: the mean since the point
        before.
      intact: [E, C] The answers of the model that one started from to the dev examples.
      gated: [K, E, C] The answers of the models with gates.
      rounded: [K, E, C] Their answers if each gate is rounded to 0 or 1.
      labels: [E] The labels of the dev examples.
      models: The models of the runs, without gates, where their weights were trained; else empty.
    """

    frozen: bool
    coefficients: Float[np.ndarray, ' K']
    seeds: Real[np.ndarray, ' K']
    log_alpha: Float[np.ndarray, 'K L N']
    steps: Real[np.ndarray, ' P']
    expected_open: Float[np.ndarray, 'K P']
    losses: Float[np.ndarray, 'K P']
    intact: Float[np.ndarray, 'E C']
    gated: Float[np.ndarray, 'K E C']
    rounded: Float[np.ndarray, 'K E C']
    labels: Real[np.ndarray, ' E']
    models: tuple[Pretrained, ...] = dataclasses.field(default=(), compare=False)

    __repr__ = brief

    @property
    def gates(self) -> Float[np.ndarray, 'K L N']:
        """The gates of the models that answer; a head whose gate is 0 is removed."""
        return np.asarray(settled_gates(self.log_alpha))

    @property
    def masks(self) -> Float[np.ndarray, 'K L N']:
        """The gates rounded to 0 or 1: masks for the baseline 'zero'."""
        return rounded_gates(self.gates)

    def scores(self, metrics: Sequence[str]) -> dict[str, list[dict[str, float]]]:
        """Return the named metrics and their mean 'score' on the dev examples.

        Args:
          metrics: The names of the metrics.

        Returns:
          Those of the intact model under 'intact' (a list of one), and those of each run under
          'gated' and 'rounded'.
        """
        logits = {'intact': self.intact[None], 'gated': self.gated, 'rounded': self.rounded}
        return {
            name: [evaluate(metrics, of_run, self.labels) for of_run in each]
            for name, each in logits.items()
        }


def rounded_gates(gates: Float[np.ndarray, '*K L N']) -> Float[np.ndarray, '*K L N']:
    """Return 1 for gates from 1/2 on, and 0 for those below."""
    return (gates >= 0.5).astype(np.float32)


@flax.struct.dataclass
class _State:
    """The state of a step: `params` and `optimizer` have parts 'gates' and, if trained, 'model'."""

    step: Any
    params: Any
    optimizer: Any


def train_gates(
    tuned: Pretrained,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    coefficients: Sequence[float],
    seeds: int | Sequence[int] = 1,
    frozen: bool = True,
    epochs: int = 10,
    gate_learning_rate: float = 0.1,
    learning_rate: float = 2e-5,
    initial: float = 2.0,
    batch_size: int = 32,
    micro_batch: int = 8,
    warmup: float = 0.1,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    optimizer: str = 'adamw',
    max_length: int = 128,
    log_every: int = 5,
    checkpoint_every: int = 500,
    folder: str | pathlib.Path | None = None,
    mesh: Mesh | None = None,
) -> Gated:
    """Learn which heads of a fine-tuned model can go, for many prices of a head at the same time.

    What is minimised is the mean loss of an example plus lambda times the expected number of open
    heads of the whole model. So lambda is the price of a head in nats per example (for a
    regression, in squared errors). The published code takes the mean over layers of the expected
    number of open heads in a layer, and the loss of a token: its coefficient is lambda times the
    number of layers.

    All runs of one seed see the same examples and the same random numbers, so that they differ by
    their coefficient alone. Gates are drawn once per step and run, as published.

    With a folder, the training can be interrupted at any time: the same call goes on from the last
    checkpoint and gives the same bits.

    Args:
      tuned: The model with a classifier of whole texts, fine-tuned on the task.
      train: The labelled texts that the gates are learnt from.
      dev: The labelled texts that the outcome is measured on. Nothing is chosen on them.
      coefficients: The coefficients lambda, each at least 0. With 0, heads cost nothing.
      seeds: The seeds, which determine the order of the data, the noise of the gates and dropout. A
        number n stands for the seeds 0, 1, ..., n - 1. There is a run for each coefficient and
        seed.
      frozen: Whether only the gates are learnt, in the model as it is and without dropout. False
        trains the weights together with them, as published, one copy of them per run.
      epochs: The number of passes over the training texts.
      gate_learning_rate: The learning rate of the gates at its peak. log alpha changes by about
        this much in a step, and has to fall from `initial` to -2.4 before a gate closes.
      learning_rate: The learning rate of the weights at its peak, unless they are frozen.
      initial: The log alpha of every gate at the beginning. The default is a gate that is open with
        a probability of 0.94.
      batch_size, micro_batch, max_length: As in `finetune`.
      warmup: The share of the steps in which both learning rates rise.
      weight_decay, clip, optimizer: As in `finetune`, of the weights. Gates are learnt with Adam
        and do not decay; their gradient is clipped as well.
      log_every: The number of steps between two points of the curves.
      checkpoint_every: The number of steps between two checkpoints. There is also one whenever the
        last is two minutes old, or older where writing takes long, and one at the end.
      folder: The folder of the checkpoint and the curves (`curve.csv`, `curve.jsonl`). None writes
        nothing.
      mesh: The devices, along an axis `data`, over which the runs are spread or, where their number
        does not allow that, the micro-batches. None uses one device.

    Returns:
      The gates of all runs, and what the gated models answer to the dev examples.

    Raises:
      ValueError: A setting is out of range, the model has no classifier of whole texts, a label is
        missing or is none of its classes, or the folder holds something else.
      TypeError: The model is not a `Pretrained`, or the examples are something else.
      NonFiniteLossError: The loss is not finite.
    """
    check_pretrained(tuned)
    if not tuned.config.labels_inputs:
        raise ValueError(
            f'Gates are learnt with the loss of one label per text, and the model '
            f'({tuned.config.summary}) has none: give a fine-tuned one, such as bs.finetune '
            'returns.'
        )
    coefficients = _checked_coefficients(coefficients)
    for name, value in (('gate_learning_rate', gate_learning_rate), ('initial', initial)):
        if not _is_number(value) or not (math.isfinite(value) and (value > 0 or name == 'initial')):
            kind = 'finite' if name == 'initial' else 'above 0'
            raise ValueError(f'{name}={value!r} must be a number that is {kind}.')
    config = FinetuneConfig(
        seeds=listed_seeds(seeds),
        epochs=epochs,
        batch_size=batch_size,
        micro_batch=micro_batch,
        learning_rate=learning_rate,
        warmup=warmup,
        weight_decay=weight_decay,
        clip=clip,
        optimizer=optimizer,
        max_length=max_length,
        log_every=log_every,
        checkpoint_every=checkpoint_every,
    )
    names = tuned.config.label_names
    train, dev, names, metrics = check_examples(train, dev, SEQUENCES, names, None)
    if folder is not None:
        folder = pathlib.Path(folder)
        settings = dataclasses.asdict(config) | {
            'coefficients': coefficients,
            'frozen': bool(frozen),
            'gate_learning_rate': gate_learning_rate,
            'initial': initial,
        }
        # How often checkpoints are written changes no result.
        del settings['checkpoint_every']
        of_inputs = digests(tuned, train, dev, 'tuned')
        processes.on_first(lambda: claim(folder, settings, of_inputs))
    data, _ = encode_data(tuned, train, dev, config, metrics, SEQUENCES, names)
    runs = _Runs(
        bert=tuned.bert,
        # Layers that are one layer are trained as one.
        weights=own_layers(tuned.config, tuned.params),
        data=data,
        config=config,
        pairs=tuple(itertools.product(coefficients, config.seeds)),
        gate_learning_rate=gate_learning_rate,
        frozen=bool(frozen),
        mesh=mesh,
    )
    state, history = runs.train(initial, folder)
    return _outcome(tuned, runs, state.params, history)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _checked_coefficients(coefficients: Sequence[float]) -> tuple[float, ...]:
    found = list(coefficients) if np.ndim(coefficients) == 1 else []
    if not found or not all(
        _is_number(each) and 0 <= each < math.inf and found.count(each) == 1 for each in found
    ):
        raise ValueError(
            f'{coefficients=} must be different numbers, each at least 0, at least one: the prices '
            'of a head, such as (0.001, 0.01).'
        )
    return tuple(map(float, found))


@dataclasses.dataclass(frozen=True)
class _Runs:
    """All runs of a training of gates.

    Attributes:
      bert: The model.
      weights: Its weights, those that stay or those that every run starts from.
      data: The training and dev examples.
      config: The settings that a fine-tuning has, too.
      pairs: [K] The coefficient and the seed of each run.
      gate_learning_rate: The learning rate of the gates at its peak.
      frozen: Whether the weights stay as they are.
      mesh: The devices; None uses one.
    """

    bert: Bert
    weights: Any
    data: Data
    config: FinetuneConfig
    pairs: tuple[tuple[float, int], ...]
    gate_learning_rate: float
    frozen: bool
    mesh: Mesh | None

    @property
    def coefficients(self) -> Float[np.ndarray, ' K']:
        return np.array([coefficient for coefficient, _ in self.pairs])

    @property
    def seeds(self) -> Real[np.ndarray, ' K']:
        return np.array([seed for _, seed in self.pairs])

    @property
    def per_epoch(self) -> int:
        return -(-len(self.data.train_labels) // self.config.batch_size)

    @property
    def total(self) -> int:
        return self.per_epoch * self.config.epochs

    @property
    def at_once(self) -> bool:
        """Whether runs are computed at once (vmap), or on one CPU one after the other."""
        return self.mesh is not None or jax.default_backend() != 'cpu'

    @functools.cached_property
    def edges(self) -> Int[np.ndarray, ' lengths']:
        """The lengths to which micro-batches are padded, those of all runs to the same."""
        return training_lengths(self.data, self.config, at_once=True)

    def train(self, initial: float, folder: pathlib.Path | None) -> tuple[_State, list[dict]]:
        """Train all runs, from their last checkpoint on; returns the last state and the curves."""
        of_runs, of_batches = shardings(
            self.mesh, len(self.pairs), self.config.micro_batch, what='runs'
        )
        state, fixed = self._initial(initial, of_runs)

        def examples_in(_) -> int:
            return self.config.batch_size * len(self.pairs)

        with Memory() if folder is None else Checkpoints(folder) as checkpoints:
            state, record = checkpoints.restore_latest(state)
            saved_at, took = time.monotonic(), 0.0
            previous = None
            for step in progress(
                range(int(state.step), self.total), f'Gates ({len(self.pairs)} runs)',
                size=examples_in,
            ):  # fmt: skip
                state, found = self._step(state, fixed, step, of_batches)
                # The device may be one step behind, not twenty.
                jax.block_until_ready(previous)
                previous = found
                record.pending.append((step, found))
                done = step + 1
                is_checkpoint = done == self.total or done % self.config.checkpoint_every == 0
                if done == self.total or done % self.config.log_every == 0:
                    record.history += self._points(record.pending)
                    record.pending.clear()
                if is_checkpoint or is_due(saved_at, took):
                    record.pending[:] = self._checked(record.pending)
                    started = time.monotonic()
                    checkpoints.save(state, record)
                    saved_at = time.monotonic()
                    took = saved_at - started
        return state, record.history

    def _initial(self, initial: float, of_runs: Any) -> tuple[_State, Any]:
        """Return the state before training, and the weights that all runs share; None if none."""
        count, config = len(self.pairs), self.bert.config
        shape = (count, config.num_hidden_layers, config.num_attention_heads)
        params = {'gates': {'log_alpha': jnp.full(shape, initial, jnp.float32)}}
        fixed = replicate(self.weights, self.mesh)
        if not self.frozen:
            params['model'] = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), self.weights
            )
            fixed = None
        params = place(params, of_runs)
        states = {
            name: jax.jit(jax.vmap(each.init), out_shardings=of_runs)(params[name])
            for name, each in self._optimizers.items()
            if name in params
        }
        return _State(replicate(jnp.int32(0), self.mesh), params, states), fixed

    @property
    def _optimizers(self) -> dict[str, optax.GradientTransformation]:
        config = self.config
        return _optimizers(
            self.total, config.warmup, config.clip, self.gate_learning_rate,
            config.learning_rate, config.weight_decay, config.optimizer,
        )  # fmt: skip

    def _step(
        self, state: _State, fixed: Any, step: int, of_batches: Any
    ) -> tuple[_State, Float[Array, ' twoK']]:
        """Take one step; returns the losses of all runs, and then their expected open heads."""
        config, data = self.config, self.data
        of_seed = {
            seed: rows_of_step(
                seed, step, len(data.train_labels), config.batch_size, self.per_epoch
            )
            for seed in config.seeds
        }
        rows = np.stack([of_seed[seed] for _, seed in self.pairs])
        keys = keys_of_step(self.seeds, step)
        counts = data.terms(rows)
        gradients, losses = None, 0
        for batch, labels in micro_batches(data, rows, config, self.edges):
            batch, labels = place((batch, labels), of_batches)
            part, new = _gradients(
                self.bert, self.at_once, fixed, state.params, batch, labels, keys, counts
            )
            gradients = new if gradients is None else _add(gradients, new)
            losses = losses + part
        state, expected = _update(
            tuple(self._optimizers.items()), state, gradients, self.coefficients
        )
        return state, jnp.concatenate([losses, expected])

    def _checked(self, pending: Sequence[tuple[int, Any]]) -> list[tuple[int, list[float]]]:
        """Return steps and numbers as plain ones; refuse losses that are not finite."""
        checked = []
        for step, found in pending:
            found = np.asarray(fetch(found), np.float32)
            for (coefficient, seed), loss in zip(self.pairs, found, strict=False):
                if not np.isfinite(loss):
                    raise NonFiniteLossError(
                        f'The loss with the coefficient {coefficient:g} and seed {seed} is {loss} '
                        f'at step {step + 1}: lower the learning rates, or look at the weights.'
                    )
            # A float32 is the same number again when it comes back as a Python float.
            checked.append((step, found.tolist()))
        return checked

    def _points(self, pending: Sequence[tuple[int, Any]]) -> list[dict[str, Any]]:
        """Return a row for each run: its mean loss since the last, and how many heads are open."""
        steps, found = zip(*self._checked(pending), strict=True)
        losses, heads = np.split(np.array(found, np.float32), 2, axis=1)
        done = steps[-1] + 1
        return [
            {
                'split': f'train, lambda {coefficient:g}',
                'seed': seed,
                'step': done,
                'epoch': done / self.per_epoch,
                'loss': float(loss),
                'open_heads': float(expected),
            }
            for (coefficient, seed), loss, expected in zip(
                self.pairs, losses.mean(axis=0), heads[-1], strict=True
            )
        ]

    def answers(self, params: Any, gates: Float[np.ndarray, 'K L N']) -> np.ndarray:
        """Return the logits [K, E, C] of models on the dev examples.

        Args:
          params: The parameters, of which the part 'model' counts; without it all runs have the
            same weights.
          gates: The gates of each run.
        """
        fixed = None if 'model' in params else self.weights
        models = {name: each for name, each in params.items() if name == 'model'}
        models['mask'] = jnp.asarray(gates)
        size = operator.attrgetter('size')
        batches = progress(self.data.dev, 'Evaluating gates', size=size)
        logits = [
            fetch(_predict(self.bert, self.at_once, fixed, models, batch)) for batch in batches
        ]
        return in_order([batch.example for batch in self.data.dev], logits, axis=1)


@functools.lru_cache(maxsize=8)
def _optimizers(
    steps: int,
    warmup: float,
    clip: float,
    gate_learning_rate: float,
    learning_rate: float,
    weight_decay: float,
    name: str,
) -> dict[str, optax.GradientTransformation]:
    """Return the same objects for the same settings: jit knows them by their identity."""
    schedule = optimizers.make_schedule
    return {
        'gates': optimizers.make_optimizer(
            'adamw', schedule(gate_learning_rate, steps, warmup), weight_decay=0.0, clip=clip
        ),
        'model': optimizers.make_optimizer(
            name, schedule(learning_rate, steps, warmup), weight_decay=weight_decay, clip=clip
        ),
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gradients(
    bert,
    at_once,
    fixed,
    params,
    batch,
    labels: Float[Array, 'G B'],
    keys: Key[Array, ' G'],
    counts: Float[Array, ' G'],
):
    """Return a micro-batch's share of the step's mean loss and of its gradient, for every run."""

    def loss(params, batch, labels, key, count):
        of_gates, of_dropout = jax.random.split(key)
        trained = 'model' in params
        output = bert.apply(
            {'params': all_layers(bert.config, params['model'] if trained else fixed)},
            **batch.inputs,
            head_mask=sample_gates(of_gates, params['gates']['log_alpha']),
            baseline='zero',
            deterministic=not trained,
            rngs={'dropout': of_dropout} if trained else None,
            example_ids=batch.example,
        )
        each = loss_per_example(output.logits, labels)
        return jnp.where(batch.example >= 0, each, 0).sum() / count

    return over_seeds(jax.value_and_grad(loss), at_once, params, batch, labels, keys, counts)


@functools.partial(jax.jit, donate_argnums=0)
def _add(gradients, new):
    """Add gradients, apart from computing them, which is compiled anew for each padded length."""
    return jax.tree.map(jnp.add, gradients, new)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _update(by_part, state, gradients, coefficients: Float[Array, ' G']):
    """Take a step with the price of open heads, whose expected number [G] after it is second."""
    log_alpha = gradients['gates']['log_alpha']
    price = jax.grad(lambda each: probability_open(each).sum())
    price = price(state.params['gates']['log_alpha']) * coefficients[:, None, None]
    gradients = gradients | {'gates': {'log_alpha': log_alpha + price}}
    params, moments = {}, {}
    for name, optimizer in by_part:
        if name in gradients:
            former = state.params[name]
            updates, moments[name] = jax.vmap(optimizer.update)(
                gradients[name], state.optimizer[name], former
            )
            params[name] = optax.apply_updates(former, updates)
    expected = probability_open(params['gates']['log_alpha']).sum(axis=(1, 2))
    return _State(state.step + 1, params, moments), expected


@functools.partial(jax.jit, static_argnums=(0, 1))
def _predict(bert, at_once, fixed, models, batch: Batch) -> Float[Array, 'G B C']:
    def forward(model):
        weights = all_layers(bert.config, model.get('model', fixed))
        return bert.apply(
            {'params': weights}, **batch.inputs, head_mask=model['mask'], baseline='zero'
        ).logits

    return over_seeds(forward, at_once, models)


def _outcome(
    tuned: Pretrained, runs: _Runs, params: Any, history: Sequence[dict[str, Any]]
) -> Gated:
    log_alpha = fetch(params['gates']['log_alpha'])
    gates = np.asarray(settled_gates(log_alpha))
    steps = sorted({row['step'] for row in history})
    curves = {
        name: np.array([row[name] for row in history], np.float32)
        .reshape(len(steps), len(runs.pairs))
        .T
        for name in ('loss', 'open_heads')
    }
    models = []
    for index in range(0 if runs.frozen else len(runs.pairs)):
        # By way of the host: whatever devices it was trained on, it lies on the usual one.
        of_run = fetch(jax.tree.map(operator.itemgetter(index), params['model']))
        weights = all_layers(tuned.config, jax.tree.map(jnp.asarray, of_run))
        models.append(Pretrained(tuned.bert, weights, tuned.tokenizer))
    return Gated(
        frozen=runs.frozen,
        coefficients=runs.coefficients,
        seeds=runs.seeds,
        log_alpha=log_alpha,
        steps=np.array(steps),
        expected_open=curves['open_heads'],
        losses=curves['loss'],
        intact=runs.answers({}, np.ones_like(gates[:1]))[0],
        gated=runs.answers(params, gates),
        rounded=runs.answers(params, rounded_gates(gates)),
        labels=runs.data.dev_labels,
        models=tuple(models),
    )
