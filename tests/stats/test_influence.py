"""Parts of examples in scores, and how often intervals and tests made from them are wrong."""

import itertools

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats import influence
from bert_secrets_jax.stats.significance import MARGIN, assess
from tests.stats.rates import chance

# The variance of the intact model's predictions, and its correlation with the labels.
VARIANCE = 1 + 0.4**2 + 0.45**2
INTACT = VARIANCE**-0.5


def answers(rng, noise, loss, *, masks, examples):
    """Predictions [M, E] with an expected loss of Pearson's r, those of the intact model, labels.

    The noise that a mask adds is small and normal, and large in a share of the examples.
    """
    labels, shared, own = rng.normal(size=(3, examples))
    intact = labels + 0.4 * shared + 0.45 * own
    added = (INTACT - loss) ** -2 - VARIANCE
    shape = masks, examples
    match noise:
        case 'normal':
            return intact + np.sqrt(added) * rng.normal(size=shape), intact, labels
        case 'heavy':
            # Both models have Student's t of three degrees of freedom.
            errors = rng.standard_t(3, size=(masks + 1, examples)) / np.sqrt(3)
            wide = np.append(np.full(masks, 0.45**2 + added), 0.45**2) ** 0.5
            models = labels + 0.4 * shared + wide[:, None] * errors
            return models[:-1], models[-1], labels
        case float(share):
            small = 0.2 * np.sqrt(added)
            large = np.sqrt((added - small**2) / (share - share**2))
            moved = small * rng.normal(size=shape) + large * (rng.random(shape) < share)
            return intact + moved, intact, labels


@pytest.mark.parametrize(('examples', 'losses', 'idle'), [(300, 0.8, 0.0), (1500, 1.0, 1.0)])
def test_allowing_for_unseen_texts_costs_no_power_to_find_losses(examples, losses, idle):
    """What it costs is to show that a mask does not matter, with fewer than 1,120 texts."""
    rng, runs = np.random.default_rng(1), 100
    lossy, none = (
        [
            assess('pearson', *answers(rng, 'normal', loss, masks=1, examples=examples))
            for _ in range(runs)
        ]
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
        p_values = influence.p_zero(difference, parts, of_one=of_one)
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
