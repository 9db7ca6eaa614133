"""Rows, texts, figures and findings of effects, alike for every analysis that disables something.

Shapes: M masks, L layers, N heads.
"""

import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.effects import LEVEL, POWER, Effects
from bert_secrets_jax.ablation.significance import MARGIN
from bert_secrets_jax.analyses.verdicts.disabling import to_lose
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.runs.result import Finding


def title_of(effects: Effects) -> str:
    """Return the name of the outcome for readers, such as 'F1'."""
    return TITLES.get(effects.outcome.name, effects.outcome.name)


def unit_of(effects: Effects) -> str:
    """Return the unit of a difference in full, such as 'points of F1'."""
    unit = effects.outcome.unit
    return f'{unit} of {title_of(effects)}' if unit == 'points' else unit


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


def in_words(effects: Effects, index: int) -> str:
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


def notes_of(effects: Effects, shape: tuple[int, ...]) -> np.ndarray:
    """Return the effect of every head in words [L, N].

    Args:
      effects: The effects of single heads.
      shape: The numbers of layers and heads.
    """
    texts = [in_words(effects, index) for index in range(len(effects.difference))]
    return np.reshape(texts, shape)


def label_of(effects: Effects) -> str:
    """Return the label of an axis of differences."""
    return f'change of {title_of(effects)} ({_short(effects)})'


def draw_heads(effects: Effects, shape: tuple[int, ...]) -> plots.Figure:
    """Draw the effect of every head, with circles for significant ones.

    Args:
      effects: The effects of single heads.
      shape: The numbers of layers and heads.
    """
    return plots.effect_grid(
        np.reshape(effects.outcome.scale * effects.difference, shape),
        label=label_of(effects),
        real=np.reshape(effects.corrected <= LEVEL, shape),
        likely=np.reshape(effects.benjamini_hochberg <= LEVEL, shape),
    )


def draw_layers(effects: Effects, **published: Any) -> plots.Figure:
    """Draw the effect of every layer with its interval.

    Args:
      effects: The effects of whole layers.
      **published: Published effects, as `plots.layer_effects` takes them.
    """
    ends = effects.difference, effects.low, effects.high
    return plots.layer_effects(
        *(effects.outcome.scale * each for each in ends), label=label_of(effects), **published
    )


def significant(
    effects: Effects, *, name: str, what: str, source: str, how: str = '', **numbers: Any
) -> Finding:
    """Return the number of masks that are significantly needed, and of those better lost.

    Args:
      effects: The effects.
      name: The name of the finding.
      what: The things that are disabled, such as 'heads'.
      source: The publication.
      how: The words behind 'Heads one at a time', a template.
      **numbers: The numbers for it.
    """
    counts, sides = effects.significant(), ('lower', 'higher')
    if not effects.outcome.more_is_better:
        counts, sides = counts[::-1], sides[::-1]
    undefined = int(np.isnan(effects.difference).sum())
    return Finding(
        name=name,
        estimate=counts[0],
        unit=what,
        sample=effects.sample,
        sample_of=effects.sample_of,
        source=source,
        template=(
            f'{{each}} one at a time{how} ({{outcome}} with all heads {{intact}}): significantly '
            f'{sides[0]} without {{estimate:.0f}} of {{tests}} and {sides[1]} without {{better}} '
            '({correction}' + ('; undefined for {undefined}).' if undefined else ').')
        ),
        numbers={
            'each': what.capitalize(),
            'outcome': title_of(effects),
            'intact': _intact(effects),
            'tests': len(effects.difference),
            'better': counts[1],
            'correction': effects.correction,
            'undefined': undefined,
        }
        | numbers,
    )


def extremes(
    effects: Effects, *, name: str, source: str, where: str = '', **numbers: Any
) -> Iterator[Finding]:
    """Return the best and the worst mask; of a single one, only the best.

    Args:
      effects: The effects; there is none if all of them are undefined.
      name: The beginning of the names of the findings.
      source: The publication.
      where: The words behind the name of the mask, a template.
      **numbers: The numbers for it.
    """
    if np.isnan(effects.difference).all():
        return
    scale, form = effects.outcome.scale, f'+.{effects.outcome.digits}f'
    seeds = effects.seeds
    for which, index in (('best', effects.best), ('worst', effects.worst))[: len(effects.names)]:
        spread, ends = '', {}
        if seeds is not None and len(seeds.intact) > 1:
            of_seeds = scale * seeds.difference[:, index]
            ends = {'least': float(of_seeds.min()), 'most': float(of_seeds.max())}
            spread = f'; {{least:{form}}} to {{most:{form}}} in single fine-tunings'
        yield Finding(
            name=f'{name}: {which} to lose',
            estimate=scale * float(effects.difference[index]),
            low=scale * float(effects.low[index]),
            high=scale * float(effects.high[index]),
            p=float(effects.corrected[index]),
            unit=unit_of(effects),
            sample=effects.sample,
            sample_of=effects.sample_of,
            source=source,
            template=(
                f'{{words}} {{disabled}}{where}: {{estimate:{form}}} {{unit}} ({{low:{form}}} to '
                f'{{high:{form}}}, p = {{uncorrected:.2g}}, corrected {{corrected:.2g}}{spread}).'
            ),
            numbers={
                'words': to_lose(effects.gain[index], best=which == 'best'),
                'disabled': effects.names[index],
                'uncorrected': float(effects.p_value[index]),
                'corrected': float(effects.corrected[index]),
            }
            | ends
            | numbers,
        )


def smallest(effects: Effects, *, name: str, what: str, source: str) -> Finding:
    """Return the effect that can be found, as the median over masks.

    Args:
      effects: The effects, with `critical`, `detectable` or both.
      name: The beginning of the name of the finding.
      what: The things that are disabled, such as 'heads'.
      source: The publication.
    """
    scale, form = effects.outcome.scale, f'.{effects.outcome.digits}f'
    numbers = {'what': what, 'power': 100 * POWER}
    if effects.critical is not None and not np.isfinite(effects.critical).any():
        estimate = np.nan
        template = 'With so few examples, no change of any size could have been significant.'
    elif effects.detectable is None:
        estimate = float(np.nanmedian(effects.critical))
        template = (
            f'A mean change must reach {{estimate:{form}}} {{unit}} to be significant (median of '
            '{what}): smaller ones are missed.'
        )
    else:
        # Where the test can find no effect at all, the detectable one is infinite.
        estimate = float(np.median(np.nan_to_num(effects.detectable, nan=np.inf)))
        template = (
            f'A change of {{estimate:{form}}} {{unit}} (median of {{what}}) is found with a '
            'probability of {power:.0f} %'
            if np.isfinite(estimate)
            else 'No size of a change is found reliably'
        )
        if effects.critical is not None:
            numbers['critical'] = scale * float(np.nanmin(effects.critical))
            template += f'; none below {{critical:{form}}} could be significant'
        template += '.'
    return Finding(
        name=f'{name}: smallest effect that can be found',
        estimate=scale * estimate if np.isfinite(estimate) else np.nan,
        unit=unit_of(effects),
        sample=effects.sample,
        sample_of=effects.sample_of,
        source=source,
        template=template,
        numbers=numbers,
    )


def without_effect(effects: Effects, *, name: str, what: str) -> Finding:
    """Return the number of masks that are shown not to matter by `MARGIN`.

    Args:
      effects: The effects on a score.
      name: The beginning of the name of the finding.
      what: The things that are disabled, such as 'heads'.
    """
    equal = effects.equivalent <= LEVEL
    changes = int(((effects.corrected <= LEVEL) & ~equal).sum())
    tests = len(effects.difference)
    return Finding(
        name=f'{name}: shown not to matter',
        estimate=int(equal.sum()),
        unit=what,
        sample=effects.sample,
        source='two one-sided tests, Schuirmann 1987',
        template=(
            '{estimate} of {tests} {what} {estimate:|is|are} shown not to matter by {margin:.1f} '
            'points of {metric}; {changes} {changes:|changes|change} it, and for {open} these '
            'examples cannot tell.'
        ),
        numbers={
            'tests': tests,
            'what': what,
            'margin': 100 * MARGIN,
            'metric': title_of(effects),
            'changes': changes,
            'open': tests - int(equal.sum()) - changes,
        },
    )


def _short(effects: Effects) -> str:
    """Return the unit without what it is counted for: 'nats'."""
    return effects.outcome.unit.split(' per ')[0]


def _intact(effects: Effects) -> str:
    """Return the outcome of the intact model, with its spread over seeds."""
    scale, seeds = effects.outcome.scale, effects.seeds
    if not effects.outcome.more_is_better:
        return f'{scale * effects.intact:.3f} {_short(effects)}'
    spread = ''
    if seeds is not None and len(seeds.intact) > 1:
        spread = f' ± {scale * float(seeds.intact.std(ddof=1)):.1f}'
    return f'{scale * effects.intact:.1f}{spread}'
