"""How much of each input token reaches a token through all layers: attention rollout and flow.

A layer is a matrix that says how much of token i comes from token j. Rollout multiplies the
matrices of all layers; flow asks how much could flow through them if they were pipes (Abnar and
Zuidema 2020, "Quantifying Attention Flow in Transformers").
"""

import itertools

import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
from jaxtyping import Array, Float

from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.stream import BatchMaps

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
