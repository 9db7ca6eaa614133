"""Maps and their labels, which `tools/patterns` writes and reads again."""

import csv
import io
import pathlib
from typing import Any

import numpy as np
from hypothesis import example
from hypothesis import strategies as st

from bert_secrets_jax.patterns.fit import MapSample
from tests.fuzz.broken import Format, integer, require, sample
from tests.fuzz.damage import broken, changed_npz, changes, encoded, npy, respelled
from tests.fuzz.test_texts import split_csv
from tools.patterns.sample import (
    COLUMNS,
    LABELS_FILE,
    MAPS_FILE,
    read_annotated,
    row_of,
    write_maps,
)

_CLASSES = ('vertical', 'diagonal', 'vertical_diagonal', 'block', 'heterogeneous')


def _csv(rows) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator='\n').writerows(rows)
    return out.getvalue()


def make_labelled(folder: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    maps = MapSample(
        values=[rng.dirichlet(np.ones(size), size).astype(np.float16) for size in (3, 5, 4, 6)],
        first_text=np.array([3, 2, 4, 3]),
        source=np.array(['tiny, "fine"-tuned'] * 4),
        example=np.array([f'mrpc/dev/{place}' for place in range(4)]),
        layer=np.array([0, 1, 0, 1]),
        head=np.array([1, 0, 2, 3]),
        text=np.arange(4),
    )
    write_maps(folder / MAPS_FILE, maps)
    classes = ('vertical', 'diagonal', 'block', 'heterogeneous')
    rows = ([*row_of(maps, n, name), f'at {n}'] for n, name in enumerate(classes))
    (folder / LABELS_FILE).write_text(_csv([[*COLUMNS, 'time'], *rows]))


def _read_labelled(folder: pathlib.Path) -> Any:
    maps, classes = read_annotated(folder)
    return maps, np.asarray(classes, int)


def _plain_labelled(folder: pathlib.Path) -> Any:
    with np.load(folder / MAPS_FILE) as archive:
        arrays = dict(archive)
    lengths, flat = arrays.pop('lengths'), arrays.pop('values')
    require(set(arrays) == {'first_text', 'source', 'example', 'layer', 'head', 'text'})
    count = len(lengths)
    require(lengths.dtype.kind in 'iu' and lengths.ndim == 1 and (lengths > 0).all())
    require(flat.shape == (sum(lengths**2),) and flat.dtype == np.float16)
    require(np.isfinite(flat).all() and (flat >= 0).all() and (flat <= 1).all())
    for name, array in arrays.items():
        require(array.shape == (count,), name)
        require(array.dtype.kind == ('U' if name in ('source', 'example') else 'i'), name)
        require(array.dtype.kind == 'U' or (array >= 0).all(), name)
    require((arrays['first_text'] >= 1).all() and (arrays['first_text'] <= lengths).all())
    header, *rows = split_csv((folder / LABELS_FILE).read_bytes().decode('utf-8-sig'))
    require(header[:6] == ['number', 'source', 'example', 'layer', 'head', 'class'])
    labels = {}
    for row in rows:
        require(len(row) == len(header))
        place = integer(int(row[0]), 0, count - 1)
        shown = [place, arrays['source'][place], arrays['example'][place]]
        shown += [arrays['layer'][place] + 1, arrays['head'][place] + 1]
        require(row[:5] == list(map(str, shown)), row)
        require(row[5] in ('', *_CLASSES))
        labels[place] = row[5]
    chosen = sorted(place for place, name in labels.items() if name)
    require(chosen)
    ends = np.cumsum(lengths**2)
    maps = MapSample(
        [flat[ends[n] - lengths[n] ** 2 : ends[n]].reshape(lengths[n], -1) for n in chosen],
        **{name: array[chosen] for name, array in arrays.items()},
    )
    return maps, np.array([_CLASSES.index(labels[place]) for place in chosen], int)


# A last row that is cut off, by a kill of former versions for one, is left out and told.
LABELLED = Format(make_labelled, _read_labelled, _plain_labelled, told=True)


def other_decisions(data: bytes) -> st.SearchStrategy[bytes]:
    """A table with another cell, or with rows that are cut, missing or there twice."""
    rows, lines = split_csv(data.decode()), data.decode().splitlines()
    cells = st.sampled_from(
        ('', '-1', '99', '0', '1', '\u00b2', '\u0663', '1.0', '9' * 5000, 'diagonal', '\x00',
         ' vertical', 'Vertical', '"', 'x' * 200_000, '00', '=1')
    )  # fmt: skip

    def with_cell(row, column, cell):
        line = [*rows[row][:column], cell, *rows[row][column + 1 :]]
        return _csv([*rows[:row], line, *rows[row + 1 :]])

    def with_line(row, change):
        return '\n'.join([*lines[:row], *change(lines[row]), *lines[row + 1 :], ''])

    places = st.integers(0, len(rows) - 1)
    edits = st.sampled_from(
        (lambda line: [], lambda line: [line] * 2, lambda line: [line[:9]],
         lambda line: [line + ',1,2'], lambda line: [line.rpartition(',')[0]])
    )  # fmt: skip
    columns = st.integers(0, len(rows[0]) - 1)
    texts = st.builds(with_cell, places, columns, cells) | st.builds(with_line, places, edits)
    cut = st.integers(0, len(data)).map(lambda end: data[:end])
    return texts.map(encoded) | cut | respelled(data.decode())


@broken(changes(LABELLED, LABELS_FILE, other_decisions) | changes(LABELLED, MAPS_FILE, changed_npz))
@example({LABELS_FILE: 'pipe'})
@example({MAPS_FILE: 'pipe'})
@example({MAPS_FILE: npy(np.zeros(3))})
@example({MAPS_FILE: npy(np.array([{'a': 1}], object))})
@example({LABELS_FILE: b','.join(name.encode() for name in COLUMNS) + b'\n'})
def test_labels(changed):
    LABELLED.check(changed)


def test_half_of_a_decision_is_told():
    """The only difference from what is written that a warning excuses."""
    data = sample(make_labelled)[LABELS_FILE]
    LABELLED.check({LABELS_FILE: data[: data.rindex(b'geneous')]})
