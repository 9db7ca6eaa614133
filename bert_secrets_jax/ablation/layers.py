"""A layer of BERT in the pieces that a sweep runs: what masks share, and what is left per mask.

Axes besides those of `model/attention.py`: R rows, that is, examples times masks (the masks of one
example side by side), and J heads that a mask changes in one layer.

A disabled head is a change of the layer's output: its context, the map times the values, becomes
that of the baseline, which is the mean of the values ('uniform') or 0 ('zero').
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from bert_secrets_jax.model import attention
from bert_secrets_jax.model.bert import (
    Embeddings,
    RestOfLayer,
    dense,
    matmul_precision,
    pooler_activation,
)
from bert_secrets_jax.model.config import BertConfig


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the pieces are compiled for.

    Attributes:
      config: of the model.
      baseline: of disabled heads, one of `attention.BASELINES`.
    """

    config: BertConfig
    baseline: str


def _piece(function):
    return functools.partial(jax.jit, static_argnums=0)(function)


@_piece
def embed(setting: Setting, params, batch):
    """Return the hidden states [B, T, D] that enter the first layer."""
    embeddings = Embeddings(setting.config)
    return embeddings.apply(
        {'params': params},
        batch.input_ids,
        batch.token_type_ids,
        None,
        deterministic=True,
    )


@_piece
def run_layer(setting: Setting, params, hidden, attention_mask, head_mask):
    """Run a whole layer.

    Args:
      setting: model and baseline.
      params: of this layer.
      hidden: [R, T, D].
      attention_mask: [B, T].
      head_mask: [R, N], or None to keep all heads.
    """
    attention_mask = _per_row(attention_mask, len(hidden))
    context, baseline = _contexts(setting, params, hidden, attention_mask)
    if head_mask is not None:
        context = context + (1 - head_mask)[:, None, :, None] * (baseline - context)
    return _rest(setting, params, hidden + _output(setting, params, context))


@_piece
def open_layer(setting: Setting, params, hidden, attention_mask):
    """Run the attention of a layer once for all masks that start in it.

    Args:
      setting: model and baseline.
      params: of this layer.
      hidden: [B, T, D].
      attention_mask: [B, T].

    Returns:
      The residual stream [B, T, D] after the intact attention, and what disabling each head adds to
      it, [N, B, T, D].
    """
    context, baseline = _contexts(setting, params, hidden, attention_mask)
    changes = jnp.einsum(
        'BTNH,NHD->NBTD',
        baseline - context,
        params['attention']['output']['kernel'].astype(context.dtype),
        precision=matmul_precision(setting.config),
    )
    return hidden + _output(setting, params, context), changes


@_piece
def close_layer(setting: Setting, params, residual, changes, heads, amounts):
    """Return the output [B * K, T, D] of an opened layer under K masks.

    Args:
      setting: model and baseline.
      params: of this layer.
      residual: [B, T, D] and
      changes: [N, B, T, D], from `open_layer`.
      heads: [K, J] the heads that each mask changes.
      amounts: [K, J] how far each is disabled: 1 minus the mask; 0 fills up.
    """
    change = jnp.einsum(
        'KJ,KJBTD->BKTD',
        amounts.astype(changes.dtype),
        changes[heads],
        precision=matmul_precision(setting.config),
    )
    rows = residual[:, None] + change
    return _rest(setting, params, rows.reshape(-1, *residual.shape[1:]))


@_piece
def leave_layer(setting: Setting, params, residual):
    """Return the output [B, T, D] of an opened layer whose heads all stay."""
    return _rest(setting, params, residual)


@_piece
def last_layer(setting: Setting, params, pooler, classifier, hidden, attention_mask, head_masks):
    """Return the logits [R, K, C] of K masks of the last layer.

    Logits depend on [CLS] alone. Its one query is multiplied into the weights of the keys, and its
    maps average the hidden states before these become values: a token then costs 2 N D
    multiply-adds instead of the 2 D^2 of its key and value.

    Args:
      setting: model and baseline.
      params, pooler, classifier: of the last layer and of what follows.
      hidden: [R, T, D] entering the last layer.
      attention_mask: [B, T].
      head_masks: [R, K, N] of the last layer.
    """
    config = setting.config
    einsum = functools.partial(jnp.einsum, precision=matmul_precision(config))
    kernel = lambda name: params['attention'][name]['kernel'].astype(config.dtype)
    attention_mask = _per_row(attention_mask, len(hidden))
    query = _project(setting, params, 'query', hidden[:, 0])
    # The bias of the keys adds the same to all scores of a query, which softmax does not see.
    weights = einsum('RNH,DNH->RND', query, kernel('key'))
    scores = einsum('RND,RSD->RNS', weights, hidden, preferred_element_type=jnp.float32)
    scores = scores / jnp.sqrt(jnp.float32(config.head_size))
    learned = attention.masked_softmax(scores[:, :, None], attention_mask)[:, :, 0]

    def values(maps):
        average = einsum('RMS,RSD->RMD', maps.astype(hidden.dtype), hidden)
        average = jnp.broadcast_to(average, (len(hidden), learned.shape[1], config.hidden_size))
        bias = params['attention']['value']['bias'].astype(hidden.dtype)
        return einsum('RND,DNH->RNH', average, kernel('value')) + bias[None]

    context = values(learned)
    baseline = jnp.zeros_like(context)
    if setting.baseline == 'uniform':
        # One map for all heads: M is 1 here, and N above.
        baseline = values(attention.uniform_probabilities(attention_mask)[:, 0])
    amounts = (1 - head_masks).astype(context.dtype)[..., None]
    used = context[:, None] + amounts * (baseline - context)[:, None]
    row = _rest(setting, params, hidden[:, :1] + _output(setting, params, used))
    pooled = dense(config, config.hidden_size).apply({'params': pooler}, row)
    pooled = pooler_activation(config)(pooled)
    logits = dense(config, config.num_labels).apply({'params': classifier}, pooled)
    return logits.astype(jnp.float32)


def _per_row(attention_mask, rows: int):
    """[B, T] to [R, T]: the masks of one example lie side by side."""
    return jnp.repeat(attention_mask, rows // len(attention_mask), axis=0)


def _contexts(setting: Setting, params, hidden, attention_mask):
    """Return the context [R, T, N, H] of every head, and of a disabled one [R, 1, N, H]."""
    precision = matmul_precision(setting.config)
    query, key, value = (
        _project(setting, params, name, hidden) for name in ('query', 'key', 'value')
    )
    learned = attention.attention_probabilities(query, key, attention_mask, precision=precision)
    context = attention.attend(learned.astype(value.dtype), value, precision=precision)
    if setting.baseline == 'zero':
        return context, jnp.zeros_like(context[:, :1])
    uniform = attention.uniform_probabilities(attention_mask)[:, 0, 0].astype(value.dtype)
    mean = jnp.einsum('RS,RSNH->RNH', uniform, value, precision=precision)
    return context, mean[:, None]


def _project(setting: Setting, params, name: str, hidden):
    """Return queries, keys or values [..., N, H]."""
    config = setting.config
    heads = (config.num_attention_heads, config.head_size)
    return dense(config, heads).apply({'params': params['attention'][name]}, hidden)


def _output(setting: Setting, params, context):
    """Return what the contexts [..., N, H] add to the residual stream."""
    config = setting.config
    output = dense(config, config.hidden_size, axis=(-2, -1))
    return output.apply({'params': params['attention']['output']}, context)


def _rest(setting: Setting, params, residual):
    return RestOfLayer(setting.config).apply({'params': params}, residual)
