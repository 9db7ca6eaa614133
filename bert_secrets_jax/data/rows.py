"""Rows of a file of which some may be bad: all faults are told at once."""

import pathlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from absl import logging

from bert_secrets_jax.brief import shortened
from bert_secrets_jax.files import parse_json, read_text

Read = TypeVar('Read')
# So many faults are named; of more, their number is told.
_NAMED = 5


def numbered_lines(path: pathlib.Path) -> list[tuple[str, str]]:
    """Return the lines of a file that are not blank, and where each stands.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: It is not UTF-8.
    """
    lines = enumerate(read_text(path).split('\n'), 1)
    return [(f'line {number}', line) for number, line in lines if line.strip()]


def object_of(line: str) -> dict[str, Any]:
    """Return the JSON object of a line."""
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError(f'{shortened(found)} is no object')
    return found


def good_rows(
    path: pathlib.Path,
    rows: Iterable[tuple[str, Any]],
    read: Callable[[Any, str, str], Read],
    bad_rows: str,
) -> list[Read]:
    """Return what is read from the good rows of a file.

    Args:
      path: The file.
      rows: The rows, each behind words for where it stands.
      read: A function of a row, its id and its place, which raises ValueError, TypeError or
        KeyError for a bad one.
      bad_rows: 'error' refuses a file with bad rows, 'skip' leaves them out and warns.

    Raises:
      ValueError: Some rows are bad, none is left, or `bad_rows` is something else.
    """
    if bad_rows not in ('error', 'skip'):
        raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad_rows!r}.")
    found, faults = [], []
    for position, (where, row) in enumerate(rows):
        try:
            found.append(read(row, f'{path.stem}/{position}', f'{path}, {where}'))
        except (ValueError, TypeError, KeyError) as fault:
            what = f'there is no {fault}' if isinstance(fault, KeyError) else str(fault)
            faults.append(f'{where}: {what.rstrip(".")}')
    if faults:
        more = f'; and {len(faults) - _NAMED} more' if len(faults) > _NAMED else ''
        report = f'{path}: {len(faults)} bad: {"; ".join(faults[:_NAMED])}{more}.'
        if bad_rows == 'error':
            raise ValueError(f"{report} Mend them, or leave them out: bad_rows='skip'.")
        logging.warning('%s Left out.', report)
    if not found:
        raise ValueError(f'{path} has nothing to read.')
    return found
