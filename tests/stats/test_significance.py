"""Scores of resamples, tests and corrections: equal by definition."""

import itertools
import tracemalloc

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.stats import confusion, significance
from bert_secrets_jax.stats.significance import METRICS
from tests.stats.test_effects import drawn

SEEDS = st.integers(0, 2**32 - 1)


def examples(metric, *, masks, size, seed, changed=0.1):
    """Predictions [M, E], baseline [E] and labels [E], with ties among values."""
    models, intact, labels = drawn(
        ('score', metric), seed, masks=masks, examples=size, changed=changed
    )
    return np.round(models, 1), np.round(intact, 1), labels


@pytest.mark.parametrize('metric', METRICS)
@hypothesis.settings(max_examples=25)
@hypothesis.given(seed=SEEDS, size=st.integers(8, 40), whole=st.booleans())
def test_weights_are_repetitions(metric, seed, size, whole):
    rng = np.random.default_rng(seed)
    predictions, _, labels = examples(metric, masks=3, size=size, seed=seed)
    weights = np.ones((2, size), int) if whole else rng.integers(0, 4, (2, size))
    weights[:, :3] += 1  # pearsonr needs two examples
    score = metrics.METRICS[metric]
    expected = [
        [score(np.repeat(of_mask, row), np.repeat(labels, row)) for of_mask in predictions]
        for row in weights
    ]
    found = significance.weighted_scores(metric, predictions, labels, weights)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_rounding_makes_no_correlation():
    rng = np.random.default_rng(0)
    predictions, labels = rng.normal(size=(2, 1, 300))
    predictions[0, :200] = 0.1
    weights = rng.integers(0, 3, (50, 300))
    weights[:, 200:] = 0
    found = significance.weighted_scores('pearson', predictions, labels[0], weights)
    assert np.isnan(found).all()


def test_far_from_zero_correlations_do_not_cancel():
    rng = np.random.default_rng(0)
    labels = rng.normal(size=50)
    predictions = labels + rng.normal(size=(2, 50))
    weights = rng.integers(0, 3, (4, 50))
    near = significance.weighted_scores('pearson', predictions, labels, weights)
    far = significance.weighted_scores(
        'pearson', predictions + np.array([[1e6], [-1e5]]), labels + 1e6, weights
    )
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-8)


def test_memory_is_bounded():
    given = ('f1', *examples('f1', masks=3, size=40_000, seed=0, changed=0.01))
    tracemalloc.start()
    try:
        significance.randomization_test(given[0], given[1][:1], *given[2:], rounds=1000)
        significance.selected_gain(*given)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()


def test_mcnemar_is_the_binomial_test_of_discordant_pairs():
    predictions, baseline, labels = examples('accuracy', masks=20, size=40, seed=2)
    predictions[0] = baseline
    expected = []
    for of_mask in predictions:
        gained = int(np.sum((of_mask == labels) & (baseline != labels)))
        lost = int(np.sum((of_mask != labels) & (baseline == labels)))
        both = gained + lost
        expected.append(scipy.stats.binomtest(gained, both).pvalue if both else 1)
    found = significance.mcnemar(predictions, baseline, labels)
    assert found == pytest.approx(np.array(expected))
    assert found[0] == 1


@pytest.mark.parametrize('metric', confusion.METRICS)
def test_few_swaps_are_enumerated(metric):
    given = (metric, *examples(metric, masks=3, size=8, seed=3, changed=0.6))
    _, predictions, baseline, labels = given
    score = metrics.METRICS[metric]
    expected = []
    for of_mask in predictions:
        differences = []
        for swap in itertools.product([False, True], repeat=8):
            one, other = np.where(swap, baseline, of_mask), np.where(swap, of_mask, baseline)
            differences.append(score(one, labels) - score(other, labels))
        expected.append(np.mean(np.abs(differences) >= abs(differences[0]) - 1e-9))
    found = significance.randomization_test(*given, rounds=256)
    assert found == pytest.approx(np.array(expected))
    assert len(set(expected)) > 1


def test_corrections_by_hand():
    p_values = np.array([0.01, 0.04, 0.03, 0.005])
    assert significance.holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert significance.holm(np.array([0.5, 0.6])) == pytest.approx([1, 1])
    # 0.005 * 4, 0.01 * 4 / 2, then min(0.03 * 4 / 3, 0.04).
    found = significance.benjamini_hochberg(p_values)
    assert found == pytest.approx([0.02, 0.04, 0.04, 0.02])


@pytest.mark.parametrize('adjust', [significance.holm, significance.benjamini_hochberg])
def test_undefined_p_values_count_as_tests(adjust):
    found = adjust(np.array([0.01, np.nan, 0.02]))
    expected = adjust(np.array([0.01, 1, 0.02]))
    np.testing.assert_allclose(found, [expected[0], np.nan, expected[2]])
    with pytest.raises(ValueError, match='within 0 and 1'):
        adjust(np.array([0.5, 1.5]))


@pytest.mark.parametrize('metric', ['pearson', 'spearman'])
@pytest.mark.parametrize('spread', [0, 1e-16, 1e-13, 1e-10])
def test_constant_predictions_are_not_chosen_and_warn_of_nothing(metric, spread):
    """Nor do those that are constant but for rounding, of masks or of the baseline."""
    predictions, baseline, labels = examples(metric, masks=2, size=30, seed=20)
    noise = np.random.default_rng(0).normal(size=30)
    for centre in (1.0, 1e6):
        constant = centre + spread * noise
        for given in ((np.stack([constant, predictions[1]]), baseline), (predictions, constant)):
            found = significance.assess(metric, *given, labels, rounds=5)
            gain = significance.selected_gain(metric, *given, labels)
            if spread == 0 and given[1] is baseline:
                # The same number by another sum: alike to the last bits.
                assert gain.naive == pytest.approx(found.difference[1], rel=1e-12)
                np.testing.assert_array_equal(gain.chosen, [0, 1])


@pytest.mark.parametrize(
    'change, message',
    [
        ({'metric': 'bleu'}, "metric='bleu' must be 'accuracy', "),
        ({'predictions': np.zeros((2, 5))}, r'Predictions must be \[M, 6\].*got \[2, 5\]'),
        ({'predictions': np.zeros((0, 6))}, r'at least one mask'),
        ({'predictions': np.full((1, 6), np.nan)}, 'not finite'),
        ({'baseline': np.zeros(5)}, r'baseline must be \[6\], got \[5\]'),
        ({'labels': np.zeros((6, 1))}, r'Labels must be \[E\].*got \[6, 1\]'),
        ({'repeats': 0}, 'at least 1, got 0'),
        ({'weights': np.ones((1, 2))}, r'Weights must be \[R, 6\], got \[1, 2\]'),
        ({'weights': np.array([[1, -1, 1, 1, 1, 1]])}, 'negative'),
    ],
)
def test_what_does_not_fit_is_named(change, message, untyped):
    given = {'predictions': np.zeros((2, 6)), 'baseline': np.zeros(6), 'labels': np.zeros(6)}
    given = {'metric': 'accuracy'} | given | change
    functions = ('randomization_test', 'selected_gain', 'assess')
    if 'repeats' in change:
        functions = ('selected_gain',)
    if 'weights' in change:
        functions = ('weighted_scores',)
        del given['baseline']
    for function in functions:
        with pytest.raises(ValueError, match=message):
            getattr(significance, function)(**given)
