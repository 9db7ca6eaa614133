"""Vectors that heads move, beside their attention: norms, mixing ratios and inactive heads.

Attention weighs vectors, and says nothing of how long they are (Kobayashi et al. 2020, 2021).

Shapes: L layers, N heads.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses import verdicts
from bert_secrets_jax.analyses.common.disabling import Disabled
from bert_secrets_jax.analyses.common.inputs import TextSettings, batches_of, with_progress
from bert_secrets_jax.analyses.common.tables import (
    OF_SHARES,
    Tables,
    Which,
    greatest,
    grids_frame,
    heads_frame,
    mean_finding,
    mean_over_runs,
    table,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.contributions import norms as moved
from bert_secrets_jax.contributions.norms import MIXING
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import SHARE, Described, measure, named
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Result, how_many, noted
from bert_secrets_jax.stats.effects import NO_MATTER, Effects
from bert_secrets_jax.stats.student import interval

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
_ENDS = 'percent', 'low', 'high'
_MOVED = (
    'Attention and output differ most for {kind}: heads give it {weights:.0%} of their attention, '
    'and take {estimate:.0%} of their output there.'
)
_INACTIVE = (
    '{estimate} {unit} may do nothing: they serve one kind of token above all, or put out next to '
    'nothing.'
)


class Contributions(Result):
    """The vectors that each head moves beside its attention, how tokens mix, and inactive heads.

    Attributes:
      tables: The table of each of `KINDS`, by its name: by 'weights', attention to tokens of the
        kind; by 'norms', the share of what a head moves to a token that comes from such tokens.
      mixing: [L, 5] How much of a token comes from other tokens, in the five ways of `MIXING`.
      outputs: [L, N] The norm of the output of each head, divided by the mean of its layer.
      norm_first: Whether LayerNorm stands before attention.
      lost: The effect of losing each head, from `ablation`; None if it was not measured.
      meaning: A sentence that says what a lost head does; empty if that was not measured.
    """

    title = 'What heads move'

    tables: Mapping[str, Tables]
    mixing: HeadTable
    outputs: HeadTable
    norm_first: bool
    lost: Effects | None = None
    meaning: str = ''

    @property
    def kinds(self) -> list[str]:
        """The kinds of tokens that the texts have."""
        return [name for name in KINDS if self.tables['weights'][name].count]

    @property
    def sinks(self) -> list[str]:
        """Those that a head may attend to for want of anything to do."""
        return [name for name in SINKS if name in self.kinds]

    @property
    def inactive(self) -> dict[str, Which]:
        """Which heads are inactive in each of three ways."""
        return {
            BY_WEIGHTS: self._most('weights')[1] >= HALF,
            BY_NORMS: self._most('norms')[1] >= HALF,
            BY_OUTPUT: self.outputs.mean < NEXT_TO_NOTHING,
        }

    def verdicts(self):
        return [verdicts.sep_moves_little(*(each['all [SEP]'] for each in self.tables.values()))]

    def _draw_weights_and_norms(self):
        return plots.head_points(
            {
                f'by {name}': {kind: each[kind].mean for kind in self.sinks}
                for name, each in self.tables.items()
            },
            label='share',
        ).captioned(
            f'Shares of attention (left) and of what is moved (right) ({SOURCE}). Points: heads; '
            'lines: means.',
            {f'by {name}': plots.Source('heads', 'mean', f'{{}}, {name}') for name in self.tables},
        )

    def _draw_mixing(self):
        of_bert = paper.mixing_ratios()['bert-base-uncased']
        layers = self.labelled['mixing_layers'].frame().groupby('way')
        return plots.layer_curves(
            {way: tuple(np.array(layers.get_group(way)[[*_ENDS]]).T) for way in MIXING},
            label='from other tokens (%)',
            limits=(0.0, 100.0),
            published={way: 100 * ratio for way, ratio in of_bert.items()},
            published_name='Kobayashi et al.: BERT-base',
        ).captioned(
            'How much of a token comes from other tokens in a layer. Dotted: BERT-base '
            f'({SOURCE_OF_MIXING}).',
            plots.Source('mixing_layers', 'percent'),
        )

    def findings(self):
        weights, norms = (
            {kind: float(each[kind].mean.mean()) for kind in self.kinds}
            for each in self.tables.values()
        )
        kind = max(self.kinds, key=lambda kind: abs(norms[kind] - weights[kind]))
        moved = mean_finding(
            f'moved from {kind}',
            [self.tables['norms']],
            [kind],
            unit=_NORMS,
            source=SOURCE,
            template=_MOVED,
            kind=KINDS[kind],
            weights=weights[kind],
        )
        inactive = np.logical_or.reduce([*self.inactive.values()])
        fields = {'sample': int(self.outputs.count), 'source': SOURCE_OF_INACTIVE}
        return [moved, how_many('inactive heads', inactive, template=_INACTIVE, **fields)]

    def notes(self):
        unknown = 'Whether losing inactive heads matters was not measured: it takes an ablation.'
        same = 'LayerNorm stands before attention here, so two of the ways are the same.'
        return [
            'By norms, each weight is multiplied by the length of the vector that it moves.',
            *noted({same: self.norm_first}),
            self.meaning or unknown,
        ]

    def _most(self, by: str) -> tuple[np.ndarray, np.ndarray]:
        known = self.sinks or SINKS[:1]
        return greatest(known, [self.tables[by][name].mean for name in known])


@analysis(
    question='what heads move, compared with what they look at, and inactive heads',
    time='15 s',
    inputs={
        'ablation': lambda given: given.result('ablate') if 'ablate' in given.results else None
    },
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
    config, lost, meaning = pretrained.config, None, ''
    # It says something of heads only if each was disabled alone.
    if ablation is not None and 'heads' in ablation.sets:
        shape = {'layers': config.num_hidden_layers, 'heads': config.num_attention_heads}
        mend = ': give the ablation of the same model'
        check_shape('ablation', ablation.sets['heads'], mend, **shape)
        lost, meaning = ablation.sets['heads'].found, ablation.meaning
    weights = settings.tables(pretrained, texts, statistics())
    batches = batches_of(pretrained, texts, settings, annotated=False)

    def read(what: str, maps_of, described=(), **also):
        how = {'maps_of': maps_of, 'mesh': settings.mesh, 'also': also}
        return measure(pretrained, with_progress(batches, what), described, **how)

    result = Contributions(
        tables={'weights': weights, 'norms': read('Norms', moved.shares_of_norms, statistics())},
        **read('Mixing ratios', moved.mixing_ratios, mixing=moved.over_tokens),
        **read('Outputs of heads', moved.output_norms, outputs=moved.beside_layer),
        norm_first=config.family.norm_first,
        lost=lost,
        meaning=meaning,
    )
    return labelled(result)


def statistics() -> list[Described]:
    """Return the statistics of attention that are measured by weights and by norms."""
    return [named(name) for name in KINDS]


def labelled(found: Contributions) -> Contributions:
    """Return the result with its tables: mixing, inactive heads, kinds of tokens, and heads."""
    tables = {f'{name}, {by}': each for by, of in found.tables.items() for name, each in of.items()}
    units = {name: SHARE if name.endswith('weights') else _NORMS for name in tables}
    mixing = found.mixing
    means = [
        mean_over_runs([{way: mixing}], [way], np.s_[:, place], limits=OF_SHARES).interval
        for place, way in enumerate(MIXING)
    ]
    of_layers = interval(mixing.mean, mixing.standard_error, mixing.count - 1, OF_SHARES)
    published = {
        f'published: {name}': [100 * ratios[way] for way in MIXING]
        for name, ratios in paper.mixing_ratios().items()
    }
    groups, lost, activity = [*found.inactive.values()], {}, {}
    for by, share in (('weights', 'share_of_attention'), ('norms', 'share_of_norms')):
        activity[f'most_by_{by}'], activity[share] = found._most(by)
    activity['output_of_layer_mean'] = found.outputs.mean
    if found.lost is not None:
        lost = {'do_not_matter': found.lost.verdict == NO_MATTER, 'matter': found.lost.matters}
        points = 100 * found.lost.difference.reshape(found.outputs.mean.shape)
        activity['points_without_it'] = points
    names = [[head_name(*head) for head in np.argwhere(each)] for each in groups]
    return found.with_frames(
        {
            'mixing': table(
                'How much of a token comes from other tokens in a layer: mean over layers.',
                way=[*MIXING],
                **dict(zip(_ENDS, 100 * np.transpose(means), strict=True)),
                **published,
            ),
            'inactive': table(
                'Heads that may do nothing: at least half of the attention or output is for one '
                'kind of token, or the output is short. A change below half a point does not '
                'matter, significant or not.',
                inactive=[*found.inactive],
                heads=[each.sum() for each in groups],
                which=[', '.join(each) or 'none' for each in names],
                **{k: [those[each.ravel()].sum() for each in groups] for k, those in lost.items()},
            ),
            'mixing_layers': grids_frame(
                dict(zip(_ENDS, 100 * np.swapaxes(of_layers, 1, 2), strict=True)),
                'How much of a token comes from other tokens, layer by layer.',
                by={'way': list(MIXING)},
                sure={'percent': ('low', 'high')},
            ),
            'kinds': grids_frame(
                {
                    column: [tables[name].mean.mean(axis=1) for name in found.kinds]
                    for column, tables in found.tables.items()
                },
                'Shares of attention and of what is moved, means over the heads of a layer.',
                by={'kind': found.kinds},
            ),
            'activity': grids_frame(
                activity,
                'The kind of token that has most of each head, and the length of its output.',
            ),
            'heads': heads_frame(
                {**tables, 'output': found.outputs},
                {**units, 'output': 'of the mean of its layer'},
                'Each number of each head.',
            ),
        }
    )
