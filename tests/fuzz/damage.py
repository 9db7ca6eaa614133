"""Strategies of damage: to bytes, to values of JSON, to archives, and to what a file is."""

import copy
import dataclasses
import functools
import io
import json
import operator
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.broken import KINDS, MARKER, Format, sample

Strategy = st.SearchStrategy

# Numbers that counts and offsets of formats stumble over.
_COUNTS = [
    value.to_bytes(size, 'little')
    for size in (2, 4, 8)
    for value in (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
    if value < 2 ** (8 * size)
]


def broken(strategy: Strategy[dict[str, bytes | str]], share: float = 1.0) -> Callable:
    """Decorate a test that takes `changed`, the files of a sample that are others.

    Args:
      strategy: Those files.
      share: How many of them are tried, compared with other formats.
    """
    tried = max(2, round(share * settings.default.max_examples / 2))
    limited = settings(max_examples=tried, suppress_health_check=list(HealthCheck))
    return lambda test: limited(given(changed=strategy)(test))


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """Bytes of which parts are overwritten, cut out, doubled, or others come between."""
    for _ in range(draw(st.sampled_from((1, 1, 1, 1, 8)))):
        size = len(data)
        # Starts and ends, where formats keep their counts, more often.
        places = st.integers(0, min(64, size)) | st.integers(max(0, size - 64), size)
        place = places | st.integers(0, size)
        start, end = draw(place), draw(place)
        pieces = [st.binary(max_size=8), st.binary(max_size=100), st.sampled_from(_COUNTS)]
        piece = draw(st.one_of(*pieces, st.sampled_from((b'', bytes(512), data[start:end]))))
        end = draw(st.sampled_from((start, start + 1, start + len(piece), end, size)))
        data = data[:start] + piece + data[max(start, end) :]
    return data


def any_file(kind: Format, *names: str) -> Strategy[dict[str, bytes | str]]:
    """A file of a sample, or one of some files, that is damaged or no readable file any more."""

    def changed(name):
        data = sample(kind.make)[name]
        return st.fixed_dictionaries({name: damaged(data) | st.sampled_from(sorted(KINDS))})

    return st.deferred(lambda: st.sampled_from(names or sorted(sample(kind.make))).flatmap(changed))


def changes(kind: Format, name: str, *how: Callable[[bytes], Strategy[bytes]]) -> Strategy:
    """A file of a sample that is damaged, or changed by one of several strategies."""

    def changed():
        found = [change(sample(kind.make)[name]) for change in how]
        return st.fixed_dictionaries({name: st.one_of(*found)})

    return st.one_of(any_file(kind, name), *[st.deferred(changed)] * (len(how) + 1))


@dataclasses.dataclass(frozen=True)
class Raw:
    """A text that `dump` writes as it stands."""

    text: str


def dump(value: Any) -> str:
    """Return JSON, in which `Raw` may be anything."""
    raw: list[str] = []

    def place(each: Raw) -> str:
        raw.append(each.text)
        return f'raw text {len(raw)}'

    text = json.dumps(value, default=place)
    for number, each in enumerate(raw, 1):
        text = text.replace(f'"raw text {number}"', each)
    return text


_ODD = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, 2**63, 10**400, -(10**400), 0.5, -0.0, 1.0,
    1e308, 5e-324, float('nan'), float('inf'), float('-inf'), Raw('1e400'), Raw('9' * 5000), '',
    ' ', '\x00', '\n', '\u202etxt', '\ud800', '\u200b', '=1+1', '__proto__', '../../etc/passwd',
    'x' * 100_000, [], {}, [[]], [None], {'a': 1}, [1, 2], '32', '1e3', 'NaN', 'true',
    Raw('[' * 150 + ']' * 150), Raw('[' * 100_000 + ']' * 100_000), Raw('{"a":' * 5_000 + '1'),
)  # fmt: skip


def odd_values(value: Any) -> Strategy:
    """A value that does not belong in the place of the given one, or hardly does."""
    alike = [[value], {'value': value}, str(value), f' {value}', [value, value], repr(value)]
    if isinstance(value, int | float):
        alike += [-value, value + 1, value - 1, float(value), value * 2, value + 0.5, bool(value)]
    if isinstance(value, str):
        alike += [value.upper(), value + '\x00', value[1:], value * 2, value.encode().hex()]
    if isinstance(value, list):
        alike += [value[1:], value * 2, value[::-1], dict(enumerate(value)), [*value, None]]
    if isinstance(value, dict):
        alike += [list(value), list(value.values()), {**value, '': None}]
    any_value = st.text(max_size=9) | st.floats() | st.integers()
    return st.one_of(st.sampled_from(alike), st.sampled_from(_ODD), any_value)


@st.composite
def changed_value(draw, value: Any) -> str:
    """JSON of a value of which some part is another, missing, there twice, or has one more."""
    places = list(_places(value))
    # The top is one place of many, and near ones matter as much as far ones.
    depth = draw(st.sampled_from(sorted({len(path) for path, _ in places})))
    path, old = draw(st.sampled_from([place for place in places if len(place[0]) == depth]))
    new = draw(odd_values(old) | st.sampled_from([other for _, other in places[:50]]))
    if not path:
        return dump(new)
    names = st.sampled_from(('extra', '', 'format', '__class__', '\ud800', 'x' * 5000))
    *above, key = path
    top = copy.deepcopy(value)
    parent = functools.reduce(operator.getitem, above, top)

    def both(one: Any, name: Any, other: Any) -> Raw:
        another = f'{json.dumps(name)}: ' * isinstance(parent, dict) + dump(other)
        return Raw(f'{dump(one)}, {another}')

    edits = [new] * 6 + [both(old, draw(names), new), both(old, key, new), both(new, key, old)]
    edit = draw(st.sampled_from([*edits, _MISSING]))
    if edit is _MISSING:
        del parent[key]
    else:
        parent[key] = edit
    return dump(top)


_MISSING = object()


def _places(value: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    """Yield the paths of all values within a value, and these."""
    yield path, value
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(item, (*path, key))


def changed_json(data: bytes) -> Strategy[bytes]:
    """A JSON file in which one value is changed."""
    return changed_value(json.loads(data)).map(encoded)


def encoded(text: str) -> bytes:
    """Return the bytes of any text, halves of surrogate pairs too."""
    return text.encode('utf-8', 'surrogatepass')


def changed_line(data: bytes) -> Strategy[bytes]:
    """A file of JSON lines with another value in one of them."""
    lines = data.decode().splitlines()

    def with_line(row):
        return changed_value(json.loads(lines[row])).map(
            lambda text: encoded('\n'.join([*lines[:row], text, *lines[row + 1 :], '']))
        )

    return st.integers(0, len(lines) - 1).flatmap(with_line)


def respelled(text: str, *pairs: tuple[str, str]) -> Strategy[bytes]:
    """A text that is encoded otherwise, or in which one text stands for another."""
    codecs = ('utf-8-sig', 'utf-16', 'utf-16-le', 'utf-32', 'latin-1', 'cp1252')
    ends = ('\n', '\r\n'), ('\n', '\r'), ('\n', '\n\n'), ('\n', '\n  \n'), ('\n', '')
    places = [place for place, _ in enumerate(text)]
    return st.one_of(
        st.sampled_from(codecs).map(lambda codec: text.encode(codec, 'replace')),
        st.sampled_from(codecs).map(lambda codec: b'\xef\xbb\xbf' + text.encode(codec, 'replace')),
        st.sampled_from([*ends, *pairs]).map(lambda pair: encoded(text.replace(*pair))),
        # Any letter, anywhere.
        st.tuples(st.sampled_from(places), st.characters() | st.sampled_from('"\0\r\n\t,')).map(
            lambda edit: encoded(text[: edit[0]] + edit[1] + text[edit[0] :])
        ),
    )


def bomb(size: int) -> bytes:
    """Return a raw deflate stream of `size` zeros in a thousandth of it."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = squeeze.compress(bytes(2**20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    again = squeeze.compress(bytes(2**20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return chunk + again * (size // 2**20 - 1) + squeeze.flush()


def with_bomb(data: bytes, name: str, claim: int = 3 * 2**30) -> bytes:
    """Return a zip archive with a member of three gigabytes, which claims to have some size."""
    out = io.BytesIO(zipped({each: at for each, at in members_of(data).items() if each != name}))
    with zipfile.ZipFile(out, 'a') as archive:
        archive.writestr(name, bomb(3 * 2**30))
        info = archive.getinfo(name)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, claim
        local = info.header_offset
    packed = bytearray(out.getvalue())
    # The local header was written before the lie about the method and the size.
    packed[local + 8 : local + 10] = zipfile.ZIP_DEFLATED.to_bytes(2, 'little')
    packed[local + 22 : local + 26] = claim.to_bytes(4, 'little')
    return bytes(packed)


def members_of(data: bytes) -> dict[str, bytes]:
    """Return the members of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(*members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive whose checksums are right; members of several maps may share names."""
    out = io.BytesIO()
    with warnings.catch_warnings(action='ignore'), zipfile.ZipFile(out, 'w') as archive:
        for name, data in (item for each in members for item in each.items()):
            archive.writestr(name, data)
    return out.getvalue()


class Payload:
    """A pickle of this makes the marker when an ordinary unpickler loads it."""

    def __reduce__(self):
        return os.system, (f'touch {MARKER}',)


def npy(array: Any) -> bytes:
    """Return the bytes of a .npy file, which may be a pickle."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def _header(shape: str) -> bytes:
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b'\x93NUMPY\x01\x00' + len(head).to_bytes(2, 'little') + head + bytes(80)


def odd_arrays(data: bytes) -> Strategy[bytes]:
    """The bytes of an array that is not what the given one should be."""
    array = np.load(io.BytesIO(data))
    other = 'U' if array.dtype.kind != 'U' else 'S'
    odd = [
        np.array([Payload()], object), array.astype(other), array[None], array.ravel()[:-1],
        np.zeros(0, array.dtype), np.array(3.5),
    ]  # fmt: skip
    if array.dtype.kind in 'iuf':
        odd += [np.full_like(array, value) for value in (-1, 0, 99)]
    if array.dtype.kind == 'f':
        odd += [np.full_like(array, value) for value in (np.nan, np.inf, -np.inf)]
    shapes = '(1000000000000,)', '(-1,)', '(2, 1000000000)', '(True,)', '()'
    headers = st.sampled_from(shapes).map(_header)
    found = [damaged(data), headers, st.sampled_from(odd).map(npy)]
    if array.dtype.kind == 'U' and array.shape == () and str(array)[:1] in '[{':
        # Half of the time, the text of JSON that some archives have.
        texts = changed_value(json.loads(str(array)))
        found += [texts.map(np.array).map(npy)] * 3
    return st.one_of(*found)


def changed_npz(data: bytes) -> Strategy[bytes]:
    """An archive of arrays with another array, or other members, whose checksums are right."""
    members = members_of(data)

    def with_member(name):
        rest = {each: content for each, content in members.items() if each != name}
        return st.one_of(
            st.sampled_from(
                [rest, rest | {name: rest[next(iter(rest))]}]
                + [members | {more: members[name]} for more in ('../x.npy', 'x.npy', name[1:])]
            ),
            *[odd_arrays(members[name]).map(lambda array: members | {name: array})] * 3,
        )

    return st.sampled_from(sorted(members)).flatmap(with_member).map(zipped)


FLOATS = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)


def changed_tensors(tensors: Mapping[str, np.ndarray]) -> Strategy[dict[str, np.ndarray]]:
    """Tensors of which one is of another type, shape or name, missing, or not finite."""
    values = st.sampled_from((np.nan, np.inf, -np.inf, 1e300)) | st.floats()
    return st.tuples(st.sampled_from(sorted(tensors)), st.integers(0, 10**4), values).flatmap(
        lambda drawn: st.sampled_from(_with_tensor(tensors, *drawn))
    )


@np.errstate(over='ignore')
def _with_tensor(tensors, name, place, value) -> list[dict[str, np.ndarray]]:
    tensor = tensors[name]
    odd = tensor.astype(np.float64)
    odd.ravel()[place % odd.size] = value
    others = [
        odd, *[odd.astype(np.float32)] * 3, (tensor * 9).astype(np.int32), tensor > 0, tensor[None],
        np.ascontiguousarray(tensor.T), tensor.ravel(), tensor[:-1], tensor[:0],
        *(tensor.astype(kind) for kind in FLOATS),
    ]  # fmt: skip
    more = {
        f'module.{name}': tensor,
        'cls.predictions.bias': np.zeros(3, np.float32),
        'bert.encoder.layer.2.bias': np.zeros(3, np.float32),
        'bert.embeddings.position_ids': np.arange(24)[None],
    }
    return [
        *(tensors | {name: other} for other in others),
        *(tensors | {key: other} for key, other in more.items()),
        {key: other for key, other in tensors.items() if key != name},
        {key: other for key, other in tensors.items() if 'layer.' not in key},
        {key.replace('layer.1.', 'layer.01.'): other for key, other in tensors.items()},
    ]
