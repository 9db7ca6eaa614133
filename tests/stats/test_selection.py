"""The gain of the best of many masks: without the luck of the choice, and with an interval."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats import scores, selection
from bert_secrets_jax.stats.significance import Answers, gain_of_choice, selected_gain
from tests.stats.rates import chance, correlated, slack


def answers(metric, gains, *, size, rng, changed=0.03):
    """Predictions [M, E], baseline [E], labels [E]; gains of accuracy or Pearson's correlation."""
    gains = np.asarray(gains, float)
    if metric == 'pearson':
        models, labels = correlated(rng, INTACT['pearson'] + np.append(gains, 0), size)
        return models[:-1], models[-1], labels
    labels = (rng.random(size) < 0.6).astype(int)
    baseline = np.where(rng.random(size) < INTACT['accuracy'], labels, 1 - labels)
    # Some examples are fragile, for all masks alike, as in a real model.
    fragile = rng.random(size) < 0.7
    share = np.maximum(changed, 1.2 * np.abs(gains))
    mended = (share + gains) / 2 / (1 - INTACT['accuracy']) / 0.7
    lost = (share - gains) / 2 / INTACT['accuracy'] / 0.7
    rate = np.where((baseline == labels)[None], lost[:, None], mended[:, None]) * fragile
    assert rate.max() <= 1
    return np.where(rng.random(rate.shape) < rate, 1 - baseline, baseline), baseline, labels


# The score of the intact model.
INTACT = {'accuracy': 0.75, 'pearson': 0.85}


def true_gains(metric, gains):
    """Gains [M] of the metric; both classes lose alike, so F1 follows from accuracy."""
    if metric != 'f1':
        return np.asarray(gains, float)
    f1 = lambda right: 1.2 * right / (1.2 * right + 1 - right)
    return f1(INTACT['accuracy'] + np.asarray(gains, float)) - f1(INTACT['accuracy'])


def world(name, masks, best):
    gains = np.zeros(masks)
    match name:
        case 'one is clearly best':
            gains[3] = best
        case 'several are nearly best':
            gains[:8] = best * np.linspace(0.4, 0.5, 8)
        case 'all lose but some':
            gains[8:] = -best / 4
    return gains


@pytest.mark.parametrize('masks', [1, 2, 3, 5, 20, 72])
def test_tails_cover_the_best_of_normal_masks(masks):
    """From .95, where one mask or none stands out, to above .99, where many are nearly the best."""
    rng = np.random.default_rng(6)
    below, above = scipy.stats.norm.isf(selection.tails(masks))
    errors = rng.normal(size=(20_000, masks))
    for number in {1, 2, masks // 2, masks} & set(range(1, masks + 1)):
        for ahead in (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6):
            best = (errors + ahead * (np.arange(masks) < number)).argmax(axis=1)
            error = errors[np.arange(len(errors)), best]
            covered = np.mean((error <= below) & (error >= -above))
            assert covered >= 0.945, (number, ahead)
            if number == 1 and ahead == 6:
                assert covered <= 0.955


@pytest.mark.parametrize('metric', ['accuracy', 'pearson'])
def test_the_best_of_useless_masks_gains_nothing_elsewhere(metric):
    rng = np.random.default_rng(16)
    found = [
        selected_gain(
            metric, *answers(metric, np.zeros(20), size=200, rng=rng),
            repeats=4, seed=seed,
        )
        for seed in range(80)
    ]  # fmt: skip
    naive = np.array([gain.naive for gain in found])
    assert naive.mean() - slack(naive) > 0.01
    values = np.array([gain.from_nine_tenths for gain in found])
    assert abs(values.mean()) <= slack(values)
    assert values.mean() < naive.mean() / 4


def test_a_mask_that_helps_is_recovered():
    rng = np.random.default_rng(18)
    gains = world('one is clearly best', 20, 0.13)
    found = [
        selected_gain(
            'accuracy', *answers('accuracy', gains, size=800, rng=rng),
            repeats=2, seed=seed,
        )
        for seed in range(30)
    ]  # fmt: skip
    assert np.mean([gain.chosen[3] for gain in found]) > 0.99
    for name in ('naive', 'from_nine_tenths'):
        values = [getattr(gain, name) for gain in found]
        assert abs(np.mean(values) - 0.13) <= slack(values)


def test_ties_for_the_best_are_broken_evenly(monkeypatch):
    monkeypatch.setattr(scores, '_BLOCK', 120)  # a few divisions at a time
    predictions, baseline, labels = answers(
        'accuracy', [0.02], size=40, rng=np.random.default_rng(20)
    )
    gain = selected_gain('f1', np.tile(predictions, (4, 1)), baseline, labels, repeats=100)
    # Each tenth chooses on its own: 1,000 draws.
    assert gain.chosen.sum() == pytest.approx(1)
    assert (np.abs(gain.chosen - 0.25) <= 4 * np.sqrt(0.25 * 0.75 / 1000)).all()
    assert gain.from_nine_tenths == pytest.approx(gain.naive, abs=1e-12)


def test_selected_gain_by_hand():
    # On any part the first mask is best, right everywhere; the baseline is always wrong.
    labels = np.ones(4, int)
    predictions = np.array([[1, 1, 1, 1], [0, 0, 0, 0]])
    gain = selected_gain('accuracy', predictions, np.zeros(4, int), labels)
    assert dataclasses.astuple(gain)[:3] == (0, 1, 1)
    assert gain.low < 0.6 and gain.high == pytest.approx(1)
    np.testing.assert_array_equal(gain.chosen, [1, 0])


def test_nothing_defined_is_nothing_chosen():
    labels = np.arange(6.0)
    gain = selected_gain('pearson', np.ones((2, 6)), labels, labels)
    assert gain.best == -1
    assert np.isnan([gain.naive, gain.from_nine_tenths, gain.low]).all()


def test_choice_by_hand():
    choose = Answers(np.array([[0, 1, 1], [1, 1, 1]]), np.array([0, 1, 1]), np.array([1, 1, 1]))
    measure = Answers(np.array([[1, 1], [1, 0]]), np.array([0, 1]), np.array([1, 1]))
    found = gain_of_choice('accuracy', choose, measure)
    assert (found.best, found.where_chosen, found.gain) == (1, pytest.approx(1 / 3), 0)
    assert found.choosing == 3


@pytest.mark.parametrize('metric', ['accuracy', 'f1', 'pearson'])
@pytest.mark.parametrize('name', ['no effect', 'several are nearly best'])
def test_a_choice_elsewhere_is_measured_without_luck(metric, name):
    rng = np.random.default_rng(21)
    gains = world(name, 30, 0.04)
    truth = true_gains(metric, gains)
    covered, errors, lucky = [], [], []
    runs = 60
    for _ in range(runs):
        choose, measure = (
            Answers(*answers(metric, gains, size=size, rng=rng)) for size in (200, 300)
        )
        found = gain_of_choice(metric, choose, measure)
        covered.append(found.low <= truth[found.best] <= found.high)
        errors.append(found.gain - truth[found.best])
        lucky.append(found.where_chosen - truth[found.best])
    assert np.mean(covered) >= 0.95 - chance(runs)
    assert abs(np.mean(errors)) <= slack(errors)
    assert np.mean(lucky) > slack(lucky)


def test_choices_that_do_not_fit_are_named(untyped):
    zeros = lambda masks, size: Answers(np.zeros((masks, size)), np.zeros(size), np.zeros(size))
    with pytest.raises(ValueError, match='2 masks to choose from and 3 masks to measure'):
        gain_of_choice('accuracy', zeros(2, 4), zeros(3, 5))
    with pytest.raises(ValueError, match='No mask has a score'):
        gain_of_choice('pearson', zeros(2, 4), zeros(2, 5))
    with pytest.raises(ValueError, match='One example cannot be divided'):
        selected_gain('accuracy', np.zeros((1, 1)), np.zeros(1), np.zeros(1))
