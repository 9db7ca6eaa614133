"""How much attention moves, and not how much it weighs: norms of what heads give to tokens.

Head h gives token i the sum over tokens j of `alpha_ij f_h(x_j)`, where `f_h(x) = (x W_V + b_V)
W_O` is what it would give to a token that attends to one alone (Kobayashi et al. 2020, equation 3,
"Attention is Not Only a Weight"). A weight alpha_ij says nothing of how long the vector is that it
scales; `||alpha_ij f_h(x_j)||` does. In equations, M is a second axis of heads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.relevance import LINEAR, Hidden, dense, layers_of, values_of
from bert_secrets_jax.measure.statistics import Marks, Result
from bert_secrets_jax.measure.stream import BatchMaps
from bert_secrets_jax.model.bert import Bert, BertOutput, check_has_all_heads
from bert_secrets_jax.model.parts import unchanged

Linear = Callable[[Float[Array, '... D']], Float[Array, '... D']]
# How much of a token comes from the others can be told in these ways (Kobayashi et al. 2021).
MIXING = ('weights', 'norms', 'weights, residual', 'norms, residual', 'norms, residual, LayerNorm')


@flax.struct.dataclass
class Attended:
    """The attention of one layer, taken apart.

    Attributes:
      entered: The input of the layer, which stays on the residual stream.
      moved: The vector from each head to a token that attends to one token alone.
      given: The vector from each head to each token: the sum of `maps` times `moved`.
      residual: Input plus output of attention, with its bias, before any LayerNorm.
    """

    entered: Hidden
    maps: Float[Array, 'B N T S']
    moved: Float[Array, 'B S N D']
    given: Float[Array, 'B T N D']
    residual: Hidden


def each_layer(
    of_layer: Callable, bert: Bert, params: Mapping[str, Any], output: BertOutput
) -> Any:
    """Make something of the attention of each layer, and hold only one layer's `moved` at a time.

    `of_layer` takes the parameters of a layer and its `Attended`, and returns a tree of arrays [B,
    ...]; these come as [B, L, ...]. The output is of a batch, without a mask over heads.
    """
    config = bert.config
    check_has_all_heads(config)

    def step(_, layer):
        """Take the attention of a layer apart; its contexts come before the output projection."""
        of_params, entered, contexts, maps, normed = layer
        output = of_params['attention']['output']
        values = values_of(config, LINEAR, of_params, entered, normed)
        attended = Attended(
            entered=entered,
            maps=maps,
            moved=product('BSNH,NHD->BSND', values, output['kernel']),
            given=product('BTNH,NHD->BTND', contexts, output['kernel']),
            residual=entered + dense(LINEAR, 'BTNH,NHD->BTD', output, contexts),
        )
        return None, of_layer(of_params, attended)

    _, made = jax.lax.scan(step, None, layers_of(config, params, output))
    return jax.tree.map(lambda each: jnp.moveaxis(each, 0, 1), made)


def head_norms(attended: Attended) -> Float[Array, 'B N T S']:
    """Return ||alpha_ij f_h(x_j)|| of each head and pair of tokens; 0 where the key is padding."""
    lengths = jnp.linalg.norm(attended.moved, axis=-1)
    return attended.maps * jnp.moveaxis(lengths, 1, 2)[:, :, None]


def pair_norms(
    attended: Attended, linear: Linear | None = None, *, residual: bool = False
) -> Float[Array, 'B T S']:
    """Return the norm of what each token gets from each token through all heads together.

    That is ||L(sum_h alpha_ij^h f_h(x_j) + [i = j] x_i)|| with a linear map L, and the last term if
    `residual` (Kobayashi et al. 2020, and 2021, "Incorporating Residual and Normalization Layers
    into Analysis of Masked Language Models"). Its square comes from the inner products of all pairs
    of heads, [B, S, N, N]; vectors [B, T, S, D] never exist. Where heads all but cancel, rounding
    leaves about a thousandth of their length.
    """
    linear = linear or unchanged
    vectors = linear(attended.moved)
    inner = product('BSND,BSMD->BSNM', vectors, vectors)
    weighted = product('BNTS,BSNM->BMTS', attended.maps, inner)
    squares = (weighted * attended.maps).sum(axis=1)
    # A sum that is 0 but for rounding may be below it.
    norms = jnp.sqrt(jnp.maximum(squares, 0))
    if not residual:
        return norms
    own = jnp.linalg.norm(linear(_own(attended) + attended.entered), axis=-1)
    diagonal = jnp.arange(own.shape[-1])
    return norms.at[:, diagonal, diagonal].set(own)


def norm_map(params: Mapping[str, Any]) -> Linear:
    """Return the linear part of LayerNorm: it subtracts the mean of a vector and scales by gamma.

    LayerNorm of a sum is this map of each summand, over one number, plus beta (Kobayashi et al.
    2021).
    """

    def linear(x):
        scale = params['scale'].reshape(*[1] * (x.ndim - 1), -1)
        return (x - x.mean(axis=-1, keepdims=True)) * scale

    return linear


def mixing(bert: Bert, params: Mapping[str, Any], attended: Attended) -> Float[Array, 'B T 5']:
    """Return how much of each token comes from other tokens, in the five ways of `MIXING`.

    With the vector that a token gets from all others together (context) and the one that comes from
    itself (preserved), the ratio is ||context|| / (||context|| + ||preserved||) (Kobayashi et al.
    2021). What stays on the residual stream is preserved, too; by weights, it weighs as much as all
    attention (Abnar and Zuidema 2020). LayerNorm is the one after attention, if it stands there. As
    in the published code, weights are averaged over heads, the bias of values is part of f, and
    biases that no token brings count for neither.
    """
    own = _own(attended)
    context = attended.given.sum(axis=2) - own
    preserved = own + attended.entered
    linear = unchanged if bert.config.family.norm_first else norm_map(params['attention_norm'])
    weights = 1 - _diagonal(attended.maps).mean(axis=1)
    return jnp.stack(
        [
            weights,
            _share(context, own),
            weights / 2,
            _share(context, preserved),
            _share(linear(context), linear(preserved)),
        ],
        axis=-1,
    )


def norms_of_heads(
    bert: Bert, params: Mapping[str, Any], batch: Batch, **options: Any
) -> BatchMaps:
    """Return ||alpha_ij f_h(x_j)|| in the place of the maps of a batch (`stream`, `maps_of`)."""
    return _from_layers(lambda _, attended: head_norms(attended), bert, params, batch, **options)


def shares_of_norms(
    bert: Bert, params: Mapping[str, Any], batch: Batch, **options: Any
) -> BatchMaps:
    """Return norms as shares of their rows in the place of the maps (`stream`, `maps_of`).

    As those of maps, rows sum to 1, so that every statistic of attention can be measured on them;
    padding has exactly 0. A head that moves nothing has rows of zeros.
    """
    norms = norms_of_heads(bert, params, batch, **options)
    totals = norms.sum(axis=-1, keepdims=True)
    return norms / jnp.where(totals > 0, totals, 1)


def mixing_ratios(
    bert: Bert, params: Mapping[str, Any], batch: Batch, **options: Any
) -> Float[Array, 'B L 5 T 1']:
    """Return the ratios of `MIXING` with their ways in the place of heads (`stream`, `maps_of`)."""
    ratios = _from_layers(lambda *layer: mixing(bert, *layer), bert, params, batch, **options)
    return jnp.moveaxis(ratios, -1, 2)[..., None]


def output_norms(
    bert: Bert, params: Mapping[str, Any], batch: Batch, **options: Any
) -> Float[Array, 'B L N T 1']:
    """Return the norm of what each head gives to each token in the place of maps."""

    def lengths(_, attended: Attended) -> Float[Array, 'B T N']:
        return jnp.linalg.norm(attended.given, axis=-1)

    norms = _from_layers(lengths, bert, params, batch, **options)
    return jnp.moveaxis(norms, -1, 2)[..., None]


def _from_layers(
    of_layer: Callable, bert: Bert, params, batch: Batch, *, head_mask=None, baseline=''
):
    """Return what `each_layer` does for a batch: disabled heads would move nothing."""
    del baseline  # No head is disabled.
    if head_mask is not None:
        raise ValueError(
            'Norms are of what all heads move, and some are disabled here: leave head_mask out.'
        )
    return each_layer(of_layer, bert, params, bert.apply({'params': params}, **batch.inputs))


def over_tokens(values: Float[Array, 'L N T 1'], marks: Marks) -> Result:
    """Mean over real tokens of a number that each has (`mixing_ratios`, `output_norms`)."""
    token = marks['token']
    total = (values[..., 0] * token[None, None]).sum(axis=-1)
    return total / jnp.maximum(token.sum(), 1), jnp.float32(1)


def beside_layer(values: Float[Array, 'L N T 1'], marks: Marks) -> Result:
    """The same, divided by the mean over the heads of the layer.

    Source: Sandoval-Segura et al. 2025, "Identifying and Evaluating Inactive Heads in Pretrained
    LLMs".
    """
    means, weight = over_tokens(values, marks)
    of_layer = means.mean(axis=1, keepdims=True)
    return means / jnp.where(of_layer > 0, of_layer, 1), weight


def _own(attended: Attended) -> Hidden:
    """Return what each token gets from itself through all heads."""
    return product('BNT,BTND->BTD', _diagonal(attended.maps), attended.moved)


def _diagonal(maps: Float[Array, 'B N T T']) -> Float[Array, 'B N T']:
    return jnp.diagonal(maps, axis1=-2, axis2=-1)


def _share(context: Hidden, preserved: Hidden):
    """Return ||context|| / (||context|| + ||preserved||), 0 where both are 0."""
    first, second = (jnp.linalg.norm(each, axis=-1) for each in (context, preserved))
    total = first + second
    return first / jnp.where(total > 0, total, 1)
