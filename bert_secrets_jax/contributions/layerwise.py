"""How much of each token comes from each token in one layer, and through all: rollout and flow.

A layer is a matrix that says how much of token i comes from token j. Rollout multiplies the
matrices of all layers; flow asks how much could flow through them if they were pipes (Abnar and
Zuidema 2020, "Quantifying Attention Flow in Transformers").

Value zeroing, ALTI and GlobEnc each give a matrix [B, L, T, S] of every layer whose rows sum to 1
and in which what stays on the residual stream is part of the diagonal. Value zeroing and ALTI
multiply these (`rollout`); GlobEnc multiplies norms as they are (`globenc` with `shares=False`).
Where LayerNorm stands before attention (ESM, ModernBERT), value zeroing compares the stream after
the layer, and ALTI and GlobEnc that after attention; the LayerNorm is part of what tokens give.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.contributions.norms import Attended, each_layer, norm_map, pair_norms
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.relevance import LINEAR, Hidden, fed_forward, normed_by
from bert_secrets_jax.measure.stream import BatchMaps
from bert_secrets_jax.model.bert import Bert, BertOutput
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.encoder import RestOfLayer
from bert_secrets_jax.model.parts import applied, unchanged

# The unit of whole capacities: they are right to 5e-10, and sums up to 1 fit 32 bits.
_UNIT = 2.0**-30


def attention_graph(attentions: BatchMaps) -> Float[Array, 'B L T S']:
    """Return the matrix of each layer for rollout and flow: (A + I) / 2, A the mean over heads.

    I is the residual stream, which counts as much as attention (Abnar and Zuidema 2020).
    """
    identity = jnp.eye(attentions.shape[-1])
    return (attentions.mean(axis=2) + identity[None, None]) / 2


def rollout(matrices: Float[Array, 'B L T S']) -> Float[Array, 'B L T S']:
    """Return the product of the matrices up to each layer; the last is that of the whole encoder.

    Rows that sum to 1 in all matrices do so in the products. The identity is not added: what stays
    on the residual stream must be part of the matrices, as in `attention_graph`.
    """
    products = itertools.accumulate(
        jnp.moveaxis(matrices, 1, 0), lambda below, matrix: product('BTK,BKS->BTS', matrix, below)
    )
    return jnp.stack(list(products), axis=1)


def flow(
    matrices: Float[np.ndarray, 'L T T'], read: Float[np.ndarray, ' T']
) -> Float[np.ndarray, ' T']:
    """Return the maximum flow from what is read at the top to each input token of one example.

    Every token of every layer is a node, and token i of a layer is joined to token j of the layer
    below by a pipe of the capacity that the matrix of the layer has at i and j. Each input token
    alone is the sink once, so that the flows need not add up to 1. There is no padding.
    """
    layers, length, _ = matrices.shape
    # Node 0 is the source; then come the tokens from the top down.
    places = 1 + np.arange((layers + 1) * length).reshape(layers + 1, length)
    above = np.broadcast_to(places[:-1, :, None], matrices.shape)
    below = np.broadcast_to(places[1:, None], matrices.shape)
    starts = np.concatenate([np.zeros(length, int), above.ravel()])
    ends = np.concatenate([places[0], below.ravel()])
    capacities = np.concatenate([read, matrices[::-1].ravel()])
    whole = np.rint(np.asarray(capacities, np.float64) / _UNIT).astype(np.int32)
    graph = scipy.sparse.csr_array((whole, (starts, ends)), shape=(places.max() + 1,) * 2)
    graph.eliminate_zeros()
    flows = [
        scipy.sparse.csgraph.maximum_flow(graph, 0, sink).flow_value for sink in places[-1].tolist()
    ]
    return np.array(flows) * _UNIT


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
