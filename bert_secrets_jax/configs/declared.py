"""The declarations of analyses, read from their files without loading them, and all programs."""

import ast
import dataclasses
import functools
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from bert_secrets_jax.checks import meant

# The groups, and the chapters of the page, in their order.
GROUPS = ('What heads do', 'Syntax and meaning', 'What training changed', 'What matters')
# The programs that are no section.
COMMANDS: Mapping[str, str] = {
    'report': 'all sections, on one HTML page',
    'compare': 'finished runs side by side: models or tasks (compare RUN RUN... --out=FOLDER)',
    'serve': 'type sentences on a local page: see the maps of all heads, or compare two',
    'settings': 'list all settings with their defaults',
}
# A module that `__init__.py` imports from, and a declaration with the function behind it.
_MODULE = re.compile(r'^from [\w.]+\.(\w+) import', re.MULTILINE)
_DECLARATION = re.compile(r'^@(analysis\(.*?^\))\ndef (\w+)', re.MULTILINE | re.DOTALL)
FOLDER = pathlib.Path(__file__).parents[1] / 'analyses'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
    """The literals of a declaration; `analyses.declaration.Analysis` says what they are."""

    section: str = ''
    question: str
    group: str = 'What heads do'
    report: Literal['always', 'all', 'name'] = 'all'
    time: str = ''
    reads: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def price(self) -> str:
        """The mark in lists: '*' by name alone, else its time or '+'; '' if a report has it."""
        return {'always': '', 'name': '*'}.get(self.report, self.time or '+')


@functools.cache
def sections(folder: pathlib.Path = FOLDER) -> Mapping[str, Declared]:
    """Return the sections that the files of a folder declare, in the order of its `__init__.py`."""
    files = {file.stem: file for file in sorted(folder.glob('*.py'))}
    order = _MODULE.findall(files.pop('__init__').read_text('utf-8'))
    names = dict.fromkeys([*(name for name in order if name in files), *files])
    fields, found = {field.name for field in dataclasses.fields(Declared)}, {}
    for name in names:
        # Parsing all of a file would take longer than the help may.
        for call, function in _DECLARATION.findall(files[name].read_text('utf-8')):
            (statement,) = ast.parse(call).body
            given = {word.arg: word.value for word in statement.value.keywords}  # pyright: ignore
            told = {field: ast.literal_eval(given[field]) for field in given.keys() & fields}
            section = told.setdefault('section', function)
            found[section] = Declared(**told)
    return found


def groups() -> dict[str, dict[str, str]]:
    """Return the question of each section, by its group and its name."""
    found: dict[str, dict[str, str]] = {group: {} for group in GROUPS}
    for name, each in sections().items():
        found.setdefault(each.group, {})[name] = each.question
    return found


def programs() -> dict[str, str]:
    """Return the purpose of each program."""
    return {name: each.question for name, each in sections().items()} | COMMANDS


def refuse_unknown(names: Sequence[str], known: Collection[str]) -> None:
    """Refuse names that are no sections, and an empty list of them."""
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = f'There is no section {unknown[0]!r}.' if unknown else 'No section is named.'
        near = meant(unknown[0], known) if unknown else ''
        listed = f'Sections are {", ".join(known)}, or all.'
        raise ValueError(f'{wrong} {near or listed}')
