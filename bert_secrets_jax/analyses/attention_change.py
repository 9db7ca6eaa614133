"""How much fine-tuning changes each head's attention (section 4.3, Figure 5)."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.analyses.common.changes import READINGS, SOURCE, UNIT, last_layers
from bert_secrets_jax.analyses.common.inputs import Models, TextSettings
from bert_secrets_jax.analyses.common.tables import (
    Description,
    Tables,
    beside_published,
    describe,
    grids_frame,
    mean_finding,
    mean_over_runs,
    over_seeds,
    records,
    seeds_frame,
    top_head,
    with_ends,
)
from bert_secrets_jax.analyses.declaration import analysis
from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.tasks import Text
from bert_secrets_jax.measure.catalogue import DEFAULTS, ENTROPY, SHARE, Described, change, named
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Result, agreement_of_grids

# The finding of how attention changes.
ON_AVERAGE = 'change of attention, mean over heads'
_CHANGE = 'change (1 - cosine similarity)'
_TITLES = {'paper': 'over real tokens', 'notebook': 'over padded maps (notebook)'}
# The number of wordpieces to which the authors' notebook pads every example.
NOTEBOOK_LENGTH = 200
_CHANGES = 'Fine-tuning changes {where} (similarity before and after: {estimate:.2f}).'
_CHANGES_MOST = (
    'Fine-tuning changes {where} most (similarity before and after: {estimate:.2f}), then layer '
    '{second} ({next:.2f}).'
)


class AttentionChange(Result):
    """The similarity of the maps before and after fine-tuning.

    Attributes:
      readings: The tables of the cosine similarity, by the reading and then by the seed of the
        fine-tuned model. 'paper' compares real tokens, 'notebook' maps padded to 200 wordpieces.
      statistics: The descriptions of the statistics in `runs`.
      runs: The tables of each fine-tuned model by its seed: its statistics, and their changes
        example by example ('change of [SEP]').
    """

    title = 'What fine-tuning changes in attention'

    readings: Mapping[str, Mapping[str, Tables]]
    statistics: tuple[Description, ...] = ()
    runs: Mapping[str, Tables] = dataclasses.field(default_factory=dict)

    @property
    def grids(self) -> dict[str, np.ndarray]:
        """The similarity of each head, mean over examples and seeds [L, N], by reading."""
        return {
            reading: np.mean([run[READINGS[reading]].mean for run in runs.values()], axis=0)
            for reading, runs in self.readings.items()
        }

    def verdicts(self):
        return last_layers(self.readings.get('paper', {}))

    def frames(self):
        published = {'paper_notebook': paper.attention_change(self.subject.task)}
        return beside_published(super().frames(), published)

    def _draw_fig5(self):
        caption = f'Change of the maps by fine-tuning ({self.subject.as_in("Figure 5")}).'
        changed, sources = _changed(self)
        return plots.head_grids(changed, label=_CHANGE).captioned(caption, sources)

    def _draw_fig5_by_layer(self):
        (changed, sources), published = _changed(self), paper.attention_change(self.subject.task)
        return plots.layer_profiles(
            changed,
            label=_CHANGE,
            published={} if published is None else dict.fromkeys(changed, 1 - published),
            published_name='paper: BERT-base',
        ).captioned('The same by layer: mean and range of the heads.', sources)

    def _say_layer(self):
        reading, runs = next(iter(self.readings.items()))
        layers = self.labelled['layers'].columns[f'reading_{reading}']
        first, *others = np.argsort(layers).tolist()
        template, numbers = _CHANGES, {}
        if others:
            template = _CHANGES_MOST
            numbers = {'second': others[0] + 1, 'next': float(layers[others[0]])}
        return mean_finding(
            f'similarity of the layer that changes most, reading {reading}',
            list(runs.values()),
            [READINGS[reading]],
            first,
            unit=UNIT,
            source=SOURCE,
            where=f'layer {first + 1}',
            template=template,
            numbers=numbers,
        )

    def _say_average(self):
        clear, runs = self._clear, list(self.runs.values())
        shares = [each for each in self.statistics if each.unit == SHARE and each.name in clear]
        if not shares:
            return None
        most = max(shares, key=lambda each: abs(np.subtract(*clear[each.name])))
        before, after = clear[most.name]
        numbers = {'before': before, 'after': after, 'title': most.title}
        numbers['moves'] = 'rises' if after > before else 'falls'
        template = 'On average over heads, {title} {moves} from {before:.2f} to {after:.2f}'
        if ENTROPY in clear:
            template += ', and attention is {broader} (entropy {wide:.1f} nats, was {narrow:.1f})'
            narrow, wide = clear[ENTROPY]
            numbers |= {'narrow': narrow, 'wide': wide}
            numbers['broader'] = 'broader' if wide > narrow else 'narrower'
        said = {'template': f'{template}.', 'numbers': numbers, 'unit': SHARE, 'source': SOURCE}
        return mean_finding(ON_AVERAGE, runs, [change(most.name)], **said)

    def _say_agreement(self):
        published, found = paper.attention_change(self.subject.task), []
        for reading, grid in self.grids.items():
            name = f'agreement with the paper, reading {reading}'
            found += agreement_of_grids(name, grid, published, source=SOURCE)
        return found

    @property
    def _clear(self) -> dict[str, tuple[float, float]]:
        """The means before and after of what gets clearly more or less attention, by its name."""
        runs, clear = list(self.runs.values()), {}
        known = [each.name for each in self.statistics if runs[0][change(each.name)].count]
        if known:
            columns = self.labelled['changes'].columns
            moved, low, high = (columns[f'mean_change{end}'] for end in ('', '_low', '_high'))
            for place in np.flatnonzero(low * high > 0):
                after = mean_over_runs(runs, [known[place]]).mean
                clear[known[place]] = (after - float(moved[place]), after)
        return clear

    def at_a_glance(self):
        if 'paper' not in self.readings:
            return {}
        similar = self.labelled['layers'].columns['reading_paper']
        layers = (f'L{layer + 1} ({similar[layer]:.3f})' for layer in np.argsort(similar)[:2])
        return {'two layers that change most (similarity)': ', '.join(layers)}

    def notes(self):
        published = paper.attention_change(self.subject.task) is not None
        notes = ['In the paper, mostly the last two layers change.']
        return notes + ['The published figure was made by the reading "notebook".'] * published


def change_statistics(reading: str) -> list[Described]:
    """Return the statistics of a reading; ValueError unless it is 'paper' or 'notebook'."""
    check_name('readings', reading, READINGS)
    return [named(READINGS[reading])]


def for_reading(reading: str, settings: TextSettings) -> TextSettings:
    """Return the settings of a reading: 'notebook' pads to 200 wordpieces, as the authors did."""
    if reading == 'paper':
        return settings
    return dataclasses.replace(settings, max_length=NOTEBOOK_LENGTH, buckets=())


@analysis(
    question='what fine-tuning changes in attention',
    group='What training changed',
    report='always',
    reads=('change.', 'train.'),
    inputs={'readings': 'change.readings'},
    compares=lambda given: [*change_statistics('paper'), *map(named, given['statistics'])],
)
def attention_change(
    pretrained: Pretrained,
    tuned: Models,
    texts: Sequence[Text],
    *,
    readings: Sequence[str] = ('paper',),
    statistics: Sequence[str | Described] = DEFAULTS,
    settings: TextSettings = TextSettings(),
) -> AttentionChange:
    """Compare the maps of a model with those of the same model fine-tuned.

    Args:
      tuned: `pretrained` fine-tuned, or several such models.
      readings: 'paper' (real tokens only), 'notebook' (padded to 200 wordpieces, with padding
        compared too, as published), or both.
      statistics: Further statistics of one model, whose changes are measured: names of the
        catalogue, 'package.module:name' for your own, or `Described` objects.
      pretrained, texts, settings: As in `special_tokens`.

    Raises:
      TypeError: A model or the texts are something else.
      ValueError: A reading or a statistic is unknown, a statistic compares two models, or there is
        no fine-tuned model.
    """
    described = [named(each) if isinstance(each, str) else each for each in statistics]
    pairwise = [each.name for each in described if each.pairwise]
    if pairwise:
        raise ValueError(
            f'{", ".join(pairwise)} compares two models; the statistics here are of one model, '
            'before and after. `bs.compare` measures it.'
        )
    found = {}
    for reading in readings:
        compared = change_statistics(reading)
        encoding = for_reading(reading, settings)
        found[reading] = encoding.changes(pretrained, tuned, texts, compared)
    runs = settings.changes(pretrained, tuned, texts, described) if described else {}
    result = AttentionChange(found, describe(described), runs)
    return _labelled(result)


def _labelled(found: AttentionChange) -> AttentionChange:
    """Return the result with its tables: layers and heads by reading, and what changed."""
    frames = {
        'layers': grids_frame(
            {f'reading_{name}': grid.mean(axis=1) for name, grid in found.grids.items()},
            'Similarity, mean over the heads of a layer.',
        )
    }
    for reading, runs in found.readings.items():
        caption = f'Similarity of every head, reading "{reading}".'
        frames[f'heads_{reading}'] = seeds_frame(runs, UNIT, caption)
    if found.statistics:
        units = {each.name: each.unit for each in found.statistics}
        units |= {change(name): unit for name, unit in units.items()}
        caption = 'Changes over all heads, and in the head that changes most.'
        frames['changes'] = records(caption, _changes(found))
        caption = 'Every statistic of the fine-tuned models, and what changed.'
        frames['heads_finetuned'] = seeds_frame(found.runs, units, caption)
    return found.with_frames(frames)


def _changes(found: AttentionChange) -> Iterator[dict[str, Any]]:
    runs = list(found.runs.values())
    for each in found.statistics:
        name = change(each.name)
        table = over_seeds(runs, [name])[name]
        if table.count:
            head = top_head(np.abs(table.mean))
            every, its = (mean_over_runs(runs, [name], of).interval for of in (..., head))
            yield {
                'statistic': each.title,
                'unit': each.unit,
                **with_ends('mean_change', every),
                'mean_size_of_change': np.abs(table.mean).mean(),
                'head_changed_most': head_name(*head),
                **with_ends('its_change', its),
            }


def _changed(result: AttentionChange) -> tuple[dict[str, np.ndarray], dict[Any, plots.Source]]:
    """Return the change of each head by the title of its panel, and the column that has it."""
    grids = {_TITLES[name]: 1 - grid for name, grid in result.grids.items()}
    sources = {
        _TITLES[name]: plots.Source(f'heads_{name}', 'mean', READINGS[name], -1, 1)
        for name in result.readings
    }
    return grids, sources
