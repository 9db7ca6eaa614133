"""The vectors that each layer of a model moved between tokens, read off a forward pass.

A head gives token i the sum over tokens j of `map_ij moved_j`, where `moved_j = (x_j W_V + b_V)
W_O` is what it would give to a token that attends to j alone (Kobayashi et al. 2020, equation 3).
Only the maps say how much of it arrives.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.relevance import LINEAR, Hidden, dense, layers_of, values_of
from bert_secrets_jax.model.bert import Bert, BertOutput, check_has_all_heads
from bert_secrets_jax.model.config import BertConfig


@flax.struct.dataclass
class Attended:
    """The attention of one layer, taken apart.

    Attributes:
      entered: The input of the layer, which stays on the residual stream.
      moved: The vector from each head to a token that attends to one token alone.
      given: The vector from each head to each token: the sum of `maps` times `moved`.
      residual: Input plus output of attention, with its bias, before any LayerNorm.
    """

    entered: Hidden
    maps: Float[Array, 'B N T S']
    moved: Float[Array, 'B S N D']
    given: Float[Array, 'B T N D']
    residual: Hidden


def each_layer(
    of_layer: Callable, bert: Bert, params: Mapping[str, Any], output: BertOutput
) -> Any:
    """Make something of the attention of each layer, and hold only one layer's `moved` at a time.

    `of_layer` takes the parameters of a layer and its `Attended`, and returns a tree of arrays [B,
    ...]; these come as [B, L, ...]. The output is of a batch, without a mask over heads.
    """
    config = bert.config
    check_has_all_heads(config)

    def step(_, layer):
        of_params, *passed = layer
        return None, of_layer(of_params, attended(config, of_params, *passed))

    _, made = jax.lax.scan(step, None, layers_of(config, params, output))
    return jax.tree.map(lambda each: jnp.moveaxis(each, 0, 1), made)


def attended(config: BertConfig, params, entered, contexts, maps, normed) -> Attended:
    """Take the attention of a layer apart; its contexts come before the output projection."""
    output = params['attention']['output']
    values = values_of(config, LINEAR, params, entered, normed)
    attention = dense(LINEAR, 'BTNH,NHD->BTD', output, contexts)
    return Attended(
        entered=entered,
        maps=maps,
        moved=product('BSNH,NHD->BSND', values, output['kernel']),
        given=product('BTNH,NHD->BTND', contexts, output['kernel']),
        residual=entered + attention,
    )
