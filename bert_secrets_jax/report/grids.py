"""The numbers of every head and layer in frames and figures, for what a page draws of them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax.measure.colours import Colours, sets_of
from bert_secrets_jax.plots.kinds import in_words, plain_relation
from bert_secrets_jax.report.templates import Fields, Heads

if TYPE_CHECKING:
    import pandas

    from bert_secrets_jax.plots import Figure

# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60


def file_name(part: str, name: str) -> str:
    """Return the name, without suffix, of the file of a frame or figure of a part."""
    return name if name.startswith(part) else f'{part}_{name}'


def grids(frames: 'Mapping[str, pandas.DataFrame]', heads: Heads) -> list[Fields]:
    """Return what a page draws of all frames that have rows for every head or for every layer.

    Returns:
      For each such frame its name and caption, `axis` ('heads' or 'layers'), the names of its
      columns of numbers, and `sets`: the name of each, such as '[SEP]', the numbers
      [column][head] or [column][layer], with None for NaN, and `alike`, the set of its source
      without the seed. `red` has `Colours.red` of each column, or 0. `about` has the places of the
      columns about heads; `beside` those of the columns that tell how sure each is. `classes` has
      for each set its columns of words.
    """
    if heads is None:
        return []
    found = (
        _drawn(name, frame, frame.attrs['colours'], heads[1:])
        for name, frame in frames.items()
        if 'colours' in frame.attrs
    )
    return [each for each in found if each is not None]


def _drawn(
    name: str, frame: 'pandas.DataFrame', colours: Colours, heads: tuple[int, int]
) -> Fields | None:
    """Return what `grids` returns of a frame; None if it is too long, or of another model."""
    shape = heads if colours.axis == 'heads' else heads[:1]
    count = int(np.prod(shape))
    sets = sets_of(frame)
    whole = [
        len(rows) == count and tuple(rows.index.to_frame().max()) == shape for _, _, rows in sets
    ]
    if not whole or not all(whole) or len(frame) > _MOST_ROWS * count:
        return None
    columns = [each for each in frame if each not in (*colours.by, *colours.places)]
    numbers = [each for each in columns if frame[each].dtype.kind in 'iuf']
    return {
        'name': name,
        'caption': frame.attrs.get('caption', ''),
        'axis': colours.axis,
        'columns': list(map(in_words, numbers)),
        'about': [place for place, each in enumerate(numbers) if each in colours.columns],
        'beside': [
            [numbers.index(other) for other in colours.columns.get(each, ())] for each in numbers
        ],
        'sets': [
            {
                'of': in_words(_plain_title(title) if 'relation' in colours.by else title),
                'alike': alike,
                'values': [_listed(rows[each].to_numpy()) for each in numbers],
                'red': [colours.red.get((each, alike), 0) for each in numbers],
                'classes': [
                    (in_words(each), list(map(str, rows[each])))
                    for each in colours.columns
                    if each not in numbers
                ],
            }
            for title, alike, rows in sets
        ],
    }


def _plain_title(title: str) -> str:
    """Return the title of a set whose first word is a relation, with the label of a subtype."""
    relation, *way = title.split(', ')
    label = f' ({relation})' if ':' in relation else ''
    return ', '.join([plain_relation(relation) + label, *way])


def figure_numbers(figure: 'Figure', part: str) -> Fields | None:
    """Return the numbers of a figure as a file keeps them, lists instead of arrays; None for none.

    There are the `kind` of what is drawn, what is said of all numbers, and `panels`, each with its
    title and `sets`: the names of its rows of numbers, their values, and their `source`: the file,
    the column, the set of rows, and what the column is multiplied by.
    """
    drawn = figure.numbers
    if drawn is None:
        return None
    return {
        'kind': drawn.kind,
        'label': drawn.label,
        **_plain(drawn.scale),
        'panels': [
            {
                'title': panel.title,
                'shape': list(np.shape(next(iter(panel.values.values())))),
                'sets': [
                    {
                        'of': name,
                        'values': _plain(values),
                        'source': _source(figure, part, panel.title, name),
                    }
                    for name, values in panel.values.items()
                ],
                **_plain(panel.beside),
            }
            for panel in drawn.panels
        ],
    }


def _source(figure: 'Figure', part: str, title: str, name: str) -> Fields | None:
    source = figure.source
    if isinstance(source, Mapping):
        source = source.get((title, name)) or source.get(title)
    if source is None:
        return None
    return source._asdict() | {
        'frame': file_name(part, source.frame),
        'of': source.of.replace('{}', name or title),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _listed(value.ravel()) if value.dtype.kind in 'iuf' else value.ravel().tolist()
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def traced(figure: Fields | None, found: Sequence[Fields], heads: Heads) -> Fields | None:
    """Return the numbers of a figure, each set with the place in a frame that it is from.

    None if they are not of these heads or layers. `rows` of a set has the numbers of frame, set and
    column that it shows, or is the mean of (several fine-tunings); empty without such a frame.
    """
    if figure is None or heads is None:
        return None
    shape = {'layers': heads[1:2], 'features': heads[2:]}.get(figure['kind'], heads[1:])
    if not all(tuple(each['shape']) == tuple(shape) for each in figure['panels']):
        return None
    panels = [
        {**panel, 'sets': [_traced(each, found) for each in panel['sets']]}
        for panel in figure['panels']
    ]
    return {**figure, 'panels': panels}


def _traced(numbers: Fields, found: Sequence[Fields]) -> Fields:
    source = numbers['source'] or {'frame': None, 'times': 1, 'start': 0}
    rows = [
        (at, number, frame['columns'].index(in_words(source['column'])))
        for at, frame in enumerate(found)
        if frame['name'] == source['frame']
        for number, each in enumerate(frame['sets'])
        if each['alike'] in ('', source['of'])
    ]
    kept = {name: numbers[name] for name in ('of', 'values')}
    return {**kept, 'rows': rows, 'times': source['times'], 'start': source.get('start', 0)}


def _listed(values: 'pandas.Series | np.ndarray') -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
