"""Statistics of attention: pure functions of one example's maps.

Each takes `(attentions [L, N, T, S], marks)` and returns `(value [L, N], weight [])`. `marks` names
sets of positions of the example (`marks['token'] [T]` are the real tokens; rows and columns of
padding never count). Weight 0 says that the example has no such token and is to be left out.

Write your own in the same form and hand it to `collect`:

    def attention_to_first_half(attentions, marks):
        ...
        return value, weight
"""

from collections.abc import Callable, Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Maps = Float[Array, 'L N T S']
Marks = Mapping[str, Bool[Array, ' T']]
Result = tuple[Float[Array, 'L N'], Float[Array, '']]
Statistic = Callable[[Maps, Marks], Result]
Comparison = Callable[[Maps, Maps, Marks], Result]


def attention_to(name: str) -> Statistic:
    """Return the statistic "attention to tokens of type `name`" (the paper, section 4.4).

    A token's score is the attention that it gets, averaged over all query tokens ("sum over the
    query tokens divided by the sequence length"); with several tokens of the type the greatest
    score counts; examples without any are left out.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        score = _mean_over_queries(attentions, marks['token'])
        weight = marks[name].any().astype(jnp.float32)
        return jnp.where(marks[name][None, None, :], score, 0).max(axis=-1), weight

    statistic.__name__ = f'attention_to_{name}'
    return statistic


# Module constants rather than calls at the place of use: jit recognises a statistic it has
# compiled by its identity.
to_cls = attention_to('cls')
to_sep = attention_to('sep')


def to_self(attentions: Maps, marks: Marks) -> Result:
    """Attention of a token to itself, mean over tokens (Clark et al. 2019, section 3)."""
    return _at_offset(attentions, marks, 0)


def to_previous(attentions: Maps, marks: Marks) -> Result:
    """Attention to the previous token, mean over all tokens (Clark et al. 2019, section 3).

    The first token has none and counts as 0, so the greatest possible value is (T - 1) / T.
    """
    return _at_offset(attentions, marks, -1)


def to_next(attentions: Maps, marks: Marks) -> Result:
    """Attention to the next token, mean over all tokens (Clark et al. 2019, section 3).

    The last token has none and counts as 0, so the greatest possible value is (T - 1) / T.
    """
    return _at_offset(attentions, marks, 1)


def entropy(attentions: Maps, marks: Marks) -> Result:
    """Entropy of a token's attention in nats, mean over tokens (Clark et al. 2019, section 3.3).

    0 is all attention on one token, log(T) is evenly over all. Differs from Clark et al.'s code in
    that the probabilities are not smoothed by 1e-4 towards uniform, which their log(0) needed.
    """
    # 0 log 0 is 0 here: padding has probability 0 and adds nothing. Four times as fast on a CPU as
    # `jax.scipy.special.entr`, which also looks after negative numbers.
    terms = -attentions * jnp.log(jnp.maximum(attentions, jnp.finfo(jnp.float32).tiny))
    return _over_queries(terms.sum(axis=-1), marks['token'])


def cosine(before: Maps, after: Maps, marks: Marks) -> Result:
    """Cosine similarity of two models' flattened maps (the paper, section 4.3, Figure 5).

    On real tokens only, whatever the padding: the paper's text.
    """
    token = marks['token'].astype(before.dtype)
    real = token[None, None, :, None] * token[None, None, None, :]
    return _cosine(before * real, after * real)


def cosine_padded(before: Maps, after: Maps, marks: Marks) -> Result:
    """The same over the whole padded map, [PAD] queries included: the authors' notebook.

    There, every example is padded to 200 wordpieces, so that the rows of [PAD] tokens outweigh
    those of a short text. The published Figure 5 was made this way; encode with
    `max_length=200, buckets=()` to get it.
    """
    del marks
    return _cosine(before, after)


def _cosine(before: Maps, after: Maps) -> Result:
    product = lambda a, b: (a * b).sum(axis=(-2, -1))
    norms = jnp.sqrt(product(before, before) * product(after, after))
    # An empty row of a batch has no norm; its weight is 0.
    similarity = product(before, after) / jnp.where(norms > 0, norms, 1)
    return similarity, jnp.float32(1)


def _at_offset(attentions: Maps, marks: Marks, offset: int) -> Result:
    diagonal = jnp.diagonal(attentions, offset, axis1=-2, axis2=-1)
    # The diagonal above the main one starts at query 0, the one below it at query 1.
    before, after = max(-offset, 0), max(offset, 0)
    received = jnp.pad(diagonal, ((0, 0), (0, 0), (before, after)))
    return _over_queries(received, marks['token'])


def _over_queries(values: Float[Array, 'L N T'], token: Bool[Array, ' T']) -> Result:
    total = jnp.einsum('LNT,T->LN', values, token.astype(values.dtype))
    return total / jnp.maximum(token.sum(), 1), jnp.float32(1)


def _mean_over_queries(attentions: Maps, token: Bool[Array, ' T']) -> Float[Array, 'L N S']:
    # As product and sum XLA makes it part of the loop over the maps; as einsum it is a
    # matrix-vector product, seven times slower on a CPU.
    total = (attentions * token[None, None, :, None]).sum(axis=-2)
    return total / jnp.maximum(token.sum(), 1)
