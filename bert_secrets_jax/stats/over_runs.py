"""Parts of a statement over several runs on the same examples: their means, medians and tests.

A test of several runs is about most of them. No test of their average holds where some fail: of
five runs, of which one in five fails, none is seen to fail in a third of cases. The sign test of
most of them holds whatever their distribution, from five runs on, of which all have to be on one
side (1/32). So the numbers of such a test are the median and its interval. Both are widened by the
error of the examples. Student's t of the mean has to agree.

Shapes: R runs, P parts of a statement.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.stats

from bert_secrets_jax.stats import student
from bert_secrets_jax.stats.student import LEVEL

# How far a 95 % interval of normal errors reaches, in standard errors.
REACH = float(student.reach())

# Fewer examples decide nothing: with so few, Student's t finds too much in skewed values.
FEWEST = 20

# Fewer runs have no interval over seeds, and fewer than the second number decide nothing: where
# half of all fine-tunings fail, four others in a row come in one of sixteen draws.
FEWEST_RUNS, FEWEST_FOR_MOST = 3, 5

# Means in float32: less than this apart, they are the same.
ROUNDING = 1e-6

Count = float | int | np.ndarray  # the number of examples of a table


@dataclasses.dataclass(frozen=True)
class Contrasts:
    """The parts of a claim, each above 0 where the claim holds.

    Attributes:
      difference, error: [P] The mean over runs, and a bound of its standard error.
      freedom: [P] The degrees of freedom of this error.
      each: [R, P] The parts of each run.
      examples: The number of examples, which all runs share.
    """

    difference: np.ndarray
    error: np.ndarray
    freedom: np.ndarray
    each: np.ndarray
    examples: float

    @property
    def runs(self) -> int:
        """The number of runs."""
        return len(self.each)

    @property
    def by_sign(self) -> tuple[np.ndarray, np.ndarray]:
        """[P] The p-values that most runs are not above, and not below 0; 0 of too few runs."""
        return by_sign(self.each, self.error), by_sign(-self.each, self.error)

    @property
    def above(self) -> np.ndarray:
        """[P] The p-values of the hypotheses that a part is not above 0; NaN in few examples."""
        return self._p(self.difference)

    @property
    def below(self) -> np.ndarray:
        """[P] The p-values of the hypotheses that a part is not below 0; NaN in few examples."""
        return self._p(-self.difference)

    @property
    def least(self) -> int:
        """The part that is least in favour of the claim, in standard errors if these are known."""
        for values in (self.difference / self.error, self.difference):
            if not np.isnan(values).all():
                return int(np.nanargmin(values))
        return 0

    def interval(self, part: int | tuple, *, offset: float = 0.0) -> tuple[float, float, float]:
        """Return the mean of a part plus an offset, such as the threshold, with its 95 % interval.

        See `typical` for the number that a verdict is about.
        """
        estimate = float(self.difference[part]) + offset
        _, low, high = student.interval(estimate, self.error[part], self.freedom[part])
        return estimate, float(low), float(high)

    def typical(self, part: int | tuple, *, offset: float = 0.0) -> tuple[float, float, float]:
        """Return the same of the median run, where a verdict is about most fine-tunings."""
        if self.runs < FEWEST_FOR_MOST:
            return self.interval(part, offset=offset)
        return median_of(self.each[(slice(None), *np.atleast_1d(part))] + offset, self.error[part])

    def _p(self, difference: np.ndarray) -> np.ndarray:
        if self.examples < FEWEST:
            return np.full(np.shape(difference), np.nan)
        with np.errstate(divide='ignore', invalid='ignore'):
            return student.p_above(difference / self.error, self.freedom)


def contrasts(
    per_run: Iterable[Sequence | np.ndarray], examples: Count, *, above: float | int = 0
) -> Contrasts:
    """Combine what parts of a claim [P] are above a threshold, and bounds of errors, over runs.

    With FEWEST_RUNS or more runs on the same examples, the error is that of two levels: the spread
    between runs, and the error of the examples. Otherwise the runs are taken as given.
    """
    each, bounds = (np.array(part, np.float64) for part in zip(*per_run, strict=True))
    if each.ndim == 1:
        each, bounds = each[:, None], bounds[:, None]
    each, runs = each - above, len(each)
    mean, of_examples = each.mean(axis=0), bounds.mean(axis=0)
    few = np.full(mean.shape, max(float(examples) - 1.0, 1.0))
    if runs < FEWEST_RUNS:
        return Contrasts(mean, of_examples, few, each, float(examples))
    of_runs = each.var(axis=0, ddof=1) / runs
    squared, freedom = student.of_sum((of_runs, of_examples**2), (runs - 1, few))
    return Contrasts(mean, np.sqrt(squared), freedom, each, float(examples))


def by_sign(each: np.ndarray, error: np.ndarray | float) -> np.ndarray:
    """Return the p-values [P] that most runs of [R, P] are not above 0, by the sign test.

    Without an error of the examples it is the sign test itself; with it, the interval of that level
    (`median_of`) has to be above 0, too. `error` is that of the mean of the runs.
    The p-values are 0 for fewer runs than a verdict on most fine-tunings needs.
    """
    if len(each) < FEWEST_FOR_MOST:
        return np.zeros(each.shape[1:])
    places = np.arange((len(each) + 1) // 2)
    ends, median = np.sort(each, axis=0)[places], np.median(each, axis=0)
    squared = np.maximum(median**2 - (median - ends) ** 2, 0.0)
    with np.errstate(divide='ignore', invalid='ignore'):
        of_examples = student.p_above(np.sqrt(squared) / _of_examples(each, error))
    levels = scipy.stats.binom.cdf(places, len(each), 0.5)[:, None]
    return np.where((ends > 0) & (of_examples <= levels), levels, 1.0).min(axis=0)


def median_of(each: np.ndarray, error: float) -> tuple[float, float, float]:
    """Return the median of runs [R] and its interval: that of the sign test, wider by the examples.

    The sign test's is of 95 % or more, and of 94 % for five runs. `error` is that of the mean, over
    runs and examples: the part that the spread of the runs leaves is that of the examples.
    """
    ordered, median = np.sort(each), float(np.median(each))
    place = max(int(scipy.stats.binom.ppf(LEVEL / 2, len(each), 0.5)), 1) - 1
    reach = REACH * float(_of_examples(each, error))
    below, above = median - ordered[place], ordered[-1 - place] - median
    return median, median - math.hypot(below, reach), median + math.hypot(above, reach)


def _of_examples(each: np.ndarray, error: np.ndarray | float) -> np.ndarray | float:
    """Return the part of the errors of means over runs that is not that of the runs [R, ...]."""
    squared = np.square(error) - each.var(axis=0, ddof=1) / len(each)
    return np.sqrt(np.maximum(squared, 0.0))


def contrast_of(
    interval: Sequence[float] | np.ndarray,
    *,
    above: float = 0.0,
    examples: int,
    each: np.ndarray | None = None,
    random: np.ndarray | None = None,
) -> Contrasts:
    """Return an estimate less a threshold, with its interval, as the only part of a claim.

    The examples are the sample of the interval, which is by Student's t. So are the `random` draws
    [D], if any, whose mean was subtracted. `each` are the estimates of several runs [R].
    """
    estimate, low, high = interval
    # The interval may have fewer degrees of freedom, those of seeds. To take too many is safe: of
    # the reach of an interval, a one-sided test then asks for more.
    few = max(examples - 1.0, 1.0)
    of_sample = ((high - low) / 2 / student.reach(few)) ** 2 + ROUNDING**2
    of_draws = 0.0 if random is None else random.var(ddof=1) / len(random)
    others = 1 if random is None else len(random) - 1
    squared, freedom = student.of_sum((of_sample, of_draws), (few, others))
    difference, error, few = (
        np.array([each]) for each in (estimate - above, np.sqrt(squared), freedom)
    )
    beyond = difference[None] if each is None else each[:, None] - above
    return Contrasts(difference, error, few, beyond, examples=float(examples))


def all_above(found: Contrasts) -> tuple[float, float]:
    """Return the two p-values of the claim that all parts are above 0.

    That it holds needs no correction: its contrary is refuted only if each part is above 0
    (intersection-union test, Berger 1982). That it does not hold is shown by any one of them, and
    corrected for their number (Bonferroni), but for signs: a run that fails does so in all parts.
    """
    not_above, not_below = found.by_sign
    below = np.maximum(found.below * len(found.below), not_below)
    # An unknown part (NaN) keeps the claim from holding, but another part can still refute it.
    return float(np.maximum(found.above, not_above).max()), min(float(np.fmin.reduce(below)), 1.0)


def at_least(p_values: np.ndarray, count: int, by_sign: np.ndarray | float = 0.0) -> float:
    """Return the p-value of the hypothesis that fewer than so many of the alternatives are true.

    It is the partial conjunction test of Benjamini and Heller (2008), by Bonferroni, which holds
    whatever the dependence. A p-value that is NaN shows nothing. So many of the p-values by signs
    have to be as small, without a correction (see `all_above`).
    """
    ordered = np.sort(np.nan_to_num(p_values, nan=1.0))
    by_bonferroni = min(float((len(ordered) - count + 1) * ordered[count - 1]), 1.0)
    return max(by_bonferroni, float(np.sort(by_sign + 0 * ordered)[count - 1]))


def so_many_above(found: Contrasts, count: int) -> tuple[float, float]:
    """Return the two p-values of the claim that so many of the parts are above 0, at least."""
    if found.examples < FEWEST:
        return math.nan, math.nan
    (not_above, not_below), others = found.by_sign, len(found.difference) - count + 1
    return at_least(found.above, count, not_above), at_least(found.below, others, not_below)


def not_below(
    bound: float,
    estimate: float | np.ndarray,
    high: float | np.ndarray,
    freedom: float | int = np.inf,
) -> float | np.ndarray:
    """Return the p-values of the hypotheses that a number is the bound or more.

    They are at most LEVEL where the 95 % interval, whose upper end is `high`, is below the bound.
    Its errors are taken to be Student's t, which is normal without a number of degrees of freedom.
    With all signs turned, they are those of the hypotheses that a number is the bound or less.
    """
    half = np.maximum(np.abs(high - estimate), 1e-12)
    return 2 * student.p_above((bound - estimate) / half * student.reach(freedom), freedom)
