"""Fine-tuning of several seeds at once: the loss, the curves, and the best model of each."""

import collections
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_secrets_jax.compute import fetch
from bert_secrets_jax.data.encoding import in_order
from bert_secrets_jax.finetune import optimizers
from bert_secrets_jax.finetune.config import FinetuneConfig, listed_seeds
from bert_secrets_jax.finetune.loop import Rows, TrainState
from bert_secrets_jax.finetune.losses import loss_per_example, terms
from bert_secrets_jax.finetune.metrics import evaluate, tested_values
from bert_secrets_jax.finetune.optimizers import recorded_steps, recording, with_fresh_top
from bert_secrets_jax.finetune.steps import Data, Steps, per_epoch, predict
from bert_secrets_jax.measure.catalogue import measure_change, named
from bert_secrets_jax.model.bert import Bert, all_layers, check_finite, init_params, own_layers
from bert_secrets_jax.model.config import QUESTIONS
from bert_secrets_jax.model.weights import Pretrained

# The rows of a curve that tell how similar maps are to those before training.
MAPS = 'maps'
# Smaller evaluations take a moment and show no progress of their own.
_LARGE_EVALUATION = 2000

Save = Callable[[int, str, Any], None]


def train_runs(
    bert: Bert,
    params: Sequence[Any],
    data: Data,
    config: FinetuneConfig,
    folder: Any = None,
    *,
    save: Save,
    mesh: Mesh | None = None,
    loss: Callable[..., Float[Array, ' B']] | None = None,
) -> tuple[Rows, Float[np.ndarray, 'S R P M']]:
    """Train one model per seed. A call after an interruption goes on and has the same result.

    `save` takes a seed, 'best' or 'last', and its parameters: whenever its dev score is the best so
    far, and after the last step. `loss` is as `Steps` takes it; None is that of the head. Returned
    are `Finetuned.history` and `Finetuned.movement`. Errors are those of `finetune`.
    """
    # Steps would be lost in weights that were stored in 16 bits.
    params = jax.tree.map(lambda leaf: leaf.astype(np.float32), params)
    total = per_epoch(data, config) * config.epochs
    seeds = listed_seeds(config.seeds)
    schedule = _schedule(config, total)
    # Layers that are one layer are trained as one.
    own = [own_layers(bert.config, each) for each in params]
    if config.reinit:
        fresh = [own_layers(bert.config, init_params(bert, seed)) for seed in seeds]
        own = [*map(functools.partial(with_fresh_top, config.reinit), own, fresh)]

    def stacked() -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *own)

    optimizer = recording(optimizer_for(config, total), total)
    given = {'of_runs': {'start': stacked()}, 'given_after': recorded_steps(total)}
    steps = Steps(bert, loss or _loss, optimizer, data, config, seeds, mesh=mesh, **given)

    def rate(step: int) -> float:
        return float(np.asarray(schedule(step)))

    def rows(state: TrainState, numbers: Sequence[int], losses: Sequence[Any]) -> Rows:
        means = steps.mean_rows(numbers, losses)
        found = [row | {'learning_rate': rate(numbers[-1])} for row in means]
        done = numbers[-1] + 1
        return found + (_maps(steps, own, state, done) if done in compared else [])

    def fault(step: int, place: int, loss: float) -> str:
        names = ', '.join(data.train_ids[int(row)] for row in steps.rows(step)[place] if row >= 0)
        return (
            f'The loss of seed {seeds[place]} is {loss} at step {step + 1} (learning rate '
            f'{rate(step):.3g}). Lower the learning rate, or look at the examples of that step: '
            f'{names}.'
        )

    compared = config.maps_after(total)
    # Apart from those of the start, since each step gives its memory to the next one.
    state, record = steps.train(
        stacked(),
        folder,
        what='Fine-tuning',
        stage=steps.per_epoch,
        rows=rows,
        fault=fault,
        evaluate=functools.partial(_evaluate, steps, save),
    )
    for index, seed in enumerate(seeds):
        save(seed, 'last', select(bert, state.params, index))
    return record.history, np.asarray(fetch(state.optimizer['records']))


def logits_of(bert, params, batch, key, embeds, example_ids) -> Float[Array, 'b ...']:
    """Return the logits with dropout, which examples have of their own."""
    return bert.apply(
        {'params': all_layers(bert.config, params)},
        **batch.inputs,
        inputs_embeds=embeds,
        deterministic=False,
        rngs={'dropout': key},
        example_ids=example_ids,
    ).logits


def _loss(bert, params, batch, labels, key, *, embeds, fixed) -> Float[Array, ' B']:
    """Return the loss of each example with dropout, as `Steps` takes it."""
    del fixed
    logits = logits_of(bert, params, batch, key, embeds, batch.example)
    return loss_per_example(logits, labels, head=bert.config.head, real=batch.marks['token'])


def _schedule(config: FinetuneConfig, steps: int) -> optax.Schedule:
    return optimizers.make_schedule(config.learning_rate, steps, config.warmup, config.schedule)


@functools.lru_cache(maxsize=8)
def optimizer_for(config: FinetuneConfig, steps: int) -> optax.GradientTransformation:
    """Return the same object for the same settings: jit knows it by its identity."""
    return optimizers.make_optimizer(
        config.optimizer,
        _schedule(config, steps),
        weight_decay=config.weight_decay,
        clip=config.clip,
        layer_decay=config.layer_decay,
        freeze=config.frozen_parts,
    )


def select(bert: Bert, params: Any, index: int) -> Any:
    """Return the parameters of one of several runs, whose number is the first axis."""
    return all_layers(bert.config, jax.tree.map(operator.itemgetter(index), params))


def _evaluate(steps: Steps, save: Save, state: TrainState, epoch: int, history: Rows) -> Rows:
    """Return the dev rows of an epoch; save every seed that is better than before."""
    data, seeds = steps.data, steps.seeds
    large = len(data.dev_labels) * len(seeds) >= _LARGE_EVALUATION
    logits = predict(
        steps.bert, {'params': state.params}, data.dev,
        at_once=steps.at_once, what='Evaluating' if large else '', compiles=epoch == 0,
    )  # fmt: skip
    rows, real, labels = [], None, data.dev_labels
    if data.head == QUESTIONS:
        lengths = in_order([each.example for each in data.dev], [each.lengths for each in data.dev])
        real = np.arange(logits.shape[2]) < lengths[:, None]
    for index, seed in enumerate(seeds):
        former = [row['score'] for row in history if row['split'] == 'dev' and row['seed'] == seed]
        loss = loss_per_example(
            jnp.asarray(logits[index]), jnp.asarray(labels), head=data.head, real=real
        )
        mean = float(loss.sum() / terms(labels, head=data.head).sum())
        row = {'split': 'dev', 'seed': seed, 'step': int(state.step), 'epoch': epoch, 'loss': mean}
        check_finite(logits[index])
        if data.evaluate is not None:
            row |= data.evaluate(data.metrics, logits[index])
        else:
            row |= evaluate(data.metrics, logits[index], labels)
            row |= tested_values(data.metrics, logits[index], labels)
        rows.append(row)
        # Before training there is nothing to keep: epoch 0 is the model that one started from.
        if epoch and not any(_rank(score) >= _rank(row['score']) for score in former[1:]):
            save(seed, 'best', select(steps.bert, state.params, index))
    first = [row['loss'] for row in history if row['split'] == 'dev']
    if epoch == 1 and all(row['loss'] >= loss for row, loss in zip(rows, first, strict=True)):
        logging.warning(
            'Nothing was learnt in the first epoch: the loss of the dev examples is %.3g, and was '
            '%.3g before. Is the learning rate too high, or too low?', rows[0]['loss'], first[0],
        )  # fmt: skip
    return rows


def _maps(steps: Steps, before: Sequence[Any], state: TrainState, done: int) -> Rows:
    """Return the similarity of each layer's maps of the dev examples, before and after."""
    rows = []
    for index, seed in enumerate(steps.seeds):
        start = all_layers(steps.bert.config, before[index])
        first = Pretrained(steps.bert, start, None)
        now = Pretrained(steps.bert, fetch(select(steps.bert, state.params, index)), None)
        (table,) = measure_change(first, now, steps.data.dev, [named('cosine')]).values()
        row = {'split': MAPS, 'seed': seed, 'step': done, 'epoch': done / steps.per_epoch}
        means = table.mean.mean(axis=1).tolist()
        rows.append(row | {f'similarity_L{at}': each for at, each in enumerate(means, 1)})
    return rows


def _rank(score: float) -> float:
    """Order scores; NaN (constant predictions have no correlation) is worse than anything."""
    return -np.inf if np.isnan(score) else score


def best_rows(history: Sequence[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the dev row with the best score of each seed, without epoch 0."""
    by_seed = collections.defaultdict(list)
    for row in history:
        if row['split'] == 'dev' and row['epoch'] > 0:
            by_seed[row['seed']].append(row)
    return {seed: max(rows, key=lambda row: _rank(row['score'])) for seed, rows in by_seed.items()}
