"""The numbers of every head and layer, for what a page draws of them: from any frame with them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax.plots.numbers import Classes, Features, Grids, Layers, Numbers, Points
from bert_secrets_jax.runs.grids import HEADS, LAYERS, is_statistic, sets_of

if TYPE_CHECKING:
    import pandas

# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60
# Words that differ more between heads, such as the names of the nearest ones, are no classes.
_MOST_CLASSES = 16
# Columns with one of these words tell how sure the number beside them is.
_SURE = frozenset('low high error deviation p holm hochberg corrected familywise examples'.split())
# The part of a set's name that tells fine-tunings apart.
_SEED = re.compile(r'(?:, )?\bseed \S+')


def grids(
    frames: 'Mapping[str, pandas.DataFrame]', heads: tuple[str, int, int] | None
) -> list[dict[str, Any]]:
    """Return what a page draws of all frames that have rows for every head or for every layer.

    Args:
      frames: The frames by the names of their files.
      heads: The numbers of layers and of heads in each, at places 1 and 2; None for no model.

    Returns:
      For each such frame its name and caption, `axis` ('heads' or 'layers'), the names of its
      columns of numbers, and `sets`: the name of each set of all heads, such as '[SEP]', and the
      numbers [column][head], heads in the order of layers, or [column][layer]; None for NaN.
      `about` has the places of the columns that are about heads; `beside` has for each column the
      places of those that tell how sure it is: its interval, its error, its p-values and the size
      of its sample. `classes` has for each set its columns of words, each of which several heads
      share: the name of the column and the words.
    """
    if heads is None:
        return []
    found = (
        _drawn(name, frame, axis, shape)
        for name, frame in frames.items()
        for axis, shape in ((HEADS, heads[1:]), (LAYERS, heads[1:2]))
        if 0 < len(frame) <= _MOST_ROWS * np.prod(shape)
    )
    return [each for each in found if each is not None]


def _drawn(
    name: str, frame: 'pandas.DataFrame', axis: tuple[str, ...], shape: tuple[int, ...]
) -> dict[str, Any] | None:
    """Return what `grids` returns of a frame; None if it has no numbers of heads, or layers."""
    sets = [
        (told, rows)
        for told, rows in sets_of(frame, axis)
        if tuple(rows.index.to_frame().max()) == shape
    ]
    numbers = [each for each in sets[0][1] if _is_numbers(sets[0][1][each])] if sets else []
    if not numbers:
        return None
    columns = [str(each).replace('_', ' ') for each in numbers]
    return {
        'name': name,
        'caption': frame.attrs.get('caption', ''),
        'axis': 'heads' if axis == HEADS else 'layers',
        'columns': columns,
        'about': _about(columns),
        'beside': _beside(columns),
        'sets': [
            {
                'of': told,
                'values': [_listed(rows[each]) for each in numbers],
                'classes': _classes(rows) if axis == HEADS else [],
            }
            for told, rows in sets
        ],
    }


def _is_numbers(column: 'pandas.Series') -> bool:
    return column.dtype.kind in 'iuf'


def _classes(rows: 'pandas.DataFrame') -> list[tuple[str, list[str]]]:
    """Return the columns of words that divide heads into classes, with the words of all heads."""
    found = {name: [str(each) for each in rows[name]] for name in rows
             if rows[name].dtype.kind not in 'iufb'}  # fmt: skip
    return [
        (str(name).replace('_', ' '), words)
        for name, words in found.items()
        if 1 < len(set(words)) <= min(_MOST_CLASSES, len(words) - 1)
    ]


def of_figure(drawn: Numbers | None) -> dict[str, Any] | None:
    """Return the numbers of a figure as a file keeps them, lists instead of arrays; None for none.

    Args:
      drawn: The numbers.

    Returns:
      The `kind` of what is drawn, what is said of all numbers, and `panels`, each with its title
      and `sets`: the names of its rows of numbers and the numbers of heads, or of layers.
    """
    match drawn:
        case Grids():
            return {
                'kind': 'heads',
                'label': drawn.label,
                'low': drawn.low,
                'high': drawn.high,
                'centred': drawn.centred,
                'panels': [
                    _panel(title, {'': values})
                    | {'circles': np.ravel(drawn.circles.get(title, ())).tolist()}
                    for title, values in drawn.values.items()
                ],
            }
        case Classes():
            return {
                'kind': 'classes',
                'label': 'share',
                'panels': [
                    _panel(title, dict(zip(drawn.names, np.moveaxis(shares, -1, 0), strict=True)))
                    for title, shares in drawn.shares.items()
                ],
            }
        case Features():
            return {
                'kind': 'features',
                'label': drawn.label,
                'low': 0.0,
                'high': drawn.high,
                'centred': False,
                'layer': drawn.layer,
                'panels': [
                    _panel(title, dict(zip(drawn.names, values.T, strict=True)))
                    for title, values in drawn.values.items()
                ],
            }
        case Layers():
            return {
                'kind': 'layers',
                'label': drawn.label,
                'ends': drawn.ends_name,
                'published': drawn.published_name,
                'panels': [
                    _panel(title, {'': values})
                    | {'ends': [_listed(each) for each in drawn.ends[title]]}
                    | {'published': _listed(drawn.published.get(title, ()))}
                    for title, values in drawn.values.items()
                ],
            }
        case Points():
            return {
                'kind': 'points',
                'label': drawn.label,
                'across': drawn.across_label,
                'levels': [[name, float(level)] for name, level in drawn.levels.items()],
                'published': drawn.published_name,
                'panels': [
                    _panel(title, values)
                    | {'across': _listed(np.ravel(drawn.across.get(title, ())))}
                    | {'kinds': [] if drawn.kinds is None else np.ravel(drawn.kinds).tolist()}
                    | {'published': {
                        name: _listed(drawn.published[name])
                        for name in values if name in drawn.published
                    }}
                    for title, values in drawn.values.items()
                ],
            }  # fmt: skip
    return None


def _panel(title: str, sets: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {
        'title': title,
        'shape': list(np.shape(next(iter(sets.values())))),
        'sets': [{'of': name, 'values': _listed(np.ravel(each))} for name, each in sets.items()],
    }


def traced(
    figure: dict[str, Any] | None,
    found: Sequence[Mapping[str, Any]],
    heads: tuple[str, int, int] | None,
) -> dict[str, Any] | None:
    """Return the numbers of a figure, each set with the place in a frame that it is from.

    Args:
      figure: The result of `of_figure`.
      found: The result of `grids` for the frames of the same result.
      heads: As for `grids`.

    Returns:
      The figure. `rows` of each set has the numbers of frame, set and column with the same values,
      of which it may be the mean (of several fine-tunings); empty if no frame has them. `times` is
      100 if the figure is in points or percent of what the frame has. Numbers of layers may be the
      means over heads of a frame that is about heads. None if the figure has no numbers of these
      heads or layers.
    """
    if figure is None or heads is None:
        return None
    shape = {'layers': heads[1:2], 'features': heads[2:]}.get(figure['kind'], heads[1:])
    if not all(tuple(each['shape']) == tuple(shape) for each in figure['panels']):
        return None
    places, known = _known(found, heads[1:], figure)
    # How many columns tell how sure each number is.
    told = [len(found[at]['beside'][column]) for ((at, _, column), *_) in places]
    panels = [
        each | {'sets': [_traced(one, places, known, told) for one in each['sets']]}
        for each in figure['panels']
    ]
    # In one order, whether the figure was drawn now or read again.
    return _in_order({**figure, 'panels': panels})


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    return [_in_order(each) for each in value] if isinstance(value, list) else value


def _traced(
    numbers: Mapping[str, Any],
    places: Sequence[list[tuple[int, int, int]]],
    known: np.ndarray,
    told: Sequence[int],
) -> dict[str, Any]:
    values = np.array(numbers['values'], float)
    for times in (1, 100):
        # Both are rounded to five digits, and so is what a mean is of.
        same = np.isclose(times * known, values, rtol=2e-4, atol=1e-9, equal_nan=True).all(axis=1)
        if same.any() and not np.isnan(values).all():
            # Among frames with the same numbers, the one that tells most about them.
            best = max(np.flatnonzero(same), key=lambda row: told[row])
            return {**numbers, 'rows': places[best], 'times': times}
    return {**numbers, 'rows': [], 'times': 1}


def _known(
    found: Sequence[Mapping[str, Any]], shape: tuple[int, int], figure: Mapping[str, Any]
) -> tuple[list[list[tuple[int, int, int]]], np.ndarray]:
    """Return all columns of all sets as rows of a matrix, and the means over fine-tunings.

    Args:
      found: As for `traced`.
      shape: The numbers of layers and of heads in each.
      figure: The figure, whose kind says whether a row is of all heads, of those of one layer, or
        of layers. What a frame says of layers stands before the means over their heads.
    """
    places, rows = [], []
    kind = figure['kind']
    axes = ('layers', 'heads') if kind == 'layers' else ('heads',)
    for axis in axes:
        for at, frame in enumerate(found):
            if frame['axis'] != axis:
                continue
            alike: dict[str, list[int]] = {}
            for number, each in enumerate(frame['sets']):
                alike.setdefault(_SEED.sub('', each['of']), []).append(number)
            single = [[number] for number in range(len(frame['sets']))]
            for members in [*single, *(each for each in alike.values() if len(each) > 1)]:
                for column in frame['about']:
                    values = [frame['sets'][each]['values'][column] for each in members]
                    mean = np.mean(np.array(values, float), axis=0)
                    if axis == 'heads' and kind in ('layers', 'features'):
                        by_layer = mean.reshape(shape)
                        mean = by_layer.mean(1) if kind == 'layers' else by_layer[figure['layer']]
                    places.append([(at, each, column) for each in members])
                    rows.append(mean)
    width = {'layers': shape[0], 'features': shape[1]}.get(kind, shape[0] * shape[1])
    return places, np.array(rows).reshape(-1, width)


def _about(columns: Sequence[str]) -> list[int]:
    return [place for place, name in enumerate(columns) if is_statistic(name)]


def _beside(columns: Sequence[str]) -> list[list[int]]:
    """Return for each column of numbers the places of those that tell how sure it is."""
    about = _about(columns)
    found: list[list[int]] = [[] for _ in columns]
    for place, name in enumerate(columns):
        words = set(name.split())
        if place in about or not words & _SURE:
            continue
        if 'examples' in words:
            owners = about
        else:
            # "gain low" is of "gain", and "low" of what stands before it.
            named = [each for each in about if name.startswith(f'{columns[each]} ')]
            owners = named or [each for each in about if each < place][-1:] or about[:1]
        for each in owners:
            found[each].append(place)
    return found


def _listed(values: 'pandas.Series | np.ndarray | tuple[()]') -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
