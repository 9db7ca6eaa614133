"""Effects over seeds: equal by definition, and few seeds are told apart."""

import itertools

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.stats import seeds, significance
from bert_secrets_jax.stats.resampling import sign_flip_test


@pytest.mark.parametrize('count', range(2, 13))
def test_few_seeds_cannot_be_significant(count):
    """The strongest effect that there can be has the smallest p-value that is told."""
    rng = np.random.default_rng(6)
    effects = 0.01 * rng.normal(size=(count, 5))
    effects[:, 2] -= 1
    least = seeds.least_p(count)
    assert least == 2 / 2**count and (least <= 0.05) == (count >= 6)
    found = seeds.max_t(effects)
    assert found[2] == pytest.approx(least) and found.min() == found[2]


def test_all_flips_are_made():
    values = np.random.default_rng(7).normal(size=(3, 5)) + 0.5
    observed = np.abs(scipy.stats.ttest_1samp(values, 0, axis=1).statistic)
    greatest = []
    for signs in itertools.product([1, -1], repeat=5):
        flipped = scipy.stats.ttest_1samp(values * np.array(signs), 0, axis=1)
        greatest.append(np.abs(flipped.statistic).max())
    expected = [(np.array(greatest) >= each - 1e-9).mean() for each in observed]
    np.testing.assert_allclose(sign_flip_test(values, rounds=32)[1], expected)
    # One flip fewer, and they are random.
    assert (sign_flip_test(values, rounds=31)[1] != expected).any()


@pytest.mark.parametrize('metric', seeds.METRICS)
def test_values_are_the_jackknife(metric):
    """Their mean is the score; each is E - 1 times what leaving the example out costs.

    Of ranks they are nearly so.
    """
    rng, size, atol = np.random.default_rng(8), 30, 1e-12
    labels = rng.normal(size=size) if metric == 'pearson' else rng.integers(2, size=size)
    predictions = np.where(rng.random((4, 2, size)) < 0.7, labels, rng.permutation(labels))
    if metric == 'spearman':
        size, atol = 200, 0.02
        labels = rng.integers(0, 11, size) / 2
        predictions = np.round(labels + rng.normal(size=(3, 1, size)), 1)
    values = seeds.per_example(metric, predictions, labels)
    assert values.shape == predictions.shape
    score = metrics.METRICS[metric]
    for place in np.ndindex(predictions.shape[:2]):
        one = predictions[place]
        whole = score(one, labels)
        without = [score(np.delete(one, e), np.delete(labels, e)) for e in range(size)]
        np.testing.assert_allclose(values[place].mean(), whole)
        expected = whole + (size - 1) * (np.mean(without) - without)
        np.testing.assert_allclose(values[place], expected, atol=atol)


def test_a_mask_that_changes_nothing_is_not_certain():
    labels = np.arange(40) % 2
    intact = np.tile(labels, (5, 1))
    masked = np.repeat(intact[:, None], 3, axis=1)
    alone = [significance.assess('f1', masked[0], labels, labels)] * 5
    found = seeds.assess_seeds(alone, masked, intact, labels)
    # As if the same example had changed by half in all seeds.
    half = scipy.stats.t.ppf(0.975, 4) / (2 * 40)
    np.testing.assert_allclose([found.low, found.high], [[-half] * 3, [half] * 3])


def test_p_values_invert_the_test():
    rng = np.random.default_rng(12)
    values = rng.normal(size=(6, 9, 80)) + 0.2 * rng.normal(size=(6, 9, 1))
    variance = seeds.crossed_variance(values, counts=False)
    mean = values.mean(axis=(0, 2))
    p_values = variance.p_values(mean)
    assert ((p_values > 0) & (p_values < 1)).all()
    np.testing.assert_allclose(variance.least_significant(p_values), np.abs(mean), rtol=1e-6)
    # Without any variance over examples it is Student's test over seeds.
    alone = seeds.Variance(values.mean(2).var(0, ddof=1) / 6, np.zeros(9), np.full(9, 5.0), 6, 80)
    expected = scipy.stats.ttest_1samp(values.mean(axis=2), 0).pvalue
    np.testing.assert_allclose(alone.p_values(mean), expected, rtol=1e-6)
    interval = scipy.stats.ttest_1samp(values.mean(axis=2), 0).confidence_interval()
    np.testing.assert_allclose(mean - alone.half_width, interval.low)


def test_agreement_is_that_of_shrout_and_fleiss():
    """Their example: six targets (masks), four judges (seeds)."""
    judged = np.array(
        [[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7.0]]
    )
    found = seeds.agreement(judged)
    assert round(found.icc1, 2) == 0.17 and round(found.icc3, 2) == 0.71
    pairs = [scipy.stats.spearmanr(*pair).statistic for pair in itertools.combinations(judged, 2)]
    assert found.rank == pytest.approx(np.mean(pairs))
    for name in ('rank', 'icc1', 'icc3'):
        low, high = getattr(found, f'{name}_low'), getattr(found, f'{name}_high')
        assert -1 <= low <= getattr(found, name) <= high <= 1


def test_too_little_to_agree():
    effects = np.random.default_rng(14).normal(size=(2, 10))
    two = seeds.agreement(effects)
    assert np.isfinite([two.rank, two.icc1, two.icc3]).all() and np.isnan(two.rank_low)
    assert np.isnan(seeds.agreement(effects[:, :2]).rank)
    assert np.isnan(seeds.agreement(effects[:1]).icc1)
    assert np.isnan(seeds.agreement(np.zeros((5, 10))).rank)


def test_means_alone_are_at_worst():
    """Where only each seed's mean and error are known, the interval is no narrower."""
    rng = np.random.default_rng(15)
    values = rng.normal(size=(5, 20, 90)) + rng.normal(size=(20, 90)) + rng.normal(size=(5, 20, 1))
    errors = values.std(axis=2, ddof=1) / np.sqrt(90)
    known = seeds.means_variance(values.mean(axis=2), errors, 90)
    crossed = seeds.crossed_variance(values, counts=False)
    assert (known.of_seeds + known.of_examples >= crossed.of_seeds + crossed.of_examples).all()
