"""The declarations of analyses, read from their files without loading them."""

import ast
import dataclasses
import functools
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

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
def read(folder: pathlib.Path = FOLDER) -> list[Declared]:
    """Return what is declared in the files of a folder, in the order of its `__init__.py`."""
    files = {file.stem: file for file in sorted(folder.glob('*.py'))}
    order = _MODULE.findall(files.pop('__init__').read_text('utf-8'))
    names = dict.fromkeys([*(name for name in order if name in files), *files])
    return [declared for name in names for declared in _declared(files[name])]


def _declared(file: pathlib.Path) -> Iterator[Declared]:
    """Yield what a file declares; parsing all of it would take longer than the help may."""
    fields = {field.name for field in dataclasses.fields(Declared)}
    for call, function in _DECLARATION.findall(file.read_text('utf-8')):
        (statement,) = ast.parse(call).body
        given = {word.arg: word.value for word in statement.value.keywords}  # pyright: ignore
        found = {name: ast.literal_eval(given[name]) for name in given.keys() & fields}
        yield Declared(**{'section': function} | found)
