"""Damage to bytes, to JSON values, to archives, and to what a file is."""

import io
import json
import os
import pathlib
import random
import shutil
import socket
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.target import MARKER


class Raw(str):
    """A text that `dump` writes as it stands."""


class Pairs(list):
    """The items of a JSON object, in which keys may occur twice."""


class Payload:
    """A pickle of this makes the marker when an ordinary unpickler loads it."""

    def __reduce__(self):
        return os.system, (f'touch {MARKER}',)


def _place(rng: random.Random, data: bytes) -> int:
    """Return a place among bytes; starts and ends, where formats keep their counts, more often."""
    match rng.randrange(4):
        case 0:
            return rng.randrange(min(len(data), 64))
        case 1:
            return len(data) - 1 - rng.randrange(min(len(data), 64))
    return rng.randrange(len(data))


def _flip_byte(rng, data):
    place = _place(rng, data)
    return data[:place] + bytes([data[place] ^ rng.randrange(1, 256)]) + data[place + 1 :]


def _flip_bit(rng, data):
    place = _place(rng, data)
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _flip_many(rng, data):
    for _ in range(rng.randrange(2, 20)):
        data = _flip_byte(rng, data)
    return data


def _truncate(rng, data):
    return data[: _place(rng, data)]


def _behead(rng, data):
    return data[_place(rng, data) :]


def _insert(rng, data):
    place = _place(rng, data)
    return data[:place] + rng.randbytes(rng.choice((1, 2, 7, 100))) + data[place:]


def _delete(rng, data):
    place = _place(rng, data)
    return data[:place] + data[place + rng.choice((1, 2, 7, 100)) :]


def _duplicate(rng, data):
    start, end = sorted((_place(rng, data), _place(rng, data)))
    return data[:end] + data[start:]


def _swap(rng, data):
    first, second, third = sorted(_place(rng, data) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def _nuls(rng, data):
    place, count = _place(rng, data), rng.choice((1, 8, 512))
    return data[:place] + bytes(count) + data[place + count :]


def _garbage(rng, data):
    return rng.randbytes(rng.choice((1, 8, len(data))))


def _number(rng, data):
    """Little-endian numbers that counts and offsets of formats stumble over."""
    place, size = _place(rng, data), rng.choice((2, 4, 8))
    value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)) % 2 ** (8 * size)
    return data[:place] + value.to_bytes(size, 'little') + data[place + size :]


_DAMAGE: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _flip_byte, _flip_byte, _flip_bit, _flip_bit, _flip_many, _truncate, _truncate, _behead,
    _insert, _delete, _duplicate, _swap, _nuls, _garbage, _number,
)  # fmt: skip


def damage(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return damaged bytes, and the kind of damage."""
    if not data or not rng.randrange(40):
        return b'', 'empty'
    how = rng.choice(_DAMAGE)
    return how(rng, data), how.__name__.strip('_')


def damage_file(rng: random.Random, folder: pathlib.Path, name: str) -> str:
    """Damage a file of a folder, or replace it by the other valid one; says how."""
    file, other = folder / name, folder.parent / 'other' / name
    if not rng.randrange(25) and other.is_file():
        shutil.copyfile(other, file)
        return f'other valid file: {name}'
    data, how = damage(rng, file.read_bytes())
    file.write_bytes(data)
    return f'{how}: {name}'


def dump(value: Any) -> str:
    """Return JSON, in which `Pairs` may repeat keys and `Raw` may be anything."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict | Pairs):
        items = value.items() if isinstance(value, dict) else value
        return '{' + ', '.join(f'{json.dumps(str(key))}: {dump(item)}' for key, item in items) + '}'
    if isinstance(value, list | tuple):
        return '[' + ', '.join(map(dump, value)) + ']'
    return json.dumps(value)


def hostile_value(rng: random.Random, value: Any) -> Any:
    """Return a value that does not belong in the place of the given one, or hardly does."""
    if not rng.randrange(30):
        depth = rng.choice((150, 5_000, 100_000))
        return Raw(rng.choice(('[' * depth + ']' * depth, '{"a":' * depth + '1' + '}' * depth)))
    alike = [[value], {'value': value}, str(value), f' {value}', [value, value], repr(value)]
    if isinstance(value, int | float):
        alike += [-value, value + 1, value - 1, float(value), value * 2, value + 0.5, bool(value)]
    if isinstance(value, str):
        alike += [value.upper(), value + '\x00', value[1:], value * 2, value.encode().hex()]
    if isinstance(value, list):
        alike += [value[1:], value * 2, value[::-1], dict(enumerate(value)), [*value, None]]
    if isinstance(value, dict):
        alike += [list(value), list(value.values()), {**value, '': None}]
    strange = [
        None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**63, 10**400, -(10**400), 0.5, -0.0, 1.0,
        1e308, -1e308, 5e-324, float('nan'), float('inf'), float('-inf'), Raw('1e400'),
        Raw('9' * 5000), '', ' ', '\x00', '\n', '\u202etxt', '\ud800', '\u200b', '=1+1',
        '__proto__', '../../etc/passwd', 'x' * 100_000, [], {}, [[]], [None], {'a': 1},
        [1, 2], '32', '1e3', 'NaN', 'true',
    ]  # fmt: skip
    return rng.choice(alike if rng.randrange(2) else strange)


def _places(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the paths of all values within a value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(each for key, item in items for each in _places(item, (*path, key)))]


def _replaced(value: Any, path: tuple, change: Callable[[Any], Any]) -> Any:
    """Return a value in which that at a path is changed."""
    if not path:
        return change(value)
    key, *rest = path
    if isinstance(value, list):
        items = list(value)
        items[key] = _replaced(items[key], tuple(rest), change)
        return items
    return {k: _replaced(v, tuple(rest), change) if k == key else v for k, v in value.items()}


def change_json(rng: random.Random, value: Any) -> tuple[str, str]:
    """Return the text of a JSON value in which something was changed, and what."""
    places = _places(value)
    # The top is one place of many, and near ones matter as much as far ones.
    depth = rng.choice(sorted({len(place) for place in places}))
    path = rng.choice([place for place in places if len(place) == depth])
    where = '.'.join(map(str, path))[:60] or 'all'
    within = [place for place in places if place]
    match rng.randrange(10):
        case 0 if within:
            *parent, key = rng.choice(within)
            where = '.'.join(map(str, (*parent, key)))[:60]
            return dump(
                _replaced(
                    value,
                    tuple(parent),
                    lambda part: (
                        {k: v for k, v in part.items() if k != key}
                        if isinstance(part, dict)
                        else [*part[:key], *part[key + 1 :]]
                    ),
                )
            ), f'missing: {where}'
        case 1:
            name = rng.choice(('extra', '', 'format', '__class__', '\ud800', 'x' * 5000))
            added = hostile_value(rng, 1)
            return dump(
                _replaced(
                    value,
                    path,
                    lambda part: part | {name: added} if isinstance(part, dict) else [part, added],
                )
            ), f'extra: {where}'
        case 2 if any(isinstance(place[-1], str) for place in within):
            *parent, key = rng.choice([place for place in within if isinstance(place[-1], str)])
            where = '.'.join(map(str, (*parent, key)))[:60]
            first = rng.randrange(2)

            def twice(part):
                other = key, hostile_value(rng, part[key])
                return Pairs([other, *part.items()] if first else [*part.items(), other])

            return dump(_replaced(value, tuple(parent), twice)), f'duplicate key: {where}'
        case 3 if len(within) > 1:
            other = rng.choice(within)
            found = value
            for key in other:
                found = found[key]
            return dump(_replaced(value, path, lambda _: found)), f'value of another: {where}'
    changed = dump(_replaced(value, path, lambda part: hostile_value(rng, part)))
    return changed, f'value: {where}'


def change_json_file(rng: random.Random, file: pathlib.Path) -> str:
    """Change a value in a JSON file, and say which."""
    text, how = change_json(rng, json.loads(file.read_bytes()))
    file.write_text(text, encoding='utf-8')
    return f'{how} of {file.name}'


def change_json_line(rng: random.Random, file: pathlib.Path) -> str:
    """Change a value in one line of a file of JSON lines, and say which."""
    lines = file.read_text(encoding='utf-8').splitlines()
    row = rng.randrange(len(lines))
    lines[row], how = change_json(rng, json.loads(lines[row]))
    file.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return f'{how} in line {row + 1}'


def bomb(size: int) -> bytes:
    """Return a raw deflate stream of `size` zeros in a thousandth of it."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = squeeze.compress(bytes(2**20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    again = squeeze.compress(bytes(2**20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return chunk + again * (size // 2**20 - 1) + squeeze.flush()


def replace_member(data: bytes, name: str, stream: bytes, size: int) -> bytes:
    """Return a zip archive in which a member has this raw deflate stream of a claimed size."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, 'w') as changed:
        for member in archive.namelist():
            if member != name:
                changed.writestr(member, archive.read(member))
        changed.writestr(name, stream)
        info = changed.getinfo(name)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, size
        local = info.header_offset
    packed = bytearray(out.getvalue())
    # The local header was written before the lie about the method and the size.
    packed[local + 8 : local + 10] = zipfile.ZIP_DEFLATED.to_bytes(2, 'little')
    packed[local + 22 : local + 26] = size.to_bytes(4, 'little')
    return bytes(packed)


def _hostile_array(rng: random.Random, array: np.ndarray) -> bytes:
    """Return the bytes of a .npy file that is not what the given array should be."""
    out = io.BytesIO()
    match rng.randrange(9):
        case 0:
            np.save(out, np.array([Payload()], object), allow_pickle=True)
        case 1:
            np.save(out, array.astype('U' if array.dtype.kind != 'U' else 'S'))
        case 2:
            np.save(out, array[None])
        case 3:
            np.save(out, array.ravel()[:-1])
        case 4 if array.dtype.kind in 'iuf':
            np.save(out, np.full_like(array, rng.choice((0, 1, 100))) - 1)
        case 5 if array.dtype.kind == 'f':
            np.save(out, np.full_like(array, rng.choice((np.nan, np.inf, -np.inf))))
        case 6:
            shape = rng.choice(('(1000000000000,)', '(-1,)', '(2, 1000000000)', '(True,)', '()'))
            head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
            out.write(b'\x93NUMPY\x01\x00' + len(head).to_bytes(2, 'little') + head + bytes(80))
        case 7:
            np.save(out, array)
            return damage(rng, out.getvalue())[0]
        case _:
            np.save(out, np.zeros(0, array.dtype) if rng.randrange(2) else np.array(3.5))
    return out.getvalue()


def change_npz(rng: random.Random, file: pathlib.Path) -> str:
    """Change something in an archive of arrays whose checksums are right again; says what."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    array = np.load(io.BytesIO(members[name]))
    if not rng.randrange(150):
        file.write_bytes(replace_member(file.read_bytes(), name, bomb(3 * 2**30), 3 * 2**30))
        return f'bomb: {name}'
    match rng.randrange(8):
        case 0:
            del members[name]
            how = 'without'
        case 1:
            members[rng.choice((f'../{name}', 'extra.npy', name[1:], f'{name}.npy'))] = members[
                name
            ]
            how = 'one more than'
        case 2:
            members[name] = members[rng.choice(list(members))]
            how = 'another array as'
        case 3 | 4 if array.dtype.kind == 'U' and array.shape == ():
            try:
                text, what = change_json(rng, json.loads(str(array)))
            except ValueError:
                text, what = str(array)[:-1], 'text'
            out = io.BytesIO()
            np.save(out, np.array(text))
            members[name] = out.getvalue()
            how = f'JSON {what.partition(":")[0]} in'
        case _:
            members[name] = _hostile_array(rng, array)
            how = 'hostile array'
    with zipfile.ZipFile(file, 'w') as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return f'{how}: {name}'


KINDS = (
    'pipe', 'folder', 'link to /dev/zero', 'link to itself', 'link to nothing', 'no permission',
    'missing', 'socket', 'link to a pipe', 'link to /dev/null', 'link to a folder',
)  # fmt: skip


def replace_kind(rng: random.Random, folder: pathlib.Path) -> str:
    """Put something that is no readable file in the place of a file; says what and where."""
    file = rng.choice(sorted(path for path in folder.rglob('*') if path.is_file()))
    kind = rng.choice(KINDS)
    if kind != 'no permission':
        file.unlink()
    match kind:
        case 'pipe':
            os.mkfifo(file)
        case 'folder':
            file.mkdir()
        case 'link to /dev/zero':
            file.symlink_to('/dev/zero')
        case 'link to itself':
            file.symlink_to(file.name)
        case 'link to nothing':
            file.symlink_to('nothing')
        case 'no permission':
            file.chmod(0)
        case 'socket':
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(file))
        case 'link to a pipe':
            os.mkfifo(folder.parent / 'pipe')
            file.symlink_to((folder.parent / 'pipe').resolve())
        case 'link to /dev/null':
            file.symlink_to('/dev/null')
        case 'link to a folder':
            file.symlink_to(folder.resolve())
    return f'{kind}: {file.relative_to(folder)}'
