"""Statistics of attention: pure functions of one example's maps.

Each takes `(attentions [L, N, T, S], marks)` and returns `(value [L, N], weight [])`. Both may have
further axes, such as one of features or of random draws. An example with the weight 0, to which the
statistic does not apply, is left out. `marks` is a dictionary with

- types of tokens, `[T]` bool: 'token' are the real tokens; rows and columns of padding never count.
  'cls', 'sep' and 'period_comma' (wordpieces that are a full stop or a comma) are always there;
- 'word', `[T]`: the number of the word of each wordpiece, -1 where there is none;
- relations, `[P, 3]`: a row for each pair of linked wordpieces, (query position, key position,
  number of the link that the pair belongs to). Rows with the number -1 are filler;
- 'notebook': the same features and relations as the authors' notebook read them
  (`data.annotation.align` describes both readings);
- 'random': places of links and of random links, `[P, 3]` (`links.with_random_links`).

Write your own in the same form and hand it to `collect`. A function that makes a statistic
(`attention_to`, ...) returns the same object for the same arguments, because jit recognises by
identity what it has compiled. `measure/catalogue.py` has the name and the source of each.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.annotation import NOTEBOOK, RANDOM
from bert_secrets_jax.data.encoding import WORD
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.words import word_maps

Maps = Float[Array, 'L N T S']
Links = Int[Array, 'P 3']
# How words are found among the wordpieces: as the paper says, or as its authors' notebook did.
Reading = Literal['paper', 'notebook']
READINGS = ('paper', 'notebook')
# The share of a row that Clark et al.'s code spreads evenly before a divergence, and an entropy.
SMOOTHING, _SMOOTHING = 1e-3, 1e-4
Mark = Bool[Array, ' T'] | Int[Array, ' T'] | Int[Array, '... 3']
if TYPE_CHECKING:
    Marks = Mapping[str, Array]  # but for those under NOTEBOOK, which `_read` alone takes
else:
    Marks = Mapping[str, Mark | Mapping[str, Mark | Mapping[str, Mark]]]
Result = tuple[Float[Array, 'L N ...'], Float[Array, '...']]
Statistic = Callable[[Maps, Marks], Result]
Comparison = Callable[[Maps, Maps, Marks], Result]


@functools.cache
def attention_to(name: str, *, reading: Reading = 'paper', among: str | None = None) -> Statistic:
    """Return the statistic "attention to tokens of type `name`" (the paper, section 4.4).

    The score of a token is the attention that it gets, averaged over all query tokens ("sum over
    the query tokens divided by the sequence length"). If several tokens are of the type, the
    greatest score counts. Examples without any are left out.

    Args:
      name: The name of marks [T].
      reading: The reading of these marks, 'paper' or 'notebook'.
      among: The name of the marks [T], in the paper's reading, that an example must have to count;
        without a token of type `name` it counts with 0. None counts only examples that have the
        type itself, as in the paper. The authors' notebook counted every example ('token'), and for
        negation those that have one as a substring.
    """
    check_name('reading', reading, READINGS)

    def statistic(attentions: Maps, marks: Marks) -> Result:
        score = _mean_over_queries(attentions, marks['token'])
        marked = _read(marks, reading)[name]
        return _greatest(score, marked), _has_any(marks[among] if among else marked)

    statistic.__name__ = f'attention_to_{name}'
    return statistic


to_cls = attention_to('cls')
to_sep = attention_to('sep')


@functools.cache
def summed_attention(to: str, *, of: str = 'token', other_than: str | None = None) -> Statistic:
    """Return the statistic "attention of some tokens to all tokens of a type together".

    A query's attention to the tokens of the type is added up, and the mean over queries counts
    (Clark et al. 2019, section 3). `to`, `of` and `other_than` name the marks [T] of the keys, of
    the queries, and of those that no query has. Examples without either are left out.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        queries = marks[of] if other_than is None else marks[of] & ~marks[other_than]
        # As product and sum, like `_mean_over_queries`.
        given = (attentions * marks[to][None, None, None, :]).sum(axis=-1)
        value, _ = _over_queries(given, queries)
        return value, _has_any(queries) * _has_any(marks[to])

    statistic.__name__ = f'summed_attention_to_{to}'
    return statistic


to_all_sep = summed_attention('sep')
to_period_or_comma = summed_attention('period_comma')
sep_to_sep = summed_attention('sep', of='sep')
others_to_sep = summed_attention('sep', other_than='sep')


def to_special(attentions: Maps, marks: Marks) -> Result:
    """Attention to [CLS] and all [SEP] together, averaged over query tokens."""
    score = _mean_over_queries(attentions, marks['token'])
    special = (marks['cls'] | marks['sep']).astype(score.dtype)
    return product('LNS,S->LN', score, special), jnp.float32(1)


@functools.cache
def cls_to(name: str, *, reading: Reading = 'paper') -> Statistic:
    """Return the statistic "attention of [CLS] to tokens of type `name`" (section 4.5, Figure 7).

    If several tokens are of the type, the greatest attention counts. Examples without any are left
    out. The arguments are as in `attention_to`.
    """
    check_name('reading', reading, READINGS)

    def statistic(attentions: Maps, marks: Marks) -> Result:
        marked = _read(marks, reading)[name]
        weight = _has_any(marks['cls']) * _has_any(marked)
        return _greatest(_from_cls(attentions, marks), marked), weight

    statistic.__name__ = f'cls_to_{name}'
    return statistic


@functools.cache
def attention_of_links(
    name: str, *, reading: Reading = 'paper', among: str | None = None, reverse: bool = False
) -> Statistic:
    """Return the statistic "attention along the links `name`", from source to target (section 4.2).

    The score of a link is the greatest attention over its pairs of wordpieces. If an example has
    several links, the mean of their scores counts. Examples without any are left out.

    Args:
      name: The name of marks [P, 3].
      reading: The reading of these marks, 'paper' or 'notebook'.
      among: The name of the marks [T] that an example must have to count; it counts with 0 if it
        has no link. None counts only examples that have links, as in the paper. The authors'
        notebook counted every example ('token').
      reverse: Whether to take the attention from target to source instead.
    """
    check_name('reading', reading, READINGS)

    def statistic(attentions: Maps, marks: Marks) -> Result:
        links = _read(marks, reading)[name]
        number = links[:, 2]
        filled = number >= 0
        # The numbers of an example's links may have gaps; ranks are always within the P rows.
        rank = jnp.where(filled, (number[:, None] > number[None, :]).sum(axis=1), -1)
        greatest = _greatest_of_each(attentions, links.at[:, 2].set(rank), reverse)
        count = jnp.zeros_like(filled).at[rank].max(filled).sum()
        counted = filled if among is None else marks[among]
        return greatest.sum(axis=0) / jnp.maximum(count, 1), _has_any(counted)

    statistic.__name__ = f'attention_of_links_{name}' + '_reversed' * reverse
    return statistic


@functools.cache
def attention_at_places(*, reverse: bool = False) -> Statistic:
    """Return the statistic "attention at each place of links and random links", a value [L, N, P].

    The places are `marks['random']` [P, 3], numbered from 0; numbers without pairs have the score
    0. The score of a place is the greatest attention over its pairs, as that of a link.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        greatest = _greatest_of_each(attentions, marks[RANDOM], reverse)
        return jnp.moveaxis(greatest, 0, -1), jnp.float32(1)

    statistic.__name__ = 'attention_at_places' + '_reversed' * reverse
    return statistic


@functools.cache
def of_second(statistic: Statistic) -> Comparison:
    """Return, for `compare`, the value of a statistic on the second of two models."""

    def compared(before: Maps, after: Maps, marks: Marks) -> Result:
        return statistic(after, marks)

    return compared


@functools.cache
def difference(statistic: Statistic) -> Comparison:
    """Return, for `compare`, the second model's statistic minus the first model's, by example."""

    def compared(before: Maps, after: Maps, marks: Marks) -> Result:
        value, weight = statistic(after, marks)
        return value - statistic(before, marks)[0], weight

    return compared


@functools.cache
def of_words(statistic: Callable) -> Callable:
    """Return a statistic, of one model or two, of the maps between words (`words.word_maps`).

    A word is of the types, and linked, as one of its wordpieces is.
    """

    def on_words(*maps_and_marks) -> Result:
        *maps, marks = maps_and_marks
        words = marks[WORD]
        maps = [word_maps(each, words, count=len(words)) for each in maps]
        return statistic(*maps, _word_marks(marks, words))

    on_words.__name__ = f'{getattr(statistic, "__name__", "statistic")}_word_marks'
    return on_words


def _word_marks(marks: dict, words: Int[Array, ' T']) -> Marks:
    by_word = {}
    for name in marks:
        mark = marks[name]
        if isinstance(mark, dict):
            by_word[name] = _word_marks(mark, words)
        elif name == WORD:
            numbers = jnp.arange(len(words))
            by_word[name] = jnp.where(numbers <= words.max(), numbers, -1)
        elif mark.ndim == 1:
            # A token that belongs to no word, such as padding, is dropped.
            place = jnp.where(words < 0, len(words), words)
            by_word[name] = jnp.zeros_like(mark).at[place].max(mark, mode='drop')
        else:
            query, key, number = mark.T
            linked = jnp.stack([words[query], words[key], number], axis=1)
            missing = (linked < 0).any(axis=1, keepdims=True)
            by_word[name] = jnp.where(missing, jnp.array([0, 0, -1]), linked)
    # The type stays the same, because its error says which names there are.
    return type(marks)(by_word)


def to_self(attentions: Maps, marks: Marks) -> Result:
    """Attention of a token to itself, averaged over tokens (Clark et al. 2019, section 3)."""
    return _at_offset(attentions, marks, 0)


def to_previous(attentions: Maps, marks: Marks) -> Result:
    """Attention to the previous token, as `to_self`; at most (T - 1) / T, since one has none."""
    return _at_offset(attentions, marks, -1)


def to_next(attentions: Maps, marks: Marks) -> Result:
    """Attention to the next token, as `to_self`; at most (T - 1) / T, since one has none."""
    return _at_offset(attentions, marks, 1)


def entropy(attentions: Maps, marks: Marks) -> Result:
    """Entropy of attention in nats, averaged over tokens (Clark et al. 2019, section 3.3).

    It is 0 if all attention is on one token, and log(T) if it is spread evenly. Differs from Clark
    et al.'s code, which smooths the probabilities to avoid log(0) (`smoothed_entropy`).
    """
    return _over_queries(entropies(attentions), marks['token'])


def entropy_of_cls(attentions: Maps, marks: Marks) -> Result:
    """Entropy of the attention of [CLS] in nats (Clark et al. 2019, section 3.3, Figure 4)."""
    return entropies(_from_cls(attentions, marks)), _has_any(marks['cls'])


def smoothed_entropy(attentions: Maps, marks: Marks) -> Result:
    """Entropy of smoothed attention in nats, averaged over tokens, as in Clark et al.'s code.

    The probabilities are 0.9999 of the attention plus 0.0001 that is spread evenly over the tokens.
    """
    return _over_queries(entropies(_smoothed(attentions, marks)), marks['token'])


def smoothed_entropy_of_cls(attentions: Maps, marks: Marks) -> Result:
    """Entropy of the smoothed attention of [CLS] in nats, as in Clark et al.'s code."""
    return entropies(_smoothed(_from_cls(attentions, marks), marks)), _has_any(marks['cls'])


def confidence(attentions: Maps, marks: Marks) -> Result:
    """Greatest attention of a token, averaged over tokens (Voita et al. 2019, section 4).

    The end of a sentence does not count there: attention to [SEP] is left out here, and so are the
    rows of [SEP].
    """
    ends = marks['sep']
    greatest = jnp.where(ends[None, None, None], 0, attentions).max(axis=-1)
    return _over_queries(greatest, marks['token'] & ~ends)


def greatest_at_previous(attentions: Maps, marks: Marks) -> Result:
    """Share of tokens whose greatest attention is to the token before (Voita et al. 2019, 5.1).

    [CLS] and [SEP] may receive it, and do not count among the tokens that attend.
    """
    return _greatest_at(attentions, marks, -1)


def greatest_at_next(attentions: Maps, marks: Marks) -> Result:
    """Share of tokens whose greatest attention is to the token after, as `greatest_at_previous`."""
    return _greatest_at(attentions, marks, 1)


@functools.cache
def greatest_at(name: str) -> Statistic:
    """Return the share of tokens whose greatest attention is to a token of a type among the marks.

    All else is as in `greatest_at_previous`. Examples without the type are left out.
    """

    def statistic(attentions: Maps, marks: Marks) -> Result:
        marked, ordinary = marks[name], _ordinary(marks)
        hit = marked[attentions.argmax(axis=-1)].astype(attentions.dtype)
        return _over_queries(hit, ordinary)[0], _has_any(marked) * _has_any(ordinary)

    return statistic


def uniform_entropy(attentions: Maps, marks: Marks) -> Result:
    """Entropy of attention that is spread evenly over the real tokens, log(T), for each head."""
    count = jnp.maximum(marks['token'].sum(), 1).astype(attentions.dtype)
    return jnp.full(attentions.shape[:2], jnp.log(count)), jnp.float32(1)


def head_divergences(attentions: Maps, marks: Marks) -> Result:
    """Divergence of each head's rows from those of every head, a mean over query tokens, in nats.

    Clark et al. 2019, section 6: JS(p, q) = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2. Rows
    are smoothed as in their code. They sum over the tokens of a corpus, and so does this: an
    example counts as often as it has tokens. The value is [L, N, H], with H = L * N heads of all
    layers, between 0 and log 2.
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


def cosine(before: Maps, after: Maps, marks: Marks) -> Result:
    """Cosine similarity of two models' flattened maps (the paper, section 4.3, Figure 5).

    Only real tokens count, whatever the padding, as in the paper's text.
    """
    token = marks['token'].astype(before.dtype)
    real = token[None, None, :, None] * token[None, None, None, :]
    return _cosine(before * real, after * real)


def cosine_padded(before: Maps, after: Maps, marks: Marks) -> Result:
    """Cosine similarity of whole padded maps, [PAD] queries included, as in the authors' notebook.

    It pads every example to 200 wordpieces, so that the rows of [PAD] outweigh those of a short
    text: encode the texts with `max_length=200, buckets=()` to get the published Figure 5.
    """
    del marks
    return _cosine(before, after)


def _read(marks: Marks, reading: Reading) -> Marks:
    return cast(Marks, marks[NOTEBOOK]) if reading == 'notebook' else marks


def _greatest_of_each(attentions: Maps, links: Links, reverse: bool) -> Float[Array, 'P L N']:
    """Return the greatest attention over the pairs of each link, by the number of the link."""
    query, key, number = links.T
    if reverse:
        query, key = key, query
    filled = number >= 0
    # Pairs first: a link is a row here, and its maximum over pairs is one scatter of whole rows.
    pairs = jnp.moveaxis(attentions[:, :, query, key], -1, 0) * filled[:, None, None]
    return jnp.zeros_like(pairs).at[number].max(pairs)


def _greatest(score: Float[Array, 'L N S'], marked: Bool[Array, ' S']) -> Float[Array, 'L N']:
    return jnp.where(marked[None, None], score, 0).max(axis=-1)


def _has_any(marked: Bool[Array, ' X']) -> Float[Array, '']:
    return marked.any().astype(jnp.float32)


def _cosine(before: Maps, after: Maps) -> Result:
    norms = jnp.sqrt(_product(before, before) * _product(after, after))
    # An empty row of a batch has no norm; its weight is 0.
    return _product(before, after) / jnp.where(norms > 0, norms, 1), jnp.float32(1)


def _product(before: Maps, after: Maps) -> Float[Array, 'L N']:
    return (before * after).sum(axis=(-2, -1))


def _at_offset(attentions: Maps, marks: Marks, offset: int) -> Result:
    # A TPU would transpose all maps to take few of their cells, and a CPU is slow to read them all.
    received = jax.lax.platform_dependent(
        attentions,
        cpu=functools.partial(_taken_diagonal, offset=offset),
        default=functools.partial(_summed_diagonal, offset=offset),
    )
    return _over_queries(received, marks['token'])


def _taken_diagonal(attentions: Maps, offset: int) -> Float[Array, 'L N T']:
    diagonal = jnp.diagonal(attentions, offset, axis1=-2, axis2=-1)
    # The diagonal above the main one starts at query 0, the one below it at query 1.
    return jnp.pad(diagonal, ((0, 0), (0, 0), (max(-offset, 0), max(offset, 0))))


def _summed_diagonal(attentions: Maps, offset: int) -> Float[Array, 'L N T']:
    cells = jnp.eye(attentions.shape[-2], attentions.shape[-1], offset, dtype=bool)
    return jnp.where(cells[None, None], attentions, 0).sum(axis=-1)


def _ordinary(marks: Marks) -> Bool[Array, ' T']:
    return marks['token'] & ~marks['cls'] & ~marks['sep']


def _greatest_at(attentions: Maps, marks: Marks, offset: int) -> Result:
    ordinary = _ordinary(marks)
    offsets = attentions.argmax(axis=-1) - jnp.arange(attentions.shape[-2])[None, None]
    hit = (offsets == offset).astype(attentions.dtype)
    return _over_queries(hit, ordinary)[0], _has_any(ordinary)


def _from_cls(attentions: Maps, marks: Marks) -> Float[Array, 'L N S']:
    return attentions[:, :, jnp.argmax(marks['cls'])]


def _smoothed(rows: Float[Array, 'L N *T S'], marks: Marks) -> Float[Array, 'L N *T S']:
    """Spread a share of each row evenly over the real tokens."""
    token = marks['token'].astype(rows.dtype)
    even = token / jnp.maximum(token.sum(), 1)
    return (1 - _SMOOTHING) * rows + _SMOOTHING * even.reshape(*[1] * (rows.ndim - 1), -1)


def entropies(rows: Float[Array, '*any S']) -> Float[Array, '*any']:
    """Return the entropy of each row in nats; padding, with probability 0, adds nothing."""
    # Four times as fast on a CPU as `jax.scipy.special.entr`, which looks after negative numbers.
    terms = -rows * jnp.log(jnp.maximum(rows, jnp.finfo(jnp.float32).tiny))
    return terms.sum(axis=-1)


def _over_queries(values: Float[Array, 'L N T'], token: Bool[Array, ' T']) -> Result:
    total = product('LNT,T->LN', values, token.astype(values.dtype))
    return total / jnp.maximum(token.sum(), 1), jnp.float32(1)


def _mean_over_queries(attentions: Maps, token: Bool[Array, ' T']) -> Float[Array, 'L N S']:
    # As product and sum XLA makes it part of the loop over the maps; as einsum it is a
    # matrix-vector product, seven times slower on a CPU.
    total = (attentions * token[None, None, :, None]).sum(axis=-2)
    return total / jnp.maximum(token.sum(), 1)
