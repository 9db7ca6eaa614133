"""Read `pytorch_model.bin` without PyTorch and without running anything that the file names.

A `.bin` checkpoint is a Python pickle, and unpickling may call any function. Here only the
handful of names that a plain dictionary of tensors needs are known, and all of them are
inert stand-ins of ours; whatever else a pickle asks for is refused by name.
"""

import collections
import io
import math
import pathlib
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

_STORAGE_DTYPES = {
    'DoubleStorage': np.float64,
    'FloatStorage': np.float32,
    'HalfStorage': np.float16,
    'BFloat16Storage': ml_dtypes.bfloat16,
    'LongStorage': np.int64,
    'IntStorage': np.int32,
    'ShortStorage': np.int16,
    'CharStorage': np.int8,
    'ByteStorage': np.uint8,
    'BoolStorage': np.bool_,
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Inert:
    """A callable that a pickle can call but not change."""

    __slots__ = ('_function',)

    def __init__(self, function: Callable[..., Any]):
        object.__setattr__(self, '_function', function)

    def __setattr__(self, name, value):
        raise pickle.UnpicklingError(f'the pickle tries to set {name!r} on a function')

    def __call__(self, *args):
        return self._function(*args)


def _rebuild_tensor(storage, offset, shape, strides, *_) -> _Tensor:
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(data, *_) -> _Tensor:
    return data


_KNOWN: dict[tuple[str, str], Any] = {
    ('collections', 'OrderedDict'): collections.OrderedDict,
    ('torch._utils', '_rebuild_tensor'): _Inert(_rebuild_tensor),
    ('torch._utils', '_rebuild_tensor_v2'): _Inert(_rebuild_tensor),
    ('torch._utils', '_rebuild_parameter'): _Inert(_rebuild_parameter),
    # Names and not dtypes: a pickle could change the state of a dtype, which all of NumPy shares.
    **{('torch', name): name for name in _STORAGE_DTYPES},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f'it asks for {module}.{name}, which a plain checkpoint does not need'
            )
        return _KNOWN[module, name]

    def persistent_load(self, pid):
        match pid:
            case ('storage', str(kind), str(key), _, _, *_) if kind in _STORAGE_DTYPES:
                return _Storage(key, np.dtype(_STORAGE_DTYPES[kind]))
        raise pickle.UnpicklingError(f'it refers to an unknown kind of object, {pid!r}')


def load(path: str | pathlib.Path) -> dict[str, np.ndarray]:
    """Return the tensors of a PyTorch state dict, by name.

    Args:
      path: A file written by `torch.save(model.state_dict(), path)`, in the zip format (PyTorch
        1.6 and later) or in the one before it.

    Raises:
      ValueError: The file is not such a state dict, is damaged, or asks for anything but tensors.
        Nothing that the file names has run by then.
    """
    path = pathlib.Path(path)
    try:
        with path.open('rb') as file:
            tensors, storages = _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)
        if not isinstance(tensors, dict) or not all(
            isinstance(value, _Tensor) and isinstance(name, str)
            for name, value in dict.items(tensors)
        ):
            raise ValueError('it does not hold a state dict (names to tensors)')
        return {name: _materialise(name, tensor, storages) for name, tensor in dict.items(tensors)}
    # A damaged or hostile pickle can raise nearly anything from the unpickler.
    except (
        pickle.UnpicklingError, ValueError, KeyError, EOFError, TypeError, AttributeError,
        IndexError, zipfile.BadZipFile, struct.error,
    ) as error:  # fmt: skip
        raise ValueError(
            f'{path} was not loaded: {error}. Convert it to model.safetensors '
            'on a machine that trusts it.'
        ) from error


def _read_zip(file: BinaryIO) -> tuple[Any, dict[str, bytes]]:
    archive = zipfile.ZipFile(file)
    pickles = [name for name in archive.namelist() if name.endswith('/data.pkl')]
    if len(pickles) != 1:
        raise ValueError('the archive has no single data.pkl')
    root = pickles[0].removesuffix('data.pkl')
    byte_order = f'{root}byteorder'
    if byte_order in archive.namelist() and archive.read(byte_order) != b'little':
        raise ValueError('it was written on a big-endian machine')
    tensors = _Unpickler(io.BytesIO(archive.read(pickles[0]))).load()
    data = f'{root}data/'
    storages = {
        name.removeprefix(data): archive.read(name)
        for name in archive.namelist()
        if name.startswith(data)
    }
    return tensors, storages


def _read_legacy(file: BinaryIO) -> tuple[Any, dict[str, bytes]]:
    file.seek(0)
    if _Unpickler(file).load() != _LEGACY_MAGIC:
        raise ValueError('it is not a PyTorch checkpoint')
    _Unpickler(file).load()  # protocol version
    _Unpickler(file).load()  # what machine wrote it
    tensors = _Unpickler(file).load()
    keys = _Unpickler(file).load()
    item_sizes = {
        tensor.storage.key: tensor.storage.dtype.itemsize
        for tensor in dict.values(tensors)
        if isinstance(tensor, _Tensor)
    }
    storages = {}
    for key in keys:
        (count,) = struct.unpack('<q', file.read(8))
        storages[key] = file.read(count * item_sizes[key])
    return tensors, storages


def _materialise(name: str, tensor: _Tensor, storages: dict[str, bytes]) -> np.ndarray:
    flat = np.frombuffer(storages[tensor.storage.key], tensor.storage.dtype)
    numbers = (tensor.offset, *tensor.shape, *tensor.strides)
    if not all(isinstance(number, int) and number >= 0 for number in numbers) or len(
        tensor.shape
    ) != len(tensor.strides):
        raise ValueError(f'{name} has an impossible shape')
    if math.prod(tensor.shape) == 0:
        return np.empty(tensor.shape, flat.dtype)
    # Checked before as_strided, which would read beyond the buffer without a word.
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    if tensor.offset + last >= flat.size:
        raise ValueError(f'{name} reaches beyond its data; the file is cut off or damaged')
    strides = [stride * flat.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides).copy()
