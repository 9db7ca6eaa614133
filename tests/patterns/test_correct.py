"""Shares of classes that are corrected for what the classifier mistakes."""

import numpy as np
import pytest

from bert_secrets_jax.patterns.classifier import load_classifier
from bert_secrets_jax.patterns.correct import concentrations, corrected, most_likely


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
    assert corrected(np.array([0.5, 0.5]), np.array([[[3, 1], [0, 0]]]), size=100) is None
    assert corrected(np.full(5, 0.2), np.zeros((0, 5, 5), int), size=100) is None


def test_classes_together_are_their_sum():
    found = corrected(np.array([0.5, 0.2, 0.3]), 50 * np.eye(3, dtype=int)[None], size=400)
    share, low, high = found.together([1, 2])
    assert share == pytest.approx(0.5, abs=1e-3) and low < share < high
    assert found.together([0, 1, 2])[1:] == pytest.approx((1, 1))
    first = found.together([0])
    assert high - low == pytest.approx(first[2] - first[1], abs=0.01)


def labelled(rng, rates, alike, models=8):
    """The confusions of some models, and the error rates of another, in a world where they differ.

    Args:
      rng: The source of the draws.
      rates: The mean error rates [C, C].
      alike: The concentration of their distribution over models.
      models: The number of models.
    """

    def drawn():
        gammas = rng.standard_gamma(alike * rates)
        return gammas / gammas.sum(axis=1, keepdims=True)

    numbers = load_classifier().confusions.sum(axis=2).mean(axis=0)
    confusions = [
        [rng.multinomial(round(number), row) for number, row in zip(numbers, drawn(), strict=True)]
        for _ in range(models)
    ]
    return np.array(confusions), drawn()


@pytest.fixture(scope='module')
def rates():
    """Error rates like those of the shipped classifier."""
    counts = load_classifier().confusions.sum(axis=0) + 0.2
    return counts / counts.sum(axis=1, keepdims=True)


def test_how_alike_models_are_is_found(rates):
    rng = np.random.default_rng(0)
    medians = [
        np.median(concentrations(labelled(rng, rates, alike, models=40)[0], 200, rng))
        for alike in (5, 25, 1e5)
    ]
    assert 3 < medians[0] < 8 and 15 < medians[1] < 40 and medians[2] > 300


@pytest.mark.parametrize('alike', [20, 1e5], ids=['models differ', 'models are alike'])
@pytest.mark.parametrize(
    'shares', [(0.3, 0.2, 0.2, 0.05, 0.25), (0.7, 0.1, 0.1, 0.02, 0.08)], ids=['even', 'vertical']
)
def test_intervals_cover(rates, shares, alike):
    """Where labels, maps and models are samples; the raw shares with their own interval do not."""
    shares, rng = np.array(shares), np.random.default_rng(0)
    worlds = 60
    held, raw = np.zeros((2, 5))
    for seed in range(worlds):
        confusions, of_another = labelled(rng, rates, alike)
        found = rng.multinomial(2000, shares @ of_another) / 2000
        result = corrected(found, confusions, size=2000, draws=100, seed=seed)
        ends = np.array([result.together([index]) for index in range(5)])
        held += (ends[:, 1] <= shares) & (shares <= ends[:, 2])
        raw += np.abs(found - shares) <= 1.96 * np.sqrt(found * (1 - found) / 2000)
        np.testing.assert_allclose(result.shares.sum(), 1)
    assert (held / worlds >= 0.8).all()
    assert 0.87 <= held.mean() / worlds <= 0.99
    assert raw.min() / worlds < 0.8
