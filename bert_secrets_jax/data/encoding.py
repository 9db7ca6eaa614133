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
    if not examples:
        raise ValueError('There are no examples to encode.')
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
    edges = [*sorted(edge for edge in buckets if edge < max_length), max_length]
    by_length: dict[int, list[int]] = {}
    for index, ids in enumerate(encoded['input_ids']):
        padded = next(edge for edge in edges if edge >= len(ids))
        by_length.setdefault(padded, []).append(index)
    batches = []
    for length, members in sorted(by_length.items()):
        # As few batches as the limit allows, and all of one size: hardly a row is filler.
        most = max(tokens_per_batch // length // batch_multiple, 1) * batch_multiple
        rows = -(-len(members) // -(-len(members) // most))
        rows = -(-rows // batch_multiple) * batch_multiple
        for start in range(0, len(members), rows):
            batches.append(_pad(tokenizer, encoded, members[start : start + rows], rows, length))
    return batches


def _pad(tokenizer, encoded, members: list[int], rows: int, length: int) -> Batch:
    def stack(name: str, fill: int) -> np.ndarray:
        array = np.full((rows, length), fill, np.int32)
        for row, index in enumerate(members):
            values = encoded[name][index]
            array[row, : len(values)] = values
        return array

    input_ids = stack('input_ids', tokenizer.pad_token_id)
    attention_mask = stack('attention_mask', 0)
    # Of the template only: a "[SEP]" that somebody wrote in a text is not one of BERT's.
    special = stack('special_tokens_mask', 0) * attention_mask == 1
    example = np.full(rows, -1, np.int32)
    example[: len(members)] = members
    return Batch(
        input_ids=input_ids,
        token_type_ids=stack('token_type_ids', 0),
        attention_mask=attention_mask,
        marks={
            'token': attention_mask == 1,
            'cls': special & (input_ids == tokenizer.cls_token_id),
            'sep': special & (input_ids == tokenizer.sep_token_id),
        },
        example=example,
    )
