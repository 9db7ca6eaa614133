"""Dataclasses of arrays, numbers and texts, written to one file and read without running code.

A file is a NumPy archive (.npz, without pickles). It has the arrays, and one text of JSON that says
where they belong. The classes to build come from the type hints of the class that is asked for,
never from the file.
"""

import collections.abc
import dataclasses
import functools
import json
import os
import pathlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging

from bert_secrets_jax import processes
from bert_secrets_jax.files import checksum, fingerprint, parse_json, read_arrays, write_arrays

T = TypeVar('T')
_TREE, _SEAL = 'tree', 'sha256'
_ARRAY = 'array'
_SEQUENCES = (list, tuple, collections.abc.Sequence)
_MAPPINGS = (dict, collections.abc.Mapping)


def write(path: pathlib.Path, value: Any, *, key: str = '') -> None:
    """Write a dataclass to a file (.npz), completely or not at all.

    It may have arrays, numbers, texts, None, and sequences, mappings and dataclasses of these;
    anything else is a TypeError that says where it is. A key tells it from others of its class, so
    that one file in place of another is noticed.
    """
    about, arrays = _described(value, key)
    # As it will be read: floats and texts have one spelling in JSON.
    tree = json.dumps(about | {_SEAL: checksum(about, arrays)})
    write_arrays(path, arrays | {_TREE: np.array(tree)})


@functools.cache
def version_of(kind: type) -> str:
    """Return a digest of the names of a class's fields, and of those inside: what it can read.

    Where fields keep their names and change their meaning, the class raises its number `FORMAT`.
    """
    return fingerprint(_fields(kind))


def _fields(hint: Any) -> list[Any]:
    if not (isinstance(hint, type) and dataclasses.is_dataclass(hint)):
        return [_fields(each) for each in typing.get_args(hint)]
    hints, version = typing.get_type_hints(hint), getattr(hint, 'FORMAT', 1)
    names = [field.name for field in dataclasses.fields(hint)]
    return [hint.__name__, version, names, *(_fields(hints[name]) for name in names)]


def content(value: Any) -> str:
    """Return a digest of a dataclass, the same for one that was written and read again."""
    return checksum(*_described(value, ''))


def _described(value: Any, key: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return JSON values that describe a dataclass, and the arrays in it by name."""
    arrays: dict[str, np.ndarray] = {}
    about = {'class': type(value).__name__, 'format': version_of(type(value)), 'key': key}
    about['value'] = _encode(value, arrays, type(value).__name__)
    return about, arrays


def read(path: pathlib.Path, kind: type[T], *, key: str = '') -> T:
    """Read what `write` wrote; ValueError if it is damaged, of another class, key or version."""
    arrays = read_arrays(path)
    try:
        about = parse_json(str(arrays.pop(_TREE)))
        noted = about.pop(_SEAL, None)
        found = about['class'], about['format']
        of_another = about.get('key', '') not in ('', key)
        if found == (kind.__name__, version_of(kind)) and not of_another:
            if noted != checksum(about, arrays):
                raise ValueError('it was changed after it was written')
            return _decode(about['value'], kind, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f'{path} is damaged: its content must be computed again.') from error
    if of_another:
        raise ValueError(f'{path} has another result, that of {about["key"]}.')
    if found[0] == kind.__name__:
        raise ValueError(f'{path} is of another version: its content must be computed again.')
    raise ValueError(f'{path} holds {found[0]}, not {kind.__name__}.')


def kept(
    folder: str | os.PathLike[str] | None,
    key: Sequence[Any],
    kind: type[T],
    compute: Callable[[], T],
) -> T:
    """Return a dataclass that is computed once for a key, and then read from a folder, if any."""
    if folder is None:
        return compute()
    name = fingerprint(*key)
    file = pathlib.Path(folder) / f'{name}.npz'
    if processes.exists(file):
        try:
            return read(file, kind, key=name)
        except ValueError as error:
            logging.warning('%s', error)
    found = compute()
    processes.on_first(lambda: write(file, found, key=name))
    return found


def _encode(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value):
        return {
            field.name: _encode(getattr(value, field.name), arrays, f'{where}.{field.name}')
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        # Pairs, as keys may be more than texts.
        return [
            [_encode(key, arrays, where), _encode(item, arrays, f'{where}[{key!r}]')]
            for key, item in value.items()
        ]
    if isinstance(value, list | tuple):
        return [_encode(item, arrays, f'{where}[{n}]') for n, item in enumerate(value)]
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(f'{where} is {type(value).__name__}, which cannot be stored.')
    name = f'{_ARRAY}{len(arrays)}'
    arrays[name] = array
    return {_ARRAY: name}


def _decode(node: Any, hint: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    if isinstance(node, dict) and node.keys() == {_ARRAY}:
        return arrays[node[_ARRAY]]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if not isinstance(node, dict | list):
            return node
        # At most one of several types has parts: the others are plain values.
        plain = (bool, int, float, str, type(None))
        (hint,) = [each for each in arguments if each not in plain]
        return _decode(node, hint, arrays)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        names = [field.name for field in dataclasses.fields(hint)]
        if node.keys() != set(names):
            raise ValueError(f'{hint.__name__} has other fields.')
        return hint(**{name: _decode(node[name], hints[name], arrays) for name in names})
    base = origin or hint
    if base in _MAPPINGS:
        key_hint, item_hint = arguments or (Any, Any)
        return {
            _decode(key, key_hint, arrays): _decode(item, item_hint, arrays) for key, item in node
        }
    if base in _SEQUENCES:
        if base is tuple and arguments and arguments[-1] is not Ellipsis:
            return tuple(
                _decode(item, each, arrays) for item, each in zip(node, arguments, strict=True)
            )
        items = [_decode(item, arguments[0] if arguments else Any, arrays) for item in node]
        return items if base is list else tuple(items)
    return float(typing.cast(float, node)) if hint is float and node is not None else node
