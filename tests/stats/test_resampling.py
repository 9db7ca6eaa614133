"""The sign-flip test: what it finds, and what it refuses."""

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.stats.resampling import sign_flip_test


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


@pytest.mark.parametrize(
    ('values', 'message'),
    [
        (np.zeros((3, 1)), 'too few examples: 1 given, at least 2 needed'),
        (np.zeros(4), r'values must be \[quantities, examples\], got \[4\]'),
        (np.full((2, 3), np.nan), 'values must be finite numbers'),
    ],
)
def test_sign_flips_refuse_what_has_no_mean(untyped, values, message):
    with pytest.raises(ValueError, match=message):
        sign_flip_test(values)
