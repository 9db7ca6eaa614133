"""How much of each token comes from each token in one layer: value zeroing, ALTI and GlobEnc.

Each gives a matrix [B, L, T, S] of every layer whose rows sum to 1 and in which what stays on the
residual stream is part of the diagonal. Value zeroing and ALTI multiply these (`rollout`); GlobEnc
multiplies norms as they are (`globenc` with `shares=False`). Where LayerNorm stands before
attention (ESM, ModernBERT), value zeroing compares the stream after the layer, and ALTI and GlobEnc
that after attention; the LayerNorm is part of what tokens give.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.contributions.layers import Attended, each_layer
from bert_secrets_jax.contributions.norms import norm_map, pair_norms
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.relevance import LINEAR, Hidden, fed_forward, normed_by
from bert_secrets_jax.model.bert import Bert, BertOutput
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.encoder import RestOfLayer
from bert_secrets_jax.model.parts import applied, unchanged


def _in_each_layer(
    of_layer: Callable[[BertConfig, Mapping[str, Any], Attended], Float[Array, 'B T S']],
) -> Callable[..., Float[Array, 'B L T S']]:
    """Apply a method to all layers, with rows that sum to 1 and nothing from padding.

    Without `shares`, rows sum to 1 only on average over a layer: one factor for all of its rows
    keeps products over layers finite.
    """

    def in_model(
        bert: Bert, params, output: BertOutput, attention_mask: Shaped[Array, 'B T'], *, shares=True
    ):
        def rows(of_params, attended):
            mixed = of_layer(bert.config, of_params, attended) * attention_mask[:, None]
            total = mixed.sum(axis=-1, keepdims=True)
            scale = total if shares else total.mean(axis=-2, keepdims=True)
            # A token whose output hangs on no value keeps what it is.
            kept = jnp.eye(mixed.shape[-1])[None]
            return jnp.where(total > 0, mixed / jnp.where(total > 0, scale, 1), kept)

        return each_layer(rows, bert, params, output)

    in_model.__name__, in_model.__doc__ = of_layer.__name__, of_layer.__doc__
    return in_model


@_in_each_layer
def value_zeroing(config: BertConfig, params, attended: Attended):
    """Return how far each token of a layer's output turns when the values of a token become zero.

    That is 1 - cos of the angle between the outputs of the layer at i with all values and without
    that of token j in any head, as a share of the row (Mohebbi et al. 2023, "Quantifying Context
    Mixing in Transformers"). As in the published code, the bias is part of the value. It takes as
    long as about a forward pass for each token; memory does not grow with them.
    """
    rest = functools.partial(applied, RestOfLayer(config), params)
    whole = _directions(rest(attended.residual))

    def without(token):
        lost = product('BNT,BND->BTD', attended.maps[..., token], attended.moved[:, token])
        # Half the squared distance of the directions is 1 - cos, without its cancellation.
        return jnp.square(_directions(rest(attended.residual - lost)) - whole).sum(axis=-1) / 2

    # One token at a time: a batch fills the device.
    turns = jax.lax.map(without, jnp.arange(attended.maps.shape[-1]))
    return jnp.moveaxis(turns, 0, -1)


def _directions(x: Hidden) -> Hidden:
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


@_in_each_layer
def alti(config: BertConfig, params, attended: Attended):
    """Return how much of the distance of a token from zero goes without the part of each token.

    After attention, residual and LayerNorm, y_i is the sum of parts T_i(x_j) and of biases. The
    contribution of j is max(0, ||y_i|| - ||y_i - T_i(x_j)||) in the norm L1, as a share of the row
    (Ferrando et al. 2022, "Measuring the Mixing of Contextual Information in the Transformer"). As
    in the published code, the bias of values is part of T, and y has the biases of the output
    projection and of LayerNorm, which no T has. Both divide by the standard deviation of the model;
    before 4 March 2023, the code took that of a sample. The code measures distances with PyTorch's
    `pairwise_distance`, which adds 1e-6 to each difference.
    """
    residual = attended.residual
    linear, whole, deviation = unchanged, residual, jnp.ones_like(residual[..., :1])
    if not config.family.norm_first:
        linear = norm_map(params['attention_norm'])
        whole = normed_by(config, LINEAR, params['attention_norm'], residual)
        deviation = _deviation(config, residual)

    def contribution(token):
        parts = product('BNS,BSND->BSD', attended.maps[:, :, token], attended.moved)
        parts = linear(parts.at[:, token].add(attended.entered[:, token]))
        parts = parts / deviation[:, token, None]
        without = jnp.abs(whole[:, token, None] - parts).sum(axis=-1)
        return jnp.maximum(jnp.abs(whole[:, token]).sum(axis=-1, keepdims=True) - without, 0)

    return jnp.moveaxis(jax.lax.map(contribution, jnp.arange(residual.shape[1])), 0, 1)


def _deviation(config: BertConfig, x: Hidden) -> Float[Array, 'B T 1']:
    """Return the number that LayerNorm divides by."""
    return jnp.sqrt(x.var(axis=-1, keepdims=True) + config.layer_norm_eps)


@_in_each_layer
def globenc(config: BertConfig, params, attended: Attended):
    """Return the norms of what each token has of each token after both LayerNorms of a layer.

    Both residuals are there, and of the feed-forward layer what it does to the standard deviation
    (Modarressi et al. 2022, "GlobEnc"). Over layers, the paper multiplies norms and not shares.
    """
    if config.family.norm_first:
        return pair_norms(attended, residual=True)
    first, second = norm_map(params['attention_norm']), norm_map(params['output_norm'])
    norms = pair_norms(attended, lambda x: second(first(x)), residual=True)
    residual = attended.residual
    normed = normed_by(config, LINEAR, params['attention_norm'], residual)
    fed = normed + fed_forward(config, LINEAR, params, residual)
    return norms / (_deviation(config, residual) * _deviation(config, fed))


LAYERWISE = {'value zeroing': value_zeroing, 'ALTI': alti, 'GlobEnc': globenc}
