"""All settings, of settings.toml and of analyses: default, what each may be, what it is for.

A config is checked before anything is read or computed.
"""

import dataclasses
import operator
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.checks import either, meant, shortened
from bert_secrets_jax.configs import declared
from bert_secrets_jax.ranges import Range


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting, by its dotted name; a default of None is a text that may be left out.

    Attributes:
      allowed: The numbers, or the words, of which it is one; of a tuple, each item is one. None
        leaves that to the type of the default.
      joined: Whether it is a text that has several of these, with commas between them.
      needed: Whether such a text, or a tuple, has at least one.
      smoke: The value for a run of seconds; None is that of other runs.
      help: Its purpose; empty where the name says it.
      path: Whether it names a file, files or a folder.
    """

    name: str
    default: Any
    allowed: Range | tuple[str, ...] | None
    joined: bool
    needed: bool
    smoke: Any = None
    help: str = ''
    path: bool = False


_FILE = pathlib.Path(__file__).with_name('settings.toml')


def _setting(name: str, fields: Mapping[str, Any]) -> Setting:
    fields = {key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()}
    about = {key: fields[key] for key in ('smoke', 'help', 'path') if key in fields}
    default = fields.get('default')
    joined, ends = 'listed' in fields or 'numbers' in fields, fields.get('range')
    allowed, ends = fields.get('words', fields.get('listed')), fields.get('numbers', ends)
    if ends:
        allowed = Range(*ends, whole=isinstance(ends[0], int), without=fields.get('without'))
    needed = fields.get('needed', bool({'listed', 'words'} & fields.keys()) and bool(default))
    return Setting(name, default, allowed, joined, needed, **about)


def _listed() -> dict[str, Setting]:
    every: dict[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text('utf-8'))
    for each in declared.sections().values():
        every |= {f'{each.section}.{name}': fields for name, fields in each.settings.items()}
    return {name: _setting(name, fields) for name, fields in every.items()}


SETTINGS: Mapping[str, Setting] = _listed()


_NUMBER = re.compile(r'[0-9]+(\.[0-9]*)?(e-?[0-9]{1,2})?')
_AXES = re.compile(r'data:[1-9][0-9]{0,5}(,(masks|seeds):[1-9][0-9]{0,5})?')


def check(config: ConfigDict) -> None:
    """Check every setting on its own; a ValueError names all that are out of range."""
    faults = [_fault(each, operator.attrgetter(each.name)(config)) for each in SETTINGS.values()]
    if any(faults):
        raise ValueError('; '.join(filter(None, faults)) + '.')
    parse_axes(config.mesh)
    batch, micro = config.train.batch_size, config.train.micro_batch
    if batch % micro:
        raise ValueError(f'train.micro_batch={micro} must divide train.batch_size={batch}.')
    permutations = config.importance.permutations
    if permutations % 2 or 0 < permutations < 20:
        raise ValueError(
            f'importance.permutations={permutations} must be even and at least 20 (each is drawn '
            'with its reverse), or 0 to leave Shapley values out.'
        )


def numbers_in(text: str) -> tuple[float | int | str, ...]:
    """Return the numbers of a setting that has several; a part of it that is none as it is.

    >>> numbers_in('0.01, 3e-2')
    (0.01, 0.03)
    """
    words = [word.strip() for word in text.split(',')]
    kinds = [int if word.isdigit() else float if _NUMBER.fullmatch(word) else str for word in words]
    return tuple(kind(word) for kind, word in zip(kinds, words, strict=True))


def parse_axes(text: str) -> dict[str, int]:
    """Return how many devices lie along each axis, by its name; '' is all along 'data'.

    >>> parse_axes('data:4,masks:2')
    {'data': 4, 'masks': 2}
    """
    plain = text.replace(' ', '')
    if plain and not _AXES.fullmatch(plain):
        raise ValueError(
            f"mesh={text!r} must be 'data:8' for one, or have a second axis as in 'data:4,masks:2' "
            "or 'data:4,seeds:2'."
        )
    axes = [part.split(':') for part in plain.split(',') if part]
    return {name: int(count) for name, count in axes}


def _fault(setting: Setting, value: Any) -> str:
    """Return what is wrong with the value of a setting; empty for nothing."""
    allowed, items = setting.allowed, _items(setting, value)
    others: list[Any] = []
    if isinstance(setting.default, bool):
        must, fits = 'True or False', lambda item: isinstance(item, bool)
    elif isinstance(allowed, Range):
        must, fits = str(allowed), allowed.__contains__
    elif allowed is not None:
        must, fits = either(allowed), allowed.__contains__
    else:
        must = 'a text that a file can hold'
        fits = lambda item: _is_text(item) or item is setting.default is None  # noqa: E731
    # Two columns that nobody needs may have one name, and two classes may not.
    repeats = not setting.joined and setting.name != 'data.labels'
    if items is not None:
        others = [item for item in items if not fits(item)]
        once = repeats or (not others and len(set(items)) == len(items))
        if not others and once and len(items) >= setting.needed:
            return ''
    if setting.joined or isinstance(setting.default, tuple):
        many = 'at least one' if setting.needed else 'any number'
        how = 'with commas between' if setting.joined else 'in a tuple'
        must = f'{many} of these{"" if repeats else ", each once"}, {how}: {must}'
    hint = meant(others[0], allowed) if others and isinstance(allowed, tuple) else ''
    return f'{setting.name}={shortened(value)} must be {must}{f" ({hint})" * bool(hint)}'


def _items(setting: Setting, value: Any) -> Sequence[Any] | None:
    """Return all that a value consists of; None if it is of another type."""
    if isinstance(setting.default, tuple):
        return value if isinstance(value, tuple | list) else None
    if not setting.joined:
        return (value,)
    if not isinstance(value, str):
        return None
    if isinstance(setting.allowed, Range):
        return numbers_in(value) if value else ()
    return [word.strip() for word in value.split(',')] if value else ()


def _is_text(value: Any) -> bool:
    """Return whether a file can hold a value: half of a surrogate pair cannot be written."""
    is_text = isinstance(value, str) and '\0' not in value
    return is_text and value == value.encode('utf-8', 'ignore').decode()
