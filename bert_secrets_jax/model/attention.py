"""The arithmetic of self-attention and of disabling a head, as pure functions of arrays.

Shape legend, used in the whole package:

    B batch   L layer   N head   T query position   S key position
    H width of a head   D hidden width   C classes   M masks

Queries are rows and keys are columns of a map: `probabilities[b, n, t, s]` is how much token `t`
  attends to token `s`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

# What a disabled head does instead: another map, or another output.
MAP_BASELINES = ('uniform', 'zero')
OUTPUT_BASELINES = ('mean', 'resample')
BASELINES = (*MAP_BASELINES, *OUTPUT_BASELINES)
Mask = Bool[Array, 'B S'] | Int[Array, 'B S']


def attention_probabilities(
    query: Float[Array, 'B T N H'],
    key: Float[Array, 'B S N H'],
    attention_mask: Mask,
    *,
    precision: jax.lax.PrecisionLike = None,
) -> Float[Array, 'B N T S']:
    """Scaled dot-product attention, `softmax(Q K^T / sqrt(H))`, in float32 whatever the inputs are.

    Args:
      query: Queries of each head.
      key: Keys of each head.
      attention_mask: 1 on real tokens, 0 on padding. A padded key gets exactly 0 from every query.
      precision: Precision of the matrix product, as in `jax.numpy.einsum`.

    Returns:
      The maps, whose rows sum to 1. A row without any real key (in a filler example) is uniform
      rather than NaN.
    """
    scores = jnp.einsum(
        'BTNH,BSNH->BNTS',
        query,
        key,
        precision=precision,
        preferred_element_type=jnp.float32,
    )
    return masked_softmax(scores / jnp.sqrt(jnp.float32(query.shape[-1])), attention_mask)


def masked_softmax(
    scores: Float[Array, 'B N T S'], attention_mask: Mask
) -> Float[Array, 'B N T S']:
    """Return the softmax of scaled scores: 0 on padding, uniform in a row without real keys."""
    # The lowest finite number and not -inf: with -inf a row without real keys would become NaN.
    scores = jnp.where(
        attention_mask[:, None, None, :].astype(bool),
        scores,
        jnp.finfo(jnp.float32).min,
    )
    return jax.nn.softmax(scores, axis=-1)


def uniform_probabilities(attention_mask: Mask) -> Float[Array, 'B 1 1 S']:
    """Return the map of a disabled head (the paper, section 4.6): 1/length, 0 on padding.

    The length counts [CLS] and [SEP], as in the authors' code. A filler example without real tokens
    gets zeros.
    """
    real = attention_mask.astype(jnp.float32)
    length = jnp.maximum(real.sum(axis=-1, keepdims=True), 1)
    return (real / length)[:, None, None, :]


def disable_heads(
    probabilities: Float[Array, 'B N T S'],
    head_mask: Float[Array, ' N'] | Float[Array, 'B N'],
    attention_mask: Mask,
    *,
    baseline: str,
) -> Float[Array, 'B N T S']:
    """Replace the maps of masked heads: `mask * learned + (1 - mask) * baseline`.

    Args:
      probabilities: Learned maps, after softmax and before dropout.
      head_mask: 1 keeps a head (exactly), 0 replaces it (exactly), fractions interpolate. The
        result is differentiable in it.
      attention_mask: 1 on real tokens, 0 on padding.
      baseline: What replaces a map. 'uniform' is the paper's way: every real token gets 1/length,
        so that information still flows. 'zero' removes the head's contribution (Michel et al.
        2019, Voita et al. 2019).

    Raises:
      ValueError: The baseline is none of `MAP_BASELINES`.
    """
    check_baseline(baseline, MAP_BASELINES)
    keep = jnp.atleast_2d(head_mask)[:, :, None, None]
    if baseline == 'zero':
        return keep * probabilities
    return keep * probabilities + (1 - keep) * uniform_probabilities(attention_mask)


def replace_contexts(
    context: Float[Array, 'B T N H'],
    head_mask: Float[Array, ' N'] | Float[Array, 'B N'],
    replacement: Float[Array, '#B #T N H'],
) -> Float[Array, 'B T N H']:
    """Replace the outputs of masked heads: `mask * own + (1 - mask) * replacement`.

    Args:
      context: The output of each head, before the output projection.
      head_mask: 1 keeps a head, 0 replaces its output, fractions interpolate. The result is
        differentiable in it.
      replacement: The outputs that replace these.
    """
    keep = jnp.atleast_2d(head_mask)[:, None, :, None].astype(context.dtype)
    return keep * context + (1 - keep) * replacement.astype(context.dtype)


def check_baseline(baseline: str, allowed: tuple[str, ...] = BASELINES) -> None:
    """Raise ValueError unless the baseline is one of those allowed."""
    if baseline not in BASELINES:
        raise ValueError(f'{baseline=} is unknown; choose one of {allowed}.')
    if baseline not in allowed:
        raise ValueError(f'{baseline=} replaces outputs, not maps; choose one of {allowed} here.')


def dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, ...]
) -> Bool[Array, 'B ...']:
    """Choose what dropout keeps: independent of batching and, along the first axis, of padding.

    Every example has a key of its own and JAX numbers random bits from the start of an array, so
    an element's fate depends on its example and position alone. Training in other batches, with
    other padding or on other devices is then the same training.

    Args:
      keys: One key per example.
      rate: Probability that an element is dropped.
      shape: Shape of one example, the padded axis first.
    """
    return jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, shape))(keys)


def attention_dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, int, int]
) -> Bool[Array, 'B N T S']:
    """Do the same for maps of `shape` (N, T, S), which are padded along queries and keys."""
    heads, queries, width = shape

    def draw(key):
        rows = jax.vmap(lambda query: jax.random.fold_in(key, query))(jnp.arange(queries))
        return jnp.transpose(dropout_mask(rows, rate, (width, heads)), (2, 0, 1))

    return jax.vmap(draw)(keys)


def attend(
    probabilities: Float[Array, 'B N T S'],
    value: Float[Array, 'B S N H'],
    *,
    precision: jax.lax.PrecisionLike = None,
) -> Float[Array, 'B T N H']:
    """Return the context of every head: its map times the values."""
    return jnp.einsum('BNTS,BSNH->BTNH', probabilities, value, precision=precision)
