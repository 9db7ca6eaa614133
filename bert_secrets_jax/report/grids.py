"""The numbers of every head, for a grid of heads on a page: from any frame that has them."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

_NAME = re.compile(r'L(\d+)-H(\d+)')
# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60


def grids(
    frames: 'Mapping[str, pandas.DataFrame]', heads: tuple[str, int, int] | None
) -> list[dict[str, Any]]:
    """Return what the grids of a page draw.

    A frame has the numbers of every head if it has the columns `layer` and `head`, or one of names
    such as 'L1-H2', and a row for each head of the model: one, or one for each value of its columns
    of texts (and of `seed`).

    Args:
      frames: The frames by the names of their files.
      heads: The numbers of layers and of heads in each, at places 1 and 2; None for no model.

    Returns:
      For each such frame its name and caption, the names of its columns of numbers, and `sets`: for
      each value of its columns of texts the value and the numbers [column][head], heads in the
      order of layers, None for NaN.
    """
    if heads is None:
        return []
    found = []
    for name, frame in frames.items():
        grid = _grid(frame, heads[1], heads[2])
        if grid is not None:
            found.append({'name': name, 'caption': frame.attrs.get('caption', ''), **grid})
    return found


def _grid(frame: 'pandas.DataFrame', layers: int, heads: int) -> dict[str, Any] | None:
    count = layers * heads
    if not len(frame) or len(frame) % count or len(frame) > _MOST_ROWS * count:
        return None
    frame = frame.reset_index(drop=True)
    places, rest = _places(frame, heads)
    if places is None:
        return None
    texts = [
        column
        for column in rest
        if column == 'seed' or not (_is(frame[column], 'iuf') or _is(frame[column], 'b'))
    ]
    numbers = [column for column in rest if column not in texts and _is(frame[column], 'iuf')]
    if not numbers:
        return None
    sets = []
    groups = frame.groupby(texts, sort=False, dropna=False) if texts else [((), frame)]
    for key, rows in groups:
        at = places[rows.index]
        if len(at) != count or not np.array_equal(np.sort(at), np.arange(count)):
            return None
        values = rows[numbers].to_numpy(float)[np.argsort(at)]
        sets.append({'of': _key(texts, key), 'values': [_listed(each) for each in values.T]})
    return {'columns': [str(each).replace('_', ' ') for each in numbers], 'sets': sets}


def _places(frame: 'pandas.DataFrame', heads: int) -> tuple[np.ndarray | None, list[str]]:
    """Return the place of the head of each row, and the other columns."""
    columns = list(frame.columns)
    if {'layer', 'head'} <= set(columns) and all(_is(frame[c], 'iu') for c in ('layer', 'head')):
        places = (frame['layer'].to_numpy() - 1) * heads + frame['head'].to_numpy() - 1
        return places, [each for each in columns if each not in ('layer', 'head')]
    for column in columns:
        names = [_NAME.fullmatch(str(each)) for each in frame[column]]
        if all(names):
            places = [(int(m[1]) - 1) * heads + int(m[2]) - 1 for m in names]
            return np.array(places), [each for each in columns if each != column]
    return None, columns


def _is(column: 'pandas.Series', kinds: str) -> bool:
    return getattr(column.dtype, 'kind', 'O') in kinds


def _key(texts: list[str], key: Any) -> str:
    """Return the values of the columns of texts in a line, a seed as such."""
    values = key if isinstance(key, tuple) else (key,)
    told = [
        f'seed {value}' if column == 'seed' else str(value)
        for column, value in zip(texts, values, strict=True)
    ]
    return ', '.join(filter(None, told))


def _listed(values: np.ndarray) -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
