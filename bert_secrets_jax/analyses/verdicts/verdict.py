"""The arithmetic that all tests of claims share, from p-values to verdicts.

Each test gives the p-values of two hypotheses: that the claim is false, and that it is true. One of
the two is true, so that a verdict is wrong at most once in twenty.

Of several fine-tunings, a verdict is about most of them. No test of their average holds where some
fail: of five runs, of which one in five fails, none is seen to fail in a third of cases. The sign
test of most of them holds whatever their distribution, from five runs on, of which all have to be
on one side (1/32). So the numbers of such a verdict are the median and its interval. Both are
widened by the error of the examples. Student's t of the mean has to agree.

Shapes: R runs, P parts of a claim, L layers, N heads.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import scipy.stats

from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.runs.verdict import (
    ANY_FINETUNING,
    DOES_NOT_HOLD,
    HOLDS,
    MOST_FINETUNINGS,
    NOT_MEASURED,
    THESE_MODELS,
    THIS_MODEL,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Verdict,
)
from bert_secrets_jax.stats.student import LEVEL

# How far a 95 % interval of normal errors reaches, in standard errors.
REACH = float(scipy.stats.norm.isf(LEVEL / 2))
# Fewer examples decide nothing: with so few, Student's t finds too much in skewed values.
FEWEST = 20
# Fewer runs have no interval over seeds, and fewer than the second number decide nothing: where
# half of all fine-tunings fail, four others in a row come in one of sixteen draws.
FEWEST_RUNS, FEWEST_FOR_MOST = 3, 5
# Means in float32: less than this apart, they are the same.
ROUNDING = 1e-6
Count = float | int | np.ndarray  # the number of examples of a table

# A table of one model, or one for each fine-tuned model.
Runs = HeadTable | Sequence[HeadTable]


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
    def population(self) -> str:
        """For what a verdict on these contrasts is."""
        if self.runs >= FEWEST_FOR_MOST:
            return MOST_FINETUNINGS
        return THIS_MODEL if self.runs == 1 else THESE_MODELS

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
        half = float(margin(self.freedom[part]) * self.error[part])
        return estimate, estimate - half, estimate + half

    def typical(self, part: int | tuple, *, offset: float = 0.0) -> tuple[float, float, float]:
        """Return the same of the median run, where a verdict is about most fine-tunings."""
        if self.runs < FEWEST_FOR_MOST:
            return self.interval(part, offset=offset)
        return median_of(self.each[(slice(None), *np.atleast_1d(part))] + offset, self.error[part])

    def _p(self, difference: np.ndarray) -> np.ndarray:
        if self.examples < FEWEST:
            return np.full(np.shape(difference), np.nan)
        with np.errstate(divide='ignore', invalid='ignore'):
            return scipy.stats.t.sf(difference / self.error, self.freedom)


def contrasts(
    per_run: Iterable[Sequence | np.ndarray], examples: Count, *, above: float | int = 0
) -> Contrasts:
    """Combine what parts of a claim [P] are above a threshold, and bounds of errors, over runs.

    With FEWEST_RUNS or more runs on the same examples, the error is that of two levels: the spread
    between runs, and the error of the examples. Otherwise the runs are taken as given. Degrees of
    freedom are Satterthwaite's.
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
    squared = of_runs + of_examples**2
    freedom = squared**2 / (of_runs**2 / (runs - 1) + of_examples**4 / few)
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
        of_examples = scipy.stats.norm.sf(np.sqrt(squared) / _of_examples(each, error))
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
    interval: tuple[float, float, float],
    *,
    offset: float = 0.0,
    examples: int,
    each: np.ndarray | None = None,
    random: np.ndarray | None = None,
) -> Contrasts:
    """Return an estimate plus an offset, with its interval, as the only part of a claim.

    The examples are the sample of the interval, which is by Student's t. So are the `random` draws
    [D], if any, whose mean was subtracted. `each` are the estimates of several runs [R].
    """
    estimate, low, high = interval
    # The interval may have fewer degrees of freedom, those of seeds. To take too many is safe: of
    # the reach of an interval, a one-sided test then asks for more.
    few = max(examples - 1.0, 1.0)
    of_sample = ((high - low) / 2 / margin(few)) ** 2 + ROUNDING**2
    of_draws = 0.0 if random is None else random.var(ddof=1) / len(random)
    squared = of_sample + of_draws
    # Satterthwaite's degrees of freedom.
    others = 1 if random is None else len(random) - 1
    freedom = squared**2 / (of_sample**2 / few + of_draws**2 / others)
    parts = [np.array([each]) for each in (estimate + offset, np.sqrt(squared), freedom)]
    beyond = parts[0][None] if each is None else each[:, None] + offset
    return Contrasts(*parts, beyond, examples=float(examples))


def all_above(found: Contrasts) -> tuple[float, float]:
    """Return the two p-values of the claim that all parts are above 0.

    That it holds needs no correction: its contrary is refuted only if each part is above 0
    (intersection-union test, Berger 1982). That it does not hold is shown by any one of them, and
    corrected for their number (Bonferroni), but for signs: a run that fails does so in all parts.
    """
    not_above, not_below = found.by_sign
    below = np.maximum(found.below * len(found.below), not_below)
    # An unknown part (NaN) keeps the claim from holding, but another part can still refute it.
    return float(np.maximum(found.above, not_above).max()), capped(np.fmin.reduce(below))


def at_least(p_values: np.ndarray, count: int, by_sign: np.ndarray | float = 0.0) -> float:
    """Return the p-value of the hypothesis that fewer than so many of the alternatives are true.

    It is the partial conjunction test of Benjamini and Heller (2008), by Bonferroni, which holds
    whatever the dependence. A p-value that is NaN shows nothing. So many of the p-values by signs
    have to be as small, without a correction (see `all_above`).
    """
    ordered = np.sort(np.nan_to_num(p_values, nan=1.0))
    by_bonferroni = capped((len(ordered) - count + 1) * ordered[count - 1])
    return max(by_bonferroni, float(np.sort(by_sign + 0 * ordered)[count - 1]))


def not_measured(claim: Claim, needs: str = '') -> Verdict:
    """Return the verdict on a claim without its measurement, which needs a noun phrase, if any."""
    return Verdict(
        claim=claim,
        verdict=NOT_MEASURED,
        template='Measured with --sections={section}.' + ' It needs {needs}.' * bool(needs),
        numbers={'section': claim.section, 'needs': needs},
    )


def nothing_to_test(claim: Claim, why: str, examples: Count, **numbers: int) -> Verdict:
    """Return the verdict on a claim that is about nothing in this model; the template says why."""
    known = {'sample': round(float(examples)), 'numbers': numbers}
    return Verdict(claim=claim, verdict=UNDECIDED, template=why, **known)


def verdict_of(
    claim: Claim,
    p_values: tuple[float, float],
    interval: tuple[float, float, float],
    template: str = '',
    *,
    sample: Count,
    numbers: Mapping[str, Any] = MappingProxyType({}),
    otherwise: str = UNDECIDED,
    **fields: Any,
) -> Verdict:
    """Return a verdict of Python's own numbers.

    P-values are those if the claim is false, and if it is true. An interval begins with the
    estimate. Without a template, it names the estimate and the threshold. `otherwise` is the
    verdict where neither p-value decides.
    """
    p_if_false, p_if_true = map(float, p_values)
    estimate, low, high = map(float, interval)
    fields = {'unit': claim.unit, 'threshold': claim.threshold} | fields
    decided = DOES_NOT_HOLD if p_if_true <= LEVEL else otherwise
    return Verdict(
        claim=claim,
        verdict=HOLDS if p_if_false <= LEVEL else decided,
        template=template or decisive(claim, interval),
        estimate=estimate,
        low=low,
        high=high,
        p_if_false=p_if_false,
        p_if_true=p_if_true,
        sample=round(float(sample)),
        numbers={
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in numbers.items()
        },
        **fields,
    )


def verdict_on(
    claim: Claim,
    found: Contrasts,
    what: str,
    template: str = '',
    *,
    p_values: tuple[float, float] | None = None,
    interval: tuple[float, float, float] | None = None,
    numbers: Mapping[str, Any] = MappingProxyType({}),
    **fields: Any,
) -> Verdict:
    """Return the verdict on a claim that holds where all parts are above 0.

    Args:
      what: The noun phrase that names the estimate.
      template: As in `verdict_of`.
      p_values: None takes those of `all_above`.
      interval: None takes the part that is least in favour of the claim, plus the threshold.
    """
    if interval is None:
        interval = found.typical(found.least, offset=claim.threshold)
        if claim.side == 'less':
            estimate, low, high = found.typical(found.least, offset=-claim.threshold)
            interval = -estimate, -high, -low
    known: dict[str, Any] = {'sample': found.examples, 'population': found.population} | fields
    template, numbers = template or decisive(claim, interval), dict(numbers)
    p_values = p_values or all_above(found)
    if found.population == MOST_FINETUNINGS:
        known |= {'sample': found.runs, 'sample_of': 'runs'} | fields
        numbers['runs'] = found.runs
        template += MEDIAN if known['population'] != ANY_FINETUNING else MEAN
    if found.examples < FEWEST:
        template += ' {examples:example|examples} {examples:|is|are} too few; a test needs {least}.'
        numbers |= {'examples': round(found.examples), 'least': FEWEST}
        known['otherwise'] = TOO_FEW
    elif known['population'] == THESE_MODELS:
        template += TOO_FEW_RUNS
        numbers |= {'runs': found.runs, 'needed': FEWEST_FOR_MOST}
        known['otherwise'], p_values = TOO_FEW, (math.nan, math.nan)
    return verdict_of(claim, p_values, interval, template, what=what, numbers=numbers, **known)


def in_all_runs(verdict: Verdict, alone: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict on several runs, with what each of them says alone, by its name."""
    if len(alone) == 1:
        template, numbers = f'{verdict.template} Model: {{run}}.', {'run': next(iter(alone))}
        return dataclasses.replace(
            verdict, template=template, numbers=dict(verdict.numbers) | numbers
        )
    phrases = {UNDECIDED: 'is undecided', NOT_MEASURED: 'is not measured', TOO_FEW: f'is {TOO_FEW}'}
    counts = Counter(phrases.get(each.verdict, each.verdict) for each in alone.values())
    outcomes = ' and '.join(f'{outcome} in {count}' for outcome, count in counts.items())
    return dataclasses.replace(
        verdict,
        template=f'{verdict.template} Alone, it {{outcomes}} of {{alone}} runs.',
        numbers=dict(verdict.numbers) | {'outcomes': outcomes, 'alone': len(alone)},
    )


# Tables of heads


def as_runs(tables: Runs) -> list[HeadTable]:
    """Return the tables of each run; a single table is that of a single run."""
    return [tables] if isinstance(tables, HeadTable) else list(tables)


def by_layer(table: HeadTable) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over heads [L], and a bound of its standard error [L]."""
    return table.mean.mean(axis=1, dtype=np.float64), error_of(table).mean(axis=1)


def whole_model(table: HeadTable) -> tuple[float, float]:
    """Return the mean over all heads, and a bound of its standard error."""
    return float(table.mean.mean()), float(error_of(table).mean())


def error_of(table: HeadTable) -> np.ndarray:
    """Return standard errors [L, N]; what float32 leaves of an exact 0 is none."""
    return table.standard_error.astype(np.float64) + ROUNDING


def combined(
    weights: np.ndarray, mean: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of layers, one for each row of the weights, and a bound of their errors."""
    return weights @ mean, np.abs(weights) @ error


def margin(freedom: float | int) -> float:
    """Return how many standard errors a 95 % interval reaches."""
    return float(scipy.stats.t.ppf(1 - LEVEL / 2, freedom))


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
    reach = np.maximum(np.abs(high - estimate), 1e-12)
    return 2 * scipy.stats.t.sf((bound - estimate) / reach * margin(freedom), freedom)


def capped(p_value: float) -> float:
    """Return a corrected p-value as one of at most 1."""
    return float(np.minimum(p_value, 1.0))


# Sentences

# The number that decides, over several runs.
MEDIAN = ' That is the median of {runs} runs; the verdict is about most of them.'
MEAN = ' That is the mean of {runs} runs.'
TOO_FEW_RUNS = ' {runs:fine-tuning|fine-tunings} {runs:|is|are} too few; a test needs {needed}.'


def decisive(claim: Claim, interval: tuple[float, float, float]) -> str:
    """Return the template of the number that decides, and of what the claim needs."""
    return (
        f'The {{what}} is {with_interval(claim, interval)}. '
        f'The claim needs {claim.side} than {{threshold:g}}.'
    )


def with_interval(claim: Claim, interval: tuple[float, float, float]) -> str:
    """Return the part of a template that shows the estimate and its interval."""
    spec, unit = ('+z.2f', ' points') if claim.unit == 'points' else ('z.3f', '')
    _, low, high = interval
    ends = f' ({{low:{spec}}} to {{high:{spec}}})'
    if np.isinf(high):
        ends = f' ({{low:{spec}}} or more)'
    return f'{{estimate:{spec}}}{unit}' + ends * bool(np.isfinite(low))


def layers_named(first: int, last: int) -> str:
    """Return the name of some layers, counted from 1."""
    return f'layer {first}' if first == last else f'layers {first} to {last}'
