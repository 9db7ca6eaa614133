"""Maps of words, from maps of wordpieces (Clark et al. 2019, section 4.1).

The attention to a word is the sum over its wordpieces, and the attention from it their mean, so
that rows still sum to 1. Axes: T positions, W words.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_secrets_jax.data.encoding import WORD, Encoded
from bert_secrets_jax.measure.exact import product


def word_maps(
    maps: Float[Array | np.ndarray, '*any T T'],
    words: Int[Array | np.ndarray, ' T'],
    *,
    count: int | None = None,
) -> Float[Array, '*any W W']:
    """Return maps between words of one text, or pair of texts.

    Args:
      maps: Maps between wordpieces, such as those of all layers and heads of one example.
      words: The number of the word that each wordpiece belongs to, from 0, as `Batch.marks['word']`
        has it; a negative number belongs to none, as padding does.
      count: The number of words W, which `jax.jit` needs; None takes the greatest number and 1.

    Raises:
      ValueError: The maps are no squares of as many positions as there are numbers.
    """
    if maps.ndim < 2 or maps.shape[-2:] != (len(words),) * 2:
        raise ValueError(
            f'Maps must be [..., {len(words)}, {len(words)}], as many positions as numbers of '
            f'words, got {list(maps.shape)}.'
        )
    if count is None:
        count = int(np.max(words, initial=-1)) + 1
    maps = jnp.asarray(maps)
    member = jax.nn.one_hot(jnp.asarray(words), count, dtype=maps.dtype)
    to_words = product('...TS,SW->...TW', maps, member)
    share = member / jnp.maximum(member.sum(axis=0, keepdims=True), 1)
    return product('TV,...TW->...VW', share, to_words)


def named_words(encoded: Encoded, example: int, texts: tuple[str, str | None]) -> list[str]:
    """Return the words of one example, as they are written, for the axes of a map.

    They are in the order of their numbers; '' stands for a number that no wordpiece has.
    """
    numbers = encoded.marks[WORD][example]
    tokens: list[Any] = encoded.tokenizer.convert_ids_to_tokens(encoded.input_ids[example].tolist())

    def word(number: int) -> str:
        places = np.flatnonzero(numbers == number)
        if not len(places):
            # A word of a treebank that shares its wordpieces with the word before.
            return ''
        which = encoded.text[example, places[0]]
        if which < 0:
            return tokens[places[0]]
        start, end = encoded.offsets[example, places[0], 0], encoded.offsets[example, places[-1], 1]
        return texts[which][start:end]

    return [word(number) for number in range(int(numbers.max(initial=-1)) + 1)]
