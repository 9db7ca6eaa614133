"""Claims on several tasks and models together, corrected for how many tests there are."""

from collections.abc import Hashable, Iterable

import numpy as np

from bert_secrets_jax.stats.corrections import benjamini_hochberg


def corrected(claims: Iterable[Hashable], p_values: Iterable[float]) -> np.ndarray:
    """Correct the p-values of claims that are each tested on several tasks and models.

    After Benjamini and Bogomolov (2014), in two levels. A claim is a family of tests, with the
    p-value of its best test after Bonferroni. First, claims are selected by the method of Benjamini
    and Hochberg. Then a test counts if it does so after Bonferroni within its claim, at the level
    times the share of the claims that were selected.

    This bounds the expected mean, over the selected claims, of whether any verdict on the claim is
    wrong. It is proved for independent claims; `tests/analyses` simulates claims that share
    examples. Either verdict may come out, so p-values are doubled first.

    The columns `claim` and `p` of `bs.read_results(folder)['claims']` may be the arguments, to
    correct claims of several runs.

    P-values are the smaller ones of tests (`Verdict.p`); NaN stays NaN and is no test.
    """
    claims, p_values = list(claims), np.array(list(p_values), np.float64)
    known = np.flatnonzero(~np.isnan(p_values))
    numbers: dict[Hashable, int] = {}
    family = np.array([numbers.setdefault(claims[index], len(numbers)) for index in known], int)
    adjusted = np.full(len(p_values), np.nan)
    if not len(known):
        return adjusted
    within = np.minimum(2 * p_values[known] * np.bincount(family)[family], 1.0)
    best = np.ones(len(numbers))
    np.minimum.at(best, family, within)
    # The level from which on so many claims are selected, for each number of them.
    levels = np.sort(benjamini_hochberg(best))
    share = len(numbers) / np.arange(1, len(numbers) + 1)
    found = np.maximum(levels, within[:, None] * share).min(axis=1)
    adjusted[known] = np.minimum(found, 1.0)
    return adjusted
