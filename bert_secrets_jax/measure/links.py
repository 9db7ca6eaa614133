"""What the places of links alone explain: distances, ideal heads at a fixed offset, random links.

Shapes: E examples, P pairs of wordpieces, K draws, T positions, L layers, N heads. Links are
`[E, P, 3]` as `Encoded.marks` has them, (query position, key position, number of the link); number
-1 only fills up. An offset is key less query position: -1 is the previous wordpiece.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
from absl import logging

OFFSETS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)

# Scores are means in float32: less than this apart, they are the same.
_ROUNDING = 1e-6


@dataclasses.dataclass(frozen=True)
class NullTest:
    """Scores of heads against those on random links.

    Attributes:
      p: [L, N] one-sided, of a head that does as well on random links; not corrected for the
        number of heads.
      percentile_99: [L, N] 99th percentile of a head's random scores.
      familywise: [L, N] p corrected for the number of heads: the chance that any head is as far
        above its own random scores, in their standard deviations (Westfall and Young 1993).
      mean: [L, N] of a head's random scores.
      z: [L, N] standard deviations of the random scores above their mean; NaN where they do not
        vary.
    """

    p: np.ndarray
    percentile_99: np.ndarray
    familywise: np.ndarray
    mean: np.ndarray
    z: np.ndarray


def turned(links: np.ndarray) -> np.ndarray:
    """Return links [..., 3] with source and target, that is query and key, swapped."""
    return links[..., [1, 0, 2]]


def offset_histogram(links: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the histogram of how far apart linked wordpieces are.

    Args:
      links: [E, P, 3].

    Returns:
      Offsets in ascending order and how many links have each. A link's offset is that of its
      closest pair; the negative one of two that are as close.
    """
    pairs, link, examples = _pairs(links)
    offset = pairs[:, 1] - pairs[:, 0]
    # In ascending order 0, -1, 1, -2, 2, ...
    closeness = np.full(len(examples), np.iinfo(np.int64).max)
    np.minimum.at(closeness, link, 2 * np.abs(offset) - (offset < 0))
    closest = np.where(closeness % 2, -(closeness + 1) // 2, closeness // 2)
    return np.unique(closest, return_counts=True)


def offset_baseline(
    links: np.ndarray, offsets: Iterable[int] = OFFSETS, *, count_absent: bool = False
) -> dict[int, float]:
    """Score ideal heads that put all attention at one offset, such as on the previous wordpiece.

    The score is that of `statistics.attention_of_links`: 1 for a link with a pair at the offset,
    else 0; mean over the links of an example, then over examples. A head that is not above the best
    of these may know nothing but positions (the paper, section 4.5).

    Args:
      links: [E, P, 3].
      offsets: to score.
      count_absent: examples without links count with 0 rather than not at all, as with
        `among='token'`.

    Returns:
      Offset to score, the best first; NaN where no example counts.
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
    links: np.ndarray,
    text: np.ndarray,
    *,
    draws: int,
    seed: int,
    min_distance: int = 2,
    same_distance: bool = False,
) -> np.ndarray:
    """Draw links at random places of the same inputs: what attention along them is by chance.

    Source and target of a link become two runs of as many neighbouring wordpieces as they had,
    each in the text it was in, evenly among all places where the two are far enough apart. Each
    pair keeps its place within the runs, so that crossed pairs stay crossed and zipped ones zipped.
    Links of one example are placed independently.

    Where a text is too short for the distance, the places with the widest possible one are drawn
    from; a link that fits no place without an overlap stays where it is. A log line counts both.

    Args:
      links: [E, P, 3].
      text: [E, T] which text of its input a wordpiece is in, -1 on special tokens and padding: as
        `Encoded.text`.
      draws: K.
      seed: of the draws.
      min_distance: between the closest wordpieces of source and target; 2 leaves one between them.
      same_distance: move the link as a whole instead, so that all its offsets stay: what a head
        gets from positions alone. The annotated place is then one of those drawn from, and the only
        one if the link fits no other.

    Returns:
      [E, K, P, 3] int32, for `statistics.attention_of_random_links`.

    Raises:
      ValueError: shapes that do not fit, draws or distance below 1, or a link to a special token or
        padding.
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


def places(links: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Return to how many places each link can be moved as a whole, its own included.

    Few of them make a weak test: a link that fits nowhere else is compared with itself.

    Args:
      links, text: as for `random_links`.
    """
    pairs, link, examples = _pairs(links)
    return np.array(
        [len(_moves(pairs[link == index], text[of])) for index, of in enumerate(examples)]
    )


def null_summary(score: np.ndarray, null: np.ndarray) -> NullTest:
    """Hold scores against those on random links.

    A percentile is that of the lowest draw with at least 99 % of the draws up to it, so at least
    99 draws are needed for one to be exceeded by chance in 1 % of the cases.

    Args:
      score: [L, N] of the annotated links.
      null: [L, N, K] of the draws.

    Raises:
      ValueError: shapes that do not fit, or scores of no example (NaN).
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


def _pairs(links):
    """Pairs [X, 2] that are not fillers, the link that each is of [X], the links' examples."""
    example, row = np.nonzero(links[..., 2] >= 0)
    filled = links[example, row].astype(np.int64)
    keys = np.stack([example, filled[:, 2]], axis=1)
    unique, link = np.unique(keys, axis=0, return_inverse=True)
    return filled[:, :2], link.ravel(), unique[:, 0]


def _moves(pairs, text) -> np.ndarray:
    """[W] moves of a link as a whole, in positions, that leave each end in its text; 0 is one."""
    positions = np.unique(pairs)
    moves = np.arange(-positions[0], len(text) - positions[-1])
    return moves[(text[positions + moves[:, None]] == text[positions]).all(axis=1)]


def _runs(pairs, text) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places of source and target as runs: first positions [W, 2], distance [W], pairs within."""
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
