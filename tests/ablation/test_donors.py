"""Which example lends which token of its own, by hand and by law."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.donors import Donors, donor_tokens, draw_donors
from tests.conftest import random_inputs


@hypothesis.given(
    lengths=st.lists(st.integers(2, 9), min_size=2, max_size=30), seed=st.integers(0, 99)
)
@hypothesis.settings(max_examples=60)
def test_a_donor_is_another_example_of_the_closest_length(lengths, seed):
    lengths = np.array(lengths)
    donors = draw_donors(lengths, seed=seed)
    np.testing.assert_array_equal(donors, draw_donors(lengths, seed=seed))
    for example, donor in enumerate(donors):
        assert donor != example
        gaps = np.abs(np.delete(lengths, example) - lengths[example])
        assert abs(lengths[donor] - lengths[example]) == gaps.min()
    # Where there is a choice of examples of the same length, each lends once.
    own = lengths[donors] == lengths
    assert len(set(donors[own])) == own.sum()


def test_each_example_that_can_be_a_donor_is_one_equally_often():
    """Four of one length; one that is alone, between two lengths that are equally near."""
    lengths, rounds = np.array([5, 5, 5, 5, 7, 9, 9]), 3000
    drawn = np.array([draw_donors(lengths, seed=seed) for seed in range(rounds)])
    for example, able in ((0, [1, 2, 3]), (4, [0, 1, 2, 3, 5, 6]), (5, [6])):
        share = np.array([(drawn[:, example] == donor).mean() for donor in able])
        assert share.sum() == 1
        error = np.sqrt((1 - 1 / len(able)) / len(able) / rounds)
        np.testing.assert_allclose(share, 1 / len(able), atol=4 * error + 1e-9)


def test_one_example_has_no_donor():
    with pytest.raises(ValueError, match="'resample' takes .* there are 1 in all: give at least"):
        draw_donors(np.array([5]), seed=0)
    with pytest.raises(ValueError, match='there are 0 in all'):
        Donors.drawn([], seed=0)


@pytest.mark.parametrize(
    ('length', 'donor_length', 'expected'),
    [
        (6, 6, [0, 1, 2, 3, 4, 5, 0, 0]),
        # A longer donor lends the first of its other tokens, and its last [SEP].
        (4, 7, [0, 1, 2, 6, 0, 0, 0, 0]),
        # A shorter one lends its other tokens again.
        (8, 5, [0, 1, 2, 3, 1, 2, 3, 4]),
        (5, 3, [0, 1, 1, 1, 2, 0, 0, 0]),
        # Texts of which the tokenizer makes nothing, and filler rows.
        (5, 2, [0, 1, 1, 1, 1, 0, 0, 0]),
        (2, 5, [0, 4, 0, 0, 0, 0, 0, 0]),
        (0, 0, [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_tokens_are_paired_by_position(length, donor_length, expected):
    assert donor_tokens(np.array([length]), np.array([donor_length]), 8).tolist() == [expected]


@pytest.fixture(scope='module')
def whole(config):
    inputs = random_inputs(config, lengths=(3, 9, 5, 8, 4, 7, 6), length=9, seed=5)
    return bs.Batch(**inputs, marks={}, example=np.arange(7, dtype=np.int32))


def lent(batches, padding=0, seed=1):
    """Return the wordpieces and segments lent to each token of each example."""
    donors = Donors.drawn(batches, seed=seed)
    found = {}
    for batch in batches:
        of_batch, tokens = donors.of(batch, padding=padding)
        for row, example in enumerate(batch.example):
            if example >= 0:
                length = batch.attention_mask[row].sum()
                taken = tokens[row, :length]
                assert (of_batch.attention_mask[row, taken] == 1).all()
                found[int(example)] = (
                    int(of_batch.example[row]),
                    of_batch.input_ids[row, taken].tolist(),
                    of_batch.token_type_ids[row, taken].tolist(),
                )
            else:
                assert not of_batch.attention_mask[row].any()
                assert (of_batch.input_ids[row] == padding).all()
    return found


def test_donors_do_not_depend_on_batches_or_padding(whole):
    take = lambda rows: jax.tree.map(lambda array: array[rows], whole)
    filled = dataclasses.replace(take([4, 2, 0, 0]), example=np.array([4, 2, 0, -1], np.int32))
    short = dataclasses.replace(
        filled, **{name: array[:, :6] for name, array in filled.inputs.items()}
    )
    together = lent([whole])
    assert together == lent([take([6, 1, 5, 3]), filled]) == lent([short, take([3, 5, 1, 6])])
    assert together != lent([whole], seed=2)
    for example, (donor, ids, _) in together.items():
        length, lender = whole.lengths[example], whole.input_ids[donor, : whole.lengths[donor]]
        assert donor != example and len(ids) == length
        assert (ids[0], ids[-1]) == (lender[0], lender[-1])
        assert set(ids[1:-1]) <= set(lender[1:-1].tolist())


def test_rows_are_padded_with_the_padding_of_the_model(whole):
    """Positions of RoBERTa are counted where there is none."""
    rows = jax.tree.map(lambda array: array[[0, 4]], whole)
    of_batch, _ = Donors.drawn([rows], seed=0).of(rows, padding=1)
    assert (of_batch.input_ids[of_batch.attention_mask == 0] == 1).all()
    np.testing.assert_array_equal(of_batch.lengths, [4, 3])
