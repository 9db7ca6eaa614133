"""Train probes of all kinds and seeds in one pass over the maps of a frozen model.

The encoder reads a batch of sentences at a time. The probes then learn from its sentences one after
the other, as published, or from a few at a time: how many the encoder reads changes nothing.

Shapes: R seeds, B sentences of a batch, M maps, T tokens, W words, J candidates, V numbers of a
word vector, E sentences.
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from jaxtyping import Array, Float, Int

from bert_secrets_jax.checks import brief, check_different, check_enough, check_name
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.files import fingerprint
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.finetune.config import listed_seeds
from bert_secrets_jax.finetune.loop import TrainState
from bert_secrets_jax.measure.statistics import READINGS
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes import sentences
from bert_secrets_jax.probes.forms import ATTENTION, FORMS, Form, Params, Sizes
from bert_secrets_jax.probes.sentences import Asked, SentenceWords, asked, maps_of, prepare
from bert_secrets_jax.probes.vectors import Vectors
from bert_secrets_jax.ranges import Range, check_ranges

# Points of a learning curve.
_POINTS = 20
# There is also a checkpoint whenever the last is old, but of several processes (`loop.is_due`).
_CHECKPOINT_EVERY = 2000


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Learning:
    """The course of a training of probes, several seeds of each.

    Attributes:
      seeds: The R seeds of each probe.
      reading: Which vectors candidates have: see `forms.candidate_vectors`.
      curves: The loss per word of each probe by its name, in nats, before the step that learns from
        the sentence; means over P stretches of the training.
      seen: The number of sentences, each time it is read, at the end of each stretch.
      steps: The number of updates.
      learnt: How many words there were to learn from, and why some do not count.
    """

    seeds: tuple[int, ...]
    reading: str
    curves: Mapping[str, Float[np.ndarray, 'R P']]
    seen: Int[np.ndarray, ' P']
    steps: int
    learnt: Asked


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Probes(Learning):
    """Trained probes: the parameters of each by its name, arrays with a leading axis of seeds."""

    forms: tuple[Form, ...]
    params: Mapping[str, Params]
    sizes: Sizes

    __repr__ = brief


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The settings of a training of probes. The defaults are those of Clark et al. 2019.

    Attributes:
      seeds: The seeds of the initial weights, or how many there are. All read the same order.
      epochs: The number of passes over the sentences.
      batch_size: The number of sentences of an update. More make fewer updates of the same size.
      learning_rate: The learning rate of Adam.
      reading: Which vectors candidates have: see `forms.candidate_vectors`.
      order: The seed of the order of the sentences.
      cache_mb: With several epochs, the most megabytes of maps that are kept in memory, as float16.
        Where they take more, they are computed in each epoch.
    """

    seeds: int | Sequence[int] = 3
    epochs: Annotated[int, Range(1, 1000)] = 1
    batch_size: Annotated[int, Range(1, 4096)] = 1
    learning_rate: Annotated[float | int, Range(0, 10, whole=False, without=0)] = 2e-3
    reading: str = 'paper'
    order: int = 0
    cache_mb: Annotated[float | int, Range(0, 2**40, whole=False)] = 1024

    def __post_init__(self):
        object.__setattr__(self, 'seeds', listed_seeds(self.seeds))
        check_ranges(self)
        check_name('reading', self.reading, READINGS)


def train_probes(
    pretrained: Pretrained,
    parses: Sequence[Parse],
    *,
    forms: Sequence[Form] | None = None,
    vectors: Vectors | None = None,
    max_length: int | None = None,
    tokens_per_batch: int = 1024,
    what: str = 'Probes',
    folder: str | pathlib.Path | None = None,
    **settings: Any,
) -> Probes:
    """Train probes to find the head of each word from what a frozen model attends to.

    As Clark et al. 2019: Adam with the learning rate 0.002, one epoch, an update after each
    sentence, the cross-entropy summed over all its words (those of punctuation, too), and Glorot's
    initial weights. Unlike there, sentences are read in a random order, in batches of similar
    length. Words without wordpieces of their own, or whose head has none, are left out.

    Args:
      pretrained: The model, which is not changed.
      parses: The sentences to learn from.
      forms: The probes; None takes all published ones that can be trained, which without vectors is
        only the one of attention alone.
      vectors: The word vectors, which stay as they are.
      max_length, tokens_per_batch: As in `bs.Compute`, for the encoder.
      what: The name of the work in the progress bar.
      folder: The folder of unfinished work: a training that was killed goes on when it is called
        again with the same arguments. Delete it when the result is saved. None keeps the work in
        memory.
      **settings: Those of `bs.ProbeConfig`, such as `seeds`, `epochs` or `learning_rate`.

    Raises:
      TypeError: The model, the sentences, the vectors or the seeds are something else, or there is
        no such setting.
      ValueError: A setting is out of range, a probe needs vectors and there are none, there is
        nothing to learn from, or a probe of your own is to be kept in a folder.
      NonFiniteLossError: The loss is not finite.
    """
    config = ProbeConfig(**settings)
    forms = checked_forms(forms, vectors)
    # Which sentences are batched together is random, too.
    rng = np.random.default_rng(config.order)
    parses = [parses[index] for index in rng.permutation(len(parses))]
    parts = prepare(pretrained, parses, max_length, tokens_per_batch, vectors, config.batch_size)
    to_learn = asked(parts, parses)
    if to_learn.words == to_learn.cut + to_learn.headless:
        raise ValueError('No word of these sentences has a head with a wordpiece of its own.')
    table = sentences.table_of(vectors)
    sizes = Sizes(pretrained.config.num_heads, table.shape[1])
    source = maps_of(pretrained, parts, cache_mb=config.cache_mb if config.epochs > 1 else 0)
    passes = [part for _ in range(config.epochs) for part in rng.permutation(len(parts)).tolist()]
    if folder is not None:
        folder = pathlib.Path(folder) / _digest(pretrained, forms, parts, table, passes, config)
    seen = np.cumsum([parts[index].batch.size for index in passes])
    # Points of the curves are about equally many sentences apart.
    points = np.unique(np.searchsorted(seen, np.linspace(0, seen[-1], _POINTS + 1)[1:]))
    learn = functools.partial(
        _learn, forms, config.batch_size, config.learning_rate, config.reading
    )
    state, record = loop.train(
        lambda state, index: learn(state, source(index), parts[index].words, table),
        _initial(forms, sizes, config.seeds, config.learning_rate),
        passes,
        what=what,
        size=lambda index: parts[index].batch.size,
        unit='sentences',
        curve=_curve(forms, parts, passes, points, config),
        folder=folder,
    )
    losses = np.array([row['loss'] for row in record.history], np.float32)
    curves = losses.reshape(len(points), len(forms), -1).transpose(1, 2, 0)
    return Probes(
        forms=forms,
        params=jax.device_get(state.params),
        seeds=listed_seeds(config.seeds),
        reading=config.reading,
        curves={form.name: curve for form, curve in zip(forms, curves, strict=True)},
        seen=seen[points],
        steps=int(jax.device_get(next(iter(state.optimizer.values()))[0].count)[0]),
        sizes=sizes,
        learnt=to_learn,
    )


def _digest(pretrained, forms, parts, table, passes, config: ProbeConfig) -> str:
    """Return the name of the folder of a training, which follows from all that it depends on."""
    own = [form.name for form in forms if form not in FORMS]
    if own:
        raise ValueError(
            f'A folder keeps the training of published probes only, which are told apart by '
            f'their names: train {", ".join(own)} without one.'
        )
    settings = dataclasses.asdict(config) | {'forms': [form.name for form in forms]}
    inputs = [(part.batch.inputs, part.words) for part in parts]
    model = repr(dataclasses.asdict(pretrained.config)), pretrained.params
    return fingerprint(*model, inputs, np.asarray(table), passes, settings)


def _curve(forms: Sequence[Form], parts, passes, points, config: ProbeConfig) -> loop.TrainingCurve:
    """Return the rows of the curves: the mean loss per word of each probe and seed."""
    runs = list(itertools.product(forms, listed_seeds(config.seeds)))

    def rows(state: TrainState, steps: Sequence[int], losses: Sequence[Any]) -> loop.Rows:
        words = sum(int((parts[passes[step]].words.heads >= 0).sum()) for step in steps)
        means = np.array(losses, np.float32).sum(axis=0) / max(words, 1)
        done = {'step': steps[-1] + 1, 'epoch': (steps[-1] + 1) / len(parts)}
        return [
            {'split': form.name, 'seed': seed, **done, 'loss': float(mean)}
            for (form, seed), mean in zip(runs, means.flat, strict=True)
        ]

    def fault(step: int, place: int, loss: float) -> str:
        form, seed = runs[place]
        return (
            f'The loss of the probe "{form.name}" with seed {seed} is {loss} at '
            f'learning_rate={config.learning_rate}: take a lower one.'
        )

    return loop.TrainingCurve(
        rows=rows,
        fault=fault,
        rows_after=set((points + 1).tolist()),
        checkpoint_every=_CHECKPOINT_EVERY,
        stage=len(passes),
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _learn(
    forms: tuple[Form, ...],
    batch_size: int,
    learning_rate: float | int,
    reading: str,
    state: TrainState,
    maps: Float[Array, 'B M T T'],
    words: SentenceWords,
    table: Float[Array, 'U V'],
) -> tuple[TrainState, Float[Array, 'forms R']]:
    """Learn from the sentences of a batch in their order; return the summed losses, too."""
    optimizer = optax.adam(learning_rate)
    read = functools.partial(sentences.sentence_of, table=table, reading=reading)

    def step(groups, few):
        return jax.lax.cond((few[1].heads >= 0).any(), update, skip, groups, few)

    def skip(groups, few):
        return groups, jnp.zeros((len(forms), len(jax.tree.leaves(groups)[0])))

    def update(groups, few):
        maps, words = few
        several = jax.vmap(read)(maps, words)
        params, moments, losses = {}, {}, []
        for form in forms:
            each_seed = jax.vmap(functools.partial(descend, form, several, words.heads))
            former = [group[form.name] for group in groups]
            params[form.name], moments[form.name], loss = each_seed(*former)
            losses.append(loss)
        return (params, moments), jnp.stack(losses)

    def descend(form, several, heads, params, moments):
        def loss_of(params):
            scores = jax.vmap(functools.partial(form.scores, params))(several)
            return jax.vmap(cross_entropy)(scores, heads, several.count).sum()

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(params, updates), moments, loss

    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, batch_size, *leaf.shape[1:]), (maps, words))
    groups, losses = jax.lax.scan(step, (state.params, state.optimizer), parts)
    return TrainState(state.step + 1, *groups), losses.sum(axis=0)


def cross_entropy(
    scores: Float[Array, 'W J'], heads: Int[Array, ' W'], count: Int[Array, '']
) -> Float[Array, '']:
    """Return the cross-entropy of the heads, summed over all words that have one; -1 is none."""
    log_p = jax.nn.log_softmax(sentences.among_candidates(scores, count), axis=-1)
    picked = jnp.take_along_axis(log_p, jnp.maximum(heads, 0)[:, None], axis=-1)[:, 0]
    return -jnp.where(heads >= 0, picked, 0).sum()


def checked_forms(forms: Sequence[Form] | None, vectors: Vectors | None) -> tuple[Form, ...]:
    """Return the probes; None takes all published ones that the vectors suffice for."""
    if forms is None:
        if vectors is None:
            logging.info('Without word vectors, only the probe of attention alone is trained.')
            return (ATTENTION,)
        return FORMS
    forms = tuple(forms)
    check_enough('probes', forms)
    check_different('forms', [form.name for form in forms], 'give each probe a name of its own')
    for form in forms:
        if form.reads_words and vectors is None:
            raise ValueError(
                f'The probe "{form.name}" reads word vectors: give vectors=read_vectors(...).'
            )
    return forms


def _initial(forms, sizes: Sizes, seeds, learning_rate: float | int) -> TrainState:
    """Return the state before training, by the names of probes and with a leading axis of seeds."""
    params = {}
    for form in forms:
        each = [form.init(jax.random.key(seed), sizes) for seed in seeds]
        params[form.name] = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    init = jax.vmap(optax.adam(learning_rate).init)
    return TrainState(jnp.int32(0), params, {name: init(each) for name, each in params.items()})
