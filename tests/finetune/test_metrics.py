"""Law 5: metrics equal scikit-learn's and SciPy's."""

import hypothesis
import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.finetune.metrics import METRICS
from bert_secrets_jax.stats import confusion

LABELS = npst.arrays(np.int32, 30, elements=st.integers(0, 1))
VALUES = npst.arrays(np.float32, 30, elements=st.integers(-50, 50).map(lambda x: x / 8))


@hypothesis.given(predicted=LABELS, labels=LABELS)
def test_classification(predicted, labels):
    accuracy = sklearn.metrics.accuracy_score(labels, predicted)
    assert METRICS['accuracy'](predicted, labels) == pytest.approx(accuracy)
    f1 = sklearn.metrics.f1_score(labels, predicted, zero_division=0)
    assert METRICS['f1'](predicted, labels) == pytest.approx(f1)


@hypothesis.given(
    predicted=npst.arrays(np.int32, 20, elements=st.integers(0, 3)),
    labels=npst.arrays(np.int32, 20, elements=st.integers(0, 3)),
)
def test_many_classes(predicted, labels):
    # scikit-learn warns of a single class.
    hypothesis.assume(len(np.union1d(predicted, labels)) > 1)
    assert METRICS['matthews'](predicted, labels) == pytest.approx(
        sklearn.metrics.matthews_corrcoef(labels, predicted)
    )
    theirs = lambda average: sklearn.metrics.f1_score(
        labels, predicted, labels=np.unique(labels), average=average, zero_division=0
    )
    assert METRICS['f1_macro'](predicted, labels) == pytest.approx(theirs('macro'))
    # With all classes, not only those of the labels, precision and recall are both the accuracy.
    assert METRICS['f1_micro'](predicted, labels) == pytest.approx(
        sklearn.metrics.f1_score(labels, predicted, average='micro')
    )


@hypothesis.given(predicted=VALUES, labels=VALUES)
def test_regression(predicted, labels):
    hypothesis.assume(np.ptp(predicted) > 0 and np.ptp(labels) > 0)
    expected = np.corrcoef(predicted, labels)[0, 1]
    assert METRICS['pearson'](predicted, labels) == pytest.approx(expected, abs=1e-6)
    ranks = [scipy.stats.rankdata(values) for values in (predicted, labels)]
    expected = np.corrcoef(*ranks)[0, 1]
    assert METRICS['spearman'](predicted, labels) == pytest.approx(expected, abs=1e-6)


def test_constant_predictions_have_no_correlation():
    assert np.isnan(METRICS['pearson'](np.ones(5), np.arange(5)))
    assert np.isnan(METRICS['spearman'](np.ones(5), np.arange(5)))


@pytest.mark.parametrize(
    ('table', 'p_value'),
    [([[1, 1], [0, 18]], 0.1), ([[2, 0], [0, 2]], 1 / 6), ([[5, 5], [5, 5]], 0.67)],
)
def test_an_association_of_few_examples_proves_little(table, p_value):
    """Where Pearson's t-test would have .0004, 0 and .5."""
    labels = np.repeat([1, 0, 1, 0], np.ravel(table))
    predicted = np.repeat([1, 1, 0, 0], np.ravel(table))
    assert metrics.p_matthews(predicted, labels) == pytest.approx(p_value, abs=0.01)


@pytest.mark.parametrize(
    ('metric', 'table'),
    [
        ('f1', [[0.27, 0.05], [0.14, 0.54]]),
        ('f1', [[0.68, 0.01], [0.01, 0.3]]),
        ('f1_macro', [[0.3, 0.05, 0.02], [0.06, 0.25, 0.04], [0.05, 0.03, 0.2]]),
        ('matthews', [[0.2, 0.1], [0.1, 0.6]]),
    ],
)
def test_intervals_of_class_metrics_cover(metric, table):
    """160 examples of a world, 400 times: 95 % of the intervals hold the score of the world.

    A perfect score of a world with few errors has an interval, too.
    """
    rng, table, held = np.random.default_rng(0), np.array(table), []
    truth = confusion.score(metric, table)
    for _ in range(400):
        labels, predicted = np.divmod(rng.choice(table.size, 160, p=table.ravel()), len(table))
        row = metrics.tested_values((metric,), np.eye(len(table))[predicted], labels)
        low, high = metrics.interval(metric, row, 160)
        assert low < METRICS[metric](predicted, labels) <= high
        held.append(low <= truth <= high)
    assert 0.93 <= np.mean(held) <= 0.99


@pytest.mark.parametrize('metric', ['pearson', 'spearman'])
def test_intervals_of_correlations_cover(metric):
    rng, held = np.random.default_rng(0), []
    for _ in range(400):
        x, noise = rng.normal(size=(2, 100))
        value = METRICS[metric](x, 0.8 * x + 0.6 * noise)
        low, high = metrics.interval(metric, {metric: value}, 100)
        truth = 0.8 if metric == 'pearson' else 6 / np.pi * np.arcsin(0.4)
        held.append(low < truth < high)
    assert 0.93 <= np.mean(held) <= 0.97
