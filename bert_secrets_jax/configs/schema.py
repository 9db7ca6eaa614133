"""All settings, of settings.toml and of analyses: default, what each may be, what it is for."""

import dataclasses
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any

from bert_secrets_jax.configs import declared
from bert_secrets_jax.ranges import Range


@dataclasses.dataclass(frozen=True)
class Words:
    """Words of which a setting is one; of a setting that is a tuple, each item is one."""

    allowed: tuple[str, ...]

    def __init__(self, *allowed: str):
        object.__setattr__(self, 'allowed', allowed)


class Listed(Words):
    """Words of which a setting has any number, with commas between them."""


@dataclasses.dataclass(frozen=True)
class ListedNumbers:
    """Different numbers in a range, with commas between them; at least one if it is `needed`."""

    each: Range
    needed: bool = False


@dataclasses.dataclass(frozen=True)
class Setting:
    """A setting, by its dotted name; a default of None is a text that may be left out.

    Attributes:
      allowed: The values that it may have; None leaves that to the type of the default.
      smoke: The value for a run of seconds; None is that of other runs.
      help: Its purpose; empty where the name says it.
      path: Whether it names a file, files or a folder.
    """

    name: str
    default: Any
    allowed: Range | Words | ListedNumbers | None = None
    smoke: Any = None
    help: str = ''
    path: bool = False


_FILE = pathlib.Path(__file__).with_name('settings.toml')


def _setting(name: str, default: Any = None, smoke: Any = None, **others: Any):
    default, smoke = (tuple(v) if isinstance(v, list) else v for v in (default, smoke))
    about = {each: others.pop(each) for each in ('help', 'path') if each in others}
    match others:
        case {'range': [least, most]}:
            whole = isinstance(least, int)
            found = Range(least, most, whole=whole, without=others.get('without'))
        case {'numbers': [least, most]}:
            each = Range(least, most, whole=isinstance(least, int))
            found = ListedNumbers(each, needed=others.get('needed', False))
        case {'listed': words}:
            found = Listed(*words)
        case {'words': words}:
            found = Words(*words)
        case _:
            found = None
    return Setting(name, default, found, smoke, **about)


def _listed() -> dict[str, Setting]:
    every: dict[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text('utf-8'))
    for each in declared.read():
        every |= {f'{each.section}.{name}': fields for name, fields in each.settings.items()}
    return {name: _setting(name, **fields) for name, fields in every.items()}


SETTINGS: Mapping[str, Setting] = _listed()
