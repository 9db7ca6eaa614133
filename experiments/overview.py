"""Several tasks side by side: headline numbers, and which claims hold (`reproduce`)."""

from collections.abc import Sequence

import numpy as np

from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.report import tables
from bert_secrets_jax.report.html import Section, Table
from experiments import finetune
from experiments.claims import Ablated, Measured, verdicts
from experiments.study import Study

_COLUMNS = (
    'task',
    'metric',
    'fine-tuned',
    'paper: BERT-base',
    'two layers that change most (similarity)',
    'best head to lose',
    'worst head to lose',
    'heads needed / better without (Holm)',
    'best layer to lose',
    'worst layer to lose',
)


def section(studies: Sequence[Study]) -> Section:
    """Read what the sections have left; '–' stands for what they have not."""
    measured = [Measured(study) for study in studies]
    names = [study.glue_task.title for study in studies]
    rows = [(name, *_numbers(of)) for name, of in zip(names, measured, strict=True)]
    tables.write_csv(studies[0].workdir.parent / 'tasks.csv', _COLUMNS, rows)
    found = [verdicts(of) for of in measured]
    by_claim = [
        (of_tasks[0].claim.text, of_tasks[0].claim.source, *(each.verdict for each in of_tasks))
        for of_tasks in zip(*found, strict=True)
    ]
    return Section(
        'All tasks',
        [
            'Scores are x 100, what disabling changes is in points of the same metric, on the '
            'examples that the best and the worst were chosen on; the sections below have '
            'intervals and corrected p-values.'
        ],
        [
            Table('', _COLUMNS, rows),
            Table('Which claims of the paper hold.', ('claim', 'in the paper', *names), by_claim),
        ],
    )


def _numbers(of: Measured) -> tuple[str, ...]:
    study, metric, tuned, layers = of.study, '–', '–', '–'
    if 'pretrained' in of.scores:
        outcome = finetune.run(study, 'pretrained')
        metric = '/'.join(TITLES[name] for name in outcome['metrics'])
        tuned = finetune.spread(finetune.dev_rows(outcome['history']), outcome['metrics'])
    if of.changes:
        similar = np.mean([run['cosine'].mean for run in of.changes.values()], axis=(0, 2))
        layers = ', '.join(
            f'L{layer + 1} ({similar[layer]:.3f})' for layer in np.argsort(similar)[:2]
        )
    return (
        metric,
        tuned,
        finetune.published(study)['last'],
        layers,
        *_extremes(of.heads),
        '–' if of.heads is None else ' / '.join(map(str, of.heads.found.significant())),
        *_extremes(of.layers),
    )


def _extremes(ablated: Ablated | None) -> tuple[str, str]:
    """Return the masks with the highest and the lowest score."""
    if ablated is None or np.isnan(ablated.found.difference).all():
        return '–', '–'
    difference = ablated.found.difference
    name = lambda index: f'{ablated.names[index]} {100 * difference[index]:+.1f}'
    return name(np.nanargmax(difference)), name(np.nanargmin(difference))
