"""The numbers of every head or of every layer, found in the frames of any result."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_secrets_jax.runs.result import Result

if TYPE_CHECKING:
    import pandas

# The columns that say what a row is about, and the names that may stand in one column instead.
HEADS, LAYERS = ('layer', 'head'), ('layer',)
_NAMES = {HEADS: re.compile(r'L(\d+)-H(\d+)'), LAYERS: re.compile(r'L(\d+)')}
# Columns with one of these words tell how sure another column is, count something, compare with a
# null, or have axes that mean nothing. All others are about heads.
_BESIDE = frozenset(
    'p t x y low high variance error deviation spread detectable critical familywise percentile '
    'holm benjamini corrected tost changed equivalent examples significant intact elsewhere moved '
    'positions classes'.split()
)


def head_grids(result: Result) -> dict[str, np.ndarray]:
    """Return the statistics of heads in the frames of a result, as grids [L, N].

    A frame has statistics of heads if it has the columns `layer` and `head`, or a column of names
    such as 'L1-H2', and rows for every head. Each column of numbers is a statistic, but for those
    of errors, intervals and tests. Where a column divides the rows into sets that have every head,
    such as the names of statistics, each set is one. Of several fine-tunings (`seed`) the mean is
    returned.

    Args:
      result: The result.

    Returns:
      The grids by the names of the frame and the statistic, such as 'heads: [SEP]'.
    """
    grids: dict[str, np.ndarray] = {}
    for name, frame in result.frames().items():
        for statistic, grid in _grids(frame).items():
            grids.setdefault(f'{name.replace("_", " ")}: {statistic}', grid)
    return grids


def is_statistic(column: str) -> bool:
    """Whether a column of numbers is about heads, and not about how sure another column is.

    Args:
      column: The name of the column.
    """
    return not _BESIDE & set(re.split(r'[ _]', column))


def _grids(frame: 'pandas.DataFrame') -> dict[str, np.ndarray]:
    grids = {}
    for told, rows in sets_of(frame, HEADS, averaged=('seed',)):
        for name, values in rows.items():
            if values.dtype.kind == 'f' and is_statistic(str(name)):
                column = [] if name == 'mean' else [str(name).replace('_', ' ')]
                grid = values.to_numpy(float).reshape(rows.index.levshape)
                grids[', '.join(filter(None, [told, *column]))] = grid
    return grids


def sets_of(
    frame: 'pandas.DataFrame', places: tuple[str, ...], *, averaged: Sequence[str] = ()
) -> 'list[tuple[str, pandas.DataFrame]]':
    """Return the sets of a frame that have all heads or layers, each with a name and its columns.

    Args:
      frame: Any frame.
      places: `HEADS` or `LAYERS`.
      averaged: Columns that divide no sets, such as 'seed': rows that differ in these alone are
        averaged.

    Returns:
      The name of each set, such as '[SEP]', and the columns that divide nothing, with the index
      (layer, head) or layer, in order. Where several rows are averaged there are numbers alone.
      Empty if the frame has no row for each head or layer, or is about heads and not layers.
    """
    frame = _with_places(frame, places)
    if not len(frame) or not {*places} <= {*frame} or (places == LAYERS and _is_of_heads(frame)):
        return []
    places = list(places)
    count = int(frame[places].max().prod())
    if len(frame[places].drop_duplicates()) != count:
        return []
    others = [name for name in frame if name not in (*places, *averaged)]
    sets, rest = _sets(frame, places, others)
    numbers = [name for name in rest if frame[name].dtype.kind in 'iuf']
    found = []
    for key, rows in frame.groupby(sets, sort=False) if sets else [((), frame)]:
        told = [
            f'{name} {each:g}' if frame[name].dtype.kind in 'iuf' else str(each)
            for name, each in zip(sets, key, strict=True)
        ]
        # Rows of their own keep their types: counts stay whole.
        whole = len(rows) == count
        columns = rows.set_index(places)[rest] if whole else rows.groupby(places)[numbers].mean()
        found.append((', '.join(told), columns.sort_index()))
    return found


def _is_of_heads(frame: 'pandas.DataFrame') -> bool:
    return {*HEADS} <= {*_with_places(frame, HEADS)}


def _with_places(frame: 'pandas.DataFrame', places: tuple[str, ...]) -> 'pandas.DataFrame':
    """Return a frame with columns of layer and head, or of layer, if some column names them all."""
    if {*places} <= {*frame} and all(frame[name].dtype.kind in 'iu' for name in places):
        return frame
    for name in frame:
        found = [_NAMES[places].fullmatch(str(each)) for each in frame[name]]
        if found and all(found):
            numbers = {
                place: [int(each[1 + index]) for each in found]
                for index, place in enumerate(places)
            }
            return frame.drop(columns=name).assign(**numbers)
    return frame.drop(columns=[name for name in places if name in frame])


def _sets(
    frame: 'pandas.DataFrame', places: list[str], names: list[str]
) -> tuple[list[str], list[str]]:
    """Return the columns that divide a frame into sets with every head or layer, and the others.

    A column that divides no further, such as the unit of a statistic, is neither.
    """
    size, sets, rest, count = len(frame[places].drop_duplicates()), [], [], 0
    for name in names:
        if frame[name].nunique(dropna=False) * size > len(frame):
            rest.append(name)
            continue
        is_text = frame[name].dtype.kind not in 'iufb'
        groups = frame.groupby([*sets, name], sort=False, dropna=False)
        whole = len(frame[[*sets, name, *places]].drop_duplicates()) == size * groups.ngroups
        if whole and groups.ngroups > max(count, 0 if is_text else 1):
            sets, count = [*sets, name], groups.ngroups
        elif not (whole and is_text):
            rest.append(name)
    return sets, rest
