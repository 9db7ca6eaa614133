"""One maker of the rows, figures and findings of effects, whatever was disabled and measured.

Shapes: M masks, L layers, N heads, E examples.
"""

import collections
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.names import counted, head_name
from bert_secrets_jax.runs.result import Figures, Finding, Result, drawn, framed, how_many, measured
from bert_secrets_jax.stats.effects import BETTER, MATTERS, NO_MATTER, OPEN, WORSE, Effects, loss_in
from bert_secrets_jax.stats.student import LEVEL

if TYPE_CHECKING:
    import pandas

# The masks at either end in a frame, and in the figure of single fine-tunings.
_LISTED, _DRAWN = 5, 4
# Words for the outcomes of `ablation.outcomes`.
_OUTCOMES = {
    'discrimination': 'telling texts apart',
    'auc': 'AUC',
    'answers': 'the answers',
    'calibration': 'calibration',
}
# Words for those of a regression, whose loss is the squared error.
_OF_REGRESSION = {
    'discrimination': 'the error after a fit of scale and offset',
    'calibration': 'the error by scale and offset',
}
# By the words for the outcome.
_LABELS = {
    'telling texts apart': 'harm to telling apart',
    'calibration': 'harm to calibration',
    _OF_REGRESSION['discrimination']: 'change after a fit of scale and offset',
}
# So many are named in a sentence.
_NAMED = 3
# Words for one mask and for several, by the verdict on losing it.
_VERBS = {
    WORSE: 'worsens|worsen',
    BETTER: 'improves|improve',
    MATTERS: 'changes|change',
    NO_MATTER: 'does not matter|do not matter',
    OPEN: 'is open|are open',
}
# The attribute of the effects in each column of a difference with its interval.
INTERVAL = {name: name for name in ('difference', 'low', 'high')}
# The columns of a mean that is tested for many masks.
TESTED = {
    **INTERVAL,
    'p_value': 'p_value',
    'p_max_t': 'corrected',
    'p_benjamini_hochberg': 'benjamini_hochberg',
    'detectable': 'detectable',
}
# The columns of outcomes, and those that are known for one model alone.
_OF_OUTCOMES = {
    **INTERVAL,
    'p_value': 'p_value',
    'p_corrected': 'corrected',
    'p_beyond': 'p_beyond',
    'verdict': 'verdict',
}
# Those of the share of fine-tunings that need it.
NEEDED_IN = {
    'needed_share': 'seeds.needed_share',
    'needed_share_low': 'seeds.needed_low',
    'needed_share_high': 'seeds.needed_high',
    'needed_p': 'seeds.needed_p',
}
_ONE_MODEL = {'p_benjamini_hochberg': 'benjamini_hochberg', 'p_tost_corrected': 'equivalent'}
# Columns that end so are multiplied by the scale of their outcome.
_IN_POINTS = '_points', 'change'
# Words for the masks of a set, by its name, as captions have them.
WITHOUT = {'heads': 'each head', 'layers': 'all heads of a layer'}
# The name of the finding that counts what matters, of masks such as 'heads'.
MATTER = '{}: that matter'


def title_of(effects: Effects) -> str:
    """Return the name of the outcome for readers, such as 'F1'."""
    name = effects.outcome.name
    words = _OUTCOMES | (_OF_REGRESSION if effects.outcome.unit == 'squared error' else {})
    return TITLES.get(name) or words.get(name, name)


def unit_of(effects: Effects) -> str:
    """Return the unit of a difference in full, such as 'points of F1'."""
    unit = effects.outcome.unit
    return f'{unit} of {title_of(effects)}' if unit == 'points' else unit


def label_of(effects: Effects) -> str:
    """Return the label of an axis of differences."""
    title = title_of(effects)
    name = _LABELS.get(title, f'change of {title}')
    return f'{name} ({_short(effects)})'


def margin_of(effects: Effects) -> tuple[str, dict[str, float]]:
    """Return a template of the size from which on a change matters, and its number.

    The template is empty where any change matters.
    """
    words = f'over {{margin:.2g}} {_short(effects)}' * bool(effects.outcome.margin)
    if effects.outcome.grows:
        words = 'over {margin:.0%} of their spread'
    return words, {'margin': effects.outcome.scale * effects.outcome.margin}


def loss_effects(losses: np.ndarray, names: Sequence[str], *, classes: int, seed: int) -> Effects:
    """Return the effects on the loss of a task with so many classes; one means regression.

    The losses [M + 1, E] of each example are first those of the intact model.
    """
    return assess_losses(
        losses[1:],
        losses[0],
        names=names,
        outcome=loss_in('squared error' if classes == 1 else 'nats'),
        sample_of='examples',
        seed=seed,
    )


def rows_of(effects: Effects, columns: Mapping[str, str]) -> list[tuple]:
    """Return a row of a frame for every mask: its name and its numbers.

    Columns name attributes of `Effects`, such as 'seeds.holm'. Those with a name in '_points' are
    multiplied by the outcome's scale.
    """
    values = []
    for column, attribute in columns.items():
        scale, each = _scale(effects, column), operator.attrgetter(attribute)(effects)
        each = np.full(len(effects.names), np.nan) if each is None else each
        values.append(each if scale == 1 else each * scale)
    return list(zip(effects.names, *values, strict=True))


def _scale(effects: Effects, column: str) -> float | int:
    return effects.outcome.scale if column.endswith(_IN_POINTS) else 1


def frame_of(
    effects: Mapping[str, Effects], columns: Mapping[str, str], caption: str, *by: str
) -> 'pandas.DataFrame':
    """Return a frame with a row, as of `rows_of`, for every mask of several effects.

    They come by their names, which are in the column `by`; of one alone, no column is needed.
    """
    rows = [
        (*[name] * len(by), *row)
        for name, each in effects.items()
        for row in rows_of(each, columns)
    ]
    colours = colours_of(effects, columns, by=by)
    return framed((*by, 'disabled', *columns), rows, caption, colours=colours)


def colours_of(
    effects: Mapping[str, Effects], columns: Mapping[str, str], *, by: Sequence[str]
) -> Colours | None:
    """Return what a page may colour by in a frame with a row for each mask (see `Colours`).

    Effects come by their names as in `frame_of`. It is None unless there is one mask of each head,
    or of each layer.
    """
    listed = [*next(iter(effects.values())).names]
    last = re.fullmatch(r'L(\d+)(?:-H(\d+))?', listed[-1])
    layers, heads = (int(each or 0) for each in last.groups()) if last else (0, 0)
    names = [head_name(*each) for each in np.ndindex(layers, heads)]
    if listed != (names or [f'L{layer + 1}' for layer in range(layers)]):
        return None
    sure = [name for name in columns if name.startswith(('low', 'high', 'p_'))]
    coloured = {'value': (), 'difference': sure}
    return Colours(
        'heads' if heads else 'layers',
        {name: coloured[each] for name, each in columns.items() if each in coloured},
        by,
        {
            (column, name): each.red * _scale(each, column)
            for column, attribute in columns.items()
            if attribute == 'difference'
            for name, each in effects.items()
        },
    )


def extremes_of(effects: Effects, columns: Mapping[str, str]) -> 'pandas.DataFrame':
    """Return a frame, as of `rows_of`, of the masks with the lowest and the highest differences."""
    rows = rows_of(effects, columns)
    return framed(
        ('disabled', *columns),
        [rows[index] for index in effects.extremes(_LISTED)],
        f'The five lowest and the five highest changes of {title_of(effects)}.',
    )


def notes_of(effects: Effects, shape: tuple[int, ...]) -> np.ndarray:
    """Return the effect of every head in words [L, N], with its interval."""
    scale, form = effects.outcome.scale, f'+.{effects.outcome.digits}f'
    texts = []
    for index, verdict in enumerate(effects.verdict):
        estimate, low, high = (f'{scale * each:{form}}' for each in _ends(effects, index))
        # The interval is that of this head alone, and the verdict is for all of them.
        sure = f'{verdict} after correction for {counted(len(effects.names), "head")}'
        texts.append(f'{estimate} {_short(effects)} ({low} to {high}), {sure}')
        if effects.seeds is not None:
            count = len(effects.seeds.intact)
            alone = round(count * float(effects.seeds.significant_share[index]))
            texts[-1] += f', significant alone in {alone} of {count}'
    return np.reshape(texts, shape)


def frame_of_outcomes(outcomes: Mapping[str, Effects], disabled: str) -> 'pandas.DataFrame':
    """Return a frame of effects on every outcome, with a verdict on each mask."""
    several = any(each.seeds is not None for each in outcomes.values())
    columns = _OF_OUTCOMES | (NEEDED_IN if several else _ONE_MODEL)
    caption = f'Without {WITHOUT.get(disabled, "each set")}: change by outcome, each in its unit; '
    caption += 'AUC from 0 to 1.'
    return frame_of(outcomes, columns, caption, 'outcome')


def draw_effects(
    name: str,
    effects: Effects,
    shape: tuple[int, ...],
    caption: str,
    of: str = '',
    *,
    frame: str = '',
    column: str = 'difference',
    **published: Any,
) -> 'plots.Figure':
    """Draw the effect of every head, with circles for significant ones, or of every layer.

    Over seeds, extreme heads are drawn with the effects of each seed next to the grid. They are
    those of a column in a frame, which has the name of the set if it has no other, in the rows `of`
    a name.
    """
    scale, seeds, label = effects.outcome.scale, effects.seeds, label_of(effects)
    source = plots.Source(frame or name, column, of, scale / _scale(effects, column))
    if name == 'layers':
        ends = (scale * each for each in (effects.difference, effects.low, effects.high))
        figure = plots.layer_effects(*ends, label=label, **published)
        return figure.captioned(f'{caption} Lines: 95 % intervals.', source)
    grid = np.reshape(scale * effects.difference, shape)
    likely = effects.corrected if effects.benjamini_hochberg is None else effects.benjamini_hochberg
    real, likely = effects.matters.reshape(shape), np.reshape(likely <= LEVEL, shape)
    others, single = 'Open circles: some change, by a weaker test.', None
    if seeds is not None:
        ends = scale * np.array([effects.low, effects.high])
        single = {
            effects.names[index]: (scale * seeds.difference[:, index], *ends[:, index])
            for index in effects.extremes(_DRAWN)
        }
        others += ' Right: the extreme heads, by fine-tuning.'
    over, margin = margin_of(effects)
    said = f'Filled circles: {over.format(**margin) or "more than chance"}. {others}'
    if not real.any() and not likely.any():
        said = 'No head differs significantly.'
    circles = {'real': real, 'likely': likely, 'red': scale * effects.red}
    figure = plots.effect_grid(grid, label=label, extremes=single, **circles)
    return figure.captioned(f'{caption} {said}', source)


def draw_outcome(
    name: str, effects: Effects, shape: tuple[int, ...], over: str = ''
) -> 'plots.Figure':
    """Draw how much worse texts are told apart without each head, or without each layer."""
    what, title = 'How much worse texts are told apart', title_of(effects)
    if title in _OF_REGRESSION.values():
        what = f'Change of {title}'
    caption = f'{what} without {WITHOUT[name]}{over}.'
    frame = f'{name}_outcomes'
    return draw_effects(name, effects, shape, caption, effects.outcome.name, frame=frame)


def drawn_sets(result: Result, sets: Iterable[str], **draw: Callable[..., Any]) -> Figures:
    """Return the figures of the heads and those of the layers, where a result has such a set.

    Names of figures stand behind those of the sets. That of `effects` has the name of its set.
    """
    made = {
        f'{name}_{after}'.removesuffix('_effects'): functools.partial(each, name=name)
        for after, each in draw.items()
        for name in WITHOUT
        if name in sets
    }
    return drawn(result, **made)


def intact_of(effects: Effects, *, source: str, when: str = 'with all heads') -> Finding:
    """Return the finding of the outcome of the intact model."""
    estimate, name = effects.outcome.scale * effects.intact, f'{title_of(effects)} {when}'
    fields = sample_of(effects, source)
    return Finding(name=name, estimate=estimate, unit=unit_of(effects), **fields)


def effect_of(effects: Effects, index: int, *, name: str, **fields: Any) -> Finding:
    """Return the finding of one mask's effect with its interval and its corrected p-value."""
    known = {
        'where': effects.names[index],
        'p': float(effects.corrected[index]),
        'tests': len(effects.names),
        'unit': unit_of(effects),
        'sample': effects.sample,
        'sample_of': effects.sample_of,
    }
    interval = [effects.outcome.scale * each for each in _ends(effects, index)]
    return measured(name, interval, **known | fields)


def findings_of(
    effects: Effects, disabled: str, *, source: str, name: str = '', extremes: bool = True
) -> Iterator[Finding]:
    """Return how many masks matter, which are extreme, and how far seeds agree, under a name."""
    name, several = name or disabled, len(effects.names) > 1
    ends = {} if several else {'the effect of losing it': 0}
    if several:
        yield count_of(effects, disabled, source=source, name=name)
    # Where neither direction is better, none is best to lose.
    if several and effects.outcome.directed:
        ends = {'best to lose': effects.best, 'worst to lose': effects.worst}
    for which, index in ends.items() if extremes else ():
        if not np.isnan(effects.difference[index]):
            yield effect_of(effects, index, name=f'{name}: {which}', source=source)
    if effects.seeds is not None and np.isfinite(effects.seeds.agreement.rank):
        agreed = effects.seeds.agreement
        ends = agreed.rank, agreed.rank_low, agreed.rank_high
        of = {'unit': 'rank correlation', **sample_of(effects, source)}
        yield measured(f'{name}: agreement of two fine-tunings', ends, **of)


def findings_of_outcomes(
    outcomes: Mapping[str, Effects], disabled: str, *, source: str, name: str = ''
) -> Iterator[Finding]:
    """Return how many masks matter to each outcome; of the first, also extremes and agreement."""
    for place, (outcome, each) in enumerate(outcomes.items()):
        label = f'{name or disabled}, {outcome}'
        if place and len(each.names) > 1:
            yield count_of(each, disabled, source=source, name=label)
        else:
            yield from findings_of(each, disabled, source=source, name=label)


def count_of(effects: Effects, disabled: str, *, source: str, name: str = '') -> Finding:
    """Return how many masks matter, how many do not, and how many are open: all of them."""
    what = disabled if disabled in WITHOUT else 'sets of heads'
    (over, margin), outcome = margin_of(effects), effects.outcome
    template = _counted(effects, f' by {over}' * bool(over)) + _left_open(effects)
    return how_many(
        MATTER.format(name or disabled),
        effects.matters,
        what,
        template=f'Of {{count}} {what}, each lost alone, {template}',
        numbers={**margin, **collections.Counter(effects.verdict.tolist())},
        count=len(effects.names),
        outcome=re.sub('^loss$', 'the loss', title_of(effects)),
        some=int(_in_some(effects).sum()),
        least=_at_least(effects),
        # A change must be so much greater to be shown to exceed the margin.
        visible=_visible(effects) + outcome.scale * (outcome.margin - outcome.counts_from),
        size=unit_of(effects),
        **sample_of(effects, source),
    )


def _counted(effects: Effects, by: str) -> str:
    """Return the template of how many masks there are of each verdict."""
    worse = [effects.names[at] for at in np.flatnonzero(effects.verdict == WORSE).tolist()]
    which = f' ({", ".join(worse)})' * (0 < len(worse) <= _NAMED)
    found = [each for each in _VERBS if each in effects.verdict]
    whole, shown = f'{{outcome}}{by}', effects.matters.any()
    # The second of two directions need not name the outcome again.
    objects = {BETTER: ' it', found[0]: f' {whole}{which}'} if shown else {}
    told = [f'{{{each}:{_VERBS[each]}}}{objects.get(each, "")}' for each in found]
    return ', '.join(told if shown else [f'none is shown to change {whole}', *told]) + '.'


def _left_open(effects: Effects) -> str:
    """Return one sentence more, if any: on some fine-tunings, on the unnamed, or on the unseen."""
    if _in_some(effects).any():
        return ' Of the open ones, {some:does|do} harm in some fine-tunings.'
    if _at_least(effects) > (effects.verdict == WORSE).sum():
        return ' At least {least:worsens|worsen} it, though not all can be named.'
    if effects.matters.any():
        return ''
    seeds, critical = effects.seeds, effects.critical
    # No score can change by more than 1.
    blind = critical is not None and not (critical < 1).any()
    if blind or (seeds is not None and seeds.least_p > LEVEL):
        return ' With so few {sample_of}, no change of any size could be significant.'
    if effects.detectable is None:
        return ''
    if not np.isfinite(_visible(effects)):
        return ' No size of a change is noticed reliably.'
    return ' For a typical one, changes below about {visible:.2g} {size} stay open.'


def _at_least(effects: Effects) -> int:
    """Return how many masks at least harm, by a test that need not name them."""
    outcome, fewest = effects.outcome, effects.fewest
    return fewest[0 if outcome.more_is_better else 1] if fewest and outcome.directed else 0


def _visible(effects: Effects) -> float:
    """Return the median effect that is found; infinite where the test can find none."""
    if effects.detectable is None:
        return np.inf
    bounds = np.where(np.isnan(effects.detectable), np.inf, effects.detectable)
    found = float(np.median(bounds))
    # No score can change by more than 1.
    impossible = effects.outcome.unit == 'points' and found >= 1
    return np.inf if impossible else effects.outcome.scale * found


def _in_some(effects: Effects) -> np.ndarray:
    """Return which masks [M] some fine-tunings are shown to need, and not all on average."""
    if effects.seeds is None:
        return np.zeros(len(effects.names), bool)
    return (effects.seeds.needed_p <= LEVEL) & ~effects.matters


def sample_of(effects: Effects, source: str) -> dict[str, Any]:
    """Return the fields of a finding about the sample, and its source."""
    return {'sample': effects.sample, 'sample_of': effects.sample_of, 'source': source}


def _ends(effects: Effects, index: int) -> tuple[float, ...]:
    return tuple(float(each[index]) for each in (effects.difference, effects.low, effects.high))


def _short(effects: Effects) -> str:
    """Return the unit without what it is counted for: 'nats'."""
    return effects.outcome.unit.split(' per ')[0]
