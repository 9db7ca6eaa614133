"""Parts of examples in scores, and the intervals and tests that are made from them."""

import itertools

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats import influence
from bert_secrets_jax.stats.significance import MARGIN, assess
from tests.stats.rates import chance

# The variance of the intact model's predictions.
VARIANCE = 1 + 0.4**2 + 0.45**2


def answers(rng, loss, examples):
    """Predictions [1, E] that lose so much of Pearson's r, those of the intact model, labels."""
    labels, shared, own, noise = rng.normal(size=(4, examples))
    intact = labels + 0.4 * shared + 0.45 * own
    added = (VARIANCE**-0.5 - loss) ** -2 - VARIANCE
    return (intact + np.sqrt(added) * noise)[None], intact, labels


@pytest.mark.parametrize(('examples', 'losses', 'idle'), [(300, 0.8, 0.0), (1500, 1.0, 1.0)])
def test_allowing_for_unseen_texts_costs_no_power_to_find_losses(examples, losses, idle):
    """What it costs is to show that a mask does not matter, with fewer than 1,120 texts."""
    rng, runs = np.random.default_rng(1), 100
    lossy, none = (
        [assess('pearson', *answers(rng, loss, examples)) for _ in range(runs)]
        for loss in (4 * MARGIN, MARGIN / 50)
    )
    assert np.mean([each.p_value[0] <= 0.05 for each in lossy]) >= losses - chance(runs, 1)
    assert np.mean([each.tost[0] <= 0.05 for each in none]) == idle


@pytest.mark.parametrize('events', [1, 3, 10, 30])
def test_limits_of_equal_texts_are_nearly_those_of_a_poisson_mean(events):
    parts = (np.arange(10_000) < events) * 1.0
    difference = parts.mean(keepdims=True)
    low, high = 10_000 * np.array(influence.limits(difference, (parts - difference)[None]))[:, 0]
    exact = scipy.stats.chi2.ppf([0.025, 0.975], [2 * events, 2 * events + 2]) / 2
    assert low <= exact[0] + 0.1 and high == pytest.approx(exact[1], rel=0.06)


def test_p_values_are_those_of_the_limits():
    rng = np.random.default_rng(3)
    parts = rng.exponential(size=(5, 60)) - 1
    parts -= parts.mean(axis=1, keepdims=True)
    difference = np.array([-0.3, -0.1, 0.0, 0.1, 0.3])
    for tail, of_one in itertools.product((0.3, 0.025, 1e-4), [(0.0, 0.0), (9.0, 1.0)]):
        low, high = influence.limits(difference, parts, below=tail, above=tail, of_one=of_one)
        for at, sign, one in ((high, 1, of_one[1]), (low, -1, of_one[0])):
            found = [
                influence.p_above(sign * difference, sign * parts, sign * bound, of_one=one)[mask]
                for mask, bound in enumerate(at)
            ]
            np.testing.assert_allclose(found, tail, rtol=1e-9)
        p_values = influence.p_within(difference, parts, of_one=of_one)
        low, high = influence.limits(difference, parts, of_one=of_one)
        np.testing.assert_array_equal(p_values <= 0.05, (low > 0) | (high < 0))


@pytest.mark.parametrize('metric', ['pearson', 'spearman'])
def test_a_mask_that_changes_next_to_nothing_is_equivalent(metric):
    """By rounding, by an offset, or on one text; but not where ten such would count."""
    rng = np.random.default_rng(5)
    intact, labels = np.arange(4000.0), np.arange(4000.0) + 1000 * rng.normal(size=4000)
    masked = np.stack([intact, 2 * intact + 1, intact, intact])
    masked[2, 7] += 3
    masked[3, 7] += 12000
    found = assess(metric, masked, intact, labels)
    np.testing.assert_allclose(found.p_value[:2], 1)
    assert (found.equivalent[:3] < 0.001).all() and found.equivalent[3] == 1
    assert found.detectable[3] > found.detectable[2] >= found.detectable[0]
