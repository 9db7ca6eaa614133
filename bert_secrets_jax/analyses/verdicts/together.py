"""Claims on several tasks and models together, corrected for how many tests there are."""

from collections.abc import Hashable, Sequence

import numpy as np

from bert_secrets_jax.ablation.significance import benjamini_hochberg
from bert_secrets_jax.analyses.verdicts.verdict import capped


def corrected(claims: Sequence[Hashable], p_values: Sequence[float]) -> np.ndarray:
    """Correct the p-values of claims that are each tested on several tasks and models.

    After Benjamini and Bogomolov (2014), in two levels. A claim is a family of tests, with the
    p-value of its best test after Bonferroni. First, claims are selected by the method of Benjamini
    and Hochberg. Then a test counts if it does so after Bonferroni within its claim, at the level
    times the share of the claims that were selected.

    What this bounds by 5 %, where corrected p-values up to that count: the expected mean, over the
    selected claims, of whether any verdict on the claim is wrong. It is proved for claims that are
    independent; `tests/analyses` simulates claims that share their examples, too. Each verdict is
    either "holds" or "does not hold", and one of them is always wrong: so every test is a true
    hypothesis for the correction, and Holm's steps would gain nothing.

    Args:
      claims: The claim of each test.
      p_values: The p-value of each test: the smaller one of `Verdict.p`. NaN is what was not
        measured or not decided, and stays NaN; it does not count as a test.

    Returns:
      The corrected p-values, in the same order.
    """
    p_values = np.asarray(p_values, np.float64)
    known = ~np.isnan(p_values)
    families: dict[Hashable, list[int]] = {}
    for index in np.flatnonzero(known):
        families.setdefault(claims[index], []).append(int(index))
    adjusted = np.full(len(p_values), np.nan)
    if not families:
        return adjusted
    within = [np.minimum(p_values[members] * len(members), 1.0) for members in families.values()]
    # The level from which on so many claims are selected, for each number of them.
    levels = np.sort(benjamini_hochberg(np.array([each.min() for each in within])))
    number = len(families)
    share = number / np.arange(1, number + 1)
    for members, each in zip(families.values(), within, strict=True):
        for index, p_value in zip(members, each, strict=True):
            adjusted[index] = capped(np.min(np.maximum(levels, p_value * share)))
    return adjusted
