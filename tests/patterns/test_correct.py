"""Shares of classes that are corrected for what the classifier mistakes."""

import numpy as np
import pytest

from bert_secrets_jax.patterns.classifier import load_classifier
from bert_secrets_jax.patterns.correct import corrected, most_likely


def test_without_mistakes_nothing_changes():
    found = np.array([0.5, 0.2, 0.2, 0.0, 0.1])
    np.testing.assert_allclose(most_likely(found, np.eye(5)), found)


def test_of_two_classes_it_is_rogan_and_gladen():
    sensitivity, specificity = 0.9, 0.8
    rates = np.array([[sensitivity, 1 - sensitivity], [1 - specificity, specificity]])
    for positive in (0.25, 0.5, 0.85):
        found = most_likely(np.array([positive, 1 - positive]), rates)
        expected = (positive + specificity - 1) / (sensitivity + specificity - 1)
        np.testing.assert_allclose(found[0], expected, atol=1e-4)
    # Fewer positives than there are false ones: none, where the formula is below 0.
    assert most_likely(np.array([0.1, 0.9]), rates)[0] < 1e-3


def test_a_class_without_labels_cannot_be_corrected():
    assert corrected(np.array([0.5, 0.5]), np.array([[3, 1], [0, 0]]), size=100) is None
    assert corrected(np.array([0.5, 0.5]), np.zeros((0, 0), int), size=100) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    'shares', [(0.3, 0.2, 0.2, 0.05, 0.25), (0.7, 0.1, 0.1, 0.02, 0.08)], ids=['even', 'vertical']
)
def test_intervals_cover(shares):
    """Where labels and maps are both samples; the raw shares with their own interval do not."""
    shares, rng = np.array(shares), np.random.default_rng(0)
    counts = load_classifier().confusion
    rates = counts / counts.sum(axis=1, keepdims=True)
    worlds = 100
    held, raw = np.zeros((2, 5))
    for seed in range(worlds):
        confusion = np.array(
            [rng.multinomial(each.sum(), rate) for each, rate in zip(counts, rates, strict=True)]
        )
        found = rng.multinomial(2000, shares @ rates) / 2000
        result = corrected(found, confusion, size=2000, draws=100, seed=seed)
        held += (result.low <= shares) & (shares <= result.high)
        raw += np.abs(found - shares) <= 1.96 * np.sqrt(found * (1 - found) / 2000)
        np.testing.assert_allclose(result.shares.sum(), 1)
    assert (held / worlds >= 0.88).all()
    assert 0.92 <= held.mean() / worlds <= 0.985
    assert raw.min() / worlds < 0.8
