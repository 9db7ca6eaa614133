"""A layer of BERT, cut into a part that all masks share and a part that is run for each mask.

Axes besides those of `model/attention.py`: Z rows, which are examples times masks, with the masks
of one example next to each other; J heads that a mask changes in one layer; A maps, one per head or
one for all heads.

To disable a head is to replace its context, its map times the values, by the mean of the values
(baseline 'uniform'), by 0 ('zero'), by its mean over a corpus ('mean') or by its context on another
input ('resample'). The last two come as a replacement: [1, 1, N, H], or [B, T, N, H], the same
under all masks of an example. With the first two it is None.

`params` are those of one layer, `hidden` [B, T, D] or [Z, T, D] is what enters it, and `scope` the
tokens that it may see, of each of the B examples.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from bert_secrets_jax.model import attention, encoder
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.heads import Head
from bert_secrets_jax.model.parts import applied, matmul_precision


@dataclasses.dataclass(frozen=True)
class Static:
    """The static argument of the compiled functions of this module.

    Attributes:
      baseline: The replacement of a disabled head, one of `attention.BASELINES`.
      spread: How rows lie on devices of which groups share the masks; None if none do.
    """

    config: BertConfig
    baseline: str
    spread: NamedSharding | None = None


_piece = functools.partial(jax.jit, static_argnums=0)


@_piece
def embed(setting: Static, params, batch):
    """Return the hidden states [B, T, D] that enter the first layer, and the scopes of layers."""
    embeddings = encoder.Embeddings(setting.config)
    return embeddings.apply(
        {'params': params},
        batch.input_ids,
        batch.token_type_ids,
        batch.attention_mask,
        None,
        deterministic=True,
    )


@_piece
def run_layer(setting: Static, params, hidden, scope, head_mask, replacement=None):
    """Return the output [Z, T, D] of a layer under its mask [Z, N]; None keeps all heads."""
    scope = _scope_per_row(scope, len(hidden))
    context, value = contexts_of(setting, params, hidden, scope)
    if head_mask is not None:
        baseline = _baseline(setting, value, scope, replacement)
        context = context + (1 - head_mask)[:, None, :, None] * (baseline - context)
    return _rest(setting, params, hidden + _output(setting, params, context), scope)


@_piece
def open_layer(setting: Static, params, hidden, scope, replacement=None):
    """Return the residual stream after intact attention, and what disabling each head changes."""
    context, value = contexts_of(setting, params, hidden, scope)
    baseline = _baseline(setting, value, scope, replacement)
    changes = jnp.einsum(
        'BTNH,NHD->NBTD',
        baseline - context,
        params['attention']['output']['kernel'].astype(context.dtype),
        precision=matmul_precision(setting.config),
    )
    return hidden + _output(setting, params, context), changes


@_piece
def close_layer(setting: Static, params, residual, changes, scope, heads, amounts):
    """Return the output [B * M, T, D] of an opened layer under M masks.

    Each mask changes `heads` [M, J] by `amounts`, 1 minus itself; 0 fills up masks of fewer heads.
    """
    change = jnp.einsum(
        'MJ,MJBTD->BMTD',
        amounts.astype(changes.dtype),
        changes[heads],
        precision=matmul_precision(setting.config),
    )
    rows = residual[:, None] + change
    rows = rows.reshape(-1, *residual.shape[1:])
    if setting.spread is not None and len(rows) % setting.spread.num_devices == 0:
        rows = jax.lax.with_sharding_constraint(rows, setting.spread)
    return _rest(setting, params, rows, _scope_per_row(scope, len(rows)))


@_piece
def open_scores(setting: Static, params, hidden, scope):
    """Return the parts [B, P, N, T, S] of the scores, and the maps that each would give alone."""
    read = _attention_input(setting, params, hidden, scope)
    query, key = (_project(setting, params, name, read) for name in encoder.PROJECTIONS[:2])
    seen = _with_distances(setting, params, scope)
    parts = attention.score_parts(query, key, seen, precision=matmul_precision(setting.config))
    scores = jnp.stack(list(parts.values()), axis=1)
    return scores, jax.vmap(lambda part: attention.masked_softmax(part, scope), 1, 1)(scores)


@jax.jit
def lend(context, tokens):
    """Return the contexts [B, T, N, H] of donors [B, S, N, H] at the given tokens [B, T]."""
    return jnp.take_along_axis(context, tokens[:, :, None, None], axis=1)


@_piece
def last_layer(setting: Static, params, classifier, hidden, scope, head_masks, replacement=None):
    """Return the logits [Z, M, C] under M masks [Z, M, N] of the last layer.

    The logits depend on [CLS] alone. Its one query is multiplied into the weights of the keys,
    unless these are rotated or meet distances, and its maps average the hidden states before these
    become values. A token then costs 2 N D multiply-adds instead of the 2 D^2 of its key and value.
    """
    config = setting.config
    einsum = functools.partial(jnp.einsum, precision=matmul_precision(config))
    scope = _scope_per_row(scope, len(hidden))
    read = _attention_input(setting, params, hidden, scope)
    if scope.turns is None and scope.distances is None:
        learned = _maps_of_first(setting, params, read, scope)
    else:
        query = _project(setting, params, 'query', read[:, :1])
        key = _project(setting, params, 'key', read)
        seen = _with_distances(setting, params, scope)
        learned = attention.attention_probabilities(
            query, key, seen, precision=matmul_precision(config)
        )[:, :, 0]

    def values(maps):
        average = einsum('ZAS,ZSD->ZAD', maps.astype(read.dtype), read)
        average = jnp.broadcast_to(average, (len(read), learned.shape[1], config.hidden_size))
        projected = einsum('ZND,DNH->ZNH', average, _kernel(setting, params, 'value'))
        if not config.attention_bias:
            return projected
        return projected + params['attention']['value']['bias'].astype(read.dtype)[None]

    context = values(learned)
    baseline = jnp.zeros_like(context)
    if setting.baseline == 'uniform':
        # One map serves all heads: A is 1 here, and N for the learned maps.
        baseline = values(attention.uniform_probabilities(scope)[:, :, 0])
    elif replacement is not None:
        baseline = _per_row(replacement[:, 0], len(read)).astype(context.dtype)
    amounts = (1 - head_masks).astype(context.dtype)[..., None]
    used = context[:, None] + amounts * (baseline - context)[:, None]
    if scope.convolved is not None:
        scope = dataclasses.replace(scope, convolved=scope.convolved[:, :1])
    row = _rest(setting, params, hidden[:, :1] + _output(setting, params, used), scope)
    return Head(config).apply({'params': classifier}, row).logits


@_piece
def read_all(setting: Static, classifier, hidden, attention_mask):
    """Return the logits of a head that reads all tokens: [Z, C], or of each token [Z, T, C]."""
    attention_mask = _per_row(attention_mask, len(hidden))
    return Head(setting.config).apply({'params': classifier}, hidden, attention_mask).logits


@_piece
def read_words(setting: Static, classifier, embedding, hidden, places, words):
    """Return the sum [Z, 1] of the log-probabilities of hidden wordpieces [B, K]; -1 is none."""
    places, words = (_per_row(array, len(hidden)) for array in (places, words))
    asked = jnp.take_along_axis(hidden, places[:, :, None], axis=1)
    logits = Head(setting.config).apply({'params': classifier}, asked, None, embedding).logits
    assert logits is not None
    given = jnp.take_along_axis(logits, jnp.maximum(words, 0)[:, :, None], axis=-1)[..., 0]
    likely = given - jax.nn.logsumexp(logits, axis=-1)
    return jnp.where(words >= 0, likely, 0).sum(axis=-1, keepdims=True)


def _maps_of_first(setting: Static, params, read, scope):
    """Return the maps [Z, N, S] of [CLS], without computing any key."""
    einsum = functools.partial(jnp.einsum, precision=matmul_precision(setting.config))
    query = _project(setting, params, 'query', read[:, 0])
    # The bias of the keys adds the same number to all scores of a query: softmax ignores it.
    weights = einsum('ZNH,DNH->ZND', query, _kernel(setting, params, 'key'))
    scores = einsum('ZND,ZSD->ZNS', weights, read, preferred_element_type=jnp.float32)
    scores = scores / jnp.sqrt(jnp.float32(setting.config.head_size * scope.summands))
    return attention.masked_softmax(scores[:, :, None], scope)[:, :, 0]


def _kernel(setting: Static, params, name: str):
    return params['attention'][name]['kernel'].astype(setting.config.array_dtype)


def _per_row(array, rows: int):
    """Repeat [B, ...] to [Z, ...]: the masks of one example are next to each other."""
    return jnp.repeat(array, rows // len(array), axis=0)


def _scope_per_row(scope: attention.Scope, rows: int) -> attention.Scope:
    convolved = None if scope.convolved is None else _per_row(scope.convolved, rows)
    return dataclasses.replace(scope, visible=_per_row(scope.visible, rows), convolved=convolved)


def contexts_of(setting: Static, params, hidden, scope, **others):
    """Return the contexts [Z, T, N, H] of the heads, and their values, of the same shape.

    A query, key or value may be made from `others` than the hidden states, by its name.
    """
    precision = matmul_precision(setting.config)
    query, key, value = (
        _project(setting, params, name, _attention_input(setting, params, entered, scope))
        for name, entered in (dict.fromkeys(encoder.PROJECTIONS, hidden) | others).items()
    )
    value = encoder.turned(setting.config, value)
    seen = _with_distances(setting, params, scope)
    learned = attention.attention_probabilities(query, key, seen, precision=precision)
    return attention.attend(learned.astype(value.dtype), value, precision=precision), value


def _baseline(setting: Static, value, scope, replacement):
    """Return the contexts of disabled heads, [Z, 1, N, H] or [Z, T, N, H]."""
    if replacement is not None:
        return _per_row(replacement, len(value)).astype(value.dtype)
    if setting.baseline == 'zero':
        return jnp.zeros_like(value[:, :1])
    uniform = attention.uniform_probabilities(scope)[:, 0].astype(value.dtype)
    precision = matmul_precision(setting.config)
    return jnp.einsum('ZTS,ZSNH->ZTNH', uniform, value, precision=precision)


def _attention_input(setting: Static, params, hidden, scope):
    return applied(encoder.AttentionInput(setting.config), params, hidden, scope.normed)


def _project(setting: Static, params, name: str, hidden):
    """Return the queries, the keys or the values [..., N, H]."""
    return applied(encoder.project(setting.config), params['attention'][name], hidden)


def _with_distances(setting: Static, params, scope):
    make = functools.partial(_project, setting, params)
    return encoder.with_distances(setting.config, scope, make)


def _output(setting: Static, params, context):
    """Return what the contexts [..., N, H] add to the residual stream."""
    return applied(encoder.project_back(setting.config), params['attention']['output'], context)


def _rest(setting: Static, params, residual, scope):
    """Return the output [B, T, D] of an opened layer in which no head is disabled."""
    return applied(encoder.RestOfLayer(setting.config), params, residual, scope)


leave_layer = _piece(_rest)
