"""The arithmetic of self-attention and of disabling a head, as pure functions of arrays.

Shape legend, used in the whole package:

    B batch   L layer   N head   T query position   S key position
    H width of a head   D hidden width   C classes   M masks

Queries are rows and keys are columns of a map: `probabilities[b, n, t, s]` is how much token `t`
  attends to token `s`.
"""

import functools
import operator
from typing import Any

import flax.struct
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.model.positions import disentangled, rotary

# The baselines of disabled heads: those with another map, and those with another output.
MAP_BASELINES = ('uniform', 'zero')
OUTPUT_BASELINES = ('mean', 'resample')
BASELINES = (*MAP_BASELINES, *OUTPUT_BASELINES)
Mask = Bool[Array, 'B S'] | Int[Array, 'B S']
Maps = Float[Array, 'B N T S']
Queries = Float[Array, 'B T N H']
Keys = Float[Array, 'B S N H']


@flax.struct.dataclass
class Scope:
    """The information for a layer besides its input: which tokens it may see, where they stand.

    Attributes:
      visible: [B, 1, T, S] Whether a query may attend to a key: keys are real tokens, and in a
        local layer near. T is 1 where all queries see the same.
      bias: [1, N, T, S] A summand of each score for the distance of the two (MPNet, ALiBi), or
        None.
      turns: [2, T, H/2] Cosines and sines of the angles by which queries and keys are rotated
        (RoPE); None without.
      interleaved: Whether they rotate two neighbours each, and not the first half of a head against
        the second.
      keys, queries: [K, N, H] The keys and the queries of distances in one layer, or None.
      rows: [T, S] The one of the K distances from each key to each query.
      normed: [] Whether the input of the attention is normalised where LayerNorm comes first; None
        if it is so in all layers. In ModernBERT's first layer it is not.
      distances: [K, D] The embeddings of all distances (DeBERTa), or None.
      convolved: [B, T, D] The convolution over the embeddings (DeBERTa), or None.
      is_convolved: [] Whether it is added to the output of the layer.
      summands: The number of summands of each score that the scale of scores reckons with.
    """

    visible: Any
    bias: Any = None
    turns: Any = None
    keys: Any = None
    queries: Any = None
    rows: Any = None
    normed: Any = None
    distances: Any = None
    convolved: Any = None
    is_convolved: Any = None
    interleaved: bool = flax.struct.field(pytree_node=False, default=False)
    summands: int = flax.struct.field(default=1, pytree_node=False)


def check_padding(attention_mask: Any) -> None:
    """Raise ValueError for padding before a text; inside `jit` nobody can see it.

    Classifiers read the first token, and most positions count from there, in PyTorch too.
    """
    if isinstance(attention_mask, jax.core.Tracer):
        return
    real = np.asarray(attention_mask) > 0
    before = real.any(axis=1) & ~real[:, 0]
    if before.any():
        raise ValueError(
            f'attention_mask: row {before.argmax()} begins with padding, where classifiers read '
            "[CLS]. Pad on the right (tokenizer.padding_side = 'right')."
        )


def visible_keys(attention_mask: Mask, reach: int | None = None) -> Bool[Array, 'B 1 T S']:
    """Return which keys each query may attend to, with T = 1 where that is the same for all.

    `reach` is the greatest distance of a key in a local layer; None sees the whole text.
    """
    real = attention_mask[:, None, None, :].astype(bool)
    if reach is None:
        return real
    places = jnp.arange(attention_mask.shape[-1])
    return real & (jnp.abs(places[:, None] - places[None, :]) <= reach)[None, None]


def score_parts(
    query: Queries, key: Keys, scope: Scope, *, precision: jax.lax.PrecisionLike = None
) -> dict[str, Maps]:
    """Return the scaled summands of the scores, in float32, by their names in DeBERTa.

    'c2c' is the product of query and key, which others have alone. In 'c2p' the query meets the key
    of the distance, in 'p2c' the key meets its query (He et al. 2021, "DeBERTa", equation 4).
    """
    einsum = functools.partial(jnp.einsum, precision=precision, preferred_element_type=jnp.float32)
    if scope.turns is not None:
        turned = functools.partial(rotary.rotate, interleaved=scope.interleaved)
        query = turned(query, scope.turns[:, : query.shape[1]])
        key = turned(key, scope.turns)
    parts = {'c2c': einsum('BTNH,BSNH->BNTS', query, key)}
    parts |= disentangled.parts_of_distance(einsum, query, key, scope)
    divisor = jnp.sqrt(jnp.float32(query.shape[-1] * scope.summands))
    return {name: part / divisor for name, part in parts.items()}


def attention_probabilities(
    query: Queries,
    key: Keys,
    scope: Scope,
    *,
    precision: jax.lax.PrecisionLike = None,
    part_mask: Float[Array, 'P N'] | None = None,
) -> Maps:
    """Scaled dot-product attention, `softmax(Q K^T / sqrt(H))`, in float32 whatever the inputs are.

    Queries are of all tokens or of the first ones. An invisible key gets exactly 0. The rows of the
    maps sum to 1; one without any visible key (in a filler example) is uniform rather than NaN.
    Scores are the sum of their parts, each times its row of `part_mask`, if there is one.
    """
    parts = list(score_parts(query, key, scope, precision=precision).values())
    if part_mask is not None:
        kept = part_mask[:, None, :, None, None]
        parts = [kept[at] * part for at, part in enumerate(parts)]
    return masked_softmax(functools.reduce(operator.add, parts), scope)


def masked_softmax(scores: Maps, scope: Scope) -> Maps:
    """Return the softmax of scaled scores: 0 where nothing is visible, uniform in empty rows."""
    queries = scores.shape[2]
    if scope.bias is not None:
        scores = scores + scope.bias[:, :, :queries]
    # The lowest finite number and not -inf: with -inf a row without visible keys would become NaN.
    scores = jnp.where(scope.visible[:, :, :queries], scores, jnp.finfo(jnp.float32).min)
    return jax.nn.softmax(scores, axis=-1)


def uniform_probabilities(scope: Scope) -> Float[Array, 'B 1 T S']:
    """Return the map of a disabled head (the paper, section 4.6): 1/length, 0 on padding.

    The length counts [CLS] and [SEP], as in the authors' code; in a local layer, the visible keys.
    A query without any (in a filler example) gets zeros. T is as in `Scope.visible`.
    """
    visible = scope.visible.astype(jnp.float32)
    return visible / jnp.maximum(visible.sum(axis=-1, keepdims=True), 1)


def disable_heads(
    probabilities: Maps,
    head_mask: Float[Array, ' N'] | Float[Array, 'B N'],
    scope: Scope,
    *,
    baseline: str,
) -> Maps:
    """Replace the maps of masked heads: `mask * learned + (1 - mask) * baseline`.

    A mask of 1 keeps a head and 0 replaces it, both exactly; the result is differentiable in it.
    With 'uniform', the paper's way, every visible token gets 1/length, so that information still
    flows. 'zero' removes the head's contribution (Michel et al. 2019, Voita et al. 2019). Maps are
    those after softmax and before dropout. ValueError for another baseline.
    """
    check_baseline(baseline, MAP_BASELINES)
    keep = jnp.atleast_2d(head_mask)[:, :, None, None]
    if baseline == 'zero':
        return keep * probabilities
    return keep * probabilities + (1 - keep) * uniform_probabilities(scope)


def check_baseline(baseline: str, allowed: tuple[str, ...] = BASELINES) -> None:
    """Raise ValueError unless the baseline is one of those allowed."""
    if baseline in BASELINES and baseline not in allowed:
        raise ValueError(f'{baseline=} replaces outputs, not maps; choose one of {allowed} here.')
    check_name('baseline', baseline, allowed)


def attend(probabilities: Maps, value: Keys, *, precision: jax.lax.PrecisionLike = None) -> Queries:
    """Return the context of every head: its map times the values."""
    return jnp.einsum('BNTS,BSNH->BTNH', probabilities, value, precision=precision)
