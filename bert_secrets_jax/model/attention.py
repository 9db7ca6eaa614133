"""The arithmetic of self-attention and of disabling a head, as pure functions of arrays.

Shape legend, used in the whole package:

    B batch   L layer   N head   T query position   S key position
    H width of a head   D hidden width   C classes   M masks

Queries are rows and keys are columns of a map: `probabilities[b, n, t, s]` is how much token `t`
  attends to token `s`.
"""

import functools
import math
import operator
from typing import Any

import flax.struct
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bert_secrets_jax.brief import check_name

# The baselines of disabled heads: those with another map, and those with another output.
MAP_BASELINES = ('uniform', 'zero')
OUTPUT_BASELINES = ('mean', 'resample')
BASELINES = (*MAP_BASELINES, *OUTPUT_BASELINES)
Mask = Bool[Array, 'B S'] | Int[Array, 'B S']


@flax.struct.dataclass
class Scope:
    """The information for attention besides its input: which tokens it may see, where they stand.

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
      summands: The number of summands of each score that the scale of scores reckons with.
    """

    visible: Any
    bias: Any = None
    turns: Any = None
    keys: Any = None
    queries: Any = None
    rows: Any = None
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


def rotation_frequencies(width: int, base: float) -> Float[np.ndarray, ' half']:
    """Return frequencies of rotary positions (Su et al. 2021, RoFormer, equation 15)."""
    # In NumPy: at the thousandth token, a rounded frequency is a thousand times as far off.
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    # PyTorch rounds the power as float64 does; NumPy's in float32 differs in each sixth.
    return np.float32(1) / (base ** exponents.astype(float)).astype(np.float32)


def sinusoids(length: int, width: int) -> Float[np.ndarray, '2 T half']:
    """Return cosines and sines of the angles of RoFormer, rounded only once they are computed."""
    angles = np.arange(length)[:, None] / 10_000.0 ** (np.arange(0, width, 2)[None, :] / width)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def rotate(
    x: Float[Array, 'B T N H'], turns: Float[Array, '2 T half'], *, interleaved: bool = False
) -> Float[Array, 'B T N H']:
    """Rotate queries or keys by their positions; arguments as in `Scope`."""
    cos, sin = turns[:, None, :, None]
    axis, half = (-1 if interleaved else -2), x.shape[-1] // 2
    shape = (half, 2) if interleaved else (2, half)
    pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], *shape)
    first, second = jnp.moveaxis(pairs, axis, 0)
    rotated = jnp.stack([first * cos - second * sin, second * cos + first * sin], axis=axis)
    return rotated.reshape(x.shape).astype(x.dtype)


def distance_buckets(length: int, buckets: int, farthest: int = 128) -> Int[np.ndarray, 'T S']:
    """Return the bucket of each distance between query and key (Raffel et al. 2020, section 2.1).

    Half are for keys after the query. In each half, the first half holds one distance each, the
    others grow with its logarithm up to `farthest`, and all beyond share the last.
    """
    # In NumPy, since the logarithm of a device may round a distance into the bucket before.
    distance = np.arange(length) - np.arange(length)[:, None]
    half = buckets // 2
    exact = half // 2
    far = np.log(np.maximum(np.abs(distance), 1) / exact) / np.log(farthest / exact)
    grown = np.minimum(exact + (far * (half - exact)).astype(int), half - 1)
    bucket = np.where(np.abs(distance) < exact, np.abs(distance), grown)
    return bucket + np.where(distance > 0, half, 0)


def fall_with_distance(length: int, heads: int) -> Float[np.ndarray, '1 N T S']:
    """Return what is added to scores for distance: less, the farther the key (ALiBi).

    Source: Press et al. 2022, "Train short, test long", section 3, on both sides of the query. Up
    to a power of two, slopes of heads are the paper's. Those beyond are every other one of twice as
    many heads, as in its authors' code.
    """
    near = 2 ** (heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * (head + 1) / near) for head in range(near)]
    slopes += [2.0 ** (-4 * (2 * head + 1) / near) for head in range(heads - near)]
    distance = np.abs(np.arange(length) - np.arange(length)[:, None])
    return -(np.array(slopes, np.float32)[:, None, None] * distance.astype(np.float32))[None]


def distance_rows(length: int, span: int, buckets: int, longest: int) -> Int[np.ndarray, 'T S']:
    """Return the row of each distance, query minus key, in DeBERTa's table of 2 * `span` rows.

    Distances up to half the `buckets` have rows of their own; longer ones share rows by their
    logarithm (He et al. 2021, "DeBERTa", equation 3, and its version 2). Below 1, none share.
    """
    distance = np.arange(length)[:, None] - np.arange(length)
    middle = buckets // 2
    if 0 < middle < length - 1:
        # In float32, as in PyTorch: a logarithm may fall on a bound between two buckets.
        far = np.maximum(np.abs(distance), middle).astype(np.float32) / np.float32(middle)
        grown = np.log(far) / np.log(np.float32((longest - 1) / middle)) * np.float32(middle - 1)
        grown = (np.ceil(grown) + middle).astype(int) * np.sign(distance)
        distance = np.where(np.abs(distance) <= middle, distance, grown)
    return np.clip(distance + span, 0, 2 * span - 1)


def score_parts(
    query: Float[Array, 'B T N H'],
    key: Float[Array, 'B S N H'],
    scope: Scope,
    *,
    precision: jax.lax.PrecisionLike = None,
) -> dict[str, Float[Array, 'B N T S']]:
    """Return the scaled summands of the scores, in float32, by their names in DeBERTa.

    'c2c' is the product of query and key, which others have alone. In 'c2p' the query meets the key
    of the distance, in 'p2c' the key meets its query (He et al. 2021, "DeBERTa", equation 4).
    """
    einsum = functools.partial(jnp.einsum, precision=precision, preferred_element_type=jnp.float32)
    count = query.shape[1]
    if scope.turns is not None:
        turned = functools.partial(rotate, interleaved=scope.interleaved)
        query = turned(query, scope.turns[:, :count])
        key = turned(key, scope.turns)
    parts = {'c2c': einsum('BTNH,BSNH->BNTS', query, key)}
    if scope.keys is not None:
        of_rows = einsum('BTNH,KNH->BNTK', query, scope.keys)
        parts['c2p'] = jnp.take_along_axis(of_rows, scope.rows[None, None, :count], axis=-1)
    if scope.queries is not None:
        of_rows = einsum('BSNH,KNH->BNSK', key, scope.queries)
        of_keys = jnp.take_along_axis(of_rows, scope.rows[:count].T[None, None], axis=-1)
        parts['p2c'] = jnp.swapaxes(of_keys, -1, -2)
    divisor = jnp.sqrt(jnp.float32(query.shape[-1] * scope.summands))
    return {name: part / divisor for name, part in parts.items()}


def attention_probabilities(
    query: Float[Array, 'B T N H'],
    key: Float[Array, 'B S N H'],
    scope: Scope,
    *,
    precision: jax.lax.PrecisionLike = None,
    part_mask: Float[Array, 'P N'] | None = None,
) -> Float[Array, 'B N T S']:
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


def masked_softmax(scores: Float[Array, 'B N T S'], scope: Scope) -> Float[Array, 'B N T S']:
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
    probabilities: Float[Array, 'B N T S'],
    head_mask: Float[Array, ' N'] | Float[Array, 'B N'],
    scope: Scope,
    *,
    baseline: str,
) -> Float[Array, 'B N T S']:
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


def dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, ...]
) -> Bool[Array, 'B ...']:
    """Choose what dropout keeps: independent of batching and, along the first axis, of padding.

    Every example has a key of its own, and an element's fate is a hash of that key and of its
    position. Training in other batches, with other padding or on other devices is then the same.
    `rate` is the probability of a loss; `shape` is of one example, the padded axis first.
    """
    places = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _kept(keys, rate, places)


def attention_dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, int, int]
) -> Bool[Array, 'B N T S']:
    """Do the same for maps of `shape` (N, T, S), which are padded along queries and keys."""
    heads, queries, width = (jnp.arange(size, dtype=jnp.uint32) for size in shape)
    # Farther apart than any text is long, so that a place has the same number in all paddings.
    places = (queries[:, None] << 16) + width[None, :]
    each_head = heads[:, None, None] * jnp.uint32(0x9E3779B1)
    return _kept(keys, rate, places[None] + each_head)


def _kept(keys: Key[Array, ' B'], rate: float, places: Array) -> Bool[Array, 'B ...']:
    """Return what of each example is kept, by the number of each place.

    The hash is lowbias32 (https://nullprogram.com/blog/2018/07/31/) with the second half of the key
    added midway. It costs nine operations; JAX's own bits cost a hundred.
    """
    words = jax.random.key_data(keys)
    first, second = (
        words[:, at].reshape(-1, *[1] * places.ndim).astype(jnp.uint32) for at in (0, -1)
    )
    x = places[None] + first
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D) + second
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    return x >= jnp.uint32(round(rate * 2**32))


def attend(
    probabilities: Float[Array, 'B N T S'],
    value: Float[Array, 'B S N H'],
    *,
    precision: jax.lax.PrecisionLike = None,
) -> Float[Array, 'B T N H']:
    """Return the context of every head: its map times the values."""
    return jnp.einsum('BNTS,BSNH->BTNH', probabilities, value, precision=precision)
