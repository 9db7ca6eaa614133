"""Statistics of attention: pure functions of one example's maps.

Each takes `(attentions [L, N, T, S], marks)` and returns `(value [L, N], weight [])`; a value may
have further axes, `[L, N, ...]`, such as one of random draws or of features, and the weight may
have them too. Weight 0 says that the statistic does not apply to the example, which is then left
out. `marks` says by name

- which positions are of a type, `[T]`: `marks['token']` are the real tokens; rows and columns of
  padding never count;
- what is linked to what, `[P, 3]`: one row for each pair of wordpieces, (query position, key
  position, number of the link that it belongs to); number -1 only fills up.

Write your own in the same form and hand it to `collect`:

    def attention_to_first_half(attentions, marks):
        ...
        return value, weight

What makes a statistic (`attention_to`, ...) returns the same function for the same arguments: jit
recognises by its identity what it has compiled.
"""

import functools
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Maps = Float[Array, 'L N T S']
Links = Int[Array, 'P 3']
# One name, or several whose values are stacked: compiled once for all.
Names = str | tuple[str, ...]
Marks = Mapping[str, Bool[Array, ' T'] | Int[Array, '... 3']]
Result = tuple[Float[Array, 'L N ...'], Float[Array, '...']]
Statistic = Callable[[Maps, Marks], Result]
Comparison = Callable[[Maps, Maps, Marks], Result]


@functools.cache
def attention_to(name: Names, *, among: Names | None = None) -> Statistic:
    """Return the statistic "attention to tokens of type `name`" (the paper, section 4.4).

    A token's score is the attention that it gets, averaged over all query tokens ("sum over the
    query tokens divided by the sequence length"); with several tokens of the type the greatest
    score counts; examples without any are left out.

    Args:
      name: of marks [T]; several names for a value [L, N, F].
      among: examples with any of these marks count, with 0 if none is of type `name`. None: those
        with the type itself, the paper's text. The authors' notebook is 'token' (every example),
        and for negation those that have one as a substring. As many as names.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        score = _mean_over_queries(attentions, marks['token'])
        return _greatest(score, _marked(marks, name)), _has_any(_marked(marks, among or name))

    statistic.__name__ = f'attention_to_{name}'
    return statistic


to_cls = attention_to('cls')
to_sep = attention_to('sep')


def to_special(attentions: Maps, marks: Marks) -> Result:
    """Attention to [CLS] and all [SEP] together, mean over query tokens."""
    score = _mean_over_queries(attentions, marks['token'])
    special = (marks['cls'] | marks['sep']).astype(score.dtype)
    return jnp.einsum('LNS,S->LN', score, special), jnp.float32(1)


@functools.cache
def cls_to(name: Names) -> Statistic:
    """Return "attention of [CLS] to tokens of type `name`" (the paper, section 4.5).

    The greatest over the tokens of the type; examples without any are left out. The last layer is
    the paper's Figure 7.

    Args:
      name: of marks [T]; several names for a value [L, N, F].
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        of_cls, marked = attentions[:, :, jnp.argmax(marks['cls'])], _marked(marks, name)
        return _greatest(of_cls, marked), _has_any(marks['cls']) * _has_any(marked)

    statistic.__name__ = f'cls_to_{name}'
    return statistic


@functools.cache
def attention_of_links(
    name: Names, *, among: str | None = None, reverse: bool = False
) -> Statistic:
    """Return "attention along the links `name`", from source to target (the paper, section 4.2).

    A link's score is the greatest attention over its pairs of wordpieces; with several links in an
    example their mean counts; examples without any are left out.

    Args:
      name: of marks [P, 3]; several names for a value [L, N, F].
      among: examples with any of these marks count, with 0 if they have no link. None: those with
        links, the paper's text. The authors' notebook is 'token': every example.
      reverse: from target to source.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        links = _linked(marks, name)
        along = functools.partial(_along, attentions, reverse=reverse)
        value = along(links) if links.ndim == 2 else jax.vmap(along, out_axes=-1)(links)
        exists = _has_any(links[..., 2] >= 0)
        return value, exists if among is None else jnp.broadcast_to(
            _has_any(marks[among]), exists.shape
        )

    statistic.__name__ = f'attention_of_links_{name}' + '_reversed' * reverse
    return statistic


@functools.cache
def attention_of_random_links(
    name: str, *, links: str | None = None, among: str | None = None, reverse: bool = False
) -> Statistic:
    """Return `attention_of_links` of each of K draws of random links, a value [L, N, K].

    Averaged over a corpus it is the null distribution that `measure.links.null_summary` holds the
    score of the annotated links against.

    Args:
      name: of marks [K, P, 3], from `measure.links.random_links`.
      links: marks of the annotated ones: the value is then [L, N, K + 1], and the last is what
        these get beyond the mean of the draws. Its standard error is that of a paired difference.
      among, reverse: as for the annotated links.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        draws = marks[name]
        applies = draws[0, :, 2] >= 0 if among is None else marks[among]
        # One draw after the other: all at once, their gathers fill the memory of a large batch.
        values = jax.lax.map(lambda drawn: _along(attentions, drawn, reverse), draws)
        if links is not None:
            beyond = _along(attentions, marks[links], reverse) - values.mean(axis=0)
            values = jnp.concatenate([values, beyond[None]])
        return jnp.moveaxis(values, 0, -1), _has_any(applies)

    statistic.__name__ = f'attention_of_random_links_{name}' + '_reversed' * reverse
    return statistic


@functools.cache
def of_second(statistic: Statistic) -> Comparison:
    """Return a statistic of the second of two models, for `compare`."""
    return lambda before, after, marks: statistic(after, marks)


@functools.cache
def difference(statistic: Statistic) -> Comparison:
    """Return what a statistic of the second of two models is above that of the first.

    Example by example, so that the standard error is that of a paired difference.
    """

    def compared(before: Maps, after: Maps, marks: Marks) -> Result:
        value, weight = statistic(after, marks)
        return value - statistic(before, marks)[0], weight

    return compared


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


def _along(attentions: Maps, links: Links, reverse: bool) -> Float[Array, 'L N']:
    query, key, number = links.T
    if reverse:
        query, key = key, query
    filled = number >= 0
    # Pairs first: a link is a row here, and its maximum over pairs is one scatter of whole rows.
    pairs = jnp.moveaxis(attentions[:, :, query, key], -1, 0) * filled[:, None, None]
    # The numbers of an example's links may have gaps; ranks are always within the P rows.
    rank = (number[:, None] > number[None, :]).sum(axis=1)
    greatest = jnp.zeros_like(pairs).at[rank].max(pairs)
    count = jnp.zeros_like(filled).at[rank].max(filled).sum()
    return greatest.sum(axis=0) / jnp.maximum(count, 1)


def _marked(marks: Marks, name: Names) -> Bool[Array, '... T']:
    """Return marks [T], or of several names [F, T]."""
    return marks[name] if isinstance(name, str) else jnp.stack([marks[each] for each in name])


def _linked(marks: Marks, name: Names) -> Int[Array, '... P 3']:
    """Return links [P, 3], or of several names [F, P, 3] filled up to the most pairs."""
    if isinstance(name, str):
        return marks[name]
    most = max(len(marks[each]) for each in name)
    fill = lambda links: jnp.pad(links, ((0, most - len(links)), (0, 0)), constant_values=-1)
    return jnp.stack([fill(marks[each]) for each in name])


def _greatest(
    score: Float[Array, 'L N S'], marked: Bool[Array, '... S']
) -> Float[Array, 'L N ...']:
    if marked.ndim > 1:
        marked, score = marked[None, None], score[:, :, None]
    else:
        marked = marked[None, None]
    return jnp.where(marked, score, 0).max(axis=-1)


def _has_any(marked: Bool[Array, '... X']) -> Float[Array, '...']:
    return marked.any(axis=-1).astype(jnp.float32)


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
