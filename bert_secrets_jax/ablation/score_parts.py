"""The parts of attention scores in DeBERTa: what each attends to alone, and what it is needed for.

Axes besides those of `model/attention.py`: P parts, which `config.score_parts` names. A part has
the scale that it has in the sum. Source: He et al. 2021, "DeBERTa", equations 2 and 4.
"""

import dataclasses
import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bert_secrets_jax.ablation.layers import Static, embed
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.brief import brief
from bert_secrets_jax.data.encoding import Batch, in_order, listed, to_one_length
from bert_secrets_jax.devices import fetch
from bert_secrets_jax.model import attention, encoder
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import MASKED_LM, BertConfig
from bert_secrets_jax.model.parts import applied, matmul_precision
from bert_secrets_jax.model.weights import Pretrained, check_whole


@dataclasses.dataclass(frozen=True)
class ScoreParts:
    """The parts of the scores of one batch.

    Attributes:
      names: The P parts: 'c2c', 'c2p', 'p2c', of content and position, where the query comes first.
      scores: The summands of the scores before softmax, in logits. At padding they mean nothing.
      maps: The maps that a head would have by one part alone, of the same inputs to its layer.
      shares: The share of each part in the variance of the scores over the keys that a query sees,
        pooled over queries: its covariance with the sum. Shares sum to 1, and one is negative where
        a part works against the others.
    """

    names: tuple[str, ...]
    scores: Float[np.ndarray, 'B L P N T S']
    maps: Float[np.ndarray, 'B L P N T S']
    shares: Float[np.ndarray, 'L P N']

    __repr__ = brief


def score_parts(pretrained: Pretrained, batch: Batch) -> ScoreParts:
    """Take the scores of a DeBERTa apart; ValueError if those of the model have one part alone."""
    check_whole(pretrained)
    config = pretrained.config
    if len(config.score_parts) == 1:
        raise ValueError(f'Scores of this model ({config.summary}) have one part alone.')
    return ScoreParts(config.score_parts, *fetch(_parts(pretrained.bert, pretrained.params, batch)))


def distance_preferences(
    pretrained: Pretrained, *, reach: int = 16
) -> Float[np.ndarray, 'L N offset']:
    """Return how the heads prefer distances, read off the weights without any text.

    Entries are scores before softmax for key minus query from -`reach` to `reach`: a difference of
    two is one of log odds. MPNet has them as they stand, the same in all layers. Those of DeBERTa
    hang on content; given are those of a neutral token, for which the LayerNorm below the layer
    hands on its bias alone. No text has such tokens: `score_parts` has the scores of a text.

    ValueError if the model has no scores of distances, or not so many positions.
    """
    check_whole(pretrained)
    config, params = pretrained.config, pretrained.params
    if len(config.score_parts) == 1 and not config.family.relative_buckets:
        raise ValueError(f'Scores of this model ({config.summary}) do not hang on distances.')
    if not 0 < reach < config.max_length:
        raise ValueError(f'{reach=} must be from 1 to {config.max_length - 1}.')
    ids = np.ones((1, reach + 1), np.int32)
    batch = Batch(ids, 0 * ids, ids, {}, np.zeros(1, np.int32))
    if config.family.relative_buckets:
        bias = fetch(embed(Static(config, 'zero'), params['embeddings'], batch)[1].bias)[0]
        scores = np.broadcast_to(bias, (config.num_hidden_layers, *bias.shape[1:]))
    else:
        below = params['embeddings']['norm']['bias'][None]
        below = jnp.concatenate([below, params['layers']['output_norm']['bias'][:-1]])
        if config.conv_kernel_size:
            below = below.at[1:2].set(params['layers']['conv_norm']['bias'][:1])
        states = jnp.broadcast_to(below[:, None, None], (len(below), *ids.shape, below.shape[1]))
        scores = fetch(_scores(config, params, batch, states)[0])[:, 0, 1:].sum(axis=1)
    return np.concatenate([scores[..., ::-1, 0], scores[..., 0, 1:]], axis=-1)


def sweep_parts(
    pretrained: Pretrained, batches: Iterable[Batch], masks: Float[np.ndarray, 'M L P N']
) -> Swept:
    """Compute the logits of every example under masks over parts, such as `bs.masks.single_parts`.

    A mask multiplies the scores: 1 keeps a part of a head, 0 disables it. Each costs a pass.
    ValueError if the model has no head, or one of a masked LM, or the masks do not fit.
    """
    check_whole(pretrained)
    config, batches = pretrained.config, list(listed(batches))
    if not config.has_head or config.head == MASKED_LM:
        raise ValueError(f'A sweep over parts compares classes or embeddings: {config.summary}.')
    masks = np.asarray(masks, np.float32)
    logits = (fetch(_logits(pretrained.bert, pretrained.params, each, masks)) for each in batches)
    order = [batch.example for batch in batches]
    return Swept(masks, in_order(order, to_one_length(logits), axis=1))


@functools.partial(jax.jit, static_argnums=0)
def _logits(bert: Bert, params, batch: Batch, masks):
    run = functools.partial(bert.apply, {'params': params}, **batch.inputs)
    return jax.lax.map(lambda mask: run(part_mask=mask).logits, masks)


@functools.partial(jax.jit, static_argnums=0)
def _scores(config: BertConfig, params, batch: Batch, entered):
    """Return the parts [L, B, P, N, T, S] of scores of what enters the layers, and their maps."""
    _, scopes = embed(Static(config, 'zero'), params['embeddings'], batch)

    def of_layer(layer):
        weights, kind, hidden = layer
        scope = encoder.scope_of(scopes, kind)

        def make(name, x):
            return applied(encoder.project(config), weights['attention'][name], x)

        read = applied(encoder.AttentionInput(config), weights, hidden, scope.normed)
        query, key = (make(name, read) for name in ('query', 'key'))
        seen = encoder.with_distances(config, scope, make)
        found = attention.score_parts(query, key, seen, precision=matmul_precision(config))
        found = jnp.stack(list(found.values()), axis=1)
        alone = jax.vmap(lambda part: attention.masked_softmax(part, scope), 1, 1)(found)
        return found, alone

    kinds = jnp.array(encoder.kinds_of_layers(config))
    return jax.lax.map(of_layer, (params['layers'], kinds, entered))


@functools.partial(jax.jit, static_argnums=0)
def _parts(bert: Bert, params, batch: Batch):
    output = bert.apply({'params': params}, **batch.inputs)
    entered = jnp.moveaxis(output.hidden_states[:, :-1], 1, 0)
    scores, maps = (
        jnp.moveaxis(each, 0, 1) for each in _scores(bert.config, params, batch, entered)
    )
    seen = attention.Scope(attention.visible_keys(batch.attention_mask))
    weights = attention.uniform_probabilities(seen)[:, None, None]
    centred = scores - (scores * weights).sum(axis=-1, keepdims=True)
    real = batch.attention_mask * (batch.example >= 0)[:, None]
    counted = weights * real[:, None, None, None, :, None]
    shared = (centred * centred.sum(axis=2, keepdims=True) * counted).sum(axis=(0, 4, 5))
    return scores, maps, shared / shared.sum(axis=1, keepdims=True)
