"""Curves of pruning: scores and intervals, what is chosen, and agreement between models."""

import numpy as np
import pytest

from bert_secrets_jax.finetune.metrics import METRICS
from bert_secrets_jax.pruning.curves import Curve, curve_of, fleiss_kappa, over_steps, sparsest


def answers(rng, labels, right):
    """Answers [..., E] that are right with a probability."""
    return np.where(
        rng.random((*np.shape(right), len(labels))) < right[..., None], labels, 1 - labels
    )


@pytest.mark.parametrize(('seeds', 'draws'), [(1, 1), (1, 3), (3, 1), (3, 2)])
@pytest.mark.parametrize('metric', ['accuracy', 'f1', 'pearson'])
def test_differences_are_those_of_the_scores(metric, seeds, draws):
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=80)
    right = np.broadcast_to([0.9, 0.8, 0.6], (seeds, draws, 3))
    predictions = answers(rng, labels, right)
    if metric == 'pearson':
        labels = labels + rng.normal(size=80) / 9
        predictions = predictions + rng.normal(size=predictions.shape) / 9
    intact = predictions[:, 0, 0]
    found = curve_of(metric, predictions, intact, labels)
    score = METRICS[metric]
    expected = np.array(
        [
            [[score(step, labels) - score(whole, labels) for step in draw] for draw in model]
            for whole, model in zip(intact, predictions, strict=True)
        ]
    )
    np.testing.assert_allclose(found.draws, expected, atol=1e-9)
    np.testing.assert_allclose(found.difference, expected.mean(axis=(0, 1)), atol=1e-9)
    assert (found.low <= found.difference + 1e-9).all()
    assert (found.high >= found.difference - 1e-9).all()
    assert found.high[2] < 0


def test_intervals_over_seeds_and_examples_hold():
    """Half of the heads cost five points on average, more in some seeds than in others."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(150):
        labels = rng.integers(2, size=300)
        lost = 0.05 + rng.normal(size=5) * 0.02
        right = np.stack([np.full(5, 0.85), 0.85 - lost], axis=1)[:, None]
        predictions = answers(rng, labels, right)
        found = curve_of('accuracy', predictions, predictions[:, 0, 0], labels)
        inside.append(found.low[1] <= -0.05 <= found.high[1])
    assert 0.91 <= np.mean(inside) <= 1


def test_the_sparsest_that_is_as_good():
    kept = np.array([10, 8, 6, 4])
    assert sparsest(np.array([0.9, 0.91, 0.893, 0.7]), kept, tolerance=0.01) == 2
    assert sparsest(np.array([0.9, 0.8, 0.895, 0.7]), kept, tolerance=0.01) == 2
    assert sparsest(np.array([0.9, 0.8, 0.7, 0.6]), kept, tolerance=0.01) == 0
    # A loss of exactly the tolerance is within it, whatever rounding makes of it.
    for right in range(2, 201):
        assert sparsest(np.array([right, right - 2]) / 200, kept[:2], tolerance=0.01) == 1
    assert sparsest(np.array([0.9, 0.8899]), kept[:2], tolerance=0.01) == 0
    # Nothing is as good as a score that is undefined.
    assert sparsest(np.array([np.nan, 0.8, 0.7, np.nan]), kept, tolerance=0.01) == 0


def test_means_over_steps_are_of_those_that_remove_heads():
    """With few heads, even a second step may remove none."""
    draws = np.array([[[0.0, 0.0, -1.0, -3.0]], [[0.0, 0.0, -2.0, -4.0]]])
    curve = Curve(*[draws.mean(axis=(0, 1))] * 3, draws)
    np.testing.assert_allclose(over_steps(curve, np.array([6, 6, 5, 4])), [[-2.0], [-3.0]])


def plain_kappa(votes):
    """Fleiss' kappa of tables of subjects and categories, as the textbook has it."""
    raters = votes.sum(axis=1)[0]
    share = votes.sum(axis=0) / votes.sum()
    of_each = ((votes**2).sum(axis=1) - raters) / (raters * (raters - 1))
    expected = (share**2).sum()
    return (of_each.mean() - expected) / (1 - expected)


def test_agreement_of_models_on_their_heads():
    rng = np.random.default_rng(3)
    kept = rng.integers(2, size=(5, 40))
    votes = np.stack([kept.sum(axis=0), (1 - kept).sum(axis=0)], axis=1)
    assert fleiss_kappa(kept) == pytest.approx(plain_kappa(votes))
    same = np.tile(rng.integers(2, size=40), (5, 1))
    assert fleiss_kappa(same) == pytest.approx(1)
    assert np.isnan([fleiss_kappa(kept[:1]), fleiss_kappa(np.ones((3, 4)))]).all()
