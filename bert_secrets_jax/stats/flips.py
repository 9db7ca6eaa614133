"""The sign-flip test: whether means over examples are zero, corrected for all of them."""

from typing import Literal

import numpy as np
import scipy.stats
from jaxtyping import Float, Real

# The chance of any false discovery among all tests that is accepted.
LEVEL = 0.05
# The greatest rounding error of float64 sums that are exactly 0, relative to the mean square.
_ROUNDING = 1e-12
_BLOCK = 1_000_000  # numbers in one block of rounds: 8 MB, for any number of examples


def sign_flip_test(
    values: Real[np.ndarray, 'Q E'],
    *,
    alternative: Literal['two-sided', 'greater'] = 'two-sided',
    rounds: int = 2000,
    seed: int = 0,
) -> tuple[Float[np.ndarray, ' Q'], Float[np.ndarray, ' Q']]:
    """Return p-values of zero means [Q], uncorrected and corrected for all quantities.

    If values are distributed symmetrically about zero, their signs may be flipped. Each round flips
    all values of random examples, the same for all quantities, so that the largest t (or |t|) shows
    how large the strongest of many becomes by chance, whatever the dependence between them
    (Westfall and Young 1993; Romano and Wolf 2005). All flips are made where there are at most
    `rounds` of them (the test is exact then, and its smallest two-sided p-value is two divided by
    their number). With few examples and skewed values the two-sided test finds too much; so does
    the one-sided test where they are skewed to the left.

    The uncorrected p-values are of Student's t-test. Both are 1 for a quantity that is 0
    everywhere.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
        raise ValueError(
            f'Values must be finite [quantities, examples], two examples at least, got '
            f'{list(values.shape)}.'
        )
    two_sided = alternative == 'two-sided'
    examples = values.shape[1]
    # Flipping signs does not change the sum of squares.
    square = (values**2).mean(axis=1)

    def t(mean):
        variance = np.maximum(square - mean**2, _ROUNDING * square) / (examples - 1)
        found = mean / np.sqrt(np.where(square > 0, variance, 1))
        return np.abs(found) if two_sided else found

    observed = t(values.mean(axis=1))
    # Values that differ only by rounding count as equal.
    bar = observed - _ROUNDING * np.abs(observed)
    rng = np.random.default_rng(seed)
    as_great = np.zeros(len(values))
    most = max(1, _BLOCK // max(values.shape))
    exact = 2**examples <= rounds
    flips = 2**examples if exact else rounds
    for start in range(0, flips, most):
        stop = min(start + most, flips)
        if exact:
            flipped = (np.arange(start, stop)[:, None] >> np.arange(examples)) & 1
        else:
            flipped = rng.integers(2, size=(stop - start, examples))
        signs = flipped * 2.0 - 1
        greatest = t(signs @ values.T / examples).max(axis=1)
        as_great += (greatest[:, None] >= bar).sum(axis=0)
    p_values = (1 + two_sided) * scipy.stats.t.sf(observed, examples - 1)
    nothing = square == 0
    # Among all flips is the one that leaves everything as it is; random ones are joined by it.
    corrected = as_great / flips if exact else (1 + as_great) / (1 + flips)
    corrected = np.where(nothing, 1, corrected)
    return np.where(nothing, 1, p_values), corrected
