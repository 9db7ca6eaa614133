"""Vectors that heads move, beside their attention: norms, mixing ratios and inactive heads.

Attention weighs vectors, and says nothing of how long they are (Kobayashi et al. 2020, 2021).

Shapes: L layers, N heads.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Shaped

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.disabling import Disabled
from bert_secrets_jax.analyses.common.tables import (
    OF_SHARES,
    Grid,
    Tables,
    Which,
    greatest,
    grids_frame,
    heads_frame,
    interval_of,
    mean_over_runs,
    table,
    top_head,
    worded,
)
from bert_secrets_jax.analyses.common.texts import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.contributions import norms as moved
from bert_secrets_jax.contributions.norms import MIXING
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.catalogue import SHARE, Described, measure, named
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.findings import extreme, how_many, measured
from bert_secrets_jax.runs.result import Finding, Result, drawn
from bert_secrets_jax.stats.effects import BETTER, NO_MATTER, OPEN, WORSE
from bert_secrets_jax.stats.significance import MARGIN

SOURCE = 'Kobayashi et al. 2020'
SOURCE_OF_MIXING = 'Kobayashi et al. 2021'
SOURCE_OF_INACTIVE = 'Sandoval-Segura et al. 2025'
# The kinds of tokens, by the names of their statistics, and how sentences call them.
KINDS = {
    '[CLS]': '[CLS]',
    'all [SEP]': 'all [SEP]',
    'period or comma': 'full stops and commas',
    'self': 'the token itself',
    'previous token': 'the previous token',
    'next token': 'the next token',
}
# The kinds that a head may attend to for want of anything to do.
SINKS = ('[CLS]', 'all [SEP]', 'period or comma')
# A head is a sink if at least half is at one of these kinds, and puts out next to nothing if its
# output is below a tenth of the mean of its layer: the example that the published code gives.
HALF, NEXT_TO_NOTHING = 0.5, 0.1
BY_WEIGHTS, BY_NORMS = 'sinks by weights', 'sinks by norms'
BY_OUTPUT = 'heads with next to no output'
_NORMS = 'share of norms'
_OF_LAYER = 'of the mean of its layer'


@dataclasses.dataclass(frozen=True, eq=False)
class Moved:
    """Measurements of the vectors that heads move.

    Attributes:
      norms: The table of each of `KINDS`, by its name: the share of what a head moves to a token
        that comes from tokens of the kind, by the norms of weighted vectors.
      mixing: [L, 5] How much of a token comes from other tokens, in the five ways of `MIXING`.
      outputs: [L, N] The norm of the output of each head, divided by the mean of its layer.
      norm_first: Whether LayerNorm stands before attention.
    """

    norms: Tables
    mixing: HeadTable
    outputs: HeadTable
    norm_first: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Lost:
    """The effect on a score of losing each head, from a result of `ablation`.

    Attributes:
      metric: The name of the metric.
      meaning: A sentence that says what a disabled head does.
      examples: The number of examples.
      difference: [L, N] The score without the head less that of the intact model.
      verdict: [L, N] The verdict on the effect of losing it, as in `Effects.verdict`.
    """

    metric: str
    meaning: str
    examples: int
    difference: Grid
    verdict: Shaped[np.ndarray, 'L N']

    def which(self, *verdicts: str) -> Which:
        """Return the heads with any of these verdicts."""
        return np.isin(self.verdict, verdicts)


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Contributions(Result):
    """The vectors that each head moves beside its attention, how tokens mix, and inactive heads.

    Attributes:
      weights: The table of attention to each of `KINDS`, by its name.
      moved: The measurements of the vectors that heads move.
      lost: The effect of losing each head; None if it was not measured.
    """

    title: ClassVar[str] = 'What heads move'
    FORMAT: ClassVar[int] = 3

    weights: Tables
    moved: Moved
    lost: Lost | None = None

    @property
    def kinds(self) -> list[str]:
        """The kinds of tokens that the texts have."""
        return [name for name in KINDS if self.weights[name].count]

    @property
    def sinks(self) -> list[str]:
        """Those that a head may attend to for want of anything to do."""
        return [name for name in SINKS if name in self.kinds]

    @property
    def _tables(self) -> dict[str, Tables]:
        return {'weights': self.weights, 'norms': self.moved.norms}

    @property
    def inactive(self) -> dict[str, Which]:
        """Which heads are inactive in each of three ways."""
        return {
            BY_WEIGHTS: self._most(self.weights)[1] >= HALF,
            BY_NORMS: self._most(self.moved.norms)[1] >= HALF,
            BY_OUTPUT: self.moved.outputs.mean < NEXT_TO_NOTHING,
        }

    def verdicts(self):
        shares = (each['all [SEP]'] for each in self._tables.values())
        return [verdicts.sep_moves_little(*shares)]

    def frames(self):
        tables = {f'{name}, weights': each for name, each in self.weights.items()}
        units = dict.fromkeys(tables, SHARE) | {'output': _OF_LAYER}
        tables |= {f'{name}, norms': each for name, each in self.moved.norms.items()}
        tables['output'] = self.moved.outputs
        units = dict.fromkeys(tables, _NORMS) | units
        ways, curves = self._mixing_means(), self._mixing_curves()
        percent, low, high = np.stack([*curves.values()], axis=1)
        mean, least, most = np.transpose([*ways.values()])
        groups = self.inactive
        lost = {'do_not_matter': (NO_MATTER,), 'matter': (WORSE, BETTER)}
        return {
            'mixing': table(
                'How much of a token comes from other tokens in a layer: mean over layers.',
                way=[*ways],
                percent=mean,
                low=least,
                high=most,
                **{
                    f'published: {name}': [100 * ratios[way] for way in ways]
                    for name, ratios in paper.mixing_ratios().items()
                },
            ),
            'inactive': table(
                'Heads that may do nothing: at least half of the attention or output is for one '
                'kind of token, or the output is short. A change below half a point does not '
                'matter, significant or not.',
                inactive=[*groups],
                heads=[each.sum() for each in groups.values()],
                which=[
                    ', '.join(head_name(*head) for head in np.argwhere(each)) or 'none'
                    for each in groups.values()
                ],
                **{
                    column: [self.lost.which(*words)[each].sum() for each in groups.values()]
                    for column, words in lost.items()
                    if self.lost is not None
                },
            ),
            'mixing_layers': grids_frame(
                {'percent': percent, 'low': low, 'high': high},
                'How much of a token comes from other tokens, layer by layer.',
                by={'way': list(curves)},
                sure={'percent': ('low', 'high')},
            ),
            'kinds': grids_frame(
                {
                    column: [tables[name].mean.mean(axis=1) for name in self.kinds]
                    for column, tables in self._tables.items()
                },
                'Shares of attention and of what is moved, means over the heads of a layer.',
                by={'kind': self.kinds},
            ),
            'activity': self._activity(),
            'heads': heads_frame(tables, units, 'Each number of each head.'),
        }

    def figures(self):
        return drawn(
            self,
            weights_and_norms=_draw_profiles,
            mixing=_draw_mixing,
            heads=_draw_heads,
            outputs=_draw_outputs,
        )

    def findings(self):
        name, of = 'how much of a token comes from others, by', self.moved.mixing.count
        of_mixing = {'unit': '%', 'sample': int(of), 'source': SOURCE_OF_MIXING}
        mixing = [
            measured(f'{name} {way}', interval, **of_mixing)
            for way, interval in self._mixing_means().items()
        ]
        known = [name for name in self.kinds if name in (*SINKS, 'self')]
        kinds = [finding for name in known for finding in self._kind_findings(name)]
        return [*kinds, *mixing, *self._inactive_findings(), *self._loss_findings()]

    def notes(self):
        said = ['By norms, each weight is multiplied by the length of the vector that it moves.']
        if self.moved.norm_first:
            said.append('LayerNorm stands before attention here, so two of the ways are the same.')
        said.append(
            'Whether losing inactive heads matters was not measured: it takes an ablation.'
            if self.lost is None
            else self.lost.meaning
        )
        return said

    def head_notes(self):
        most, share = self._most(self.moved.norms)
        kinds = np.vectorize(KINDS.get)(most)
        return {
            'share of its output': worded('{:.2f} from {}', share, kinds),
            'length of its output': worded(f'{{:.2f}} {_OF_LAYER}', self.moved.outputs.mean),
        }

    def _most(self, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
        known = self.sinks or SINKS[:1]
        return greatest(known, [tables[name].mean for name in known])

    def _mixing_means(self) -> dict[str, np.ndarray]:
        """Return the mean over layers by each of the ways of MIXING, with its interval, in %."""
        runs = [{'mixing': self.moved.mixing}]
        means = (
            mean_over_runs(runs, ['mixing'], np.s_[:, way], limits=OF_SHARES)
            for way in range(len(MIXING))
        )
        return dict(zip(MIXING, (100 * np.array(each.interval) for each in means), strict=True))

    def _mixing_curves(self) -> dict[str, np.ndarray]:
        """Return the mean of each layer and its interval in % [3, L], by each way of MIXING."""
        mixing = self.moved.mixing
        ends = [interval_of(mixing, at, OF_SHARES) for at in np.ndindex(mixing.mean.shape)]
        curves = 100 * np.reshape(ends, (*mixing.mean.shape, 3)).T  # [3, ways, L]
        return dict(zip(MIXING, np.swapaxes(curves, 0, 1), strict=True))

    def _kind_findings(self, name: str) -> Iterator[Finding]:
        weights, norms = (mean_over_runs([each], [name]) for each in self._tables.values())
        fields = {'sample': int(self.weights[name].count), 'source': SOURCE}
        kind = KINDS[name]
        yield measured(
            f'moved from {kind}',
            norms.interval,
            unit=_NORMS,
            template='Heads give {kind} {weights:.0%} of their attention, and take '
            '{estimate:.0%} of their output from there.',
            kind=kind,
            weights=weights.mean,
            **fields,
        )
        yield measured(f'attention to {kind}', weights.interval, unit=SHARE, **fields)

    def _inactive_findings(self) -> Iterator[Finding]:
        outputs = self.moved.outputs
        of_texts: dict[str, Any] = {'sample': int(outputs.count)}
        for group, tables, source in (
            (BY_WEIGHTS, self.weights, 'Clark et al. 2019, section 3'),
            (BY_NORMS, self.moved.norms, SOURCE),
        ):
            where, (kinds, _) = self.inactive[group], self._most(tables)
            yield how_many(group, where, source=source, **of_texts)
            for name in SINKS:
                most = where & (kinds == name)
                if most.any():
                    yield how_many(f'{group}: {KINDS[name]}', most, source=source, **of_texts)
            if group == BY_WEIGHTS and where.any():
                shares = [
                    self.moved.norms[str(kinds[head])].mean[head]
                    for head in map(tuple, np.argwhere(where))
                ]
                name = f'{group}: what they move from there'
                yield measured(name, np.mean(shares), unit=_NORMS, source=SOURCE, **of_texts)
        least = top_head(-outputs.mean)
        of_texts['source'] = SOURCE_OF_INACTIVE
        yield how_many(BY_OUTPUT, self.inactive[BY_OUTPUT], **of_texts)
        name, interval = 'least output of a head', interval_of(outputs, least, (0.0, np.inf))
        yield extreme(name, least, interval, unit=_OF_LAYER, **of_texts)

    def _loss_findings(self) -> Iterator[Finding]:
        lost = self.lost
        if lost is None:
            return
        for group, where in self.inactive.items():
            if not where.any():
                continue
            fields = {'sample': lost.examples, 'source': 'two one-sided tests, Schuirmann 1987'}
            for which, words in {
                f'changes {TITLES[lost.metric]} by less than {100 * MARGIN:g} points': (NO_MATTER,),
                'changes it by more': (WORSE, BETTER),
                'cannot be told': (OPEN,),
            }.items():
                yield how_many(f'losing {group} {which}', lost.which(*words)[where], **fields)
            for which, heads in {group: where, 'other heads': ~where}.items():
                if heads.any():
                    name = f'losing {group}: mean change, {which}'
                    change = 100 * np.nanmean(np.abs(lost.difference[heads]))
                    yield measured(name, change, unit='points', **fields)

    def _activity(self):
        columns = {}
        for (by, tables), share in zip(
            self._tables.items(), ('share_of_attention', 'share_of_norms'), strict=True
        ):
            columns[f'most_by_{by}'], columns[share] = self._most(tables)
        columns['output_of_layer_mean'] = self.moved.outputs.mean
        if self.lost is not None:
            columns['points_without_it'] = 100 * self.lost.difference
        return grids_frame(
            columns, 'The kind of token that has most of each head, and the length of its output.'
        )


def _ablation(given) -> Call | None:
    return given.result('ablate') if 'ablate' in given.results else None


@analysis(
    question='what heads move, compared with what they look at, and inactive heads',
    time='15 s',
    inputs={'ablation': _ablation},
    wants=lambda given: statistics(),
    cost=lambda given: given.one_pass('moved', 6, 12, 5),
)
def contributions(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    ablation: Disabled | None = None,
    settings: TextSettings = TextSettings(),
) -> Contributions:
    """Measure what heads move beside what they look at, and which of them are inactive.

    That takes four passes over the texts. Memory grows with the square of their length. A pass
    holds the maps of a batch [B, L, N, T, S]. Of one layer at a time, it holds the vectors that
    heads move [B, S, N, D].

    Args:
      pretrained, texts: The model, and the texts that it reads.
      ablation: The effect of losing each head, from `ablation` with the set 'heads'. It is of the
        same model or of what that was fine-tuned to. None leaves it out.
      settings: As in `special_tokens`.

    Raises:
      ValueError: Heads were removed from the model, the ablation is of a model with other layers
        or heads, or `encode` would refuse the texts.
    """
    config = pretrained.config
    lost = lost_in(ablation, (config.num_hidden_layers, config.num_attention_heads))
    weights = settings.tables(pretrained, texts, statistics())
    batches = batches_of(pretrained, texts, settings, annotated=False)

    def one(what: str, statistic, maps_of) -> HeadTable:
        given = {'mesh': settings.mesh, 'maps_of': maps_of}
        return stream((pretrained,), with_progress(batches, what), {what: statistic}, **given)[what]

    given = {'mesh': settings.mesh, 'maps_of': moved.shares_of_norms}
    norms = measure(pretrained, with_progress(batches, 'Norms'), statistics(), **given)
    mixing = one('Mixing ratios', moved.over_tokens, moved.mixing_ratios)
    outputs = one('Outputs of heads', moved.beside_layer, moved.output_norms)
    found = Moved(norms, mixing, outputs, config.family.norm_first)
    return Contributions(weights, found, lost)


def statistics() -> list[Described]:
    """Return the statistics of attention that are measured by weights and by norms."""
    return [named(name) for name in KINDS]


def lost_in(ablation: Disabled | None, shape: tuple[int, int]) -> Lost | None:
    """Return what losing each head does; None if single heads were not disabled."""
    if ablation is None or 'heads' not in ablation.sets:
        return None
    ablated = ablation.sets['heads']
    mend = ': give the ablation of the same model'
    check_shape('ablation', ablated, mend, layers=shape[0], heads=shape[1])
    found = ablated.found
    return Lost(
        metric=ablated.metric,
        meaning=ablation.meaning,
        examples=found.sample,
        difference=np.reshape(found.difference, shape),
        verdict=np.reshape(found.verdict, shape),
    )


def _draw_profiles(result: Contributions):
    tables = result._tables
    return plots.head_points(
        {
            f'by {name}': {kind: each[kind].mean for kind in result.sinks}
            for name, each in tables.items()
        },
        label='share',
    ).captioned(
        f'Shares of attention (left) and of what is moved (right) ({SOURCE}). Points: heads; '
        'lines: means.',
        {f'by {name}': plots.Source('heads', 'mean', f'{{}}, {name}') for name in tables},
    )


def _draw_heads(result: Contributions):
    grids = {
        f'{kind}, {name}': each[kind].mean
        for kind in result.sinks[:2]
        for name, each in result._tables.items()
    }
    return plots.head_grids(grids, label='share', limits=(0.0, 1.0)).captioned(
        'The same shares, head by head.', plots.Source('heads', 'mean')
    )


def _draw_mixing(result: Contributions):
    of_bert = paper.mixing_ratios()['bert-base-uncased']
    return plots.layer_curves(
        {way: tuple(each) for way, each in result._mixing_curves().items()},
        label='from other tokens (%)',
        limits=(0.0, 100.0),
        published={way: 100 * ratio for way, ratio in of_bert.items()},
        published_name='Kobayashi et al.: BERT-base',
    ).captioned(
        'How much of a token comes from other tokens in a layer. Dotted: BERT-base '
        f'({SOURCE_OF_MIXING}).',
        plots.Source('mixing_layers', 'percent'),
    )


def _draw_outputs(result: Contributions):
    title, outputs = 'output of each head', result.moved.outputs.mean
    return plots.head_grids(
        {title: outputs}, label=f'norm, {_OF_LAYER}', marked={title: result.inactive[BY_OUTPUT]}
    ).captioned(
        'Length of the output of each head, divided by the mean of its layer. Red circles: below '
        f'{NEXT_TO_NOTHING:g}.',
        plots.Source('heads', 'mean', 'output'),
    )
