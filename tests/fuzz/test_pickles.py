"""PyTorch's checkpoints, of both formats, that are broken or hostile; PyTorch is the plain reader.

What each instruction of a pickle and each part of an archive may do is tested by itself in
`tests/model/test_torch_bin.py`.
"""

import io
import itertools
import pathlib
import pickle
import pickletools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.fuzz.broken import MARKER, Format, sample
from tests.fuzz.damage import (
    broken,
    changed_tensors,
    changes,
    damaged,
    members_of,
    with_bomb,
    zipped,
)
from tests.fuzz.test_checkpoints import make_checkpoint, modern, read_tensors, state_dict
from tests.model.test_torch_bin import storage, tensor, value

torch = pytest.importorskip('torch')
FILE = 'pytorch_model.bin'
_ORDERED = b'ccollections\nOrderedDict\n'
_COMMAND = value(f'touch {MARKER}')


def _named(module: str, name: str) -> bytes:
    """Return a name as protocol 4 spells it, in which it may have dots."""
    texts = (b'\x8c' + bytes([len(text)]) + text.encode() for text in (module, name))
    return b''.join(texts) + b'\x93'


# Instructions of one value. Ordinary unpicklers would run most of them.
HOSTILE: dict[str, bytes] = {
    'REDUCE': b'cos\nsystem\n(' + _COMMAND + b'tR',
    'INST': b'(' + _COMMAND + b'ios\nsystem\n',
    'OBJ': b'(cos\nsystem\n' + _COMMAND + b'o',
    'in a parameter': b'ctorch._utils\n_rebuild_parameter\n(cos\nsystem\n('
    + _COMMAND + b'tR\x88tR',
    'dotted name': _named('collections', 'OrderedDict.__init__.__globals__') + b')R',
    'dotted builtins': _named('collections', '_sys.modules') + b')R',
    'dotted stand-in': _named('torch._utils', '_rebuild_tensor_v2.__globals__') + b')R',
    'dotted torch': _named('torch', 'FloatStorage.__class__') + b')R',
    'NEWOBJ of a dictionary': _ORDERED + b')\x81',
    'OrderedDict of arguments': _ORDERED + value((5,)) + b'R',
    'BUILD on the class': _ORDERED + value({'__init__': 1}) + b'b',
    'BUILD on a dictionary': _ORDERED + b')R' + value({'items': 1, '__class__': 2}) + b'b',
    'BUILD with slots': _ORDERED + b')R' + value((None, {'items': 1, 'values': 2})) + b'b',
    'persistent id of a method': storage().replace(b'ctorch\nFloatStorage\n', b'cos\nsystem\n'),
    'persistent id of a device': storage('/dev/zero'),
    'FRAME of 2**62 bytes': b'\x95' + (2**62).to_bytes(8, 'little') + b'N',
    'PUT below zero': b'Np-1\n',
    'POP of everything': b'0' * 50,
}  # fmt: skip


def saved(tensors, new_format: bool) -> bytes:
    out = io.BytesIO()
    as_torch = {name: torch.from_numpy(each.copy()) for name, each in tensors.items()}
    torch.save(as_torch, out, _use_new_zipfile_serialization=new_format)
    return out.getvalue()


def make_zip(folder: pathlib.Path, new_format: bool = True) -> None:
    make_checkpoint(folder)
    (folder / 'model.safetensors').unlink()
    (folder / FILE).write_bytes(saved(state_dict(), new_format))


def make_legacy(folder: pathlib.Path) -> None:
    make_zip(folder, new_format=False)


def _plain_state_dict(folder: pathlib.Path) -> dict[str, np.ndarray]:
    found = torch.load(folder / FILE, weights_only=True)
    return modern({name: each.detach().numpy() for name, each in found.items()})


ZIP = Format(make_zip, read_tensors, _plain_state_dict)
LEGACY = Format(make_legacy, read_tensors, _plain_state_dict)


def opened(data: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return the pickle of a checkpoint, and what puts another in its place."""
    if data[:2] == b'PK':
        members = members_of(data)
        (name,) = (each for each in members if each.endswith('/data.pkl'))
        return members[name], lambda pkl: zipped(members | {name: pkl})
    file, ends = io.BytesIO(data), []
    for _ in range(4):
        *_, _ = pickletools.genops(file)
        ends.append(file.tell())
    start, end = ends[2:]
    return data[start:end], lambda pkl: data[:start] + pkl + data[end:]


def with_hostile(data: bytes, code: bytes) -> list[bytes]:
    """Return a checkpoint with a hostile value in each place: first, last, alone, at the start."""
    pkl, put = opened(data)
    named = value('classifier.weight') + code
    places = (
        b'\x80\x04' + code + b'0' + pkl[2:],
        b'\x80\x04' + code + b'.',
        b'\x80\x04}(' + named + b'u.',
        pkl.removesuffix(b'u.') + named + b'u.',
    )
    return [*map(put, places), b'\x80\x04' + code + b'.' + data]


def hostile(data: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from(sorted(HOSTILE.values())).flatmap(
        lambda code: st.sampled_from(with_hostile(data, code))
    )


def odd_tensors(data: bytes) -> st.SearchStrategy[bytes]:
    """A checkpoint with a tensor that cannot be, or takes more memory than the file has."""
    numbers = st.sampled_from((0, 1, 2, 8, -1, 2**30, 2**62, 10**30, True, 8.0, '8', None))
    sizes = numbers | st.lists(numbers, max_size=3).map(tuple) | st.just((1,) * 100)
    keys = st.sampled_from(('0', '1', 'none', 0, '../version', [], None))
    kinds = st.sampled_from(('FloatStorage', 'IntStorage', 'HalfStorage', 'QInt8Storage'))
    is_zip = data[:2] == b'PK'
    rest = {name: each for name, each in state_dict().items() if name != 'classifier.bias'}
    pkl, put = opened(saved(rest, is_zip))
    stored = st.builds(storage, keys, kinds, numbers, st.just(b'' if is_zip else b'N'))
    odd = st.builds(tensor, stored, numbers, sizes, sizes)
    return odd.map(
        lambda code: put(pkl.removesuffix(b'u.') + value('classifier.bias') + code + b'u.')
    )


def damaged_pickle(data: bytes) -> st.SearchStrategy[bytes]:
    pkl, put = opened(data)
    return damaged(pkl).map(put)


@st.composite
def moved_instructions(draw, data: bytes) -> bytes:
    """A pickle with whole instructions moved, left out and doubled: it is followed further."""
    pkl, put = opened(data)
    starts = [place for _, _, place in pickletools.genops(pkl)] + [len(pkl)]
    codes = [pkl[start:end] for start, end in itertools.pairwise(starts)]
    places = st.integers(0, len(codes) - 1)
    others = st.sampled_from(tuple(codes)) | st.sampled_from(sorted(HOSTILE.values()))
    for _ in range(draw(st.sampled_from((1, 1, 1, 3, 10)))):
        place, cut = draw(places), draw(st.sampled_from((0, 1)))
        codes[place : place + cut] = draw(st.lists(others | st.binary(max_size=1), max_size=1))
    return put(b''.join(codes))


def other_tensors(data: bytes) -> st.SearchStrategy[bytes]:
    return changed_tensors(state_dict()).map(
        lambda found: saved(
            {name: each for name, each in found.items() if each.dtype.kind != 'V'},
            data[:2] == b'PK',
        )
    )


def other_members(data: bytes) -> st.SearchStrategy[bytes]:
    """An archive with members missing, there twice, of other sizes or names, or one more."""
    members = members_of(data)

    def with_member(name):
        content = members[name]
        rest = {each: other for each, other in members.items() if each != name}
        contents = b'', content[:-4], content[:-1], content * 2, bytes(len(content))
        names = f'../{name}', f'/{name}', name.upper(), 'other/data.pkl', 'x', 'archive/code/a.py'
        return st.sampled_from(
            [
                zipped(rest), zipped(members, {name: content}),
                *(zipped(rest, {name: other}) for other in contents),
                *(zipped({name: other}, members) for other in contents),
                *(zipped(rest, {other: content}) for other in names),
                *(zipped(members, {other: content}) for other in names),
            ]
        )  # fmt: skip

    return st.sampled_from(sorted(members)).flatmap(with_member)


ANY = (damaged_pickle, moved_instructions, hostile, odd_tensors, other_tensors)


@broken(changes(ZIP, FILE, *ANY, other_members), share=1.5)
def test_zip(changed):
    ZIP.check(changed)


@broken(changes(LEGACY, FILE, *ANY), share=1.5)
def test_legacy(changed):
    LEGACY.check(changed)


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_pickles(name):
    for kind in (ZIP, LEGACY) if name in ('REDUCE', 'INST', 'OBJ') else (ZIP,):
        for data in with_hostile(sample(kind.make)[FILE], HOSTILE[name]):
            kind.check({FILE: data})


@pytest.mark.parametrize('claim', [3 * 2**30, 1000])
@pytest.mark.parametrize('name', ['data/0', 'data.pkl', 'data/extra'])
def test_bombs(name, claim):
    """A claim of little is a lie about a stream of much."""
    data = sample(make_zip)[FILE]
    root = next(iter(members_of(data))).partition('/')[0]
    ZIP.check({FILE: with_bomb(data, f'{root}/{name}', claim)})


@pytest.mark.parametrize('name', ['REDUCE', 'INST', 'OBJ'])
def test_the_payloads_do_run_where_they_are_allowed_to(tmp_path, monkeypatch, name):
    """Otherwise their marker would prove nothing."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(b'\x80\x04' + HOSTILE[name] + b'.')
    assert pathlib.Path(MARKER).exists()
