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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from jaxtyping import Array, Float, Int

from bert_secrets_jax import processes
from bert_secrets_jax.brief import brief, shortened
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.files import fingerprint, read_arrays, write_arrays
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes.forms import ATTENTION, FORMS, READINGS, Form, Params, Sizes
from bert_secrets_jax.probes.maps import among_candidates, maps_of, sentence_of, table_of
from bert_secrets_jax.probes.sentences import Asked, Part, Words, asked, prepare
from bert_secrets_jax.probes.vectors import Vectors
from bert_secrets_jax.progress import progress
from bert_secrets_jax.ranges import Range

# Points of a learning curve.
_POINTS = 20
# Little more than this is lost when a training is killed.
_SECONDS_BETWEEN_WRITES = 60
RANGES = {
    'epochs': Range(1, 1000),
    'batch_size': Range(1, 4096),
    'learning_rate': Range(0, 10, whole=False, without=0),
    'cache_mb': Range(0, 2**40, whole=False),
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Probes:
    """Trained probes, several seeds of each.

    Attributes:
      forms: The probes.
      params: The parameters of each probe by its name, arrays with a leading axis of seeds.
      seeds: The R seeds.
      reading: Which vectors candidates have: see `forms.candidate_vectors`.
      curves: [R, P] The loss per word of each probe by its name, each before the step that learns
        from the sentence, as means over P stretches of the training.
      seen: [P] The number of sentences, each time it is read, at the end of each stretch.
      steps: The number of updates.
      sizes: The sizes of what the probes read.
      asked: How many words there were to learn from.
    """

    forms: tuple[Form, ...]
    params: Mapping[str, Params]
    seeds: tuple[int, ...]
    reading: str
    curves: Mapping[str, Float[np.ndarray, 'R P']]
    seen: Int[np.ndarray, ' P']
    steps: int
    sizes: Sizes
    asked: Asked

    __repr__ = brief


def train_probes(
    pretrained: Pretrained,
    parses: Sequence[Parse],
    *,
    forms: Sequence[Form] | None = None,
    vectors: Vectors | None = None,
    seeds: int | Sequence[int] = 3,
    epochs: int = 1,
    batch_size: int = 1,
    learning_rate: float | int = 2e-3,
    reading: str = 'paper',
    order: int = 0,
    max_length: int = 128,
    tokens_per_batch: int = 1024,
    cache_mb: float | int = 1024,
    what: str = 'Probes',
    folder: str | pathlib.Path | None = None,
) -> Probes:
    """Train probes to find the head of each word from what a frozen model attends to.

    The defaults are the published settings of Clark et al. 2019: Adam with the learning rate 0.002,
    one epoch, an update after each sentence, the cross-entropy summed over all its words (those of
    punctuation, too), and Glorot's initial weights.

    Differs from the published code: sentences are read in a random order, in batches of similar
    length, and words without wordpieces of their own, or whose head has none, are left out.

    Args:
      pretrained: The model, which is not changed.
      parses: The sentences to learn from.
      forms: The probes; None takes all published ones that can be trained, which without vectors is
        only the one of attention alone.
      vectors: The word vectors, which stay as they are.
      seeds: The seeds of the initial weights. A number n stands for the seeds 0, 1, ..., n - 1. All
        read the sentences in the same order.
      epochs: The number of passes over the sentences.
      batch_size: The number of sentences of an update. More make fewer updates of the same size.
      learning_rate: The learning rate of Adam.
      reading: Which vectors candidates have: see `forms.candidate_vectors`.
      order: The seed of the order of the sentences.
      max_length: The greatest number of tokens. Longer sentences are cut.
      tokens_per_batch: The greatest number of rows times padded length that the encoder reads.
      cache_mb: With several epochs, the most megabytes of maps that are kept in memory; they are
        then float16. Where they take more, they are computed in each epoch.
      what: The name of the work in the progress bar.
      folder: The folder of unfinished work: a training that was killed goes on where it was when it
        is called again with the same arguments, and loses about a minute. Delete it when the result
        is saved. None keeps the work in memory alone.

    Raises:
      TypeError: The model, the sentences, the vectors or the seeds are something else.
      ValueError: A setting is out of range, a probe needs vectors and there are none, there is
        nothing to learn from, or a probe of your own is to be kept in a folder.
    """
    settings = {
        'epochs': epochs,
        'batch_size': batch_size,
        'learning_rate': learning_rate,
        'cache_mb': cache_mb,
    }
    for name, value in settings.items():
        if value not in RANGES[name]:
            raise ValueError(f'{name}={value!r} must be {RANGES[name]}.')
    if reading not in READINGS:
        raise ValueError(f'{reading=} must be one of {", ".join(READINGS)}.')
    forms = checked_forms(forms, vectors)
    if isinstance(seeds, float | str):
        raise TypeError(f'{seeds=} must be a number of seeds, or a sequence of them.')
    seeds = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f'{seeds=} must be one seed or more, each once.')
    # Which sentences are batched together is random, too.
    rng = np.random.default_rng(order)
    parses = [parses[index] for index in rng.permutation(len(parses))]
    parts = prepare(
        pretrained,
        parses,
        vectors=vectors,
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
        batch_multiple=batch_size,
    )
    to_learn = asked(parts, parses)
    if to_learn.words == to_learn.cut + to_learn.headless:
        raise ValueError('No word of these sentences has a head with a wordpiece of its own.')
    sizes = sizes_of(pretrained, vectors)
    table = table_of(vectors)
    work = _Work(forms, batch_size, learning_rate, reading)
    source = maps_of(pretrained, parts, cache_mb=cache_mb if epochs > 1 else 0)
    passes = [part for _ in range(epochs) for part in rng.permutation(len(parts)).tolist()]
    file = None
    if folder is not None:
        own = [form.name for form in forms if form not in FORMS]
        if own:
            raise ValueError(
                f'A folder keeps the training of published probes only, which are told apart by '
                f'their names: train {", ".join(own)} without one.'
            )
        inputs = [(part.batch.inputs, part.words) for part in parts]
        config = repr(dataclasses.asdict(pretrained.config))
        settings |= {'reading': reading, 'seeds': seeds, 'forms': [form.name for form in forms]}
        name = fingerprint(config, pretrained.params, inputs, np.asarray(table), passes, settings)
        file = pathlib.Path(folder) / f'{name}.npz'
    begun = _Begun(_initial(forms, sizes, seeds, learning_rate), [])
    state, losses = _pass(work, begun, parts, passes, source, table, what=what, file=file)
    words = [int((parts[index].words.heads >= 0).sum()) for index in passes]
    sentences = [parts[index].size for index in passes]
    curves, seen = _curves(losses, words, sentences)
    for name, curve in curves.items():
        if not np.isfinite(curve).all():
            raise ValueError(
                f'The loss of the probe "{name}" is not finite at {learning_rate=}: take a lower '
                'one.'
            )
    return Probes(
        forms=forms,
        params={name: jax.device_get(params) for name, (params, _) in state.items()},
        seeds=seeds,
        reading=reading,
        curves=curves,
        seen=seen,
        steps=int(jax.device_get(next(iter(state.values()))[1][0].count)[0]),
        sizes=sizes,
        asked=to_learn,
    )


# Compiled functions


@dataclasses.dataclass(frozen=True)
class _Work:
    """The static argument of a compiled step."""

    forms: tuple[Form, ...]
    batch_size: int
    learning_rate: float | int
    reading: str


@functools.partial(jax.jit, static_argnums=0)
def _learn(
    work: _Work,
    state: dict[str, tuple[Any, Any]],
    maps: Float[Array, 'B M T T'],
    words: Words,
    table: Float[Array, 'U V'],
) -> tuple[dict[str, tuple[Any, Any]], dict[str, Float[Array, ' R']]]:
    """Learn from the sentences of a batch in their order.

    Returns:
      The state after it, and the sum of the losses of all words for each probe.
    """
    optimizer = optax.adam(work.learning_rate)

    def step(state, few):
        return jax.lax.cond((few[1].heads >= 0).any(), update, skip, state, few)

    def skip(state, few):
        return state, {
            name: jnp.zeros(len(jax.tree.leaves(params)[0])) for name, (params, _) in state.items()
        }

    def update(state, few):
        maps, words = few
        sentences = jax.vmap(functools.partial(sentence_of, table=table, reading=work.reading))(
            maps, words
        )
        after, losses = {}, {}
        for form in work.forms:
            each_seed = jax.vmap(functools.partial(descend, form, sentences, words.heads))
            *after[form.name], losses[form.name] = each_seed(*state[form.name])
        return {name: tuple(each) for name, each in after.items()}, losses

    def descend(form, sentences, heads, params, moments):
        def loss_of(params):
            scores = jax.vmap(functools.partial(form.scores, params))(sentences)
            return jax.vmap(cross_entropy)(scores, heads, sentences.count).sum()

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(params, updates), moments, loss

    parts = jax.tree.map(
        lambda leaf: leaf.reshape(-1, work.batch_size, *leaf.shape[1:]), (maps, words)
    )
    state, losses = jax.lax.scan(step, state, parts)
    return state, {name: loss.sum(axis=0) for name, loss in losses.items()}


def cross_entropy(
    scores: Float[Array, 'W J'], heads: Int[Array, ' W'], count: Int[Array, '']
) -> Float[Array, '']:
    """Return the cross-entropy of the heads, summed over all words that have one.

    Args:
      scores: The scores of the candidates.
      heads: The gold heads; -1 where there is none among the candidates.
      count: The number of real words.
    """
    log_p = jax.nn.log_softmax(among_candidates(scores, count), axis=-1)
    picked = jnp.take_along_axis(log_p, jnp.maximum(heads, 0)[:, None], axis=-1)[:, 0]
    return -jnp.where(heads >= 0, picked, 0).sum()


# Unfinished work


class _Begun(NamedTuple):
    """A training that was begun: its state, and the losses of each batch so far."""

    state: dict[str, tuple[Any, Any]]
    losses: list[dict[str, Any]]


def _pass(
    work: '_Work',
    begun: _Begun,
    parts: Sequence[Part],
    passes: Sequence[int],
    source: Callable[[int], Float[Array | np.ndarray, 'B M T T']],
    table: Float[Array, 'U V'],
    *,
    what: str,
    file: pathlib.Path | None,
) -> _Begun:
    """Return the training at its end; with a file, go on from there and write it now and then."""
    state, losses = begun if file is None else _read(file, begun)
    done = len(losses)
    if done:
        logging.info('%s: %d of %d batches are done.', what, done, len(passes))
    written = time.monotonic()
    left = progress(passes[done:], what, size=lambda index: parts[index].size, unit='sentences')
    for index in left:
        before = losses[-1] if losses else None
        state, loss = _learn(work, state, source(index), parts[index].words, table)
        losses.append(loss)
        # JAX queues work without limit: what waits holds its maps.
        jax.block_until_ready(before)
        is_due = time.monotonic() - written >= _SECONDS_BETWEEN_WRITES
        if file is not None and is_due and processes.is_first():
            _write(file, _Begun(state, losses))
            written = time.monotonic()
    if file is not None and done < len(passes):
        processes.on_first(lambda: _write(file, _Begun(state, losses)))
    return _Begun(state, jax.device_get(losses))


def _write(file: pathlib.Path, begun: _Begun) -> None:
    leaves = jax.device_get(jax.tree.leaves(begun.state))
    losses = jax.device_get(begun.losses)
    arrays = {f'state {place}': np.asarray(leaf) for place, leaf in enumerate(leaves)}
    arrays |= {f'loss {name}': np.stack([each[name] for each in losses]) for name in losses[0]}
    write_arrays(file, arrays | {'key': np.array(file.stem)})


def _read(file: pathlib.Path, fresh: _Begun) -> _Begun:
    """Return the training in a file; the fresh one if there is none, or none that fits."""
    if not processes.exists(file):
        return fresh
    try:
        arrays = read_arrays(file)
    except ValueError:
        arrays = {}
    leaves, structure = jax.tree.flatten(fresh.state)
    found = [arrays.get(f'state {place}') for place in range(len(leaves))]
    losses = {name: arrays.get(f'loss {name}') for name in fresh.state}
    if (
        str(arrays.get('key')) != file.stem
        or any(each is None for each in (*found, *losses.values()))
        or any(each.shape != leaf.shape for each, leaf in zip(found, leaves, strict=True))
    ):
        logging.warning('%s is damaged: the probes are trained from the beginning.', file)
        return fresh
    steps = [dict(zip(losses, each, strict=True)) for each in zip(*losses.values(), strict=True)]
    return _Begun(jax.tree.unflatten(structure, map(jnp.asarray, found)), steps)


# Values that are made once


def checked_forms(forms: Sequence[Form] | None, vectors: Vectors | None) -> tuple[Form, ...]:
    """Return the probes that can be trained.

    Args:
      forms: The probes; None takes all published ones that the vectors suffice for.
      vectors: The word vectors; None if there are none.

    Raises:
      TypeError: The vectors are something else.
      ValueError: There is no probe, two have one name, or one needs vectors and there are none.
    """
    if not isinstance(vectors, Vectors | None):
        raise TypeError(f'vectors={shortened(vectors)} must be what read_vectors(...) returns.')
    if forms is None:
        if vectors is None:
            logging.info('Without word vectors, only the probe of attention alone is trained.')
            return (ATTENTION,)
        return FORMS
    forms = tuple(forms)
    if not forms or len({form.name for form in forms}) < len(forms):
        raise ValueError('Give one probe or more, each with a name of its own.')
    for form in forms:
        if form.reads_words and vectors is None:
            raise ValueError(
                f'The probe "{form.name}" reads word vectors: give vectors=read_vectors(...).'
            )
    return forms


def sizes_of(pretrained: Pretrained, vectors: Vectors | None) -> Sizes:
    """Return the sizes of what probes read: of the maps of a model, and of word vectors."""
    config = pretrained.config
    return Sizes(
        config.num_hidden_layers * config.num_attention_heads,
        0 if vectors is None else vectors.width,
    )


def _initial(
    forms: Sequence[Form], sizes: Sizes, seeds: Sequence[int], learning_rate: float | int
) -> dict[str, tuple[Any, Any]]:
    """Return the parameters and the moments of each probe, with a leading axis of seeds."""
    state = {}
    for form in forms:
        each = [form.init(jax.random.key(seed), sizes) for seed in seeds]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        state[form.name] = params, jax.vmap(optax.adam(learning_rate).init)(params)
    return state


def _curves(
    losses: Sequence[Mapping[str, np.ndarray]], words: Sequence[int], sentences: Sequence[int]
) -> tuple[dict[str, Float[np.ndarray, 'R P']], Int[np.ndarray, ' P']]:
    """Return the mean loss per word over about equally many sentences at a time."""
    seen = np.cumsum(sentences)
    ends = np.unique(np.searchsorted(seen, np.linspace(0, seen[-1], _POINTS + 1)[1:]))
    stretches: Iterator[tuple[int, int]] = itertools.pairwise([0, *(ends + 1)])
    means = [
        {
            name: np.sum([loss[name] for loss in losses[start:end]], axis=0)
            / max(sum(words[start:end]), 1)
            for name in losses[0]
        }
        for start, end in stretches
    ]
    return {name: np.stack([mean[name] for mean in means], axis=1) for name in losses[0]}, seen[
        ends
    ]
