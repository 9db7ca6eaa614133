"""Attention maps of whole examples with their tokens, to look at."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import WORD, Encoded, tokenize
from bert_secrets_jax.data.tasks import Text, as_examples
from bert_secrets_jax.measure.words import named_words, word_maps
from bert_secrets_jax.model.weights import Pretrained, check_whole


@dataclasses.dataclass(frozen=True)
class TokenMaps:
    """Attention of all heads on one example, without padding.

    Attributes:
      tokens: The T wordpieces.
      attentions: [L, N, T, T] The maps. Rows are queries.
      second: The position of the first token of the second text; None if there is only one text.
      word: [T] The number of the word that each token belongs to; None if it is not known.
      words: The words, as they are written; None if they are not known.
    """

    tokens: Sequence[str]
    attentions: Shaped[np.ndarray, '...']
    second: int | None = None
    word: Int[np.ndarray, ' T'] | None = None
    words: Sequence[str] | None = None

    __repr__ = brief

    def __post_init__(self):
        length = len(self.tokens)
        if self.attentions.ndim != 4 or self.attentions.shape[2:] != (length, length):
            raise ValueError(
                f'Maps of {length} tokens must be [layers, heads, {length}, {length}], got '
                f'{list(self.attentions.shape)}: leave the batch and padding out.'
            )
        if (self.word is None) != (self.words is None):
            raise ValueError('Words come with their numbers: give word and words, or neither.')
        if self.word is not None and (
            len(self.word) != length or max(self.word, default=-1) >= len(self.words)
        ):
            raise ValueError(
                f'{length} tokens need as many numbers of the {len(self.words)} words.'
            )

    def of_words(self) -> 'TokenMaps':
        """Return the maps between words: to a word the sum over its tokens, from it their mean.

        Raises:
          ValueError: The words are not known.
        """
        if self.word is None:
            raise ValueError('Which words these are is not known: bs.attention_maps finds them.')
        maps = word_maps(np.asarray(self.attentions), self.word, count=len(self.words))
        second = None if self.second is None else int(self.word[self.second])
        return TokenMaps(self.words, np.asarray(maps), second)


def attention_maps(
    pretrained: Pretrained, texts: Sequence[Text], *, max_length: int = 128
) -> list[TokenMaps]:
    """Return the maps of all heads on each of a few texts.

        maps, = bs.attention_maps(pretrained, ['The cat saw itself.'])

    All maps stay in memory, L x N x T x T numbers for each text; use `collect` for a corpus.

    Args:
      pretrained: The model.
      texts: Strings, pairs of strings or examples (see `as_examples`); all single sentences, or all
        pairs.
      max_length: The greatest number of tokens. Longer inputs are cut.

    Raises:
      TypeError: The model or the texts are something else.
      ValueError: There are no texts, or single sentences are mixed with pairs.
    """
    check_whole(pretrained)
    examples = as_examples(texts)
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    found = []
    for example, maps in enumerate(each_map(pretrained, encoded, range(len(examples)))):
        ids = encoded.input_ids[example, : maps.shape[-1]].tolist()
        second = np.flatnonzero(encoded.text[example] == 1)
        texts = examples[example].text_a, examples[example].text_b
        found.append(
            TokenMaps(
                tokens=pretrained.tokenizer.convert_ids_to_tokens(ids),
                attentions=maps,
                second=int(second[0]) if len(second) else None,
                word=encoded.marks[WORD][example, : len(ids)],
                words=named_words(encoded, example, texts),
            )
        )
    return found


def each_map(
    pretrained: Pretrained, encoded: Encoded, chosen: Iterable[int]
) -> Iterator[Float[np.ndarray, 'L N _ _']]:
    """Yield the maps [L, N, T, T] of some examples, float32 and without padding.

    Args:
      pretrained: The model.
      encoded: The tokenised examples.
      chosen: The numbers of the examples.
    """
    forward = jax.jit(pretrained.bert.apply)
    longest = encoded.input_ids.shape[1]
    for example in chosen:
        length = int(encoded.lengths[example])
        # Few lengths, so few compilations.
        batch = encoded.batch(np.array([example]), min(-(-length // 16) * 16, longest))
        maps = forward({'params': pretrained.params}, **batch.inputs).attentions
        yield np.asarray(maps[0, :, :, :length, :length], np.float32)


def to_bertviz(maps: TokenMaps) -> dict:
    """Return the arguments of bertviz's `head_view` and `model_view`.

        head_view(**bs.to_bertviz(bs.attention_maps(pretrained, [text])[0]))

    Args:
      maps: The maps of one text.

    Returns:
      The arguments by name: 'attention' (a PyTorch tensor [1, N, T, T] for each layer), 'tokens'
        and 'sentence_b_start' (None for a single text).

    Raises:
      ImportError: PyTorch is not installed; bertviz needs it, too.
      TypeError: The maps of several texts are given.
    """
    if not isinstance(maps, TokenMaps):
        raise TypeError('bertviz shows one example: give one of what attention_maps returns.')
    try:
        import torch
    except ImportError as error:
        raise ImportError('bertviz takes PyTorch tensors: pip install bertviz torch.') from error
    return {
        'attention': [torch.tensor(layer)[None] for layer in np.asarray(maps.attentions)],
        'tokens': list(maps.tokens),
        'sentence_b_start': maps.second,
    }
