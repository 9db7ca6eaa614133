"""Files of maps and labels that are damaged: an error that names them, and never a wrong label."""

import csv
import io

import numpy as np
import pytest

from bert_secrets_jax.files import write_arrays
from tests.tools.patterns.conftest import LENGTHS
from tools.patterns.sample import (
    COLUMNS,
    labels_of,
    read_decisions,
    read_labels,
    read_maps,
    row_of,
    write_maps,
)

DECISIONS = [
    (0, 'vertical'), (1, 'vertical_diagonal'), (0, 'diagonal'), (2, 'heterogeneous'), (1, ''),
    (3, 'block'), (1, 'vertical_diagonal'),
]  # fmt: skip


def table(maps, decisions=DECISIONS):
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerows([COLUMNS, *(row_of(maps, *each) for each in decisions)])
    return text.getvalue().encode()


def test_a_table_that_is_cut_anywhere(maps, tmp_path):
    """A whole row that is left out was the last one; half of one is never another label."""
    path, whole = tmp_path / 'labels.csv', table(maps)
    for end in range(len(','.join(COLUMNS)), len(whole) + 1):
        path.write_bytes(whole[:end])
        rows = max(whole[:end].count(b'\n') - 1, 0)
        known = [labels_of(DECISIONS[: rows + more]) for more in (0, 1)]
        # The map of the row that is cut may have none.
        cut = {number for number, _ in DECISIONS[rows : rows + 1]}
        known.append({number: name for number, name in known[0].items() if number not in cut})
        assert read_labels(path, maps) in known
    # The newest label is whole without its line end only if it cannot be the half of another.
    path.write_bytes(table(maps, [(0, 'block'), (1, 'vertical')])[:-1])
    assert read_labels(path, maps) == {0: 'block'}


@pytest.mark.parametrize(
    ('content', 'wrong'),
    [
        (b'', 'line 1: the file is empty. Delete it'),
        (b'{header}\n0,"a, b",own/0,1,4,block\n\0\0\0', 'line 3: a NUL'),
        # Latin-1 in a last line: no half of a row.
        (b'{header}\n2,\xe9,own/10,3,2,block', 'line 2: not UTF-8'),
        (b'{header}\n\n0,"a, b",own/0,1,4,blocks\n', 'line 3: not a decision'),
        # A quotation mark that hides the rows behind it.
        (b'{header},note\n0,"a, b",own/0,1,4,block,"\n1,"a, b",own/1,2,1,block,\n',
         'line 2: not a row'),
        # Another head, or another map.
        *[(b'{header}\n%s,block\n' % other, 'line 2: a label of another map')
          for other in (b'0,"a, b",own/0,1,5', b'4,"a, b",own/0,1,4', b'00,"a, b",own/0,1,4')],
    ],
    ids=lambda _: '',
)  # fmt: skip
def test_a_table_that_is_none(maps, tmp_path, content, wrong):
    path = tmp_path / 'labels.csv'
    path.write_bytes(content.replace(b'{header}', ','.join(COLUMNS).encode()))
    with pytest.raises(ValueError, match=wrong) as error:
        read_labels(path, maps)
    assert str(path) in str(error.value) and '\n' not in str(error.value)


def test_tables_that_others_wrote(maps, tmp_path):
    """With a byte order mark, other line ends, columns of their own, and formulas as cells."""
    path, truth = tmp_path / 'labels.csv', labels_of(DECISIONS)
    whole = table(maps)
    spelled = whole.replace(b'=3', b"'=3")
    for content in (
        b'\xef\xbb\xbf' + whole, whole.replace(b'\n', b'\r\n\r\n'), spelled,
        whole.replace(b',class', b',class,note'), whole.replace(b'\n', b',\n'),
    ):  # fmt: skip
        path.write_bytes(content)
        assert read_labels(path, maps) == truth
    columns, rows = read_decisions(path, maps)
    assert columns == [*COLUMNS, ''] and rows[0] == ['0', 'a, b', 'own/0', '1', '4', 'vertical', '']
    path.unlink()
    assert read_labels(path, maps) == {} and read_decisions(path, maps) == (COLUMNS, [])


@pytest.fixture
def arrays(maps, tmp_path):
    write_maps(tmp_path / 'maps.npz', maps)
    with np.load(tmp_path / 'maps.npz') as found:
        return dict(found)


def test_maps_as_they_were_written(maps, tmp_path):
    write_maps(tmp_path / 'maps.npz', maps)
    found = read_maps(tmp_path / 'maps.npz')
    assert [value.shape for value in found.values] == [(length, length) for length in LENGTHS]
    for value, expected in zip(found.values, maps.values, strict=True):
        np.testing.assert_array_equal(value, expected.astype(np.float16))
    assert found.source.tolist() == maps.source.tolist()


def with_value(array, value, place=0):
    array = array.copy()
    array.flat[place] = value
    return array


BAD_TEXT = np.frombuffer(np.full(4, 0x7FFFFFFF, np.uint32).tobytes(), '<U1')


@pytest.mark.parametrize(
    ('name', 'change'),
    [
        ('lengths', lambda lengths: with_value(lengths, 2**62)),
        # In 64 bits, its square is 0.
        ('lengths', lambda lengths: np.append(lengths, [2**32])),
        ('values', lambda values: with_value(values, np.inf, -1)),
        ('values', lambda values: values[:-1]),
        ('first_text', lambda first: with_value(first, 6)),
        ('source', lambda source: BAD_TEXT),
        # One more than maps have.
        ('more', lambda _: np.zeros(4)),
    ],
    ids=lambda _: '',
)  # fmt: skip
def test_maps_of_wrong_arrays(tmp_path, arrays, name, change):
    path = tmp_path / 'wrong.npz'
    write_arrays(path, arrays | {name: np.asarray(change(arrays.get(name)))})
    with pytest.raises(ValueError, match='wrong.npz does not hold attention maps: '):
        read_maps(path)
