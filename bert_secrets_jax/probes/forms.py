"""Probes that find the governor of each word, as pure functions of their parameters.

Clark et al. 2019, section 5. A probe gives each word of a sentence a score for each candidate, and
the probability that the candidate governs the word is the softmax of these. The encoder is frozen.

The paper says neither how ROOT is scored nor what the features of distance are: both are as in the
published code. There, ROOT has no word vectors, and its attention is that to [CLS] and to [SEP],
added up with two learnt scalars that all maps share.

There, too, the vectors of the dummy for ROOT stand behind those of the words, while its map stands
before the maps of the words. So the candidate at place j is scored with the vector of the word
after it, and the last one without any. Here each has its own, unless `reading='notebook'`.

Shapes: L layers, N heads, M = L x N maps, W words (padded), T = W + 2 tokens (the words, then [CLS]
and [SEP]), J = W + 1 candidates (ROOT, then the words), V numbers of a word vector, F features of
distance, K hidden units, A = 2 directions (from a word to its candidate, and back).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Params = Mapping[str, Any]
DISTANCES = 8
_HIDDEN = 256
# The candidates whose distance to a word is a feature of its own, in words.
_NEAR = (0, -1, 1, -2, 2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Sentence:
    """All that a probe reads of one sentence.

    Attributes:
      maps: [M, T, T] The attention between the words, [CLS] and [SEP]; rows are queries.
      vectors: [W, V] The vector of each word; V is 0 if there are none.
      candidates: [J, V] The vector of each candidate.
      named: [J] Whether a candidate has a vector of its own, be it one of zeros: ROOT has none.
      count: [] The number of real words.
    """

    maps: Any
    vectors: Any
    candidates: Any
    named: Any
    count: Any


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The numbers of maps, and of numbers in a word vector, on which parameters depend."""

    maps: int
    width: int


@dataclasses.dataclass(frozen=True)
class Form:
    """A probe without its parameters.

    `init` makes them of a key and the sizes. `scores` makes the scores [W, J] of them and a
    sentence; those of padding may be anything.
    """

    name: str
    init: Callable[[Array, Sizes], Params]
    scores: Callable[[Params, Sentence], Float[Array, 'W J']]
    reads_maps: bool = True
    reads_words: bool = False


def candidate_vectors(
    vectors: Float[Array, 'W V'], count: Int[Array, ''], *, reading: str = 'paper'
) -> tuple[Float[Array, 'J V'], Bool[Array, ' J']]:
    """Return the vectors of the candidates, and whether they have one.

    The reading 'paper' gives each candidate its own vector and ROOT none; 'notebook' gives each the
    vector of the word behind it, and the last word none, as the published code does.
    """
    place = jnp.arange(len(vectors) + 1)
    real = jnp.where((place < count)[:-1, None], vectors, 0)
    none = jnp.zeros_like(vectors[:1])
    if reading == 'paper':
        return jnp.concatenate([none, real]), (place >= 1) & (place <= count)
    return jnp.concatenate([real, none]), place < count


def distance_features(words: int, count: Int[Array, '']) -> Float[Array, 'W J F']:
    """Return the published features of the place of a candidate relative to a word.

    They are the distance to a later candidate, and to an earlier one, as shares of the sentence;
    whether it is the word itself, or one or two words away; and ROOT, which has no others.
    """
    place = jnp.arange(words)
    offset = place[None, :] - place[:, None]
    share = offset / jnp.maximum(count, 1)
    features = [jnp.maximum(share, 0), jnp.maximum(-share, 0)]
    features += [(offset == near).astype(share.dtype) for near in _NEAR]
    features.append(jnp.zeros_like(share))
    root = jnp.zeros((words, 1, DISTANCES), share.dtype).at[..., -1].set(1)
    return jnp.concatenate([root, jnp.stack(features, axis=-1)], axis=1)


def _attention_init(key: Array, sizes: Sizes) -> Params:
    maps, root = jax.random.split(key)
    return {
        'maps': _glorot(maps, (2, sizes.maps), 2 * sizes.maps, 2 * sizes.maps),
        'root': _glorot(root, (2,), 1, 1),
    }


def _attention_scores(params: Params, sentence: Sentence) -> Float[Array, 'W J']:
    """p(i|j) of Clark et al. 2019, section 5.1, for i the candidates of word j.

    It weighs the attention to the candidate by w_k and that from it by u_k, for each head k.
    """
    between, with_root = _parts(sentence.maps, params['root'])
    words = jnp.einsum('AM,AMIJ->IJ', params['maps'], between)
    root = jnp.einsum('AM,AMI->I', params['maps'], with_root)
    return jnp.concatenate([root[:, None], words], axis=1)


def _attention_words_init(key: Array, sizes: Sizes) -> Params:
    kernel, root = jax.random.split(key)
    # One dense layer there, from both vectors to the weights of all maps in both directions.
    shape = 2, 2, sizes.width, sizes.maps
    return {
        'kernel': _glorot(kernel, shape, 2 * sizes.width, 2 * sizes.maps),
        'bias': jnp.zeros((2, sizes.maps)),
        'root': _glorot(root, (2,), 1, 1),
    }


def _attention_words_scores(params: Params, sentence: Sentence) -> Float[Array, 'W J']:
    """The same sum, where the weight of each map is linear in both word vectors.

    W_k . (v_i + v_j as one vector) is a sum of two products, one for each word. So the weights are
    computed for words, [W, M] and [J, M], and never for pairs. As in the published code and not in
    the paper, the weights have a bias, which is all that ROOT has.
    """
    # The kernel is [A, which of the two vectors, V, M].
    of_word = jnp.einsum('IV,AVM->AIM', sentence.vectors, params['kernel'][:, 0])
    of_candidate = jnp.einsum('JV,AVM->AJM', sentence.candidates, params['kernel'][:, 1])
    of_candidate += params['bias'][:, None]
    between, with_root = _parts(sentence.maps, params['root'])
    named = sentence.named.astype(between.dtype)
    by_word = jnp.einsum('AMIJ,AIM->IJ', between, of_word)
    by_candidate = jnp.einsum('AMIJ,AJM->IJ', between, of_candidate[:, 1:])
    of_root = of_word * named[0] + of_candidate[:, :1]
    root = jnp.einsum('AMI,AIM->I', with_root, of_root)
    return jnp.concatenate([root[:, None], by_word * named[None, 1:] + by_candidate], axis=1)


def _distances_words_init(key: Array, sizes: Sizes) -> Params:
    hidden, output = jax.random.split(key)
    # There, a map of zeros is one more feature. It has no effect but on the scale of the weights.
    rows = DISTANCES + 2 * sizes.width
    return {
        'hidden': _glorot(hidden, (rows, _HIDDEN), rows + 1, _HIDDEN),
        'hidden_bias': jnp.zeros(_HIDDEN),
        'output': _glorot(output, (_HIDDEN,), _HIDDEN, 1),
    }


def _distances_words_scores(params: Params, sentence: Sentence) -> Float[Array, 'W J']:
    """The baseline without attention: a hidden layer over both vectors and their distance."""
    words, width = sentence.vectors.shape
    distance, of_word, of_candidate = jnp.split(params['hidden'], [DISTANCES, DISTANCES + width])
    named = sentence.named.astype(sentence.vectors.dtype)
    hidden = distance_features(words, sentence.count) @ distance
    hidden += jnp.einsum('IK,J->IJK', sentence.vectors @ of_word, named)
    hidden += (sentence.candidates @ of_candidate)[None]
    hidden = jnp.tanh(hidden + params['hidden_bias'][None, None])
    # A bias of the output would change no probability.
    return hidden @ params['output']


def _parts(
    maps: Float[Array, 'M T T'], root: Float[Array, ' 2']
) -> tuple[Float[Array, 'A M W W'], Float[Array, 'A M W']]:
    """Return the maps from words to words and back, and what stands for those with ROOT."""
    both = jnp.stack([maps, jnp.swapaxes(maps, -1, -2)])[:, :, :-2]
    return both[..., :-2], jnp.einsum('AMIC,C->AMI', both[..., -2:], root)


def _glorot(key: Array, shape: tuple[int, ...], fan_in: int, fan_out: int) -> Float[Array, '...']:
    """Glorot's uniform distribution, TensorFlow's default, for the fans of the published shapes."""
    limit = (6 / (fan_in + fan_out)) ** 0.5
    return jax.random.uniform(key, shape, minval=-limit, maxval=limit)


ATTENTION = Form('attention', _attention_init, _attention_scores)
ATTENTION_WORDS = Form(
    'attention and words', _attention_words_init, _attention_words_scores, reads_words=True
)
DISTANCES_WORDS = Form(
    'distances and words',
    _distances_words_init,
    _distances_words_scores,
    reads_maps=False,
    reads_words=True,
)
FORMS = (ATTENTION, ATTENTION_WORDS, DISTANCES_WORDS)
