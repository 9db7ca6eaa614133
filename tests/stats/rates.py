"""Rates of errors in simulated worlds, and what chance makes of them."""

import numpy as np


def chance(runs, errors=3):
    """Return so many standard errors of a rate of .05 in independent runs."""
    return errors * np.sqrt(0.05 * 0.95 / runs)


def holds_zero(effects):
    """Return which intervals hold 0."""
    return (effects.low <= 0) & (effects.high >= 0)
