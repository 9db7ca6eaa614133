"""Attention maps of whole examples with their tokens: what a person looks at, not a statistic."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import jax
import numpy as np

from bert_secrets_jax.data.encoding import Encoded, tokenize
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.model.weights import Pretrained


@dataclasses.dataclass(frozen=True)
class TokenMaps:
    """Attention of all heads on one example, without padding.

    Attributes:
      tokens: T wordpieces.
      attentions: [L, N, T, T] float32, rows are queries.
      second: position of the first token of the second text; None for a single one.
    """

    tokens: Sequence[str]
    attentions: np.ndarray
    second: int | None = None

    def __post_init__(self):
        length = len(self.tokens)
        if self.attentions.ndim != 4 or self.attentions.shape[2:] != (length, length):
            raise ValueError(
                f'Maps of {length} tokens must be [layers, heads, {length}, {length}], got '
                f'{list(self.attentions.shape)}: leave the batch and padding out.'
            )


def attention_maps(
    pretrained: Pretrained, examples: Sequence[Example], *, max_length: int = 128
) -> list[TokenMaps]:
    """Return the maps of all heads on each example.

    Everything is kept, L x N x T x T numbers for each: meant for a few examples. Statistics of a
    corpus are `collect`'s.

    Args:
      pretrained: the model.
      examples: all single sentences, or all pairs.
      max_length: longer inputs are cut.
    """
    encoded = tokenize(pretrained.tokenizer, examples, max_length=max_length)
    found = []
    for example, maps in enumerate(each_map(pretrained, encoded, range(len(examples)))):
        ids = encoded.input_ids[example, : maps.shape[-1]].tolist()
        second = np.flatnonzero(encoded.text[example] == 1)
        found.append(
            TokenMaps(
                tokens=pretrained.tokenizer.convert_ids_to_tokens(ids),
                attentions=maps,
                second=int(second[0]) if len(second) else None,
            )
        )
    return found


def each_map(
    pretrained: Pretrained, encoded: Encoded, chosen: Iterable[int]
) -> Iterator[np.ndarray]:
    """Yield the maps [L, N, T, T] of the chosen examples, float32 and without padding."""
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

        head_view(**bs.to_bertviz(bs.attention_maps(pretrained, [example])[0]))

    Returns:
      'attention' (for each layer a PyTorch tensor [1, N, T, T]), 'tokens' and 'sentence_b_start'.

    Raises:
      ImportError: without PyTorch, which bertviz needs too.
      TypeError: for the maps of several examples.
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
