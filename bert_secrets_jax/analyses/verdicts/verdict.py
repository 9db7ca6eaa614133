"""From p-values to verdicts and their sentences: what all tests of claims share.

Each test gives the p-values of two hypotheses: that the claim is false, and that it is true. One of
the two is true, so that a verdict is wrong at most once in twenty; and at most one of the two is
small. What holds of several fine-tunings is said in `stats.over_runs`.

Shapes: P parts of a claim, K statistics, L layers, N heads.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.runs.result import Interval
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
from bert_secrets_jax.stats.over_runs import (
    FEWEST,
    FEWEST_FOR_MOST,
    ROUNDING,
    Contrasts,
    Count,
    all_above,
    contrasts,
)
from bert_secrets_jax.stats.student import LEVEL

_FIELDS = {field.name for field in dataclasses.fields(Verdict)}
# A table of one model, or one for each fine-tuned model.
Runs = HeadTable | Sequence[HeadTable]


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
    interval: Interval,
    template: str = '',
    *,
    more: str = '',
    sample: Count,
    otherwise: str = UNDECIDED,
    **fields: Any,
) -> Verdict:
    """Return a verdict of Python's own numbers.

    P-values are those if the claim is false, and if it is true; above 1, they count as 1. An
    interval begins with the estimate, and both stand where the template has '{number}'. Without a
    template, it tells them and the threshold; `more` follows it. `otherwise` is the verdict where
    neither p-value decides. Fields that no `Verdict` has are further numbers of the sentence.
    """
    template = (
        template
        or f'The {{what}} is {{number}}. The claim needs {claim.side} than {{threshold:g}}.'
    )
    p_if_false, p_if_true = (float(np.minimum(each, 1.0)) for each in p_values)
    estimate, low, high = map(float, interval)
    decided = DOES_NOT_HOLD if p_if_true <= LEVEL else otherwise
    known = {name: fields.pop(name) for name in _FIELDS & fields.keys()}
    return Verdict(
        claim=claim,
        verdict=HOLDS if p_if_false <= LEVEL else decided,
        template=template.replace('{number}', _with_interval(claim, interval)) + more,
        estimate=estimate,
        low=low,
        high=high,
        p_if_false=p_if_false,
        p_if_true=p_if_true,
        sample=round(float(sample)),
        numbers={
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in fields.items()
        },
        **{'unit': claim.unit, 'threshold': claim.threshold} | known,
    )


def verdict_on(
    claim: Claim,
    found: Contrasts,
    what: str,
    template: str = '',
    *,
    more: str = '',
    p_values: tuple[float, float] | None = None,
    interval: Interval | None = None,
    **fields: Any,
) -> Verdict:
    """Return the verdict on a claim that holds where all parts are above 0.

    Args:
      what: The noun phrase that names the estimate.
      template, more, fields: As in `verdict_of`.
      p_values: None takes those of `all_above`.
      interval: None takes the part that is least in favour of the claim, plus the threshold.
    """
    if interval is None:
        interval = found.typical(found.least, offset=claim.threshold)
        if claim.side == 'less':
            estimate, low, high = found.typical(found.least, offset=-claim.threshold)
            interval = -estimate, -high, -low
    p_values, several = p_values or all_above(found), found.runs >= FEWEST_FOR_MOST
    population = THIS_MODEL if found.runs == 1 else MOST_FINETUNINGS if several else THESE_MODELS
    known: dict[str, Any] = {'sample': found.examples, 'population': population} | fields
    if several:
        known |= {'sample': found.runs, 'sample_of': 'runs', 'runs': found.runs} | fields
        more += MEDIAN if known['population'] != ANY_FINETUNING else MEAN
    if found.examples < FEWEST:
        more += ' {examples:example|examples} {examples:|is|are} too few; a test needs {least}.'
        known |= {'examples': round(found.examples), 'least': FEWEST, 'otherwise': TOO_FEW}
    elif known['population'] == THESE_MODELS:
        more += TOO_FEW_RUNS
        known |= {'runs': found.runs, 'needed': FEWEST_FOR_MOST, 'otherwise': TOO_FEW}
        p_values = math.nan, math.nan
    return verdict_of(claim, p_values, interval, template, more=more, what=what, **known)


def in_all_runs(verdict: Verdict, alone: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict on several runs, with what each of them says alone, by its name."""
    if len(alone) == 1:
        return with_more(verdict, ' Model: {run}.', run=next(iter(alone)))
    phrases = {UNDECIDED: 'is undecided', NOT_MEASURED: 'is not measured', TOO_FEW: f'is {TOO_FEW}'}
    counts = Counter(phrases.get(each.verdict, each.verdict) for each in alone.values())
    outcomes = ' and '.join(f'{outcome} in {count}' for outcome, count in counts.items())
    said = ' Alone, it {outcomes} of {alone} runs.'
    return with_more(verdict, said, outcomes=outcomes, alone=len(alone))


def with_more(verdict: Verdict, sentence: str, **numbers: float | int | str) -> Verdict:
    """Return a verdict with a sentence more, and with its numbers."""
    known = dict(verdict.numbers) | numbers
    return dataclasses.replace(verdict, template=verdict.template + sentence, numbers=known)


def as_runs(tables: Runs) -> list[HeadTable]:
    """Return the tables of each run; a single table is that of a single run."""
    return [tables] if isinstance(tables, HeadTable) else list(tables)


def error_of(table: HeadTable) -> np.ndarray:
    """Return standard errors [L, N]; what float32 leaves of an exact 0 is none."""
    return table.standard_error.astype(np.float64) + ROUNDING


def sums_of_layers(
    weights: Float[np.ndarray, 'P K L'], *tables: Runs
) -> list[tuple[Float[np.ndarray, ' P'], Float[np.ndarray, ' P']]]:
    """Return sums of layers, with a bound of their errors, for each run.

    Each row of the weights is a sum of the means over heads in layers of K statistics.
    """
    found = []
    for run in zip(*map(as_runs, tables), strict=True):
        mean = np.stack([table.mean.mean(axis=1, dtype=np.float64) for table in run])
        error = np.stack([error_of(table).mean(axis=1) for table in run])
        sums = (weights * mean, np.abs(weights) * error)
        # Nothing may be known of a layer that does not count.
        found.append(tuple(each.sum(axis=(1, 2), where=weights != 0) for each in sums))
    return found


def on_layers(claim: Claim, weights: Float[np.ndarray, 'P K L'], *tables: Runs) -> Contrasts:
    """Return the parts of a claim on such sums, each of which is on its side of the threshold."""
    sign = 1 if claim.side == 'more' else -1
    return contrasts(
        sums_of_layers(sign * weights, *tables),
        min(as_runs(each)[0].count for each in tables),
        above=sign * claim.threshold,
    )


# The number that decides, over several runs.
MEDIAN = ' That is the median of {runs} runs; the verdict is about most of them.'
MEAN = ' That is the mean of {runs} runs.'
TOO_FEW_RUNS = ' {runs:fine-tuning|fine-tunings} {runs:|is|are} too few; a test needs {needed}.'


def _with_interval(claim: Claim, interval: Interval) -> str:
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


# Models that were fine-tuned by one recipe

Run = TypeVar('Run')
Tables = Mapping[str, HeadTable]


def named_runs(runs: Mapping[str, Run], before: Run | None = None) -> dict[str, Run]:
    """Return what was measured of each model by its name, such as 'Fine-tuned, seed 0'.

    Without fine-tuned models it is that of the model before, if there is any.
    """
    if before is not None and not runs:
        return {'The model as it is': before}
    return {f'Fine-tuned, seed {seed}': run for seed, run in runs.items()}


def on_runs(runs: Mapping[str, Run], test: Callable[[Sequence[Run]], Verdict]) -> list[Verdict]:
    """Return the verdict, if any, on all runs together, with what each of them says alone."""
    if not runs:
        return []
    alone = {name: test([run]) for name, run in runs.items()}
    together = test(list(runs.values())) if len(runs) > 1 else next(iter(alone.values()))
    return [in_all_runs(together, alone)]


def each_of(runs: Sequence[Tables], name: str) -> list[HeadTable]:
    """Return the table of a statistic in each run."""
    return [run[name] for run in runs]


def known(tables: Tables, titles: Mapping[str, str]) -> dict[str, HeadTable]:
    """Return tables, of what at least two examples have, by their titles."""
    return {
        title: tables[name]
        for name, title in titles.items()
        if name in tables and tables[name].count > 1
    }


def known_in_all(runs: Sequence[Tables], titles: Mapping[str, str]) -> dict[str, list[HeadTable]]:
    """Return the same for several models of the same texts."""
    found = [known(run, titles) for run in runs]
    return {title: [each[title] for each in found] for title in found[0]}
