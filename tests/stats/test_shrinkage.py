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


def measured(true, rng, together):
    """Return what is measured of true effects: estimates and errors, which correlate."""
    error = np.exp(rng.normal(0, 0.3, len(true)))
    shared, own = rng.normal(), rng.normal(size=len(true))
    return true + error * (together**0.5 * shared + (1 - together) ** 0.5 * own), error


@pytest.mark.parametrize('together', [0, 0.3, 0.6])
@pytest.mark.parametrize('world', WORLDS)
def test_shrunken_effects_are_nearer_to_the_truth(world, together):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(25):
        true = WORLDS[world](rng)
        found, error = measured(true, rng, together)
        shrunken = shrink(found, error)
        best = found.argmax()
        rows.append(
            (
                ((shrunken.mean - true) ** 2).mean(),
                ((found - true) ** 2).mean(),
                shrunken.mean[best] - true[best],
                found[best] - true[best],
            )
        )
    near, far, luck, naive = np.mean(rows, axis=0)
    assert near < (0.75 if together == 0 else 0.95) * far
    assert luck < naive and (together > 0 or abs(luck) < 0.5)


def test_an_effect_without_error_is_none():
    shrunken = shrink(np.array([0.0, 3.0]), np.array([0.0, 0.5]), at_least=1)
    assert shrunken.mean[0] == 0 and 2.5 < shrunken.mean[1] < 3
    assert not shrink(np.zeros(3), np.zeros(3)).mean.any()


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
