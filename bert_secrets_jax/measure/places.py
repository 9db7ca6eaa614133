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
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.brief import check_name
from bert_secrets_jax.data.annotation import fill_up
from bert_secrets_jax.data.encoding import Encoded

Kind = Literal['elsewhere', 'moved', 'positions', 'classes']
KINDS: tuple[Kind, ...] = ('elsewhere', 'moved', 'positions', 'classes')
ELSEWHERE, MOVED, POSITIONS, CLASSES = KINDS

_ALIKE = 0.2  # by how much two lengths differ at most that are alike
_FEWEST = 5  # places of other inputs for a link: the mean of fewer is hardly known
# Steps of Newton's method for chances that balance places, and how well these do, as a share of the
# greatest difference.
_STEPS, _BALANCED = 20, 1e-3
_APART = 2  # the least distance of the two ends at a random place: one is between them


@dataclasses.dataclass(frozen=True)
class Places:
    """The places that were drawn for the links of a relation."""

    # Query, key and number of the place among those of the example, filled up with the number -1.
    pairs: Int[np.ndarray, 'E P 3']
    first: Int[np.ndarray, ' C']  # [E + 1] the first place of each example, and how many there are
    example: Int[np.ndarray, ' X']
    own: Int[np.ndarray, ' X']  # where each link stands
    drawn: Int[np.ndarray, 'X K']  # -1 for a link that has none
    possible: Int[np.ndarray, ' X']  # how many they were drawn from; 0 if these were too few


def draw_places(
    links: Int[np.ndarray, 'E P 3'], encoded: Encoded, *, kind: Kind, draws: int, seed: int
) -> Places:
    """Draw places for links [E, P, 3] with replacement, all that are possible being as likely.

    Places of other inputs are drawn so that these inputs are on average as long as the link's own:
    attention to one token is less among more tokens. If a text is too short for places that are not
    adjacent, the widest possible distance is taken (`ELSEWHERE`).
    """
    check_name('kind', kind, KINDS[:-1])
    if draws < 1:
        raise ValueError(f'{draws=} must be at least 1.')
    check_links(links, encoded.text)
    number = KINDS.index(kind)
    of_kind = (_Elsewhere, _Moved, _Positions)[number](links, encoded)
    rng = np.random.default_rng([seed, number])
    count = len(of_kind.links)
    drawn = np.full((count, draws), -1)
    possible = np.zeros(count, np.int64)
    book = _Book(encoded.text.shape)
    own = np.zeros(count, np.int64)
    for index, (example, pairs) in enumerate(of_kind.links):
        own[index] = book.numbers(pairs, np.array([example]), np.zeros((1, 2), np.int64))[0]
        within, examples, shifts, chance = of_kind.places(example, pairs)
        if len(examples):
            possible[index] = len(examples)
            chosen = rng.choice(len(examples), draws, p=chance)
            drawn[index] = book.numbers(within, examples[chosen], shifts[chosen])
    example = np.array([example for example, _ in of_kind.links], np.int64)
    return book.places(example, own, drawn, possible)


@runtime_checkable
class Numbered(Protocol):
    """Pairs with numbers in each example, and the first number of each, as in `Places`."""

    @property
    def pairs(self) -> np.ndarray: ...

    @property
    def first(self) -> np.ndarray: ...


def together(
    drawn: Sequence[Numbered],
) -> tuple[Int[np.ndarray, 'E P 3'], list[Int[np.ndarray, ' E']]]:
    """Put the places of several draws, of the same examples, into one table like `Places.pairs`.

    The number that the first place of each draw has in each example [E] is returned as well.
    """
    counts = [np.diff(each.first) for each in drawn]
    starts = [sum(counts[:index], np.zeros_like(counts[0])) for index in range(len(drawn))]
    filled = [
        np.concatenate(
            [
                each.pairs[example, each.pairs[example, :, 2] >= 0] + [0, 0, start[example]]
                for each, start in zip(drawn, starts, strict=True)
            ]
        )
        for example in range(len(counts[0]))
    ]
    return fill_up(filled), starts


class _Book:
    """Numbers for places; the same place has one number, whoever draws it."""

    def __init__(self, shape: tuple[int, int]):
        self._examples, self._positions = shape
        self._shapes: dict[bytes, int] = {}
        self._pairs: list[np.ndarray] = []
        self._codes: dict[int, int] = {}

    def numbers(self, pairs, examples, shifts) -> np.ndarray:
        """Return the numbers of places: pairs [P, 2] moved by shifts [W, 2], in examples [W]."""
        corner = pairs.min(axis=0)
        pairs = pairs - corner
        shape = self._shapes.setdefault(pairs.tobytes(), len(self._shapes))
        if shape == len(self._pairs):
            self._pairs.append(pairs)
        size = self._positions
        starts = corner + shifts
        codes = ((shape * self._examples + examples) * size + starts[:, 0]) * size + starts[:, 1]
        return np.array([self._codes.setdefault(code, len(self._codes)) for code in codes.tolist()])

    def places(self, example, own, drawn, possible) -> Places:
        size = self._positions
        codes = np.fromiter(self._codes, np.int64, len(self._codes))
        rest, key = np.divmod(codes, size)
        rest, query = np.divmod(rest, size)
        shape, host = np.divmod(rest, self._examples)
        order = np.argsort(host, kind='stable')
        renumbered = np.empty(len(codes) + 1, np.int64)
        renumbered[order] = np.arange(len(codes))
        renumbered[-1] = -1
        first = np.searchsorted(host[order], np.arange(self._examples + 1))
        filled: list[list[tuple]] = [[] for _ in range(self._examples)]
        for place in order.tolist():
            pairs = self._pairs[shape[place]] + np.array([query[place], key[place]])
            number = int(renumbered[place] - first[host[place]])
            filled[host[place]] += [(*pair, number) for pair in pairs.tolist()]
        table = fill_up(filled)
        return Places(table, first, example, renumbered[own], renumbered[drawn], possible)


class _Kind:
    """The places of one kind for `links`, each an example and pairs [P, 2].

    `places` returns, for a link, pairs [P, 2], and where they can stand: the examples [W], by how
    many positions they are moved there [W, 2], and how likely each is drawn (None: all equally).
    """

    def __init__(self, links: np.ndarray, encoded: Encoded):
        self.text, self.lengths = encoded.text.astype(np.int64), encoded.lengths
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


class _Moved(_Kind):
    def places(self, example, pairs):
        moves = _moves(pairs, self.text[example])
        shifts = np.stack([moves, moves], axis=1)
        examples = np.full(len(moves), example)
        free = self.free(examples, pairs + shifts[:, None])
        return pairs, examples[free], shifts[free], None


class _Elsewhere(_Kind):
    def places(self, example, pairs):
        starts, distance, within = _runs(pairs, self.text[example])
        examples = np.full(len(starts), example)
        possible = (distance >= 1) & self.free(examples, starts[:, None] + within)
        possible &= distance >= min(_APART, distance[possible].max(initial=0))
        return within, examples[possible], starts[possible], None


class _Positions(_Kind):
    def __init__(self, links, encoded):
        super().__init__(links, encoded)
        self._order = np.argsort(self.lengths, kind='stable')
        self._sorted = self.lengths[self._order]

    def places(self, example, pairs):
        low, high = _alike(int(self.lengths[example]))
        hosts = self._order[slice(*np.searchsorted(self._sorted, [low, high + 1]))]
        positions = np.unique(pairs)
        fits = (self.text[hosts[:, None], positions] == self.text[example, positions]).all(axis=1)
        hosts = hosts[fits & (hosts != example)]
        hosts = hosts[self.free(hosts, np.broadcast_to(pairs, (len(hosts), *pairs.shape)))]
        longer = self.lengths[hosts] - self.lengths[example]
        kept, chance = _balanced(longer[:, None])
        return pairs, hosts[kept], np.zeros((kept.sum(), 2), np.int64), chance


def _alike(length: int) -> tuple[int, int]:
    return int(np.ceil(length * (1 - _ALIKE))), int(np.floor(length * (1 + _ALIKE)))


def _balanced(
    differences: Int[np.ndarray, 'W D'],
) -> tuple[Bool[np.ndarray, ' W'], Float[np.ndarray, ' _'] | None]:
    """Return which places to draw from, and how likely each, so that they differ by 0 on average.

    The chances nearest to equal ones: exponential tilting (Hainmueller 2012, "Entropy balancing").
    """
    # Attention to one token falls with the number of tokens, and may change along the text.
    scaled = differences / np.maximum(np.abs(differences).max(axis=0, initial=0), 1)
    tilt = np.zeros(scaled.shape[1])
    for _ in range(_STEPS if len(scaled) >= _FEWEST else 0):
        weight = np.exp(scaled @ tilt)
        chance = weight / weight.sum()
        mean = chance @ scaled
        if np.abs(mean).max() < _BALANCED and 1 / (chance**2).sum() >= _FEWEST:
            return np.ones(len(scaled), bool), chance / chance.sum()
        spread = (scaled - mean).T @ ((scaled - mean) * chance[:, None])
        step = np.linalg.solve(spread + 1e-9 * np.eye(len(tilt)), mean)
        tilt = np.clip(tilt - step * min(1, 2 / np.abs(step).max(initial=1e-9)), -50, 50)
    # Nothing balances them: only places that do not differ are left.
    kept = (differences == 0).all(axis=1)
    return kept & (kept.sum() >= _FEWEST), None


def pairs_of(
    links: Int[np.ndarray, 'E P 3'],
) -> tuple[Int[np.ndarray, 'F 2'], Int[np.ndarray, ' F'], Int[np.ndarray, ' X']]:
    """Return the pairs that are no fillers, the link of each pair, and the example of each link."""
    example, row = np.nonzero(links[..., 2] >= 0)
    filled = links[example, row].astype(np.int64)
    keys = np.stack([example, filled[:, 2]], axis=1)
    unique, link = np.unique(keys, axis=0, return_inverse=True)
    return filled[:, :2], link.ravel(), unique[:, 0]


def check_links(links: Int[np.ndarray, 'E P 3'], text: Int[np.ndarray, 'E T']) -> None:
    """Raise ValueError for links that are not of these texts, or not between their words."""
    if links.ndim != 3 or links.shape[2] != 3 or len(text) != len(links):
        raise ValueError(
            f'Links {list(links.shape)} are not [examples, pairs, 3] of the {len(text)} examples '
            'in text: take both from one Encoded.'
        )
    pairs, link, examples = pairs_of(links)
    inside = pairs < text.shape[1]
    place = examples[link][:, None], np.where(inside, pairs, 0)
    astray = (~inside | (text[place] < 0)).any(axis=1)
    if astray.any():
        raise ValueError(
            f'A link of example {examples[link][astray][0]} is to a special token or padding: take '
            'links and text from one Encoded.'
        )


def _moves(pairs: Int[np.ndarray, 'P 2'], text: Int[np.ndarray, ' T']) -> Int[np.ndarray, ' W']:
    """Return by how many positions a link can be moved so that each end stays in its text."""
    positions = np.unique(pairs)
    moves = np.arange(-positions[0], len(text) - positions[-1])
    return moves[(text[positions + moves[:, None]] == text[positions]).all(axis=1)]


def _runs(
    pairs: Int[np.ndarray, 'P 2'], text: Int[np.ndarray, ' T']
) -> tuple[Int[np.ndarray, 'W 2'], Int[np.ndarray, ' W'], Int[np.ndarray, 'P 2']]:
    """Return first positions of runs of neighbours, their distances, and pairs' places there."""
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
