"""BERT and relatives in Flax Linen: attention maps are outputs, a per-head mask is an argument.

Besides the pattern classifier this is the only module that imports `flax.linen`. The arithmetic of
attention and the legend of shapes are in `attention.py`.
"""

import functools
import operator
from typing import Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from bert_secrets_jax.brief import brief
from bert_secrets_jax.model import attention
from bert_secrets_jax.model.config import BertConfig, LayerKind

_ACTIVATIONS = {
    # BERT's GELU is the exact one; JAX and Flax default to the tanh approximation.
    'gelu': functools.partial(nn.gelu, approximate=False),
    'gelu_new': functools.partial(nn.gelu, approximate=True),
    'gelu_pytorch_tanh': functools.partial(nn.gelu, approximate=True),
    'relu': nn.relu,
    'tanh': nn.tanh,
}


@flax.struct.dataclass
class BertOutput:
    """All results of a forward pass. Under `jit`, what is not used is neither computed nor stored.

    Attributes:
      logits: [B, C] scores of the classes, or the predicted value of a regression (C = 1). None
        without classifier.
      pooled: [B, D] input of the classifier: a dense layer over [CLS] and its activation (in BERT,
        tanh), or over the mean of all tokens. None without pooler.
      hidden_states: [B, L+1, T, D] embeddings and the output of every layer; the last is that of
        the encoder, after its final LayerNorm where it has one.
      attentions: [B, L, N, T, S] learned probabilities: after softmax, before head mask and
        dropout.
      contacts: [B, T, S] probability that two residues of a protein touch, 0 for tokens that are
        none. None without ESM's contact head.
      contexts: [B, L, T, N, H] what each head hands to the output projection of its layer: its map
        times the values, after head mask and dropout. At padding it means nothing.
    """

    logits: ArrayLike | None
    pooled: ArrayLike | None
    hidden_states: ArrayLike
    attentions: ArrayLike
    contexts: ArrayLike
    contacts: ArrayLike | None = None

    __repr__ = brief


def dense(
    config: BertConfig, features, name: str | None = None, axis=-1, *, bias: bool = True
) -> nn.DenseGeneral:
    """Return BERT's dense layer, whose `features` may have several axes, such as (N, H)."""
    return nn.DenseGeneral(
        features,
        axis=axis,
        use_bias=bias,
        dtype=jnp.dtype(config.dtype),
        kernel_init=nn.initializers.normal(config.initializer_range),
        precision=matmul_precision(config),
        name=name,
    )


def matmul_precision(config: BertConfig) -> jax.lax.Precision:
    """Return the precision of matrix products: float32 means float32 on every device.

    Left to itself, JAX multiplies float32 matrices in TF32 on GPUs and in bfloat16 on TPUs, which
    moves attention maps by 1e-3.
    """
    return jax.lax.Precision.HIGHEST if config.dtype == 'float32' else jax.lax.Precision.DEFAULT


def _layer_norm(config: BertConfig, name: str) -> nn.LayerNorm:
    # The fast variance E[x^2] - E[x]^2 cancels catastrophically in float32 and is not what BERT
    # computes.
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        use_bias=config.norm_bias,
        dtype=jnp.float32,
        name=name,
    )


class Dropout(nn.Module):
    """Dropout per element, as in BERT, that does not depend on how examples are batched.

    Flax's own draws one mask for the whole padded batch.

    Attributes:
      rate: Probability that an element is dropped.
      axes: 'hidden' for arrays [B, T, ...], 'maps' for arrays [B, N, T, S].
    """

    rate: float
    axes: Literal['hidden', 'maps'] = 'hidden'

    @nn.compact
    def __call__(self, x, example_ids, *, deterministic: bool):
        if deterministic or self.rate == 0:
            return x
        key = self.make_rng('dropout')
        keys = jax.vmap(lambda example: jax.random.fold_in(key, example))(example_ids)
        draw = attention.dropout_mask if self.axes == 'hidden' else attention.attention_dropout_mask
        return jnp.where(draw(keys, self.rate, x.shape[1:]), x / (1 - self.rate), 0)


def _positions(config: BertConfig, input_ids):
    """Return the positions [B, T], or [1, T] if they are the same in every example."""
    if not config.family.positions_after_padding:
        return jnp.arange(input_ids.shape[-1])[None, :]
    written = (input_ids != config.pad_token_id).astype(jnp.int32)
    return config.pad_token_id + written * jnp.cumsum(written, axis=-1)


class Embeddings(nn.Module):
    """What enters the first layer, and what all layers are told besides.

    That is the sum of word, position and segment embeddings, normalised, and projected if
    necessary; and the scopes of the kinds of layers that the model has, stacked on a leading axis.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self, input_ids, token_type_ids, attention_mask, example_ids, *, deterministic: bool
    ):
        config = self.config
        width = config.embedding_size or config.hidden_size
        embed = functools.partial(
            nn.Embed,
            features=width,
            embedding_init=nn.initializers.normal(config.initializer_range),
        )
        total = embed(config.vocab_size, name='word')(input_ids)
        if config.token_dropout:
            total = _without_masked(config, total, input_ids, attention_mask)
        if config.type_vocab_size:
            total += embed(config.type_vocab_size, name='token_type')(token_type_ids)
        if config.has_positions:
            positions = _positions(config, input_ids)
            total += embed(config.max_position_embeddings, name='position')(positions)
        hidden = _layer_norm(config, 'norm')(total) if config.emb_layer_norm_before else total
        if config.family.zero_padding:
            hidden = hidden * attention_mask[..., None]
        if config.family.embedding_dropout:
            hidden = Dropout(config.hidden_dropout_prob)(
                hidden, example_ids, deterministic=deterministic
            )
        if width != config.hidden_size or config.family.projects_always:
            hidden = dense(config, config.hidden_size, 'project')(hidden)
        bias = None
        if config.family.relative_buckets:
            length = input_ids.shape[-1]
            buckets = attention.distance_buckets(length, config.family.relative_buckets)
            of_bucket = embed(
                config.family.relative_buckets,
                features=config.num_attention_heads,
                name='relative_position',
            )
            bias = jnp.moveaxis(of_bucket(jnp.asarray(buckets)), -1, 0)[None]
        return hidden.astype(config.dtype), _scopes(config, attention_mask, bias)


def _without_masked(config: BertConfig, embedded, input_ids, attention_mask):
    """Set the embeddings of [MASK] to 0, and scale the others up to what training had (ESM)."""
    masked = input_ids == config.mask_token_id
    length = jnp.maximum(attention_mask.sum(axis=-1), 1)
    share = masked.sum(axis=-1) / length
    # In training, 15 % of the tokens were to be predicted, and 80 % of these were [MASK].
    scale = (1 - 0.15 * 0.8) / (1 - share)
    return jnp.where(masked[..., None], 0, embedded) * scale[:, None, None]


def _scopes(config: BertConfig, attention_mask, bias) -> attention.Scope:
    """Return the scopes of the kinds of layers, stacked on a leading axis."""
    length = attention_mask.shape[-1]
    scopes = []
    for kind in distinct_kinds(config):
        angles = None
        if kind.rope_theta is not None:
            angles = attention.rotation_angles(length, frequencies_of(config, kind.rope_theta))
        visible = attention.visible_keys(attention_mask, kind.reach)
        normed = jnp.array(kind.normed) if config.family.first_layer_unnormed else None
        scopes.append(attention.Scope(visible, bias, angles, normed))
    if len({scope.visible.shape for scope in scopes}) > 1:
        size = (len(attention_mask), 1, length, length)
        scopes = [scope.replace(visible=jnp.broadcast_to(scope.visible, size)) for scope in scopes]
    return jax.tree.map(lambda *each: jnp.stack(each), *scopes)


def frequencies_of(config: BertConfig, rope_theta: float) -> np.ndarray:
    """Return the frequencies [H/2] of rotary positions of a base."""
    if config.rope_frequencies is not None:
        return np.array(config.rope_frequencies, np.float32)
    return attention.rotation_frequencies(config.head_size, rope_theta)


def distinct_kinds(config: BertConfig) -> list[LayerKind]:
    """Return the kinds of layers that a model has, each once."""
    return list(dict.fromkeys(config.layer_kinds))


def kinds_of_layers(config: BertConfig) -> list[int]:
    """Return the place of each layer's kind among `distinct_kinds`."""
    distinct = distinct_kinds(config)
    return [distinct.index(kind) for kind in config.layer_kinds]


def scope_of(scopes: attention.Scope, kind) -> attention.Scope:
    """Return the scope of one kind of layers."""
    # Of a single kind the index is known before the device runs.
    place = 0 if len(scopes.visible) == 1 else kind
    return jax.tree.map(operator.itemgetter(place), scopes)


class SelfAttention(nn.Module):
    """Multi-head self-attention.

    It returns its output [B, T, D], the learned maps [B, N, T, S] and the outputs of the heads [B,
    T, N, H], after the mask, that its output is made from.
    """

    config: BertConfig

    @nn.compact
    def __call__(
        self, hidden, head_mask, scope, example_ids, replacement, *, baseline, deterministic
    ):
        config = self.config
        precision = matmul_precision(config)
        query, key, value = (project(config, name)(hidden) for name in PROJECTIONS)
        learned = attention.attention_probabilities(query, key, scope, precision=precision)
        used = learned
        if head_mask is not None and replacement is None:
            used = attention.disable_heads(learned, head_mask, scope, baseline=baseline)
        used = Dropout(config.attention_probs_dropout_prob, axes='maps')(
            used, example_ids, deterministic=deterministic
        )
        context = attention.attend(used.astype(value.dtype), value, precision=precision)
        if head_mask is not None and replacement is not None:
            context = attention.replace_contexts(context, head_mask, replacement)
        return project_back(config, 'output')(context), learned, context


PROJECTIONS = ('query', 'key', 'value')


def project(config: BertConfig, name: str | None = None) -> nn.DenseGeneral:
    """Return the layer that makes queries, keys or values [..., N, H] from [..., D]."""
    heads = (config.num_attention_heads, config.head_size)
    return dense(config, heads, name, bias=config.attention_bias)


def project_back(config: BertConfig, name: str | None = None) -> nn.DenseGeneral:
    """Return the layer that makes the output [..., D] of attention from contexts [..., N, H]."""
    return dense(config, config.hidden_size, name, axis=(-2, -1), bias=config.attention_bias)


def attention_input(config: BertConfig, hidden, scope: attention.Scope):
    """Return what the attention of a layer reads of the hidden states [..., D].

    For use inside a compact method, whose module then owns the parameters.
    """
    if not config.family.norm_first:
        return hidden
    normed = _layer_norm(config, 'attention_norm')(hidden).astype(config.dtype)
    return normed if scope.normed is None else jnp.where(scope.normed, normed, hidden)


def rest_of_layer(config: BertConfig, residual, dropout=lambda x: x):
    """Return the output of a layer, all that follows its attention.

    For use inside a compact method, whose module then owns the parameters.

    Args:
      config: Hyperparameters of the model.
      residual: [..., D] input of the layer plus output of its attention, before any LayerNorm.
      dropout: Function that drops elements of the feed-forward output.
    """
    if not config.family.dropout_after_feed_forward:
        dropout = _unchanged
    if config.family.norm_first:
        normed = _layer_norm(config, 'output_norm')(residual).astype(config.dtype)
        return residual + dropout(_feed_forward(config, normed))
    hidden = _layer_norm(config, 'attention_norm')(residual).astype(config.dtype)
    fed = dropout(_feed_forward(config, hidden))
    return _layer_norm(config, 'output_norm')(hidden + fed).astype(config.dtype)


def _unchanged(x):
    return x


def _feed_forward(config: BertConfig, hidden):
    activation = _ACTIVATIONS[config.hidden_act]
    layer = functools.partial(dense, config, bias=config.mlp_bias)
    if config.family.gated:
        both = layer((2, config.intermediate_size), 'intermediate')(hidden)
        wide = activation(both[..., 0, :]) * both[..., 1, :]
    else:
        wide = activation(layer(config.intermediate_size, 'intermediate')(hidden))
    return layer(config.hidden_size, 'output')(wide)


class AttentionInput(nn.Module):
    """The function `attention_input` as a module, which takes the parameters of a whole layer."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden, scope):
        return attention_input(self.config, hidden, scope)


class RestOfLayer(nn.Module):
    """The function `rest_of_layer` as a module, which takes the parameters of a whole layer."""

    config: BertConfig

    @nn.compact
    def __call__(self, residual):
        return rest_of_layer(self.config, residual)


class Layer(nn.Module):
    """One encoder layer as `lax.scan` needs it.

    It carries hidden states, and emits them, the maps and the outputs of the heads.
    """

    config: BertConfig
    baseline: str = 'uniform'
    deterministic: bool = True

    @nn.compact
    def __call__(self, hidden, kind, head_mask, scopes, example_ids, replacement=None):
        config = self.config
        scope = scope_of(scopes, kind)
        dropout = functools.partial(
            Dropout(config.hidden_dropout_prob),
            example_ids=example_ids,
            deterministic=self.deterministic,
        )
        attended, maps, contexts = SelfAttention(config, name='attention')(
            attention_input(config, hidden, scope),
            head_mask,
            scope,
            example_ids,
            replacement,
            baseline=self.baseline,
            deterministic=self.deterministic,
        )
        if config.family.dropout_after_attention:
            attended = dropout(attended)
        hidden = rest_of_layer(config, hidden + attended, dropout)
        return hidden, (hidden, maps, contexts)


def encoded(config: BertConfig, hidden):
    """Return the output of the encoder [..., D] from that of its last layer.

    For use inside a compact method, whose module then owns the parameters.
    """
    if not config.family.norm_first:
        return hidden
    return _layer_norm(config, 'final_norm')(hidden).astype(config.dtype)


def pooled_tokens(config: BertConfig, hidden, attention_mask):
    """Return what the pooler reads [B, D] of the encoder's output [B, T, D]."""
    if config.classifier_pooling == 'cls':
        return hidden[:, 0]
    length = jnp.maximum(attention_mask.sum(axis=-1, keepdims=True), 1)
    return (hidden * attention_mask[..., None]).sum(axis=1) / length


def pool(config: BertConfig, tokens):
    """Return the input of the classifier [..., D]: a dense layer and its activation.

    For use inside a compact method, whose module then owns the parameters.
    """
    layer = dense(config, config.hidden_size, 'pooler', bias=config.classifier_bias)
    pooled = _ACTIVATIONS[config.family.pooler_act](layer(tokens))
    if config.family.pooler_norm:
        pooled = _layer_norm(config, 'pooler_norm')(pooled).astype(config.dtype)
    return pooled


def classify(config: BertConfig, pooled):
    """Return the logits [..., C] in float32, inside a compact method."""
    return dense(config, config.num_labels, 'classifier')(pooled).astype(jnp.float32)


def predict_contacts(config: BertConfig, maps, input_ids, attention_mask):
    """Return the probability that two residues touch, from all maps, inside a compact method.

    Source: Rao et al. 2021, "Transformer protein language models are unsupervised structure
    learners", section 3: logistic regression over the maps of all heads, each made symmetric and
    corrected for the mean of its rows and columns (average product correction).

    Args:
      config: Hyperparameters of the model.
      maps: [L, B, N, T, S] learned probabilities.
      input_ids: [B, T] tokens. The first and <eos> are no residues.
      attention_mask: [B, T] 1 on real tokens, 0 on padding.

    Returns:
      [B, T, S] probabilities; 0 where one of the two is no residue.
    """
    residue = attention_mask * (input_ids != config.family.eos_token_id)
    residue = residue.at[:, 0].set(0).astype(jnp.float32)
    pairs = residue[:, :, None] * residue[:, None, :]
    maps = jnp.moveaxis(maps, 0, 1)
    maps = maps.reshape(len(residue), -1, *maps.shape[-2:]) * pairs[:, None]
    both = maps + jnp.swapaxes(maps, -1, -2)
    of_row, of_column = both.sum(axis=-1, keepdims=True), both.sum(axis=-2, keepdims=True)
    total = jnp.maximum(both.sum(axis=(-1, -2), keepdims=True), jnp.finfo(jnp.float32).tiny)
    features = jnp.moveaxis(both - of_row * of_column / total, 1, -1)
    return nn.sigmoid(dense(config, 1, 'contact_head')(features)[..., 0]) * pairs


class Classifier(nn.Module):
    """What follows the last layer, up to the logits; it takes the parameters of a whole model."""

    config: BertConfig

    @nn.compact
    def __call__(self, hidden, attention_mask=None):
        """Return the logits [..., C].

        Args:
          hidden: [B, T, D] output of the last layer; without a mask, [..., D] at [CLS] alone.
          attention_mask: [B, T] 1 on real tokens, 0 on padding.
        """
        tokens = encoded(self.config, hidden)
        if attention_mask is not None:
            tokens = pooled_tokens(self.config, tokens, attention_mask)
        return classify(self.config, pool(self.config, tokens))


class Bert(nn.Module):
    """BERT, or a relative, with optional pooler and optional classification or regression head.

    Attributes:
      config: Hyperparameters of the model.
    """

    config: BertConfig

    def __repr__(self) -> str:
        return f'Bert({self.config.summary})'

    @nn.compact
    def __call__(
        self,
        input_ids: ArrayLike,
        token_type_ids: ArrayLike,
        attention_mask: ArrayLike,
        *,
        head_mask: ArrayLike | None = None,
        baseline: str = 'uniform',
        replacement: ArrayLike | None = None,
        deterministic: bool = True,
        example_ids: ArrayLike | None = None,
    ) -> BertOutput:
        """Run the model, through `bert.apply({'params': params}, input_ids, ...)`.

        Args:
          input_ids: [B, T] wordpieces, padded on the right.
          token_type_ids: [B, T] 0 for the first segment, 1 for the second. They have no effect in
            models with fewer than two segments.
          attention_mask: [B, T] 1 on real tokens, 0 on padding.
          head_mask: [L, N] or [B, L, N] 1 keeps a head, 0 replaces what it does by the baseline,
            fractions interpolate. The output is differentiable in it.
          baseline: What a disabled head does. With 'uniform' (1/length on real tokens, as in
            section 4.6 of the paper) and 'zero' (Michel et al. 2019, Voita et al. 2019) it has
            another map. With 'mean' (its mean output over a corpus) and 'resample' (its output on
            another input) it has another output, `replacement`.
          replacement: [L, N, H] or [B, L, T, N, H] The outputs that replace those of disabled
            heads, `contexts` of other passes; needed for 'mean' and 'resample' as soon as there is
            a `head_mask`. `bs.mean_contexts` gives means. The model treats both kinds alike, and
            the outputs are differentiable in it. Dropout does not touch it.
          deterministic: Whether dropout is off. False needs `rngs={'dropout': key}`.
          example_ids: [B] integers that decide, with the key, what dropout does to each example. By
            default they are the places in the batch.

        Raises:
          ValueError: Shapes do not fit the model, the baseline is unknown, or there is a
            replacement where the baseline needs none, or none where it needs one.
        """
        config = self.config
        input_ids, token_type_ids, attention_mask = map(
            jnp.asarray, (input_ids, token_type_ids, attention_mask)
        )
        _check_inputs(config, input_ids, token_type_ids, attention_mask, head_mask)
        _check_replacement(config, input_ids, head_mask, baseline, replacement)
        if example_ids is None:
            example_ids = jnp.arange(len(input_ids))
        if head_mask is not None:
            # The scan over layers wants the layer first.
            head_mask = jnp.moveaxis(jnp.asarray(head_mask, jnp.float32), -2, 0)
        if replacement is not None:
            replacement = jnp.asarray(replacement)
            if replacement.ndim == 3:
                replacement = replacement[None, :, None]
            replacement = jnp.moveaxis(replacement, 1, 0)
        embedded, scopes = Embeddings(config, name='embeddings')(
            input_ids, token_type_ids, attention_mask, example_ids, deterministic=deterministic
        )
        layers = nn.scan(
            Layer,
            variable_axes={'params': 0},
            split_rngs={'params': True, 'dropout': True},
            in_axes=(0, 0, nn.broadcast, nn.broadcast, 0),
            length=config.num_hidden_layers,
        )(config, baseline, deterministic, name='layers')
        kinds = jnp.array(kinds_of_layers(config))
        hidden, (states, maps, contexts) = layers(
            embedded, kinds, head_mask, scopes, example_ids, replacement
        )
        hidden = encoded(config, hidden)
        pooled = logits = None
        rate = config.classifier_dropout
        rate = config.hidden_dropout_prob if rate is None else rate
        dropout = functools.partial(
            Dropout(rate), example_ids=example_ids, deterministic=deterministic
        )
        if config.add_pooler:
            tokens = pooled_tokens(config, hidden, attention_mask)
            if config.family.dropout_before_pooler:
                tokens = dropout(tokens)
            pooled = pool(config, tokens)
        if config.num_labels:
            logits = classify(config, dropout(pooled))
        contacts = None
        if config.add_contact_head:
            contacts = predict_contacts(config, maps, input_ids, attention_mask)
        states = jnp.concatenate([embedded[None], states[:-1], hidden[None]])
        return BertOutput(
            logits=logits,
            pooled=pooled,
            hidden_states=jnp.moveaxis(states, 0, 1),
            attentions=jnp.moveaxis(maps, 0, 1),
            contexts=jnp.moveaxis(contexts, 0, 1),
            contacts=contacts,
        )


def _check_inputs(config, input_ids, token_type_ids, attention_mask, head_mask) -> None:
    if input_ids.ndim != 2:
        raise ValueError(f'input_ids must be [batch, length], got {input_ids.shape}.')
    for name, array in (
        ('token_type_ids', token_type_ids),
        ('attention_mask', attention_mask),
    ):
        if array.shape != input_ids.shape:
            raise ValueError(
                f'{name} must have the shape of input_ids, {input_ids.shape}, got {array.shape}.'
            )
    batch, length = input_ids.shape
    if length > config.max_length:
        raise ValueError(
            f'Sequences of {length} tokens, but the model has {config.max_length} positions: '
            'encode with a smaller max_length.'
        )
    if head_mask is not None:
        heads = (config.num_hidden_layers, config.num_attention_heads)
        if jnp.shape(head_mask) not in (heads, (batch, *heads)):
            raise ValueError(
                f'head_mask must be [layers, heads] = {list(heads)} or '
                f'[batch, layers, heads] = {[batch, *heads]}, '
                f'got {list(jnp.shape(head_mask))}.'
            )


def _check_replacement(config, input_ids, head_mask, baseline, replacement) -> None:
    attention.check_baseline(baseline)
    if baseline in attention.MAP_BASELINES:
        if replacement is not None:
            raise ValueError(
                f'{baseline=} takes no replacement: give one with {attention.OUTPUT_BASELINES}.'
            )
        return
    if replacement is None:
        if head_mask is not None:
            raise ValueError(
                f'{baseline=} needs a replacement, the outputs that disabled heads get: contexts '
                'of another pass, or bs.mean_contexts(pretrained, batches).'
            )
        return
    heads = (config.num_attention_heads, config.head_size)
    one = (config.num_hidden_layers, *heads)
    each = (input_ids.shape[0], config.num_hidden_layers, input_ids.shape[1], *heads)
    if jnp.shape(replacement) not in (one, each):
        raise ValueError(
            f'replacement must be [layers, heads, width] = {list(one)} or '
            f'[batch, layers, length, heads, width] = {list(each)}, '
            f'got {list(jnp.shape(replacement))}.'
        )


def init_params(bert: Bert, seed: int) -> dict:
    """Return fresh parameters.

    Weights are normal with standard deviation `initializer_range`, biases are 0, and LayerNorm
    scales by 1.
    """
    ids = jnp.zeros((1, 2), jnp.int32)
    params = bert.init(jax.random.key(seed), ids, ids, jnp.ones_like(ids))['params']
    return all_layers(bert.config, own_layers(bert.config, params))


def own_layers(config: BertConfig, params: dict) -> dict:
    """Return the parameters with one copy of layers that are used several times (ALBERT).

    Args:
      config: Hyperparameters of the model.
      params: Parameters as `Bert` takes them, with all L layers on their leading axis.
    """
    if config.num_hidden_groups is None:
        return params
    first = np.unique(config.groups, return_index=True)[1]
    return params | {'layers': jax.tree.map(lambda leaf: leaf[first], params['layers'])}


def all_layers(config: BertConfig, params: dict) -> dict:
    """Return the parameters with all L layers: the inverse of `own_layers`."""
    count = len(jax.tree.leaves(params['layers'])[0])
    if config.num_hidden_groups is None or count == config.num_hidden_layers:
        return params
    groups = np.array(config.groups)
    return params | {'layers': jax.tree.map(lambda leaf: leaf[groups], params['layers'])}


def param_shapes(bert: Bert) -> dict:
    """Return the shapes and dtypes of the parameters, without computing anything."""
    return jax.eval_shape(lambda: init_params(bert, 0))


def check_finite(logits: Float[np.ndarray, '*any C']) -> None:
    """Raise FloatingPointError if a model has predicted NaN or infinity."""
    broken = ~np.isfinite(logits).all(axis=-1)
    if broken.any():
        raise FloatingPointError(
            f'The model predicts NaN or infinity in {broken.sum():,} of {broken.size:,} cases: are '
            'its weights broken, or was it trained at too high a learning rate?'
        )
