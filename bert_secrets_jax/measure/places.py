"""Places where the links of texts could stand as well: what real links are compared with.

A head with attention along links may know nothing of them: it may look a fixed number of tokens
away, at tokens near the beginning, or at certain parts of speech. Each kind holds one fixed:

- `ELSEWHERE`: random places of the same text that are not adjacent. This is what chance gives.
- `MOVED`: the link is moved within its text as a whole. All its distances stay.
- `POSITIONS`: the link stands at the same positions of another input of like length.

The fourth kind, `CLASSES`, has no places. There a link is compared with all words that the head can
choose from, of which position and word class are known (`measure/choices.py`).

No annotated link of the relation is among the places.

Shapes: E examples, T positions, P pairs of wordpieces, X links, K draws, C places. A place is a set
of pairs of wordpieces of an example; links are `[E, P, 3]` as in `Encoded.marks`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.checks import check_name, check_shape
from bert_secrets_jax.data.annotation import fill_up
from bert_secrets_jax.data.encoding import Encoded

LinkTable = Int[np.ndarray, 'E P 3']
Kind = Literal['elsewhere', 'moved', 'positions', 'classes']
KINDS: tuple[Kind, ...] = ('elsewhere', 'moved', 'positions', 'classes')
ELSEWHERE, MOVED, POSITIONS, CLASSES = KINDS
# Words for the places of each kind, in sentences.
PLACES = {
    ELSEWHERE: 'at random places',
    MOVED: 'at the same distances elsewhere',
    POSITIONS: 'at the same positions of other inputs',
    CLASSES: 'by position and word class alone',
}

_ALIKE = 0.2  # by how much two lengths differ at most that are alike
_FEWEST = 5  # places of other inputs for a link: the mean of fewer is hardly known
# Steps of Newton's method for chances that balance places, and how well these do, as a share of the
# greatest difference.
_STEPS, _BALANCED = 20, 1e-3
_APART = 2  # the least distance of the two ends at a random place: one is between them


@dataclasses.dataclass(frozen=True)
class Numbered:
    """Pairs of wordpieces with numbers in each example."""

    # Query, key and number of the place among those of the example, filled up with the number -1.
    pairs: LinkTable
    first: Int[np.ndarray, ' C']  # [E + 1] the first place of each example, and how many there are

    def of(self, examples: np.ndarray) -> tuple[Int[np.ndarray, ' C'], Int[np.ndarray, ' C']]:
        """Return the places of some examples: which of these [C], and the number among all [C]."""
        counts = np.diff(self.first)[examples]
        rows = np.repeat(np.arange(len(examples)), counts)
        starts = self.first[examples] - np.cumsum(counts) + counts
        return rows, np.arange(len(rows)) + starts[rows]


@dataclasses.dataclass(frozen=True)
class Places(Numbered):
    """The places that were drawn for the links of a relation."""

    example: Int[np.ndarray, ' X']
    own: Int[np.ndarray, ' X']  # where each link stands
    drawn: Int[np.ndarray, 'X K']  # -1 for a link that has none
    possible: Int[np.ndarray, ' X']  # how many they were drawn from; 0 if these were too few


def draw_places(links: LinkTable, encoded: Encoded, *, kind: Kind, draws: int, seed: int) -> Places:
    """Draw places for links [E, P, 3] with replacement, all that are possible being as likely.

    Places of other inputs are drawn so that these inputs are on average as long as the link's own:
    attention to one token is less among more tokens. If a text is too short for places that are not
    adjacent, the widest possible distance is taken (`ELSEWHERE`).
    """
    check_name('kind', kind, KINDS[:-1])
    check_links(links, encoded.text)
    texts, number = _Texts(links, encoded), KINDS.index(kind)
    places_of = (_elsewhere, _moved, _positions)[number]
    rng = np.random.default_rng([seed, number])
    possible = np.zeros(len(texts.links), np.int64)
    # Example, shape, and first query and key of each place; the link's own comes last.
    stand = np.full((len(possible), draws + 1, 4), -1)
    shapes: dict[tuple, int] = {}

    def shaped(pairs) -> tuple[int, np.ndarray]:
        """Return the number of the shape of pairs, and its corner."""
        corner = pairs.min(axis=0)
        return shapes.setdefault(tuple(map(tuple, (pairs - corner).tolist())), len(shapes)), corner

    for index, (example, pairs) in enumerate(texts.links):
        shape, corner = shaped(pairs)
        stand[index, -1] = example, shape, *corner
        within, examples, shifts, chance = places_of(texts, example, pairs)
        if len(examples):
            possible[index] = len(examples)
            chosen = rng.choice(len(examples), draws, p=chance)
            shape, corner = shaped(within)
            stand[index, :-1, 0], stand[index, :-1, 1] = examples[chosen], shape
            stand[index, :-1, 2:] = corner + shifts[chosen]
    # The same place has one number, whoever draws it; that of no place is the least, and -1.
    sizes = np.array([len(encoded.text), len(shapes), *[encoded.text.shape[1]] * 2]) + 1
    codes = np.ravel_multi_index(tuple(np.moveaxis(stand, -1, 0) + 1), sizes.tolist())
    found, numbers = np.unique(np.append(0, codes), return_inverse=True)
    numbers = numbers.ravel()[1:].reshape(codes.shape) - 1
    places = np.stack(np.unravel_index(found[1:], sizes.tolist()), axis=1) - 1
    first = np.searchsorted(places[:, 0], np.arange(len(links) + 1))
    of_shape, filled = list(shapes), [[] for _ in links]
    for number, (example, shape, query, key) in enumerate(places.tolist()):
        of_example = number - int(first[example])
        filled[example] += [(query + x, key + y, of_example) for x, y in of_shape[shape]]
    example = np.array([example for example, _ in texts.links], np.int64)
    return Places(fill_up(filled), first, example, numbers[:, -1], numbers[:, :-1], possible)


def together(drawn: Sequence[Numbered]) -> tuple[LinkTable, Int[np.ndarray, 'D E']]:
    """Put the places of several draws, of the same examples, into one table like `Numbered.pairs`.

    The number that the first place of each draw has in each example [D, E] is returned as well.
    """
    counts = np.diff([each.first for each in drawn], axis=1)
    starts = np.cumsum(counts, axis=0) - counts
    filled = [
        np.concatenate(
            [
                each.pairs[example, each.pairs[example, :, 2] >= 0] + [0, 0, start]
                for each, start in zip(drawn, starts[:, example], strict=True)
            ]
        )
        for example in range(starts.shape[1])
    ]
    return fill_up(filled), starts


class _Texts:
    """The texts of links, and these: an example and pairs [P, 2] each."""

    def __init__(self, links: np.ndarray, encoded: Encoded):
        self.text, self.lengths = encoded.text.astype(np.int64), encoded.lengths
        self.by_length = np.argsort(self.lengths, kind='stable')
        pairs, link, examples = pairs_of(links)
        of_link = np.split(pairs[np.argsort(link, kind='stable')], np.cumsum(np.bincount(link)))
        self.links = list(zip(examples.tolist(), of_link[:-1], strict=True))
        self._linked = np.unique(self._codes(examples[link], pairs))

    def _codes(self, examples, pairs):
        size = self.text.shape[1]
        return (examples * size + pairs[..., 0]) * size + pairs[..., 1]

    def free(self, examples, pairs) -> Bool[np.ndarray, ' W']:
        """Whether none of the pairs [W, P, 2] in examples [W] is linked."""
        codes = self._codes(examples[:, None], pairs)
        nearest = np.searchsorted(self._linked, codes)
        return (self._linked[np.minimum(nearest, len(self._linked) - 1)] != codes).all(axis=1)


# The places of each kind for a link: pairs [P, 2], and where they can stand. That is the examples
# [W], by how many positions they are moved there [W, 2], and how likely each is drawn (None: all
# equally).


def _moved(texts: _Texts, example: int, pairs):
    text, positions = texts.text[example], np.unique(pairs)
    moves = np.arange(-positions[0], len(text) - positions[-1])
    # Each end stays in its text.
    moves = moves[(text[positions + moves[:, None]] == text[positions]).all(axis=1)]
    shifts = np.stack([moves, moves], axis=1)
    examples = np.full(len(moves), example)
    free = texts.free(examples, pairs + shifts[:, None])
    return pairs, examples[free], shifts[free], None


def _elsewhere(texts: _Texts, example: int, pairs):
    text, sizes, first, ranks = texts.text[example], [], [], []
    for positions in pairs.T:
        unique, rank = np.unique(positions, return_inverse=True)
        runs = np.lib.stride_tricks.sliding_window_view(text, len(unique))
        sizes.append(len(unique))
        first.append(np.flatnonzero((runs == text[unique[0]]).all(axis=1)))
        ranks.append(rank)
    # Each end may be any run of neighbours in its text.
    source, target = (places.ravel() for places in np.meshgrid(*first))
    distance = np.maximum(target - (source + sizes[0] - 1), source - (target + sizes[1] - 1))
    starts, within = np.stack([source, target], axis=1), np.stack(ranks, axis=1)
    examples = np.full(len(starts), example)
    possible = (distance >= 1) & texts.free(examples, starts[:, None] + within)
    possible &= distance >= min(_APART, distance[possible].max(initial=0))
    return within, examples[possible], starts[possible], None


def _positions(texts: _Texts, example: int, pairs):
    lengths, length = texts.lengths[texts.by_length], texts.lengths[example]
    low, high = np.ceil(length * (1 - _ALIKE)), np.floor(length * (1 + _ALIKE))
    hosts = texts.by_length[slice(*np.searchsorted(lengths, [low, high + 1]))]
    positions = np.unique(pairs)
    fits = (texts.text[hosts[:, None], positions] == texts.text[example, positions]).all(axis=1)
    hosts = hosts[fits & (hosts != example)]
    hosts = hosts[texts.free(hosts, np.broadcast_to(pairs, (len(hosts), *pairs.shape)))]
    kept, chance = _balanced(texts.lengths[hosts] - length)
    return pairs, hosts[kept], np.zeros((kept.sum(), 2), np.int64), chance


def _balanced(
    differences: Int[np.ndarray, ' W'],
) -> tuple[Bool[np.ndarray, ' W'], Float[np.ndarray, ' _'] | None]:
    """Return which places to draw from, and how likely each, so that they differ by 0 on average.

    The chances nearest to equal ones: exponential tilting (Hainmueller 2012, "Entropy balancing").
    """
    # Attention to one token falls with the number of tokens, and may change along the text.
    scaled, tilt = differences / np.abs(differences).max(initial=1), 0.0
    for _ in range(_STEPS if len(scaled) >= _FEWEST else 0):
        weight = np.exp(scaled * tilt)
        chance = weight / weight.sum()
        mean = chance @ scaled
        if abs(mean) < _BALANCED and 1 / (chance**2).sum() >= _FEWEST:
            return np.ones(len(scaled), bool), chance / chance.sum()
        step = mean / (chance @ (scaled - mean) ** 2 + 1e-9)
        tilt = np.clip(tilt - np.clip(step, -2, 2), -50, 50)
    # Nothing balances them: only places that do not differ are left.
    kept = differences == 0
    return kept & (kept.sum() >= _FEWEST), None


def pairs_of(
    links: LinkTable,
) -> tuple[Int[np.ndarray, 'F 2'], Int[np.ndarray, ' F'], Int[np.ndarray, ' X']]:
    """Return the pairs that are no fillers, the link of each pair, and the example of each link."""
    example, row = np.nonzero(links[..., 2] >= 0)
    filled = links[example, row].astype(np.int64)
    keys = np.stack([example, filled[:, 2]], axis=1)
    unique, link = np.unique(keys, axis=0, return_inverse=True)
    return filled[:, :2], link.ravel(), unique[:, 0]


def closest_pairs(
    pairs: Int[np.ndarray, 'F 2'], link: Int[np.ndarray, ' F']
) -> Int[np.ndarray, 'X 2']:
    """Return the closest pair of each link; the negative offset, if two are equally close."""
    offset = pairs[:, 1] - pairs[:, 0]
    order = np.lexsort([2 * np.abs(offset) - (offset < 0), link])
    return pairs[order[np.unique(link[order], return_index=True)[1]]]


def check_links(links: LinkTable, text: Int[np.ndarray, 'E T']) -> None:
    """Raise ValueError for links that are not of these texts, or not between their words."""
    mend = ': take links and text from one Encoded'
    check_shape('links', links, mend, examples=len(text), pairs=None, numbers=3)
    pairs, link, examples = pairs_of(links)
    inside = pairs < text.shape[1]
    place = examples[link][:, None], np.where(inside, pairs, 0)
    astray = (~inside | (text[place] < 0)).any(axis=1)
    if astray.any():
        raise ValueError(
            f'A link of example {examples[link][astray][0]} is to a special token or padding: take '
            'links and text from one Encoded.'
        )
