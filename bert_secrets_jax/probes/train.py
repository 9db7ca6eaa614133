"""Train probes of all kinds and seeds in one pass over the maps of a frozen model.

The encoder reads a batch of sentences at a time. The probes then learn from its sentences one after
the other, as published, or from a few at a time: how many the encoder reads changes nothing.

Shapes: R seeds, B sentences of a batch, M maps, T tokens, W words, J candidates, V numbers of a
word vector, E sentences.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import logging
from jaxtyping import Array, Float, Float32, Int, Int32

from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.measure.words import word_maps
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes.forms import (
    ATTENTION,
    FORMS,
    READINGS,
    Form,
    Params,
    Sentence,
    Sizes,
    candidate_vectors,
)
from bert_secrets_jax.probes.sentences import Asked, Part, Words, asked, prepare, right_branching
from bert_secrets_jax.probes.vectors import Vectors
from bert_secrets_jax.progress import progress
from bert_secrets_jax.ranges import Range

RIGHT_BRANCHING = 'right-branching'
# Points of a learning curve.
_POINTS = 50
_MEGABYTE = 2**20
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
      asked: How many words there were to learn from.
    """

    forms: tuple[Form, ...]
    params: Mapping[str, Params]
    seeds: tuple[int, ...]
    reading: str
    curves: Mapping[str, Float[np.ndarray, 'R P']]
    seen: Int[np.ndarray, ' P']
    steps: int
    asked: Asked

    __repr__ = brief


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Attachment:
    """How many heads were found in each sentence.

    Attributes:
      words: [E] The number of words of each sentence that count.
      right: [R, E] The number of those whose head was found, by the name of the probe; of
        'right-branching', R is 1.
      asked: How many words there were, and why some do not count.
    """

    words: Float32[np.ndarray, ' E']
    right: Mapping[str, Float32[np.ndarray, '_ E']]
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
    learning_rate: float = 2e-3,
    reading: str = 'paper',
    order: int = 0,
    max_length: int = 128,
    tokens_per_batch: int = 1024,
    cache_mb: float = 1024,
    what: str = 'Probes',
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

    Raises:
      TypeError: The model or the sentences are something else.
      ValueError: A setting is out of range, a probe needs vectors and there are none, or there is
        nothing to learn from.
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
    forms = _checked_forms(forms, vectors)
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
    config = pretrained.config
    sizes = Sizes(
        config.num_hidden_layers * config.num_attention_heads,
        0 if vectors is None else vectors.width,
    )
    state = _initial(forms, sizes, seeds, learning_rate)
    table = _table(vectors)
    work = _Work(forms, batch_size, learning_rate, reading)
    source = _maps_of(pretrained, parts, cache_mb if epochs > 1 else 0)
    order_of = [part for _ in range(epochs) for part in rng.permutation(len(parts)).tolist()]
    losses, words, sentences = [], [], []
    for index in progress(order_of, what, size=lambda index: parts[index].size, unit='sentences'):
        part = parts[index]
        before = losses[-1] if losses else None
        state, loss = _learn(work, state, source(index), part.words, table)
        losses.append(loss)
        words.append(int((part.words.heads >= 0).sum()))
        sentences.append(part.size)
        # JAX queues work without limit: what waits holds its maps.
        jax.block_until_ready(before)
    curves, seen = _curves(jax.device_get(losses), words, sentences)
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
        asked=to_learn,
    )


def attach(
    pretrained: Pretrained,
    probes: Probes,
    parses: Sequence[Parse],
    *,
    vectors: Vectors | None = None,
    max_length: int = 128,
    tokens_per_batch: int = 1024,
    what: str = 'Heads',
) -> Attachment:
    """Find the head of each word, and count those that are right, without punctuation.

    The head is the candidate with the greatest score, whatever the other words have, so that the
    heads of a sentence need not make a tree (as published). Words without a wordpiece of their own,
    or whose head has none, do not count.

    Args:
      pretrained: The model that the probes were trained on.
      probes: The probes.
      parses: The sentences.
      vectors: The word vectors that the probes were trained with.
      max_length, tokens_per_batch: As in `train_probes`.
      what: The name of the work in the progress bar.

    Raises:
      TypeError: The model or the sentences are something else.
      ValueError: A probe needs vectors and there are none, or no word counts.
    """
    _checked_forms(probes.forms, vectors)
    parts = prepare(
        pretrained,
        parses,
        vectors=vectors,
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
    )
    counts = asked(parts, parses)
    if not counts.counted:
        raise ValueError('No word of these sentences counts: all are punctuation or were cut off.')
    source, table = _maps_of(pretrained, parts, 0), _table(vectors)
    words = np.zeros(len(parses), np.float32)
    right = {form.name: np.zeros((len(probes.seeds), len(parses)), np.float32)
             for form in probes.forms}  # fmt: skip
    right[RIGHT_BRANCHING] = np.zeros((1, len(parses)), np.float32)
    indices = range(len(parts))
    for index in progress(indices, what, size=lambda index: parts[index].size, unit='sentences'):
        part = parts[index]
        found = _answer(
            probes.forms, probes.reading, dict(probes.params), source(index), part.words, table
        )
        found = {name: np.asarray(each) for name, each in found.items()}
        found[RIGHT_BRANCHING] = right_branching(part)[None]
        real = part.batch.example >= 0
        examples = part.batch.example[real]
        words[examples] = part.counted[real].sum(axis=-1)
        for name, heads in found.items():
            hits = (heads == part.words.heads) & part.counted
            right[name][:, examples] = hits[:, real].sum(axis=-1)
    return Attachment(words, right, counts)


# What is compiled


@dataclasses.dataclass(frozen=True)
class _Work:
    """The static argument of a compiled step."""

    forms: tuple[Form, ...]
    batch_size: int
    learning_rate: float
    reading: str


@functools.partial(jax.jit, static_argnums=0)
def _read(
    bert: Bert, params: Any, inputs: Mapping[str, Array], pieces: Int32[Array, 'B T']
) -> Float[Array, 'B M T T']:
    """Return the maps between words, [CLS] and [SEP] of the sentences of a batch."""
    maps = bert.apply({'params': params}, **inputs).attentions
    maps = maps.reshape(maps.shape[0], -1, *maps.shape[3:]).astype(jnp.float32)
    return jax.vmap(functools.partial(word_maps, count=maps.shape[-1]))(maps, pieces)


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
        sentences = jax.vmap(functools.partial(_sentence, work.reading, table))(maps, words)
        after, losses = {}, {}
        for form in work.forms:
            each_seed = jax.vmap(functools.partial(descend, form, sentences, words.heads))
            *after[form.name], losses[form.name] = each_seed(*state[form.name])
        return {name: tuple(each) for name, each in after.items()}, losses

    def descend(form, sentences, heads, params, moments):
        def loss_of(params):
            scores = jax.vmap(functools.partial(form.scores, params))(sentences)
            return cross_entropy(scores, heads, sentences.count)

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, moments = optimizer.update(gradient, moments)
        return optax.apply_updates(params, updates), moments, loss

    parts = jax.tree.map(
        lambda leaf: leaf.reshape(-1, work.batch_size, *leaf.shape[1:]), (maps, words)
    )
    state, losses = jax.lax.scan(step, state, parts)
    return state, {name: loss.sum(axis=0) for name, loss in losses.items()}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _answer(
    forms: tuple[Form, ...],
    reading: str,
    params: dict[str, Any],
    maps: Float[Array, 'B M T T'],
    words: Words,
    table: Float[Array, 'U V'],
) -> dict[str, Int32[Array, 'R B W']]:
    """Return the candidate with the greatest score for each word."""

    def of_sentence(one):
        sentence = _sentence(reading, table, *one)
        heads = {}
        for form in forms:
            scores = jax.vmap(form.scores, in_axes=(0, None))(params[form.name], sentence)
            heads[form.name] = _among(scores, sentence.count).argmax(axis=-1).astype(jnp.int32)
        return heads

    # One after the other: hidden units of all pairs of all sentences at once take gigabytes.
    found = jax.lax.map(of_sentence, (maps, words))
    return {name: jnp.moveaxis(each, 0, 1) for name, each in found.items()}


def cross_entropy(
    scores: Float[Array, '*some W J'], heads: Int[Array, '*some W'], count: Int[Array, '*some']
) -> Float[Array, '']:
    """Return the cross-entropy of the heads, summed over all words that have one.

    Args:
      scores: The scores of the candidates.
      heads: The gold heads; -1 where there is none among the candidates.
      count: The number of real words.
    """
    log_p = jax.nn.log_softmax(_among(scores, count), axis=-1)
    picked = jnp.take_along_axis(log_p, jnp.maximum(heads, 0)[..., None], axis=-1)[..., 0]
    return -jnp.where(heads >= 0, picked, 0).sum()


def _among(scores: Float[Array, '*some W J'], count: Int[Array, '*some']):
    """Return scores in which candidates that are padding have hardly any."""
    real = jnp.arange(scores.shape[-1]) <= count[..., None, None]
    return jnp.where(real, scores, jnp.finfo(scores.dtype).min)


def _sentence(
    reading: str, table: Float[Array, 'U V'], maps: Float[Array, 'M T T'], words: Words
) -> Sentence:
    vectors = table[words.rows]
    candidates, named = candidate_vectors(vectors, words.count, reading=reading)
    return Sentence(maps.astype(jnp.float32), vectors, candidates, named, words.count)


# What is made once


def _checked_forms(forms: Sequence[Form] | None, vectors: Vectors | None) -> tuple[Form, ...]:
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


def _initial(
    forms: Sequence[Form], sizes: Sizes, seeds: Sequence[int], learning_rate: float
) -> dict[str, tuple[Any, Any]]:
    """Return the parameters and the moments of each probe, with a leading axis of seeds."""
    state = {}
    for form in forms:
        each = [form.init(jax.random.key(seed), sizes) for seed in seeds]
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
        state[form.name] = params, jax.vmap(optax.adam(learning_rate).init)(params)
    return state


def _table(vectors: Vectors | None) -> Float[Array, 'U V']:
    return jnp.zeros((1, 0)) if vectors is None else jnp.asarray(vectors.table)


def _maps_of(pretrained: Pretrained, parts: Sequence[Part], cache_mb: float):
    """Return a function of the number of a batch that returns its maps, kept where they fit."""

    def computed(index: int) -> Float[Array, 'B M T T']:
        part = parts[index]
        return _read(pretrained.bert, pretrained.params, part.batch.inputs, part.words.pieces)

    heads = pretrained.config.num_hidden_layers * pretrained.config.num_attention_heads
    numbers = sum(part.batch.input_ids.size * part.batch.input_ids.shape[1] for part in parts)
    megabytes = numbers * heads * np.dtype(np.float16).itemsize / _MEGABYTE
    if not cache_mb:
        return computed
    if megabytes > cache_mb:
        logging.info(
            'The maps would take %.0f MB, and cache_mb=%g: they are computed in each epoch.',
            megabytes, cache_mb,
        )  # fmt: skip
        return computed
    kept: dict[int, np.ndarray] = {}

    def once(index: int) -> np.ndarray:
        if index not in kept:
            kept[index] = np.asarray(computed(index), np.float16)
        return kept[index]

    return once


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
