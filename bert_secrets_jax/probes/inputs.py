"""The inputs of probes, from a frozen model: one forward pass gives the maps of all heads.

Shapes: B sentences of a batch, M maps, T tokens, W words, J candidates, U rows of the table of
vectors, V numbers of a vector.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jaxtyping import Array, Float, Int, Int32

from bert_secrets_jax.measure.words import word_maps
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.probes.forms import Sentence, candidate_vectors
from bert_secrets_jax.probes.sentences import Part, Words
from bert_secrets_jax.probes.vectors import Vectors

_MEGABYTE = 2**20


def maps_of(
    pretrained: Pretrained, parts: Sequence[Part], *, cache_mb: float | int = 0
) -> Callable[[int], Float[Array | np.ndarray, 'B M T T']]:
    """Return a function of the number of a batch that returns the maps of its sentences.

    At most `cache_mb` megabytes of maps are kept, as float16, for the next time that they are asked
    for. Where all of them would take more, none is kept.
    """

    def computed(index: int) -> Float[Array, 'B M T T']:
        part = parts[index]
        return _read(pretrained.bert, pretrained.params, part.batch.inputs, part.words.pieces)

    if not cache_mb:
        return computed
    pairs = sum(part.batch.input_ids.size * part.batch.input_ids.shape[1] for part in parts)
    megabytes = pairs * pretrained.config.num_heads * np.dtype(np.float16).itemsize / _MEGABYTE
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
    maps: Float[Array, 'M T T'], words: Words, table: Float[Array, 'U V'], *, reading: str
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
