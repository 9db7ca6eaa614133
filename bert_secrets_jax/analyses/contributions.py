"""Vectors that heads move, beside their attention: norms, mixing ratios and inactive heads.

Attention weighs vectors, and says nothing of how long they are (Kobayashi et al. 2020, 2021).

Shapes: L layers, N heads.
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

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
    mean_finding,
    mean_over_runs,
    table,
)
from bert_secrets_jax.analyses.common.texts import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.contributions import norms as moved
from bert_secrets_jax.contributions.norms import MIXING
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import SHARE, Described, measure, named
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.call import Call
from bert_secrets_jax.runs.findings import how_many, noted
from bert_secrets_jax.runs.result import Result, drawn
from bert_secrets_jax.stats.effects import BETTER, NO_MATTER, WORSE

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
_ENDS = 'percent', 'low', 'high'
_MOVED = (
    'Attention and output differ most for {kind}: heads give it {weights:.0%} of their attention, '
    'and take {estimate:.0%} of their output there.'
)
_INACTIVE = (
    '{estimate} {unit} may do nothing: they serve one kind of token above all, or put out next to '
    'nothing.'
)


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
      meaning: A sentence that says what a disabled head does.
      difference: [L, N] The score without the head less that of the intact model.
      verdict: [L, N] The verdict on the effect of losing it, as in `Effects.verdict`.
    """

    meaning: str
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
    FORMAT: ClassVar[int] = 4

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
        tables = {
            f'{name}, {by}': each for by, of in self._tables.items() for name, each in of.items()
        }
        units = {name: SHARE if name.endswith('weights') else _NORMS for name in tables}
        runs = [{'mixing': self.moved.mixing}]
        means = [
            mean_over_runs(runs, ['mixing'], np.s_[:, way], limits=OF_SHARES).interval
            for way in range(len(MIXING))
        ]
        published = {
            f'published: {name}': [100 * ratios[way] for way in MIXING]
            for name, ratios in paper.mixing_ratios().items()
        }
        return {
            'mixing': table(
                'How much of a token comes from other tokens in a layer: mean over layers.',
                way=[*MIXING],
                **dict(zip(_ENDS, 100 * np.transpose(means), strict=True)),
                **published,
            ),
            'inactive': self._groups(),
            'mixing_layers': grids_frame(
                dict(zip(_ENDS, self._mixing_curves, strict=True)),
                'How much of a token comes from other tokens, layer by layer.',
                by={'way': list(MIXING)},
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
            'heads': heads_frame(
                {**tables, 'output': self.moved.outputs},
                {**units, 'output': _OF_LAYER},
                'Each number of each head.',
            ),
        }

    def figures(self):
        return drawn(self, weights_and_norms=_draw_profiles, mixing=_draw_mixing)

    def findings(self):
        kind, inactive = max(self.kinds, key=self._differs), [*self.inactive.values()]
        shares = {'kind': KINDS[kind], 'weights': float(self.weights[kind].mean.mean())}
        fields = {'sample': int(self.moved.outputs.count), 'source': SOURCE_OF_INACTIVE}
        return [
            mean_finding(
                f'moved from {kind}',
                [self.moved.norms],
                [kind],
                unit=_NORMS,
                source=SOURCE,
                template=_MOVED,
                **shares,
            ),
            how_many(
                'inactive heads', np.logical_or.reduce(inactive), template=_INACTIVE, **fields
            ),
        ]

    def notes(self):
        unknown = 'Whether losing inactive heads matters was not measured: it takes an ablation.'
        same = 'LayerNorm stands before attention here, so two of the ways are the same.'
        return [
            'By norms, each weight is multiplied by the length of the vector that it moves.',
            *noted({same: self.moved.norm_first}),
            self.lost.meaning if self.lost else unknown,
        ]

    def _most(self, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
        known = self.sinks or SINKS[:1]
        return greatest(known, [tables[name].mean for name in known])

    def _differs(self, kind: str) -> float:
        return abs(float(np.mean(self.moved.norms[kind].mean - self.weights[kind].mean)))

    @property
    def _mixing_curves(self) -> np.ndarray:
        """The mean of each layer by each way of MIXING, and its interval, in % [3, ways, L]."""
        mixing = self.moved.mixing
        ends = [interval_of(mixing, at, OF_SHARES) for at in np.ndindex(mixing.mean.shape)]
        return 100 * np.reshape(ends, (*mixing.mean.shape, 3)).T

    def _groups(self):
        groups, lost = list(self.inactive.values()), {}
        if self.lost is not None:
            verdicts_of = {'do_not_matter': (NO_MATTER,), 'matter': (WORSE, BETTER)}
            lost = {name: self.lost.which(*each) for name, each in verdicts_of.items()}
        names = [[head_name(*head) for head in np.argwhere(each)] for each in groups]
        return table(
            'Heads that may do nothing: at least half of the attention or output is for one '
            'kind of token, or the output is short. A change below half a point does not '
            'matter, significant or not.',
            inactive=[*self.inactive],
            heads=[each.sum() for each in groups],
            which=[', '.join(each) or 'none' for each in names],
            **{name: [those[each].sum() for each in groups] for name, those in lost.items()},
        )

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
    cost=lambda given: 6 * given.tokens('texts'),
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
        meaning=ablation.meaning,
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


def _draw_mixing(result: Contributions):
    of_bert = paper.mixing_ratios()['bert-base-uncased']
    return plots.layer_curves(
        dict(zip(MIXING, zip(*result._mixing_curves, strict=True), strict=True)),
        label='from other tokens (%)',
        limits=(0.0, 100.0),
        published={way: 100 * ratio for way, ratio in of_bert.items()},
        published_name='Kobayashi et al.: BERT-base',
    ).captioned(
        'How much of a token comes from other tokens in a layer. Dotted: BERT-base '
        f'({SOURCE_OF_MIXING}).',
        plots.Source('mixing_layers', 'percent'),
    )
