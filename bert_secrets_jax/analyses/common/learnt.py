"""Whether a model has learnt anything, and the warning if not: whatever is said then is noise."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from bert_secrets_jax.finetune.metrics import METRICS, TITLES, p_matthews, tested
from bert_secrets_jax.finetune.outcome import LEVEL, p_learnt
from bert_secrets_jax.runs.findings import measured
from bert_secrets_jax.runs.result import Finding

# The metric that is tested (`finetune.metrics.tested`), its value, the share of the most frequent
# class (NaN where a correlation is tested), and the p-value if nothing was learnt.
Learnt = tuple[str, float, float, float]
_SOURCES = {
    'matthews': "Fisher's exact test",
    'accuracy': 'exact binomial test',
    'word_accuracy': "Student's t-test over texts",
    'answer_f1': "Student's t-test over texts",
}
_BARS = {
    'accuracy': 'guessing ({:.1f})',
    'word_accuracy': 'guessing ({:.1f})',
    'answer_f1': 'answers at the same places in other texts',
}


def learning_test(
    metrics: Sequence[str], classes: int, predictions: np.ndarray, labels: np.ndarray
) -> Learnt:
    """Test whether a model has learnt anything, from its predictions [E] and the labels [E].

    The first metric is the most important. One class means regression.
    """
    name = tested(metrics, classes)
    value = METRICS[name](predictions, labels)
    if name == 'matthews':
        return name, value, math.nan, p_matthews(predictions, labels)
    larger = math.nan
    if name == 'accuracy':
        larger = float(np.unique_counts(labels).counts.max() / len(labels))
    return name, value, larger, p_learnt(value, larger, len(labels))


def learnt_nothing(p: float) -> bool:
    """Return whether a model is not significantly better than without learning; NaN is not."""
    return not p <= LEVEL


def not_learnt(
    which: str, test: Learnt, examples: int, *, so: str = 'what follows about heads is noise'
) -> Finding:
    """Return the warning about a model such as 'the model of seed 0', and what follows (`so`)."""
    metric, value, larger_class, p = test
    return measured(
        'the task was not learnt',
        100 * value,
        warning=True,
        unit=f'{TITLES[metric]} x 100',
        sample=examples,
        source=_SOURCES.get(metric, 'test of a zero correlation'),
        template='Not learnt: {which} has {title} {estimate:.1f}, not clearly above {bar}; {so}.',
        p=p,
        which=which,
        title=TITLES[metric],
        so=so,
        bar=_BARS.get(metric, 'zero').format(100 * larger_class),
    )


def unless_noise(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings; after a warning, none that calls a head or a layer best or worst."""
    if not any(each.warning for each in findings):
        return list(findings)
    return [each for each in findings if not re.search(r'\b(best|worst)\b', each.sentence)]


def if_not_learnt(which: str, test: Learnt, examples: int) -> list[Finding]:
    """Return the warning about a model that has learnt nothing, and none about another one."""
    return [not_learnt(which, test, examples)] if learnt_nothing(test[-1]) else []


def seeds_not_learnt(
    seeds: Sequence[int], tests: Sequence[Learnt], model: str, examples: int
) -> Iterator[Finding]:
    """Yield the warning about each model, named such as 'the model', that has learnt nothing."""
    for seed, test in zip(seeds, tests, strict=True):
        for found in if_not_learnt(f'{model} of seed {seed}', test, examples):
            yield dataclasses.replace(found, name=f'{found.name}: seed {seed}')
