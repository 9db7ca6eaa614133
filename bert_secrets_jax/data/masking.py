"""Hide wordpieces from a masked LM, and keep what they were.

Shapes: E texts, B rows of a batch, R rows of all batches, K hidden wordpieces of a row, T
positions.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from bert_secrets_jax.checks import brief
from bert_secrets_jax.data.encoding import WORD, Batch, bucket, check_tokens, tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.ranges import Part, check_ranges


@dataclasses.dataclass(frozen=True)
class Masking:
    """Which wordpieces of a text are hidden.

    Attributes:
      share: The share of the wordpieces of a text that are replaced by [MASK]: 15 % as in BERT's
        training (Devlin et al. 2019, section 3.1), but all of them by [MASK], and at least one.
      one_at_a_time: Whether every wordpiece is hidden instead, each in a copy of the text of its
        own. Their log-probabilities add up to the pseudo-log-likelihood of the text (Salazar et al.
        2020, "Masked language model scoring"). It costs a forward pass for each wordpiece.
      seed: The seed of the draw, which depends on the place among the texts, not on batches.
      rest_of_word: Whether, with `one_at_a_time`, the wordpieces to the right in the same word are
        replaced, too, though not asked for. Otherwise the end of a rare word gives its beginning
        away (PLL-word-l2r of Kauf and Ivanova 2023, "A better way to do masked language model
        scoring").
    """

    share: Part = 0.15
    one_at_a_time: bool = False
    seed: int = 0
    rest_of_word: bool = False

    def __post_init__(self):
        if self.rest_of_word and not self.one_at_a_time:
            raise ValueError('rest_of_word=True needs one_at_a_time=True.')
        check_ranges(self)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class MaskedBatch(Batch):
    """A batch with [MASK] in place of some wordpieces.

    Attributes:
      places: [B, K] int32 The positions of these wordpieces; 0 where a row has fewer than K.
      words: [B, K] int32 The wordpieces that were there; -1 where a row has fewer than K.
    """

    places: Any
    words: Any

    __repr__ = brief


@dataclasses.dataclass(frozen=True)
class MaskedTexts:
    """Texts with hidden wordpieces, in batches, whose `example` counts rows.

    `text` has the number of the text of each row, `hidden` how many wordpieces it hides.
    """

    batches: Sequence[MaskedBatch]
    text: Int[np.ndarray, ' R']
    hidden: Int[np.ndarray, ' R']

    __repr__ = brief


def mask_words(
    tokenizer,
    texts: Sequence[Text],
    *,
    masking: Masking | None = None,
    max_length: int | None = None,
    tokens_per_batch: int = 2048,
    buckets: Sequence[int] | None = None,
    batch_multiple: int = 1,
) -> MaskedTexts:
    """Tokenise texts, replace some wordpieces by [MASK], and group the texts into batches.

    Special tokens and [UNK] are never hidden: a model is not asked for them. A text without any
    other wordpiece is an error that names it. Without `masking`, the defaults of `Masking` are
    taken; other arguments and errors are as in `encode`.

    Raises:
      TypeError: The texts or the tokenizer are something else.
      ValueError: The tokenizer has no [MASK], there are no texts, or a text has no wordpiece that
        could be hidden. The error names it.
    """
    masking = masking or Masking()
    encoded = tokenize(tokenizer, texts, max_length=max_length)
    check_tokens(tokenizer, 'mask_token')
    mask = tokenizer.mask_token_id
    kept = (encoded.text >= 0) & ~encoded.special
    if tokenizer.unk_token_id is not None:
        kept &= encoded.input_ids != tokenizer.unk_token_id
    if not kept.any(axis=1).all():
        example = as_examples(texts)[int(np.flatnonzero(~kept.any(axis=1))[0])]
        raise ValueError(
            f'{example.place or repr(example.text_a)} has no wordpiece that can be hidden, only '
            'special ones and [UNK]: leave it out, or look at the tokenizer.'
        )
    text, places = _hidden(masking, kept)
    words = np.where(places >= 0, np.take_along_axis(encoded.input_ids[text], places, axis=1), -1)
    input_ids = encoded.input_ids[text].copy()
    rows, columns = np.nonzero(places >= 0)
    input_ids[rows, places[rows, columns]] = mask
    if masking.rest_of_word:
        word = encoded.marks[WORD][text]
        same = word == np.take_along_axis(word, places, axis=1)
        input_ids[same & (np.arange(word.shape[1]) > places)] = mask
    batches = bucket(
        dataclasses.replace(encoded.take(text), input_ids=input_ids),
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
        buckets=buckets,
        batch_multiple=batch_multiple,
    )
    masked = []
    for batch in batches:
        rows = np.asarray(batch.example)
        real = (rows >= 0)[:, None]
        # All batches of one length have as many columns.
        most = min(places.shape[1], math.ceil(masking.share * batch.input_ids.shape[1]))
        found = np.where(real, np.maximum(places[rows, :most], 0), 0).astype(np.int32)
        there = np.where(real, words[rows, :most], -1).astype(np.int32)
        masked.append(MaskedBatch(**vars(batch), places=found, words=there))
    return MaskedTexts(masked, text, (places >= 0).sum(axis=1))


def _hidden(
    masking: Masking, kept: Bool[np.ndarray, 'E T']
) -> tuple[Int[np.ndarray, ' R'], Int[np.ndarray, 'R K']]:
    """Return the number of the text of each row, and the hidden positions; -1 fills them up."""
    if masking.one_at_a_time:
        text, places = np.nonzero(kept)
        return text, places[:, None]
    counts = [max(1, round(masking.share * each)) for each in kept.sum(axis=1)]
    places = np.full((len(kept), max(counts)), -1)
    for text, count in enumerate(counts):
        rng = np.random.default_rng([masking.seed, text])
        drawn = rng.choice(np.flatnonzero(kept[text]), count, replace=False)
        places[text, :count] = np.sort(drawn)
    return np.arange(len(kept)), places
