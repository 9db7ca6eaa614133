"""Rates of errors in simulated worlds, and what chance makes of them."""

import numpy as np


def chance(runs, errors=3):
    """Return so many standard errors of a rate of .05 in independent runs."""
    return errors * np.sqrt(0.05 * 0.95 / runs)


def slack(rates):
    """Three standard errors of the mean over independent simulations."""
    return 3 * np.std(rates, ddof=1) / np.sqrt(len(rates))


def correlated(rng, correlations, examples):
    """Predictions [K, E] with these correlations with labels, which are second.

    The errors of models have a part in common.
    """
    labels, shared = rng.normal(size=(2, examples))
    noise = np.sqrt(1 / np.asarray(correlations) ** 2 - 1 - 0.16)
    own = rng.normal(size=(len(noise), examples))
    return labels + 0.4 * shared + noise[:, None] * own, labels
