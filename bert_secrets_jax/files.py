"""Files: only regular ones are read, and each is written completely or not at all."""

import contextlib
import csv
import dataclasses
import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import secrets
import stat
import time
import types
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, BinaryIO, TypeVar

import numpy as np

from bert_secrets_jax.checks import shortened

try:
    import fcntl
except ImportError:  # Windows has no fcntl: nothing is locked there.
    fcntl = None

_SEAL = 'sha256'
# Deeper than any file of ours or of a checkpoint, and far from what Python's own stack holds.
_NESTING = 100
# The most bytes of the arrays of an archive, and for each byte of it: arrays of results shrink to
# no less than a hundredth, while a hostile archive of zeros shrinks to a thousandth.
_ARRAYS_AT_LEAST, _ARRAYS_PER_BYTE = 2**28, 100
# Far more than any text that is read as a whole, such as all of WikiText-103.
_LONGEST_TEXT = 2**30
_DECOMPRESSED = {'.gz': gzip.open, '.xz': lzma.open}
# Python reads these only from a later release on, or only as folders of files.
_PACKED = ('.zst', '.bz2', '.zip', '.tar', '.tgz')
Kind = TypeVar('Kind')
_OF_JSON = {dict: 'JSON object', list: 'list', str: 'text'}
_KINDS = {
    stat.S_IFDIR: 'a folder',
    stat.S_IFIFO: 'a pipe',
    stat.S_IFSOCK: 'a socket',
    **dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), 'a device'),
}


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file for reading; a folder, pipe or device, perhaps without end, is a ValueError."""
    # Not blocking: otherwise, opening a pipe waits for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, 'O_NONBLOCK', 0))
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(mode), 'no file')
        raise ValueError(f'{path} is {kind}, and a file is needed.')
    return open(descriptor, 'rb')


@contextlib.contextmanager
def open_decompressed(path: str | os.PathLike[str]) -> Iterator[tuple[IO[bytes], BinaryIO]]:
    """Open a file that may be compressed (.gz, .xz); ValueError if it is damaged.

    Yields the decompressed file, and the file itself, whose position says how much of it is read.
    """
    suffix = pathlib.Path(path).suffix.lower()
    if suffix in _PACKED:
        raise ValueError(f'{path}: {suffix} is not read. Unpack it, or compress it as .gz or .xz.')
    opened = _DECOMPRESSED.get(suffix, contextlib.nullcontext)
    try:
        with open_regular(path) as raw, opened(raw) as file:
            yield file, raw
    except (lzma.LZMAError, gzip.BadGzipFile, zlib.error, EOFError) as fault:
        raise ValueError(f'{path} is damaged, or no {suffix} file: {fault}') from None


def without_compression(path: pathlib.Path) -> pathlib.Path:
    """Return the name that a compressed file would have without its compression."""
    return path.with_suffix('') if path.suffix.lower() in _DECOMPRESSED else path


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read a file of at most a GiB; see `open_regular` for what else is refused."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > _LONGEST_TEXT:
            raise ValueError(
                f'{path} has {size:,} bytes, and at most {_LONGEST_TEXT:,} are read at once: is it '
                'the right file?'
            )
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a text in UTF-8; a ValueError names the file and, where it is not UTF-8, the line."""
    data = read_bytes(path)
    try:
        return data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise ValueError(f'{path}: not UTF-8 at line {line}. Save it as UTF-8.') from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    ValueError if it is not JSON (`json.JSONDecodeError` says where), a key occurs twice in one
    object, a number has thousands of digits, or values are nested more than 100 deep.
    """
    try:
        value = json.loads(text, object_pairs_hook=_object)
        is_deep = _depth(value) > _NESTING
    except RecursionError:
        is_deep = True
    if is_deep:
        raise ValueError(f'values are nested more than {_NESTING} deep')
    return value


def _depth(value: Any) -> int:
    """Return how deep lists and dictionaries are nested in a value; 0 for all else."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; which of two values of one key is meant, nobody can tell."""
    values = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f'the key {key!r} occurs twice')
        values[key] = value
    return values


def of_kind(value: Any, kind: type[Kind], what: str = '') -> Kind:
    """Return a value of JSON that is of a kind, which is dict, list or str; else a ValueError."""
    if not isinstance(value, kind):
        raise ValueError(f'{what}{shortened(value)} is not a {_OF_JSON[kind]}')
    return value


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file; a ValueError of `parse_json` or `read_text` names the file."""
    text = read_text(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f'{path} is no JSON that can be read: {error}.') from error


def write_json(path: pathlib.Path, values: Any) -> None:
    """Write readable JSON as `write_atomically` does."""
    write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + '\n').encode())


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its own SHA-256, under the key 'sha256'."""
    # As it will be read: keys become texts, tuples become lists.
    values = json.loads(json.dumps(values))
    return {**values, _SEAL: _digest(values)}


def unsealed(found: Any) -> dict[str, Any]:
    """Return what `sealed` was given; ValueError if it is something else, or was changed since."""
    if isinstance(found, dict):
        values = {key: value for key, value in found.items() if key != _SEAL}
        if found.get(_SEAL) == _digest(values):
            return values
    raise ValueError('it is damaged or of another version')


def write_record(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    """Write a JSON object with its own SHA-256, so that `read_record` notices any damage."""
    write_json(path, sealed(values))


def read_record(path: pathlib.Path) -> dict[str, Any]:
    """Read what `write_record` wrote; ValueError if the file is damaged, or of another version."""
    try:
        return unsealed(parse_json(read_text(path)))
    except ValueError as error:
        raise ValueError(f'{path} is damaged or of another version.') from error


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def checksums(folder: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, at any depth, by its path within the folder."""
    files = sorted(path for path in folder.rglob('*') if path.is_file())
    return {file.relative_to(folder).as_posix(): sha256(file) for file in files}


def differing(folder: pathlib.Path, noted: Mapping[str, str]) -> list[pathlib.Path]:
    """Return the files of a folder that are missing or differ from what `checksums` returned."""
    return [
        folder / name
        for name, expected in noted.items()
        if not (folder / name).is_file() or sha256(folder / name) != expected
    ]


def write_atomically(path: pathlib.Path, data: bytes) -> None:
    """Write a file so that a run killed in the middle leaves the former one, or none.

    An OSError, of a full disk for one, names the path, and nothing of the file is left.
    """
    # A name of its own, so that two that write the same file do not share the half of it.
    partial = path.with_name(f'.{path.name[:100]}.{secrets.token_hex(8)}.partial')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open('xb') as file:
                file.write(data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        full = error.errno == errno.ENOSPC
        what = 'The disk is full: nothing was written' if full else error.strerror
        raise OSError(error.errno, what, str(path)) from error


@contextlib.contextmanager
def locked(
    path: pathlib.Path, *, waiting: Callable[[float], None], pause: float
) -> Iterator[IO[str] | None]:
    """Hold a lock that one process at a time can have; wait until it is free.

    The lock goes with the process, even a killed one. `waiting` is called after each try that
    failed, with the seconds since the first; what it raises ends the waiting. Yields the open file,
    for a note on who has the lock; None on Windows, where nothing is locked.
    """
    if fcntl is None:
        yield None
        return
    # Not emptied when it is opened: its owner's note may be in it.
    with path.open('a+') as lock:
        start = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waiting(time.monotonic() - start)
                time.sleep(pause)
        yield lock


def write_text(path: pathlib.Path, text: str) -> None:
    """Write a text as `write_atomically` does; half of a surrogate pair becomes '\\\\udc80'."""
    write_atomically(path, text.encode(errors='backslashreplace'))


def remove_partial(folder: pathlib.Path) -> None:
    """Remove what killed runs left half-written, unless another may still be writing it."""
    for partial in folder.rglob('.*.partial'):
        if time.time() - partial.stat().st_mtime > 3600:
            partial.unlink(missing_ok=True)


def write_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays (.npz) as `write_atomically` does."""
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, data.getvalue())


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote; ValueError if the file is damaged, or no such archive."""
    # Opened here: of a damaged archive NumPy leaves the file open.
    data = open_regular(path)
    try:
        with data:
            with zipfile.ZipFile(data) as members:
                size = sum(member.file_size for member in members.infolist())
            if size > _ARRAYS_AT_LEAST + _ARRAYS_PER_BYTE * path.stat().st_size:
                raise ValueError('it would take far more memory than a file of its size')
            data.seek(0)
            with np.load(data) as archive:
                arrays = dict(archive)
            # A member that is no array comes back as bytes.
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError('it has other members than arrays')
            return arrays
    # Whatever the readers of zip, zlib and array headers happen to raise; an array that was loaded
    # by itself (.npy) is no archive.
    except Exception as error:
        raise ValueError(f'{path} is damaged: its content must be computed again.') from error


def checksum(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays by name, and of what is said of them in JSON values."""
    content = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        content.update(f'{name} {array.dtype} {array.shape}'.encode())
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def fingerprint(*values: Any) -> str:
    """Return a short name for arrays, numbers and texts, also in mappings, sequences and so on."""
    content = hashlib.sha256()

    def add(value):
        if dataclasses.is_dataclass(value):
            value = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        if isinstance(value, Mapping):
            value = sorted(value.items())
        if value is None or isinstance(value, bool | int | float | str):
            content.update(f'{type(value).__name__} {value!r};'.encode())
        elif isinstance(value, list | tuple):
            content.update(f'{len(value)}:'.encode())
            for each in value:
                add(each)
        elif hasattr(value, 'dtype') and (array := np.asarray(value)).dtype != object:
            content.update(f'{array.dtype} {array.shape}'.encode())
            content.update(np.ascontiguousarray(array).view(np.uint8).data)
        else:
            raise TypeError(f'{type(value).__name__} is no array, number or text.')

    add(values)
    return content.hexdigest()[:16]


def write_csv(path: pathlib.Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write a table like `write_atomically`, as `csv_text` spells it."""
    write_text(path, csv_text(columns, rows))


def csv_text(columns: Sequence[str], rows: Iterable[Sequence]) -> str:
    """Return a table as CSV; floats keep every digit that float32 has."""
    lines: list[str] = []
    # The writer quotes only those ends of lines that it writes itself, and readers know both.
    into: Any = types.SimpleNamespace(write=lines.append)
    writer = csv.writer(into, lineterminator='\r\n')
    writer.writerow(map(as_cell, columns))
    for row in rows:
        writer.writerow(
            f'{value:.9g}' if isinstance(value, float | np.floating) else as_cell(value)
            for value in row
        )
    return ''.join(line.removesuffix('\r\n') + '\n' for line in lines)


@contextlib.contextmanager
def long_fields(longest: int = 2**31 - 1) -> Iterator[None]:
    """Let `csv` read fields of many characters; its limit is one for the whole process."""
    shared = csv.field_size_limit(longest)
    try:
        yield
    finally:
        csv.field_size_limit(shared)


def as_cell(value: Any) -> Any:
    """Return a value as a CSV file has it.

    An apostrophe, which spreadsheets read as "this is text", comes before a text that would be a
    formula: it begins with =, +, -, @, a tab or a line end.
    """
    return f"'{value}" if _is_formula(value) else value


def from_cell(value: Any) -> Any:
    """Return the value that `as_cell` was given."""
    return value[1:] if str(value)[:1] == "'" and _is_formula(value[1:]) else value


def _is_formula(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(('=', '+', '-', '@', '\t', '\r', '\n'))
