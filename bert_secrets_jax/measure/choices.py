"""The words that a head prefers among all: a conditional logit, and whether links add to it.

A query shares its attention among the words of a text. Attention is a softmax, so its logarithm is
the logit of a word up to a constant of the query. The logit is a sum of what explains it without
links, and of a preference for linked words (conditional logit, McFadden 1974). Since the shares
themselves are known, least squares fits it (Berry 1994, section 4):

    log attention[query, word] = constant[query] + features[query, word] beta + preference * linked

The features are functions of position and word class: distance, place in the text, class with side
and with the class of the query, being the nearest of a class on either side or the first or last in
the text, no word of some class between (such as punctuation), alone and for the nearest, and
frequency and length, because rare words attract some heads. They are the same for all heads, so
that the part of `linked` that they leave is known before the pass, and the pass only adds up. Texts
are the sample: each contributes to the efficient score of "no preference", and signs of
contributions are flipped (Hemerik, Goeman and Finos 2020).

Where the features tell linked words from all others, nobody can tell whether a head follows the
link or the features: such relations are not compared.

Shapes: E examples, T positions, P pairs of wordpieces, Q choices (queries), R words to choose from,
of all choices one after another, F features, L layers, N heads.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.data.annotation import fill_up
from bert_secrets_jax.data.encoding import WORD, Encoded
from bert_secrets_jax.measure.nulls import ROUNDING, NullTest, Sums, indicator, no_test, null_test
from bert_secrets_jax.measure.places import (
    LinkTable,
    Numbered,
    check_links,
    closest_pairs,
    pairs_of,
)

# Distances up to the first have an indicator each; the others are bins.
_DISTANCES, _BINS = 8, (12, 20)
_FIRST, _LAST = 6, 4  # so many words from the start and the end of a text have an indicator each
_NEAR = 4  # up to this distance, linked classes have distances of their own
_FREQUENT = 0.1  # a class of queries with a smaller share is joined with others
_TARGET = 0.05  # a class with a smaller share of an end of the links is none of its classes
_TOGETHER = 3  # linked classes of which each combination has a nearest word of its own
_FEWEST = 10  # an indicator of fewer words would fit these words alone
# Less of what tells linked words from others, after the features, cannot be compared.
_LEAST_LEFT = 0.05
_FLOOR = 1e-6  # less attention counts as this: what a head hardly sees tells nothing
_SINGULAR = 1e-8  # the least eigenvalue of the features that counts, relative to the greatest
_MOST = 0.9  # more of a text's variance than this is not made up for


@dataclasses.dataclass(frozen=True)
class Choices(Numbered):
    """The queries of links, and the words of the texts of their keys, from which they choose."""

    example: Int[np.ndarray, ' Q']
    choice: Int[np.ndarray, ' R']
    linked: Bool[np.ndarray, ' R']
    features: scipy.sparse.csr_array  # [R, F]
    links: int


def choices_of(links: LinkTable, encoded: Encoded, *, reverse: bool) -> Choices:
    """Return the choices of the queries of links [E, P, 3], the query first or, reversed, last.

    The query of a link is that of its closest pair. A word is linked if one of its wordpieces is,
    to this query; its score is the greatest attention to one of them. The pairs are as those of the
    links, the query last if it is last there.

    Raises:
      ValueError: There are no word classes, or a link is to a special token.
    """
    if encoded.classes is None:
        raise ValueError(
            'These texts have no word classes: bs.annotate finds them, or give them as '
            'Annotation.classes.'
        )
    check_links(links, encoded.text)
    pairs, link, of_link = pairs_of(links[..., [1, 0, 2]] if reverse else links)
    examples, length = encoded.text.shape
    codes = np.unique(of_link * length + closest_pairs(pairs, link)[:, 0])
    example, query = np.divmod(codes, length)
    # Which wordpieces are linked to each of these queries, and the texts that they are in.
    codes_of_pairs = of_link[link] * length + pairs[:, 0]
    chooses = np.isin(codes_of_pairs, codes)
    number, key = np.searchsorted(codes, codes_of_pairs[chooses]), pairs[chooses, 1]
    linked = np.zeros((len(codes), length), bool)
    linked[number, key] = True
    text = encoded.text[example].astype(np.int64)
    has_key = np.zeros((len(codes), 2), bool)
    has_key[number, text[number, key]] = True
    inside = (text >= 0) & np.take_along_axis(has_key, np.maximum(text, 0), axis=1)
    # Wordpieces to words: these are runs of neighbours.
    choice, piece = np.nonzero(inside)
    words = encoded.marks.get(WORD)
    word = piece if words is None else words[example[choice], piece]
    places = choice * (word.max(initial=0) + 1) + word
    _, starts, row = np.unique(places, return_index=True, return_inverse=True)
    begin, of_row = piece[starts], choice[starts]
    end = piece[np.append(starts, len(piece))[1 : len(starts) + 1] - 1]
    is_linked = np.bincount(row, linked[choice, piece], len(begin)) > 0
    first = np.searchsorted(example[of_row], np.arange(examples + 1))
    pieces = np.stack([query[choice], piece, row - first[example[choice]]], axis=1)
    ends = np.searchsorted(example[choice], np.arange(examples + 1))
    table = fill_up(np.split(pieces[:, [1, 0, 2]] if reverse else pieces, ends[1:-1]))
    features = _features(encoded, example, query, of_row, (begin, end), is_linked)
    return Choices(table, first, example, of_row, is_linked, features, len(of_link))


def _features(
    encoded: Encoded,
    example: Int[np.ndarray, ' Q'],
    query: Int[np.ndarray, ' Q'],
    choice: Int[np.ndarray, ' R'],
    ends: tuple[np.ndarray, np.ndarray],
    linked: Bool[np.ndarray, ' R'],
) -> scipy.sparse.csr_array:
    """Return what may explain the attention to each word without links, as features [R, F]."""
    assert encoded.classes is not None
    begin, end = ends
    host, here = example[choice], query[choice]
    offset = np.where(begin > here, begin - here, np.minimum(end - here, 0))
    side, distance = np.sign(offset), np.abs(offset)
    binned = _DISTANCES + 1 + np.digitize(distance, _BINS, right=True)
    near = np.where(distance <= _DISTANCES, distance, binned)
    # Classes from 0, where 0 is none; those of queries are joined where they are rare.
    kind = encoded.classes[host, begin].astype(np.int64) + 1
    classes_of_queries = encoded.classes[example, query].astype(np.int64) + 1
    rare = np.bincount(classes_of_queries) < _FREQUENT * len(query)
    of_query = np.where(rare[classes_of_queries], -1, classes_of_queries)[choice]
    shares = np.bincount(kind, linked) / max(linked.sum(), 1)
    target = (shares >= _TARGET)[kind]
    text, everywhere = encoded.text[host, begin], np.zeros_like(side)
    before, after = (_rank(choice, text, everywhere, by=by) for by in (begin, -end))
    nearest, nearest_target = (_rank(choice, side, of, by=distance) == 0 for of in (kind, target))
    # A head may look for the nearest word of several classes, such as nouns and proper nouns.
    several = [
        np.isin(kind, of) & (_rank(choice, side, np.isin(kind, of), by=distance) == 0)
        for at_end in (shares, np.bincount(classes_of_queries) / max(len(query), 1))
        for of in _combinations(at_end)
    ]
    extremes = [
        _rank(choice, text, of, by=by) == 0 for of in (kind, target) for by in (begin, -end)
    ]
    # A head may look for the nearest one up to the next word of a class, such as punctuation.
    open_way = _without_between(encoded, host, here, begin, end)
    categories = [
        (True, side, near),
        (before < _FIRST, before),
        (after < _LAST, after),
        (True, kind, side),
        (True, kind, of_query),
        (target, side, of_query),
        (nearest, kind, side),
        (target & nearest_target, side, of_query),
        (target & (distance <= _NEAR), side, near),
        *((each, side) for each in several),
        *((way, side) for way in open_way),
        *((way & each, side) for way in open_way for each in (target & nearest_target, *several)),
        *((target & extreme, kind) for extreme in extremes),
    ]
    indicators = [_indicators(where, *codes) for where, *codes in categories]
    counts = np.bincount(encoded.input_ids[encoded.text >= 0])
    place, share = begin / max(begin.max(initial=0), 1), before / (before + after + 1)
    frequency = np.log(counts[encoded.input_ids[host, begin]])
    numbers = [place, place**2, share, share**2, frequency, np.log1p(end - begin)]
    columns = scipy.sparse.csr_array(np.stack(numbers, axis=1))
    return cast(scipy.sparse.csr_array, scipy.sparse.hstack([*indicators, columns]).tocsr())


def _without_between(
    encoded: Encoded, host: np.ndarray, here: np.ndarray, begin: np.ndarray, end: np.ndarray
) -> list[Bool[np.ndarray, ' R']]:
    """Return for each frequent class whether none of it stands between the query and a word."""
    assert encoded.classes is not None
    counts = np.bincount(encoded.classes[encoded.classes >= 0])
    start, stop = np.where(end < here, end, here) + 1, np.where(begin > here, begin, here)
    found = []
    for each in np.flatnonzero(counts >= _TARGET * counts.sum()).tolist():
        before = np.cumsum(np.pad(encoded.classes == each, ((0, 0), (1, 0))), axis=1)
        found.append(before[host, np.maximum(stop, start)] == before[host, start])
    return found


def _combinations(shares: Float[np.ndarray, ' K']) -> Iterator[tuple[int, ...]]:
    """Yield combinations of two classes and more of those at an end of links, by their shares."""
    frequent = np.flatnonzero(shares >= _TARGET)
    frequent = frequent[np.argsort(-shares[frequent])][:_TOGETHER].tolist()
    for size in range(2, len(frequent) + 1):
        yield from itertools.combinations(frequent, size)


def _rank(choice, group, kind, *, by) -> Int[np.ndarray, ' R']:
    """Return how many words of the same choice, group and kind come before each in an order."""
    import pandas

    words = pandas.DataFrame({'choice': choice, 'group': group, 'kind': kind, 'by': by})
    ranks = words.groupby(['choice', 'group', 'kind'], sort=False)['by'].rank('first')
    return ranks.to_numpy(int) - 1


def _indicators(where, *codes) -> scipy.sparse.csr_array:
    """Return an indicator of each combination of codes [R] that is frequent `where` they count."""
    rows = np.flatnonzero(np.broadcast_to(where, codes[0].shape))
    combined = np.stack([code[rows] for code in codes], axis=1)
    found, column, counts = np.unique(combined, axis=0, return_inverse=True, return_counts=True)
    shape = (len(codes[0]), len(found))
    every = scipy.sparse.csc_array((np.ones(len(rows)), (rows, column.ravel())), shape=shape)
    return every[:, counts >= _FEWEST].tocsr()


class Preference:
    """Adds up the attention of choices by batch; memory grows with choices and examples alone."""

    def __init__(self, choices: Choices):
        self._choices = choices
        choice, examples = choices.choice, len(choices.pairs)
        # The products of sparse arrays have no type that is known.
        features: Any = choices.features
        sizes = np.bincount(choice, minlength=len(choices.example))
        member = indicator(choice, len(sizes))
        self._means = (member @ features).toarray() / sizes[:, None]
        # Sums of products of features and of `linked`, each without its mean over a choice.
        linked = choices.linked - (member @ choices.linked / sizes)[choice]
        self._of_linked = features.T @ linked
        squares = (features.T @ features).toarray() - (self._means.T * sizes) @ self._means
        values, vectors = np.linalg.eigh(squares)
        kept = values > _SINGULAR * values.max(initial=0)
        self._inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        explained = self._inverse @ self._of_linked
        # The part of `linked` that the features leave; it adds up to 0 within each choice.
        left = linked - features @ explained + (self._means @ explained)[choice]
        squared = linked @ linked
        self._told = squared > 0 and left @ left >= _LEAST_LEFT * squared
        host = choices.example[choice]
        by_example = indicator(host, examples, left)
        self._features_left = (by_example @ features).toarray()
        self._information = by_example @ linked
        # How much of the variance of a text's part the features take, and the preference.
        of_text = np.maximum(np.bincount(host, left**2, examples), ROUNDING)
        taken = np.einsum('EF,FG,EG->E', self._features_left, self._inverse, self._features_left)
        self._leverage = taken / of_text, of_text / of_text.sum()
        self._logits = Sums(scipy.sparse.vstack([member, by_example, features.T]))
        self._own = Sums(indicator(choice, len(sizes), choices.linked * 1.0))

    def add(self, numbers: Int[np.ndarray, ' C'], scores: Float[np.ndarray, 'C H']) -> None:
        """Add the attention to the words of these numbers."""
        self._logits.add(numbers, np.log(np.maximum(scores, _FLOOR, dtype=np.float64)))
        self._own.add(numbers, scores)

    def result(self, shape: tuple[int, int], seed: int) -> NullTest:
        """Return the test of a preference for linked words, and its size in logits."""
        choices = self._choices
        examples, of_choice = len(choices.pairs), len(choices.example)
        of_example = np.bincount(choices.example, minlength=examples)
        takes_part = of_example > 0
        count = int(takes_part.sum())
        totals, left, features = self._logits.split(of_choice, examples)
        features -= self._means.T @ totals
        if not self._told or count < 2 or not np.isfinite(features).all():
            none = no_test(shape, count, 0)
            return dataclasses.replace(none, preference=none.excess)
        information = self._information.sum()
        preference = left.sum(axis=0) / information

        def contributed(known, leverage):
            weights = self._inverse @ (features - self._of_linked[:, None] * known)
            logits = left - self._features_left @ weights
            logits -= self._information[:, None] * known
            # The part of a text is too small, since the fit was to this text, too: it becomes what
            # it is when the fit is to the others (CR3, Bell and McCaffrey 2002). The sum stays.
            total = logits.sum(axis=0)
            logits = logits[takes_part]
            logits /= (1 - np.minimum(leverage[takes_part], _MOST))[:, None]
            logits += (total - logits.sum(axis=0)) / count
            # As much of the mean as an example has of it.
            return logits * (count / information)

        of_features, of_linked = self._leverage
        flipped = contributed(np.zeros_like(preference), of_features)
        flipped[np.abs(flipped) < ROUNDING] = 0
        error = contributed(preference, of_features + of_linked)
        # The attention to linked words, what it is without the preference, and by how much the
        # difference grows with it: means over the choices of each example.
        (own,) = self._own.split()
        odds = np.exp(-preference)
        without = own * odds / (1 - own + own * odds)
        mean = indicator(choices.example, examples, 1 / of_example[choices.example])[takes_part]
        own, without, slope = (mean @ each for each in (own, without, without * (1 - without)))
        return null_test(
            shape,
            flipped,
            own - without + slope.mean(axis=0) * error,
            seed=seed,
            links=choices.links,
            possible=float(np.median(np.bincount(choices.choice))),
            preference=(preference, error),
            score=own.mean(axis=0),
            mean=without.mean(axis=0),
            percentile_99=np.full_like(preference, np.nan),
        )
