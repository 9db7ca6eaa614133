"""Claims on several tasks and models together, corrected for how many tests there are."""

from collections.abc import Hashable, Iterable

import numpy as np

from bert_secrets_jax.ablation.significance import benjamini_hochberg


def corrected(claims: Iterable[Hashable], p_values: Iterable[float]) -> np.ndarray:
    """Correct the p-values of claims that are each tested on several tasks and models.

    After Benjamini and Bogomolov (2014), in two levels. A claim is a family of tests, with the
    p-value of its best test after Bonferroni. First, claims are selected by the method of Benjamini
    and Hochberg. Then a test counts if it does so after Bonferroni within its claim, at the level
    times the share of the claims that were selected.

    What this bounds by 5 %, where corrected p-values up to that count: the expected mean, over the
    selected claims, of whether any verdict on the claim is wrong. It is proved for claims that are
    independent; `tests/analyses` simulates claims that share their examples, too. Either verdict
    may come out, so p-values are doubled first. Holm's steps within a claim would gain nothing that
    is proved: of "holds" and "does not hold" one is wrong in every test, however many are decided.

    The claims of runs of other models can be corrected together with these: the columns `claim` and
    `p` of `bs.read_results(folder)['claims']`, for a folder of several runs, are the arguments.

    Args:
      claims: The claim of each test.
      p_values: The p-value of each test: the smaller one of `Verdict.p`. NaN is what was not
        measured or not decided, and stays NaN; it does not count as a test.

    Returns:
      The corrected p-values, in the same order.
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
