"""Unlabelled attachment scores (UAS) of probes: the share of the words whose head is found.

Shapes: R seeds, B sentences of a batch, M maps, T tokens, W words, U rows of the table of vectors,
V numbers of a vector, E sentences.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32

from bert_secrets_jax.checks import brief
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes import sentences
from bert_secrets_jax.probes.forms import Form, Sizes
from bert_secrets_jax.probes.sentences import Asked, SentenceWords, maps_of
from bert_secrets_jax.probes.train import Probes, checked_forms
from bert_secrets_jax.probes.vectors import Vectors
from bert_secrets_jax.progress import progress

RIGHT_BRANCHING = 'right-branching'


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Attachment:
    """How many heads each probe and each baseline finds.

    Attributes:
      words: The number of words of each sentence that count.
      right: By name, the number of those whose head is found; of 'right-branching', R is 1.
      asked: How many words the sentences have, and why some do not count.
    """

    words: Float32[np.ndarray, ' E']
    right: Mapping[str, Float32[np.ndarray, '_ E']]
    asked: Asked

    __repr__ = brief


def attach(
    pretrained: Pretrained,
    probes: Probes,
    parses: Sequence[Parse],
    *,
    vectors: Vectors | None = None,
    max_length: int | None = None,
    tokens_per_batch: int = 1024,
    what: str = 'Heads',
) -> Attachment:
    """Find the head of each word, and count those that are right, without punctuation.

    The head is the candidate with the greatest score, whatever the other words have, so that the
    heads of a sentence need not make a tree (as published). Words without a wordpiece of their own,
    or whose head has none, do not count. Arguments are as in `train_probes`.
    """
    checked_forms(probes.forms, vectors)
    table = sentences.table_of(vectors)
    sizes = Sizes(pretrained.config.num_heads, table.shape[1])
    if sizes != probes.sizes:
        raise ValueError(
            f'The probes read {probes.sizes.maps} maps and vectors of {probes.sizes.width} '
            f'numbers, and are given {sizes.maps} and {sizes.width}: give the model and the '
            'vectors that they were trained with.'
        )
    parts = sentences.prepare(pretrained, parses, max_length, tokens_per_batch, vectors)
    counts = sentences.asked(parts, parses)
    if not counts.counted:
        raise ValueError('No word of these sentences counts: all are punctuation or were cut off.')
    source = maps_of(pretrained, parts)
    words = np.zeros(len(parses), np.float32)
    seeds = {form.name: len(probes.seeds) for form in probes.forms} | {RIGHT_BRANCHING: 1}
    right = {name: np.zeros((count, len(parses)), np.float32) for name, count in seeds.items()}
    shown = progress(
        range(len(parts)), what, size=lambda index: parts[index].batch.size, unit='sentences'
    )
    for index in shown:
        part = parts[index]
        heads = _heads(
            probes.forms, probes.reading, dict(probes.params), source(index), part.words, table
        )
        heads[RIGHT_BRANCHING] = sentences.right_branching(part)[None]
        real = part.batch.example >= 0
        examples = part.batch.example[real]
        words[examples] = part.counted[real].sum(axis=-1)
        for name, each in heads.items():
            hits = (np.asarray(each) == part.words.heads) & part.counted
            right[name][:, examples] = hits[:, real].sum(axis=-1)
    return Attachment(words, right, counts)


def scores(
    right: Float32[np.ndarray, 'R E'], words: Float32[np.ndarray, ' E']
) -> tuple[Float[np.ndarray, ' R'], Float[np.ndarray, ' R']]:
    """Return the UAS of each seed, and its standard error over sentences (a linearised ratio).

    The words of a sentence are not independent: sentences are the sample. For the difference of two
    probes, give the difference of the numbers of right heads, as both are of the same sentences.
    """
    right, words = np.asarray(right, np.float64), np.asarray(words, np.float64)
    score = right.sum(axis=1) / words.sum()
    # How much a sentence moves the score, times the number of sentences.
    influence = (right - score[:, None] * words) / words.mean()
    return score, influence.std(axis=1, ddof=1) / np.sqrt(len(words))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _heads(
    forms: tuple[Form, ...],
    reading: str,
    params: dict[str, Any],
    maps: Float[Array, 'B M T T'],
    words: SentenceWords,
    table: Float[Array, 'U V'],
) -> dict[str, Int32[Array, 'R B W']]:
    """Return the candidate with the greatest score for each word."""

    def sentence_score(one):
        its_maps, its_words = one
        sentence = sentences.sentence_of(its_maps, its_words, table, reading=reading)
        heads = {}
        for form in forms:
            scores = jax.vmap(form.scores, in_axes=(0, None))(params[form.name], sentence)
            best = sentences.among_candidates(scores, sentence.count).argmax(axis=-1)
            heads[form.name] = best.astype(jnp.int32)
        return heads

    # One after the other: hidden units of all pairs of all sentences at once take gigabytes.
    of_sentences = jax.lax.map(sentence_score, (maps, words))
    return {name: jnp.moveaxis(each, 0, 1) for name, each in of_sentences.items()}
