"""The programs, as programs.toml lists them, without loading the modules that they are made of."""

import pathlib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bert_secrets_jax.brief import meant

_TEXT = pathlib.Path(__file__).with_name('programs.toml').read_text('utf-8')
_LISTED: dict[str, dict[str, Any]] = tomllib.loads(_TEXT)
_EVERY = {name: each for programs in _LISTED.values() for name, each in programs.items()}
# The purpose of each program, by the group that it belongs to and its name.
GROUPS: Mapping[str, Mapping[str, str]] = {
    group: {name: each['answers'] for name, each in programs.items()}
    for group, programs in _LISTED.items()
}


# The group of each program.
GROUP_OF = {name: group for group, programs in GROUPS.items() for name in programs}
PROGRAMS: Mapping[str, str] = {name: each['answers'] for name, each in _EVERY.items()}
PRICES = {name: each['price'] for name, each in _EVERY.items() if 'price' in each}
OWN_SETTINGS = {n: tuple(each.get('settings', [f'{n}.'])) for n, each in _EVERY.items()}
# The programs that are no section of a report; analyses may declare more sections.
COMMANDS = GROUPS['Everything else']
SECTIONS = tuple(name for name in PROGRAMS if name not in COMMANDS)


def refuse_unknown(names: Sequence[str], known: Collection[str]) -> None:
    """Refuse names that are no sections, and an empty list of them."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f'There is no section {unknown[0]!r}.' if unknown else 'No section is named.'
        near = meant(unknown[0], known) if unknown else ''
        listed = f'Sections are {", ".join(known)}, or all.'
        raise ValueError(f'{wrong} {near or listed}')
