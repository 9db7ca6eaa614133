"""One maker of the rows, figures and findings of effects, whatever was disabled and measured.

Shapes: M masks, L layers, N heads.
"""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.effects import LEVEL, POWER, Effects
from bert_secrets_jax.ablation.significance import MARGIN
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.findings import how_many, measured
from bert_secrets_jax.runs.result import Finding, framed

if TYPE_CHECKING:
    import pandas

# The masks at either end in a frame, and in the figure of single fine-tunings.
_LISTED, _DRAWN = 5, 4


def title_of(effects: Effects) -> str:
    """Return the name of the outcome for readers, such as 'F1'."""
    return TITLES.get(effects.outcome.name, effects.outcome.name)


def unit_of(effects: Effects) -> str:
    """Return the unit of a difference in full, such as 'points of F1'."""
    unit = effects.outcome.unit
    return f'{unit} of {title_of(effects)}' if unit == 'points' else unit


def label_of(effects: Effects) -> str:
    """Return the label of an axis of differences."""
    return f'change of {title_of(effects)} ({_short(effects)})'


def rows_of(effects: Effects, columns: Mapping[str, str]) -> list[tuple]:
    """Return a row of a frame for every mask: its name and its numbers.

    Args:
      effects: The effects.
      columns: The attribute of `Effects` by the name of the column, such as 'seeds.holm'. In a
        column whose name ends with '_points', the numbers are multiplied by the outcome's scale.
    """
    values = [
        operator.attrgetter(attribute)(effects)
        * (effects.outcome.scale if column.endswith('_points') else 1)
        for column, attribute in columns.items()
    ]
    return list(zip(effects.names, *values, strict=True))


def frame_of(
    effects: Mapping[str, Effects], columns: Mapping[str, str], caption: str, *, key: str
) -> 'pandas.DataFrame':
    """Return a frame with a row for every mask of several effects.

    Args:
      effects: The effects, by what tells them apart, such as the metric.
      columns: The columns, as in `rows_of`.
      caption: The caption.
      key: The name of the column that tells them apart.
    """
    rows = [(name, *row) for name, each in effects.items() for row in rows_of(each, columns)]
    colours = colours_of(next(iter(effects.values())), columns, by=(key,))
    return framed((key, 'disabled', *columns), rows, caption, colours=colours)


def colours_of(
    effects: Effects, columns: Mapping[str, str], *, by: Sequence[str]
) -> Colours | None:
    """Return what a page may colour by in a frame with a row for each mask.

    Args:
      effects: The effects; None is returned unless there is one of each head, or of each layer.
      columns: The columns, as in `rows_of`.
      by: As in `Colours`.
    """
    last = re.fullmatch(r'L(\d+)(?:-H(\d+))?', effects.names[-1])
    if last is None:
        return None
    layers, heads = (int(each or 0) for each in last.groups())
    names = [head_name(*each) for each in np.ndindex(layers, heads)]
    names = names or [f'L{layer + 1}' for layer in range(layers)]
    if list(effects.names) != names:
        return None
    sure = [name for name in columns if name.startswith(('low', 'high', 'p_'))]
    coloured = {'value': (), 'difference': sure}
    return Colours(
        'heads' if heads else 'layers',
        {name: coloured[each] for name, each in columns.items() if each in coloured},
        by,
    )


def extremes_of(effects: Effects, columns: Mapping[str, str]) -> 'pandas.DataFrame':
    """Return a frame of the masks with the lowest and the highest differences.

    Args:
      effects: The effects.
      columns: The columns, as in `rows_of`.
    """
    rows = rows_of(effects, columns)
    return framed(
        ('disabled', *columns),
        [rows[index] for index in effects.extremes(_LISTED)],
        f'The five lowest and the five highest differences, {title_of(effects)}.',
    )


def notes_of(effects: Effects, shape: tuple[int, ...]) -> np.ndarray:
    """Return the effect of every head in words [L, N].

    Args:
      effects: The effects of single heads.
      shape: The numbers of layers and heads.
    """
    texts = [_in_words(effects, index) for index in range(len(effects.difference))]
    return np.reshape(texts, shape)


def _in_words(effects: Effects, index: int) -> str:
    """Return the effect of one mask with its interval and its p-values."""
    scale, form = effects.outcome.scale, f'+.{effects.outcome.digits}f'
    estimate, low, high = (
        f'{scale * each[index]:{form}}' for each in (effects.difference, effects.low, effects.high)
    )
    words = (
        f'{estimate} {_short(effects)} ({low} to {high}, p = {effects.p_value[index]:.2g}, '
        f'corrected {effects.corrected[index]:.2g})'
    )
    if effects.seeds is None:
        return words
    count = len(effects.seeds.intact)
    alone = round(count * float(effects.seeds.significant_share[index]))
    return f'{words}, significant in {alone} of {count} by themselves'


def draw_heads(
    effects: Effects, shape: tuple[int, ...], caption: str, source: plots.Source
) -> plots.Figure:
    """Draw the effect of every head, with circles for significant ones.

    Of effects over seeds, the extreme ones are drawn with those of each seed beside the grid.

    Args:
      effects: The effects of single heads.
      shape: The numbers of layers and heads.
      caption: The caption, to which the meaning of circles is added.
      source: The column of a frame that is drawn.
    """
    scale, seeds = effects.outcome.scale, effects.seeds
    grid = np.reshape(scale * effects.difference, shape)
    circles = {'label': label_of(effects), 'real': np.reshape(effects.corrected <= LEVEL, shape)}
    if seeds is None:
        circles['likely'] = np.reshape(effects.benjamini_hochberg <= LEVEL, shape)
        figure = plots.effect_grid(grid, **circles)
        others = 'With the open ones, at most 5 % are expected to be chance (Benjamini-Hochberg).'
    else:
        circles['likely'] = np.reshape((seeds.holm <= LEVEL) | (seeds.max_t <= LEVEL), shape)
        single = {
            effects.names[index]: (
                scale * seeds.difference[:, index],
                scale * effects.low[index],
                scale * effects.high[index],
            )
            for index in effects.extremes(_DRAWN)
        }
        figure = plots.effects_over_seeds(grid, single, **circles)
        others = 'Open ones: by one of these alone. Right: extreme means, and each fine-tuning.'
    figure.source = source
    figure.caption = (
        f'{caption} Filled circles: significant at 5 % after correction for all heads '
        f'({effects.correction}). {others}'
    )
    return figure


def draw_layers(
    effects: Effects, caption: str, source: plots.Source, **published: Any
) -> plots.Figure:
    """Draw the effect of every layer with its interval.

    Args:
      effects: The effects of whole layers.
      caption: The caption, to which the meaning of lines is added.
      source: The column of a frame that is drawn.
      **published: Published effects, as `plots.layer_effects` takes them.
    """
    ends = effects.difference, effects.low, effects.high
    figure = plots.layer_effects(
        *(effects.outcome.scale * each for each in ends), label=label_of(effects), **published
    )
    figure.source = source
    figure.caption = f'{caption} Lines are 95 % intervals.'
    return figure


def intact_of(effects: Effects, *, name: str, source: str) -> Finding:
    """Return the outcome of the intact model.

    Args:
      effects: The effects.
      name: The label.
      source: The publication.
    """
    return Finding(
        name=name,
        estimate=effects.outcome.scale * effects.intact,
        unit=unit_of(effects),
        **_sample(effects, source),
    )


def effect_of(effects: Effects, index: int, *, name: str, **fields: Any) -> Finding:
    """Return the finding of one effect with its interval and its corrected p-value.

    Args:
      effects: The effects.
      index: The index of the mask.
      name: The label.
      **fields: Other fields of the finding.
    """
    ends = effects.difference, effects.low, effects.high
    known = {
        'where': effects.names[index],
        'p': float(effects.corrected[index]),
        'unit': unit_of(effects),
        'sample': effects.sample,
        'sample_of': effects.sample_of,
    }
    interval = tuple(effects.outcome.scale * float(each[index]) for each in ends)
    return measured(name, interval, **known | fields)


def findings_of(
    effects: Effects, *, name: str, what: str, source: str, extremes: bool = True
) -> Iterator[Finding]:
    """Return what effects say: how many are real, which are extreme, and what could be found.

    Args:
      effects: The effects.
      name: The beginning of the labels.
      what: The things that are disabled, such as 'heads'.
      source: The publication.
      extremes: Whether the best and the worst mask are told.
    """
    fields, several = _sample(effects, source), len(effects.names) > 1
    if several:
        yield _significant(effects, name, what, fields)
    if extremes and not np.isnan(effects.difference).all():
        for which, index in (('best', effects.best), ('worst', effects.worst))[: 1 + several]:
            yield effect_of(effects, index, name=f'{name}: {which} to lose', source=source)
    if several:
        yield from _detectable(effects, name, what, fields)
        if effects.equivalent is not None:
            yield _equivalent(effects, name, what, fields)
    if effects.seeds is not None and len(effects.seeds.intact) > 1:
        yield from _between_seeds(effects, name, what, fields)


def _significant(effects: Effects, name: str, what: str, fields: dict[str, Any]) -> Finding:
    """Return the number of masks that are significantly needed, and of those better lost."""
    real = effects.corrected <= LEVEL
    return how_many(
        f'{name}: significantly needed',
        real & (effects.gain < 0),
        what,
        template='By {outcome}, {estimate} {unit} {estimate:|is|are} significantly needed and '
        '{better} better lost, after correction ({correction}).',
        numbers={
            'outcome': title_of(effects),
            'better': int((real & (effects.gain > 0)).sum()),
            'correction': effects.correction,
        },
        **fields,
    )


def _detectable(
    effects: Effects, name: str, what: str, fields: dict[str, Any]
) -> Iterator[Finding]:
    """Return the smallest effects that can be significant, and that are found."""
    scale, unit = effects.outcome.scale, unit_of(effects)
    if effects.critical is not None:
        # No score can change by more than 1.
        possible = effects.critical[effects.critical < 1]
        smallest = np.min if effects.seeds is None else np.median
        yield Finding(
            name=f'{name}: smallest change that can be significant',
            estimate=scale * float(smallest(possible)) if len(possible) else np.nan,
            unit=unit,
            template=''
            if len(possible)
            else 'With so little, no change of any size could have been significant.',
            **fields,
        )
    if effects.detectable is not None:
        # Where the test can find no effect at all, the detectable one is infinite.
        median = float(np.median(np.nan_to_num(effects.detectable, nan=np.inf)))
        known = np.isfinite(median)
        yield Finding(
            name=f'{name}: smallest effect that can be found',
            estimate=scale * median if known else np.nan,
            unit=unit,
            template='A change of {estimate:.3g} {unit} is found with a probability of '
            '{power:.0f} % (median of {what}).'
            if known
            else 'No size of a change is found reliably.',
            numbers={'power': 100 * POWER, 'what': what},
            **fields,
        )


def _equivalent(effects: Effects, name: str, what: str, fields: dict[str, Any]) -> Finding:
    """Return the number of masks that are shown not to matter by `MARGIN`."""
    equal = effects.equivalent <= LEVEL
    changes = (effects.corrected <= LEVEL) & ~equal
    return how_many(
        f'{name}: shown not to matter',
        equal,
        what,
        template='{estimate} {unit} {estimate:|is|are} shown to change {outcome} by less than '
        '{margin:g} points; for {open}, these examples cannot tell.',
        numbers={
            'outcome': title_of(effects),
            'margin': effects.outcome.scale * MARGIN,
            'open': int((~equal & ~changes).sum()),
        },
        **fields | {'source': 'two one-sided tests, Schuirmann 1987'},
    )


def _between_seeds(
    effects: Effects, name: str, what: str, fields: dict[str, Any]
) -> Iterator[Finding]:
    """Return what each correction finds alone, what few seeds cannot find, and their agreement."""
    seeds = effects.seeds
    if seeds.least_p > LEVEL:
        yield Finding(
            name=f'{name}: least p-value with so few seeds',
            estimate=seeds.least_p,
            unit='p-value',
            template='With {sample:seed|seeds} none can be significant: flips of their signs give '
            'no corrected p below {estimate:.2g}; six seeds or more can.',
            **fields,
        )
    for how, p_values in (('Holm', seeds.holm), ('flips of seeds', seeds.max_t)):
        yield how_many(f'{name}: significant by {how} alone', p_values <= LEVEL, what, **fields)
    agreed = seeds.agreement
    if np.isfinite(agreed.rank):
        yield measured(
            f'{name}: agreement of two fine-tunings',
            (agreed.rank, agreed.rank_low, agreed.rank_high),
            unit='rank correlation',
            **fields,
        )


def _sample(effects: Effects, source: str) -> dict[str, Any]:
    return {'sample': effects.sample, 'sample_of': effects.sample_of, 'source': source}


def _short(effects: Effects) -> str:
    """Return the unit without what it is counted for: 'nats'."""
    return effects.outcome.unit.split(' per ')[0]
