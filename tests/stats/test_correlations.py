"""Agreement of rankings: beside SciPy, and where there is none."""

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats.agreement import reliability
from bert_secrets_jax.stats.correlations import rank_agreement


def test_the_correlation_is_scipys():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(30, 3, 4)), rng.normal(size=(50, 3, 4))
    found = rank_agreement(first, second, paired=False)
    expected = scipy.stats.spearmanr(first.mean(axis=0).ravel(), second.mean(axis=0).ravel())
    assert found.rank == pytest.approx(expected.statistic)
    assert -1 <= found.low < found.rank < found.high <= 1
    squared = rank_agreement(first, second, paired=False, score=lambda means: -means)
    assert squared.rank == pytest.approx(-expected.statistic)


def test_samples_without_an_interval_and_without_a_ranking():
    rng = np.random.default_rng(1)
    one, many = rng.normal(size=(1, 6)), rng.normal(size=(20, 6))
    found = rank_agreement(one, many, paired=False)
    assert np.isfinite(found.rank) and np.isnan([found.low, found.high]).all()
    flat = rank_agreement(np.ones((20, 6)), many, paired=True)
    assert np.isnan([flat.rank, flat.low, flat.high]).all()
    same = rank_agreement(many, many, paired=True)
    assert same.rank == pytest.approx(1) and same.low > 0.999
    with pytest.raises(ValueError, match='of one size, not 1 and 20'):
        rank_agreement(one, many, paired=True)


def test_reliability_is_what_a_second_sample_agrees_by():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=60)
    samples = [truth + rng.normal(size=(100, 60)) * noise for noise in (8, 8)]
    expected = scipy.stats.spearmanr(*(each.mean(axis=0) for each in samples)).statistic
    assert reliability(samples[0]) == pytest.approx(expected, abs=0.12)
    assert reliability(truth + rng.normal(size=(100, 60)) * 0.01) > 0.99
    assert abs(reliability(rng.normal(size=(200, 60)))) < 0.5
    assert np.isnan(reliability(samples[0][:3]))
