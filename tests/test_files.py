"""The file layer: what is read, what is refused, and what is left of a write that failed."""

import csv
import dataclasses
import errno
import json
import os
import threading
import time
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax import files
from tests.faults import kill_at


@pytest.mark.parametrize(
    ('text', 'reason'),
    [
        ('[' * 101 + ']' * 101, 'nested more than 100 deep'),
        ('{"a":' * 200_000, 'nested more than 100 deep'),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' occurs twice"),
        ('9' * 10_000, 'digits'),
        ('', 'Expecting value'),
    ],
)
def test_json_that_is_refused(tmp_path, text, reason):
    (tmp_path / 'a.json').write_text(text)
    with pytest.raises(ValueError, match=rf'a\.json is no JSON that can be read: .*{reason}'):
        files.read_json(tmp_path / 'a.json')
    assert files.parse_json('[' * 100 + ']' * 100)


@pytest.mark.parametrize('read', [files.read_bytes, files.read_text, files.read_json,
                                  files.read_arrays, files.sha256, files.read_record])  # fmt: skip
def test_only_regular_files_are_read(tmp_path, read):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'device').symlink_to('/dev/zero')
    for name in ('pipe', 'folder', 'device'):
        with pytest.raises(ValueError, match=name):
            read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / 'nothing')


def test_a_record_notices_every_changed_byte(tmp_path):
    file = tmp_path / 'a.json'
    values = {'a': [1.5, None, 'text'], 'b': {'c': True}}
    files.write_record(file, values)
    assert files.read_record(file) == values
    whole = file.read_bytes()
    unnoticed = 0
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            # Another space between two values changes nothing.
            assert files.read_record(file) == values
            unnoticed += 1
        except ValueError as error:
            assert 'a.json is damaged' in str(error)
    assert unnoticed < whole.count(b' ') + whole.count(b'\n') + 1
    for damaged in (b'', whole[: len(whole) // 2], b'[]', b'{}', b'\xff'):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r'a\.json is damaged'):
            files.read_record(file)


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    file = tmp_path / 'a.csv'
    files.write_csv(file, ('x',), [(1,)])
    full = OSError(errno.ENOSPC, 'No space left on device')
    with pytest.raises(OSError, match='disk is full.*a.csv') as error:
        kill_at(0, lambda: files.write_csv(file, ('x',), [(2,)]), full)
    assert error.value.errno == errno.ENOSPC
    assert file.read_text() == 'x\n1\n'
    assert [path.name for path in tmp_path.iterdir()] == ['a.csv']


def test_two_that_write_one_file_do_not_disturb_each_other(tmp_path):
    file = tmp_path / 'a.json'

    def write(value):
        for _ in range(50):
            files.write_json(file, {'value': [value] * 500})

    threads = [threading.Thread(target=write, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(json.loads(file.read_text())['value'])) == 1
    assert [path.name for path in tmp_path.iterdir()] == ['a.json']


def test_what_killed_runs_have_left_is_removed_once_it_is_old(tmp_path):
    old, young = tmp_path / 'in' / '.a.csv.12.partial', tmp_path / '.b.csv.34.partial'
    for partial in (old, young):
        partial.parent.mkdir(exist_ok=True)
        partial.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    files.remove_partial(tmp_path)
    assert young.exists() and not old.exists()


@pytest.mark.parametrize('text', ['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1'])
def test_formulas_are_texts_in_tables(tmp_path, text):
    files.write_csv(tmp_path / 'a.csv', (text, 'y'), [(text, -1.5), ('plain', -2)])
    with (tmp_path / 'a.csv').open(newline='') as file:
        header, first, second = csv.reader(file)
    assert header[0] == first[0] == f"'{text}"
    assert files.from_cell(first[0]) == text
    # Numbers stay numbers.
    assert (first[1], second) == ('-1.5', ['plain', '-2'])
    assert files.from_cell("'tis") == "'tis"


def test_nan_and_half_of_a_surrogate_pair_are_spelt_in_a_table(tmp_path):
    cells = 'a\udc80b', np.float32('nan'), float('inf')
    files.write_csv(tmp_path / 'a.csv', ('x',), [(each,) for each in cells])
    assert (tmp_path / 'a.csv').read_text() == 'x\na\\udc80b\nnan\ninf\n'


def test_checksums_name_what_differs(tmp_path):
    for name in ('a', 'b', 'c'):
        (tmp_path / name).write_text(name)
    noted = files.checksums(tmp_path)
    assert not files.differing(tmp_path, noted)
    (tmp_path / 'a').unlink()
    (tmp_path / 'b').write_text('B')
    assert files.differing(tmp_path, noted) == [tmp_path / 'a', tmp_path / 'b']


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path):
    file = tmp_path / 'a.npz'
    with (
        zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as archive,
        archive.open('x.npy', 'w') as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {'descr': '<f8', 'fortran_order': False, 'shape': (50_000_000,)}
        )
        for _ in range(400):
            member.write(bytes(1_000_000))
    assert file.stat().st_size < 500_000
    with pytest.raises(ValueError, match=r'a\.npz is damaged'):
        files.read_arrays(file)
    files.write_arrays(file, {'x': np.zeros(10**7, np.float32)})
    assert files.read_arrays(file)['x'].shape == (10**7,)


@dataclasses.dataclass
class Pair:
    """Two values."""

    first: object
    second: object


def test_a_fingerprint_tells_values_apart():
    array = np.arange(6)
    values = [
        array, array.astype(np.int32), array.reshape(2, 3), array[::-1], np.arange(7), 'arange',
        None, True, 1, 1.0, '1', [1], [[1]], [1, None], {'a': 1}, {'b': 1}, {'a': 2},
        Pair(array, 1), Pair(1, array), ['ab', 'c'], ['a', 'bc'], [], [[], []],
    ]  # fmt: skip
    found = [files.fingerprint(value) for value in values]
    assert len(set(found)) == len(values)
    assert found == [files.fingerprint(value) for value in values]
    assert files.fingerprint({'a': 1, 'b': 2}) == files.fingerprint({'b': 2, 'a': 1})
    assert files.fingerprint(jnp.arange(3.0)) == files.fingerprint(np.arange(3, dtype=np.float32))
    assert files.fingerprint(array[::2]) == files.fingerprint(array[::2].copy())
    for wrong in (object(), np.array([object()]), {1: {2}}, print):
        with pytest.raises(TypeError, match='no array, number or text'):
            files.fingerprint(wrong)
