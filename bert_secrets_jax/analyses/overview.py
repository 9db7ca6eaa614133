"""Several tasks side by side: headline numbers, and which claims hold."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import Ablated, Ablation
from bert_secrets_jax.analyses.attention_change import AttentionChange
from bert_secrets_jax.analyses.claims import Claims, claims, claims_over_tasks, verdicts_frame
from bert_secrets_jax.analyses.finetuning import Finetuning, shown, spread
from bert_secrets_jax.analyses.verdicts import Verdict
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.runs.result import Result, framed

if TYPE_CHECKING:
    import pandas

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
      over_tasks: The verdicts on the claims that are about several tasks, by the name of the model.
    """

    FORMAT: ClassVar[int] = 2

    rows: tuple[tuple[str, ...], ...]
    claims: Mapping[str, Claims]
    over_tasks: Mapping[str, tuple[Verdict, ...]]

    @property
    def title(self) -> str:
        return 'All tasks'

    def frames(self):
        corrected = self.corrected
        by_claim: dict[str, dict[str, str]] = {}
        for claim, task, verdict, p_value, adjusted, after, _ in corrected:
            shown = verdict if np.isnan(p_value) else f'{after} (p = {p_value:.2g}; {adjusted:.2g})'
            by_claim.setdefault(claim, {})[task] = shown
        sources = {
            each.claim.text: each.claim.source
            for found in self.claims.values()
            for each in found.verdicts
        }
        over_tasks = []
        for model, found in self.over_tasks.items():
            frame = verdicts_frame(found)
            frame.insert(0, 'model', model)
            frame.attrs['shown'] = ['model', *frame.attrs['shown']]
            frame.attrs['caption'] = 'Each claim about several tasks, with its verdict.'
            over_tasks.append(frame)
        return {
            'tasks': framed(_COLUMNS, self.rows),
            'claims': framed(
                ('claim', 'source', *self.claims),
                [
                    (
                        claim,
                        source,
                        *(by_claim[claim].get(task, verdicts.NOT_MEASURED) for task in self.claims),
                    )
                    for claim, source in sources.items()
                ],
                'Which claims of the paper hold, after the correction for all claims and tasks. In '
                'brackets the p-value of the single test, and the corrected one.',
            ),
            'claims_corrected': framed(
                (
                    'claim', 'task', 'verdict', 'p', 'p_corrected', 'verdict_corrected', 'for',
                ),
                corrected,
                'Every test of every claim, alone and corrected.',
            ),
            'claims_over_tasks': _joined(over_tasks),
        }  # fmt: skip

    @property
    def corrected(self) -> list[tuple[str, str, str, float, float, str, str]]:
        """Each test: claim, task, verdict, p-value, the corrected ones, and for what it is.

        The tests are in the order of the claims. Those about several tasks are the last, with the
        model in place of the task.
        """
        # Those of Clark et al. are only tested where their measurements are.
        each_claim = dict.fromkeys(
            verdict.claim for found in self.claims.values() for verdict in found.verdicts
        )
        tests = [
            (name, verdict)
            for claim in each_claim
            for name, found in self.claims.items()
            for verdict in found.verdicts
            if verdict.claim == claim
        ]
        tests += [(name, each) for name, found in self.over_tasks.items() for each in found]
        adjusted = verdicts.corrected(
            [verdict.claim for _, verdict in tests], [verdict.p for _, verdict in tests]
        )
        return [
            (
                verdict.claim.text, name, verdict.verdict, verdict.p, float(p_value),
                verdict.after(float(p_value)), verdict.population,
            )
            for (name, verdict), p_value in zip(tests, adjusted, strict=True)
        ]  # fmt: skip

    def notes(self):
        return [
            'Scores are times a hundred, and what disabling changes is in points of the same '
            'metric, on the examples that the best and the worst were chosen on; the sections '
            'below have intervals and corrected p-values.',
            'Claims are tested on every task, so some would come out by chance. They are corrected '
            'in two levels, first for the number of claims and then for the tests of a claim '
            '(Benjamini and Bogomolov). What counts after that is wrong on average in at most one '
            'in twenty of the claims that are decided on some task.',
        ]


def overview(tasks: Mapping[str, Sequence[Result]]) -> Overview:
    """Put the results on several tasks side by side.

    Args:
      tasks: The results on each task, by its name. To compare models too, name the results after
        both, such as 'MiniLM, MRPC': all claims are then corrected together.

    Raises:
      ValueError: There is no task.
    """
    if not tasks:
        raise ValueError('At least one task is needed.')
    rows = tuple((name, *_numbers(name, results)) for name, results in tasks.items())
    found = {name: claims(*results) for name, results in tasks.items()}
    return Overview(rows, found, claims_over_tasks(tasks))


def _joined(frames: 'Sequence[pandas.DataFrame]') -> 'pandas.DataFrame':
    """Return frames with the same columns as one; caption and shown columns are the first one's."""
    import pandas

    joined = pandas.concat(frames, ignore_index=True)
    joined.attrs = frames[0].attrs
    return joined


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
