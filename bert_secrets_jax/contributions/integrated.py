"""Integrals along the straight path from a reference to a text: gradients of what a model says.

The path goes from the word embeddings of a reference to those of the text. The reference is the
text with [PAD] in the place of all tokens but the special ones, which are read as if they were
real. So do Captum's tutorials on BERT and Moeller et al. 2024 (arXiv 2402.02883). Unlike [MASK],
every tokenizer has it, and no family gives it a meaning that a prediction could follow.

Integrals are sums over the nodes of Gauss and Legendre, which need far fewer steps than sums over
equal ones.

Shapes: B examples, T tokens, D hidden width, E width of the embeddings, P steps.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.relevance import Hidden
from bert_secrets_jax.model.bert import Bert, check_no_convolution
from bert_secrets_jax.model.encoder import Embeddings, Layer, kinds_of_layers
from bert_secrets_jax.model.heads import Head
from bert_secrets_jax.model.intervention import Intervention
from bert_secrets_jax.ranges import Range

STEPS = 32  # the default of all that is integrated
Steps = Annotated[int, Range(1, 1_000_000)]  # points on the path


def integral(of: Callable[[Array], Any], steps: int) -> Any:
    """Return the integral from 0 to 1 of a function with a tree of arrays, one point at a time."""
    places, shares = np.polynomial.legendre.leggauss(steps)
    nodes = jnp.float32((1 + places) / 2), jnp.float32(shares / 2)

    def step(total, node):
        return jax.tree.map(lambda sum, each: sum + node[1] * each, total, of(node[0])), None

    shapes = jax.eval_shape(of, nodes[0][0])
    start = jax.tree.map(lambda each: jnp.zeros(each.shape, jnp.float32), shapes)
    return jax.lax.scan(step, start, nodes)[0]


def reference_ids(bert: Bert, batch: Batch) -> Int[Array, 'B T']:
    """Return the wordpieces [B, T] of the reference, which the module defines."""
    special = jnp.asarray(batch.marks['cls'] | batch.marks['sep'])
    return jnp.where(special, batch.input_ids, bert.config.pad_token_id)


def integrated_gradients(
    bert: Bert,
    params: Mapping[str, Any],
    batch: Batch,
    weights: Float[Array, 'B C'],
    *,
    steps: int = STEPS,
) -> tuple[Float[Array, 'B T'], Float[Array, ' B']]:
    """Return the integrated gradients of the weighted logits at the embedding of each token.

    They sum to the weighted logits of the text less those of the reference, which are returned as
    well, up to an error that falls with the number of steps. Positions, segments and what is
    padding stay those of the text. In ESM, [PAD] is a zero vector before a LayerNorm, which jumps
    there: the error stays.

    Source: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks", section 3.
    """
    table = params['embeddings']['word']['embedding'].astype(jnp.float32)
    start = table[reference_ids(bert, batch)]
    path = table[batch.input_ids] - start

    def values(embedded: Array) -> Array:
        # Where positions are read from the wordpieces, they are those of the text.
        output = bert.apply({'params': params}, **batch.inputs, inputs_embeds=embedded)
        assert output.logits is not None
        return (output.logits * weights).sum(axis=-1)

    def slopes(share):
        return jax.grad(lambda embedded: values(embedded).sum())(start + share * path)

    change = values(start + path) - values(start)
    return (integral(slopes, steps) * path).sum(axis=-1), change


def embedded(bert: Bert, params: Mapping[str, Any], batch: Batch) -> tuple[Array, Any]:
    """Return the hidden states [B, T, D] that enter the first layer, and the scopes of layers."""
    check_no_convolution(bert.config)
    return Embeddings(bert.config).apply(
        {'params': params['embeddings']}, **batch.inputs, example_ids=None, deterministic=True
    )


def logits_from(
    bert: Bert, params: Mapping[str, Any], batch: Batch, scopes: Any, hidden: Hidden, first: int = 0
) -> Float[Array, 'B C']:
    """Return the logits, or embeddings, of a batch if `hidden` enters the layer `first`, from 0."""
    config = bert.config

    def layer(hidden, of_layer):
        weights, kind = of_layer
        state = Layer(config).apply({'params': weights}, hidden, kind, Intervention(), scopes, None)
        return state[0], None

    above = jax.tree.map(lambda leaf: leaf[first:], params['layers'])
    kinds = jnp.array(kinds_of_layers(config)[first:])
    hidden, _ = jax.lax.scan(layer, hidden, (above, kinds))
    logits = Head(config).apply({'params': params}, hidden, batch.attention_mask).logits
    assert logits is not None
    return logits
