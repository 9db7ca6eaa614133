"""Parsed sentences in batches, with all that probes read of them: words, gold heads and maps.

Words without wordpieces of their own are left out: they are neither asked for nor candidates. The
others are numbered anew, and heads are numbers of candidates: 0 is ROOT, n + 1 is word n.

Shapes: B rows of a batch, T positions, W = T - 2 words, M maps, J candidates, U rows of the table
of vectors, V numbers of a vector.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Bool, Float, Int, Int32

from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.data.encoding import WORD, Batch, bucket
from bert_secrets_jax.data.treebank import Parse, encode_parses
from bert_secrets_jax.measure.words import word_maps
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.probes.forms import Sentence, candidate_vectors
from bert_secrets_jax.probes.vectors import Vectors

# The part of speech that does not count in evaluation.
PUNCTUATION = 'PUNCT'


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SentenceWords:
    """The words of the sentences of a batch.

    Attributes:
      pieces: [B, T] The number of the word of each wordpiece; W for [CLS] and W + 1 for [SEP]; else
        -1.
      heads: [B, W] The number of the candidate that governs a word; -1 if it is none, and on
        padding.
      rows: [B, W] The row of each word in the table of vectors.
      count: [B] The number of words.
    """

    pieces: Any
    heads: Any
    rows: Any
    count: Any


@dataclasses.dataclass(frozen=True)
class SentenceBatch:
    """A batch of sentences."""

    batch: Batch
    words: SentenceWords
    # Whether the head of a word counts in evaluation: among the candidates, and no punctuation.
    counted: Bool[np.ndarray, 'B W']


@dataclasses.dataclass(frozen=True)
class Asked:
    """How many words there are, and why the heads of some are not asked for.

    Cut words have no wordpiece of their own; a headless one's head has none.
    """

    words: int
    cut: int
    headless: int
    punctuation: int

    @property
    def counted(self) -> int:
        """The number of words that count in evaluation."""
        return self.words - self.cut - self.headless - self.punctuation


def prepare(
    pretrained: Pretrained,
    parses: Sequence[Parse],
    max_length: int | None,
    tokens_per_batch: int,
    vectors: Vectors | None = None,
    batch_multiple: int = 1,
) -> list[SentenceBatch]:
    """Tokenise sentences and group them into batches by length."""
    check_whole(pretrained)
    if not all(isinstance(parse, Parse) for parse in parses):
        raise TypeError(
            'Probes learn from sentences with dependency trees: give what '
            'bert_secrets_jax.data.treebank.read_treebank returns.'
        )
    check_enough('sentences', parses)
    batches = bucket(
        encode_parses(pretrained.tokenizer, parses, max_length=max_length),
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
        batch_multiple=batch_multiple,
    )
    return [_part(batch, parses, vectors) for batch in batches]


def asked(parts: Sequence[SentenceBatch], parses: Sequence[Parse]) -> Asked:
    """Count the words of all batches, and of the sentences they were made from."""
    words = sum(len(parse.words) for parse in parses)
    present = sum(int(part.words.count.sum()) for part in parts)
    headed = sum(int((part.words.heads >= 0).sum()) for part in parts)
    counted = sum(int(part.counted.sum()) for part in parts)
    return Asked(words, words - present, present - headed, headed - counted)


def _part(batch: Batch, parses: Sequence[Parse], vectors: Vectors | None) -> SentenceBatch:
    rows, length = batch.input_ids.shape
    width = length - 2
    pieces = np.full((rows, length), -1, np.int32)
    pieces[batch.marks['cls']] = width
    pieces[batch.marks['sep']] = width + 1
    heads = np.full((rows, width), -1, np.int32)
    in_table = np.zeros((rows, width), np.int32)
    counted = np.zeros((rows, width), bool)
    count = np.zeros(rows, np.int32)
    for row, example in enumerate(batch.example):
        if example < 0:
            continue
        parse, of_row = parses[example], batch.marks[WORD][row]
        kept = np.unique(of_row[of_row >= 0])
        pieces[row, of_row >= 0] = np.searchsorted(kept, of_row[of_row >= 0])
        # The candidate that each word of the treebank is; ROOT's number, -1, takes the last place.
        candidates = np.full(len(parse.words) + 1, -1, np.int32)
        candidates[kept], candidates[-1] = np.arange(1, len(kept) + 1), 0
        count[row] = len(kept)
        heads[row, : len(kept)] = candidates[np.array(parse.heads, np.int32)[kept]]
        if vectors is not None:
            in_table[row, : len(kept)] = vectors.rows([parse.forms[word] for word in kept])
        spoken = np.array([parse.classes[word] != PUNCTUATION for word in kept], bool)
        counted[row, : len(kept)] = spoken & (heads[row, : len(kept)] >= 0)
    return SentenceBatch(batch, SentenceWords(pieces, heads, in_table, count), counted)


def right_branching(part: SentenceBatch) -> Int32[np.ndarray, 'B W']:
    """Return the candidate that is the word after each word; -1 for the last one."""
    place = np.arange(part.words.heads.shape[1])
    return np.where(place + 1 < part.words.count[:, None], place + 2, -1).astype(np.int32)


def maps_of(
    pretrained: Pretrained, parts: Sequence[SentenceBatch], *, cache_mb: float | int = 0
) -> Callable[[int], Float[Array | np.ndarray, 'B M T T']]:
    """Return a function of the number of a batch that returns the maps of its sentences.

    All maps are kept, as float16, for the next time if they take at most `cache_mb` megabytes.
    """

    def computed(index: int) -> Float[Array, 'B M T T']:
        part = parts[index]
        return _read(pretrained.bert, pretrained.params, part.batch.inputs, part.words.pieces)

    if not cache_mb:
        return computed
    pairs = sum(part.batch.input_ids.size * part.batch.input_ids.shape[1] for part in parts)
    megabytes = pairs * pretrained.config.num_heads * np.dtype(np.float16).itemsize / 2**20
    if megabytes > cache_mb:
        logging.info(
            'The maps would take %.0f MB, and cache_mb=%g: they are computed in each epoch.',
            megabytes, cache_mb,
        )  # fmt: skip
        return computed
    return functools.cache(lambda index: np.asarray(computed(index), np.float16))


def table_of(vectors: Vectors | None) -> Float[Array, 'U V']:
    """Return the table of the vectors; one without numbers if there are no vectors."""
    return jnp.zeros((1, 0)) if vectors is None else jnp.asarray(vectors.table)


def sentence_of(
    maps: Float[Array, 'M T T'], words: SentenceWords, table: Float[Array, 'U V'], *, reading: str
) -> Sentence:
    """Return all that probes read of one sentence."""
    vectors = table[words.rows]
    candidates, named = candidate_vectors(vectors, words.count, reading=reading)
    return Sentence(maps.astype(jnp.float32), vectors, candidates, named, words.count)


def among_candidates(
    scores: Float[Array, '*some W J'], count: Int[Array, '']
) -> Float[Array, '*some W J']:
    """Return the scores of one sentence, in which padding has the least possible one."""
    real = jnp.arange(scores.shape[-1]) <= count
    return jnp.where(jnp.broadcast_to(real, scores.shape), scores, jnp.finfo(scores.dtype).min)


@functools.partial(jax.jit, static_argnums=0)
def _read(
    bert: Bert, params: Any, inputs: Mapping[str, Any], pieces: Int32[Array | np.ndarray, 'B T']
) -> Float[Array, 'B M T T']:
    """Return the maps between words, [CLS] and [SEP] of the sentences of a batch."""
    maps = bert.apply({'params': params}, **inputs).attentions
    maps = maps.reshape(maps.shape[0], -1, *maps.shape[3:]).astype(jnp.float32)
    return jax.vmap(functools.partial(word_maps, count=maps.shape[-1]))(maps, pieces)
