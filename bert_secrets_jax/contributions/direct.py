"""Direct effects: the part of the logits that each head adds itself; and the logits of each layer.

The direct path of a head is the residual stream from its output to the logits. All LayerNorms on
the way have their standard deviations fixed, and each activation of the pooler, or of the masked
LM's dense layer, the slope f(x) / x. Attention and feed-forward layers above, which also read what
the head has written, are left out: what they make of it is their own part. Where LayerNorm comes
after the residual sum, as in BERT, the stream passes two of them in each layer. So the logits are a
sum of the parts of the embeddings, of all heads and feed-forward layers, and of the biases of
output projections, LayerNorms and the classifier. The biases of values are in the parts of heads.

Sources: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits" (direct effects);
nostalgebraist 2020, "interpreting GPT: the logit lens".

Shapes: B examples, L layers, N heads, R rows that logits are read from, C classes or wordpieces, D
hidden width.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.contributions.scores import margins
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure import relevance
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.heads import Head


class DirectParts(NamedTuple):
    """The parts of a weighted sum of the logits of each example, and what each layer would answer.

    Attributes:
      heads: [B, L, N] The direct part of each head.
      fed: [B, L] That of each feed-forward layer, with its biases.
      biases: [B, L + 1] That of all other biases of each layer, and of the head on the encoder.
      embeddings: [B] That of the embeddings, after their LayerNorm.
      total: [B] The weighted sum itself.
      right: [B, L, R] Whether the top logit is the right one if the output of a layer goes through
        the head as it is; False for rows that are not asked about.
    """

    heads: Float[Array, 'B L N']
    fed: Float[Array, 'B L']
    biases: Float[Array, 'B L+1']
    embeddings: Float[Array, ' B']
    total: Float[Array, ' B']
    right: Bool[Array, 'B L R']


@functools.partial(jax.jit, static_argnums=0)
def direct_parts(
    bert: Bert,
    params: Mapping[str, Any],
    batch: Batch,
    places: Int[Array, 'B R'] | None,
    targets: Int[Array, 'B R'],
) -> DirectParts:
    """Take the margin of the right answer apart: its logit less the mean of all others.

    Args:
      bert, params: A classifier of texts, or a masked LM.
      batch: The texts.
      places: The tokens that a masked LM is asked for; None for a classifier.
      targets: The right class, R = 1, or the right wordpieces, whose margins are added up; -1 is
        nothing.
    """
    config = bert.config
    output = bert.apply({'params': params}, **batch.inputs)
    weights, entered, contexts, _, _ = relevance.layers_of(config, params, output)
    if places is not None:
        entered = jnp.take_along_axis(entered, places[None, :, :, None], axis=2)
        contexts = jnp.take_along_axis(contexts, places[None, :, :, None, None], axis=2)
    elif config.classifier_pooling == 'cls':
        entered, contexts = entered[:, :, :1], contexts[:, :, :1]
    top = {name: each for name, each in params.items() if name not in ('embeddings', 'layers')}
    table = None
    if places is not None:
        tied = config.tie_word_embeddings
        table = params['embeddings']['word'] if tied else params['lm']['decoder']
    of_one = functools.partial(_parts, config, weights, top, table)
    in_axes = (1, 1, 0, 0)
    heads, fed, biases, embeddings, total, states = jax.vmap(of_one, in_axes)(
        entered, contexts, batch.attention_mask, targets
    )
    mask = batch.attention_mask if states.shape[2] > 1 and places is None else None
    words = None if places is None else params['embeddings']['word']['embedding']

    def right(states: relevance.Hidden) -> Bool[Array, 'B R']:
        logits = Head(config).apply({'params': params}, states, mask, words).logits
        assert logits is not None
        return logits.reshape(*targets.shape, -1).argmax(axis=-1) == targets

    answers = jax.lax.map(right, jnp.moveaxis(states, 1, 0))
    return DirectParts(heads, fed, biases, embeddings, total, jnp.moveaxis(answers, 0, 1))


def _parts(config: BertConfig, weights, top, table, entered, contexts, mask, targets):
    """Return the parts of one example, and the states [L, R, D] that leave its layers."""
    kernels = weights['attention']['output']['kernel']
    given = product('LRNH,LNHD->LRND', contexts, kernels)

    def fed_by(layer):
        of_layer, entered, given = layer
        return relevance.fed_forward(
            config, relevance.LINEAR, of_layer, _residual(of_layer, entered, given)
        )

    fed = jax.lax.map(fed_by, (weights, entered, given))

    def path(top, weights, first, given, fed):
        """Return the logits and the states, whose factors and what layers add are constant."""

        def step(state, layer):
            of_layer, given, fed = layer
            residual = _residual(of_layer, state, given)
            state = relevance.after_feed_forward(config, relevance.LINEAR, of_layer, residual, fed)
            return state, state

        last, left = jax.lax.scan(step, first, (weights, given, fed))
        rows = last[None], mask[None], table
        logits = relevance.classified(config, relevance.LINEAR, top, *rows)
        return logits.reshape(-1, logits.shape[-1]), left

    logits, back, left = jax.vjp(path, top, weights, entered[0], given, fed, has_aux=True)
    asked = margins(targets, logits.shape[-1]) * (targets >= 0)[:, None]
    of_top, of_weights, of_first, of_given, of_fed = back(asked)
    return (
        (of_given * given).sum(axis=(1, 3)),
        (of_fed * fed).sum(axis=(1, 2)),
        jnp.append(jax.vmap(_biases)(of_weights, weights), _biases(of_top, top)),
        (of_first * entered[0]).sum(),
        (logits * asked).sum(),
        left,
    )


def _residual(params, entered, given) -> Float[Array, 'R D']:
    bias = params['attention']['output'].get('bias')
    residual = entered + given.sum(axis=1)
    return residual if bias is None else residual + bias[None]


def _biases(gradients, params) -> Float[Array, '']:
    """Return the part of all biases among some parameters."""
    parts = jax.tree_util.tree_map_with_path(
        lambda path, slope, leaf: (slope * leaf).sum() if path[-1].key == 'bias' else 0.0,
        gradients,
        params,
    )
    return jnp.asarray(sum(jax.tree.leaves(parts)))
