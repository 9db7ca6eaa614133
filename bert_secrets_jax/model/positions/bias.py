"""A bias of the scores for the distance of query and key: learned (MPNet) or fixed (ALiBi).

It adds nothing to embeddings, and one number to each score, the same in all layers.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_secrets_jax.model import parts
from bert_secrets_jax.model.config import BertConfig


def of_scores(config: BertConfig, length: int) -> Float[Array, '1 N T S'] | None:
    """Return what is added to the scores of each head; None where a model adds nothing."""
    heads, buckets = config.num_attention_heads, config.family.relative_buckets
    if buckets:
        rows = jnp.asarray(distance_buckets(length, buckets))
        learned = parts.embedded(config, buckets, 'relative_position', rows, heads)
        return jnp.moveaxis(learned, -1, 0)[None]
    if config.position_embedding_type == 'alibi':
        return jnp.asarray(fall_with_distance(length, heads))
    return None


def distance_buckets(length: int, buckets: int, farthest: int = 128) -> Int[np.ndarray, 'T S']:
    """Return the bucket of each distance between query and key (Raffel et al. 2020, section 2.1).

    Half are for keys after the query. In each half, the first half holds one distance each, the
    others grow with its logarithm up to `farthest`, and all beyond share the last.
    """
    # In NumPy, since the logarithm of a device may round a distance into the bucket before.
    distance = np.arange(length) - np.arange(length)[:, None]
    half = buckets // 2
    exact = half // 2
    far = np.log(np.maximum(np.abs(distance), 1) / exact) / np.log(farthest / exact)
    grown = np.minimum(exact + (far * (half - exact)).astype(int), half - 1)
    bucket = np.where(np.abs(distance) < exact, np.abs(distance), grown)
    return bucket + np.where(distance > 0, half, 0)


def fall_with_distance(length: int, heads: int) -> Float[np.ndarray, '1 N T S']:
    """Return what is added to scores for distance: less, the farther the key (ALiBi).

    Source: Press et al. 2022, "Train short, test long", section 3, on both sides of the query. Up
    to a power of two, slopes of heads are the paper's. Those beyond are every other one of twice as
    many heads, as in its authors' code.
    """
    near = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / near) for head in range(near)]
    slopes += [2.0 ** (-4 * (2 * head + 1) / near) for head in range(heads - near)]
    distance = np.abs(np.arange(length) - np.arange(length)[:, None])
    return -(np.array(slopes, np.float32)[:, None, None] * distance.astype(np.float32))[None]
