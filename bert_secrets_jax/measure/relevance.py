"""Which heads a prediction comes from: layer-wise relevance propagation down to their outputs.

The top logit of an example has relevance 1. Step by step, from the logit down, what an output has
is distributed over the inputs that it was computed from, and nothing is lost on the way (Bach et
al. 2015, "On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance
propagation"). What arrives at the output of a head is the importance of the head in Voita et al.
(2019, section 4). The steps of a model are written again below, so that `jax.vjp` of a step
distributes the relevance of its outputs.

- A linear step distributes it by the rule that `linear` states. These are the dense layers, the
  average of values by a map, the sum on the residual stream and the mean over tokens.
- LayerNorm is a linear step: of the input over its standard deviation, which is taken as constant,
  with the matrix that subtracts the mean and scales. Biases and activations pass on what they get.
- Maps are taken as constant, so that relevance goes through the values and none through queries
  and keys. So are the activated factors of gated feed-forward layers.

Shapes: B examples, L layers, N heads, T query tokens, S key tokens, H width of a head, D hidden
width, C classes; in equations F intermediate width, G the two factors of a gated layer, P summands.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.gradients import of_heads
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.bert import Bert, BertOutput, check_no_convolution
from bert_secrets_jax.model.config import SEQUENCES, TOKENS, BertConfig
from bert_secrets_jax.model.encoder import turned
from bert_secrets_jax.model.parts import ACTIVATIONS
from bert_secrets_jax.model.weights import Pretrained

Hidden = Float[Array, 'B T D']


class Linearised:
    """Steps of a network that is linear at an input, whose backward pass carries gradients."""

    def linear(self, equation: str, inputs: Array, weights: Array) -> Array:
        """Return `einsum(equation, inputs, weights)`."""
        return product(equation, inputs, weights)

    def scaled(self, inputs: Array, factors: Array) -> Array:
        """Return `inputs * factors`, where the factors are taken as constant."""
        return inputs * jax.lax.stop_gradient(factors)


LINEAR = Linearised()


class AlphaBeta(Linearised):
    """Steps whose backward pass distributes the relevance of an output: the alpha-beta rule.

    Half of it (alpha) goes to inputs with a positive contribution to the output, in proportion to
    it. The rest (beta) goes to those with a negative contribution, so that all relevance stays
    positive. Sums that contributions are divided by are greater by epsilon, 1e-5: the contributions
    of a sign that add up to far less get a share in proportion to their sum. So does the published
    code.
    """

    def linear(self, equation: str, inputs: Array, weights: Array) -> Array:
        return linear(equation, inputs, weights)

    def scaled(self, inputs: Array, factors: Array) -> Array:
        # The inputs pass on what the outputs have.
        return inputs + jax.lax.stop_gradient(inputs * factors - inputs)


ALPHA_BETA = AlphaBeta()
ALPHA, EPSILON = 0.5, 1e-5


def head_relevance(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    *,
    head_mask: Shaped[np.ndarray, 'L N'] | None = None,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> HeadTable:
    """Measure how much of a model's predictions comes through each head, as a table [L, N].

    Relevance 1 starts at the top logit of an example, or at the predicted value of a regression;
    where each token is classified, an equal share starts at the top logit of each real token. The
    relevance of a head is what arrives at its output before the output projection, summed over
    tokens and width. The heads of a layer have 1 together, less what went past them on the residual
    stream: to compare layers, see `gradients.normalised`. The walk takes about ten times as long
    as a forward pass.

    Source: Voita et al. 2019, section 4, and Bach et al. 2015, equation 60. The published code also
    sends relevance through queries and keys, unless told that maps are constant. It distributes
    biases over all inputs, and too little where all contributions have one sign, which it scales up
    for a token as a whole. It expands LayerNorm to first order, with its standard deviation, so
    that all contributions to an output add up to 0.

    Batches, `head_mask`, `keep_values` and `mesh` are as in `collect`, with its errors; a removed
    head has no relevance. ValueError for a model that classifies neither texts nor tokens.
    """
    config = pretrained.config
    if config.head not in (SEQUENCES, TOKENS) or not config.num_labels:
        raise ValueError(
            f'Relevance starts at the logits of a classifier, and this model has none '
            f'({config.summary}): give one that classifies texts or tokens, like what '
            'bs.finetune or bs.from_pretrained(..., label_names=...) returns.'
        )
    return stream(
        (pretrained,), batches, {'relevance': of_heads}, head_mask=head_mask, baseline='zero',
        keep_values=keep_values, mesh=mesh, maps_of=relevances,
    )['relevance']  # fmt: skip


def relevances(bert, params, batch: Batch, **options) -> Float[Array, 'B L N 1 1']:
    """Return the relevance of heads in the place of the maps of a batch."""
    output = bert.apply({'params': params}, **batch.inputs, **options)
    start = functools.partial(_start, bert.config, attention_mask=batch.attention_mask)
    _, of_heads = walk_back(ALPHA_BETA, bert, params, output, batch.attention_mask, start)
    return of_heads[..., None, None]


def walk_back(
    steps: Linearised,
    bert: Bert,
    params: Mapping[str, Any],
    output: BertOutput,
    attention_mask: Shaped[Array, 'B T'],
    start: Callable[[Array], Array],
) -> tuple[Hidden, Float[Array, 'B L N']]:
    """Walk from the logits, which have what `start` makes of them, down to the embeddings.

    Return what arrives there, and at the outputs of the heads, summed over tokens and width.
    """
    config, layers = bert.config, layers_of(bert.config, params, output)
    weights, entered, contexts, _, _ = jax.tree.map(lambda each: each[-1], layers)
    encoded = after_attention(config, steps, weights, entered, contexts)
    logits, back = jax.vjp(
        lambda hidden: classified(config, steps, params, hidden, attention_mask), encoded
    )
    (carried,) = back(start(logits))

    def step(carried, layer):
        carried, of_contexts = through_layer(config, steps, carried, *layer)
        return carried, of_contexts.sum(axis=(1, 3))

    carried, of_heads = jax.lax.scan(step, carried, layers, reverse=True)
    return carried, jnp.moveaxis(of_heads, 0, 1)


def layers_of(config: BertConfig, params: Mapping[str, Any], output: BertOutput) -> tuple:
    """Return parameters, inputs, contexts and maps of all layers, and whether each is normed."""
    check_no_convolution(config)
    return (
        params['layers'],
        _layers_first(output.hidden_states[:, :-1]),
        _layers_first(output.contexts),
        _layers_first(output.attentions),
        jnp.array([kind.normed for kind in config.layer_kinds]),
    )


def through_layer(
    config: BertConfig,
    steps: Linearised,
    relevance: Hidden,
    params: Mapping[str, Any],
    hidden: Hidden,
    contexts: Float[Array, 'B T N H'],
    maps: Float[Array, 'B N T S'],
    normed: Shaped[Array, ''],
) -> tuple[Hidden, Float[Array, 'B T N H']]:
    """Return the relevance of what enters a layer, and that of the outputs of its heads.

    It is given that of what leaves the layer, before any final LayerNorm. `normed` says whether the
    input of the attention is normalised where LayerNorm comes first.
    """
    _, back = jax.vjp(functools.partial(after_attention, config, steps, params), hidden, contexts)
    of_residual, of_contexts = back(relevance)
    attention = functools.partial(contexts_of, config, steps, params, maps=maps, normed=normed)
    _, back = jax.vjp(attention, hidden)
    (of_values,) = back(of_contexts)
    return of_residual + of_values, of_contexts


def contexts_of(config: BertConfig, steps: Linearised, params, hidden, *, maps, normed):
    """Return the outputs [B, T, N, H] of the heads of a layer; arguments as in `through_layer`."""
    values = values_of(config, steps, params, hidden, normed)
    return steps.linear('BSNH,BNTS->BTNH', values, maps)


def values_of(config: BertConfig, steps: Linearised, params, hidden, normed):
    """Return the values [B, S, N, H] of a layer, as heads move them; arguments as there."""
    read = hidden
    if config.family.norm_first:
        read = jnp.where(normed, normed_by(config, steps, params['attention_norm'], hidden), hidden)
    values = dense(steps, '...D,DNH->...NH', params['attention']['value'], read)
    if config.rotary_value:
        size = config.head_size
        units = jnp.broadcast_to(jnp.eye(size), (1, values.shape[1], size, size))
        values = steps.linear('BSNG,SGH->BSNH', values, turned(config, units)[0])
    return values


def after_attention(config: BertConfig, steps: Linearised, params, hidden, contexts):
    """Return the output [B, T, D] of a layer; arguments as in `through_layer`."""
    attended = dense(steps, '...NH,NHD->...D', params['attention']['output'], contexts)
    residual = _sum(steps, hidden, attended)
    fed = fed_forward(config, steps, params, residual)
    return after_feed_forward(config, steps, params, residual, fed)


def after_feed_forward(config: BertConfig, steps: Linearised, params, residual, fed):
    """Return the output of a layer, given the stream after attention and what it is fed."""
    if config.family.norm_first:
        return _sum(steps, residual, fed)
    normed = normed_by(config, steps, params['attention_norm'], residual)
    return normed_by(config, steps, params['output_norm'], _sum(steps, normed, fed))


def classified(config: BertConfig, steps: Linearised, params, hidden, attention_mask, words=None):
    """Return the logits, [B, C] or [B, T, C] for tokens, from the last layer's output [B, T, D].

    Those of a masked LM need the parameters of the table of `words` that it reads them with.
    """
    family, tokens = config.family, hidden
    if family.norm_first:
        tokens = normed_by(config, steps, params['final_norm'], tokens)
    if config.head == SEQUENCES and config.classifier_pooling == 'cls':
        tokens = tokens[:, 0]
    elif config.head == SEQUENCES and config.classifier_pooling == 'mean':
        tokens = steps.linear('BTD,BT->BD', tokens, _shares(attention_mask))
    if config.head == SEQUENCES or family.pools_tokens:
        act, norm = family.pooler_act, params.get('pooler_norm')
        tokens = _transformed(config, steps, params['pooler'], act, norm, tokens)
    elif words is not None and not family.lm_plain:
        layer, norm = params['lm']['dense'], params['lm']['norm']
        tokens = _transformed(config, steps, layer, family.lm_act, norm, tokens)
    if words is not None:
        layer = {**params.get('lm', {}), 'kernel': words['embedding']}
        return dense(steps, '...D,VD->...V', layer, tokens)
    if config.head == SEQUENCES and config.classifier_pooling == 'late':
        tokens = steps.linear('BTD,BT->BD', tokens, _shares(attention_mask))
    return dense(steps, '...D,DC->...C', params['classifier'], tokens)


def _transformed(config: BertConfig, steps: Linearised, layer, act: str | None, norm, x):
    """Return x after a dense layer, an activation (None is that of the model), and LayerNorm."""
    x = activated(steps, act or config.hidden_act, dense(steps, '...D,DF->...F', layer, x))
    return x if norm is None else normed_by(config, steps, norm, x)


def _start(config: BertConfig, logits, attention_mask):
    top = jax.nn.one_hot(logits.argmax(axis=-1), logits.shape[-1])
    return top if config.head == SEQUENCES else top * _shares(attention_mask)[..., None]


def _shares(attention_mask) -> Float[Array, 'B T']:
    return attention_mask / jnp.maximum(attention_mask.sum(axis=-1, keepdims=True), 1)


def fed_forward(config: BertConfig, steps: Linearised, params, residual):
    """Return what the feed-forward layer adds, given the stream after attention."""
    norm = params['output_norm' if config.family.norm_first else 'attention_norm']
    hidden = normed_by(config, steps, norm, residual)
    if config.family.gated:
        both = dense(steps, '...D,DGF->...GF', params['intermediate'], hidden)
        # Which of the two decides is a gate, as maps are: it lets the other through, more or less.
        wide = steps.scaled(both[..., 1, :], ACTIVATIONS[config.hidden_act](both[..., 0, :]))
    else:
        wide = dense(steps, '...D,DF->...F', params['intermediate'], hidden)
        wide = activated(steps, config.hidden_act, wide)
    return dense(steps, '...F,FD->...D', params['output'], wide)


def normed_by(config: BertConfig, steps: Linearised, params, x):
    width = x.shape[-1]
    # RMSNorm subtracts no mean.
    mean = 0 if config.family.rms_norm else x.mean(axis=-1, keepdims=True)
    deviation = jnp.sqrt(jnp.square(x - mean).mean(axis=-1, keepdims=True) + config.layer_norm_eps)
    centre = jnp.eye(width) - (0 if config.family.rms_norm else 1 / width)
    centre_and_scale = centre * params['scale'][None]
    kernel = {'kernel': centre_and_scale, **params}
    return dense(steps, '...D,DF->...F', kernel, steps.scaled(x, 1 / deviation))


def dense(steps: Linearised, equation: str, params, x):
    y = steps.linear(equation, x, params['kernel'])
    return y + jnp.broadcast_to(params['bias'], y.shape) if 'bias' in params else y


def _sum(steps: Linearised, *summands):
    return steps.linear('P...,P->...', jnp.stack(summands), jnp.ones(len(summands)))


def activated(steps: Linearised, activation: str, x):
    """Return the activation of x, as x times a slope: 0 at 0, like all activations."""
    slope = ACTIVATIONS[activation](x) / jnp.where(x == 0, 1, x)
    return steps.scaled(x, slope)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def linear(equation: str, inputs, weights):
    """Return `einsum(equation, inputs, weights)`, whose backward pass carries relevance.

    With z_ij = x_i w_ij, the contribution of input i to output j, the input receives

        R_i = sum_j (alpha z+_ij / (sum_i z+_ij + eps) + beta z-_ij / (sum_i z-_ij - eps)) R_j / c_j

    where z+ are the positive contributions, z- the negative ones, and c_j makes the shares of an
    output add up to 1. An output without any contribution has nobody to give its relevance to. The
    weights receive none.
    """
    return product(equation, inputs, weights)


def _forward(equation, inputs, weights):
    return product(equation, inputs, weights), (inputs, weights)


def _backward(equation, saved, relevance):
    inputs, weights = saved
    signed = jnp.maximum(inputs, 0), jnp.minimum(inputs, 0)
    above, below = jnp.maximum(weights, 0), jnp.minimum(weights, 0)

    def contributed(first, second):
        """Return the sum of x_i+ first_ij + x_i- second_ij, and its backward pass."""
        return jax.vjp(
            lambda up, down: product(equation, up, first) + product(equation, down, second), *signed
        )

    positive, to_positive = contributed(above, below)
    negative, to_negative = contributed(below, above)
    for_positive = ALPHA / (positive + EPSILON)
    for_negative = (1 - ALPHA) / (negative - EPSILON)
    total = for_positive * positive + for_negative * negative
    relevance = jnp.where(total > 0, relevance / jnp.where(total > 0, total, 1), 0)
    for_above = to_positive(for_positive * relevance)
    for_below = to_negative(for_negative * relevance)
    received = jax.tree.map(lambda x, a, b: x * (a + b), signed, for_above, for_below)
    return sum(received), jnp.zeros_like(weights)


linear.defvjp(_forward, _backward)


def _layers_first(emitted) -> Float[Array, 'L B ...']:
    return jnp.moveaxis(emitted, 1, 0).astype(jnp.float32)
