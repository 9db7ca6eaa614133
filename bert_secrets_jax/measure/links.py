"""Attention along links, and how much of it chance and the places of the links alone explain.

A head with attention along links may only look a fixed number of tokens away, or at nothing in
particular. So links are compared with two kinds of random links in the same texts: `MOVED` links
keep all their distances and stand elsewhere, `ELSEWHERE` links stand at random places that are not
adjacent. All are measured in one pass:

    encoded, random = bs.links.with_random_links(
        encoded, ['verb-subject'], kinds=('moved',), draws=199, seed=0)
    tables = bs.measure(pretrained, bs.bucket(encoded), described, also=random)
    scores = bs.links.link_scores(encoded, ['verb-subject'], tables)    # small arrays, to be kept
    tests = bs.links.link_tests(tables, scores)

Shapes: E examples, P pairs of wordpieces, K draws, T positions, L layers, N heads, X links. Links
are `[E, P, 3]` as in `Encoded.marks`, (query position, key position, number of the link); the
number -1 is filler. An offset is the key position minus the query position: -1 is the previous
wordpiece.
"""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
from absl import logging
from jaxtyping import Float, Int

from bert_secrets_jax.data.annotation import RANDOM
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.measure.statistics import Statistic, attention_of_random_links
from bert_secrets_jax.measure.tables import HeadTable

Kind = Literal['moved', 'elsewhere']
MOVED, ELSEWHERE = KINDS = ('moved', 'elsewhere')
# The corrected level at which a head is above random links.
LEVEL = 0.05

OFFSETS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)

# Scores are means in float32: less than this apart, they are the same.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class NullTest:
    """The scores of heads compared with their scores on random links.

    Attributes:
      p: [L, N] The one-sided p-value of the hypothesis that the head does no better than on random
        links, not corrected for the number of heads.
      percentile_99: [L, N] The 99th percentile of the head's random scores.
      familywise: [L, N] The p-value corrected for the number of heads: the chance that any head is
        as far above its own random scores, in units of their standard deviation (Westfall and Young
        1993).
      mean: [L, N] The mean of the head's random scores.
      z: [L, N] The distance of the score from the mean of the random scores, in standard deviations
        of the random scores; NaN if these do not vary.
    """

    p: Float[np.ndarray, 'L N']
    percentile_99: Float[np.ndarray, 'L N']
    familywise: Float[np.ndarray, 'L N']
    mean: Float[np.ndarray, 'L N']
    z: Float[np.ndarray, 'L N']


class Direction(NamedTuple):
    """One of the two ways along the links of a relation.

    Attributes:
      relation: The name of the relation.
      reverse: Whether attention is taken from target to source.
    """

    relation: str
    reverse: bool


@dataclasses.dataclass(frozen=True)
class Null:
    """The key, among the tables of a pass, of the attention along random links.

    Attributes:
      title: The title of the direction, such as 'verb to subject'.
      kind: The kind of random links.
    """

    title: str
    kind: Kind

    def __str__(self) -> str:
        return f'{self.title}, along random links ({self.kind})'


@dataclasses.dataclass(frozen=True)
class LinkScores:
    """The parts of a `LinkTest` besides its table: small arrays, which can be stored.

    Attributes:
      links: [E, P, 3] The links in the measured direction: the query comes first.
      places: [X] The number of places to which each link can be moved as a whole, its own included.
      random: The mean score of each draw [L, N, K], for each kind of random links.
      excess: The mean and the variance over examples [2, L, N], for each kind of random links, of
        the score on the links minus the mean score on the random ones.
    """

    links: Int[np.ndarray, 'E P 3']
    places: Int[np.ndarray, ' X']
    random: Mapping[str, Float[np.ndarray, 'L N K']]
    excess: Mapping[str, Float[np.ndarray, '2 L N']]


@dataclasses.dataclass(frozen=True)
class LinkTest:
    """Attention along the links of a relation in one direction, compared with random links.

    Attributes:
      table: The attention along the links.
      links: [E, P, 3] The links in the measured direction: the query comes first.
      nulls: The comparison with each kind of random links, by kind.
      excess: The score on the links minus that on random links, for each kind. Some moved links
        have no other place and stay where they are; the excess is enlarged by the share of these,
        and NaN if all links stay.
      places: The median number of places to which a link could be moved, its own included.
    """

    table: HeadTable
    links: Int[np.ndarray, 'E P 3']
    nulls: Mapping[str, NullTest]
    excess: Mapping[str, HeadTable]
    places: float

    @property
    def real(self) -> np.ndarray:
        """[L, N] Whether a head is above every kind of random links, at 5 % for all heads."""
        return np.all([null.familywise <= LEVEL for null in self.nulls.values()], axis=0)

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

    Args:
      relations: The names of relations. A name such as 'source-target' names both ends; any other
        name is that of the source.

    Returns:
      The direction for each title, 'source to target' and 'target to source'.

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
    kinds: Iterable[Kind] = KINDS,
    draws: int,
    seed: int,
) -> tuple[Encoded, dict[Null, Statistic]]:
    """Draw random links for relations, to be measured in the same pass as the annotated ones.

    Args:
      encoded: The texts with the relations among their marks.
      relations: The names of the relations.
      kinds: The kinds of random links to draw.
      draws: The number of draws K. It takes at least 99 for a p-value of 0.01.
      seed: The seed of the draws.

    Returns:
      The same texts with the random links among their marks, and the statistics of attention along
      them, to be added to those of the pass.

    Raises:
      ValueError: The texts lack a relation, a kind is unknown, or two relations have the same ends.
    """
    found, kinds = directions(relations), list(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f'kinds are {", ".join(KINDS)}, not {kind!r}.')
    random = {kind: dict(encoded.marks.get(RANDOM, {}).get(kind, {})) for kind in KINDS}
    statistics = {}
    for title, (relation, reverse) in found.items():
        links = _relation(encoded, relation)
        for kind in kinds:
            if not reverse:
                random[kind][relation] = random_links(
                    links, encoded.text, draws=draws, seed=seed, same_distance=kind == MOVED
                )
            statistics[Null(title, kind)] = attention_of_random_links(
                relation, kind=kind, excess=True, reverse=reverse
            )
    random = {kind: drawn for kind, drawn in random.items() if drawn}
    marks = {**encoded.marks, RANDOM: random}
    return dataclasses.replace(encoded, marks=marks), statistics


def _relation(encoded: Encoded, relation: str) -> np.ndarray:
    found = encoded.marks.get(relation)
    if getattr(found, 'ndim', 0) != 3:
        there = [name for name, mark in encoded.marks.items() if getattr(mark, 'ndim', 0) == 3]
        raise ValueError(
            f'These texts have no relation {relation!r}, but {", ".join(there) or "none"}: '
            'bs.mark(encoded, annotations) adds those of annotations.'
        )
    return found


def link_scores(
    encoded: Encoded, relations: Iterable[str], measured: Mapping[Hashable, HeadTable]
) -> dict[str, LinkScores]:
    """Return the parts of the tests besides their tables, by the titles of the directions.

    Args:
      encoded: The texts with the relations among their marks.
      relations: The same relations as for `with_random_links`.
      measured: The tables of a pass with the statistics of `with_random_links`, under their keys.
    """
    scores = {}
    counted = {}
    for title, (relation, reverse) in directions(relations).items():
        links = _relation(encoded, relation)
        if relation not in counted:
            counted[relation] = places(links, encoded.text)
        tables = {kind: measured[key] for kind in KINDS if (key := Null(title, kind)) in measured}
        scores[title] = LinkScores(
            links=turned(links) if reverse else links,
            places=counted[relation],
            random={kind: table.mean[..., :-1] for kind, table in tables.items()},
            excess={
                kind: np.stack([table.mean[..., -1], table.variance[..., -1]])
                for kind, table in tables.items()
            },
        )
    return scores


def link_tests(
    tables: Mapping[str, HeadTable], scores: Mapping[str, LinkScores]
) -> dict[str, LinkTest]:
    """Return the tests by title, for directions along which at least one example has a link.

    Args:
      tables: The tables of attention along the links, by the titles of the directions.
      scores: The scores that `link_scores` returned.
    """
    return {
        title: _test(tables[title], of_title)
        for title, of_title in scores.items()
        if tables[title].count
    }


def _test(table: HeadTable, scores: LinkScores) -> LinkTest:
    # A link with one place only is compared with itself, and so adds nothing to the excess.
    stay = {MOVED: (1 / scores.places).mean(), ELSEWHERE: 0.0}
    excess = {}
    for kind, (mean, variance) in scores.excess.items():
        # Where all stay, nothing is left to enlarge.
        others = 1 - stay[kind] or np.nan
        excess[kind] = HeadTable(mean / others, variance / others**2, table.count)
    return LinkTest(
        table=table,
        links=scores.links,
        nulls={kind: null_summary(table.mean, null) for kind, null in scores.random.items()},
        excess=excess,
        places=float(np.median(scores.places)),
    )


def turned(links: Int[np.ndarray, '*shape 3']) -> Int[np.ndarray, '*shape 3']:
    """Return links [..., 3] with source and target, that is, query and key, swapped."""
    return links[..., [1, 0, 2]]


def offset_histogram(
    links: Int[np.ndarray, 'E P 3'],
) -> tuple[Int[np.ndarray, ' F'], Int[np.ndarray, ' F']]:
    """Return the histogram of the distances between linked wordpieces.

    Args:
      links: [E, P, 3] The links.

    Returns:
      The offsets in ascending order, and the number of links with each. The offset of a link is
      that of its closest pair; if two pairs are equally close, the negative offset counts.
    """
    pairs, link, examples = _pairs(links)
    offset = pairs[:, 1] - pairs[:, 0]
    # In ascending order 0, -1, 1, -2, 2, ...
    closeness = np.full(len(examples), np.iinfo(np.int64).max)
    np.minimum.at(closeness, link, 2 * np.abs(offset) - (offset < 0))
    closest = np.where(closeness % 2, -(closeness + 1) // 2, closeness // 2)
    return np.unique(closest, return_counts=True)


def offset_baseline(
    links: Int[np.ndarray, 'E P 3'],
    offsets: Iterable[int] = OFFSETS,
    *,
    count_absent: bool = False,
) -> dict[int, float]:
    """Score ideal heads that put all attention at one offset, such as on the previous wordpiece.

    The score is that of `statistics.attention_of_links`: a link with a pair at the offset scores 1,
    any other 0, and the mean is taken over the links of an example, then over examples. A head that
    is not above the best of these may know nothing but positions (the paper, section 4.5).

    Args:
      links: [E, P, 3] The links.
      offsets: The offsets to score.
      count_absent: Whether examples without links count with 0, as with `among='token'`, rather
        than not at all.

    Returns:
      The score of each offset, the best first; NaN if no example counts.
    """
    pairs, link, examples = _pairs(links)
    links_of = np.bincount(examples, minlength=len(links))
    counted = len(links) if count_absent else np.count_nonzero(links_of)
    scores = {}
    for offset in offsets:
        hit = np.zeros(len(examples))
        hit[link[pairs[:, 1] - pairs[:, 0] == offset]] = 1
        total = np.sum(hit / links_of[examples])
        scores[offset] = float(total / counted) if counted else np.nan
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def random_links(
    links: Int[np.ndarray, 'E P 3'],
    text: Int[np.ndarray, 'E T'],
    *,
    draws: int,
    seed: int,
    min_distance: int = 2,
    same_distance: bool = False,
) -> Int[np.ndarray, 'E K P 3']:
    """Draw links at random places of the same inputs, to show the attention of chance.

    The source and the target of a link become two runs of as many neighbouring wordpieces as they
    had, each in the text it was in. All places where the two are far enough apart are equally
    likely. Each pair keeps its place within the runs, so that crossed pairs stay crossed and zipped
    ones zipped. Links of one example are placed independently.

    If a text is too short for the distance, the links are drawn from the places with the widest
    possible distance. A link that fits no place without an overlap stays where it is. A log line
    counts both.

    Args:
      links: [E, P, 3] The links.
      text: [E, T] The text of its input that a wordpiece is in; -1 on special tokens and padding,
        as in `Encoded.text`.
      draws: The number of draws K.
      seed: The seed of the draws.
      min_distance: The least distance between the closest wordpieces of source and target; 2 leaves
        one wordpiece between them.
      same_distance: Whether to move the link as a whole instead, so that all its offsets stay. This
        shows how much attention comes from positions alone. The annotated place is then one of the
        possible ones, and the only one if the link fits no other.

    Returns:
      [E, K, P, 3] The random links.

    Raises:
      ValueError: The shapes do not fit, the draws or the distance are below 1, or a link goes to a
        special token or padding.
    """
    _check(links, text, draws, min_distance)
    rng = np.random.default_rng(seed)
    pairs, link, examples = _pairs(links)
    rows = np.nonzero(links[..., 2] >= 0)[1]
    drawn = np.repeat(links[:, None].astype(np.int32), draws, axis=1)
    closer = kept = 0
    for index, example in enumerate(examples):
        members = link == index
        if same_distance:
            moves = _moves(pairs[members], text[example])
            kept += len(moves) == 1
            placed, within = np.stack([moves, moves], axis=1), pairs[members]
        else:
            starts, distance, within = _runs(pairs[members], text[example])
            widest = distance.max(initial=0)
            if widest < 1:
                kept += 1
                continue
            closer += widest < min_distance
            placed = starts[distance >= min(min_distance, widest)]
        chosen = placed[rng.integers(len(placed), size=draws)]
        drawn[example][:, rows[members], :2] = chosen[:, None, :] + within
    if closer or kept:
        logging.info(
            'Random links: of %d, %d have no place %d positions apart and are closer, %d have none '
            'but their own.',
            len(examples), closer, min_distance, kept,
        )  # fmt: skip
    return drawn


def places(links: Int[np.ndarray, 'E P 3'], text: Int[np.ndarray, 'E T']) -> Int[np.ndarray, ' X']:
    """Return the number of places to which each link can be moved as a whole, its own included.

    Few places make a weak test: a link that fits nowhere else is compared with itself.

    Args:
      links, text: The links [E, P, 3] and the texts of the wordpieces [E, T], as in `random_links`.
    """
    pairs, link, examples = _pairs(links)
    return np.array(
        [
            len(_moves(pairs[link == index], text[example]))
            for index, example in enumerate(examples)
        ],
        np.int64,
    )


def null_summary(score: Float[np.ndarray, 'L N'], null: Float[np.ndarray, 'L N K']) -> NullTest:
    """Compare scores with those on random links.

    The 99th percentile is the lowest draw such that at least 99 % of the draws are not above it. It
    takes at least 99 draws for a score to exceed it by chance in 1 % of the cases.

    Args:
      score: [L, N] The scores on the annotated links.
      null: [L, N, K] The scores on the random links of each draw.

    Raises:
      ValueError: The shapes do not fit, or a score is NaN because no example has a link.
    """
    if null.ndim != 3 or null.shape[:2] != score.shape or not null.shape[2]:
        raise ValueError(
            f'Random scores must be [layers, heads, draws] for scores {list(score.shape)}, got '
            f'{list(null.shape)}.'
        )
    if not (np.isfinite(score).all() and np.isfinite(null).all()):
        raise ValueError('Some scores are not finite: is there any example with such a link?')
    if null.shape[2] < 99:
        logging.warning(
            '%d draws of random links: no p-value can be below %.3f.',
            null.shape[2], 1 / (1 + null.shape[2]),
        )  # fmt: skip
    score, null = score.astype(np.float64), null.astype(np.float64)
    as_high = np.sum(null >= score[..., None] - _ROUNDING, axis=-1)
    spread = null.std(axis=-1, ddof=1) if null.shape[2] > 1 else np.zeros_like(score)
    varies = spread > _ROUNDING
    z = (score - null.mean(axis=-1)) / np.where(varies, spread, np.nan)
    # With the score among the draws, all are alike if the head does as well on any of them.
    together = np.concatenate([score[..., None], null], axis=-1)
    centred = together - together.mean(axis=-1, keepdims=True)
    far = centred / np.where(varies, together.std(axis=-1), np.inf)[..., None]
    farthest = far.max(axis=(0, 1))
    return NullTest(
        p=(1 + as_high) / (1 + null.shape[2]),
        percentile_99=np.quantile(null, 0.99, axis=-1, method='higher'),
        familywise=(farthest >= far[..., :1] - _ROUNDING).mean(axis=-1),
        mean=null.mean(axis=-1),
        z=z,
    )


def _check(links, text, draws, min_distance):
    if links.ndim != 3 or links.shape[2] != 3 or len(text) != len(links):
        raise ValueError(
            f'Links {list(links.shape)} are not [examples, pairs, 3] of the {len(text)} examples '
            'in text: take both from one Encoded.'
        )
    if draws < 1 or min_distance < 1:
        raise ValueError(f'{draws=} and {min_distance=} must be at least 1.')
    pairs, link, examples = _pairs(links)
    inside = pairs < text.shape[1]
    place = examples[link][:, None], np.where(inside, pairs, 0)
    astray = (~inside | (text[place] < 0)).any(axis=1)
    if astray.any():
        raise ValueError(
            f'A link of example {examples[link][astray][0]} is to a special token or padding: take '
            'links and text from one Encoded.'
        )


def _pairs(
    links: Int[np.ndarray, 'E P 3'],
) -> tuple[Int[np.ndarray, 'F 2'], Int[np.ndarray, ' F'], Int[np.ndarray, ' X']]:
    """Return the pairs that are no fillers, the link of each pair, and the example of each link."""
    example, row = np.nonzero(links[..., 2] >= 0)
    filled = links[example, row].astype(np.int64)
    keys = np.stack([example, filled[:, 2]], axis=1)
    unique, link = np.unique(keys, axis=0, return_inverse=True)
    return filled[:, :2], link.ravel(), unique[:, 0]


def _moves(pairs: Int[np.ndarray, 'P 2'], text: Int[np.ndarray, ' T']) -> Int[np.ndarray, ' W']:
    """Return by how many positions a link can be moved so that each end stays in its text."""
    positions = np.unique(pairs)
    moves = np.arange(-positions[0], len(text) - positions[-1])
    return moves[(text[positions + moves[:, None]] == text[positions]).all(axis=1)]


def _runs(
    pairs: Int[np.ndarray, 'P 2'], text: Int[np.ndarray, ' T']
) -> tuple[Int[np.ndarray, 'W 2'], Int[np.ndarray, ' W'], Int[np.ndarray, 'P 2']]:
    """Return first positions of two runs, their distances, and each pair's place in the runs."""
    sizes, starts, within = [], [], []
    for positions in pairs.T:
        unique, rank = np.unique(positions, return_inverse=True)
        windows = np.arange(len(text) - len(unique) + 1)
        run = windows[:, None] + np.arange(len(unique))
        sizes.append(len(unique))
        starts.append(windows[(text[run] == text[unique[0]]).all(axis=1)])
        within.append(rank)
    source, target = (places.ravel() for places in np.meshgrid(*starts))
    distance = np.maximum(target - (source + sizes[0] - 1), source - (target + sizes[1] - 1))
    return np.stack([source, target], axis=1), distance, np.stack(within, axis=1)
