"""From tokens to the output of the last layer: embeddings, self-attention, feed-forward layers.

A layer is a composition that the frozen record of its family describes (`families`). The
arithmetic of attention and the legend of shapes are in `attention.py`.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.model import attention, parts
from bert_secrets_jax.model.attention import Scope
from bert_secrets_jax.model.config import BertConfig, LayerKind
from bert_secrets_jax.model.intervention import Intervention
from bert_secrets_jax.model.positions import absolute, bias, disentangled, rotary
from bert_secrets_jax.model.positions.disentangled import with_distances
from bert_secrets_jax.model.positions.rotary import turned

PROJECTIONS = ('query', 'key', 'value')
# All layers that have an output for each head: DeBERTa may have some of their own for distances.
OF_HEADS = (*PROJECTIONS, 'distance_key', 'distance_query')
Hidden = Float[Array, 'B T D']
Rows = Float[Array, '*rows D']
# The output of a layer, the learned maps, and the outputs of the heads: a layer emits them.
Emitted = tuple[Hidden, Float[Array, 'B N T T'], attention.Queries]


class Embeddings(nn.Module):
    """The sum of word, position and segment embeddings, and what all layers are told besides.

    That is the scopes of the kinds of layers that the model has, stacked on a leading axis.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        input_ids,
        token_type_ids,
        attention_mask,
        example_ids,
        inputs_embeds=None,
        *,
        deterministic: bool,
    ):
        config, family = self.config, self.config.family
        if (length := input_ids.shape[-1]) > config.max_length:
            raise ValueError(
                f'Sequences of {length} tokens, but the model has {config.max_length} positions: '
                'encode with a smaller max_length.'
            )
        total = _summed(config, input_ids, token_type_ids, attention_mask, inputs_embeds)
        project, width = parts.unchanged, config.hidden_size
        if family.projects_always or config.embedding_size not in (None, width):
            project = parts.dense(config, width, 'project', bias=not family.projects_first)
        if family.projects_first:
            total = project(total)
        hidden = parts.layer_norm(config, 'norm')(total) if config.emb_layer_norm_before else total
        if family.zero_padding:
            hidden = hidden * attention_mask[..., None]
        dropout = parts.dropping(config.hidden_dropout_prob, example_ids, deterministic)
        if family.embedding_dropout:
            hidden = dropout(hidden)
        if not family.projects_first:
            hidden = project(hidden)
        hidden = hidden.astype(config.array_dtype)
        return hidden, _scopes(config, attention_mask, _convolution(config, hidden, dropout))


def _summed(config: BertConfig, input_ids, token_type_ids, attention_mask, words):
    """Return the sum of the embeddings; `words` are those of wordpieces, if they are given."""
    embed = functools.partial(parts.embedded, config)
    total = embed(config.vocab_size, 'word', input_ids) if words is None else words
    if config.token_dropout:
        # Embeddings of [MASK] are 0, and others are scaled up to what training had (ESM). There,
        # 15 % of the tokens were to be predicted, and 80 % of these were [MASK].
        masked = input_ids == config.mask_token_id
        share = masked.sum(axis=-1) / jnp.maximum(attention_mask.sum(axis=-1), 1)
        scale = (1 - 0.15 * 0.8) / (1 - share)
        total = jnp.where(masked[..., None], 0, total) * scale[:, None, None]
    if config.type_vocab_size:
        total += embed(config.type_vocab_size, 'token_type', token_type_ids)
    if config.use_task_id:
        assert config.task_type_vocab_size is not None
        total += embed(config.task_type_vocab_size, 'task_type', jnp.zeros_like(input_ids))
    if config.has_positions:
        total += absolute.added(config, input_ids)
    return total


def _convolution(config: BertConfig, hidden, dropout: Callable[[Any], Any]):
    """Return what DeBERTa adds to its first layer: a convolution over embeddings; None without."""
    if not config.conv_kernel_size:
        return None
    convolution = nn.Conv(
        config.hidden_size,
        (config.conv_kernel_size,),
        feature_group_count=config.conv_groups,
        dtype=jnp.dtype(config.array_dtype),
        kernel_init=nn.initializers.normal(config.initializer_range),
        precision=parts.matmul_precision(config),  # pyright: ignore[reportArgumentType]
        name='conv',
    )
    return parts.ACTIVATIONS[config.conv_act](dropout(convolution(hidden)))


def _scopes(config: BertConfig, attention_mask, convolved) -> Scope:
    """Return the scopes of the kinds of layers, stacked; all but four entries are the same."""
    length, kinds = attention_mask.shape[-1], distinct_kinds(config)
    common = Scope(
        visible=None,
        bias=bias.of_scores(config, length),
        interleaved=config.family.sinusoidal,
        summands=1 + len(config.pos_att_type),
        distances=disentangled.embedded_distances(config),
        convolved=convolved,
    )
    visible = [attention.visible_keys(attention_mask, kind.reach) for kind in kinds]
    size = np.broadcast_shapes(*(each.shape for each in visible))
    scopes = [
        dataclasses.replace(
            common,
            visible=jnp.broadcast_to(seen, size),
            turns=rotary.turns_of(config, kind.rope_theta, length),
            normed=jnp.array(kind.normed) if config.family.first_layer_unnormed else None,
            is_convolved=jnp.array(kind.convolved) if config.conv_kernel_size else None,
        )
        for kind, seen in zip(kinds, visible, strict=True)
    ]
    return jax.tree.map(lambda *each: jnp.stack(each), *scopes)


def distinct_kinds(config: BertConfig) -> list[LayerKind]:
    """Return the kinds of layers that a model has, each once."""
    return list(dict.fromkeys(config.layer_kinds))


def kinds_of_layers(config: BertConfig) -> list[int]:
    """Return the place of each layer's kind among `distinct_kinds`."""
    return list(map(distinct_kinds(config).index, config.layer_kinds))


def scope_of(scopes: Scope, kind: int | Int[Array, '']) -> Scope:
    """Return the scope of one kind of layers."""
    # With a single kind, the index is known before the device runs.
    place = 0 if len(scopes.visible) == 1 else kind
    return jax.tree.map(operator.itemgetter(place), scopes)


class SelfAttention(nn.Module):
    """Multi-head self-attention: its output, the learned maps, and the outputs of the heads.

    These are after the intervention. `heads` is the number that is left; None is all.
    """

    config: BertConfig
    heads: int | None = None

    @nn.compact
    def __call__(
        self,
        hidden: Hidden,
        scope: Scope,
        intervention: Intervention,
        example_ids: Int[Array, ' B'] | None,
        *,
        deterministic: bool,
    ) -> Emitted:
        config = self.config
        precision = parts.matmul_precision(config)
        layer = functools.cache(functools.partial(project, config, heads=self.heads))
        query, key, value = (layer(name)(hidden) for name in PROJECTIONS)
        value = turned(config, value)
        if scope.distances is not None and not deterministic:
            # The same for all examples, as they share the distances.
            drop = parts.Dropout(config.hidden_dropout_prob)
            distances = drop(scope.distances[None], jnp.zeros(1, int), deterministic=False)
            scope = dataclasses.replace(scope, distances=distances[0])
        scope = with_distances(config, scope, lambda name, rows: layer(name)(rows))
        learned = attention.attention_probabilities(
            query, key, scope, precision=precision, part_mask=intervention.part_mask
        )
        used = parts.Dropout(config.attention_probs_dropout_prob, axes='maps')(
            intervention.on_maps(learned, scope), example_ids, deterministic=deterministic
        )
        contexts = attention.attend(used.astype(value.dtype), value, precision=precision)
        contexts = intervention.on_contexts(contexts)
        return project_back(config, 'output')(contexts), learned, contexts


def project(
    config: BertConfig, name: str | None = None, heads: int | None = None
) -> nn.DenseGeneral:
    """Return the layer that makes queries, keys or values [..., N, H] from [..., D]."""
    count = config.num_attention_heads if heads is None else heads
    return parts.dense(config, (count, config.head_size), name, bias=config.attention_bias)


def project_back(config: BertConfig, name: str | None = None) -> nn.DenseGeneral:
    """Return the layer that makes the output [..., D] of attention from contexts [..., N, H]."""
    return parts.dense(config, config.hidden_size, name, axis=(-2, -1), bias=config.attention_bias)


class AttentionInput(nn.Module):
    """The part of a layer before its attention; it takes the parameters of a whole layer."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden: Rows, normed: Bool[Array, ''] | None = None) -> Rows:
        """Return what attention reads of the hidden states; `normed` as in `Scope`."""
        config = self.config
        if not config.family.norm_first:
            return hidden
        read = parts.normed(config, 'attention_norm', hidden)
        return read if normed is None else jnp.where(normed, read, hidden)


class RestOfLayer(nn.Module):
    """All of a layer that follows its attention; it takes the parameters of a whole layer."""

    config: BertConfig

    @nn.compact
    def __call__(
        self,
        residual: Rows,
        scope: Scope | None = None,
        dropout: Callable[[Any], Any] | None = None,
    ) -> Rows:
        """Return the output of the layer, from its input plus the output of its attention.

        `scope` is needed where a convolution is added. `dropout` drops elements within the
        feed-forward layer or of its output; None drops nothing.
        """
        config, family = self.config, self.config.family
        drop = dropout or parts.unchanged
        norm = 'output_norm' if family.norm_first else 'attention_norm'
        read = parts.normed(config, norm, residual)
        within = drop if family.dropout_in_feed_forward else parts.unchanged
        fed = _feed_forward(config, read, within)
        if family.dropout_after_feed_forward:
            fed = drop(fed)
        if family.norm_first:
            return residual + fed
        hidden = parts.normed(config, 'output_norm', read + fed)
        if not config.conv_kernel_size:
            return hidden
        assert scope is not None
        convolved = jnp.broadcast_to(scope.convolved, hidden.shape)
        joined = parts.normed(config, 'conv_norm', hidden + convolved)
        return jnp.where(scope.is_convolved, joined, hidden)


def _feed_forward(config: BertConfig, hidden, dropout: Callable[[Any], Any]):
    family, inner = config.family, config.intermediate_size
    activation = parts.ACTIVATIONS[config.hidden_act]
    layer = functools.partial(parts.dense, config)
    first = (2, inner) if family.gated else inner
    bias = config.mlp_bias and family.bias_of_gates
    wide = layer(first, 'intermediate', bias=bias)(hidden)
    wide = activation(wide[..., 0, :]) * wide[..., 1, :] if family.gated else activation(wide)
    return layer(config.hidden_size, 'output', bias=config.mlp_bias)(dropout(wide))


class Layer(nn.Module):
    """One encoder layer as `lax.scan` needs it.

    It carries hidden states, and emits them, the maps and the outputs of the heads.
    """

    config: BertConfig
    deterministic: bool = True
    heads: int | None = None

    @nn.compact
    def __call__(
        self,
        hidden: Hidden,
        kind: int | Int[Array, ''],
        intervention: Intervention,
        scopes: Scope,
        example_ids: Int[Array, ' B'] | None,
    ) -> tuple[Hidden, Emitted]:
        config = self.config
        scope = scope_of(scopes, kind)
        dropout = parts.dropping(config.hidden_dropout_prob, example_ids, self.deterministic)
        attended, maps, contexts = SelfAttention(config, self.heads, name='attention')(
            parts.within(self, AttentionInput(config))(hidden, scope.normed),
            scope,
            intervention,
            example_ids,
            deterministic=self.deterministic,
        )
        if config.family.dropout_after_attention:
            attended = dropout(attended)
        hidden = parts.within(self, RestOfLayer(config))(hidden + attended, scope, dropout)
        return hidden, (hidden, maps, contexts)


def layers_of(config: BertConfig, deterministic: bool) -> Callable[..., Any]:
    """Return all layers, one after the other: stacked, or apart if some have lost heads.

    They take hidden states, an intervention, scopes and numbers of examples, and return the last
    hidden states and what each layer emits, on a leading axis.
    """
    if config.pruned_heads:
        return LayersApart(config, deterministic, name='layers')
    # A backward pass keeps the products: all else is computed again faster than stored.
    layer = nn.remat(Layer, policy=jax.checkpoint_policies.dots_saveable, prevent_cse=False)
    stacked = nn.scan(
        layer,
        variable_axes={'params': 0},
        split_rngs={'params': True, 'dropout': True},
        in_axes=(0, 0, nn.broadcast, nn.broadcast),  # pyright: ignore[reportArgumentType]
        length=config.num_hidden_layers,
    )(config, deterministic, name='layers')
    kinds = jnp.array(kinds_of_layers(config))
    return lambda hidden, *rest: stacked(hidden, kinds, *rest)


class LayersApart(nn.Module):
    """All layers, one after the other, each with parameters of its own shapes.

    It returns what the scan over stacked layers does; maps and contexts are 0 where a head is gone.
    """

    config: BertConfig
    deterministic: bool = True

    @nn.compact
    def __call__(self, hidden, intervention, scopes, example_ids):
        config, each = self.config, []
        kinds = kinds_of_layers(config)
        for number, (kind, left) in enumerate(zip(kinds, config.heads_left, strict=True)):
            heads = np.array(left, int)
            layer = Layer(config, self.deterministic, len(heads), name=str(number))
            seen = scopes
            if scopes.bias is not None:
                seen = scopes.replace(bias=scopes.bias[:, :, heads])
            hidden, (state, maps, contexts) = layer(hidden, kind, intervention, seen, example_ids)
            spread = functools.partial(spread_heads, heads=heads, count=config.num_attention_heads)
            each.append((state, spread(maps, axis=1), spread(contexts, axis=2)))
        return hidden, jax.tree.map(lambda *layers: jnp.stack(layers), *each)


def spread_heads(x, heads: np.ndarray, count: int, *, axis: int):
    """Return an array of all heads, in which those that are not given are 0."""
    if len(heads) == count:
        return x
    shape = [*x.shape[:axis], count, *x.shape[axis + 1 :]]
    return jnp.zeros(shape, x.dtype).at[(slice(None),) * axis + (heads,)].set(x)
