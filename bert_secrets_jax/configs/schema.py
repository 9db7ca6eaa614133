"""All settings, of settings.toml and of analyses: default, what each may be, what it is for."""

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

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
