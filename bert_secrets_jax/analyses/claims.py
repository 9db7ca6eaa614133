"""Claims of the papers: which hold for a model, over tasks, and in several runs side by side."""

import collections
import dataclasses
import itertools
import operator
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.disabling import Ablated, instead
from bert_secrets_jax.analyses.common.effects import margin_of, title_of
from bert_secrets_jax.analyses.common.tables import ends_of, records, table, with_ends
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.analyses.verdicts import Claim, Verdict
from bert_secrets_jax.analyses.verdicts.verdict import with_more
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.names import filled
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.result import (
    Badge,
    Figures,
    Result,
    Subject,
    class_title,
    given_by,
    measured,
)
from bert_secrets_jax.stats.agreement import alike, by_depth
from bert_secrets_jax.stats.effects import BETTER

# How many claims have each verdict, in the order of a page.
_COUNTS = {
    verdicts.HOLDS: '{n} {n:|holds|hold}',
    verdicts.DOES_NOT_HOLD: '{n} {n:|does|do} not',
    verdicts.UNDECIDED: f'{{n}} {verdicts.UNDECIDED}',
    verdicts.TOO_FEW: '{n} with too small a sample',
    verdicts.NOT_MEASURED: f'{{n}} {verdicts.NOT_MEASURED}',
}
# The name under which effects over fine-tunings are given.
OVER_SEEDS = 'disabled over seeds'
# The attribute of a verdict in each column of its frame.
_COLUMNS = {
    'claim': 'claim.text',
    'source': 'claim.source',
    'verdict': 'verdict',
    'for': 'population',
    'evidence': 'evidence',
    'does not show': 'claim.limits',
    **{name: name for name in ('what', 'estimate', 'low', 'high', 'unit', 'threshold')},
    'threshold_from': 'claim.bound',
    **{name: name for name in ('p_if_false', 'p_if_true', 'p', 'sample', 'sample_of')},
}
# Claims about several tasks are listed with these. Those of other papers, where a result has them.
_CLAIMS = tuple(
    claim
    for claim in verdicts.CLAIMS.values()
    if claim not in (verdicts.FINETUNING_GAINS, verdicts.SAME_HEADS)
)
# So many statistics are drawn: those that agree most, and those that agree least.
_DRAWN = 16
_PANELS = 6
# More pairs of runs are not drawn.
_PAIRS = 3
# The names of two runs, and that of a statistic.
Which = tuple[str, str, str]


class Claims(Result):
    """The verdicts on the claims of the paper, but for those about several tasks (`Comparison`).

    Attributes:
      decided: The verdict on each claim.
      unlearnt: The seeds whose fine-tuned model has learnt nothing, so that verdicts on it are
        noise.
      disabled_unlearnt: Whether the model whose heads were disabled has learnt nothing.
    """

    title = 'Which claims of the paper hold for this model'

    decided: tuple[Verdict, ...]
    unlearnt: tuple[int, ...] = ()
    disabled_unlearnt: bool = False

    def verdicts(self):
        return list(self.decided)

    def _say_how_many(self):
        found = collections.Counter(each.verdict for each in self.decided)
        parts = [filled(said, {'n': found[each]}) for each, said in _COUNTS.items() if found[each]]
        papers = dict.fromkeys(each.claim.paper for each in self.decided)
        return measured(
            'claims that hold',
            found[verdicts.HOLDS],
            unit='claims',
            sample=len(self.decided),
            sample_of='claims',
            source=', '.join(papers),
            template='{doubt}{sample:claim|claims} of {papers}: {counts}.',
            counts=', '.join(parts),
            papers='the paper' if len(papers) == 1 else 'papers',
            doubt=self._doubt,
        )

    @property
    def _doubt(self) -> str:
        if self.unlearnt:
            seeds = ' and '.join(map(str, self.unlearnt))
            many = 'seeds' if len(self.unlearnt) > 1 else 'seed'
            return f'Not learnt: {many} {seeds}. Verdicts on fine-tuned models describe noise. '
        if self.disabled_unlearnt:
            return (
                'The model whose heads were disabled has not learnt its task: verdicts on that '
                'describe noise. '
            )
        return ''

    def badges(self):
        return [
            Badge(
                each.verdict,
                f'{each.claim.short} ({each.claim.paper})',
                each.evidence,
                f'{each.claim.text} Source: {each.claim.source}.',
            )
            for each in sorted(self.decided, key=lambda each: [*_COUNTS].index(each.verdict))
        ]

    def notes(self):
        return [
            'Holds: the data rule out the opposite. Does not hold: they rule out the claim. '
            'Undecided: they rule out neither.',
            'Tests are one-sided at 5 %: a 95 % interval may reach a little past the threshold.',
            'Several fine-tunings: the number is their median, as a few that fail move a mean.',
        ]


class Comparison(Result):
    """Several models or tasks side by side.

    Attributes:
      rows: By the name of the run, its headline numbers as texts, by column.
      claims: The verdicts on the claims, by the name of the run.
      over_tasks: The verdicts on the claims about several tasks, by the name of the model.
      grids: The statistics of heads [L, N] that another run has, too: by the name of the run, and
        by that of the statistic.
      agreements: How far two runs agree in a statistic that both have, by their names and its name:
        'heads' is the number of heads that both know it of (0 if none has a counterpart, as the
        runs have different numbers of layers or heads), and 'rank_correlation' that over these.
        'within_layers' is without the mean of each layer, so that two runs do not agree only
        because both depend on depth, and 'depth_profile' of the means of layers by relative depth.
      missing: The results that a run once had and that are not compared, by the name of the run.
    """

    title = 'Side by side'

    rows: Mapping[str, Mapping[str, str]]
    claims: Mapping[str, tuple[Verdict, ...]]
    over_tasks: Mapping[str, tuple[Verdict, ...]]
    grids: Mapping[str, Mapping[str, np.ndarray]]
    agreements: Mapping[Which, Mapping[str, Any]]
    missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    @property
    def ranks(self) -> dict[Which, float]:
        """The rank correlations within layers; of runs without counterparts, those by depth."""
        ranks = (
            (which, each['within_layers' if each['heads'] else 'depth_profile'])
            for which, each in self.agreements.items()
        )
        return {which: rank for which, rank in ranks if np.isfinite(rank)}

    @property
    def tests(self) -> list[tuple[str, Verdict, float]]:
        """Each test of a claim: the run, or model, the verdict, and p corrected for all tests."""
        tests = _flat(self.claims)
        # Those of Clark et al. are only tested where their measurements are.
        claims = list(dict.fromkeys(each.claim for _, each in tests))
        tests.sort(key=lambda test: claims.index(test[1].claim))
        tests += _flat(self.over_tasks)
        names, every = zip(*tests, strict=True)
        p_values = verdicts.corrected([each.claim for each in every], [each.p for each in every])
        return list(zip(names, every, p_values.tolist(), strict=True))

    def figures(self):
        if any(each['heads'] for each in self.agreements.values()):
            return Figures({'agreement': self._agreement})
        return Figures({'profiles': self._profiles} if self.agreements else {})

    def _agreement(self):
        heads = {which: each for which, each in self.agreements.items() if each['heads']}
        ranks = {which: rank for which, rank in self.ranks.items() if which in heads}
        rows = _extremes(ranks, _DRAWN)
        pairs = list(dict.fromkeys(which[:2] for which in heads))[:_PAIRS]
        # Names of runs are longer than a panel is wide.
        short = dict(
            zip(dict.fromkeys(itertools.chain(*pairs)), string.ascii_uppercase, strict=False)
        )
        none = with_ends('within_layers', [np.nan] * 3)
        panels = {
            f'{short[one]} and {short[other]}': ends_of(
                [heads.get((one, other, row), none) for row in rows], 'within_layers'
            )
            for one, other in pairs
        }
        filled = {pair: (low > 0) | (high < 0) for pair, (_, low, high) in panels.items()}
        letters = ', '.join(f'{letter} is {run}' for run, letter in short.items())
        return plots.interval_panels(rows, panels, filled=filled, columns=2).captioned(
            f'Rank correlations of runs within layers ({letters}; filled: not zero), of the '
            'statistics that agree most and least.'
        )

    def _profiles(self):
        panels = {
            # The analysis stands above its statistic.
            statistic.replace(': ', ':\n', 1): {
                run: by_depth(grids[statistic])[1]
                for run, grids in self.grids.items()
                if statistic in grids
            }
            for statistic in _extremes(self.ranks, _PANELS)
        }
        return plots.depth_profiles(panels).captioned(
            'Means of layers by relative depth, of the statistics that agree most and least.'
        )

    def findings(self):
        found = []
        for (one, other), group in itertools.groupby(self.ranks, key=lambda which: which[:2]):
            members, what, how = list(group), 'layers', 'at the same relative depth'
            if any(self.agreements[each]['heads'] for each in members):
                what, how = 'heads', 'within layers'
            finding = measured(
                f'{what}: {one}, {other}',
                float(np.median([self.ranks[each] for each in members])),
                unit='rank correlation',
                sample=len(members),
                sample_of='statistics',
                source='agreement of grids of heads',
                template='{What} of {one} and {other} agree by a rank correlation of '
                '{estimate:.2f} {how} (median).',
                numbers={'What': what.capitalize(), 'one': one, 'other': other, 'how': how},
            )
            found.append(finding)
        found.sort(key=lambda each: -each.estimate)
        return found[:1] + found[1:][-1:]

    def notes(self):
        notes = [
            'Effects are in points, on the examples that the best and the worst were chosen on.',
            'Claims are tested together, so fewer hold than alone (Benjamini and Bogomolov).',
        ]
        if self.grids:
            notes += [
                'Of all pairs of runs, those whose heads agree most and least are told.',
                'Heads have counterparts only where two models come from one pre-training: '
                '`bs.analyses.matching` pairs others.',
                'Errors of measurement lower correlations. Extremes of many are partly chance.',
                'What is equal to the last digit in two runs is left out.',
            ]
        return notes + [
            f'Not compared, since it is of another version or other inputs: {", ".join(names)} of '
            f'{run}. The command that made the run computes it again.'
            for run, names in self.missing.items()
            if names
        ]


def _results(given) -> list[Call]:
    """Return the results of all other sections but the maps."""
    return [given.result(each) for each in given.results if each not in ('maps', 'claims')]


@analysis(
    question='which claims of the paper hold, from what the others found',
    group='What matters',
    report='always',
    inputs={'results': _results},
    kept=False,
)
def claims(*results: Result) -> Claims:
    """Test the claims of the papers on the results of other analyses.

    Args:
      *results: The results of any analyses of `bs.analyses` for one model, in any order; of several
        from one analysis, the first is used. A claim that none of them measured is 'not measured'.

    Raises:
      TypeError: An argument is not a result.
    """
    for result in results:
        if not isinstance(result, Result):
            raise TypeError(
                f'{type(result).__name__} is not a result: give what functions of `bs.analyses` '
                'return.'
            )
    seeds, disabled = (given_by(results, name) for name in ('unlearnt', 'disabled'))
    disabled_unlearnt = bool(disabled) and not disabled[0].learnt
    found = Claims(decided(results), seeds[0] if seeds else (), disabled_unlearnt)
    return found.with_frames({'claims': verdicts_frame(found.decided)})


def comparison(
    runs: Mapping[str, Sequence[Result]], *, missing: Mapping[str, Sequence[str]] | None = None
) -> Comparison:
    """Put the results of several models, or on several tasks, side by side.

    All claims are corrected together. Statistics of heads are those of `Result.head_tables`.

    Args:
      runs: The results of each run, by its name, such as 'MRPC' or 'MiniLM, MRPC'.
      missing: The results, by run, that it once had and that are not compared; a note tells them.

    Raises:
      ValueError: There is no run.
    """
    check_enough('runs', runs)
    rows = {name: _at_a_glance(name, results) for name, results in runs.items()}
    found = {name: decided(results) for name, results in runs.items()}
    # One run has nothing to be compared with.
    grids = {name: _statistics(results) for name, results in runs.items()} if len(runs) > 1 else {}
    counts = collections.Counter(each for of_run in grids.values() for each in of_run)
    shared = {
        name: {each: grid for each, grid in of_run.items() if counts[each] > 1}
        for name, of_run in grids.items()
    }
    agreements = {
        (one, other, statistic): each
        for one, other in itertools.combinations(shared, 2)
        for statistic, each in _agreements(shared[one], shared[other]).items()
    }
    told = {name: tuple(each) for name, each in (missing or {}).items()}
    return side_by_side(Comparison(rows, found, claims_over_tasks(runs), shared, agreements, told))


def _at_a_glance(name: str, results: Sequence[Result]) -> dict[str, str]:
    """Return the headline numbers of a run, whose name may be that of its task."""
    found: dict[str, str] = {}
    for result in results:
        if result.subject.task is None:
            subject = dataclasses.replace(result.subject, task=name)
            result = dataclasses.replace(result, subject=subject)
        # Where several results are from one analysis, the first is used.
        for column, text in result.at_a_glance().items():
            found.setdefault(column, text)
    return found


def _statistics(results: Sequence[Result]) -> dict[str, np.ndarray]:
    """Return all grids [L, N] of a run by the name of the analysis, the frame and the statistic."""
    grids: dict[str, np.ndarray] = {}
    for result in results:
        for name, grid in result.head_tables().items():
            grids.setdefault(f'{class_title(type(result))}, {name}', grid)
    return grids


def _agreements(
    grids: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Return the agreement of two runs in each statistic, but for those equal to the last digit.

    A statistic that orders the heads of both as another does is left out, too, such as a difference
    and its score.
    """
    found = {}
    for statistic in (each for each in grids if each in others):
        both = grids[statistic], others[statistic]
        order = tuple(tuple(np.argsort(each, axis=None, kind='stable')) for each in both)
        if not np.array_equal(*both, equal_nan=True):
            found.setdefault(order, (statistic, both))
    agreed = {statistic: alike(*both) for statistic, both in found.values()}
    return {
        statistic: each
        for statistic, each in agreed.items()
        if each['heads'] or np.isfinite(each['depth_profile'])
    }


def decided(results: Sequence[Result]) -> tuple[Verdict, ...]:
    """Return the verdict on each claim of the paper, and on those of others that results decide.

    Results are of one model, and decide alone or together. Where several are from one analysis, the
    first is used. Verdicts of fine-tuned models stand for those of the model as it is.
    """
    alone = list({type(each): each for each in reversed(results)}.values())[::-1]
    alone.sort(key=lambda each: 'attention after fine-tuning' not in each.gives())
    found: dict[Claim, Verdict] = {}
    for verdict in (*(each for result in alone for each in result.verdicts()), *_together(results)):
        found.setdefault(verdict.claim, verdict)
    paper_of_all = verdicts.PRETRAINING.paper
    return tuple(
        found.get(claim) or verdicts.not_measured(claim)
        for claim in dict.fromkeys((*_CLAIMS, *found))
        if claim in found or claim.paper == paper_of_all
    )


def claims_over_tasks(tasks: Mapping[str, Sequence[Result]]) -> dict[str, tuple[Verdict, ...]]:
    """Test the claims about several tasks at once, for each model that results name as subject."""
    models: dict[str, dict[str, list[Result]]] = {}
    for result in (each for results in tasks.values() for each in results):
        subject = result.subject
        if subject.task is not None and {'unlearnt', 'disabled'} & result.gives().keys():
            models.setdefault(subject.model, {}).setdefault(subject.task, []).append(result)
    return {
        model: (_gains(measured), _same_heads(measured))
        for model, measured in (models or {Subject().model: {}}).items()
    }


def _gains(tasks: Mapping[str, Sequence[Result]]) -> Verdict:
    gains = {
        paper.title(task) or task: given[0]
        for task, results in tasks.items()
        if (given := given_by(results, 'gain'))
    }
    if len(gains) > 1:
        return verdicts.finetuning_gains(gains)
    return verdicts.not_measured(verdicts.FINETUNING_GAINS, 'fine-tuning on two tasks of the paper')


def _same_heads(tasks: Mapping[str, Sequence[Result]]) -> Verdict:
    sets = {paper.title(task): _sets(results).get('heads') for task, results in tasks.items()}
    effects = {task: each.found for task in ('STS-B', 'RTE') if (each := sets.get(task))}
    if len(effects) > 1 and len({tuple(each.names) for each in effects.values()}) == 1:
        return verdicts.same_heads_are_needed(effects)
    return verdicts.not_measured(verdicts.SAME_HEADS, 'disabling heads on STS-B and RTE')


def _sets(results: Sequence[Result], which: str = 'disabled') -> Mapping[str, Ablated]:
    """Return the effects of sets of masks, such as 'heads'; empty if they are not measured."""
    given = given_by(results, which)
    return given[0].sets if given else {}


def _ablated(results: Sequence[Result], name: str) -> Ablated | None:
    """Return effects over fine-tunings if enough for any to be significant, or on one model."""
    several = _sets(results, OVER_SEEDS).get(name)
    if several and (seeds := several.found.seeds) and seeds.least_p <= verdicts.LEVEL:
        return several
    return _sets(results).get(name)


def _instead(results: Sequence[Result], name: str) -> str:
    """Return a sentence on what disabled heads did; empty if it is what the paper's did."""
    for which in ('disabled', OVER_SEEDS):
        for result in given_by(results, which)[:1]:
            if name in result.sets and result.baseline != 'uniform':
                return f' {instead(result.baseline)} In the paper, it attends to all tokens alike.'
    return ''


def _together(results: Sequence[Result]) -> Iterable[Verdict]:
    effects: dict[str, verdicts.Effects] = {}
    for claim, name in ((verdicts.HEAD_HELPS, 'heads'), (verdicts.LAYER_HELPS, 'layers')):
        ablated = _ablated(results, name)
        if ablated is not None:
            effects[name] = ablated.found
            if ablated.found.sample_of == 'fine-tunings':
                effects[name] = dataclasses.replace(ablated.found, sample_of='runs')
            # A sentence on telling texts apart beside that on the score.
            (over, margin), lead = margin_of(ablated.lead), ablated.lead
            found = with_more(
                verdicts.some_mask_helps(claim, effects[name]),
                f' For {{told_apart}} of them, losing it improves {{outcome}} by {over}.',
                **margin,
                told_apart=int((lead.verdict == BETTER).sum()),
                outcome=title_of(lead),
            )
            yield with_more(found, _instead(results, name))
    instead_of_heads = _instead(results, 'heads')
    ablated = {**_sets(results), **_sets(results, OVER_SEEDS)}.get('heads')
    if ablated is not None:
        found = verdicts.a_random_head_helps(ablated.averages, heads=len(ablated.masks))
        yield with_more(found, instead_of_heads)
    along = given_by(results, 'attention along frames')
    if along and 'heads' in effects:
        best = np.argsort(-along[0], axis=None, kind='stable')[:2].tolist()
        yield with_more(verdicts.heads_are_not_needed(effects['heads'], best), instead_of_heads)


def verdicts_frame(
    found: Sequence[Verdict],
    caption: str = 'Each claim with its verdict and the number that decides.',
    **first: Sequence[str],
):
    """Return a frame of verdicts, of which a person reads some of the columns, behind further."""
    columns = {name: list(map(operator.attrgetter(of), found)) for name, of in _COLUMNS.items()}
    frame = table(caption, **first, **columns)
    # A person reads these columns; the file has all of them.
    frame.attrs['shown'] = [
        *first, 'claim', 'source', 'verdict', 'evidence', 'sample', 'sample_of', 'does not show',
    ]  # fmt: skip
    return frame


def _flat(found: Mapping[str, Sequence[Verdict]]) -> list[tuple[str, Verdict]]:
    return [(name, each) for name, several in found.items() for each in several]


def _extremes(ranks: Mapping[Which, float], count: int) -> list[str]:
    """Return the statistics in which runs agree most, then those in which they agree least."""
    known: dict[str, list[float]] = {}
    for (*_, statistic), rank in ranks.items():
        known.setdefault(statistic, []).append(rank)
    ranked, half = sorted(known, key=lambda name: -np.mean(known[name])), count // 2
    return list(dict.fromkeys([*ranked[:half], *ranked[-half:]]))


def side_by_side(found: Comparison) -> Comparison:
    """Return the result with its tables: of runs, of claims, and of what their heads have."""
    models, over_tasks = zip(*_flat(found.over_tasks), strict=True)
    frames = {
        'runs': records(
            'Headline numbers. A dash: not measured.',
            [{'run': run, **row} for run, row in found.rows.items()],
            missing='–',
        ),
        **_of_claims(found),
        'claims_over_tasks': verdicts_frame(
            over_tasks, 'Each claim about several tasks, with its verdict.', model=models
        ),
    }
    return found.with_frames(frames | _of_heads(found) if found.agreements else frames)


def _of_claims(found: Comparison):
    rows, shown = [], {}
    for name, each, p_value in found.tests:
        claim, after = each.claim.text, each.after(p_value)
        rows.append(
            {
                'claim': claim, 'run': name, 'verdict': each.verdict, 'p': each.p,
                'p_corrected': p_value, 'verdict_corrected': after, 'for': each.population,
            }
        )  # fmt: skip
        tested = '' if np.isnan(each.p) else f' (p = {each.p:.2g}; {p_value:.2g})'
        shown[claim, name] = f'{after}{tested}'
    wide = [
        {'claim': each.text, 'source': each.source}
        | {run: shown.get((each.text, run), verdicts.NOT_MEASURED) for run in found.claims}
        for each in dict.fromkeys(each.claim for _, each in _flat(found.claims))
    ]
    return {
        'claims': records(
            'Which claims hold in each run, if all are tested together. In brackets: p alone, '
            'and together.',
            wide,
        ),
        'claims_corrected': records('Every test of every claim.', rows),
    }


def _of_heads(found: Comparison):
    return {
        'agreement': records(
            'Rank correlations of two runs: over heads, within layers, and of layers by depth.',
            [
                {'run': one, 'other_run': other, 'statistic': statistic, **each}
                for (one, other, statistic), each in found.agreements.items()
            ],
        ),
        'profiles': records(
            'The mean over the heads of each layer, by relative depth (0 to 1).',
            [
                {'run': run, 'statistic': statistic, 'layer': layer}
                | {'relative_depth': depth, 'mean': mean}
                for run, grids in found.grids.items()
                for statistic, grid in grids.items()
                for layer, (depth, mean) in enumerate(zip(*by_depth(grid), strict=True), 1)
            ],
        ),
    }
