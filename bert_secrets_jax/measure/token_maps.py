"""Attention maps of whole examples with their tokens, to look at."""

import dataclasses
import functools
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from bert_secrets_jax.checks import brief, check_shape, tree
from bert_secrets_jax.data.encoding import BUCKETS, Encoded
from bert_secrets_jax.measure.stream import MapsOf, learned_maps
from bert_secrets_jax.measure.words import word_maps
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained

# How the methods of scoring tokens work, in at most six words.
GLOSSES = {
    'rollout': 'attention multiplied through the layers',
    'flow': 'widest paths of attention upwards',
    'value zeroing': 'loss of one token’s value',
    'ALTI': 'closeness of moved vectors',
    'GlobEnc': 'length of moved vectors',
    'DecompX': 'follows each token through the layers',
    'gradient x input': 'slope times embedding',
    'gradient norm': 'steepness at each token',
    'integrated gradients': 'slopes on the way from [PAD]',
}


@dataclasses.dataclass(frozen=True)
class TokenMaps:
    """Attention of all heads on one example, without padding.

    Attributes:
      tokens: The T wordpieces.
      attentions: [L, N, T, T] The maps. Rows are queries.
      second: The position of the first token of the second text; None if there is only one text.
      word: [T] The number of the word that each token belongs to; None if it is not known.
      words: The words, as they are written; None if they are not known.
      further: Further maps by their kind (`attention_maps`): [L, N, T, T], or [L, 1, T, T] if all
        heads of a layer share one.
      scores: How much each token counts for the prediction, [T], by the name of the method.
      prediction: The prediction of the model, such as 'yes (0.93)'; empty if there is none.
      cut: Whether the text was longer, and cut to `max_length` tokens.
    """

    tokens: Sequence[str]
    attentions: Shaped[np.ndarray, '...']
    second: int | None = None
    word: Int[np.ndarray, ' T'] | None = None
    words: Sequence[str] | None = None
    further: Mapping[str, Shaped[np.ndarray, '...']] = dataclasses.field(default_factory=dict)
    scores: Mapping[str, Shaped[np.ndarray, '...']] = dataclasses.field(default_factory=dict)
    prediction: str = ''
    cut: bool = False

    __repr__ = brief
    _repr_html_ = tree

    def __post_init__(self):
        length = len(self.tokens)
        mend = ': leave the batch and padding out'
        of_tokens = {'queries': length, 'keys': length}
        check_shape('attentions', self.attentions, mend, layers=None, heads=None, **of_tokens)
        layers, heads = self.attentions.shape[:2]
        for kind, maps in self.further.items():
            # Those of all heads together are of one head.
            of = 1 if maps.shape[1:2] == (1,) else heads
            mend = ', as those of attention or with one head'
            check_shape(f'Maps {kind!r}', maps, mend, layers=layers, heads=of, **of_tokens)
        for method, values in self.scores.items():
            check_shape(f'Scores {method!r}', values, ', one for each token', tokens=length)
        if (self.word is None) != (self.words is None):
            raise ValueError('Words come with their numbers: give word and words, or neither.')
        if (self.word is not None and self.words is not None) and (
            len(self.word) != length or max(self.word, default=-1) >= len(self.words)
        ):
            raise ValueError(
                f'{length} tokens need as many numbers of the {len(self.words)} words.'
            )

    def of_words(self) -> 'TokenMaps':
        """Return the maps between words: to a word the sum over its tokens, from it their mean.

        The score of a word is the sum of those of its tokens.

        Raises:
          ValueError: The words are not known.
        """
        if self.word is None or self.words is None:
            raise ValueError('Which words these are is not known: bs.attention_maps finds them.')
        word, count = self.word, len(self.words)

        def of_words(maps):
            return np.asarray(word_maps(np.asarray(maps), word, count=count))

        return dataclasses.replace(
            self,
            tokens=self.words,
            attentions=of_words(self.attentions),
            second=None if self.second is None else int(self.word[self.second]),
            word=None,
            words=None,
            further={kind: of_words(maps) for kind, maps in self.further.items()},
            scores={
                method: np.bincount(self.word, values, minlength=count)
                for method, values in self.scores.items()
            },
        )


def each_kind(
    pretrained: Pretrained,
    encoded: Encoded,
    chosen: Iterable[int],
    kinds: Mapping[str, MapsOf] = types.MappingProxyType({'weights': learned_maps}),
) -> Iterator[dict[str, Float[np.ndarray, 'L _ _ _']]]:
    """Yield maps of several kinds, by name, of some examples, float32 and without padding."""
    for example in chosen:
        length = int(encoded.lengths[example])
        # Few lengths, so few compilations.
        padded = next((each for each in BUCKETS if each >= length), length)
        batch = encoded.batch(
            np.array([example]), min(padded, max(length, pretrained.config.max_length))
        )
        of_kinds = _all_kinds(pretrained.bert, tuple(kinds.items()), pretrained.params, batch)
        yield {
            kind: np.asarray(maps[0, :, :, :length, :length], np.float32)
            for kind, maps in of_kinds.items()
        }


@functools.partial(jax.jit, static_argnums=(0, 1))
def _all_kinds(bert: Bert, kinds: tuple[tuple[str, MapsOf], ...], params, batch):
    return {kind: maps_of(bert, params, batch) for kind, maps_of in kinds}


def to_bertviz(maps: TokenMaps) -> dict:
    """Return the arguments of bertviz's `head_view` and `model_view`, from the maps of one text.

        head_view(**bs.to_bertviz(bs.attention_maps(pretrained, [text])[0]))

    Returns:
      The arguments by name: 'attention' (a PyTorch tensor [1, N, T, T] for each layer), 'tokens'
        and 'sentence_b_start' (None for a single text).

    Raises:
      ImportError: PyTorch is not installed; bertviz needs it, too.
      TypeError: The maps of several texts are given.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError('bertviz takes PyTorch tensors: pip install bertviz torch.') from error
    return {
        'attention': [torch.tensor(layer)[None] for layer in np.asarray(maps.attentions)],
        'tokens': list(maps.tokens),
        'sentence_b_start': maps.second,
    }
