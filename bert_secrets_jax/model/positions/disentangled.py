"""DeBERTa's disentangled attention: scores have summands for the distance of query and key.

It adds nothing to embeddings. A table of distances is projected to keys and to queries, in each
layer: in 'c2p' a query meets the key of its distance, in 'p2c' a key meets the query of its
distance (He et al. 2021, "DeBERTa", equation 4). The product of query and key is 'c2c'.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_secrets_jax.model import parts
from bert_secrets_jax.model.config import BertConfig


def embedded_distances(config: BertConfig) -> Float[Array, 'K D'] | None:
    """Return the embeddings of all distances, for all layers; None where a model has none."""
    if not config.relative_attention:
        return None
    rows = 2 * config.distances[0]
    table = parts.embedded(config, rows, 'distance', jnp.arange(rows), config.hidden_size)
    if config.norm_rel_ebd == 'layer_norm':
        table = parts.layer_norm(config, 'distance_norm')(table)
    return table.astype(config.array_dtype)


def distance_rows(length: int, span: int, buckets: int, longest: int) -> Int[np.ndarray, 'T S']:
    """Return the row of each distance, query minus key, in DeBERTa's table of 2 * `span` rows.

    Distances up to half the `buckets` have rows of their own; longer ones share rows by their
    logarithm (He et al. 2021, "DeBERTa", equation 3, and its version 2). Below 1, none share.
    """
    distance = np.arange(length)[:, None] - np.arange(length)
    middle = buckets // 2
    if 0 < middle < length - 1:
        # In float32, as in PyTorch: a logarithm may fall on a bound between two buckets.
        far = np.maximum(np.abs(distance), middle).astype(np.float32) / np.float32(middle)
        grown = np.log(far) / np.log(np.float32((longest - 1) / middle)) * np.float32(middle - 1)
        grown = (np.ceil(grown) + middle).astype(int) * np.sign(distance)
        distance = np.where(np.abs(distance) <= middle, distance, grown)
    return np.clip(distance + span, 0, 2 * span - 1)


def with_distances(config: BertConfig, scope: Any, make: Callable[[str, Any], Any]) -> Any:
    """Return the scope of a layer with the keys and queries of distances (`attention.Scope`).

    `make` projects by a layer that is named: by one of its own, or by that of content.
    """
    if scope.distances is None:
        return scope
    rows = distance_rows(scope.visible.shape[-1], *config.distances)
    seen = scope.distances[rows.min() : rows.max() + 1]
    own = '' if config.share_att_key else 'distance_'
    return dataclasses.replace(
        scope,
        keys=make(f'{own}key', seen) if 'c2p' in config.pos_att_type else None,
        queries=make(f'{own}query', seen) if 'p2c' in config.pos_att_type else None,
        rows=jnp.asarray(rows - rows.min()),
    )


def parts_of_distance(einsum: Callable[..., Any], query, key, scope: Any) -> dict[str, Any]:
    """Return the summands [B, N, T, S] of scores for distance, by name, before they are scaled."""
    summands, count = {}, query.shape[1]
    if scope.keys is not None:
        of_rows = einsum('BTNH,KNH->BNTK', query, scope.keys)
        summands['c2p'] = jnp.take_along_axis(of_rows, scope.rows[None, None, :count], axis=-1)
    if scope.queries is not None:
        of_rows = einsum('BSNH,KNH->BNSK', key, scope.queries)
        of_keys = jnp.take_along_axis(of_rows, scope.rows[:count].T[None, None], axis=-1)
        summands['p2c'] = jnp.swapaxes(of_keys, -1, -2)
    return summands
