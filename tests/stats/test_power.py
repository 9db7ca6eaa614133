"""The smallest effects that tests find: by hand, and found as often as they say."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from bert_secrets_jax.stats import power, significance
from tests.stats.test_intervals import of_accuracy

HEADS = 144


@pytest.mark.parametrize('to_and_fro', [0, 1, 7, 40])
def test_one_example_less_is_not_significant(to_and_fro):
    examples, level = 400, 0.05 / HEADS
    table = of_accuracy(examples, to_and_fro, to_and_fro + 3)
    net = round(examples * power.critical_of_mcnemar(table, level=level)[0])
    p_values = []
    for more in (net, net - 1):
        right = np.repeat([0, 1, 0, 1], [100, to_and_fro, to_and_fro + more, 150])
        intact = np.repeat([0, 0, 1, 1], [100, to_and_fro, to_and_fro + more, 150])
        p_values.append(significance.mcnemar(right[None], intact, np.ones(len(right), int))[0])
    assert p_values[0] <= level < p_values[1]


def test_too_few_examples_find_nothing():
    found = power.critical_of_mcnemar(of_accuracy(12, 0, 0), level=0.05 / HEADS)
    assert np.isnan(found).all()
    for effects in power.smallest_effects(of_accuracy(12, 0, 0), level=0.05 / HEADS):
        assert np.isnan(effects).all()


@pytest.mark.parametrize('examples', [277, 408, 872, 1500])
@pytest.mark.parametrize('share', [0, 0.005, 0.02, 0.06])
def test_accuracy_is_found_as_often_as_it_says(examples, share):
    """Within what the steps of an exact test allow: it cannot have any power that one likes."""
    to_and_fro = round(share * examples)
    share = to_and_fro / examples
    level = 0.05 / HEADS
    table = of_accuracy(examples, to_and_fro, to_and_fro + 2)
    at_level, effect = (each[0] for each in power.smallest_effects(table, level=level))
    rng = np.random.default_rng(0)

    def found(effect):
        shares = [share, share + effect, 1 - 2 * share - effect]
        gained, lost, _ = rng.multinomial(examples, shares, size=4000).T
        # As `significance.mcnemar`, whose test compares it with SciPy's.
        tail = scipy.stats.binom.cdf(np.minimum(gained, lost), gained + lost, 0.5)
        return np.mean(2 * tail <= level)

    assert 0.73 <= found(effect) <= 0.87
    assert 0.38 <= found(at_level) <= 0.62
    assert found(effect / 2) < 0.35


@pytest.mark.parametrize('metric', ['accuracy', 'f1'])
def test_assessments_hold_them(metric):
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 300)
    baseline = np.where(rng.random(300) < 0.8, labels, 1 - labels)
    predictions = np.where(rng.random((5, 300)) < 0.02, 1 - baseline, baseline)
    predictions[4] = baseline
    found = significance.assess(metric, predictions, baseline, labels, rounds=100)
    np.testing.assert_array_equal(found.changed, (predictions != baseline).sum(axis=1))
    assert found.changed[4] == 0 and found.low[4] < 0 < found.high[4]
    assert (found.critical < found.detectable).all()
    # A mask that changes more to and fro hides more.
    assert found.detectable.argmin() == 4
    assert ((found.tost > 0.05) | ((found.low > -0.01) & (found.high < 0.01))).all()
