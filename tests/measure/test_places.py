"""Places where links could stand as well: what each kind holds fixed, and what is never drawn."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from bert_secrets_jax.measure.links import _Comparison
from bert_secrets_jax.measure.places import CLASSES, ELSEWHERE, KINDS, MOVED, POSITIONS, draw_places
from tests.measure.worlds import compared, offset_and_links, texts_with_links

FILLER = (0, 0, -1)
# Made here: inside a strategy, checks of its types would draw random numbers.
ANY_TEXTS, _ = texts_with_links(np.random.default_rng(0), 2, 8, 9)
OF_PLACES = [kind for kind in KINDS if kind != CLASSES]


def encoded_of(text, classes=None):
    """Tokenised texts of which only the lengths, the texts and the word classes matter."""
    return dataclasses.replace(
        ANY_TEXTS,
        text=np.asarray(text, np.int8),
        lengths=(np.asarray(text) > -2).sum(axis=1).astype(np.int32),
        classes=None if classes is None else np.asarray(classes, np.int8),
    )


def one_text(*lengths):
    """Inputs [CLS] text [SEP] of these numbers of tokens; -2 is padding."""
    positions, lengths = np.arange(max(lengths)), np.array(lengths)[:, None]
    inside = (positions > 0) & (positions < lengths - 1)
    return encoded_of(np.where(positions < lengths, np.where(inside, 0, -1), -2))


def stands(places, number):
    """The example and the pairs [P, 2] of a place."""
    example = int(np.searchsorted(places.first, number, side='right')) - 1
    rows = places.pairs[example]
    return example, rows[rows[:, 2] == number - places.first[example], :2]


def all_drawn(places):
    """The number of each link, and the example and the pairs of each place drawn for it."""
    for link, numbers in enumerate(places.drawn):
        for number in numbers[numbers >= 0]:
            yield link, *stands(places, number)


@st.composite
def linked_inputs(draw):
    """Links of runs without overlap in inputs of one text or two, and the texts."""
    lengths = draw(st.lists(st.integers(4, 12), min_size=1, max_size=2))
    parts = [[-1]] + [[number] * length + [-1] for number, length in enumerate(lengths)]
    text = np.concatenate(parts).astype(np.int8)
    pairs = []
    for number in range(draw(st.integers(1, 2))):
        inside = np.flatnonzero(text == draw(st.integers(0, len(lengths) - 1)))
        cuts = draw(
            st.lists(st.integers(0, len(inside)), min_size=4, max_size=4, unique=True).map(sorted)
        )
        source, target = inside[cuts[0] : cuts[1]], inside[cuts[2] : cuts[3]]
        if draw(st.booleans()):
            source, target = target, source
        pairs += [(query, key, number) for query in source for key in target]
    pairs += [FILLER] * draw(st.integers(0, 2))
    return np.array([pairs]), encoded_of(text[None])


@hypothesis.given(linked_inputs(), st.integers(0, 99))
@hypothesis.settings(max_examples=60)
def test_places_within_the_text(inputs, seed):
    """Places elsewhere have equally long runs in the same texts; moved ones have the same shape."""
    links, encoded = inputs
    text = encoded.text[0]
    linked = {tuple(pair) for pair in links[0, links[0, :, 2] >= 0, :2]}
    numbers = links[0, :, 2]
    before = [links[0, numbers == number, :2] for number in np.unique(numbers[numbers >= 0])]
    for kind in (ELSEWHERE, MOVED):
        places = draw_places(links, encoded, kind=kind, draws=5, seed=seed)
        for link, own in enumerate(places.own):
            np.testing.assert_array_equal(stands(places, own)[1], before[link])
        for link, _, pairs in all_drawn(places):
            # No place is that of a link, its own or another one.
            assert not linked & {tuple(pair) for pair in pairs}
            for end in (0, 1):
                old, new = np.unique(before[link][:, end]), np.unique(pairs[:, end])
                assert len(new) == len(old)
                assert (text[new] == text[old[0]]).all()
                if kind == ELSEWHERE:
                    assert (np.diff(new) == 1).all()
            if kind == ELSEWHERE:
                assert not np.intersect1d(*pairs.T).size
            else:
                shift = pairs - before[link]
                assert (shift == shift[0, 0]).all() and shift[0, 0] != 0


def test_all_places_that_are_far_enough_apart_are_drawn_and_equally_often():
    # Five wordpieces, 1 to 5, and a target of two: six places leave one wordpiece or more between.
    links = np.array([[(1, 2, 0), (1, 3, 0)]])
    places = draw_places(links, one_text(7), kind=ELSEWHERE, draws=6000, seed=0)
    found, counts = np.unique(
        [pairs[0] for _, _, pairs in all_drawn(places)], axis=0, return_counts=True
    )
    # One of the six, (1, 3), has a pair that is linked.
    assert found.tolist() == [[1, 4], [2, 4], [4, 1], [5, 1], [5, 2]]
    np.testing.assert_allclose(counts / 6000, 1 / 5, atol=0.02)
    assert places.possible.tolist() == [5]
    links = np.array([[(1, 1, 0)]])
    places = draw_places(links, one_text(3), kind=MOVED, draws=4, seed=0)
    assert places.possible.tolist() == [0] and (places.drawn == -1).all()


def test_the_same_positions_of_other_inputs_of_like_length():
    encoded, links = texts_with_links(np.random.default_rng(3), 90, 8, 40)
    places = draw_places(links, encoded, kind=POSITIONS, draws=200, seed=0)
    example, row = np.nonzero(links[..., 2] >= 0)
    linked = set(zip(example.tolist(), *links[example, row, :2].T.tolist(), strict=True))
    longer = {}
    for link, example, pairs in all_drawn(places):
        own, pair = stands(places, places.own[link])
        length, of_own = encoded.lengths[[example, own]].astype(float)
        assert example != own and pairs.tolist() == pair.tolist()
        assert (example, *pairs[0].tolist()) not in linked
        assert abs(length - of_own) <= 0.2 * of_own and pairs.max() < length - 1
        longer.setdefault(link, []).append(length / of_own - 1)
    # On average they are just as long, also at ends of texts, which longer inputs have more often.
    assert len(longer) > 50 and np.std([more for each in longer.values() for more in each]) > 0
    for link, values in longer.items():
        assert abs(np.mean(values)) < 5 * np.std(values) / np.sqrt(len(values)) + 1e-3, link


def test_the_seed_decides():
    encoded, links = texts_with_links(np.random.default_rng(0), 90, 9, 20)
    for kind in OF_PLACES:
        one, same, other = (
            draw_places(links, encoded, kind=kind, draws=20, seed=seed) for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(one.drawn, same.drawn)
        if one.possible.max() > 1:
            assert one.pairs.shape != other.pairs.shape or (one.drawn != other.drawn).any(), kind


@pytest.mark.parametrize(
    ('links', 'message'),
    [
        (np.array([[(1, 2, 0)]] * 2), r'= \[3, any, 3\], got \[2, 1, 3\]: take links and text'),
        (np.array([[(1, 6, 0)]] * 3), 'example 1 is to a special token or padding'),
        (np.array([[(1, 9, 0)]] * 3), 'example 0 is to a special token or padding'),
    ],
)
def test_bad_input_is_named(links, message, untyped):
    with pytest.raises(ValueError, match=message):
        draw_places(links, one_text(9, 7, 9), kind='moved', draws=1, seed=0)


def test_contributions_of_examples_by_hand():
    """Two links share a place of a third text, and one has the place of the other's own link."""
    encoded, _ = texts_with_links(np.random.default_rng(0), 3, 8, 8)
    links = np.array([[(3, 1, 0)], [(3, 1, 0)], [FILLER]])
    places = draw_places(links, encoded, kind=MOVED, draws=1, seed=0)
    places = dataclasses.replace(
        places,
        pairs=np.array([[(3, 1, 0), FILLER], [(3, 1, 0), FILLER], [(3, 1, 0), (4, 1, 1)]]),
        first=np.array([0, 1, 2, 4]),
        own=np.array([0, 1]),
        drawn=np.array([[2, 1], [2, 2]]),
        possible=np.array([2, 1]),
    )
    comparison = _Comparison(places)
    rows, numbers = places.of(np.arange(3))
    assert (rows.tolist(), numbers.tolist()) == ([0, 1, 2, 2], [0, 1, 2, 3])
    comparison.add(numbers, np.array([0.5, 0.9, 0.1, 0.3], np.float32)[:, None])
    found = comparison.result((1, 1), 0)
    assert found.score[0, 0] == pytest.approx(0.7) and found.mean[0, 0] == pytest.approx(0.3)
    # The mean of the places of the first link is 0.5, of the second 0.1. The place in the second
    # text is 0.4 above the first link's, a quarter of the mean; that of the third as far below.
    contributed = 3 * np.array([0, 0.5 * 0.8 - 0.1, 0.1])
    assert found.excess.mean[0, 0] == pytest.approx(contributed.mean())
    assert found.excess.variance[0, 0] == pytest.approx(contributed.var(ddof=1))
    assert found.excess.count == 3 and found.links == 2 and found.possible == 1.5


def test_deterministic_heads():
    """A head of one offset is above random places alone; one that knows the links above more."""
    encoded, links = texts_with_links(np.random.default_rng(1), 150, 10, 16)
    keep = links[..., 0] - links[..., 1] == 1
    links = np.where(keep[..., None], links, np.array(FILLER))
    maps = offset_and_links(encoded, links)
    for kind in OF_PLACES:
        places = draw_places(links, encoded, kind=kind, draws=20, seed=0)
        found = compared(places, maps, 0)
        assert found.above[0].tolist() == [kind == ELSEWHERE, True]
        if kind != ELSEWHERE:
            assert found.p[0, 0] == 1
            assert found.excess.mean[0, 0] == pytest.approx(0, abs=1e-6)
