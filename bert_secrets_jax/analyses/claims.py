"""Which claims of the paper hold for a model, judged from the results of other analyses."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import Ablated, Ablation
from bert_secrets_jax.analyses.attention_change import READINGS, AttentionChange
from bert_secrets_jax.analyses.cls_tokens import ClsTokens
from bert_secrets_jax.analyses.features import Features
from bert_secrets_jax.analyses.finetuning import Finetuning
from bert_secrets_jax.analyses.frames import FRAMES_DIRECTION, Frames
from bert_secrets_jax.analyses.patterns import ALL_SPECIAL, NAMES, Patterns
from bert_secrets_jax.analyses.relations import Relations
from bert_secrets_jax.analyses.special_tokens import SpecialTokens
from bert_secrets_jax.analyses.tables import Tables
from bert_secrets_jax.analyses.verdicts import Claim, Verdict
from bert_secrets_jax.measure.catalogue import FEATURES, RELATIONS, from_cls
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import directions
from bert_secrets_jax.runs.result import Finding, Result, Subject, framed

T = TypeVar('T', bound=Result)
Run = TypeVar('Run')
# The paper's linguistic features; punctuation is not among them.
_FEATURES = tuple(name for name in FEATURES if name != 'punctuation')
_ORDER = (
    verdicts.HOLDS,
    verdicts.DOES_NOT_HOLD,
    verdicts.UNDECIDED,
    verdicts.NOT_MEASURED,
)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Claims(Result):
    """The verdicts on the claims of the paper.

    Attributes:
      subject: The names of the model, the texts and the task.
      verdicts: The verdict on each claim.
      unlearnt: The seeds whose fine-tuned model has learnt nothing. If there are any, the verdicts
        on fine-tuned models describe noise.
      disabled_unlearnt: Whether the model whose heads were disabled has learnt nothing.
    """

    subject: Subject
    verdicts: tuple[Verdict, ...]
    unlearnt: tuple[int, ...] = ()
    disabled_unlearnt: bool = False

    @property
    def title(self) -> str:
        return 'Which claims of the paper hold for this model'

    def frames(self):
        rows = [
            (
                each.claim.text, each.claim.source, each.verdict, each.evidence, each.what,
                each.estimate, each.low, each.high, each.unit, each.threshold, each.sample,
                each.sample_of,
            )
            for each in self.verdicts
        ]  # fmt: skip
        columns = (
            'claim', 'source', 'verdict', 'evidence', 'what', 'estimate', 'low', 'high', 'unit',
            'threshold', 'sample', 'sample_of',
        )  # fmt: skip
        frame = framed(columns, rows, 'Each claim with its verdict and the number that decides.')
        # A person reads these columns; the file has all of them.
        frame.attrs['shown'] = ['claim', 'source', 'verdict', 'evidence']
        return {'claims': frame}

    def findings(self):
        counts = Counter(each.verdict for each in self.verdicts)
        parts = [f'{counts[verdict]} x "{verdict}"' for verdict in _ORDER if counts[verdict]]
        warning = ''
        if self.unlearnt:
            seeds = ', '.join(map(str, self.unlearnt))
            warning = (
                f'The fine-tuned model has not learnt its task (seed {seeds}): verdicts on '
                'fine-tuned models describe noise. '
            )
        elif self.disabled_unlearnt:
            warning = (
                'The model whose heads were disabled has not learnt its task: verdicts on that '
                'describe noise. '
            )
        return [
            Finding(
                name='claims that hold',
                estimate=counts[verdicts.HOLDS],
                unit='claims',
                sample=len(self.verdicts),
                sample_of='claims',
                source='Kovaleva et al. 2019',
                template='{warning}{sample} claims: {counts}.',
                numbers={'counts': ', '.join(parts), 'warning': warning},
            )
        ]

    def notes(self):
        return [
            'A claim holds where its contrary is refuted at the usual level of one in twenty, does '
            'not hold where it is refuted itself, and is undecided at this sample size otherwise. '
            'The sample is the examples: another fine-tuned model may differ by more.'
        ]


def claims(*results: Result, subject: Subject | None = None) -> Claims:
    """Test the claims of the paper on the results of other analyses.

    Args:
      *results: The results of any analyses of `bs.analyses` for one model, in any order; of several
        from one analysis, the first is used. The verdict on a claim that none of them measured is
        'not measured'.
      subject: The names of the model, the texts and the task, for sentences and captions.

    Raises:
      TypeError: An argument is not a result.
    """
    for result in results:
        if not isinstance(result, Result):
            raise TypeError(
                f'{type(result).__name__} is not a result: give what functions of `bs.analyses` '
                'return.'
            )
    measured = Measured(tuple(results))
    found = tuple(
        test(measured) or verdicts.not_measured(claim, needs)
        for claim, (test, needs) in _TESTS.items()
    )
    finetuning = measured.first(Finetuning)
    unlearnt = () if finetuning is None else tuple(finetuning.unlearnt)
    ablation = measured.first(Ablation)
    return Claims(
        subject or Subject(), found, unlearnt, ablation is not None and not ablation.learnt
    )


@dataclasses.dataclass(frozen=True)
class Measured:
    """The results that claims are tested on.

    Its methods and properties give None or an empty dictionary where no result has the numbers.

    Attributes:
      results: The results of the analyses.
    """

    results: tuple[Result, ...]

    def first(self, kind: type[T]) -> T | None:
        """Return the first result of a kind; None if there is none."""
        return next((each for each in self.results if isinstance(each, kind)), None)

    def models(self, kind: type[T]) -> dict[str, Tables]:
        """Return the tables in the first result of a kind, by the name of the model.

        The models are the fine-tuned ones ('Fine-tuned, seed 0') or, if the result has none, the
        model before fine-tuning. Without such a result, there are none.

        Args:
          kind: A class of results with the fields `before` and `runs`.
        """
        result = self.first(kind)
        if result is None:
            return {}
        if result.runs:
            return {f'Fine-tuned, seed {seed}': run for seed, run in result.runs.items()}
        return {'The model as it is': result.before}

    @property
    def special(self) -> dict[str, Tables]:
        """The tables of attention to [CLS] and [SEP], by the name of the model as in `models`.

        They are those of `Features` or, without such a result, of `SpecialTokens`.
        """
        found = self.models(Features)
        if found:
            return found
        special = self.first(SpecialTokens)
        if special is None or not {'[CLS]', '[SEP]'} <= special.tables.keys():
            return {}
        return {'The model as it is': special.tables}

    @property
    def scores(self) -> dict[str, list[float]]:
        """The score of each run after the last epoch, on the task's own metric, by the start.

        The start is 'pretrained' or 'random'.
        """
        result = self.first(Finetuning)
        if result is None:
            return {}
        metric = result.metrics[0]
        return {start: [row[metric] for row in runs.last] for start, runs in result.starts.items()}

    def ablated(self, name: str) -> Ablated | None:
        """Return the effects of a set of masks, such as 'heads'; None if they are not measured."""
        result = self.first(Ablation)
        return None if result is None else result.sets.get(name)


def _in_runs(runs: Mapping[str, Run], test: Callable[[Run], Verdict]) -> Verdict | None:
    if not runs:
        return None
    return verdicts.in_all_runs({name: test(run) for name, run in runs.items()})


def _known(tables: Tables, titles: Mapping[str, str]) -> dict[str, HeadTable]:
    """Return tables by title, of what at least two examples have."""
    return {
        title: tables[name]
        for name, title in titles.items()
        if name in tables and tables[name].count > 1
    }


def _last_layers(measured: Measured) -> Verdict | None:
    change = measured.first(AttentionChange)
    if change is None or 'paper' not in change.readings:
        return None
    runs = {f'Fine-tuned, seed {seed}': run for seed, run in change.readings['paper'].items()}
    return _in_runs(runs, lambda run: verdicts.last_layers_change_most(run[READINGS['paper']]))


def _pretraining(measured: Measured) -> Verdict | None:
    scores = measured.scores
    return verdicts.pretraining_helps(**scores) if len(scores) == 2 else None


def _cls_then_sep(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.special,
        lambda run: verdicts.attention_moves_from_cls_to_sep(run['[CLS]'], run['[SEP]']),
    )


def _vertical(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.models(Patterns),
        lambda run: verdicts.vertical_patterns_are_special(run[NAMES[0]].mean, run[ALL_SPECIAL]),
    )


def _features(measured: Measured) -> Verdict | None:
    titles = {name: name for name in _FEATURES}
    runs = {name: run for name, run in measured.models(Features).items() if _known(run, titles)}
    return _in_runs(
        runs,
        lambda run: verdicts.features_are_negligible(
            run['[CLS]'], run['[SEP]'], _known(run, titles)
        ),
    )


def _last_cls(measured: Measured) -> Verdict | None:
    titles = {from_cls(name): name for name in ('[SEP]', '[CLS]', *FEATURES)}
    runs = {
        name: run
        for name, run in measured.models(ClsTokens).items()
        if len(_known(run, titles)) > 1
    }
    return _in_runs(runs, lambda run: verdicts.cls_attends_most_to_sep(_known(run, titles)))


def _frames(measured: Measured) -> Verdict | None:
    frames = measured.first(Frames)
    test = None if frames is None else frames.tests.get(FRAMES_DIRECTION)
    return verdicts.heads_follow_links(test) if test else None


def _frame_heads(measured: Measured) -> Verdict | None:
    frames, ablated = measured.first(Frames), measured.ablated('heads')
    test = None if frames is None else frames.tests.get(FRAMES_DIRECTION)
    if test is None or ablated is None:
        return None
    best = np.argsort(-test.table.mean, axis=None, kind='stable')[:2].tolist()
    return verdicts.heads_are_not_needed(
        ablated.found, best, ablated.names, unseen=ablated.unseen, examples=ablated.examples
    )


def _relation(claim: Claim, relation: str, measured: Measured) -> Verdict | None:
    relations = measured.first(Relations)
    if relations is None:
        return None
    found = {
        title: test for title, test in relations.tests.items() if title in directions([relation])
    }
    return verdicts.position_explains(claim, found) if found else None


def _mask_helps(claim: Claim, name: str, measured: Measured) -> Verdict | None:
    ablated = measured.ablated(name)
    if ablated is None:
        return None
    return verdicts.some_mask_helps(
        claim, ablated.found, ablated.names, unseen=ablated.unseen, examples=ablated.examples
    )


_VERB_SUBJECT, _NOUN_PRONOUN = RELATIONS
# The test of each claim, and the measurements that it needs.
_TESTS: dict[Claim, tuple[Callable[[Measured], Verdict | None], str]] = {
    verdicts.PRETRAINING: (_pretraining, 'fine-tuning from both starts, pre-trained and random'),
    verdicts.LAST_LAYERS: (_last_layers, 'attention_change in the reading of the paper'),
    verdicts.CLS_THEN_SEP: (_cls_then_sep, 'special_tokens or features'),
    verdicts.VERTICAL: (_vertical, 'patterns'),
    verdicts.FEATURES: (_features, 'features'),
    verdicts.LAST_CLS: (_last_cls, 'cls_tokens'),
    verdicts.FRAMES: (_frames, 'frames'),
    verdicts.VERB_SUBJECT: (
        functools.partial(_relation, verdicts.VERB_SUBJECT, _VERB_SUBJECT),
        'relations',
    ),
    verdicts.NOUN_PRONOUN: (
        functools.partial(_relation, verdicts.NOUN_PRONOUN, _NOUN_PRONOUN),
        'relations',
    ),
    verdicts.HEAD_HELPS: (
        functools.partial(_mask_helps, verdicts.HEAD_HELPS, 'heads'),
        'ablation of heads',
    ),
    verdicts.LAYER_HELPS: (
        functools.partial(_mask_helps, verdicts.LAYER_HELPS, 'layers'),
        'ablation of layers',
    ),
    verdicts.FRAME_HEADS: (_frame_heads, 'frames and ablation of heads'),
}
