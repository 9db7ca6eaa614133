"""How often each method of statistics errs, by simulated worlds in which the answer is known.

    python -m benchmarks.errors --worlds=1000 --only=mean,accuracy

A row is a method in a world of `benchmarks.worlds`. Questions, methods and worlds are in
`docs/reference/statistics.toml`, and each row is written there as soon as it is known. `python
docs/reference.py` makes the page of it, and the tests read it.
"""

import argparse
import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.worlds import DRAWS, Drawn, holds
from bert_secrets_jax.files import read_text, write_text
from bert_secrets_jax.stats import student

TABLE = pathlib.Path(__file__).parents[1] / 'docs' / 'reference' / 'statistics.toml'
COMMAND = 'python -m benchmarks.errors --worlds=1000'
RATES = ('error', 'border', 'beyond', 'covered', 'found')
# What errs more, or covers less, says so (`exception`). A rate of .05 in 1,000 worlds is within
# .036 and .064, a coverage of .95 within .936 and .964.
MOST_ERRORS, LEAST_COVERED = 0.075, 0.92


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method in a world: what was measured there, and why it may be beyond the limits.

    Attributes:
      size: The number of texts, or of fine-tunings where a question is about these.
      worlds: How many worlds were simulated; 0 where none was yet.
      rates: Of RATES, those that the question has.
    """

    world: str
    size: int
    worlds: int
    rates: Mapping[str, float]
    exception: str = ''

    @property
    def within(self) -> bool:
        """Whether it errs and holds as promised, or as chance can make of 5 and 95 %."""
        chance = 2 * np.sqrt(student.LEVEL * (1 - student.LEVEL) / max(self.worlds, 1))
        most = max(MOST_ERRORS, student.LEVEL + chance)
        least = min(LEAST_COVERED, 1 - student.LEVEL - chance)
        errors = [self.rates.get(name, 0.0) for name in ('error', 'border', 'beyond')]
        return max(errors) <= most and self.rates.get('covered', 1.0) >= least


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, the method that answers it, and the worlds in which the method is tried."""

    question: str
    method: str
    correction: str
    population: str
    source: str
    sample_of: str
    cells: tuple[Cell, ...]


def read(path: pathlib.Path = TABLE) -> dict[str, Question]:
    """Return the questions of a table by name."""
    found = tomllib.loads(read_text(path))
    return {name: _question(**each) for name, each in found.items() if name != 'command'}


def _question(cells: list[dict[str, Any]], **about: str) -> Question:
    return Question(**about, cells=tuple(_cell(**each) for each in cells))


def _cell(world: str, size: int, worlds: int = 0, exception: str = '', **rates: float) -> Cell:
    return Cell(world, size, worlds, rates, exception)


def as_toml(questions: Mapping[str, Question]) -> str:
    """Return a table as it is written: a line for each cell."""
    lines = [
        '# Prose and worlds are written by hand, numbers by the command:',
        '# see benchmarks/errors.py. The page of it is made by docs/reference.py.',
        f'command = {_said(COMMAND)}',
    ]
    for name, question in questions.items():
        lines.append(f'\n[{_said(name)}]')
        for field in dataclasses.fields(question)[:-1]:
            lines.append(f'{field.name} = {_said(getattr(question, field.name))}')
        lines += ['cells = [', *(f'  {_line(each)},' for each in question.cells), ']']
    return '\n'.join([*lines, ''])


def _line(cell: Cell) -> str:
    given = {'world': cell.world, 'size': cell.size, 'worlds': cell.worlds, **cell.rates}
    given |= {'exception': cell.exception} if cell.exception else {}
    return f'{{{", ".join(f"{key} = {_said(value)}" for key, value in given.items())}}}'


def _said(value: Any) -> str:
    """Return a text or a number as it is in JSON, and so in TOML."""
    return json.dumps(value, ensure_ascii=False)


def measured(name: str, cell: Cell, worlds: int) -> Cell:
    """Return a cell with the rates of so many worlds, which are the first ones of any number."""
    rng = np.random.default_rng(cell.size)
    drawn = [DRAWS[name](rng, cell.world, cell.size) for _ in range(worlds)]
    return dataclasses.replace(cell, worlds=worlds, rates=rates_of(drawn))


def rates_of(drawn: list[Drawn]) -> dict[str, float]:
    """Return the mean of each number over worlds."""
    each = {key: np.array([float(one[key]) for one in drawn]) for key in drawn[0]}
    if 'rank' in each:
        each = {'covered': holds(each['low'], each['high'], each['rank'].mean())}
    return {key: round(float(np.mean(value)), 3) for key, value in each.items()}


def kept(name: str, cell: Cell, path: pathlib.Path) -> None:
    """Write a cell into its place of the table, which may have changed since."""
    questions = read(path)
    question = questions[name]
    cells = tuple(
        dataclasses.replace(cell, exception=each.exception)
        if (each.world, each.size) == (cell.world, cell.size)
        else each
        for each in question.cells
    )
    questions[name] = dataclasses.replace(question, cells=cells)
    write_text(path, as_toml(questions))


def beyond_chance(one: Cell, other: Cell, errors: float = 3.5) -> Iterator[str]:
    """Yield the rates of two simulations of a cell that differ by more standard errors than that.

    A rate of no world, or of all, counts as if one more had been otherwise.
    """
    for name, rate in one.rates.items():
        numbers = np.array([one.worlds, other.worlds])
        both = np.dot([rate, other.rates[name]], numbers) / numbers.sum()
        likely = np.clip(both, 1 / numbers.sum(), 1 - 1 / numbers.sum())
        error = np.sqrt(likely * (1 - likely) * (1 / numbers).sum())
        if abs(rate - other.rates[name]) > errors * error + 0.001:
            yield f'{one.world}, {one.size}: {name} {rate:.3f} and {other.rates[name]:.3f}'


def main() -> None:
    """Simulate the cells, and write each into the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--worlds', type=int, default=1000)
    parser.add_argument('--only', default=','.join(DRAWS))
    parser.add_argument('--table', type=pathlib.Path, default=TABLE)
    given = parser.parse_args()
    for name in given.only.split(','):
        question = read(given.table)[name]
        print(f'{question.question} ({question.method})')
        for cell in question.cells:
            found = measured(name, cell, given.worlds)
            kept(name, found, given.table)
            said = ', '.join(f'{key} {rate:.3f}' for key, rate in found.rates.items())
            print(f'  {cell.world}, {cell.size}: {said}', flush=True)


if __name__ == '__main__':
    main()
