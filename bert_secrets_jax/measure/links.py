"""Attention along links, and how much of it chance, position and word class alone explain.

Links are compared with places where they could stand as well, of the four kinds of
`measure/places.py`. All are measured in one pass:

    encoded, random = bs.links.with_random_links(
        encoded, ['verb-subject'], kinds=('moved', 'positions'), draws=100, seed=0)
    measured = bs.measure(pretrained, bs.bucket(encoded), described, also=random)
    scores = bs.links.link_scores(encoded, ['verb-subject'], measured)  # small arrays, to be kept
    tests = bs.links.link_tests(measured, scores)

What is tested is the mean over examples of the mean over links of the attention along a link minus
the mean attention at its places. Its sampling error is that of the examples, each with the scores
of its links and of all of its places, of whatever example's links. So places that many links share,
and links of one text that are alike, make no test too confident.

Shapes: E examples, P pairs of wordpieces, K draws, L layers, N heads, X links, C places. Links are
`[E, P, 3]` as in `Encoded.marks`, (query position, key position, number of the link); the number -1
is filler. An offset is the key position minus the query position: -1 is the previous wordpiece.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from absl import logging
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.checks import check_name, meant
from bert_secrets_jax.data.annotation import RANDOM
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.measure import nulls
from bert_secrets_jax.measure.choices import Choices, Preference, choices_of
from bert_secrets_jax.measure.nulls import NullTest, OfHeads
from bert_secrets_jax.measure.places import (
    CLASSES,
    ELSEWHERE,
    KINDS,
    MOVED,
    POSITIONS,
    Kind,
    LinkTable,
    Places,
    closest_pairs,
    draw_places,
    pairs_of,
    together,
)
from bert_secrets_jax.measure.statistics import attention_at_places
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.ranges import Count
from bert_secrets_jax.stats.resampling import percentile_99

__all__ = [
    'CLASSES', 'ELSEWHERE', 'KINDS', 'MOVED', 'POSITIONS', 'Direction', 'Kind', 'LinkScores',
    'LinkTest', 'NullTest', 'RandomLinks', 'directions', 'link_scores', 'link_tests',
    'offset_baseline', 'offset_histogram', 'turned', 'with_random_links',
]  # fmt: skip

OFFSETS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)
_Key = tuple[str, Kind]  # a relation, and what it is compared with


class Direction(NamedTuple):
    """A way along the links of a relation; in reverse it goes from target to source."""

    relation: str
    reverse: bool


@dataclasses.dataclass(frozen=True)
class RandomLinks:
    """The key, among the results of a pass, of all comparisons with places in one direction."""

    reverse: bool

    def __str__(self) -> str:
        return 'random links' + ', from target to source' * self.reverse


@dataclasses.dataclass(frozen=True)
class LinkScores:
    """The parts of a `LinkTest` besides its table: small arrays, which can be stored."""

    links: LinkTable
    nulls: Mapping[str, NullTest]


@dataclasses.dataclass(frozen=True)
class LinkTest:
    """Attention along the links of a relation in one direction, compared with random links.

    The links [E, P, 3] have the query first; `nulls` compare with the places of each kind.
    """

    table: HeadTable
    links: LinkTable
    nulls: Mapping[str, NullTest]

    @property
    def real(self) -> Bool[np.ndarray, 'L N']:
        """Whether a head is above the places of every kind, each at 5 % for all heads.

        A head that has nothing but what one kind holds fixed passes here with a chance of at most
        5 % for all heads. No head is above a kind without places.
        """
        return np.all([null.above for null in self.nulls.values()], axis=0)

    @property
    def familywise(self) -> OfHeads:
        """The greatest corrected p-value over the kinds; NaN where a kind has no places."""
        return np.max([null.familywise for null in self.nulls.values()], axis=0)

    @property
    def detectable(self) -> OfHeads:
        """[L, N] The excess found with a probability of 80 % by the kind that needs most.

        NaN where a kind has no places: then no head can be found.
        """
        return np.max([null.detectable for null in self.nulls.values()], axis=0)

    @property
    def top(self) -> tuple[int, int]:
        """The layer and the head, counted from 0, with the most attention along the links."""
        layer, head = np.unravel_index(self.table.mean.argmax(), self.table.mean.shape)
        return int(layer), int(head)

    @property
    def ideal(self) -> tuple[int, float]:
        """The best single offset, and the score of a head that puts all its attention there."""
        return next(iter(offset_baseline(self.links).items()))


def directions(relations: Iterable[str]) -> dict[str, Direction]:
    """Return the two directions of each relation by their titles.

    >>> directions(['verb-subject'])['subject to verb']
    Direction(relation='verb-subject', reverse=True)

    A name such as 'source-target' names both ends; any other name is that of the source.

    Raises:
      ValueError: Two relations have the same ends.
    """
    titles = {}
    for relation in relations:
        source, _, target = relation.partition('-')
        source, target = source or 'source', target or 'target'
        for title, reverse in ((f'{source} to {target}', False), (f'{target} to {source}', True)):
            if title in titles:
                raise ValueError(
                    f'The relations {titles[title].relation!r} and {relation!r} both say '
                    f'{title!r}: rename one of them.'
                )
            titles[title] = Direction(relation, reverse)
    return titles


@checked
def with_random_links(
    encoded: Encoded,
    relations: Iterable[str],
    *,
    kinds: Iterable[Kind] | None = None,
    draws: Count,
    seed: int,
) -> tuple[Encoded, dict[RandomLinks, Reduction]]:
    """Draw `draws` places for each link of relations, to be measured in the same pass as the links.

    The kinds of places are those of `measure/places.py`; None draws all, without `CLASSES` if the
    texts have no word classes. Returned are the same texts with the places among their marks, and
    what is to be measured there, to be added to the statistics of the pass.

    Raises:
      ValueError: The texts lack a relation, or word classes for `CLASSES`, a kind is unknown, or
        two relations have the same ends.
    """
    relations = list(dict.fromkeys(each.relation for each in directions(relations).values()))
    if kinds is None:
        kinds = [kind for kind in KINDS if kind != CLASSES or encoded.classes is not None]
    kinds = tuple(kinds)
    for kind in kinds:
        check_name('kind', kind, KINDS)
    # By relation, kind, and the ways that they are for: queries are other words in each direction,
    # and so are the words that they choose from.
    tables: dict[tuple[str, Kind, tuple[bool, ...]], Places | Choices] = {}
    links = {relation: _relation(encoded, relation) for relation in relations}
    for kind in kinds:
        possible = np.ones(0)
        for relation, of in links.items():
            if kind == CLASSES:
                for reverse in (False, True):
                    chosen = choices_of(of, encoded, reverse=reverse)
                    tables[relation, kind, (reverse,)] = chosen
            else:
                drawn = draw_places(of, encoded, kind=kind, draws=draws, seed=seed)
                tables[relation, kind, (False, True)] = drawn
                possible = np.append(possible, drawn.possible)
        if not possible.all():
            logging.info(
                'Random links (%s): %d of %d links have no other place, and are not compared.',
                kind, (possible == 0).sum(), len(possible),
            )  # fmt: skip
    # All in one table, so that little is compiled.
    pairs, starts = together([*tables.values()])
    placed = dict(zip(tables, zip(tables.values(), starts, strict=True), strict=True))
    reductions = {
        RandomLinks(reverse): Reduction(
            attention_at_places(reverse=reverse),
            functools.partial(
                _Comparisons,
                {
                    (relation, kind): each
                    for (relation, kind, ways), each in placed.items()
                    if reverse in ways
                },
                seed,
            ),
        )
        for reverse in (False, True)
    }
    return dataclasses.replace(encoded, marks={**encoded.marks, RANDOM: pairs}), reductions


def _relation(encoded: Encoded, relation: str) -> np.ndarray:
    links = encoded.marks.get(relation)
    if links is None or getattr(links, 'ndim', 0) != 3:
        there = [name for name, mark in encoded.marks.items() if getattr(mark, 'ndim', 0) == 3]
        near = (
            f'These texts have no relation {relation!r}, but {", ".join(there) or "none"}: '
            f'bs.mark(encoded, annotations) adds those of annotations. {meant(relation, there)}'
        )
        raise ValueError(near.rstrip())
    return links


def link_scores(
    encoded: Encoded, relations: Iterable[str], measured: Mapping[str | RandomLinks, Any]
) -> dict[str, LinkScores]:
    """Return the parts of the tests besides their tables, by the titles of the directions."""
    scores = {}
    for title, (relation, reverse) in directions(relations).items():
        links = _relation(encoded, relation)
        compared = measured[RandomLinks(reverse)]
        scores[title] = LinkScores(
            links=turned(links) if reverse else links,
            nulls={kind: compared[key] for kind in KINDS if (key := (relation, kind)) in compared},
        )
    return scores


def link_tests(
    tables: Mapping[str, HeadTable] | Mapping[str | RandomLinks, Any],
    scores: Mapping[str, LinkScores],
) -> dict[str, LinkTest]:
    """Return the tests by title, for directions along which at least one example has a link."""
    return {
        title: LinkTest(tables[title], of_title.links, of_title.nulls)
        for title, of_title in scores.items()
        if tables[title].count
    }


class _Comparisons:
    """Hands the scores of the places of all relations and kinds to the comparisons with them."""

    def __init__(
        self, places: Mapping[_Key, tuple[Places | Choices, Int[np.ndarray, ' E']]], seed: int
    ):
        self._places, self._seed = places, seed
        self._each = {key: comparison_of(each) for key, (each, _) in places.items()}

    def add(self, examples: np.ndarray, values: Float[np.ndarray, 'B L N P']) -> None:
        self._shape = values.shape[1:3]
        flat = values.reshape(len(values), int(np.prod(self._shape)), values.shape[-1])
        for key, (places, starts) in self._places.items():
            rows, numbers = places.of(examples)
            host = examples[rows]
            self._each[key].add(numbers, flat[rows, :, numbers - places.first[host] + starts[host]])

    def result(self) -> dict[_Key, NullTest]:
        how = self._shape, self._seed
        return {key: comparison.result(*how) for key, comparison in self._each.items()}


def comparison_of(places: Places | Choices) -> '_Comparison | Preference':
    """Return what adds up the scores of places, or the attention to words to choose from."""
    return Preference(places) if isinstance(places, Choices) else _Comparison(places)


class _Comparison:
    """Adds up the scores of places by batch; memory grows with links and examples alone."""

    def __init__(self, places: Places):
        links = np.flatnonzero(places.possible > 0)
        self._count, (examples, draws) = len(links), (len(places.pairs), places.drawn.shape[1])
        self._possible = places.possible[links]
        of_example = np.bincount(places.example[links], minlength=examples)
        # The mean over links, then over examples.
        host = places.example[links]
        self._weights = 1 / (of_example[host] * max(np.sum(of_example > 0), 1))
        self._links = nulls.indicator(host, examples, self._weights)
        drawn = places.drawn[links].ravel()
        link, draw = np.indices((len(links), draws)).reshape(2, -1)
        weight = self._weights[link] / draws
        # How much each place counts in the mean, where it is, and from which link it does.
        hosts = np.searchsorted(places.first, drawn, side='right') - 1
        shape = examples, len(links)
        self._guests = scipy.sparse.coo_array((weight, (hosts, link)), shape=shape).tocsr()
        # Rows are a link's own score and the mean of its places, the mean of each draw, and the
        # share of an example in the mean of all.
        self._heights = len(links), len(links), draws
        below = np.cumsum(self._heights)
        rows = [np.arange(len(links)), below[0] + link, below[1] + draw, below[2] + hosts]
        values = [np.ones(len(links)), np.full(len(drawn), 1 / draws), weight * draws, weight]
        entries = (
            np.concatenate(values).astype(np.float32),
            (np.concatenate(rows), np.concatenate([places.own[links], drawn, drawn, drawn])),
        )
        shape = below[2] + examples, int(places.first[-1])
        self._sums = nulls.Sums(scipy.sparse.coo_array(entries, shape=shape))

    def add(self, numbers: Int[np.ndarray, ' C'], scores: Float[np.ndarray, 'C H']) -> None:
        """Add the scores of the places of these numbers."""
        self._sums.add(numbers, scores)

    def result(self, shape: tuple[int, int], seed: int) -> NullTest:
        """Return the test for L x N heads, [L, N], which come one after the other."""
        own, random, draws, hosts = self._sums.split(*self._heights)
        # The contribution of each example: its links, and its places for the links of any example.
        contributed = self._links @ (own - random) - (hosts - self._guests @ random)
        takes_part = (self._links.sum(axis=1) > 0) | (self._guests.sum(axis=1) > 0)
        contributed = contributed[takes_part] * takes_part.sum()
        contributed[np.abs(contributed) < nulls.ROUNDING] = 0
        if len(contributed) < 2 or not np.isfinite(contributed).all():
            return nulls.no_test(shape, len(contributed), self._count)
        return nulls.null_test(
            shape,
            contributed,
            contributed,
            seed=seed,
            links=self._count,
            possible=float(np.median(self._possible)),
            score=self._weights @ own,
            mean=self._weights @ random,
            percentile_99=percentile_99(draws),
        )


@checked
def turned(links: Int[np.ndarray, '*shape 3']) -> Int[np.ndarray, '*shape 3']:
    """Return links [..., 3] with source and target, that is, query and key, swapped."""
    return links[..., [1, 0, 2]]


@checked
def offset_histogram(links: LinkTable) -> tuple[Int[np.ndarray, ' F'], Int[np.ndarray, ' F']]:
    """Return the offsets [F] between linked wordpieces, ascending, and the number of links of each.

    The offset of a link is that of its closest pair; if two pairs are equally close, the negative
    offset counts.
    """
    query, key = closest_pairs(*pairs_of(links)[:2]).T
    return np.unique(key - query, return_counts=True)


@checked
def offset_baseline(links: LinkTable, offsets: Iterable[int] = OFFSETS) -> dict[int, float]:
    """Score ideal heads that put all attention at one offset, such as on the previous wordpiece.

    The score is that of `statistics.attention_of_links`: a link with a pair at the offset scores 1,
    any other 0, and the mean is taken over the links of an example, then over examples. A head that
    is not above the best of these may know nothing but positions (the paper, section 4.5).

    The best is first; scores are NaN if no example has a link.
    """
    pairs, link, examples = pairs_of(links)
    links_of = np.bincount(examples, minlength=len(links))
    counted = np.count_nonzero(links_of)
    scores = {}
    for offset in offsets:
        hit = np.zeros(len(examples))
        hit[link[pairs[:, 1] - pairs[:, 0] == offset]] = 1
        total = np.sum(hit / links_of[examples])
        scores[offset] = float(total / counted) if counted else np.nan
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
