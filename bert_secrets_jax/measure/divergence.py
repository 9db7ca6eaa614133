"""How much the maps of heads differ: Jensen-Shannon divergences between all pairs of heads.

Shapes: L layers, N heads, H = L * N heads of all layers, T query tokens, S key tokens.
"""

import jax
import jax.numpy as jnp

from bert_secrets_jax.measure.statistics import Maps, Marks, Result

# The share of each row that is spread evenly over the real tokens, as in the published code.
SMOOTHING = 0.001


def head_divergences(attentions: Maps, marks: Marks) -> Result:
    """Divergence of each head's rows from those of every head, a mean over query tokens, in nats.

    Clark et al. 2019, section 6: JS(p, q) = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2. Rows
    are smoothed as in their code. They sum over the tokens of a corpus, and so does this: an
    example counts as often as it has tokens.

    Returns:
      The divergences [L, N, H], between 0 and log 2, and the number of tokens.
    """
    token = marks['token'].astype(attentions.dtype)
    count = jnp.maximum(token.sum(), 1)
    layers, heads = attentions.shape[:2]
    rows = attentions.reshape(layers * heads, *attentions.shape[2:])
    rows = ((1 - SMOOTHING) * rows + SMOOTHING / count) * token[None, None, :]
    negative = -_entropies(rows)

    def from_all(row_and_own):
        row, own = row_and_own
        return (negative + own[None]) / 2 + _entropies((rows + row[None]) / 2)

    # One head after the other, so that no array of all pairs of maps is made.
    values = jax.lax.map(from_all, (rows, negative))
    values = jnp.einsum('HGT,T->HG', values, token) / count
    # Rounding makes a divergence of 0 a little less at times.
    return jnp.maximum(values, 0).reshape(layers, heads, -1), token.sum()


def _entropies(rows):
    """Return the entropy of each row [..., T] of maps [..., T, S]; 0 log 0 is 0."""
    return -(rows * jnp.log(jnp.maximum(rows, jnp.finfo(rows.dtype).tiny))).sum(axis=-1)
