"""Gates of heads that learn to close (Voita et al. 2019, section 6).

The output of each head is multiplied by a gate g, and what is learnt is how far the gates are open:
the loss is that of the task plus lambda times the expected number of open heads. While they are
learnt, gates are random, of the Hard Concrete distribution (Louizos et al. 2018, section 2.2):

    g = min(1, max(0, 1.2 s - 0.1)),  s = sigmoid((log u - log(1 - u) + log alpha) / 0.33)

with u between 0 and 1 by chance. So a gate may be exactly 0 or 1. The probability of being open has
a gradient: P(g > 0) = sigmoid(log alpha - 0.33 log(0.1 / 1.1)).

Shapes: K runs (each coefficient lambda with each seed), L layers, N heads, P points of a curve, E
examples, C classes, B examples of a batch, G runs as `finetune.steps` calls them.
"""

import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Hashable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, Real

from bert_secrets_jax.checks import brief
from bert_secrets_jax.compute import fetch, replicate
from bert_secrets_jax.data.tasks import Example, check_labels_inputs
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.finetune.config import FinetuneConfig, Number, Rate, listed_seeds
from bert_secrets_jax.finetune.losses import loss_per_example
from bert_secrets_jax.finetune.metrics import evaluate
from bert_secrets_jax.finetune.seeds import optimizer_for, select
from bert_secrets_jax.finetune.steps import Steps, per_epoch, predict
from bert_secrets_jax.finetune.train import check_examples, encode_data, finished
from bert_secrets_jax.model.bert import all_layers, own_layers
from bert_secrets_jax.model.config import SEQUENCES
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.ranges import Positive, Range

# Those of the published code (`lib/layers/concrete_gate.py`).
TEMPERATURE = 0.33
LOW, HIGH = -0.1, 1.1
EPSILON = 1e-6

_PRICE = Range(-1e30, 1e30, whole=False)

Gates = Float[Array | np.ndarray, '*K L N']


def sample_gates(key: Key[Array, ''], log_alpha: Gates) -> Gates:
    """Draw gates from the Hard Concrete distribution."""
    u = jax.random.uniform(key, jnp.shape(log_alpha), minval=EPSILON, maxval=1 - EPSILON)
    logistic = jnp.log(u) - jnp.log1p(-u)
    return _stretched(jax.nn.sigmoid((logistic + log_alpha) / TEMPERATURE))


def settled_gates(log_alpha: Gates) -> Gates:
    """Return the gates of a model that is used: nothing is random, and there is no temperature."""
    return _stretched(jax.nn.sigmoid(log_alpha))


def probability_open(log_alpha: Gates) -> Gates:
    """Return the probability that a gate is not 0 while it is learnt; published code clips it."""
    return jax.nn.sigmoid(log_alpha - TEMPERATURE * math.log(-LOW / HIGH))


def _stretched(concrete: Gates) -> Gates:
    return jnp.clip(concrete * (HIGH - LOW) + LOW, 0, 1)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class GateRuns:
    """The gates that several runs have learnt.

    Attributes:
      frozen: Whether the weights of the model stayed as they were.
      coefficients, seeds: [K] The price of a head (lambda, in nats of the loss of an example), and
        the seed of each run.
      log_alpha: [K, L, N] How far each gate is open at the end.
      steps: [P] The steps at which there is a point of the curves.
      expected_open: [K, P] The expected number of open heads after these steps.
      losses: [K, P] The loss of the task, without the price of heads: the mean since the point
        before.
    """

    frozen: bool
    coefficients: Float[np.ndarray, ' K']
    seeds: Real[np.ndarray, ' K']
    log_alpha: Float[np.ndarray, 'K L N']
    steps: Real[np.ndarray, ' P']
    expected_open: Float[np.ndarray, 'K P']
    losses: Float[np.ndarray, 'K P']

    @property
    def gates(self) -> Float[np.ndarray, 'K L N']:
        """The gates of the models that answer; a head whose gate is 0 is removed."""
        return np.asarray(settled_gates(self.log_alpha))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gated(GateRuns):
    """The outcome of `train_gates`: the gates of every run, and what its model answers.

    Attributes:
      intact: The answers of the model that one started from to the dev examples.
      gated: The answers of the models with gates.
      rounded: Their answers if each gate is rounded to 0 or 1.
      labels: The labels of the dev examples.
      models: The models of the runs, without gates, where their weights were trained; else empty.
    """

    intact: Float[np.ndarray, 'E C']
    gated: Float[np.ndarray, 'K E C']
    rounded: Float[np.ndarray, 'K E C']
    labels: Real[np.ndarray, ' E']
    models: tuple[Pretrained, ...] = dataclasses.field(default=(), compare=False)

    __repr__ = brief

    @property
    def masks(self) -> Float[np.ndarray, 'K L N']:
        """The gates rounded to 0 or 1: masks for the baseline 'zero'."""
        return rounded_gates(self.gates)

    def scores(self, metrics: Sequence[str]) -> dict[str, list[dict[str, float]]]:
        """Return the named metrics and their mean 'score' on the dev examples.

        Those of the intact model are under 'intact' (a list of one), and those of each run under
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateConfig(FinetuneConfig):
    """The settings of a training of gates: those of fine-tuning, with other defaults, and more.

    Those of the optimiser are of the weights, unless these are frozen. Gates are learnt with Adam
    and do not decay; their gradient is clipped, and their learning rate rises, as that of weights.
    There is no checkpoint at the end of each epoch.

    Attributes:
      coefficients: The coefficients lambda. There is a run for each and each seed. A negative one
        pays for open heads, so that only those close which do harm (`analyses.head_gating`).
      frozen: Whether only the gates are learnt, in the model as it is and without dropout. False
        trains the weights together with them, as published, one copy of them per run.
      gate_learning_rate: The learning rate of the gates at its peak. log alpha changes by about
        this much in a step, and has to fall from `initial` to -2.4 before a gate closes.
      initial: The log alpha of every gate at the beginning. By default, a gate is open with a
        probability of 0.94.
    """

    coefficients: Sequence[float]
    frozen: bool = True
    gate_learning_rate: Positive = 0.1
    initial: Annotated[float, _PRICE] = 2.0
    epochs: Number = 10
    learning_rate: Rate = 2e-5
    log_every: Number = 5

    def __post_init__(self):
        super().__post_init__()
        prices = list(self.coefficients) if np.ndim(self.coefficients) == 1 else []
        if not prices or not all(each in _PRICE and prices.count(each) == 1 for each in prices):
            raise ValueError(
                f'coefficients={self.coefficients!r} must be different finite numbers, at least '
                'one: the prices of a head, such as (0.001, 0.01).'
            )
        if self.layer_decay != 1 or self.freeze or self.reinit or self.maps_every:
            names = 'layer_decay, freeze, reinit and maps_every'
            raise ValueError(f'Gates are learnt without {names}: leave them.')
        object.__setattr__(self, 'coefficients', tuple(map(float, prices)))


def train_gates(
    tuned: Pretrained,
    train: Sequence[Example],
    dev: Sequence[Example],
    *,
    folder: str | pathlib.Path | None = None,
    mesh: Mesh | None = None,
    **settings: Any,
) -> Gated:
    """Learn which heads of a fine-tuned model can go, for many prices of a head at the same time.

    What is minimised is the mean loss of an example plus lambda times the expected number of open
    heads. So lambda is the price of a head in nats per example (for a regression, in squared
    errors). The published code takes the mean over layers, and the loss of a token: its coefficient
    is lambda times the number of layers. All runs of one seed see the same examples and the same
    random numbers, and differ by their coefficient alone. Gates are drawn once per step and run, as
    published.

    Args:
      tuned: The model with a classifier of whole texts, fine-tuned on the task.
      train: The labelled texts that the gates are learnt from.
      dev: The labelled texts that the outcome is measured on. Nothing is chosen on them.
      folder, mesh: As in `finetune`, for the checkpoint and the curves of all runs.
      **settings: Those of `bs.GateConfig`, such as `coefficients`, `seeds`, `frozen` or `epochs`.

    Raises:
      ValueError: A setting is out of range, the model has no classifier of whole texts, a label is
        missing or is none of its classes, or the folder holds something else.
      TypeError: The model is not a `Pretrained`, the examples are something else, or there are no
        coefficients or no such setting.
      NonFiniteLossError: The loss is not finite.
    """
    check_labels_inputs(tuned.config)
    config = GateConfig(**settings)
    names = tuned.config.label_names
    train, dev, names, metrics = check_examples(train, dev, SEQUENCES, names, None)
    # There is no outcome to be found in the folder: the last step has a checkpoint.
    finished(folder, config, (tuned, train, dev, 'tuned'))
    data, _ = encode_data(tuned, train, dev, config, metrics, SEQUENCES, names)
    runs = tuple(itertools.product(config.coefficients, listed_seeds(config.seeds)))
    prices, seeds = zip(*runs, strict=True)
    total = per_epoch(data, config) * config.epochs
    # Layers that are one layer are trained as one.
    weights = own_layers(tuned.config, tuned.params)
    steps = Steps(
        tuned.bert,
        _loss,
        _optimizer(config, total),
        data,
        config,
        seeds,
        fixed=replicate(weights, mesh) if config.frozen else None,
        of_runs={'coefficient': np.array(prices, np.float32)},
        mesh=mesh,
        what='runs',
    )
    shape = len(runs), tuned.config.num_hidden_layers, tuned.config.num_attention_heads
    params = {'gates': {'log_alpha': jnp.full(shape, config.initial, jnp.float32)}}
    if not config.frozen:
        params['model'] = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (len(runs), *leaf.shape)), weights
        )

    def rows(state: loop.TrainState, numbers: Sequence[int], losses: Sequence[Any]) -> loop.Rows:
        """Return a row for each run: its mean loss, and how many heads are open at the end."""
        expected = fetch(_expected_open(state.params['gates']['log_alpha'])).tolist()
        means = steps.mean_rows(numbers, losses)
        return [
            row | {'split': f'train, lambda {price:g}', 'open_heads': heads}
            for row, price, heads in zip(means, prices, expected, strict=True)
        ]

    def fault(step: int, place: int, loss: float) -> str:
        return (
            f'The loss with the coefficient {prices[place]:g} and seed {seeds[place]} is {loss} at '
            f'step {step + 1}: lower the learning rates, or look at the weights.'
        )

    what = f'Gates ({len(runs)} runs)'
    state, record = steps.train(params, folder, what=what, stage=total, rows=rows, fault=fault)
    return _outcome(tuned, steps, prices, state.params, record.history)


@functools.lru_cache(maxsize=8)
def _optimizer(config: GateConfig, steps: int) -> optax.GradientTransformation:
    """Return the same object for the same settings: jit knows it by its identity."""
    own = dataclasses.replace(
        config, optimizer='adamw', learning_rate=config.gate_learning_rate, weight_decay=0.0
    )
    groups: dict[Hashable, optax.GradientTransformation] = {
        'gates': _priced(optimizer_for(own, steps))
    }
    if not config.frozen:
        groups['model'] = optimizer_for(config, steps)
    return optax.partition(groups, lambda params: {name: name for name in params})


def _priced(optimizer: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser of gates that adds the price of open heads to their gradient."""
    price = jax.grad(lambda log_alpha: probability_open(log_alpha).sum())

    def update(gradients, state, params, *, coefficient):
        gradients = jax.tree.map(
            lambda gradient, each: gradient + price(each) * coefficient, gradients, params
        )
        return optimizer.update(gradients, state, params)

    init = optimizer.init
    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def _loss(bert, params, batch, labels, key, *, embeds, fixed) -> Float[Array, ' B']:
    """Return the loss of each example, as `Steps` takes it, with random gates."""
    del embeds
    of_gates, of_dropout = jax.random.split(key)
    trained = 'model' in params
    output = bert.apply(
        {'params': all_layers(bert.config, params.get('model', fixed))},
        **batch.inputs,
        head_mask=sample_gates(of_gates, params['gates']['log_alpha']),
        baseline='zero',
        deterministic=not trained,
        rngs={'dropout': of_dropout} if trained else None,
        example_ids=batch.example,
    )
    return loss_per_example(output.logits, labels)


@jax.jit
def _expected_open(log_alpha: Float[Array, 'K L N']) -> Float[Array, ' K']:
    return probability_open(log_alpha).sum(axis=(1, 2))


def _outcome(
    tuned: Pretrained, steps: Steps, prices: Sequence[float], params: Any, history: loop.Rows
) -> Gated:
    log_alpha = fetch(params['gates']['log_alpha'])
    gates = np.asarray(settled_gates(log_alpha))
    points = sorted({row['step'] for row in history})
    curves = {
        name: np.array([row[name] for row in history], np.float32).reshape(len(points), -1).T
        for name in ('loss', 'open_heads')
    }
    intact = {'params': own_layers(tuned.config, tuned.params)}
    of_runs = {'params': params['model']} if 'model' in params else {}
    models = []
    for index in range(len(gates) if of_runs else 0):
        # By way of the host: whatever devices it was trained on, it lies on the usual one.
        of_run = fetch(select(tuned.bert, params['model'], index))
        models.append(dataclasses.replace(tuned, params=jax.tree.map(jnp.asarray, of_run)))

    def answers(masks: Gates, of_runs: dict[str, Any]) -> Float[np.ndarray, 'K E C']:
        return predict(
            tuned.bert,
            of_runs | {'head_mask': jnp.asarray(masks)},
            steps.data.dev,
            fixed=intact,
            at_once=steps.at_once,
            what='Evaluating gates',
        )

    return Gated(
        frozen=not of_runs,
        coefficients=np.array(prices),
        seeds=np.array(steps.seeds),
        log_alpha=log_alpha,
        steps=np.array(points),
        expected_open=curves['open_heads'],
        losses=curves['loss'],
        intact=answers(np.ones_like(gates[:1]), {})[0],
        gated=answers(gates, of_runs),
        rounded=answers(rounded_gates(gates), of_runs),
        labels=steps.data.dev_labels,
        models=tuple(models),
    )
