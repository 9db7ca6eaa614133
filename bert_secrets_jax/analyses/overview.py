"""Several tasks side by side: headline numbers, and which claims hold."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses.ablation import Ablated, Ablation
from bert_secrets_jax.analyses.attention_change import AttentionChange
from bert_secrets_jax.analyses.claims import Claims, claims
from bert_secrets_jax.analyses.finetuning import Finetuning, shown, spread
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.runs.result import Result, framed

T = TypeVar('T', bound=Result)
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


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Overview(Result):
    """Several tasks side by side.

    Attributes:
      rows: The row of each task: its name and headline numbers as texts. A dash stands for a number
        that was not measured.
      claims: The verdicts on the claims, by the name of the task.
    """

    rows: tuple[tuple[str, ...], ...]
    claims: Mapping[str, Claims]

    @property
    def title(self) -> str:
        return 'All tasks'

    def frames(self):
        verdicts = [each.verdicts for each in self.claims.values()]
        by_claim = [
            (row[0].claim.text, row[0].claim.source, *(each.verdict for each in row))
            for row in zip(*verdicts, strict=True)
        ]
        return {
            'tasks': framed(_COLUMNS, self.rows),
            'claims': framed(
                ('claim', 'source', *self.claims), by_claim, 'Which claims of the paper hold.'
            ),
        }

    def notes(self):
        return [
            'Scores are times a hundred, and what disabling changes is in points of the same '
            'metric, on the examples that the best and the worst were chosen on; the sections '
            'below have intervals and corrected p-values.'
        ]


def overview(tasks: Mapping[str, Sequence[Result]]) -> Overview:
    """Put the results on several tasks side by side.

    Args:
      tasks: The results on each task, by its name.

    Raises:
      ValueError: There is no task.
    """
    if not tasks:
        raise ValueError('At least one task is needed.')
    rows = tuple((name, *_numbers(name, results)) for name, results in tasks.items())
    return Overview(rows, {name: claims(*results) for name, results in tasks.items()})


def _first(results: Sequence[Result], kind: type[T]) -> T | None:
    return next((each for each in results if isinstance(each, kind)), None)


def _numbers(name: str, results: Sequence[Result]) -> tuple[str, ...]:
    tuned = _first(results, Finetuning)
    change = _first(results, AttentionChange)
    ablation = _first(results, Ablation)
    metric = score = layers = '–'
    if tuned is not None and 'pretrained' in tuned.starts:
        metric = '/'.join(TITLES[each] for each in tuned.metrics)
        score = spread(tuned.starts['pretrained'].last, tuned.metrics)
    if change is not None and 'paper' in change.readings:
        similar = change.grids['paper'].mean(axis=1)
        layers = ', '.join(
            f'L{layer + 1} ({similar[layer]:.3f})' for layer in np.argsort(similar)[:2]
        )
    published = paper.finetuning(name)
    sets = {} if ablation is None else ablation.sets
    heads = sets.get('heads')
    return (
        metric,
        score,
        '–' if published is None else shown(published.finetuned_from_pretrained),
        layers,
        *_extremes(heads),
        '–' if heads is None else ' / '.join(map(str, heads.found.significant())),
        *_extremes(sets.get('layers')),
    )


def _extremes(ablated: Ablated | None) -> tuple[str, str]:
    """Return the masks with the highest and the lowest score."""
    if ablated is None or np.isnan(ablated.found.difference).all():
        return '–', '–'
    difference, names = ablated.found.difference, ablated.names
    return tuple(
        f'{names[index]} {100 * difference[index]:+.1f}' for index in (ablated.best, ablated.worst)
    )
