"""Several models or tasks side by side: headline numbers, claims, and whether heads do alike.

Shapes: L layer, N head.
"""

import collections
import dataclasses
import itertools
import operator
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from bert_secrets_jax import plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.claims import claims_over_tasks, decided, verdicts_frame
from bert_secrets_jax.analyses.verdicts import Verdict
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.runs.result import Figures, Result, class_title, framed, measured
from bert_secrets_jax.stats.correlations import RankAgreement, jackknifed, spearman

if TYPE_CHECKING:
    import pandas

_NONE = RankAgreement(np.nan, np.nan, np.nan)
# So many statistics are drawn: those that agree most, and those that agree least.
_DRAWN = 16
_PANELS = 6
# More pairs of runs are not drawn.
_PAIRS = 3


@dataclasses.dataclass(frozen=True)
class GridAgreement:
    """How far two runs agree in one statistic of their heads.

    Attributes:
      one, other: The names of the runs.
      heads: The number of heads that both know the statistic of; 0 if no head has a counterpart, as
        the runs have different numbers of layers or heads.
      overall: The rank correlation over all heads; NaN without counterparts.
      within: The same without the mean of each layer, so that two runs do not agree only because
        both depend on depth.
      profile: The rank correlation of the means of layers at the same relative depth.
    """

    one: str
    other: str
    statistic: str
    heads: int
    overall: RankAgreement
    within: RankAgreement
    profile: float

    @property
    def rank(self) -> float:
        """The rank correlation within layers; without counterparts, that of layers."""
        return self.within.rank if self.heads else self.profile


class Comparison(Result):
    """Several models or tasks side by side.

    Attributes:
      rows: By the name of the run, its headline numbers as texts, by column.
      claims: The verdicts on the claims, by the name of the run.
      over_tasks: The verdicts on the claims about several tasks, by the name of the model.
      grids: The statistics of heads [L, N] that another run has, too: by the name of the run, and
        by that of the statistic.
      agreements: How far each two runs agree in each statistic that both have.
      missing: The results that a run once had and that are not compared, by the name of the run.
    """

    title = 'Side by side'

    rows: Mapping[str, Mapping[str, str]]
    claims: Mapping[str, tuple[Verdict, ...]]
    over_tasks: Mapping[str, tuple[Verdict, ...]]
    grids: Mapping[str, Mapping[str, np.ndarray]]
    agreements: tuple[GridAgreement, ...]
    missing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def frames(self):
        columns = dict.fromkeys(itertools.chain.from_iterable(self.rows.values()))
        rows = [
            (run, *(row.get(column, '–') for column in columns)) for run, row in self.rows.items()
        ]
        by_model = [(model, each) for model, found in self.over_tasks.items() for each in found]
        over_tasks = verdicts_frame([each for _, each in by_model])
        over_tasks.insert(0, 'model', [model for model, _ in by_model])
        over_tasks.attrs['shown'] = ['model', *over_tasks.attrs['shown']]
        over_tasks.attrs['caption'] = 'Each claim about several tasks, with its verdict.'
        return {
            'runs': framed(('run', *columns), rows, 'Headline numbers. A dash: not measured.'),
            **self._frames_of_claims(by_model),
            'claims_over_tasks': over_tasks,
            **self._frames_of_heads(),
        }

    def _frames_of_claims(
        self, over_tasks: Sequence[tuple[str, Verdict]]
    ) -> 'dict[str, pandas.DataFrame]':
        tests = [(run, each) for run, found in self.claims.items() for each in found]
        # Those of Clark et al. are only tested where their measurements are.
        claims = list(dict.fromkeys(each.claim for _, each in tests))
        tests.sort(key=lambda test: claims.index(test[1].claim))
        tests += over_tasks
        adjusted = verdicts.corrected(
            [each.claim for _, each in tests], [each.p for _, each in tests]
        )
        rows, shown = [], {}
        for (name, each), p_value in zip(tests, adjusted.tolist(), strict=True):
            claim, after = each.claim.text, each.after(p_value)
            rows.append((claim, name, each.verdict, each.p, p_value, after, each.population))
            if not np.isnan(each.p):
                after = f'{after} (p = {each.p:.2g}; {p_value:.2g})'
            shown[claim, name] = after
        wide = [
            (
                each.text,
                each.source,
                *(shown.get((each.text, run), verdicts.NOT_MEASURED) for run in self.claims),
            )
            for each in claims
        ]
        return {
            'claims': framed(
                ('claim', 'source', *self.claims),
                wide,
                'Which claims hold in each run, if all are tested together. In brackets: p alone, '
                'and together.',
            ),
            'claims_corrected': framed(
                ('claim', 'run', 'verdict', 'p', 'p_corrected', 'verdict_corrected', 'for'),
                rows,
                'Every test of every claim.',
            ),
        }

    def _frames_of_heads(self) -> 'dict[str, pandas.DataFrame]':
        if not self.agreements:
            return {}
        return {
            'agreement': framed(
                (
                    'run', 'other_run', 'statistic', 'heads', 'rank_correlation', 'low', 'high',
                    'within_layers', 'within_layers_low', 'within_layers_high', 'depth_profile',
                ),
                [
                    (*which, *overall, *within, profile)
                    for *which, overall, within, profile in map(
                        dataclasses.astuple, self.agreements
                    )
                ],
                'Rank correlations of two runs: over heads, within layers, and of layers by depth.',
            ),
            'profiles': framed(
                ('run', 'statistic', 'layer', 'relative_depth', 'mean'),
                [
                    (run, statistic, layer + 1, _depth(len(grid))[layer], mean)
                    for run, grids in self.grids.items()
                    for statistic, grid in grids.items()
                    for layer, mean in enumerate(_means(grid))
                ],
                'The mean over the heads of each layer, by relative depth (0 to 1).',
            ),
        }  # fmt: skip

    def figures(self):
        if any(each.heads for each in self.agreements):
            return Figures({'agreement': self._agreement})
        return Figures({'profiles': self._profiles} if self.agreements else {})

    def _agreement(self) -> 'plots.Figure':
        heads = [each for each in self.agreements if each.heads]
        rows = _extremes(heads, _DRAWN)
        found = {(each.one, each.other, each.statistic): each.within for each in heads}
        pairs = list(dict.fromkeys((each.one, each.other) for each in heads))[:_PAIRS]
        # Names of runs are longer than a panel is wide.
        runs = dict.fromkeys(itertools.chain.from_iterable(pairs))
        short = dict(zip(runs, string.ascii_uppercase, strict=False))
        panels: dict[str, Any] = {}
        for one, other in pairs:
            ranks = [dataclasses.astuple(found.get((one, other, row), _NONE)) for row in rows]
            panels[f'{short[one]} and {short[other]}'] = tuple(np.transpose(ranks))
        filled = {pair: (low > 0) | (high < 0) for pair, (_, low, high) in panels.items()}
        letters = ', '.join(f'{letter} is {run}' for run, letter in short.items())
        return plots.interval_panels(rows, panels, filled=filled, columns=2).captioned(
            f'Rank correlations of runs within layers ({letters}; filled: not zero), of the '
            'statistics that agree most and least.'
        )

    def _profiles(self) -> 'plots.Figure':
        panels = {}
        for statistic in _extremes(self.agreements, _PANELS):
            # The analysis stands above its statistic.
            panels[statistic.replace(': ', ':\n', 1)] = {
                run: _means(grids[statistic])
                for run, grids in self.grids.items()
                if statistic in grids
            }
        return plots.depth_profiles(panels).captioned(
            'Means of layers by relative depth, of the statistics that agree most and least.'
        )

    def findings(self):
        found = []
        pairs = itertools.groupby(self.agreements, operator.attrgetter('one', 'other'))
        for (one, other), group in pairs:
            members = list(group)
            ranks = np.array([each.rank for each in members])
            known = ranks[np.isfinite(ranks)]
            if not len(known):
                continue
            what, how = 'layers', 'at the same relative depth'
            if any(each.heads for each in members):
                what, how = 'heads', 'within layers'
            finding = measured(
                f'{what}: {one}, {other}',
                float(np.median(known)),
                unit='rank correlation',
                sample=len(known),
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
    agreements = tuple(
        each
        for one, other in itertools.combinations(shared, 2)
        for each in _agreements(one, shared[one], other, shared[other])
    )
    told = {name: tuple(each) for name, each in (missing or {}).items()}
    return Comparison(rows, found, claims_over_tasks(runs), shared, agreements, told)


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
    one: str, grids: Mapping[str, np.ndarray], other: str, others: Mapping[str, np.ndarray]
) -> Iterator[GridAgreement]:
    """Yield the agreement of two runs in each statistic, but for those equal to the last digit.

    A statistic that orders the heads of both as another does is left out, too, such as a difference
    and its score.
    """
    known = set()
    for statistic, grid in grids.items():
        if statistic not in others:
            continue
        theirs = others[statistic]
        if np.array_equal(grid, theirs, equal_nan=True):
            continue
        order = tuple(tuple(np.argsort(each, axis=None, kind='stable')) for each in (grid, theirs))
        if order in known:
            continue
        known.add(order)
        heads, overall, within = 0, _NONE, _NONE
        if grid.shape == theirs.shape:
            either = np.isnan(grid) | np.isnan(theirs)
            ours, theirs = (np.where(either, np.nan, each) for each in (grid, theirs))
            heads = int((~either).sum())
            overall = agreement(ours, theirs)
            within = agreement(*(each - _means(each)[:, None] for each in (ours, theirs)))
        means = _means(grid), _means(theirs)
        # At the depths of the model with fewer layers.
        depth = _depth(min(map(len, means)))
        profile = spearman(*(np.interp(depth, _depth(len(each)), each) for each in means))
        if heads or np.isfinite(profile):
            yield GridAgreement(one, other, statistic, heads, overall, within, profile)


def agreement(one: Float[np.ndarray, 'L N'], other: Float[np.ndarray, 'L N']) -> RankAgreement:
    """Return the rank correlation of two grids of heads, with an interval over layers.

    The interval is that of the jackknife over layers, since heads of one layer may be alike. A head
    of unknown value is NaN in both grids.
    """
    # A layer of which nothing is known is no part of the sample.
    known = ~np.isnan(one).all(axis=1)
    both = one[known], other[known]
    return jackknifed(
        lambda left: spearman(*(np.delete(each, left, axis=0) for each in both)), int(known.sum())
    )


def _means(grid: Float[np.ndarray, 'L N']) -> Float[np.ndarray, 'L']:
    """Return the mean of each layer; NaN where none of its heads is known."""
    import pandas

    return pandas.DataFrame(grid).mean(axis=1).to_numpy()


def _depth(layers: int) -> np.ndarray:
    """Return the relative depths of layers: 0 for the first, 1 for the last."""
    return np.linspace(0, 1, layers)


def _extremes(agreements: Sequence[GridAgreement], count: int) -> list[str]:
    """Return the statistics in which runs agree most, then those in which they agree least."""
    known: dict[str, list[float]] = {}
    for each in agreements:
        if np.isfinite(each.rank):
            known.setdefault(each.statistic, []).append(each.rank)
    ranked, half = sorted(known, key=lambda name: -np.mean(known[name])), count // 2
    return list(dict.fromkeys([*ranked[:half], *ranked[-half:]]))
