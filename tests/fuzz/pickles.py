"""PyTorch's checkpoints, written and read without PyTorch; among them, hostile ones."""

import collections
import dataclasses
import io
import itertools
import pathlib
import pickle
import pickletools
import random
import struct
import warnings
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz import mutate
from tests.fuzz.checkpoints import change_tensors, make_checkpoint, modern, read_tensors
from tests.fuzz.checkpoints import state_dict as tiny_state_dict
from tests.fuzz.target import MARKER, Target, integer, require

FILE = 'pytorch_model.bin'
_MAGIC = 0x1950A86A20F9469CFC6C
_STORAGES = {
    'DoubleStorage': np.float64,
    'FloatStorage': np.float32,
    'HalfStorage': np.float16,
    'BFloat16Storage': ml_dtypes.bfloat16,
    'LongStorage': np.int64,
    'IntStorage': np.int32,
    'BoolStorage': np.bool_,
}


def _opcodes(value: Any) -> bytes:
    """Return the opcodes that push a plain value; bytes are opcodes already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, tuple):
        return b'(' + b''.join(map(_opcodes, value)) + b't'
    # Protocol 2 begins with two bytes of its own and ends with STOP.
    return pickle.dumps(value, protocol=2)[2:-1]


def tensor_opcodes(
    kind: str,
    key: Any,
    shape: Any,
    *,
    offset: Any = 0,
    strides: Any = None,
    count: Any = None,
    legacy: bool = False,
) -> bytes:
    """Return the opcodes of a tensor as `torch.save` writes them, or of what is none."""
    if strides is None:
        sizes = np.cumprod([1, *shape[:0:-1]])[::-1] if shape else []
        strides = tuple(map(int, sizes))
    if count is None:
        count = int(np.prod(shape))
    storage = ('storage', f'ctorch\n{kind}\n'.encode(), key, 'cpu', count)
    arguments = (
        _opcodes(storage + ((None,) if legacy else ())) + b'Q', offset, shape, strides, False,
        b'ccollections\nOrderedDict\n)R',
    )  # fmt: skip
    return b'ctorch._utils\n_rebuild_tensor_v2\n' + _opcodes(arguments) + b'R'


def dict_opcodes(tensors: dict[Any, bytes]) -> bytes:
    """Return a pickle of an ordered dictionary of what has opcodes already."""
    items = b''.join(_opcodes(name) + value for name, value in tensors.items())
    return b'\x80\x02ccollections\nOrderedDict\n)R(' + items + b'u.'


def opcodes_of(tensors: dict[str, np.ndarray], legacy: bool) -> dict[Any, bytes]:
    """Return the opcodes of each tensor by its name."""
    kinds = {np.dtype(kind): name for name, kind in _STORAGES.items()}
    return {
        name: tensor_opcodes(kinds[tensor.dtype], str(place), tensor.shape, legacy=legacy)
        for place, (name, tensor) in enumerate(tensors.items())
    }


def zipped(data_pkl: bytes, storages: dict[str, bytes]) -> bytes:
    """Return a checkpoint in the format of PyTorch 1.6 and later."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as archive:
        archive.writestr('archive/data.pkl', data_pkl)
        archive.writestr('archive/byteorder', 'little')
        for key, data in storages.items():
            archive.writestr(f'archive/data/{key}', data)
        archive.writestr('archive/version', '3\n')
    return out.getvalue()


def legacy(data_pkl: bytes, storages: dict[str, bytes], item_size: int = 4) -> bytes:
    """Return a checkpoint in the format before that."""
    parts = [
        pickle.dumps(_MAGIC, protocol=2),
        pickle.dumps(1001, protocol=2),
        pickle.dumps({'protocol_version': 1001, 'little_endian': True}, protocol=2),
        data_pkl,
        pickle.dumps(list(storages), protocol=2),
    ]
    for data in storages.values():
        parts.append(struct.pack('<q', len(data) // item_size) + data)
    return b''.join(parts)


def storages_of(tensors: dict[str, np.ndarray]) -> dict[str, bytes]:
    """Return the data of tensors by the keys that `opcodes_of` gives them."""
    return {str(place): tensor.tobytes() for place, tensor in enumerate(tensors.values())}


def _make(folder: pathlib.Path, number: int, is_legacy: bool) -> None:
    make_checkpoint(folder, 0)
    (folder / 'model.safetensors').unlink()
    tensors = tiny_state_dict(number)
    write = legacy if is_legacy else zipped
    file = write(dict_opcodes(opcodes_of(tensors, is_legacy)), storages_of(tensors))
    (folder / FILE).write_bytes(file)


_COMMAND = f'touch {MARKER}'
_PYTHON = f"open('{MARKER}', 'w').close()"
_OBJECT, _FLOAT = b'cbuiltins\nobject\n', b'ctorch\nFloatStorage\n'
_ORDERED = b'ccollections\nOrderedDict\n'
_REBUILD = b'ctorch._utils\n_rebuild_tensor_v2\n'


def _called(function: str, *arguments: Any) -> bytes:
    return f'c{function}\n'.encode() + _opcodes(arguments) + b'R'


def _named(module: str, name: str) -> bytes:
    """Return a name as protocol 4 spells it, in which it may have dots."""
    return (
        b''.join(b'\x8c' + bytes([len(text)]) + text.encode() for text in (module, name)) + b'\x93'
    )


# Opcodes of a value. Ordinary unpicklers would run most of them.
HOSTILE: dict[str, bytes] = {
    'os.system': _called('os\nsystem', _COMMAND),
    'posix.system': _called('posix\nsystem', _COMMAND),
    'subprocess': _called('subprocess\ngetoutput', _COMMAND),
    'eval': _called('builtins\neval', _PYTHON),
    'exec': _called('builtins\nexec', _PYTHON),
    'exec of Python 2': _called('__builtin__\nexec', _PYTHON),
    'getattr': _called('builtins\ngetattr', b'cos\nenviron\n', 'clear'),
    'copyreg': _called('copyreg\n_reconstructor', _OBJECT, _OBJECT, None),
    'copyreg.add_extension': _called('copyreg\nadd_extension', 'os', 'system', 7),
    'extension': b'\x82\x07' + _opcodes((_COMMAND,)) + b'R',
    'runpy': _called('runpy\nrun_path', 'evil.py'),
    'numpy': _called('numpy._core.multiarray\n_reconstruct', b'cnumpy\nndarray\n', (0,), 'b'),
    'torch.load': _called('torch\nload', 'evil'),
    'torch.hub': _called('torch.hub\nload', 'evil'),
    'nested': _called('torch._utils\n_rebuild_parameter', _called('os\nsystem', _COMMAND), True),
    'dotted name': _named('collections', 'OrderedDict.__init__.__globals__') + b')R',
    'dotted builtins': _named('collections', '_sys.modules') + b')R',
    'dotted stand-in': _named('torch._utils', '_rebuild_tensor_v2.__globals__') + b')R',
    'dotted torch': _named('torch', 'FloatStorage.__class__') + b')R',
    'INST': b'(' + _opcodes(_COMMAND) + b'ios\nsystem\n',
    'OBJ': b'(cos\nsystem\n' + _opcodes(_COMMAND) + b'o',
    'NEWOBJ': b'cos\nsystem\n' + _opcodes((_COMMAND,)) + b'\x81',
    'NEWOBJ of a dictionary': _ORDERED + b')\x81',
    'OrderedDict of arguments': _called('collections\nOrderedDict', 5),
    'BUILD on the class': _ORDERED + _opcodes({'__init__': 1}) + b'b',
    'BUILD on a dictionary': _ORDERED + b')R' + _opcodes({'items': 1, '__class__': 2}) + b'b',
    'BUILD with slots': _ORDERED + b')R' + _opcodes((None, {'items': 1, 'values': 2})) + b'b',
    'BUILD on a function': _REBUILD + _opcodes((None, {'__code__': 1})) + b'b',
    'BUILD on a storage': b'ctorch\nFloatStorage\n' + _opcodes({'a': 1}) + b'b',
    'persistent id in words': b'Pstorage\n',
    'persistent id of a pipe': _opcodes(('storage', _FLOAT, '/dev/zero', 'cpu', 1)) + b'Q',
    'persistent id of a method': _opcodes(('storage', b'cos\nsystem\n', '0', 'cpu', 1)) + b'Q',
    'LONG4 of 2 GB': b'\x8b\xff\xff\xff\x7f',
    'LONG4 below zero': b'\x8b\xff\xff\xff\xff',
    'BINUNICODE8 of 2**62 bytes': b'\x8d' + (2**62).to_bytes(8, 'little') + b'a',
    'BYTEARRAY8 of 2 GB': b'\x96' + (2**31).to_bytes(8, 'little') + b'a',
    'FRAME of 2**62 bytes': b'\x95' + (2**62).to_bytes(8, 'little') + b'N',
    'LONG_BINPUT of 2**31': b'Nr\xff\xff\xff\x7f',
    'PUT of 10**18': b'Np1000000000000000000\n',
    'PUT below zero': b'Np-1\n',
    'GET of nothing': b'g99\n',
    'digits': b'I' + b'9' * 5000 + b'\n',
    'deep tuples': b'N' + b'\x85' * 200_000,
    'deep lists': b']' * 200_000 + b'a' * 199_999,
    # Each list has the one before it twice.
    'doubled lists': b']' + b'q\x050]h\x05ah\x05a' * 40,
    'list in itself': b']q\x05h\x05a',
    'MARK alone': b'((((',
    'STOP': b'.',
    'POP of everything': b'0' * 50,
    'None': b'N',
    'number': _opcodes(5),
    'text': _opcodes('x' * 100_000),
}  # fmt: skip
HOSTILE['persistent id doubled'] = HOSTILE['doubled lists'] + b'Q'
HOSTILE['persistent id in itself'] = HOSTILE['list in itself'] + b'Q'
HOSTILE['persistent id deep'] = HOSTILE['deep tuples'] + b'Q'


def _odd_tensor(rng: random.Random, is_legacy: bool) -> tuple[str, bytes]:
    """Return a tensor that cannot be, or that takes more memory than the file has."""
    kind = 'FloatStorage'
    how, options = rng.choice(
        (
            ('endless without data', {'shape': (10**9, 10**9), 'strides': (0, 0)}),
            ('gigabytes without data', {'shape': (2**30,), 'strides': (0,)}),
            ('right shape without data', {'shape': (8,), 'strides': (0,)}),
            ('no elements, huge', {'shape': (0, 2**62), 'strides': (1, 1)}),
            ('no elements, huger', {'shape': (0, 10**30), 'strides': (1, 1)}),
            ('beyond', {'shape': (10**6,), 'strides': (1,)}),
            ('below zero', {'shape': (-8,), 'strides': (1,)}),
            ('strides below zero', {'shape': (8,), 'strides': (-1,)}),
            ('offset below zero', {'shape': (8,), 'strides': (1,), 'offset': -1}),
            ('offset beyond', {'shape': (8,), 'strides': (1,), 'offset': 10**400}),
            ('truth value', {'shape': (True,), 'strides': (True,)}),
            ('offset of truth', {'shape': (4,), 'strides': (1,), 'offset': True}),
            ('float', {'shape': (8.0,), 'strides': (1,)}),
            ('text', {'shape': '88', 'strides': '11'}),
            ('none', {'shape': None, 'strides': None}),
            ('nested', {'shape': ((8,),), 'strides': ((1,),)}),
            ('many axes', {'shape': (1,) * 100, 'strides': (1,) * 100}),
            ('axes and strides', {'shape': (4, 2), 'strides': (1,)}),
            ('overlapping', {'shape': (8,), 'strides': (1,), 'offset': 1}),
            ('no such storage', {'shape': (8,), 'strides': (1,), 'key': 'none'}),
            ('storage of a number', {'shape': (8,), 'strides': (1,), 'key': 0}),
            ('storage above', {'shape': (8,), 'strides': (1,), 'key': '../version'}),
            ('storage of a list', {'shape': (8,), 'strides': (1,), 'key': []}),
            ('count of text', {'shape': (8,), 'strides': (1,), 'count': 'many'}),
            ('count beyond', {'shape': (8,), 'strides': (1,), 'count': 2**70}),
            ('other type', {'shape': (8,), 'strides': (1,), 'kind': 'IntStorage'}),
            ('half type', {'shape': (8,), 'strides': (1,), 'kind': 'HalfStorage'}),
            ('unknown type', {'shape': (8,), 'strides': (1,), 'kind': 'QInt8Storage'}),
        )
    )
    options = {'kind': kind, 'key': '0', 'count': 8, 'legacy': is_legacy} | options
    if options['shape'] is None:
        # The helper would make strides of its own.
        options |= {'shape': b'N', 'strides': b'N'}
    return how, tensor_opcodes(**options)


def _change(rng: random.Random, folder: pathlib.Path, is_legacy: bool) -> str:
    file = folder / FILE
    write = legacy if is_legacy else zipped
    tensors = tiny_state_dict(0)
    storages = storages_of(tensors)
    values = opcodes_of(tensors, is_legacy)
    name = rng.choice(list(values))
    match rng.randrange(13):
        case 0 | 1:
            return mutate.damage_file(rng, folder, FILE)
        case 2 | 3 | 4:
            how = rng.choice(list(HOSTILE))
            match rng.randrange(4):
                case 0:
                    pkl = dict_opcodes(values | {name: HOSTILE[how]})
                case 1:
                    pkl = dict_opcodes({'first': HOSTILE[how], **values})
                case 2:
                    pkl = b'\x80\x04' + HOSTILE[how] + b'0' + dict_opcodes(values)[2:]
                case 3:
                    pkl = b'\x80\x04' + HOSTILE[how] + b'.'
            data = write(pkl, storages)
            if is_legacy and rng.randrange(2):
                # Before anything of the format was looked at.
                data = b'\x80\x04' + HOSTILE[how] + b'.' + data
            file.write_bytes(data)
            return f'hostile {how}:'
        case 5 | 6:
            how, values[name] = _odd_tensor(rng, is_legacy)
            file.write_bytes(write(dict_opcodes(values), storages))
            return f'odd tensor {how}: {name}'
        case 7 | 8:
            pkl, how = mutate.damage(rng, dict_opcodes(values))
            file.write_bytes(write(pkl, storages))
            return f'pickle {how}:'
        case 9:
            pkl = _damage_opcodes(rng, dict_opcodes(values))
            file.write_bytes(write(pkl, storages))
            return 'opcodes:'
        case 10 if not is_legacy:
            return _change_archive(rng, file)
        case 10:
            key = rng.choice(list(storages))
            size = rng.choice((-1, -(2**62), 2**31, 2**62, 0, 1))
            packed = struct.pack('<q', len(storages[key]) // 4) + storages[key][:4]
            data = file.read_bytes()
            place = data.rindex(packed)
            file.write_bytes(data[:place] + struct.pack('<q', size) + data[place + 8 :])
            return f'count of a storage {size}: {key}'
    how, changed = change_tensors(rng, tensors, name)
    values = opcodes_of(changed, is_legacy)
    # The format before has counts of elements, of which there is one size here.
    same = all(tensor.itemsize == 4 for tensor in changed.values())
    if is_legacy and not same:
        changed = {key: np.asarray(tensor, np.float32) for key, tensor in changed.items()}
        values = opcodes_of(changed, is_legacy)
    file.write_bytes(write(dict_opcodes(values), storages_of(changed)))
    return f'{how}: {name}'


def _damage_opcodes(rng: random.Random, pkl: bytes) -> bytes:
    """Move, drop and double whole opcodes, which an unpickler follows further than noise."""
    starts = [place for _, _, place in pickletools.genops(pkl)] + [len(pkl)]
    codes = [pkl[start:end] for start, end in itertools.pairwise(starts)]
    for _ in range(rng.choice((1, 1, 1, 3, 10))):
        place = rng.randrange(len(codes))
        match rng.randrange(5):
            case 0:
                del codes[place]
            case 1:
                codes.insert(place, rng.choice(codes))
            case 2:
                codes[place] = rng.choice(codes)
            case 3:
                codes.insert(place, rng.choice(list(HOSTILE.values())))
            case 4:
                codes.insert(place, bytes([rng.randrange(256)]))
    return b''.join(codes)


def _change_archive(rng: random.Random, file: pathlib.Path) -> str:
    """Change members of the archive, whose checksums are right."""
    data = file.read_bytes()
    if not rng.randrange(8):
        member = rng.choice(('archive/data/0', 'archive/data.pkl', 'archive/data/extra'))
        # A claim of little is a lie about a stream of much.
        claim = rng.choice((3 * 2**30, 1000))
        file.write_bytes(mutate.replace_member(data, member, mutate.bomb(3 * 2**30), claim))
        return f'bomb that claims {claim}: {member}'
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    place = rng.randrange(len(members))
    name, content = members[place]
    match rng.randrange(7):
        case 0:
            del members[place]
            how = 'without'
        case 1:
            members.append(members[place])
            how = 'twice'
        case 2:
            other = rng.randbytes(len(content)), content[:-1], content * 2, b''
            members.insert(rng.choice((0, len(members))), (name, rng.choice(other)))
            how = 'two of one name'
        case 3:
            members[place] = name, rng.choice((b'', content[:-4], content * 2, content[:-1]))
            how = 'other size'
        case 4:
            renamed = rng.choice(('../' + name, '/' + name, name.upper(), 'other/data.pkl', 'x'))
            members[place] = renamed, content
            how = 'renamed'
        case 5:
            members.append(('archive/byteorder', b'big'))
            how = 'byte order'
        case 6:
            members.append((rng.choice(('other/data.pkl', 'archive/code/a.py', 'x')), content))
            how = 'extra beside'
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, 'w') as archive:
        warnings.simplefilter('ignore')  # two members have one name
        for name, content in members:
            archive.writestr(name, content)
    file.write_bytes(out.getvalue())
    return f'members {how}: {name}'


@dataclasses.dataclass(frozen=True)
class _Storage:
    kind: Any
    key: str


@dataclasses.dataclass(frozen=True)
class _View:
    storage: _Storage
    offset: int
    shape: tuple
    strides: tuple


def _view(storage, offset, shape, strides, *_):
    return _View(storage, offset, shape, strides)


class _Reader(pickle._Unpickler):
    """Python's unpickler in Python, which knows what a state dict needs."""

    def find_class(self, module, name):
        if (module, name) == ('collections', 'OrderedDict'):
            return collections.OrderedDict
        if module == 'torch._utils' and name in ('_rebuild_tensor_v2', '_rebuild_tensor'):
            return _view
        if (module, name) == ('torch._utils', '_rebuild_parameter'):
            return lambda data, *_: data
        require(module == 'torch' and name in _STORAGES, f'{module}.{name}')
        return name

    def persistent_load(self, pid):
        require(isinstance(pid, tuple) and pid[0] == 'storage' and pid[1] in _STORAGES, 'pid')
        require(isinstance(pid[2], str))
        return _Storage(np.dtype(_STORAGES[pid[1]]), pid[2])


def _plain_state_dict(folder: pathlib.Path) -> dict[str, np.ndarray]:
    data = (folder / FILE).read_bytes()
    if data[:1] == b'\x80':
        file = io.BytesIO(data)
        require(_Reader(file).load() == _MAGIC)
        require(_Reader(file).load() == 1001)
        _Reader(file).load()
        views, keys = _Reader(file).load(), _Reader(file).load()
        sizes = {view.storage.key: view.storage.kind.itemsize for view in views.values()}
        storages = {}
        for key in keys:
            (count,) = struct.unpack('<q', file.read(8))
            integer(count)
            storages[key] = file.read(count * sizes[key])
            require(len(storages[key]) == count * sizes[key], 'cut')
    else:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            require(len(set(names)) == len(names), 'two of one name')
            require(sum(info.file_size for info in archive.infolist()) < 2**24)
            (root,) = (name[: -len('data.pkl')] for name in names if name.endswith('/data.pkl'))
            order = f'{root}byteorder'
            require(order not in names or archive.read(order) == b'little')
            views = _Reader(io.BytesIO(archive.read(f'{root}data.pkl'))).load()
            prefix = f'{root}data/'
            storages = {n[len(prefix) :]: archive.read(n) for n in names if n.startswith(prefix)}
    require(isinstance(views, dict) and all(isinstance(name, str) for name in views))
    return modern({name: _elements(view, storages) for name, view in views.items()})


def _elements(view: _View, storages: dict[str, bytes]) -> np.ndarray:
    """Return the elements of a tensor, each of which is looked up by itself."""
    require(isinstance(view, _View) and len(view.shape) == len(view.strides))
    flat = np.frombuffer(storages[view.storage.key], view.storage.kind)
    places = np.array(integer(view.offset))
    for size, stride in zip(view.shape, view.strides, strict=True):
        steps = np.arange(integer(size, 0, 10**5)) * integer(stride)
        places = places[..., None] + steps
        require(places.size < 10**6)
    # Elements of a state dict do not share their places.
    require(places.size == len(np.unique(places)))
    return flat[places]


def _bin(name: str, is_legacy: bool) -> Target:
    return Target(
        name,
        make=lambda folder, number: _make(folder, number, is_legacy),
        mutate=lambda rng, folder: _change(rng, folder, is_legacy),
        read=read_tensors,
        oracle=_plain_state_dict,
        weight=15,
    )


BIN = _bin('bin', False)
LEGACY = _bin('legacy', True)
