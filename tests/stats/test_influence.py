"""Parts of examples in scores, and how often intervals and tests made from them are wrong."""

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats import influence, scores, seeds, selection
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


def most(runs, level=0.05):
    return level + 3 * np.sqrt(level * (1 - level) / runs)


@pytest.mark.parametrize(
    ('noise', 'examples', 'least'),
    [
        ('normal', 100, 0.95),
        ('normal', 300, 0.95),
        ('heavy', 300, 0.95),
        # Six texts carry the loss, and five.
        (0.02, 300, 0.93),
        (0.005, 1000, 0.93),
    ],
)
def test_intervals_and_equivalence_at_the_border(noise, examples, least):
    """A loss of just as much as counts: at most one in twenty is called too small."""
    rng, held, equivalent, runs = np.random.default_rng(0), [], [], 400
    for _ in range(runs):
        masked, intact, labels = answers(rng, noise, MARGIN, masks=1, examples=examples)
        difference = scores.differences('pearson', masked, intact, labels)[0]
        parts = influence.parts_of_difference('pearson', masked, intact, labels)
        low, high = influence.limits(difference, parts)
        held.append(low[0] <= -MARGIN <= high[0])
        equivalent.append(influence.p_matters(difference, parts, MARGIN)[0] <= 0.05)
    assert least - chance(runs) <= np.mean(held) <= 0.99
    assert np.mean(equivalent) <= most(runs)


def test_texts_that_were_not_seen_cannot_be_allowed_for():
    """One text in two hundred carries the loss: of 300, a fifth have none of them."""
    rng, equivalent, runs = np.random.default_rng(1), 0, 200
    for _ in range(runs):
        given = answers(rng, 0.005, MARGIN, masks=1, examples=300)
        equivalent += assess('pearson', *given).equivalent[0] <= 0.05
    assert 0.1 < equivalent / runs < 0.4


@pytest.mark.parametrize('noise', ['normal', 'heavy', 0.02])
def test_the_interval_of_the_chosen_mask_holds_its_gain(noise):
    """All lose alike; the best of them is the luckiest, of which no such text was seen."""
    rng, held, runs = np.random.default_rng(2), 0, 150
    below, above = selection.tails(40)
    for _ in range(runs):
        given = answers(rng, noise, 0.03, masks=40, examples=200)
        best = scores.differences('pearson', *given)[0].argmax()
        low, high = influence.interval('pearson', *given, below=below, above=above, chosen=True)
        held += low[best] <= -0.03 <= high[best]
    assert held / runs >= 0.95 - chance(runs)


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
    for tail in (0.3, 0.025, 1e-4):
        low, high = influence.limits(difference, parts, below=tail, above=tail)
        for at, sign in ((high, 1), (low, -1)):
            found = [
                influence.p_above(sign * difference, sign * parts, sign * bound)[mask]
                for mask, bound in enumerate(at)
            ]
            np.testing.assert_allclose(found, tail, rtol=1e-9)
    p_values = influence.p_zero(difference, parts)
    low, high = influence.limits(difference, parts)
    np.testing.assert_array_equal(p_values <= 0.05, (low > 0) | (high < 0))


@pytest.mark.parametrize('metric', ['pearson', 'spearman'])
def test_a_mask_that_changes_next_to_nothing_is_equivalent(metric):
    """By rounding, by an offset, or on one text; but not where ten such would count."""
    rng = np.random.default_rng(5)
    intact, labels = np.arange(400.0), np.arange(400.0) + 100 * rng.normal(size=400)
    masked = np.stack([intact, 2 * intact + 1, intact, intact])
    masked[2, 7] += 3
    masked[3, 7] += 300
    found = assess(metric, masked, intact, labels)
    np.testing.assert_allclose(found.p_value[:2], 1)
    assert (found.equivalent[:3] < 0.001).all() and found.equivalent[3] == 1
    assert found.detectable[3] > found.detectable[2] >= found.detectable[0]


def test_ranks_have_intervals_over_seeds():
    """The same correlation by ranks; the truth is taken from many examples."""
    rng, held = np.random.default_rng(6), []
    assert 'spearman' in seeds.METRICS
    for _ in range(60):
        labels = rng.normal(size=300)
        of_seed = 0.1 * rng.normal(size=(6, 8, 1))
        intact = labels + 0.7 * rng.normal(size=300) + 0.3 * rng.normal(size=(6, 1, 300))
        masked = intact - of_seed * labels + 0.3 * rng.normal(size=(6, 8, 300))
        values = seeds.per_example('spearman', masked, labels)
        values = values - seeds.per_example('spearman', intact, labels)
        variance = seeds.crossed_variance(values, counts=False)
        held.append((values.mean(axis=(0, 2)), variance.half_width))
    means, reach = map(np.concatenate, zip(*held, strict=True))
    assert 0.92 <= np.mean(np.abs(means - means.mean()) <= reach) <= 0.98
