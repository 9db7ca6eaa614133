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
    half_width,
    heads_frame,
    mean_over_runs,
)
from bert_secrets_jax.analyses.texts import TextSettings, batches_of
from bert_secrets_jax.contributions import norms as moved
from bert_secrets_jax.contributions.norms import MIXING
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.catalogue import SHARE, Described, measure, named
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import counted, head_name
from bert_secrets_jax.progress import progress
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
# Phrases for one sink, and for several.
_GIVES = 'gives at least half of its attention to|give at least half of their attention to'
_TAKES = 'takes at least half of what it moves from|take at least half of what they move from'
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
        of_kinds = [self._of_kind(name) for name in self.kinds if name in (*SINKS, 'self')]
        return [*of_kinds, self._of_mixing(), *self._of_inactive(), *self._of_losing()]

    def notes(self):
        said = [
            'By weights, attention to a kind of token is summed over its tokens and averaged over '
            'the tokens that attend. By norms, each weight is multiplied by the length of the '
            'vector that it weighs, and is a share of the sum over all tokens.',
            'How much of a token comes from others is told by the length of what they give it '
            'together, beside the length of what comes from itself. Weights are averaged over '
            'heads, and biases that no token brings count for neither. Intervals are over '
            'examples; those of means over heads or layers allow for any dependence between them.',
        ]
        if self.moved.norm_first:
            said.append(
                'LayerNorm stands before attention in this model and is part of what heads do: '
                'the way with LayerNorm is the same as the one with the residual alone.'
            )
        if self.lost is None:
            said.append(
                'Whether losing inactive heads matters was not measured: that takes a result of '
                'ablation.'
            )
        else:
            said.append(
                f'{self.lost.meaning} What losing a head does is measured in the model whose heads '
                'were disabled, which in a report is the fine-tuned one.'
            )
        return said

    def head_notes(self):
        notes = {}
        for name in self.kinds:
            weights, shares = self.weights[name].mean, self.moved.norms[name].mean
            texts = [
                f'{weight:.3f} of attention, {share:.3f} of norms'
                for weight, share in zip(weights.ravel(), shares.ravel(), strict=True)
            ]
            notes[f'from {KINDS[name]}'] = np.reshape(texts, weights.shape)
        outputs = self.moved.outputs.mean
        notes['length of its output'] = np.reshape(
            [f'{value:.2f} {_OF_LAYER}' for value in outputs.ravel()], outputs.shape
        )
        return notes

    def _most(self, tables: Tables) -> tuple[np.ndarray, np.ndarray]:
        """Return the kind among SINKS that has most of each head [L, N], and its share."""
        known = [name for name in SINKS if tables[name].count] or SINKS[:1]
        grids = np.stack([tables[name].mean for name in known])
        return np.array(known)[grids.argmax(axis=0)], grids.max(axis=0)

    def _of_kind(self, name: str) -> Finding:
        weights, norms = (
            mean_over_runs([tables], [name]) for tables in (self.weights, self.moved.norms)
        )
        first = name == self.kinds[0]
        return Finding(
            name=f'moved from {KINDS[name]}',
            estimate=norms.mean,
            low=norms.low,
            high=norms.high,
            unit=_NORMS,
            sample=int(self.weights[name].count),
            source=SOURCE,
            template=(
                'Heads give {kind} {weights:.3f}{of_weights} of their attention, and '
                '{estimate:.3f}{of_norms} of what they move comes from there, as means over all '
                'heads.{where}'
            ),
            numbers={
                'kind': KINDS[name],
                'weights': weights.mean,
                'of_weights': _interval(weights),
                'of_norms': _interval(norms),
                'where': f' Measured in {self.subject.model} on '
                f'{counted(self.weights[name].count, "example")} of {self.subject.texts}.'
                if first
                else '',
            },
        )

    def _of_mixing(self) -> Finding:
        rows = {way: self._over_layers(index) for index, way in enumerate(MIXING)}
        *_, last = rows.values()
        percent = {f'way_{index}': 100 * each.mean for index, each in enumerate(rows.values())}
        of_bert = paper.mixing_ratios()['bert-base-uncased']
        published = {f'bert_{index}': 100 * of_bert[way] for index, way in enumerate(MIXING)}
        return Finding(
            name='how much of a token comes from others',
            estimate=100 * last.mean,
            low=100 * last.low,
            high=100 * last.high,
            unit='%',
            sample=int(self.moved.mixing.count),
            source=SOURCE_OF_MIXING,
            template=_MIXING_SENTENCE,
            numbers=percent
            | published
            | {
                'interval': ''
                if np.isnan(last.low)
                else f' ({100 * last.low:.1f} to {100 * last.high:.1f})'
            },
        )

    def _of_inactive(self) -> Iterator[Finding]:
        heads = self.moved.outputs.mean.size
        for group, tables, does in (
            (BY_WEIGHTS, self.weights, _GIVES),
            (BY_NORMS, self.moved.norms, _TAKES),
        ):
            where = self.inactive[group]
            kinds, _ = self._most(tables)
            counts = {name: int((kinds[where] == name).sum()) for name in SINKS}
            spread = ', '.join(f'{KINDS[name]}: {each}' for name, each in counts.items() if each)
            yield Finding(
                name=group,
                estimate=int(where.sum()),
                unit='heads',
                sample=int(self.moved.outputs.count),
                source=SOURCE if group == BY_NORMS else 'Clark et al. 2019, section 3',
                template=(
                    f'Of {{heads}} heads, {{estimate}} {{estimate:|{does}}} one of [CLS], [SEP], '
                    f'or full stops '
                    'and commas{spread}.{instead}'
                ),
                numbers={
                    'heads': heads,
                    'spread': f' ({spread})' if spread else '',
                    'instead': self._instead(where, kinds, group),
                },
            )
        yield self._of_outputs()

    def _instead(self, where: np.ndarray, kinds: np.ndarray, group: str) -> str:
        """Return a sentence on what sinks by weights take from there; empty for others."""
        if group != BY_WEIGHTS or not where.any():
            return ''
        shares = [
            self.moved.norms[kinds[head]].mean[head] for head in map(tuple, np.argwhere(where))
        ]
        return f' Of what they move, {np.mean(shares):.2f} comes from there on average.'

    def _of_outputs(self) -> Finding:
        table = self.moved.outputs
        least = tuple(map(int, np.unravel_index(table.mean.argmin(), table.mean.shape)))
        reach = half_width(table, least)
        count = int(self.inactive[BY_OUTPUT].sum())
        return Finding(
            name='least output of a head',
            estimate=float(table.mean[least]),
            low=float(table.mean[least] - reach),
            high=float(table.mean[least] + reach),
            unit=_OF_LAYER,
            sample=int(table.count),
            source=SOURCE_OF_INACTIVE,
            template=(
                '{count} of {heads} heads {put} out next to nothing, less than {bound:g} of the '
                'mean norm of the heads of their layer. Least is {head}, with '
                '{estimate:.2f}{interval}.'
            ),
            numbers={
                'count': count or 'None',
                'put': 'put' if count > 1 else 'puts',
                'heads': table.mean.size,
                'bound': NEXT_TO_NOTHING,
                'head': head_name(*least),
                'interval': ''
                if np.isnan(reach)
                else f' ({table.mean[least] - reach:.2f} to {table.mean[least] + reach:.2f})',
            },
        )

    def _of_losing(self) -> Iterator[Finding]:
        lost = self.lost
        if lost is None:
            return
        for group, where in self.inactive.items():
            if not where.any():
                continue
            equal, changes = (int(each[where].sum()) for each in (lost.equal, lost.changes))
            yield Finding(
                name=f'losing {group}',
                estimate=equal,
                unit='heads',
                sample=lost.examples,
                source='two one-sided tests, Schuirmann 1987',
                template=(
                    'Of {count} {group}, {estimate} can be lost without changing {metric} by '
                    '{margin:.1f} points (two one-sided tests), the loss of {changes} changes it '
                    'significantly and perhaps by more, and for {open} these examples cannot '
                    'tell. On average, the loss of one of them changes it by {mean:.2f} '
                    'points{others}.'
                ),
                numbers={
                    'count': int(where.sum()),
                    'group': group,
                    'margin': 100 * MARGIN,
                    'metric': TITLES[lost.metric],
                    'changes': changes,
                    'open': int(where.sum()) - equal - changes,
                    'mean': 100 * float(np.nanmean(np.abs(lost.difference[where]))),
                    'others': ', and that of another head by '
                    f'{100 * np.nanmean(np.abs(lost.difference[~where])):.2f}'
                    if not where.all()
                    else '',
                },
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
            'How much of a token comes from other tokens in a layer, in percent: mean over layers '
            'with its 95 % interval, and what Kobayashi et al. (2021) published.',
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
            'Shares of attention and of what is moved by kind of token, means over the heads of a '
            'layer.',
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
        return framed(
            columns,
            rows,
            'Heads with at least half at one of [CLS], [SEP], or full stops and commas, by weights '
            f'and by norms, and those whose output is below {NEXT_TO_NOTHING:g} of the mean of '
            'their layer.',
        )

    def _activity(self):
        (of_weights, weights), (of_norms, norms) = map(self._most, (self.weights, self.moved.norms))
        outputs = self.moved.outputs.mean
        rows = [
            (
                head[0] + 1, head[1] + 1, of_weights[head], weights[head], of_norms[head],
                norms[head], outputs[head],
                *(() if self.lost is None else (100 * self.lost.difference[head],)),
            )
            for head in np.ndindex(outputs.shape)
        ]  # fmt: skip
        columns = (
            'most_by_weights', 'share_of_attention', 'most_by_norms', 'share_of_norms',
            'output_of_layer_mean',
        )  # fmt: skip
        if self.lost is not None:
            columns += ('points_without_it',)
        return framed(
            ('layer', 'head', *columns),
            rows,
            'Each head: which of [CLS], [SEP], or full stops and commas has most of it, and the '
            'norm of its output, of the mean of its layer.',
            colours=Colours('heads', dict.fromkeys(columns, ())),
        )


_MIXING_SENTENCE = (
    'How much of a token comes from the others in a layer depends on what counts: by weights '
    '{way_0:.1f} %, by norms {way_1:.1f} %; with the residual {way_2:.1f} % and {way_3:.1f} %; and '
    'with LayerNorm {estimate:.1f} %{interval}, as means over layers. Kobayashi et al. report '
    '{bert_0:.1f}, {bert_1:.1f}, {bert_2:.1f}, {bert_3:.1f} and {bert_4:.1f} % of BERT-base.'
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
    found = measure_moved(pretrained, batches, settings)
    return Contributions(subject or Subject(), weights, found, lost)


def statistics() -> list[Described]:
    """Return the statistics of attention that are measured by weights and by norms."""
    return [named(name) for name in KINDS]


def measure_moved(
    pretrained: Pretrained, batches: Sequence[Batch], settings: TextSettings
) -> Moved:
    """Measure the vectors that heads move, in a pass for each kind of number.

    Args:
      pretrained: The model.
      batches: The batches of the texts.
      settings: The settings, of which only the devices are used.
    """

    def shown(what: str):
        return progress(batches, what, size=lambda batch: batch.size)

    def one(what: str, statistic, maps_of) -> HeadTable:
        found = stream(
            (pretrained,), shown(what), {what: statistic}, mesh=settings.mesh, maps_of=maps_of
        )
        return found[what]

    return Moved(
        norms=measure(
            pretrained, shown('Norms'), statistics(), mesh=settings.mesh,
            maps_of=moved.shares_of_norms,
        ),
        mixing=one('Mixing ratios', moved.over_tokens, moved.mixing_ratios),
        outputs=one('Outputs of heads', moved.beside_layer, moved.output_norms),
        norm_first=pretrained.config.family.norm_first,
    )  # fmt: skip


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
        examples=ablated.examples,
        difference=np.reshape(found.difference, shape),
        changes=np.reshape((found.holm <= LEVEL) & ~(found.equivalent <= LEVEL), shape),
        equal=np.reshape(found.equivalent <= LEVEL, shape),
    )


def _interval(mean: OverRuns) -> str:
    return '' if np.isnan(mean.low) else f' ({mean.low:.3f} to {mean.high:.3f})'


def _draw_profiles(result: Contributions):
    kinds = [name for name in SINKS if name in result.kinds]
    figure = plots.head_points(
        {
            'by weights': {name: result.weights[name].mean for name in kinds},
            'by norms': {name: result.moved.norms[name].mean for name in kinds},
        },
        label='share',
    )
    figure.source = {
        'by weights': plots.Source('heads', 'mean', '{}, weights'),
        'by norms': plots.Source('heads', 'mean', '{}, norms'),
    }
    figure.caption = (
        'Shares of attention (left) and of what is moved (right) by kind of token: each point is a '
        'head, a mean over examples, and each line the mean of a layer (in the manner of '
        f'{SOURCE}).'
    )
    return figure


def _draw_heads(result: Contributions):
    kinds = [name for name in SINKS if name in result.kinds][:2]
    grids: dict[str, np.ndarray] = {}
    for name in kinds:
        grids[f'{name}, weights'] = result.weights[name].mean
        grids[f'{name}, norms'] = result.moved.norms[name].mean
    figure = plots.head_grids(grids, label='share', limits=(0.0, 1.0))
    figure.source = plots.Source('heads', 'mean')
    figure.caption = 'The same of each head, for [CLS] and for all [SEP] together.'
    return figure


def _draw_mixing(result: Contributions):
    table = result.moved.mixing
    curves = {}
    for index, way in enumerate(MIXING):
        reach = [half_width(table, (layer, index)) for layer in range(len(table.mean))]
        mean = table.mean[:, index]
        curves[way] = tuple(100 * each for each in (mean, mean - reach, mean + reach))
    of_bert = paper.mixing_ratios()['bert-base-uncased']
    figure = plots.layer_curves(
        curves,
        label='from other tokens (%)',
        limits=(0.0, 100.0),
        published={way: 100 * ratio for way, ratio in of_bert.items()},
        published_name='Kobayashi et al.: BERT-base',
    )
    figure.source = plots.Source('mixing_layers', 'percent')
    figure.caption = (
        'How much of a token comes from other tokens in a layer, by what counts; vertical lines '
        'are 95 % intervals over examples. Dotted: the published mean over the layers of BERT-base '
        f'({SOURCE_OF_MIXING}).'
    )
    return figure


def _draw_outputs(result: Contributions):
    figure = plots.head_grids(
        {'output of each head': result.moved.outputs.mean},
        label=f'norm, {_OF_LAYER}',
        marked={'output of each head': result.inactive[BY_OUTPUT]},
    )
    figure.source = plots.Source('heads', 'mean', 'output')
    figure.caption = (
        'Norm of what each head puts out, divided by the mean of its layer; red circles are heads '
        f'below {NEXT_TO_NOTHING:g} of it.'
    )
    return figure
