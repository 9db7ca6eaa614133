"""The columns that a page may colour heads, or layers, by: declared where a frame is made."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class Colours:
    """The columns of a frame that a page may colour heads, or layers, by: `frame.attrs['colours']`.

    The frame has a row for each of them. Columns `layer` and `head` say for which, or a column
    `disabled` with names such as 'L1-H2'.
    """

    axis: Literal['heads', 'layers']
    # For each column the ones that tell how sure it is: interval, error, p-values, sample.
    columns: Mapping[str, Sequence[str]]
    # Those that divide the rows into sets, each with every head, such as 'statistic'. Sets that
    # differ in their 'seed' alone are fine-tunings of one recipe.
    by: Sequence[str] = ()
    # The change that is drawn in full red, which is for the worse, by a column of changes without
    # a head and the name of a set without its seed.
    red: Mapping[tuple[str, str], float] = dataclasses.field(default_factory=dict)

    @property
    def places(self) -> tuple[str, ...]:
        """The columns that say which head, or layer, a row is about."""
        return ('layer', 'head', 'disabled') if self.axis == 'heads' else ('layer', 'disabled')


def sets_of(frame: 'pandas.DataFrame') -> 'list[tuple[str, str, pandas.DataFrame]]':
    """Return the name of each set of rows of a frame, that without the seed, and the rows."""
    colours = frame.attrs['colours']
    places = [*colours.places[:-1]]
    if 'layer' not in frame:
        named = frame['disabled'].str.extract(r'L(\d+)(?:-H(\d+))?').iloc[:, : len(places)]
        frame = frame.assign(**dict(zip(places, named.astype(int).to_numpy().T, strict=True)))
    by = list(colours.by)
    sets = []
    for key, rows in frame.groupby(by, sort=False) if by else [((), frame)]:
        names = {
            name: f'{name} {each:g}' if frame[name].dtype.kind in 'iuf' else str(each)
            for name, each in zip(by, cast(tuple, key), strict=True)
        }
        alike = ', '.join(each for name, each in names.items() if name != 'seed')
        sets.append((', '.join(names.values()), alike, rows.set_index(places).sort_index()))
    return sets


def head_tables(frames: 'Mapping[str, pandas.DataFrame]') -> dict[str, np.ndarray]:
    """Return the numbers that a page may colour heads by, from the frames of a result by name.

    The tables [L, N] have the names of the frame, the set and the column, such as 'heads: [SEP]';
    of several fine-tunings they are the mean. Whole numbers, which count or mark, are left out.
    """
    tables: dict[str, list[np.ndarray]] = {}
    for name, frame in frames.items():
        colours = frame.attrs.get('colours')
        if colours is None or colours.axis != 'heads':
            continue
        for _, alike, rows in sets_of(frame):
            for column in colours.columns:
                if rows[column].dtype.kind == 'f':
                    titles = [alike, '' if column == 'mean' else column.replace('_', ' ')]
                    title = f'{name.replace("_", " ")}: {", ".join(filter(None, titles))}'
                    tables.setdefault(title, []).append(rows[column].unstack().to_numpy(float))
    return {title: np.mean(each, axis=0) for title, each in tables.items()}
