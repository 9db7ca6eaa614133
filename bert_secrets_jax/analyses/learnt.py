"""The warning about a model that has learnt nothing: whatever is said of its heads is noise."""

import dataclasses
from collections.abc import Iterator, Sequence

from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.finetune.outcome import LEVEL
from bert_secrets_jax.runs.result import Finding

_SOURCES = {
    'matthews': "Fisher's exact test",
    'accuracy': 'exact binomial test',
    'word_accuracy': "Student's t-test over texts",
    'answer_f1': "Student's t-test over texts",
}
_BARS = {
    'accuracy': "the larger class's share of {:.1f}",
    'word_accuracy': "the most frequent tag's share of {:.1f}",
    'answer_f1': 'that of answers at the same places in other texts',
}


def learnt_nothing(p: float) -> bool:
    """Return whether a model is not significantly better than without learning, at 5 %.

    Args:
      p: The p-value from `finetune.outcome.p_learnt`. NaN counts as nothing.
    """
    return not p <= LEVEL


def not_learnt(
    which: str, metric: str, value: float, larger_class: float, p: float, examples: int
) -> Finding:
    """Return the warning, which stands before everything else.

    Args:
      which: The beginning of the sentence after 'Not learnt: ', such as 'with seed 0, the
        fine-tuned model'.
      metric: The metric that is tested (`finetune.metrics.tested`).
      value: Its value.
      larger_class: The share of the more frequent class.
      p: The p-value from `finetune.outcome.p_learnt`.
      examples: The number of examples.
    """
    return Finding(
        name='the task was not learnt',
        warning=True,
        estimate=100 * value,
        unit=f'{TITLES[metric]} x 100',
        sample=examples,
        source=_SOURCES.get(metric, 'test of a zero correlation'),
        template=(
            'Not learnt: {which} has {title} {estimate:.1f}, not significantly above {bar} '
            '(p = {p:.2g}); what follows about heads is noise.'
        ),
        p=p,
        numbers={
            'which': which,
            'title': TITLES[metric],
            'bar': _BARS.get(metric, 'zero').format(100 * larger_class),
        },
    )


def seeds_not_learnt(
    seeds: Sequence[int],
    tests: Sequence[tuple[str, float, float, float]],
    model: str,
    examples: int,
) -> Iterator[Finding]:
    """Yield the warning about each of several models that has learnt nothing.

    Args:
      seeds: The seed of each model.
      tests: The test of each model: the metric, its value, the share of the more frequent class,
        and the p-value.
      model: A name for any of them, such as 'the model'.
      examples: The number of examples.
    """
    for seed, test in zip(seeds, tests, strict=True):
        if learnt_nothing(test[-1]):
            found = not_learnt(f'with seed {seed}, {model}', *test, examples)
            yield dataclasses.replace(found, name=f'{found.name}: seed {seed}')
