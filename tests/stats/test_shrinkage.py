"""Shrunken effects and the number of real ones, in simulated worlds whose truth is known."""

import numpy as np
import pytest

from bert_secrets_jax.stats.shrinkage import calibrated_count, shrink

WORLDS = {
    'none': lambda rng: np.zeros(72),
    'few': lambda rng: np.where(rng.random(72) < 0.2, rng.exponential(4, 72), 0),
    'both ways': lambda rng: np.where(rng.random(72) < 0.5, rng.normal(0, 3, 72), 0),
    'all small': lambda rng: rng.normal(0, 1, 72),
}


def measured(true, rng):
    """Return what is measured of true effects: estimates and errors."""
    error = np.exp(rng.normal(0, 0.3, len(true)))
    found = true + error * rng.normal(size=len(true))
    return found, error


@pytest.mark.parametrize('world', WORLDS)
def test_shrunken_effects_are_nearer_to_the_truth(world):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(25):
        true = WORLDS[world](rng)
        found, error = measured(true, rng)
        shrunken = shrink(found, error)
        sure, best = shrunken.low * shrunken.high > 0, found.argmax()
        rows.append(
            (
                ((shrunken.mean - true) ** 2).mean(),
                ((found - true) ** 2).mean(),
                (np.sign(shrunken.mean) != np.sign(true))[sure].sum(),
                sure.sum(),
                shrunken.mean[best] - true[best],
                found[best] - true[best],
                ((shrunken.low <= true) & (true <= shrunken.high)).mean(),
                shrunken.share,
            )
        )
    near, far, wrong, sure, luck, naive, covered, share = np.mean(rows, axis=0)
    assert near < 0.75 * far
    assert wrong <= 0.05 * sure + 0.1
    assert abs(luck) < 0.5 and luck < naive
    assert covered > 0.85
    low, high = {'none': (0, 0.25), 'few': (0.1, 0.4), 'both ways': (0.3, 0.75)}.get(
        world, (0.3, 1)
    )
    assert low <= share <= high


def test_an_effect_without_error_is_none():
    shrunken = shrink(np.array([0.0, 3.0]), np.array([0.0, 0.5]), at_least=1)
    assert shrunken.mean[0] == shrunken.low[0] == shrunken.high[0] == 0
    assert 1.9 < shrunken.low[1] < shrunken.mean[1] < shrunken.high[1]
    nothing = shrink(np.zeros(3), np.zeros(3))
    assert nothing.share == 0 and not nothing.mean.any()


def test_the_number_by_resamples_is_that_of_a_line_that_they_leave():
    """Of uniform p-values that are independent, the line is Simes' own."""
    rng = np.random.default_rng(1)
    resampled = rng.random((20_000, 3))
    known = {(0.01, 0.9, 0.9): 1, (0.02, 0.9, 0.9): 0, (0.03, 0.03, 0.9): 1, (0.001, 0.01, 0.04): 2}
    for p_values, least in known.items():
        assert calibrated_count(np.array(p_values), resampled) == least
    # Masks that all do the same have one p-value, which is tested once.
    same = np.repeat(resampled[:, :1], 3, axis=1)
    assert calibrated_count(np.array([0.04, 0.04, 0.04]), same) == 1
    assert calibrated_count(np.array([0.06, 0.06, 0.06]), same) == 0
