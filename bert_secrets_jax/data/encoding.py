"""Texts to padded batches: few shapes, so few compilations, and little padding."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from bert_secrets_jax.data.tasks import Example

BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Encoded examples of one padded length, as NumPy arrays.

    Attributes:
      input_ids: [B, T] int32 wordpieces: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], then [PAD].
      token_type_ids: [B, T] int32, 0 up to the first [SEP], 1 after it.
      attention_mask: [B, T] int32, 1 on real tokens.
      marks: name to [B, T] bool; 'token' (all real ones), 'cls' and 'sep' are always there.
      example: [B] int32, which of the encoded examples this is; -1 marks a filler row.
    """

    input_ids: Any
    token_type_ids: Any
    attention_mask: Any
    marks: dict[str, Any]
    example: Any

    @property
    def inputs(self) -> dict[str, Any]:
        """The arguments of the model."""
        return {
            'input_ids': self.input_ids,
            'token_type_ids': self.token_type_ids,
            'attention_mask': self.attention_mask,
        }

    @property
    def lengths(self):
        """[B] number of real tokens."""
        return self.attention_mask.sum(axis=-1)

    @property
    def size(self) -> int:
        """Number of examples, without fillers."""
        return int((np.asarray(self.example) >= 0).sum())


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Tokenised examples, from which batches of any rows and padded length are cut.

    Attributes:
      input_ids, token_type_ids: [E, T] int32, padded to the longest.
      special: [E, T] bool, [CLS] and [SEP] of the template. A "[SEP]" that somebody wrote in a text
        is not among them.
      lengths: [E] number of tokens.
      tokenizer: that made them.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    special: np.ndarray
    lengths: np.ndarray
    tokenizer: Any

    def batch(self, examples: np.ndarray, length: int) -> Batch:
        """Return the given examples padded to a length; -1 makes an empty row.

        Args:
          examples: [B] indices.
          length: must hold the longest of them.
        """
        examples = np.asarray(examples, np.int32)
        cut = lambda array: _fit(array[examples], length)
        real = (np.arange(length) < self.lengths[examples, None]) & (examples >= 0)[:, None]
        input_ids = np.where(real, cut(self.input_ids), self.tokenizer.pad_token_id)
        special = cut(self.special) & real
        return Batch(
            input_ids=input_ids.astype(np.int32),
            token_type_ids=np.where(real, cut(self.token_type_ids), 0).astype(np.int32),
            attention_mask=real.astype(np.int32),
            marks={
                'token': real,
                'cls': special & (input_ids == self.tokenizer.cls_token_id),
                'sep': special & (input_ids == self.tokenizer.sep_token_id),
            },
            example=examples,
        )


def _fit(array: np.ndarray, length: int) -> np.ndarray:
    """Cut or pad the second axis."""
    array = array[:, :length]
    return np.pad(array, ((0, 0), (0, length - array.shape[1])))


def tokenize(tokenizer, examples: Sequence[Example], *, max_length: int = 128) -> Encoded:
    """Tokenise examples.

    Args:
      tokenizer: a fast tokenizer of `transformers`.
      examples: all single sentences, or all pairs.
      max_length: longer inputs are cut, the longer text first; a log line says how many.

    Raises:
      ValueError: no examples, or single sentences mixed with pairs.
    """
    if not examples:
        raise ValueError('There are no examples to encode.')
    if max_length < 5:
        raise ValueError(f'{max_length=} has no room for [CLS] A [SEP] B [SEP].')
    singles = [example.id for example in examples if example.text_b is None]
    if 0 < len(singles) < len(examples):
        raise ValueError(
            f'{len(singles)} of {len(examples)} examples have one text and the others two '
            f'(the first such is {singles[0]}): encode them apart.'
        )
    encoded = tokenizer(
        [example.text_a for example in examples],
        None if singles else [example.text_b for example in examples],
        truncation='longest_first',
        max_length=max_length,
        return_special_tokens_mask=True,
    )
    cut = sum(bool(encoding.overflowing) for encoding in encoded.encodings)
    if cut:
        logging.info('%d of %d examples were cut to %d tokens.', cut, len(examples), max_length)
    lengths = np.array([len(ids) for ids in encoded['input_ids']], np.int32)

    def stack(name: str) -> np.ndarray:
        array = np.zeros((len(examples), lengths.max()), np.int32)
        for row, values in enumerate(encoded[name]):
            array[row, : len(values)] = values
        return array

    return Encoded(
        input_ids=stack('input_ids'),
        token_type_ids=stack('token_type_ids'),
        special=stack('special_tokens_mask') == 1,
        lengths=lengths,
        tokenizer=tokenizer,
    )


def padded_lengths(buckets: Sequence[int], max_length: int) -> np.ndarray:
    """Return the lengths that batches are padded to, in ascending order, up to `max_length`."""
    return np.array([*sorted(edge for edge in buckets if edge < max_length), max_length])


def encode(
    tokenizer,
    examples: Sequence[Example],
    *,
    max_length: int = 128,
    tokens_per_batch: int = 2048,
    buckets: Sequence[int] = BUCKETS,
    batch_multiple: int = 1,
) -> list[Batch]:
    """Tokenise examples and group them into batches by length, the short ones first.

    All batches of one length have the same number of rows (the last one is filled up with empty
    rows), so a jitted function compiles once per length that occurs.

    Args:
      tokenizer: a fast tokenizer of `transformers`.
      examples: all single sentences, or all pairs.
      max_length: longer inputs are cut, the longer text first; a log line says how many.
      tokens_per_batch: rows times padded length; on a CPU small batches stay in its cache.
      buckets: padded lengths; those above `max_length` are not used.
      batch_multiple: rows are a multiple of this, such as the number of devices.

    Raises:
      ValueError: no examples, or single sentences mixed with pairs.
    """
    encoded = tokenize(tokenizer, examples, max_length=max_length)
    edges = padded_lengths(buckets, max_length)
    bucket = edges[np.searchsorted(edges, encoded.lengths)]
    batches = []
    for length in np.unique(bucket):
        members = np.flatnonzero(bucket == length)
        # As few batches as the limit allows, and all of one size: hardly a row is filler.
        most = max(tokens_per_batch // length // batch_multiple, 1) * batch_multiple
        rows = -(-len(members) // -(-len(members) // most))
        rows = -(-rows // batch_multiple) * batch_multiple
        count = -(-len(members) // rows)
        members = np.pad(members, (0, count * rows - len(members)), constant_values=-1)
        batches += [encoded.batch(part, int(length)) for part in members.reshape(count, rows)]
    return batches
