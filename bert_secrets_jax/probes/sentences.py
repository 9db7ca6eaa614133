"""Parsed sentences in batches, with the words and the gold heads that probes read.

Words without wordpieces of their own are left out: they are neither asked for nor candidates. The
others are numbered anew, and heads are numbers of candidates: 0 is ROOT, n + 1 is word n.

Shapes: B rows of a batch, T positions, W = T - 2 words.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int32

from bert_secrets_jax.data.encoding import WORD, Batch, bucket
from bert_secrets_jax.data.treebank import Parse, encode_parses
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.probes.vectors import Vectors

# The part of speech that does not count in evaluation.
PUNCTUATION = 'PUNCT'


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Words:
    """The words of the sentences of a batch.

    Attributes:
      pieces: [B, T] The number of the word that each wordpiece belongs to; W for [CLS] and W + 1
        for [SEP]; -1 on padding and on wordpieces of no word.
      heads: [B, W] The number of the candidate that governs a word; -1 if it is none of them, and
        on padding.
      rows: [B, W] The row of each word in the table of vectors.
      count: [B] The number of words.
    """

    pieces: Any
    heads: Any
    rows: Any
    count: Any


@dataclasses.dataclass(frozen=True)
class Part:
    """A batch of sentences."""

    batch: Batch
    words: Words
    # Whether the head of a word counts in evaluation: among the candidates, and no punctuation.
    counted: Bool[np.ndarray, 'B W']

    @property
    def size(self) -> int:
        """The number of sentences, without filler rows."""
        return self.batch.size


@dataclasses.dataclass(frozen=True)
class Asked:
    """How many words are asked for, and why others are not.

    Attributes:
      words: The number of all words of the sentences.
      cut: The number of those without a wordpiece of their own.
      headless: The number of the others whose head has none.
      punctuation: The number of marks of punctuation among the rest, which count in training only.
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
    *,
    vectors: Vectors | None = None,
    max_length: int = 128,
    tokens_per_batch: int = 1024,
    batch_multiple: int = 1,
) -> list[Part]:
    """Tokenise sentences and group them into batches by length.

    The number of rows is a multiple of `batch_multiple`.

    Raises:
      TypeError: The model or the sentences are something else.
      ValueError: There are no sentences.
    """
    check_whole(pretrained)
    if not all(isinstance(parse, Parse) for parse in parses):
        raise TypeError(
            'Probes learn from sentences with dependency trees: give what '
            'bert_secrets_jax.data.treebank.read_treebank returns.'
        )
    if not len(parses):
        raise ValueError('There are no sentences.')
    encoded = encode_parses(pretrained.tokenizer, parses, max_length=max_length)
    batches = bucket(
        encoded,
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
        batch_multiple=batch_multiple,
    )
    return [_part(batch, parses, vectors) for batch in batches]


def asked(parts: Sequence[Part], parses: Sequence[Parse]) -> Asked:
    """Count the words of all batches, and of the sentences they were made from."""
    words = sum(len(parse.words) for parse in parses)
    present = sum(int(part.words.count.sum()) for part in parts)
    headed = sum(int((part.words.heads >= 0).sum()) for part in parts)
    counted = sum(int(part.counted.sum()) for part in parts)
    return Asked(words, words - present, present - headed, headed - counted)


def _part(batch: Batch, parses: Sequence[Parse], vectors: Vectors | None) -> Part:
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
    return Part(batch, Words(pieces, heads, in_table, count), counted)


def right_branching(part: Part) -> Int32[np.ndarray, 'B W']:
    """Return the candidate that is the word after each word; -1 for the last one."""
    place = np.arange(part.words.heads.shape[1])
    return np.where(place + 1 < part.words.count[:, None], place + 2, -1).astype(np.int32)
