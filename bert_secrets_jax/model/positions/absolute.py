"""Absolute positions: one embedding for each place in a text (Devlin et al. 2019, section 3).

They add a row of a table to the embedding of each wordpiece, and nothing to scores.
"""

import jax.numpy as jnp

from bert_secrets_jax.model import parts
from bert_secrets_jax.model.config import BertConfig


def added(config: BertConfig, input_ids):
    """Return the embeddings [B, T, E] of positions; [1, T, E] where all examples have the same."""
    places = jnp.arange(input_ids.shape[-1])[None, :]
    if config.family.positions_after_padding:
        written = (input_ids != config.pad_token_id).astype(jnp.int32)
        places = config.pad_token_id + written * jnp.cumsum(written, axis=-1)
    return parts.embedded(config, config.max_position_embeddings, 'position', places)
