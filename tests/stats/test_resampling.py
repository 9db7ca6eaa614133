"""The sign-flip test: its error rate over many quantities, and what it finds."""

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats.resampling import sign_flip_test


def of_pairs(rng):
    """Dependent quantities, as all pairs of one head are."""
    return rng.normal(size=(1, 50)) + rng.laplace(size=(20, 50))


def skewed(rng):
    """To the right, as attention is."""
    return rng.lognormal(0, 1, (20, 60)) - np.exp(0.5)


def of_seeds(rng):
    """Effects over few fine-tunings, which depend on each other and are heavy-tailed."""
    return rng.standard_t(3, size=8) + rng.standard_t(3, size=(24, 8))


@pytest.mark.parametrize(
    ('draw', 'alternative'), [(of_pairs, 'two-sided'), (of_seeds, 'two-sided'), (skewed, 'greater')]
)
def test_sign_flips_hold_their_error_rate_over_all_quantities(draw, alternative):
    rng, errors = np.random.default_rng(0), 0
    for trial in range(300):
        p_values, corrected = sign_flip_test(
            draw(rng), alternative=alternative, rounds=256, seed=trial
        )
        errors += (corrected <= 0.05).any()
        assert (corrected >= p_values * 0.5).all()
    # Binomial: 0.05 of 300, five standard deviations up.
    assert errors <= 15 + 5 * np.sqrt(300 * 0.05 * 0.95)


@pytest.mark.parametrize('alternative', ['two-sided', 'greater'])
def test_sign_flips_find_the_quantity_that_is_not_zero(alternative):
    values = np.random.default_rng(1).normal(size=(30, 80))
    values[7] += 1.0
    values[8] = 0 if alternative == 'two-sided' else values[8] - 1
    p_values, corrected = sign_flip_test(values, alternative=alternative)
    assert np.flatnonzero(corrected <= 0.05).tolist() == [7]
    expected = scipy.stats.ttest_1samp(values[7], 0, alternative=alternative).pvalue
    np.testing.assert_allclose(p_values[7], expected)
    assert p_values[8] > 0.999 and corrected[8] == 1


@pytest.mark.parametrize('values', [np.zeros((3, 1)), np.zeros(4), np.full((2, 3), np.nan)])
def test_sign_flips_refuse_what_has_no_mean(values, untyped):
    with pytest.raises(ValueError, match='two examples at least'):
        sign_flip_test(values)
