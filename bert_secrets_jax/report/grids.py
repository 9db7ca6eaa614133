"""The numbers of every head, for grids of heads on a page: from any frame that has them."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax.runs.grids import is_statistic, sets_of_heads

if TYPE_CHECKING:
    import pandas

    from bert_secrets_jax.plots import Grids

# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60
# Columns with one of these words tell how sure the number beside them is.
_SURE = frozenset('low high error deviation p holm hochberg corrected familywise examples'.split())
# The part of a set's name that tells fine-tunings apart.
_SEED = re.compile(r'(?:, )?\bseed \S+')


def grids(
    frames: 'Mapping[str, pandas.DataFrame]', heads: tuple[str, int, int] | None
) -> list[dict[str, Any]]:
    """Return what the grids of a page draw, of all frames that have rows for every head.

    Args:
      frames: The frames by the names of their files.
      heads: The numbers of layers and of heads in each, at places 1 and 2; None for no model.

    Returns:
      For each such frame its name and caption, the names of its columns of numbers, and `sets`: the
      name of each set of all heads, such as '[SEP]', and the numbers [column][head], heads in the
      order of layers, None for NaN. `about` has the places of the columns that are about heads;
      `beside` has for each column the places of those that tell how
      sure it is: its interval, its error, its p-values and the size of its sample.
    """
    if heads is None:
        return []
    shape = heads[1:]
    found = []
    for name, frame in frames.items():
        if not len(frame) or len(frame) > _MOST_ROWS * np.prod(shape):
            continue
        sets = [each for each in sets_of_heads(frame) if each[1].index.levshape == shape]
        if sets and len(sets[0][1].columns):
            columns = [str(each).replace('_', ' ') for each in sets[0][1].columns]
            found.append(
                {
                    'name': name,
                    'caption': frame.attrs.get('caption', ''),
                    'columns': columns,
                    'about': _about(columns),
                    'beside': _beside(columns),
                    'sets': [
                        {'of': told, 'values': [_listed(rows[each]) for each in rows]}
                        for told, rows in sets
                    ],
                }
            )
    return found


def of_figure(drawn: 'Grids | None') -> dict[str, Any] | None:
    """Return the grids of a figure as a file keeps them, lists instead of arrays; None for none.

    Args:
      drawn: The grids.
    """
    if drawn is None:
        return None
    return {
        'label': drawn.label,
        'low': drawn.low,
        'high': drawn.high,
        'centred': drawn.centred,
        'panels': [
            {
                'title': title,
                'shape': list(np.shape(values)),
                'values': _listed(np.ravel(values)),
                'circles': np.ravel(drawn.circles[title]).tolist()
                if title in drawn.circles
                else [],
            }
            for title, values in drawn.values.items()
        ],
    }


def traced(
    figure: dict[str, Any] | None,
    found: Sequence[Mapping[str, Any]],
    heads: tuple[str, int, int] | None,
) -> dict[str, Any] | None:
    """Return the grids of a figure, each with the numbers of a frame that it shows.

    Args:
      figure: What `of_figure` returned.
      found: What `grids` returned for the frames of the same result.
      heads: As for `grids`.

    Returns:
      The grids. `rows` of each has the numbers of frame, set and column with the same values, of
      which the grid may be the mean (of several fine-tunings); empty if no frame has them. `times`
      is 100 if the figure is in points or percent of what the frame has. None if the figure has no
      grids of these heads.
    """
    if figure is None or heads is None:
        return None
    panels = figure['panels']
    if not all(tuple(each['shape']) == tuple(heads[1:]) for each in panels):
        return None
    places, known = _known(found, heads[1] * heads[2])
    traces = []
    for each in panels:
        values = np.array(each['values'], float)
        rows, times = [], 1
        for factor in (1, 100):
            # Both are rounded to five digits, and so is what a mean is of.
            same = np.isclose(factor * known, values, rtol=2e-4, atol=1e-9, equal_nan=True)
            if same.all(axis=1).any() and not np.isnan(values).all():
                rows, times = places[same.all(axis=1).argmax()], factor
                break
        traces.append(dict(sorted({**each, 'rows': rows, 'times': times}.items())))
    # In one order, whether the figure was drawn now or read again.
    return dict(sorted({**figure, 'panels': traces}.items()))


def _known(
    found: Sequence[Mapping[str, Any]], count: int
) -> tuple[list[list[tuple[int, int, int]]], np.ndarray]:
    """Return all columns of all sets as rows of a matrix, and the means over fine-tunings."""
    places, rows = [], []
    for at, frame in enumerate(found):
        alike: dict[str, list[int]] = {}
        for number, each in enumerate(frame['sets']):
            alike.setdefault(_SEED.sub('', each['of']), []).append(number)
        single = [[number] for number in range(len(frame['sets']))]
        for members in [*single, *(each for each in alike.values() if len(each) > 1)]:
            for column, name in enumerate(frame['columns']):
                if is_statistic(name):
                    values = [frame['sets'][each]['values'][column] for each in members]
                    places.append([(at, each, column) for each in members])
                    rows.append(np.mean(np.array(values, float), axis=0))
    return places, np.array(rows).reshape(-1, count)


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


def _listed(values: 'pandas.Series | np.ndarray') -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
