"""Which claims of the paper hold for a model, judged from the results of other analyses."""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np

from bert_secrets_jax import paper
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import Ablated, Ablation, instead
from bert_secrets_jax.analyses.ablation_over_seeds import AblationOverSeeds
from bert_secrets_jax.analyses.attention_change import READINGS, AttentionChange
from bert_secrets_jax.analyses.cls_tokens import ClsTokens
from bert_secrets_jax.analyses.contributions import Contributions
from bert_secrets_jax.analyses.features import Features
from bert_secrets_jax.analyses.finetuning import Finetuning
from bert_secrets_jax.analyses.frames import FRAMES_DIRECTION, Frames
from bert_secrets_jax.analyses.look_at import OF_CLS, LookAt
from bert_secrets_jax.analyses.outliers import Outliers
from bert_secrets_jax.analyses.patterns import ALL_SPECIAL, NAMES, UPPER, Patterns
from bert_secrets_jax.analyses.probing import Probing
from bert_secrets_jax.analyses.pruning import Pruning
from bert_secrets_jax.analyses.relations import Relations
from bert_secrets_jax.analyses.special_tokens import SpecialTokens
from bert_secrets_jax.analyses.syntax_heads import SyntaxHeads
from bert_secrets_jax.analyses.tables import Tables
from bert_secrets_jax.analyses.verdicts import Claim, Verdict
from bert_secrets_jax.measure.catalogue import FEATURES, RELATIONS, UNIFORM, from_cls
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import directions
from bert_secrets_jax.names import filled
from bert_secrets_jax.patterns.classes import CLASSES, TITLES
from bert_secrets_jax.runs.result import Badge, Finding, Result, Subject, framed

if TYPE_CHECKING:
    import pandas

T = TypeVar('T', bound=Result)
Run = TypeVar('Run')
# The paper's linguistic features; punctuation is not among them.
_FEATURES = tuple(name for name in FEATURES if name != 'punctuation')
_ORDER = (
    verdicts.HOLDS,
    verdicts.DOES_NOT_HOLD,
    verdicts.UNDECIDED,
    verdicts.TOO_FEW,
    verdicts.NOT_MEASURED,
)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Claims(Result):
    """The verdicts on the claims of the paper, but for those about several tasks (`Comparison`).

    Attributes:
      subject: The names of the model, the texts and the task.
      verdicts: The verdict on each claim.
      unlearnt: The seeds whose fine-tuned model has learnt nothing. If there are any, the verdicts
        on fine-tuned models describe noise.
      disabled_unlearnt: Whether the model whose heads were disabled has learnt nothing.
    """

    FORMAT: ClassVar[int] = 2

    subject: Subject
    verdicts: tuple[Verdict, ...]
    unlearnt: tuple[int, ...] = ()
    disabled_unlearnt: bool = False

    @property
    def title(self) -> str:
        return 'Which claims of the paper hold for this model'

    def frames(self):
        return {'claims': verdicts_frame(self.verdicts)}

    def findings(self):
        counts = Counter(each.verdict for each in self.verdicts)
        parts = [f'{counts[verdict]} x "{verdict}"' for verdict in _ORDER if counts[verdict]]
        warning = ''
        if self.unlearnt:
            seeds = ' and '.join(map(str, self.unlearnt))
            warning = filled(
                'Not learnt: the {count:|model|models} fine-tuned with {count:|seed|seeds} '
                '{seeds}. Verdicts on fine-tuned models describe noise. ',
                {'count': len(self.unlearnt), 'seeds': seeds},
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
                source=', '.join(dict.fromkeys(map(_publication, self.verdicts))),
                template='{warning}{sample:claim|claims}: {counts}.',
                numbers={'counts': ', '.join(parts), 'warning': warning},
            )
        ]

    def badges(self):
        return [
            Badge(each.verdict, each.claim.text, each.evidence)
            for each in self.verdicts
            if each.verdict != verdicts.NOT_MEASURED
        ]

    def notes(self):
        return [
            'A claim holds where its contrary is refuted at the usual level of one in twenty, does '
            'not hold where it is refuted itself, and is undecided at this sample size otherwise. '
            'Where one of the two could not come out whatever the examples say, it is not '
            'decidable with so few.',
            'The column "for" says what a verdict is about. One for '
            f'"{verdicts.THIS_MODEL}" has the examples as its sample, and another fine-tuned model '
            f'may differ by more; one for "{verdicts.ANY_FINETUNING}" rests on an interval over '
            'the seeds of several.',
        ]


def _publication(verdict: Verdict) -> str:
    """Return the paper of a claim, whose source names it unless it is the one of this package."""
    paper_of_others = re.match(r'[A-Z][^,]* \d{4}(?=,)', verdict.claim.source)
    return paper_of_others[0] if paper_of_others else 'Kovaleva et al. 2019'


def verdicts_frame(found: Sequence[Verdict]) -> 'pandas.DataFrame':
    """Return a frame of verdicts, of which a person reads some of the columns.

    Args:
      found: The verdicts.
    """
    rows = [
        (
            each.claim.text, each.claim.source, each.verdict, each.population, each.evidence,
            each.claim.limits, each.what, each.estimate, each.low, each.high, each.unit,
            each.threshold, each.claim.bound, each.p_if_false, each.p_if_true, each.p, each.sample,
            each.sample_of,
        )
        for each in found
    ]  # fmt: skip
    columns = (
        'claim', 'source', 'verdict', 'for', 'evidence', 'does not show', 'what', 'estimate', 'low',
        'high', 'unit', 'threshold', 'threshold_from', 'p_if_false', 'p_if_true', 'p', 'sample',
        'sample_of',
    )  # fmt: skip
    frame = framed(columns, rows, 'Each claim with its verdict and the number that decides.')
    # A person reads these columns; the file has all of them.
    frame.attrs['shown'] = ['claim', 'source', 'verdict', 'for', 'evidence', 'does not show']
    return frame


def claims(*results: Result, subject: Subject | None = None) -> Claims:
    """Test the claims of the paper on the results of other analyses.

    Those of Clark et al. (2019) are tested if a result of `look_at` is among them.

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
        for claim, (test, needs) in _tests(measured).items()
    )
    finetuning = measured.first(Finetuning)
    unlearnt = () if finetuning is None else tuple(finetuning.unlearnt)
    ablation = measured.first(Ablation)
    return Claims(
        subject or Subject(), found, unlearnt, ablation is not None and not ablation.learnt
    )


def claims_over_tasks(tasks: Mapping[str, Sequence[Result]]) -> dict[str, tuple[Verdict, ...]]:
    """Test the claims that are about several tasks at once, for each model.

    Args:
      tasks: The results of the analyses on each task, by its name. Results of several models are
        told apart by the model in their `subject`.

    Returns:
      The verdicts by the name of the model.
    """
    models: dict[str, dict[str, Measured]] = {}
    for results in tasks.values():
        for result in results:
            subject = getattr(result, 'subject', None)
            if isinstance(result, Finetuning | Ablation) and subject.task is not None:
                of_model = models.setdefault(subject.model, {})
                former = of_model.get(subject.task, Measured(()))
                of_model[subject.task] = Measured((*former.results, result))
    if not models:
        models = {Subject().model: {}}
    return {
        model: (
            _gains(measured)
            or verdicts.not_measured(
                verdicts.FINETUNING_GAINS, 'fine-tuning on two tasks of the paper or more'
            ),
            _same_heads(measured)
            or verdicts.not_measured(verdicts.SAME_HEADS, 'ablation of heads on STS-B and RTE'),
        )
        for model, measured in models.items()
    }


def _gains(tasks: Mapping[str, 'Measured']) -> Verdict | None:
    gains = {}
    for task, measured in tasks.items():
        result, published = measured.first(Finetuning), verdicts.published_gain(task)
        if result is None or published is None or 'pretrained' not in result.starts:
            continue
        start, regression = result.starts['pretrained'], bool(np.isnan(result.larger_class))
        metric = 'pearson' if regression else 'accuracy'
        before, after = (
            # Predictions that are all the same have no correlation with anything.
            [float(np.nan_to_num(row[metric])) for row in rows]
            for rows in (start.before, start.last)
        )
        gains[paper.title(task)] = verdicts.Gain(
            before, after, result.dev_examples, regression, published
        )
    return verdicts.finetuning_gains(gains) if len(gains) > 1 else None


def _same_heads(tasks: Mapping[str, 'Measured']) -> Verdict | None:
    effects = {}
    for task, measured in tasks.items():
        title, ablated = paper.title(task), measured.ablated('heads')
        if title in ('STS-B', 'RTE') and ablated is not None:
            effects[title] = ablated.found
    if len(effects) < 2 or len({tuple(each.names) for each in effects.values()}) > 1:
        return None
    return verdicts.same_heads_are_needed({name: effects[name] for name in ('STS-B', 'RTE')})


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

    def over_seeds(self, name: str) -> Ablated | None:
        """Return the same over several fine-tunings; None if no such effects are measured."""
        result = self.first(AblationOverSeeds)
        return None if result is None else result.sets.get(name)

    def effects(self, name: str) -> verdicts.Effects | None:
        """Return the effects of a set of masks for tests of claims; None if they are not measured.

        They are those over fine-tunings where there are enough of them for any to be significant,
        and those on one model otherwise.

        Args:
          name: The name of the set, such as 'heads'.
        """
        several, ablated = self.over_seeds(name), self.ablated(name)
        if several is not None and several.found.seeds.least_p <= verdicts.LEVEL:
            return dataclasses.replace(several.found, sample_of='runs')
        return None if ablated is None else ablated.found

    def instead(self, name: str) -> str:
        """Return a sentence on what disabled heads did; empty if it is what the paper's did.

        Args:
          name: The name of the set of masks.
        """
        for result in (self.first(Ablation), self.first(AblationOverSeeds)):
            if result is not None and name in result.sets and result.baseline != 'uniform':
                return f' {instead(result.baseline)} In the paper, it attends to all tokens alike.'
        return ''


def _in_runs(runs: Mapping[str, Run], test: Callable[[Sequence[Run]], Verdict]) -> Verdict | None:
    """Return the verdict on all runs together, with what each of them says alone."""
    if not runs:
        return None
    alone = {name: test([run]) for name, run in runs.items()}
    together = test(list(runs.values())) if len(runs) > 1 else next(iter(alone.values()))
    return verdicts.in_all_runs(together, alone)


def _each(runs: Sequence[Tables], name: str) -> list[HeadTable]:
    return [run[name] for run in runs]


def _known(tables: Tables, titles: Mapping[str, str]) -> dict[str, HeadTable]:
    """Return tables by title, of what at least two examples have."""
    return {
        title: tables[name]
        for name, title in titles.items()
        if name in tables and tables[name].count > 1
    }


def _known_in_all(runs: Sequence[Tables], titles: Mapping[str, str]) -> dict[str, list[HeadTable]]:
    """Return the same for several models of the same texts."""
    known = [_known(run, titles) for run in runs]
    return {title: [each[title] for each in known] for title in known[0]}


def _last_layers(measured: Measured) -> Verdict | None:
    change = measured.first(AttentionChange)
    if change is None or 'paper' not in change.readings:
        return None
    runs = {f'Fine-tuned, seed {seed}': run for seed, run in change.readings['paper'].items()}
    return _in_runs(
        runs, lambda runs: verdicts.last_layers_change_most(_each(runs, READINGS['paper']))
    )


def _pretraining(measured: Measured) -> Verdict | None:
    scores = measured.scores
    return verdicts.pretraining_helps(**scores) if len(scores) == 2 else None


def _cls_then_sep(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.special,
        lambda runs: verdicts.attention_moves_from_cls_to_sep(
            _each(runs, '[CLS]'), _each(runs, '[SEP]')
        ),
    )


def _vertical(measured: Measured) -> Verdict | None:
    return _in_runs(
        measured.models(Patterns),
        lambda runs: verdicts.vertical_patterns_are_special(
            [run[NAMES[0]].mean for run in runs], _each(runs, ALL_SPECIAL)
        ),
    )


def _features(measured: Measured) -> Verdict | None:
    titles = {name: name for name in _FEATURES}
    runs = {name: run for name, run in measured.models(Features).items() if _known(run, titles)}
    return _in_runs(
        runs,
        lambda runs: verdicts.features_are_negligible(
            _each(runs, '[CLS]'), _each(runs, '[SEP]'), _known_in_all(runs, titles)
        ),
    )


def _last_cls(measured: Measured) -> Verdict | None:
    titles = {from_cls(name): name for name in ('[SEP]', '[CLS]', *FEATURES)}
    runs = {
        name: run
        for name, run in measured.models(ClsTokens).items()
        if len(_known(run, titles)) > 1
    }
    return _in_runs(
        runs, lambda runs: verdicts.cls_attends_most_to_sep(_known_in_all(runs, titles))
    )


def _frames(measured: Measured) -> Verdict | None:
    frames = measured.first(Frames)
    test = None if frames is None else frames.tests.get(FRAMES_DIRECTION)
    return verdicts.heads_follow_links(test) if test else None


def _frame_heads(measured: Measured) -> Verdict | None:
    frames, effects = measured.first(Frames), measured.effects('heads')
    test = None if frames is None else frames.tests.get(FRAMES_DIRECTION)
    if test is None or effects is None:
        return None
    best = np.argsort(-test.table.mean, axis=None, kind='stable')[:2].tolist()
    return _with(measured.instead('heads'), verdicts.heads_are_not_needed(effects, best))


def _relation(claim: Claim, relation: str, measured: Measured) -> Verdict | None:
    relations = measured.first(Relations)
    if relations is None:
        return None
    found = {
        title: test for title, test in relations.tests.items() if title in directions([relation])
    }
    return verdicts.position_explains(claim, found) if found else None


def _mask_helps(claim: Claim, name: str, measured: Measured) -> Verdict | None:
    effects = measured.effects(name)
    if effects is None:
        return None
    return _with(measured.instead(name), verdicts.some_mask_helps(claim, effects))


def _random_head(measured: Measured) -> Verdict | None:
    ablated = measured.over_seeds('heads') or measured.ablated('heads')
    if ablated is None:
        return None
    found = verdicts.a_random_head_helps(ablated.averages, heads=len(ablated.masks))
    return _with(measured.instead('heads'), found)


def _with(sentence: str, verdict: Verdict) -> Verdict:
    """Return a verdict with a sentence more."""
    return dataclasses.replace(verdict, template=verdict.template + sentence)


def _few_heterogeneous(measured: Measured) -> Verdict | None:
    found = measured.first(Patterns)
    if found is None:
        return None
    shares = paper.pattern_shares(found.subject.task)
    published = None if shares is None else sum(shares[CLASSES[index]] for index in UPPER)

    def test(runs: Sequence[Tables]) -> Verdict:
        right = found.correct(runs)
        return verdicts.few_are_heterogeneous(
            {TITLES[index].lower(): _each(runs, NAMES[index]) for index in UPPER},
            published=published,
            corrected=None if right is None else right.together(UPPER),
        )

    return _in_runs(measured.models(Patterns), test)


def _tests(measured: Measured) -> dict[Claim, tuple[Callable[[Measured], Verdict | None], str]]:
    found = dict(_TESTS)
    for kind, tests in _TESTS_BESIDE.items():
        if measured.first(kind) is not None:
            found |= tests
    return found


def _probes(claim: Claim, measured: Measured) -> Verdict | None:
    result = measured.first(Probing)
    return None if result is None else result.verdicts.get(claim)


def _outliers_needed(measured: Measured) -> Verdict | None:
    return measured.first(Outliers).verdict


def _pruned(claim: Claim, measured: Measured) -> Verdict | None:
    return measured.first(Pruning).verdicts.get(claim)


def _relation_heads(measured: Measured) -> Verdict | None:
    found = measured.first(SyntaxHeads)
    if found is None or found.published_gains is None:
        return None
    return verdicts.relations_have_heads(found.published_gains)


def _no_head_for_all(measured: Measured) -> Verdict | None:
    found = measured.first(SyntaxHeads)
    if found is None or found.published_gains is None:
        return None
    return verdicts.no_head_for_all(*found.gain_of(len(found.relations) - 1))


def _looked(test: Callable[..., Verdict], *names: str) -> Callable[[Measured], Verdict]:
    """Return the test of a claim on tables of what heads look at."""
    return lambda measured: test(*(measured.first(LookAt).tables[name] for name in names))


def _no_op(measured: Measured) -> Verdict | None:
    gradients = measured.first(LookAt).gradients
    if gradients is None:
        return None
    return verdicts.sep_is_a_no_op(gradients.tables, loss=gradients.title)


def _moves_little(measured: Measured) -> Verdict | None:
    found = measured.first(Contributions)
    return verdicts.sep_moves_little(found.weights['all [SEP]'], found.moved.norms['all [SEP]'])


_VERB_SUBJECT, _NOUN_PRONOUN = RELATIONS
# The test of each claim, and the measurements that it needs.
_TESTS: dict[Claim, tuple[Callable[[Measured], Verdict | None], str]] = {
    verdicts.PRETRAINING: (_pretraining, 'fine-tuning from both starts, pre-trained and random'),
    verdicts.LAST_LAYERS: (_last_layers, 'attention_change in the reading of the paper'),
    verdicts.CLS_THEN_SEP: (_cls_then_sep, 'special_tokens or features'),
    verdicts.FEW_HETEROGENEOUS: (_few_heterogeneous, 'patterns'),
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
    verdicts.RANDOM_HEAD_HELPS: (_random_head, 'ablation of heads'),
    verdicts.LAYER_HELPS: (
        functools.partial(_mask_helps, verdicts.LAYER_HELPS, 'layers'),
        'ablation of layers',
    ),
    verdicts.FRAME_HEADS: (_frame_heads, 'frames and ablation of heads'),
}
# Those of claims of other papers, which are only made where what they are about was measured.
_TESTS_BESIDE: dict[type[Result], dict[Claim, tuple[Callable[[Measured], Verdict | None], str]]] = {
    LookAt: {
        verdicts.SEP_HALF: (_looked(verdicts.heads_look_at_sep, 'all [SEP]'), 'look_at'),
        verdicts.SEP_TO_SEP: (_looked(verdicts.sep_looks_at_sep, '[SEP] to [SEP]'), 'look_at'),
        verdicts.BROAD_CLS: (_looked(verdicts.cls_looks_broadly, OF_CLS, UNIFORM), 'look_at'),
        verdicts.SEP_NO_OP: (_no_op, 'look_at with gradients'),
    },
    Contributions: {verdicts.SEP_MOVES_LITTLE: (_moves_little, 'contributions')},
    SyntaxHeads: {
        verdicts.RELATION_HEADS: (_relation_heads, 'syntax_heads on a treebank'),
        verdicts.NO_HEAD_FOR_ALL: (_no_head_for_all, 'syntax_heads on a treebank'),
    },
    Probing: {
        verdicts.PROBE_BEYOND_WORDS: (
            functools.partial(_probes, verdicts.PROBE_BEYOND_WORDS),
            'probing with word vectors',
        ),
        verdicts.ATTENTION_BEYOND_RANDOM: (
            functools.partial(_probes, verdicts.ATTENTION_BEYOND_RANDOM),
            'probing with word vectors and with random weights',
        ),
    },
    Pruning: {
        verdicts.HEADS_CAN_GO: (
            functools.partial(_pruned, verdicts.HEADS_CAN_GO),
            'pruning in the order of gradients',
        ),
        verdicts.ORDER_TELLS: (
            functools.partial(_pruned, verdicts.ORDER_TELLS),
            'pruning in the order of gradients and in random orders',
        ),
    },
    Outliers: {
        verdicts.OUTLIERS_NEEDED: (_outliers_needed, 'outliers of a masked LM'),
    },
}
