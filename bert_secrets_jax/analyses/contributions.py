"""Vectors that heads move, beside their attention: norms, mixing ratios and inactive heads.

Attention weighs vectors, and says nothing of how long they are (Kobayashi et al. 2020, 2021).

Shapes: L layers, N heads.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from bert_secrets_jax import paper, plots
from bert_secrets_jax.ablation.significance import LEVEL, MARGIN
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.ablation import Ablation
from bert_secrets_jax.analyses.tables import (
    OverRuns,
    Tables,
    grids_frame,
    half_width,
    heads_frame,
    interval_of,
    mean_over_runs,
)
from bert_secrets_jax.analyses.texts import TextSettings, batches_of
from bert_secrets_jax.contributions import norms as moved
from bert_secrets_jax.contributions.norms import MIXING
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.catalogue import SHARE, Described, measure, named
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.progress import progress
from bert_secrets_jax.runs.findings import extreme, how_many, measured
from bert_secrets_jax.runs.result import Figures, Finding, Result, Subject, framed

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
BY_WEIGHTS, BY_NORMS, BY_OUTPUT = (
    'sinks by weights',
    'sinks by norms',
    'heads with next to no output',
)
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
      changes: [L, N] Whether losing it changes the score significantly (Holm over all heads), and
        is not shown to change it by less than MARGIN.
      equal: [L, N] Whether it is shown to change it by less than MARGIN (two one-sided tests, Holm
        over all heads).
    """

    metric: str
    meaning: str
    examples: int
    difference: Float[np.ndarray, 'L N']
    changes: Bool[np.ndarray, 'L N']
    equal: Bool[np.ndarray, 'L N']


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Contributions(Result):
    """The vectors that each head moves beside its attention, how tokens mix, and inactive heads.

    Attributes:
      subject: The names of the model and the texts.
      weights: The table of attention to each of `KINDS`, by its name.
      moved: The measurements of the vectors that heads move.
      lost: The effect of losing each head; None if it was not measured.
    """

    FORMAT: ClassVar[int] = 2

    subject: Subject
    weights: Tables
    moved: Moved
    lost: Lost | None = None

    @property
    def title(self) -> str:
        return 'What heads move, beside what they look at'

    @property
    def kinds(self) -> list[str]:
        """The kinds of tokens that the texts have."""
        return [name for name in KINDS if self.weights[name].count]

    @property
    def inactive(self) -> dict[str, Bool[np.ndarray, 'L N']]:
        """Which heads are inactive in each of three ways."""
        return {
            BY_WEIGHTS: self._most(self.weights)[1] >= HALF,
            BY_NORMS: self._most(self.moved.norms)[1] >= HALF,
            BY_OUTPUT: self.moved.outputs.mean < NEXT_TO_NOTHING,
        }

    def verdicts(self):
        return [
            verdicts.sep_moves_little(
                *(each['all [SEP]'] for each in (self.weights, self.moved.norms))
            )
        ]

    def frames(self):
        tables = {f'{name}, weights': table for name, table in self.weights.items()}
        tables |= {f'{name}, norms': table for name, table in self.moved.norms.items()}
        units = dict.fromkeys(tables, SHARE) | {
            f'{name}, norms': _NORMS for name in self.moved.norms
        }
        tables['output'], units['output'] = self.moved.outputs, _OF_LAYER
        return {
            'mixing': self._mixing(),
            'inactive': self._inactive(),
            'mixing_layers': self._mixing_layers(),
            'kinds': self._kinds(),
            'activity': self._activity(),
            'heads': heads_frame(tables, units, 'Every number of every head.'),
        }

    def figures(self):
        drawings = {
            'weights_and_norms': _draw_profiles,
            'mixing': _draw_mixing,
            'heads': _draw_heads,
            'outputs': _draw_outputs,
        }
        return Figures({name: functools.partial(draw, self) for name, draw in drawings.items()})

    def findings(self):
        known = [name for name in self.kinds if name in (*SINKS, 'self')]
        of_kinds = [finding for name in known for finding in self._kind_findings(name)]
        return [
            *of_kinds,
            *self._mixing_findings(),
            *self._inactive_findings(),
            *self._loss_findings(),
        ]

    def notes(self):
        said = [
            'By norms, each weight is multiplied by the length of the vector that it weighs.',
            'Weights are averaged over heads; biases that no token brings count for neither.',
        ]
        if self.moved.norm_first:
            said.append(
                'LayerNorm stands before attention here, so both ways with the residual are one.'
            )
        if self.lost is None:
            said.append(
                'Whether losing inactive heads matters was not measured, which takes an ablation.'
            )
        else:
            said.append(f'{self.lost.meaning} Losing is measured in the model that was disabled.')
        return said

    def head_notes(self):
        notes = {
            f'from {KINDS[name]}': np.char.add(
                np.char.mod('%.3f of attention, ', self.weights[name].mean),
                np.char.mod('%.3f of norms', self.moved.norms[name].mean),
            )
            for name in self.kinds
        }
        outputs = np.char.mod(f'%.2f {_OF_LAYER}', self.moved.outputs.mean)
        return notes | {'length of its output': outputs}

    def _most(self, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
        """Return the kind among SINKS that has most of each head [L, N], and its share."""
        known = [name for name in SINKS if tables[name].count] or SINKS[:1]
        grids = np.stack([tables[name].mean for name in known])
        return np.array(known)[grids.argmax(axis=0)], grids.max(axis=0)

    def _kind_findings(self, name: str) -> list[Finding]:
        weights, norms = (
            mean_over_runs([tables], [name]) for tables in (self.weights, self.moved.norms)
        )
        fields = {'sample': int(self.weights[name].count), 'source': SOURCE}
        return [
            measured(
                f'moved from {KINDS[name]}',
                norms.interval,
                unit=_NORMS,
                template='Heads give {kind} {weights:.0%} of their attention and take '
                '{estimate:.0%} of what they move from there.',
                numbers={'kind': KINDS[name], 'weights': weights.mean},
                **fields,
            ),
            measured(f'attention to {KINDS[name]}', weights.interval, unit=SHARE, **fields),
        ]

    def _mixing_findings(self) -> list[Finding]:
        fields = {
            'unit': '%',
            'sample': int(self.moved.mixing.count),
            'source': SOURCE_OF_MIXING,
        }
        return [
            measured(
                f'how much of a token comes from others, by {way}',
                100 * np.array(self._over_layers(index).interval),
                **fields,
            )
            for index, way in enumerate(MIXING)
        ]

    def _inactive_findings(self) -> Iterator[Finding]:
        of_texts = {'sample': int(self.moved.outputs.count)}
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
                    self.moved.norms[kinds[head]].mean[head]
                    for head in map(tuple, np.argwhere(where))
                ]
                yield measured(
                    f'{group}: what they move from there',
                    np.mean(shares),
                    unit=_NORMS,
                    source=SOURCE,
                    **of_texts,
                )
        yield from self._output_findings()

    def _output_findings(self) -> Iterator[Finding]:
        table = self.moved.outputs
        least = tuple(map(int, np.unravel_index(table.mean.argmin(), table.mean.shape)))
        fields = {'sample': int(table.count), 'source': SOURCE_OF_INACTIVE}
        yield how_many(BY_OUTPUT, self.inactive[BY_OUTPUT], **fields)
        yield extreme(
            'least output of a head', least, interval_of(table, least), unit=_OF_LAYER, **fields
        )

    def _loss_findings(self) -> Iterator[Finding]:
        lost = self.lost
        if lost is None:
            return
        fields = {'sample': lost.examples, 'source': 'two one-sided tests, Schuirmann 1987'}
        for group, where in self.inactive.items():
            if not where.any():
                continue
            equal, changes = lost.equal[where], lost.changes[where]
            margin = f'by {100 * MARGIN:g} points of {TITLES[lost.metric]}'
            for which, those in (
                (f'does not matter {margin}', equal),
                ('changes the score significantly', changes),
                ('cannot be told', ~equal & ~changes),
            ):
                yield how_many(f'losing {group} {which}', those, **fields)
            for which, heads in {group: where, 'other heads': ~where}.items():
                if heads.any():
                    yield measured(
                        f'losing {group}: mean change, {which}',
                        100 * np.nanmean(np.abs(lost.difference[heads])),
                        unit='points',
                        **fields,
                    )

    def _over_layers(self, index: int) -> OverRuns:
        """Return the mean over layers of one of the ways of MIXING."""
        return mean_over_runs([{'mixing': self.moved.mixing}], ['mixing'], np.s_[:, index])

    def _mixing(self):
        published = paper.mixing_ratios()
        rows = []
        for index, way in enumerate(MIXING):
            mean = self._over_layers(index)
            rows.append(
                (
                    way, 100 * mean.mean, 100 * mean.low, 100 * mean.high,
                    *(100 * ratios[way] for ratios in published.values()),
                )
            )  # fmt: skip
        return framed(
            ('way', 'percent', 'low', 'high', *(f'published: {name}' for name in published)),
            rows,
            'How much of a token comes from other tokens in a layer: mean over layers.',
        )

    def _mixing_layers(self):
        table = self.moved.mixing
        rows = []
        for layer, index in np.ndindex(table.mean.shape):
            mean, reach = table.mean[layer, index], half_width(table, (layer, index))
            rows.append(
                (layer + 1, MIXING[index], 100 * mean, 100 * (mean - reach), 100 * (mean + reach))
            )
        return framed(
            ('layer', 'way', 'percent', 'low', 'high'),
            rows,
            'The same of each layer, with 95 % intervals over examples.',
            colours=Colours('layers', {'percent': ('low', 'high')}, by=('way',)),
        )

    def _kinds(self):
        rows = [
            (
                layer + 1, name, self.weights[name].mean[layer].mean(),
                self.moved.norms[name].mean[layer].mean(),
            )
            for name in self.kinds
            for layer in range(len(self.weights[name].mean))
        ]  # fmt: skip
        return framed(
            ('layer', 'kind', 'weights', 'norms'),
            rows,
            'Shares of attention and of what is moved, means over the heads of a layer.',
            colours=Colours('layers', {'weights': (), 'norms': ()}, by=('kind',)),
        )

    def _inactive(self):
        rows = []
        for group, where in self.inactive.items():
            names = ', '.join(head_name(*map(int, head)) for head in np.argwhere(where))
            row = (group, int(where.sum()), names or 'none')
            if self.lost is not None:
                row += tuple(
                    int(each[where].sum()) for each in (self.lost.equal, self.lost.changes)
                )
            rows.append(row)
        columns = ('inactive', 'heads', 'which')
        if self.lost is not None:
            columns += ('shown_not_to_matter', 'change_the_score')
        return framed(columns, rows, 'Inactive heads in three ways.')

    def _activity(self):
        (of_weights, weights), (of_norms, norms) = map(self._most, (self.weights, self.moved.norms))
        columns = {
            'most_by_weights': of_weights,
            'share_of_attention': weights,
            'most_by_norms': of_norms,
            'share_of_norms': norms,
            'output_of_layer_mean': self.moved.outputs.mean,
        }
        if self.lost is not None:
            columns['points_without_it'] = 100 * self.lost.difference
        return grids_frame(
            columns, 'Each head: the kind of token that has most of it, and the norm of its output.'
        )


def contributions(
    pretrained: Pretrained,
    texts: Sequence[Text],
    *,
    ablation: Ablation | None = None,
    settings: TextSettings = TextSettings(),
    subject: Subject | None = None,
) -> Contributions:
    """Measure what heads move beside what they look at, and which of them are inactive.

    Each of weights, norms, mixing ratios and outputs takes a pass over the texts. Memory does not
    grow with their number. It grows with the square of their length: a pass holds the maps of a
    batch, [B, L, N, T, S], and of one layer at a time the vectors [B, S, N, D] that heads move.

    Args:
      pretrained: The model.
      texts: The texts that the model reads.
      ablation: The effect of losing each head, from `ablation` with the set 'heads'. It is of the
        same model or of what that was fine-tuned to. None leaves it out.
      settings: The settings for encoding the texts.
      subject: The names of the model and the texts, for sentences and captions.

    Raises:
      ValueError: Heads were removed from the model, the ablation is of a model with other layers
        or heads, or `encode` would refuse the texts.
    """
    # First, since it may be refused.
    config = pretrained.config
    lost = lost_in(ablation, (config.num_hidden_layers, config.num_attention_heads))
    weights = settings.tables(pretrained, texts, statistics())
    batches = batches_of(pretrained, texts, settings, annotated=False)

    def shown(what: str):
        return progress(batches, what, size=lambda batch: batch.size)

    def one(what: str, statistic, maps_of) -> HeadTable:
        statistics = {what: statistic}
        given = {'mesh': settings.mesh, 'maps_of': maps_of}
        return stream((pretrained,), shown(what), statistics, **given)[what]

    found = Moved(
        norms=measure(
            pretrained, shown('Norms'), statistics(), mesh=settings.mesh,
            maps_of=moved.shares_of_norms,
        ),
        mixing=one('Mixing ratios', moved.over_tokens, moved.mixing_ratios),
        outputs=one('Outputs of heads', moved.beside_layer, moved.output_norms),
        norm_first=pretrained.config.family.norm_first,
    )  # fmt: skip
    return Contributions(subject or Subject(), weights, found, lost)


def statistics() -> list[Described]:
    """Return the statistics of attention that are measured by weights and by norms."""
    return [named(name) for name in KINDS]


def lost_in(ablation: Ablation | None, shape: tuple[int, int]) -> Lost | None:
    """Return what losing each head does; None if single heads were not disabled.

    Args:
      ablation: A result of `ablation`, or None.
      shape: The numbers of layers and heads of the model.

    Raises:
      ValueError: The ablation is of a model with other layers or heads.
    """
    ablated = None if ablation is None else ablation.sets.get('heads')
    if ablated is None:
        return None
    if ablated.masks.shape[1:] != shape:
        raise ValueError(
            f'The ablation is of a model of {list(ablated.masks.shape[1:])} layers and heads, and '
            f'this one has {list(shape)}: give that of the same model.'
        )
    found = ablated.found
    return Lost(
        metric=ablated.metric,
        meaning=ablation.meaning,
        examples=found.sample,
        difference=np.reshape(found.difference, shape),
        changes=np.reshape((found.corrected <= LEVEL) & ~(found.equivalent <= LEVEL), shape),
        equal=np.reshape(found.equivalent <= LEVEL, shape),
    )


def _draw_profiles(result: Contributions):
    kinds = [name for name in SINKS if name in result.kinds]
    return plots.head_points(
        {
            'by weights': {name: result.weights[name].mean for name in kinds},
            'by norms': {name: result.moved.norms[name].mean for name in kinds},
        },
        label='share',
    ).captioned(
        'Shares of attention (left) and of what is moved (right): points are heads, lines means of '
        f'layers (in the manner of {SOURCE}).',
        {
            'by weights': plots.Source('heads', 'mean', '{}, weights'),
            'by norms': plots.Source('heads', 'mean', '{}, norms'),
        },
    )


def _draw_heads(result: Contributions):
    kinds = [name for name in SINKS if name in result.kinds][:2]
    grids: dict[str, np.ndarray] = {}
    for name in kinds:
        grids[f'{name}, weights'] = result.weights[name].mean
        grids[f'{name}, norms'] = result.moved.norms[name].mean
    return plots.head_grids(grids, label='share', limits=(0.0, 1.0)).captioned(
        'The same of each head, for [CLS] and for all [SEP] together.',
        plots.Source('heads', 'mean'),
    )


def _draw_mixing(result: Contributions):
    table = result.moved.mixing
    curves = {}
    for index, way in enumerate(MIXING):
        reach = [half_width(table, (layer, index)) for layer in range(len(table.mean))]
        mean = table.mean[:, index]
        curves[way] = tuple(100 * each for each in (mean, mean - reach, mean + reach))
    of_bert = paper.mixing_ratios()['bert-base-uncased']
    return plots.layer_curves(
        curves,
        label='from other tokens (%)',
        limits=(0.0, 100.0),
        published={way: 100 * ratio for way, ratio in of_bert.items()},
        published_name='Kobayashi et al.: BERT-base',
    ).captioned(
        'How much of a token comes from other tokens in a layer, with 95 % intervals. Dotted: the '
        f'published mean of BERT-base ({SOURCE_OF_MIXING}).',
        plots.Source('mixing_layers', 'percent'),
    )


def _draw_outputs(result: Contributions):
    return plots.head_grids(
        {'output of each head': result.moved.outputs.mean},
        label=f'norm, {_OF_LAYER}',
        marked={'output of each head': result.inactive[BY_OUTPUT]},
    ).captioned(
        'Norm of what each head puts out, divided by the mean of its layer; red circles are heads '
        f'below {NEXT_TO_NOTHING:g} of it.',
        plots.Source('heads', 'mean', 'output'),
    )
