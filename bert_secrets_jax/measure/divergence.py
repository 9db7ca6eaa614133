"""How much the maps of heads differ: Jensen-Shannon divergences between all pairs of heads.

Shapes: L layers, N heads, H = L * N heads of all layers, T query tokens, S key tokens.
"""

import jax
import jax.numpy as jnp

from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.statistics import Maps, Marks, Result, entropies

SMOOTHING = 0.001  # the share of each row that is spread evenly, as in the published code


def head_divergences(attentions: Maps, marks: Marks) -> Result:
    """Divergence of each head's rows from those of every head, a mean over query tokens, in nats.

    Clark et al. 2019, section 6: JS(p, q) = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2. Rows
    are smoothed as in their code. They sum over the tokens of a corpus, and so does this: an
    example counts as often as it has tokens. The value is [L, N, H], between 0 and log 2.
    """
    token = marks['token'].astype(attentions.dtype)
    count = jnp.maximum(token.sum(), 1)
    layers, heads = attentions.shape[:2]
    size = layers * heads
    rows = attentions.reshape(size, *attentions.shape[2:])
    rows = ((1 - SMOOTHING) * rows + SMOOTHING / count) * (token[:, None] * token[None, :])[None]
    own = entropies(rows)
    # Each pair once: every head with the half of all heads that come after it, in a circle.
    others = jnp.arange(size)[:, None] + jnp.arange(1, size // 2 + 1)[None, :]
    circle = jnp.concatenate([rows, rows[: size // 2]])

    def from_others(number):
        after = jax.lax.dynamic_slice_in_dim(circle, number + 1, size // 2)
        return entropies((rows[number][None] + after) / 2)

    # One head after the other, so that no array of all pairs of maps is made.
    middle = jax.lax.map(from_others, jnp.arange(size))
    apart = middle - (own[:, None] + own[others % size]) / 2
    # Rounding makes a divergence of 0 a little less at times.
    total = product('HGT,T->HG', apart, token)
    divergences = jnp.maximum(total / count, 0)
    values = jnp.zeros((size, size)).at[jnp.arange(size)[:, None], others % size].set(divergences)
    return jnp.maximum(values, values.T).reshape(layers, heads, size), token.sum()
