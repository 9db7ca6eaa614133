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
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse
from absl import logging
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.brief import check_name, meant
from bert_secrets_jax.data.annotation import RANDOM
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.measure.choices import Choices, Preference, choices_of, numbers_of
from bert_secrets_jax.measure.nulls import NullTest
from bert_secrets_jax.measure.places import (
    CLASSES,
    ELSEWHERE,
    KINDS,
    MOVED,
    POSITIONS,
    Kind,
    Places,
    draw_places,
    pairs_of,
    together,
)
from bert_secrets_jax.measure.statistics import attention_at_places
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.stats.resampling import percentile_99, sign_flip_test

__all__ = [
    'CLASSES', 'ELSEWHERE', 'KINDS', 'MOVED', 'POSITIONS', 'Direction', 'Kind', 'LinkScores',
    'LinkTest', 'NullTest', 'RandomLinks', 'directions', 'link_scores', 'link_tests',
    'offset_baseline', 'offset_histogram', 'turned', 'with_random_links',
]  # fmt: skip

OFFSETS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)
_ROUNDING = 1e-6  # scores are means in float32: less than this apart, they are the same
_ROUNDS = 2000  # sign flips: the least corrected p-value is 1 / (rounds + 1)
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

    links: Int[np.ndarray, 'E P 3']
    nulls: Mapping[str, NullTest]


@dataclasses.dataclass(frozen=True)
class LinkTest:
    """Attention along the links of a relation in one direction, compared with random links.

    The links [E, P, 3] have the query first; `nulls` compare with the places of each kind.
    """

    table: HeadTable
    links: Int[np.ndarray, 'E P 3']
    nulls: Mapping[str, NullTest]

    @property
    def real(self) -> Bool[np.ndarray, 'L N']:
        """Whether a head is above the places of every kind, each at 5 % for all heads.

        A head that has nothing but what one kind holds fixed passes here with a chance of at most
        5 % for all heads. No head is above a kind without places.
        """
        return np.all([null.above for null in self.nulls.values()], axis=0)

    @property
    def familywise(self) -> Float[np.ndarray, 'L N']:
        """The greatest corrected p-value over the kinds; NaN where a kind has no places."""
        return np.max([null.familywise for null in self.nulls.values()], axis=0)

    @property
    def detectable(self) -> Float[np.ndarray, 'L N']:
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


def with_random_links(
    encoded: Encoded,
    relations: Iterable[str],
    *,
    kinds: Iterable[Kind] | None = None,
    draws: int,
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
    links = {relation: _relation(encoded, relation) for relation in relations}
    of_places: list[Kind] = [kind for kind in kinds if kind != CLASSES]
    drawn: dict[_Key, Places] = {
        (relation, kind): draw_places(of, encoded, kind=kind, draws=draws, seed=seed)
        for relation, of in links.items()
        for kind in of_places
    }
    for kind in of_places:
        possible = np.concatenate([drawn[relation, kind].possible for relation in relations])
        if not possible.all():
            logging.info(
                'Random links (%s): %d of %d links have no other place, and are not compared.',
                kind, (possible == 0).sum(), len(possible),
            )  # fmt: skip
    # Queries are other words in each direction, and so are the words that they choose from.
    chosen: dict[bool, dict[_Key, Choices]] = {
        reverse: {
            (relation, CLASSES): choices_of(of, encoded, reverse=reverse)
            for relation, of in links.items()
            if CLASSES in kinds
        }
        for reverse in (False, True)
    }
    # All in one table, so that little is compiled.
    pairs, starts = together([*drawn.values(), *chosen[False].values(), *chosen[True].values()])
    of_drawn, *of_chosen = np.split(np.stack(starts), [len(drawn), len(drawn) + len(chosen[False])])
    reductions = {
        RandomLinks(reverse): Reduction(
            attention_at_places(reverse=reverse),
            functools.partial(
                _Comparisons,
                drawn | chosen[reverse],
                np.concatenate([of_drawn, of_chosen[reverse]]),
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
        self, places: Mapping[_Key, Places | Choices], starts: Int[np.ndarray, 'C E'], seed: int
    ):
        self._starts = dict(zip(places, starts, strict=True))
        self._each = {key: comparison_of(each, seed) for key, each in places.items()}

    def add(self, examples: np.ndarray, values: Float[np.ndarray, 'B L N P']) -> None:
        by_place = np.moveaxis(values, -1, 1)
        for key, comparison in self._each.items():
            rows, numbers = comparison.numbers(examples)
            comparison.add(examples, by_place[rows, numbers + self._starts[key][examples[rows]]])

    def result(self) -> dict[_Key, NullTest]:
        return {key: comparison.result() for key, comparison in self._each.items()}


def comparison_of(places: Places | Choices, seed: int) -> '_Comparison | Preference':
    """Return what adds up the scores of places, or the attention to words to choose from."""
    if isinstance(places, Choices):
        return Preference(places, seed)
    return _Comparison(places, seed)


class _Comparison:
    """Adds up the scores of places by batch; memory grows with links and examples alone."""

    def __init__(self, places: Places, seed: int):
        self._places, self._seed = places, seed
        links = np.flatnonzero(places.possible > 0)
        examples, draws = len(places.pairs), places.drawn.shape[1]
        of_example = np.bincount(places.example[links], minlength=examples)
        # The mean over links, then over examples.
        self._weights = 1 / (of_example[places.example[links]] * max(np.sum(of_example > 0), 1))
        self._examples = places.example[links]
        drawn = places.drawn[links].ravel()
        numbers = np.arange(len(links))
        link, draw = np.repeat(numbers, draws), np.tile(np.arange(draws), len(links))
        count = int(places.first[-1])

        def matrix(values, rows, columns, height) -> scipy.sparse.csc_array:
            sparse = _matrix(values, rows, columns, (height, count)).tocsc().astype(np.float32)
            return cast(scipy.sparse.csc_array, sparse)

        self._adders = {
            'own': matrix(np.ones(len(links)), numbers, places.own[links], len(links)),
            'random': matrix(np.ones(len(drawn)) / draws, link, drawn, len(links)),
            'draws': matrix(self._weights[link], draw, drawn, draws),
        }
        # How much each place counts in the mean, and from which link it does.
        weight = self._weights[link] / draws
        self._place_weight = np.bincount(drawn, weight, minlength=count)
        hosts = np.searchsorted(places.first, drawn, side='right') - 1
        self._guests = _matrix(weight, hosts, link, (examples, len(links))).tocsr()
        self._sums: dict[str, np.ndarray] = {}

    def numbers(self, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of some examples: which example [C], and the number in it [C]."""
        return numbers_of(self._places.first, examples)

    def add(self, examples: np.ndarray, scores: Float[np.ndarray, 'C L N']) -> None:
        """Add the scores of the places of some examples, in the order of `numbers`."""
        first, width = self._places.first, int(np.prod(scores.shape[1:]))
        if not self._sums:
            self._heads = scores.shape[1:]
            heights = {
                name: adder.shape[0]  # pyright: ignore[reportOptionalSubscript]
                for name, adder in self._adders.items()
            }
            self._sums = {
                name: np.zeros((height, width), np.float32)
                for name, height in (heights | {'hosts': len(first) - 1}).items()
            }
        scores = scores.reshape(len(scores), width)
        counts = np.diff(first)[examples]
        columns = np.concatenate(
            [np.arange(int(first[each]), int(first[each + 1])) for each in examples]
        )
        for name, adder in self._adders.items():
            part = adder[:, columns]
            rows = np.unique(part.nonzero()[0])
            self._sums[name][rows] += part.tocsr()[rows] @ scores
        weighted = scores * self._place_weight[columns, None]
        ends = np.concatenate([[0], np.cumsum(counts)])
        for example, start, stop in zip(examples, ends[:-1], ends[1:], strict=True):
            self._sums['hosts'][example] = weighted[start:stop].sum(axis=0)

    def result(self) -> NullTest:
        sums = {name: each.astype(np.float64) for name, each in self._sums.items()}
        own, random, weights = sums['own'], sums['random'], self._weights[:, None]
        examples = len(self._places.pairs)
        # The contribution of each example: its links, and its places for the links of any example.
        numbers = np.arange(len(own))
        links = _matrix(self._weights, self._examples, numbers, (examples, len(own))).tocsr()
        contributed = links @ (own - random) - (sums['hosts'] - self._guests @ random)
        takes_part = (links.sum(axis=1) > 0) | (self._guests.sum(axis=1) > 0)
        contributed = contributed[takes_part] * takes_part.sum()
        contributed[np.abs(contributed) < _ROUNDING] = 0
        count, width = contributed.shape

        def shaped(values):
            return values.reshape(self._heads).astype(np.float32)

        if count < 2 or not np.isfinite(contributed).all():
            none = shaped(np.full(width, np.nan))
            table = HeadTable(none, none, float(count))
            return NullTest(none, none, none, table, none, none, len(own), np.nan)
        mean, variance = contributed.mean(axis=0), contributed.var(axis=0, ddof=1)
        p, familywise = sign_flip_test(
            contributed.T, alternative='greater', rounds=_ROUNDS, seed=self._seed
        )
        return NullTest(
            score=shaped((own * weights).sum(axis=0)),
            mean=shaped((random * weights).sum(axis=0)),
            percentile_99=shaped(percentile_99(sums['draws'])),
            excess=HeadTable(shaped(mean), shaped(variance), float(count)),
            p=p.reshape(self._heads),
            familywise=familywise.reshape(self._heads),
            links=len(own),
            possible=float(np.median(self._places.possible[self._places.possible > 0])),
        )


def _matrix(values, rows, columns, shape: tuple[int, int]) -> scipy.sparse.coo_array:
    return scipy.sparse.coo_array((values, (rows, columns)), shape=shape)


@checked
def turned(links: Int[np.ndarray, '*shape 3']) -> Int[np.ndarray, '*shape 3']:
    """Return links [..., 3] with source and target, that is, query and key, swapped."""
    return links[..., [1, 0, 2]]


@checked
def offset_histogram(
    links: Int[np.ndarray, 'E P 3'],
) -> tuple[Int[np.ndarray, ' F'], Int[np.ndarray, ' F']]:
    """Return the offsets [F] between linked wordpieces, ascending, and the number of links of each.

    The offset of a link is that of its closest pair; if two pairs are equally close, the negative
    offset counts.
    """
    pairs, link, examples = pairs_of(links)
    offset = pairs[:, 1] - pairs[:, 0]
    # In ascending order 0, -1, 1, -2, 2, ...
    closeness = np.full(len(examples), np.iinfo(np.int64).max)
    np.minimum.at(closeness, link, 2 * np.abs(offset) - (offset < 0))
    closest = np.where(closeness % 2, -(closeness + 1) // 2, closeness // 2)
    return np.unique(closest, return_counts=True)


@checked
def offset_baseline(
    links: Int[np.ndarray, 'E P 3'], offsets: Iterable[int] = OFFSETS, *, count_absent: bool = False
) -> dict[int, float]:
    """Score ideal heads that put all attention at one offset, such as on the previous wordpiece.

    The score is that of `statistics.attention_of_links`: a link with a pair at the offset scores 1,
    any other 0, and the mean is taken over the links of an example, then over examples. A head that
    is not above the best of these may know nothing but positions (the paper, section 4.5).

    With `count_absent`, examples without links count with 0, as with `among='token'`. The best is
    first; scores are NaN if no example counts.
    """
    pairs, link, examples = pairs_of(links)
    links_of = np.bincount(examples, minlength=len(links))
    counted = len(links) if count_absent else np.count_nonzero(links_of)
    scores = {}
    for offset in offsets:
        hit = np.zeros(len(examples))
        hit[link[pairs[:, 1] - pairs[:, 0] == offset]] = 1
        total = np.sum(hit / links_of[examples])
        scores[offset] = float(total / counted) if counted else np.nan
    return dict(sorted(scores.items(), key=lambda item: -item[1]))
