"""Read `pytorch_model.bin` without PyTorch and without running anything that the file names.

A `.bin` checkpoint is a Python pickle, a program that may call any function there is. Here it
cannot. `pickletools.genops` only splits it into instructions, and `_run` obeys the few of them that
a plain dictionary of tensors needs. Anything else is refused by its name. All that it builds are
numbers, texts, tuples, lists, dictionaries with texts as keys, and the descriptions below. Nothing
is imported or called, nothing walks through nested values, and only texts and numbers are hashed or
printed. Every size that a file claims is compared with what is there before memory is taken for it,
and only what tensors refer to is read.

A zip archive has checksums, so one that was damaged is refused. The older format has none.
"""

import io
import math
import os
import pathlib
import pickletools
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

import ml_dtypes
import numpy as np

from bert_secrets_jax import files
from bert_secrets_jax.checks import check_different, check_rules

# The most bytes that are read at once, and so of the pickle and of the list of members: both take
# three seconds and 100 MB at most. Those of BERT-large, with 400 tensors, have 60 kB each.
_PIECE = 2**20
# Bytes of all tensors, and of all storages, for each byte of the file. Tied tensors are returned
# for each name: a BERT-large whose 24 layers share their weights needs 7.6.
_FACTOR = 8
# So much is always allowed, for tiny files: zeros that are expanded or compressed.
_ALWAYS = 2**20
# Weights have two; NumPy would refuse more than 64.
_DIMENSIONS = 8

# The instructions whose argument is a value; the last two are texts by Python 2. Larger numbers
# than those of LONG1, 255 bytes, have instructions of their own: sizes are quickly multiplied.
_ARGUMENTS = {
    *('BININT', 'BININT1', 'BININT2', 'LONG1', 'BINFLOAT'),
    *('BINUNICODE', 'SHORT_BINUNICODE', 'BINSTRING', 'SHORT_BINSTRING'),
}
_CONSTANTS = {'NONE': None, 'NEWTRUE': True, 'NEWFALSE': False, 'EMPTY_TUPLE': ()}
_DTYPES = {
    'torch.DoubleStorage': np.float64,
    'torch.FloatStorage': np.float32,
    'torch.HalfStorage': np.float16,
    'torch.BFloat16Storage': ml_dtypes.bfloat16,
    'torch.LongStorage': np.int64,
    'torch.IntStorage': np.int32,
    'torch.ShortStorage': np.int16,
    'torch.CharStorage': np.int8,
    'torch.ByteStorage': np.uint8,
    'torch.BoolStorage': np.bool_,
}
_NAMES = {
    'collections.OrderedDict',
    'torch._utils._rebuild_tensor',
    'torch._utils._rebuild_tensor_v2',
    'torch._utils._rebuild_parameter',
    *_DTYPES,
}
_ZIP_START = b'PK\x03\x04'
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


@dataclass(frozen=True, slots=True)
class _Name:
    """An object that a pickle asks for by its name: the name is all that there is of it."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: np.dtype
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: Any  # as the pickle says, until `_check_tensor`
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.storage.dtype.itemsize


class _Pieces(io.BufferedReader):
    """A file that gives few bytes at once: zipfile would make huge objects of a list of members."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            size = _PIECE
        if size > _PIECE:
            raise ValueError(f'its list of members is longer than {_PIECE} bytes')
        return super().read(size)


def load(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a PyTorch state dict, by name.

    The file is one of `torch.save(model.state_dict(), path)`, zipped (PyTorch 1.6 and later) or
    not.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file is not such a state dict, is damaged, or asks for anything but tensors,
        or for far more memory than its size. Nothing that the file names has run.
    """
    path = pathlib.Path(path)
    try:
        with _Pieces(files.open_regular(path).detach()) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            is_zip = file.peek(len(_ZIP_START)).startswith(_ZIP_START)
            tensors, read = _open_zip(file) if is_zip else _open_legacy(file, size)
            return _materialise(tensors, read, size * _FACTOR + _ALWAYS)
    except FileNotFoundError:
        raise
    # A damaged file can make zipfile, zlib and NumPy raise nearly anything.
    except Exception as error:
        reason = str(error).rstrip('.')
        if not isinstance(error, ValueError) or not reason:
            reason = f'reading it raised {type(error).__name__} {reason}'.rstrip()
        # The reason may quote the file, which may try to write to a terminal.
        reason = ''.join(letter if letter.isprintable() else '?' for letter in reason[:300])
        raise ValueError(
            f'{path} was not loaded: {reason}. Convert it to model.safetensors '
            'on a machine that trusts it.'
        ) from error


def _open_zip(file: _Pieces) -> tuple[Any, Callable[[_Storage], bytearray]]:
    """Return what the pickle in an archive holds, and a function that reads a storage."""
    archive = zipfile.ZipFile(file)
    members = {member.filename: member for member in archive.infolist()}
    _check_members(archive.infolist(), archive.start_dir)
    pickles = [name for name in members if name.endswith('/data.pkl')]
    if len(pickles) != 1:
        raise ValueError('the archive has no single data.pkl')
    root = pickles[0].removesuffix('data.pkl')

    def read(name: str, nbytes: int) -> bytearray:
        if name not in members:
            raise ValueError(f'the archive has no {name}')
        if members[name].file_size != nbytes:
            raise ValueError(f'{name} has not the {nbytes} bytes that it should have')
        with archive.open(members[name]) as member:
            return _read(member, nbytes)

    order = f'{root}byteorder'
    if order in members and read(order, len(b'little')) != b'little':
        raise ValueError('it was written on a big-endian machine')
    if members[pickles[0]].file_size > _PIECE:
        raise ValueError(f'its pickle is longer than {_PIECE} bytes')
    pickle = io.BytesIO(read(pickles[0], members[pickles[0]].file_size))
    tensors, _ = _run(pickle)
    return tensors, lambda storage: read(f'{root}data/{storage.key}', storage.nbytes)


def _check_members(members: Sequence[zipfile.ZipInfo], end: int) -> None:
    """Raise ValueError for archives that PyTorch does not write, and that may be bombs."""
    names = [member.filename for member in members]
    check_different('the archive', names, 'two members have one name')
    for member in sorted(members, key=lambda member: member.header_offset, reverse=True):
        # LZMA takes as much memory as the file says; the others, next to none.
        is_unusual = member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        # zipfile itself looks for this only since Python 3.11.8. A header is 30 bytes and a name.
        behind = member.header_offset + 30 + len(member.orig_filename) + member.compress_size
        check_rules(
            (is_unusual, 'the archive has an unusual compression'),
            (member.flag_bits & 1, 'the archive is encrypted'),
            (behind > end, 'the members of the archive overlap'),
        )
        end = member.header_offset


def _open_legacy(file: _Pieces, size: int) -> tuple[Any, Callable[[_Storage], bytearray]]:
    """Return what a file of the older format holds, and a function that reads a storage."""
    head = io.BytesIO(file.read(_PIECE))
    if _run(head)[0] != _LEGACY_MAGIC:
        raise ValueError('it is not a PyTorch checkpoint')
    _run(head)  # protocol version
    _run(head)  # the machine that wrote it
    tensors, storages = _run(head)
    keys, _ = _run(head)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError('it has no list of storages')
    starts = {}
    end = head.tell()
    for key in keys:
        if key not in storages or key in starts:
            raise ValueError(f'its list of storages has an unknown one, {key[:100]}')
        file.seek(end)
        count = int.from_bytes(file.read(8), 'little', signed=True)
        starts[key] = end + 8
        end = starts[key] + storages[key].nbytes
        if count != storages[key].count or end > size:
            raise ValueError(f'the storage {key} has another size than its tensors say')

    def read(storage: _Storage) -> bytearray:
        if storage.key not in starts:
            raise ValueError(f'the storage {storage.key} is not in it')
        file.seek(starts[storage.key])
        return _read(file, storage.nbytes)

    return tensors, read


def _read(stream: io.BufferedIOBase | IO[bytes], nbytes: int) -> bytearray:
    data = bytearray()
    while len(data) < nbytes:
        piece = stream.read(min(_PIECE, nbytes - len(data)))
        if not piece:
            raise ValueError('it is cut off')
        data += piece
    return data


def _run(pickle: io.BytesIO) -> tuple[Any, dict[str, _Storage]]:
    """Obey one pickle; returns its value and the storages that it refers to."""
    stack: list[Any] = []
    below: list[list[Any]] = []  # the stack before each MARK
    memo: dict[Any, Any] = {}
    storages: dict[str, _Storage] = {}
    for opcode, argument, _ in pickletools.genops(pickle):
        match opcode.name:
            case 'PROTO' | 'FRAME' | 'STOP':
                pass
            case 'BINPUT' | 'LONG_BINPUT':
                memo[argument] = stack[-1]
            case 'MEMOIZE':
                memo[len(memo)] = stack[-1]
            case 'BINGET' | 'LONG_BINGET':
                stack.append(memo[argument])
            case name if name in _ARGUMENTS:
                stack.append(argument)
            case name if name in _CONSTANTS:
                stack.append(_CONSTANTS[name])
            case 'EMPTY_LIST':
                stack.append([])
            case 'EMPTY_DICT':
                stack.append({})
            case 'MARK':
                below.append(stack)
                stack = []
            case 'TUPLE':
                items, stack = stack, below.pop()
                stack.append(tuple(items))
            case 'TUPLE1' | 'TUPLE2' | 'TUPLE3' as name:
                items = [stack.pop() for _ in range(int(name[-1]))]
                stack.append(tuple(reversed(items)))
            case 'APPEND' | 'SETITEM' as name:
                items = [stack.pop() for _ in range(1 if name == 'APPEND' else 2)]
                _add(stack[-1], items[::-1])
            case 'APPENDS' | 'SETITEMS':
                items, stack = stack, below.pop()
                _add(stack[-1], items)
            case 'GLOBAL':
                stack.append(_known(*str(argument).split(' ', 1)))
            case 'STACK_GLOBAL':
                name, module = stack.pop(), stack.pop()
                stack.append(_known(module, name))
            case 'BINPERSID':
                storage = _storage(stack.pop())
                if storages.setdefault(storage.key, storage) != storage:
                    raise ValueError(f'the storage {storage.key} has two sizes or types')
                stack.append(storage)
            case 'REDUCE':
                arguments, function = stack.pop(), stack.pop()
                stack.append(_call(function, arguments))
            case 'BUILD':
                stack.pop()  # an attribute of the dictionary, the versions of modules: not needed
                if not isinstance(stack[-1], dict):
                    raise ValueError('it sets the state of something that has none')
            case name:
                raise ValueError(f'it has an instruction that a plain checkpoint has not, {name}')
    if len(stack) != 1:
        raise ValueError('its pickle does not end with one value')
    return stack[0], storages


def _add(target: Any, items: Sequence[Any]) -> None:
    """Append to a list, or set items of a dictionary from keys and values in turn."""
    if isinstance(target, list):
        target.extend(items)
        return
    if not isinstance(target, dict):
        raise ValueError('it adds items to something that has none')
    for key, value in zip(items[::2], items[1::2], strict=True):
        # The hash of nested tuples could take for ever.
        if not isinstance(key, str):
            raise ValueError('it does not hold a state dict: a key is no text')
        if key in target:
            raise ValueError(f'it has two values for {key[:100]}')
        target[key] = value


def _known(module: Any, name: Any) -> _Name:
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError('it asks for something without a name')
    if f'{module}.{name}' not in _NAMES:
        raise ValueError(
            f'it asks for {module[:100]}.{name[:100]}, which a plain checkpoint does not need'
        )
    return _Name(f'{module}.{name}')


def _storage(description: Any) -> _Storage:
    match description:
        # The older format has a sixth item, which is None unless this is a part of another one.
        case ('storage', _Name(dtype), str(key), _, count, *rest) if (
            dtype in _DTYPES and len(key) <= 100 and _is_size(count) and rest in ([], [None])
        ):
            return _Storage(key, np.dtype(_DTYPES[dtype]), count)
        case (str(kind), *_):
            raise ValueError(f'it refers to an unknown kind of object, {kind[:100]}')
    raise ValueError('it refers to an unknown kind of object')


def _call(function: Any, arguments: Any) -> dict[str, Any] | _Tensor:
    """Return, as a description, what a known function would return."""
    match function, arguments:
        case _Name('collections.OrderedDict'), ():
            return {}
        case _Name('collections.OrderedDict'), (list(pairs),):  # by Python 2
            items: dict[str, Any] = {}
            for key, value in pairs:
                _add(items, (key, value))
            pairs.clear()  # so that calling this with one list again and again takes no time
            return items
        case _Name('torch._utils._rebuild_tensor'), (_Storage(), _, tuple(), tuple()):
            return _Tensor(*arguments)
        # A seventh item would say that the numbers are negated.
        case _Name('torch._utils._rebuild_tensor_v2'), (_Storage(), _, tuple(), tuple(), _, _):
            return _Tensor(*arguments[:4])
        case _Name('torch._utils._rebuild_parameter'), (_Tensor() as tensor, _, _):
            return tensor
        case _Name(name), _:
            raise ValueError(f'it calls {name} as a plain checkpoint does not')
    raise ValueError('it calls something that is no function')


def _is_size(number: Any) -> bool:
    return type(number) is int and number >= 0


def _materialise(
    tensors: Any, read: Callable[[_Storage], bytearray], most: int
) -> dict[str, np.ndarray]:
    """Copy tensors out of their storages; all of either may have `most` bytes together."""
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, _Tensor) and name.isprintable() for name, tensor in tensors.items()
    ):
        raise ValueError('it does not hold a state dict (names to tensors)')
    names: dict[_Storage, list[str]] = {}
    for name, tensor in tensors.items():
        _check_tensor(name[:100], tensor)
        names.setdefault(tensor.storage, []).append(name)
    if max(sum(each.nbytes for each in kind) for kind in (tensors.values(), names)) > most:
        raise ValueError(f'its tensors would take more than {most} bytes, far more than the file')
    arrays: dict[str, Any] = dict.fromkeys(tensors)
    for storage in names:
        data = read(storage)
        for name in names[storage]:
            arrays[name] = _array(tensors[name], data)
    return arrays


def _check_tensor(name: str, tensor: _Tensor) -> None:
    sizes = (tensor.offset, *tensor.shape, *tensor.strides)
    if (
        not all(map(_is_size, sizes))
        or len(tensor.shape) != len(tensor.strides)
        or len(tensor.shape) > _DIMENSIONS
    ):
        raise ValueError(f'{name} has an impossible shape')
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    if 0 not in tensor.shape and tensor.offset + last >= tensor.storage.count:
        raise ValueError(f'{name} reaches beyond its data; the file is cut off or damaged')


def _array(tensor: _Tensor, data: bytearray) -> np.ndarray:
    dtype = tensor.storage.dtype
    if 0 in tensor.shape:
        return np.empty(tensor.shape, dtype)
    # The stride of a dimension of one is never used, and may be any number.
    strides = [
        stride * dtype.itemsize if size > 1 else 0
        for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    ]
    # NumPy checks once more that this lies within the data.
    view = np.ndarray(tensor.shape, dtype, data, tensor.offset * dtype.itemsize, strides)
    return view.copy()
