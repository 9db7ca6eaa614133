"""Classes of input, and how what was read of one is compared."""

import dataclasses
import json
import math
import pathlib
import random
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Hostile input tries to make this file in the folder that stands above that of the mutant.
MARKER = 'EXECUTED'


class Unclear(Exception):
    """Something was refused or mended, but what was said about it does not name it."""


class Unchecked(Exception):
    """The package has nothing that checks this input."""


def _basenames(folder: pathlib.Path) -> list[str]:
    return [folder.name, *(path.name for path in folder.rglob('*'))]


@dataclasses.dataclass(frozen=True)
class Target:
    """A class of input.

    Attributes:
      name: The name of the class.
      make: Writes a valid sample into a folder. The number makes another valid one.
      mutate: Damages the files of a folder and says what it did. The part before the first colon
        is the kind of damage. `folder.parent / 'other'` has another valid sample.
      read: Reads the folder with the package. What it returns is compared by `canonical`.
      oracle: Returns what a plain reader says that `read` should return. It raises whatever it
        likes if that should have been refused. None if nothing but the pristine value is right.
      names: Returns the names of which an error must contain one.
      weight: How many of all mutants are of this class, compared with other classes.
      told: Whether it is enough that a warning names a file that is read otherwise.
    """

    name: str
    make: Callable[[pathlib.Path, int], None]
    mutate: Callable[[random.Random, pathlib.Path], str]
    read: Callable[[pathlib.Path], Any]
    oracle: Callable[[pathlib.Path], Any] | None = None
    names: Callable[[pathlib.Path], Sequence[str]] = _basenames
    weight: int = 10
    told: bool = False


def canonical(value: Any) -> Any:
    """Return a value as texts, lists and pairs, so that equal values are equal, NaN too."""
    if isinstance(value, np.generic):
        value = value.item()
    if dataclasses.is_dataclass(value):
        return [
            (field.name, canonical(getattr(value, field.name)))
            for field in dataclasses.fields(value)
        ]
    if isinstance(value, Mapping):
        return sorted((repr(key), canonical(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if hasattr(value, '__array__'):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in 'biufc':
            return [array.shape, canonical(array.tolist())]
        return [array.dtype.str, array.shape, array.tobytes()]
    return repr(value)


def plain_json(text: str | bytes) -> Any:
    """Return the value of JSON in which no key occurs twice and every number is finite."""

    def unique(pairs):
        if len(dict(pairs)) < len(pairs):
            raise ValueError('a key occurs twice')
        return dict(pairs)

    def finite(text):
        require(math.isfinite(float(text)), text)
        return float(text)

    return json.loads(text, object_pairs_hook=unique, parse_float=finite)


def require(condition: Any, what: object = '') -> None:
    """Raise ValueError unless the condition holds; an `assert` that survives `python -O`."""
    if not condition:
        raise ValueError(f'the plain reader refuses: {what}')


def integer(value: Any, least: int = 0, most: int = 2**31 - 1) -> int:
    """Return a whole number in a range; neither a truth value nor a float is one."""
    require(type(value) is int and least <= value <= most, value)
    return value


def number(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number in a range as a float."""
    require(type(value) in (int, float) and least <= value <= most, value)
    require(math.isfinite(value), value)
    return float(value)


def filled(text: Any) -> str:
    """Return a text that is more than spaces. What nobody sees is told when it is tokenised."""
    require(isinstance(text, str) and text.strip(), text)
    text.encode()  # Half of a surrogate pair raises.
    return text


def visible(text: Any) -> str:
    """Return a text that a person can see something of."""
    require(isinstance(text, str), text)
    text.encode()  # Half of a surrogate pair raises.
    require(any(unicodedata.category(letter)[0] not in 'ZC' for letter in text), repr(text))
    return text
