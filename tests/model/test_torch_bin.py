"""pytorch_model.bin: read without PyTorch, and nothing that the file says is ever run."""

import collections
import json
import os
import pathlib
import pickle
import re
import struct
import subprocess
import sys
import warnings
import zipfile
import zlib

import ml_dtypes
import numpy as np
import pytest

from bert_secrets_jax.model import torch_bin

torch = pytest.importorskip('torch')


@pytest.fixture(params=[True, False], ids=['zip', 'legacy'])
def new_format(request):
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'pytorch_model.bin'


@pytest.mark.parametrize('protocol', [2, 5])
def test_equals_torch_load(path, new_format, protocol):
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = collections.OrderedDict(
        plain=torch.randn(3, 5),
        transposed=base.T,
        view=base[1:3, ::2],  # shares the storage of `transposed`
        again=base[1:3, ::2],
        parameter=torch.nn.Parameter(torch.randn(4)),
        frozen=torch.nn.Parameter(torch.randn(4), requires_grad=False),
        gradient=torch.randn(4, requires_grad=True),
        expanded=torch.arange(8).expand((1, -1)),
        scalar=torch.tensor(3.0),
        empty=torch.zeros(0, 4),
        half=torch.randn(5).half(),
        bfloat=torch.randn(5).bfloat16(),
        integers=torch.arange(7),
        flags=torch.tensor([True, False]),
    )
    tensors._metadata = collections.OrderedDict({'': {'version': 1}})  # as modules have it
    torch.save(tensors, path, pickle_protocol=protocol, _use_new_zipfile_serialization=new_format)
    loaded = torch_bin.load(path)
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        expected = tensor.detach()
        assert loaded[name].shape == tuple(expected.shape), name
        assert str(loaded[name].dtype) == str(expected.dtype).removeprefix('torch.'), name
        np.testing.assert_array_equal(
            loaded[name].astype(np.float64), expected.double().numpy(), err_msg=name
        )


def write_zip(path, data: bytes, storages=None, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, 'w', compression) as archive:
        archive.writestr('archive/data.pkl', program(data))
        for key, storage in (storages or {}).items():
            archive.writestr(f'archive/data/{key}', storage)
        archive.writestr('archive/version', '3')


def write_legacy(path, data: bytes, storages: dict[str, tuple[int, bytes]]):
    header = [torch.serialization.MAGIC_NUMBER, torch.serialization.PROTOCOL_VERSION, {}]
    path.write_bytes(
        b''.join(pickle.dumps(each, protocol=2) for each in header)
        + program(data)
        + pickle.dumps(list(storages), protocol=2)
        + b''.join(struct.pack('<q', count) + each for count, each in storages.values())
    )


def value(constant) -> bytes:
    """The instructions that put a number, a text or a tuple of them on the stack."""
    return pickle.dumps(constant, protocol=2)[2:-1]


def storage(key='0', kind='FloatStorage', count=4, more=b'') -> bytes:
    described = value('storage') + f'ctorch\n{kind}\n'.encode() + value(key) + value('cpu')
    return b'(' + described + value(count) + more + b'tQ'


def tensor(stored=None, offset=0, shape=(4,), strides=(1,), more=b'') -> bytes:
    arguments = (stored or storage()) + value(offset) + value(shape) + value(strides)
    hooks = b'\x89ccollections\nOrderedDict\n)R'
    return b'ctorch._utils\n_rebuild_tensor_v2\n(' + arguments + hooks + more + b'tR'


def state_dict(**tensors: bytes) -> bytes:
    items = b''.join(value(name) + instructions for name, instructions in tensors.items())
    return b'}(' + items + b'u'


def program(instructions: bytes) -> bytes:
    """Return a whole pickle, of instructions that may have NESTED in them."""
    return b'\x80\x04' + instructions.replace(b'NESTED', NESTED) + b'.'


FOUR = np.arange(4, dtype=np.float32)
DATA = {'0': FOUR.tobytes()}


def test_a_dtype_cannot_be_changed(path):
    """BUILD on a dtype would call its __setstate__, and all of the process shares it."""
    before = np.dtype(ml_dtypes.bfloat16).itemsize
    state = value((3, '|', None, None, None, 1024, 1, 0))
    write_zip(path, b'ctorch\nBFloat16Storage\n' + state + b'b0}')
    with pytest.raises(ValueError, match='was not loaded'):
        torch_bin.load(path)
    assert np.dtype(ml_dtypes.bfloat16).itemsize == before == 2


# Says how much memory and time it took to load each of some files; see proc(5).
_LOAD = r"""
import json, pathlib, re, resource, sys, time
from bert_secrets_jax.model import torch_bin
resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000, -1))
def memory(name):
    return int(re.search(name + r':\s*(\d+) kB', pathlib.Path('/proc/self/status').read_text())[1])
for file in sys.argv[1:]:
    pathlib.Path('/proc/self/clear_refs').write_text('5')
    before, start = memory('VmRSS'), time.process_time()
    try:
        message = str(sorted(torch_bin.load(file)))
    except ValueError as error:
        message = str(error)
    print(json.dumps([message, time.process_time() - start, (memory('VmHWM') - before) // 1024]))
"""


def load_within_limits(*paths, seconds=20, mebibytes=150) -> list[str]:
    """Load files in a process of their own; returns the names that each holds, or the refusal."""
    done = subprocess.run(
        [sys.executable, '-c', _LOAD, *paths],
        capture_output=True, text=True, timeout=240, cwd=pathlib.Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = []
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        message, took, used = json.loads(line)
        assert took < seconds and used < mebibytes, path
        if not message.startswith('['):
            start, end = f'{path} was not loaded: ', 'Convert it to model.safetensors'
            assert message.startswith(start) and end in message
            message = message.removeprefix(start).partition(f'. {end}')[0]
            assert message and len(message) <= 300
        found.append(message)
    return found


# A tuple of twice the same tuple, and that 60 times over: 60 objects, but 2**60 ways through them.
NESTED = b')' + b'q\x00h\x00\x86' * 60
PAIRS = b''.join(b'](' + value(f'{number}') + b'Ne' for number in range(2**15))
PICKLES = {
    'a memo of 64 GB': (b'}r' + struct.pack('<I', 4 * 10**9), r'\[\]'),
    'nested tuples as a key': (b'}NESTEDNs', 'a key is no text'),
    'nested tuples as keys': (b'}(NESTEDNu', 'a key is no text'),
    'nested tuples as an object': (b'NESTEDQ', 'unknown kind of object'),
    'nested tuples as a name': (b'NESTEDNESTED\x93', 'without a name'),
    'nested tuples as a function': (b'NESTED)R', 'no function'),
    'nested tuples as a number': (state_dict(a=tensor(storage(more=NESTED))), 'unknown kind'),
    'nested tuples as a size': (
        b'}' + value('a') + tensor().replace(value((4,)), NESTED + b'\x85', 1) + b's',
        'a has an impossible shape',
    ),
    'nested tuples as all': (b'NESTED', 'not hold a state dict'),
    'a million tuples in each other': (b')' + b'\x85' * 10**6, 'not hold a state'),
    'a million dictionaries': (b'(' + b'}' * 10**6 + b't', 'not hold a state dict'),
    'a million marks': (b'(' * 10**6 + b'}', r'\[\]'),
    'a dictionary in itself': (b'}q\x00' + value('a') + b'h\x00s', 'not hold a state'),
    'a long pickle': (b'}' + b'N' * 2**20, 'its pickle is longer than'),
    'a dictionary made again and again': (
        b'(](' + PAIRS + b'e\x85q\x00ccollections\nOrderedDict\nq\x01('
        + b'h\x01h\x00R' * 50_000 + b'tt',
        'not hold a state dict',
    ),
    'a text of 4 GB': (b'X\xff\xff\xff\xff', 'expected 4294967295 bytes'),
    'a text of 8 EB': (b'\x8d' + b'\xff' * 7 + b'\x7f', 'expected 9223372036854775807'),
    'bytes of 2 GB': (b'B\x00\x00\x00\x80', 'expected 2147483648 bytes'),
    'a number of a million bytes': (
        b'\x8b' + struct.pack('<i', 10**6) + b'\x7f' * 10**6, 'LONG4'
    ),
    'a number of a million digits': (b'L' + b'9' * 10**6 + b'L\n', 'digits'),
    'a stride of 0': (state_dict(a=tensor(shape=(2**40,), strides=(0,))), 'would take more than'),
    'an absurd stride': (state_dict(a=tensor(shape=(1,), strides=(2**62,))), r"\['a'\]"),
    'an absurd size': (state_dict(a=tensor(shape=(0, 2**62), strides=(1, 1))), 'ValueError|array'),
    'absurd sizes': (
        state_dict(a=tensor(shape=(2**2000,) * 8, strides=(0,) * 8)), 'would take more than'
    ),
    'one tensor by many names': (
        b'}(' + value('a') + tensor(shape=(2**17,), strides=(0,)) + b'q\xff'
        + b''.join(value(f'{number}') + b'h\xff' for number in range(10_000)) + b'u',
        'would take more than',
    ),
    'a storage of 4 TB': (state_dict(a=tensor(storage(count=2**40))), 'would take more than'),
    'a storage beyond all numbers': (
        state_dict(a=tensor(storage(count=2**2000))), 'would take more than'
    ),
}  # fmt: skip


def test_hostile_pickles_take_neither_memory_nor_time(tmp_path):
    for name, (data, _) in PICKLES.items():
        write_zip(tmp_path / name, data, DATA)
    found = load_within_limits(*(tmp_path / name for name in PICKLES))
    for (name, (_, refusal)), message in zip(PICKLES.items(), found, strict=True):
        assert re.search(refusal, message), name


@pytest.mark.parametrize(
    ('data', 'refusal'),
    [
        (b'\xff', 'unknown'),
        (b'NN', 'does not end with one value'),
        (b'h\x07', 'KeyError 7'),
        (b't', 'IndexError'),
        (b'NNa', 'adds items to something that has none'),
        (b'}(Nu', 'shorter'),
        (b'}X\x01\x00\x00\x00\xffNs', 'codec'),
        (state_dict(a=value(3)), 'does not hold a state dict'),
        (state_dict(**{'\x1b[2J': tensor()}), 'does not hold a state dict'),
        (b'}ctorch\nFloatStorage\n' + tensor() + b's', 'a key is no text'),
        (value('collections.OrderedDict') + b')R', 'no function'),
        (b'}(' + (value('a') + tensor()) * 2 + b'u', 'two values for a'),
        (b'cos\n\x1b[2Jsystem\n', r'asks for os.\?\[2Jsystem'),
        (value(('module', 'a')) + b'Q', 'unknown kind of object, module'),
        (state_dict(a=tensor(storage('../data.pkl'))), 'the archive has no archive/data/../data'),
        (state_dict(a=tensor(storage(count=3), shape=(3,))), 'has not the 12 bytes'),
        (state_dict(a=tensor(storage(count=-1))), 'unknown kind of object'),
        (state_dict(a=tensor(storage(count=True))), 'unknown kind of object'),
        (state_dict(a=tensor(storage(more=value(('1', 0, 4))))), 'unknown kind of object'),
        (state_dict(a=tensor(storage(kind='Tensor'))), 'asks for torch.Tensor'),
        (
            state_dict(a=tensor(), b=tensor(storage(kind='IntStorage'))),
            'the storage 0 has two sizes or types',
        ),
        (state_dict(a=tensor(more=value({'neg': True}))), 'calls torch._utils._rebuild_tensor_v2'),
        # BUILD sets attributes; here it tries to give our stand-in other defaults.
        (
            b'ctorch._utils\n_rebuild_tensor_v2\n' + value((None, {'__defaults__': (1,)})) + b'b',
            'sets the state of something that has none',
        ),
        *(
            (
                state_dict(a=tensor(None, offset, shape, strides)),
                'a (reaches beyond its data|has an impossible shape)',
            )
            for offset, shape, strides in [
                (3, (2,), (1,)), (0, (2,), (-1,)), (2**600, (1,), (1,)), (True, (1,), (1,)),
                (0, (2.0,), (1,)), (0, (1,) * 9, (1,) * 9),
            ]
        ),
        *(
            (instructions, f'an instruction that a plain checkpoint has not, {name}')
            for instructions, name in [
                (b'(ios\nsystem\n', 'INST'), (b'(o', 'OBJ'), (b'N)}\x92', 'NEWOBJ_EX'),
                (b'\x82\x01', 'EXT1'), (b'P1\n', 'PERSID'), (b'(1', 'POP_MARK'), (b'N2', 'DUP'),
                (b'(l', 'LIST'), (b'(\x91', 'FROZENSET'), (b'\x96' + bytes(8), 'BYTEARRAY8'),
            ]
        ),
    ],
    ids=lambda _: '',
)  # fmt: skip
def test_a_pickle_that_says_something_else_is_refused(path, data, refusal):
    write_zip(path, data, DATA)
    with pytest.raises(ValueError, match=f'pytorch_model.bin was not loaded: .*{refusal}'):
        torch_bin.load(path)


def test_a_tensor_whose_sign_is_stored_apart_is_refused(path):
    torch.save({'weight': torch.ones(3)._neg_view()}, path)
    with pytest.raises(ValueError, match='as a plain checkpoint does not'):
        torch_bin.load(path)


def patched(data: bytes, signature: bytes, position: int, new: bytes) -> bytes:
    """Return an archive with other bytes in the last header of a kind."""
    start = data.rindex(signature) + position
    return data[:start] + new + data[start + len(new) :]


def test_a_deflated_archive_is_read_up_to_a_ratio(path):
    write_zip(path, state_dict(a=tensor()), DATA, zipfile.ZIP_DEFLATED)
    np.testing.assert_array_equal(torch_bin.load(path)['a'], FOUR)
    count = 2**24
    bomb = {'0': bytes(4 * count)}
    data = state_dict(a=tensor(storage(count=count)))
    write_zip(path, data, bomb, zipfile.ZIP_DEFLATED)
    assert 'would take more than' in load_within_limits(path, mebibytes=50)[0]
    # A member that is larger than it claims is not unpacked further than it claims.
    write_zip(path, state_dict(a=tensor()), bomb, zipfile.ZIP_DEFLATED)
    whole = path.read_bytes()
    start = whole.rindex(b'archive/data/0') - 22
    path.write_bytes(whole[:start] + struct.pack('<I', 16) + whole[start + 4 :])
    assert 'Bad CRC-32' in load_within_limits(path, mebibytes=50)[0]


def test_only_what_tensors_refer_to_is_read(path):
    write_zip(path, state_dict(a=tensor()), DATA | {'1': bytes(2**27)}, zipfile.ZIP_DEFLATED)
    assert load_within_limits(path, mebibytes=50) == ["['a']"]


def test_members_of_an_archive(path):
    good = state_dict(a=tensor())

    def refusal(data: bytes) -> str:
        path.write_bytes(data)
        with pytest.raises(ValueError, match='pytorch_model.bin was not loaded: .') as caught:
            torch_bin.load(path)
        return str(caught.value)

    for compression in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        write_zip(path, good, DATA, compression)
        assert 'an unusual compression' in refusal(path.read_bytes())
    write_zip(path, good, DATA)
    whole = path.read_bytes()
    for fault, signature, position, new in (
        ('unusual compression', b'PK\x01\x02', 10, b'\x63'),
        ('encrypted', b'PK\x01\x02', 8, b'\x01'),
        ('overlap', b'PK\x01\x02', 42, b'\x01\x00'),
        ('overlap', b'PK\x01\x02', 20, b'\xff\xff\xff\x7f'),
        ('BadZipFile', b'PK\x05\x06', 12, b'\xff\xff\xff\x7f'),
        ('NotImplementedError', b'PK\x01\x02', 6, b'\xff'),
    ):
        assert fault in refusal(patched(whole, signature, position, new))
    assert 'Bad CRC-32' in refusal(whole.replace(FOUR.tobytes(), FOUR.tobytes()[::-1]))
    for fault, name, content in (
        ('two members have one name', 'archive/data/0', FOUR.tobytes()),
        ('no single data.pkl', 'other/data.pkl', good),
        ('byteorder', 'archive/byteorder', b'big'),
    ):
        path.write_bytes(whole)
        with warnings.catch_warnings(action='ignore'), zipfile.ZipFile(path, 'a') as archive:
            archive.writestr(name, content)
        assert fault in refusal(path.read_bytes())


def test_an_archive_of_a_million_members(path):
    write_zip(path, state_dict(a=tensor()), DATA)
    whole = path.read_bytes()
    start, end = whole.rindex(b'PK\x01\x02'), whole.rindex(b'PK\x05\x06')
    again = whole[start:end] * 1_000_000
    length = end + len(again) - whole.index(b'PK\x01\x02')
    data = patched(whole, b'PK\x05\x06', 12, struct.pack('<I', length))
    path.write_bytes(data[:end] + again + data[end:])
    assert 'list of members is longer' in load_within_limits(path, mebibytes=50)[0]


def test_storages_of_the_older_format(tmp_path):
    good, data = state_dict(a=tensor(storage(more=b'N'))), FOUR.tobytes()
    claimed = state_dict(a=tensor(storage(count=2**40), shape=(2**40,)))
    # A storage that no tensor has is skipped: here `b` is in what BUILD leaves out.
    attributes = b'}' + value('b') + tensor(storage('1', count=2**24)) + b's'
    cases = [
        (good, {'0': (4, data)}, "['a']"),
        # Longer than said is no harm: the rest of the file is not looked at.
        (good, {'0': (4, data + b'more')}, "['a']"),
        (good + attributes + b'b', {'1': (2**24, bytes(2**26)), '0': (4, data)}, "['a']"),
        *((good, {'0': (n, data)}, 'has another size') for n in (2**62, 5, 3, 0, -(2**63))),
        (good, {'0': (4, data[:-1])}, 'has another size'),
        (good, {}, 'is not in it'),
        (good, {'0': (4, data), '1': (4, data)}, 'an unknown one, 1'),
        (claimed, {'0': (2**40, data)}, 'has another size'),
    ]
    paths = [tmp_path / f'{number}.bin' for number in range(len(cases))]
    for path, (pickled, storages, _) in zip(paths, cases, strict=True):
        write_legacy(path, pickled, storages)
    for found, (*_, expected) in zip(load_within_limits(*paths, mebibytes=50), cases, strict=True):
        assert expected in found
    for path in paths[:3]:
        np.testing.assert_array_equal(torch_bin.load(path)['a'], FOUR)


def test_a_file_by_python_2(path):
    """Python 2 has texts of its own, and passes the items of a dictionary as a list of lists."""
    item = b'](U\x01a' + tensor(storage(more=b'N')) + b'e'  # as Python 2.7.18 writes it
    write_legacy(path, b'ccollections\nOrderedDict\n](' + item + b'e\x85R', {'0': (4, DATA['0'])})
    np.testing.assert_array_equal(torch_bin.load(path)['a'], FOUR)


def test_what_is_no_file_is_refused(tmp_path):
    paths = pipe, folder, device = [tmp_path / kind for kind in ('pipe', 'folder', 'device')]
    os.mkfifo(pipe)
    folder.mkdir()
    device.symlink_to('/dev/zero')
    for path, found in zip(paths, load_within_limits(*paths), strict=True):
        assert f'is a {path.name}' in found


@pytest.mark.parametrize(
    'error', [MemoryError(), RecursionError(), OSError(5, 'gone'), ValueError(), zlib.error('x')]
)
def test_whatever_is_raised_becomes_the_one_refusal(path, monkeypatch, error):
    def fail(*_):
        raise error

    write_zip(path, state_dict(a=tensor()), DATA)
    monkeypatch.setattr(torch_bin, '_run', fail)
    with pytest.raises(ValueError, match=f'not loaded: reading it raised {type(error).__name__}'):
        torch_bin.load(path)
