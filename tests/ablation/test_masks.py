"""Sets of masks, against what they are said to disable."""

import itertools

import numpy as np
import pytest

import bert_secrets_jax as bs


def disabled(mask) -> set:
    return {tuple(place) for place in np.argwhere(mask == 0)}


PLACES = list(np.ndindex(3, 4))


@pytest.mark.parametrize(
    ('made', 'expected'),
    [
        (bs.masks.single_heads, [{place} for place in PLACES]),
        (bs.masks.single_layers, [{(layer, head) for head in range(4)} for layer in range(3)]),
        (
            bs.masks.one_head_left,
            [{(layer, each) for each in range(4) if each != head} for layer, head in PLACES],
        ),
        (bs.masks.pairs, [set(pair) for pair in itertools.combinations(PLACES, 2)]),
    ],
)
def test_sets_disable_what_they_are_called_after(config, made, expected):
    assert [disabled(mask) for mask in made(config)] == expected


@pytest.mark.parametrize(
    ('heads', 'message'),
    [
        ([], '0 given, at least 2'),
        ([(0, 1)], '1 given'),
        ([(0, 1), (2, 0), (0, 1)], 'give each once'),
    ],
)
def test_pairs_of_too_few_heads(config, heads, message):
    with pytest.raises(ValueError, match=message):
        bs.masks.pairs(config, heads)


def test_random_sets(config):
    masks = bs.masks.random_sets(config, size=5, count=200, seed=0)
    assert all(len(disabled(mask)) == 5 for mask in masks)
    # Every head is drawn about 200 * 5 / 12 times: all within five standard deviations.
    assert np.abs((masks == 0).sum(axis=0) - 83.3).max() < 5 * np.sqrt(200 * 5 / 12 * 7 / 12)
    again = bs.masks.random_sets(config, size=5, count=200, seed=0)
    np.testing.assert_array_equal(masks, again)
    assert (masks != bs.masks.random_sets(config, size=5, count=200, seed=1)).any()
    with pytest.raises(ValueError, match='size=13 heads of a model that has 12'):
        bs.masks.random_sets(config, size=13, count=1, seed=0)


def test_heads_as_a_person_writes_them(config):
    heads = bs.masks.parse_heads(' L1-H2, l3-h4 ')
    assert heads == [(0, 1), (2, 3)]
    assert disabled(bs.masks.disable(config, [heads])[0]) == set(heads)
    for wrong in ('L1H2', 'L0-H1', 'L1-H0', '1-2', 'L1-H2-'):
        with pytest.raises(ValueError, match=f"'{wrong}' is not a head"):
            bs.masks.parse_heads(wrong)
    with pytest.raises(ValueError, match='L4-H1 does not exist: the model has 3 layers of 4 heads'):
        bs.masks.disable(config, [bs.masks.parse_heads('L4-H1')])


@pytest.mark.parametrize(
    ('disabled', 'name'),
    [
        ([], ''),
        ([(0, 1)], 'L1-H2'),
        ([(2, 0), (0, 1)], 'L1-H2+L3-H1'),
        ([(1, 0), (1, 1), (1, 2), (1, 3)], 'L2'),
        ([(1, 0), (1, 1), (1, 3), (0, 0)], 'L1-H1+L2 but L2-H3'),
    ],
)
def test_masks_are_named_as_people_write_them(config, disabled, name, untyped):
    masks = bs.masks.disable(config, [disabled])
    assert bs.masks.describe(masks[0]) == name
    for wrong in (masks, masks[0, 0]):
        with pytest.raises(ValueError, match=r'be \[layers, heads\], got .* names each of several'):
            bs.masks.describe(wrong)
