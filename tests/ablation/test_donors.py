"""Which example lends which token of its own, by hand and by law."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.contexts import Donors, donor_tokens, draw_donors
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
    with pytest.raises(ValueError, match="examples for 'resample', .* 1 given, at least 2"):
        draw_donors(np.array([5]), seed=0)
    with pytest.raises(ValueError, match="no examples for 'resample'"):
        Donors.drawn([], seed=0)


@pytest.mark.parametrize(
    ('length', 'donor_length', 'expected'),
    [
        # A longer donor lends the first of its other tokens, and its last [SEP].
        (4, 7, [0, 1, 2, 6, 0, 0, 0, 0]),
        # A shorter one lends its other tokens again.
        (8, 5, [0, 1, 2, 3, 1, 2, 3, 4]),
        # Texts of which the tokenizer makes nothing, and filler rows.
        (5, 2, [0, 1, 1, 1, 1, 0, 0, 0]),
        (2, 5, [0, 4, 0, 0, 0, 0, 0, 0]),
        (0, 0, [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_tokens_are_paired_by_position(length, donor_length, expected):
    assert donor_tokens(np.array([length]), np.array([donor_length]), 8).tolist() == [expected]


def test_rows_are_padded_with_the_padding_of_the_model(config):
    """Positions of RoBERTa are counted where there is none."""
    inputs = random_inputs(config, lengths=(3, 4), length=9, seed=5)
    rows = bs.Batch(**inputs, marks={}, example=np.arange(2, dtype=np.int32))
    of_batch, _ = Donors.drawn([rows], seed=0).of(rows, padding=1)
    assert (of_batch.input_ids[of_batch.attention_mask == 0] == 1).all()
    np.testing.assert_array_equal(of_batch.lengths, [4, 3])
