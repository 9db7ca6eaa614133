"""Lines of a file, and rows of which some may be bad: all faults are told at once."""

import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from absl import logging

from bert_secrets_jax.brief import shortened
from bert_secrets_jax.files import open_decompressed, parse_json, read_text

Read = TypeVar('Read')
# So many faults are named; of more, their number is told.
NAMED = 5
# A line of more bytes, or a field of more characters, is no text of a row: a file of one line, or a
# quote that is never closed, would fill the memory.
LONGEST = 2**26


class Lines:
    """The numbered lines of a file in UTF-8, with their ends, of which one at a time is held.

    The file may be compressed (.gz, .xz) and have a byte order mark. Only a line feed ends a line.
    Text files in Python also end lines at other characters (`str.splitlines` even at U+2028 and
    U+0085), which occur inside sentences.

    Attributes:
      path: The file.
      share: The share of the file that has been read, for what shows progress.
    """

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.share = 0.0

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: It is no regular file, is damaged, is not UTF-8 or has a line without end.
        """
        number = start = 0
        with open_decompressed(self.path) as (file, raw):
            size = max(os.fstat(raw.fileno()).st_size, 1)
            while line := file.readline(LONGEST):
                number += 1
                if len(line) == LONGEST:
                    raise ValueError(
                        f'{self.path}: line {number} has more than {LONGEST:,} bytes: is this a '
                        'file of lines?'
                    )
                try:
                    text = line.decode('utf-8')
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f'{self.path}: not UTF-8 at line {number}, byte {start + error.start} '
                        'of the file. Save it as UTF-8.'
                    ) from error
                self.share = raw.tell() / size
                yield number, text.removeprefix('\ufeff') if number == 1 else text
                start += len(line)


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


def check_bad_rows(bad_rows: str) -> None:
    """Raise ValueError unless it is said in a known way what to do with bad rows."""
    if bad_rows not in ('error', 'skip'):
        raise ValueError(f"bad_rows must be 'error' or 'skip', got {bad_rows!r}.")


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
    check_bad_rows(bad_rows)
    found, faults = [], []
    for position, (where, row) in enumerate(rows):
        try:
            found.append(read(row, f'{path.stem}/{position}', f'{path}, {where}'))
        except (ValueError, TypeError, KeyError) as fault:
            what = f'there is no {fault}' if isinstance(fault, KeyError) else str(fault)
            faults.append(f'{where}: {what.rstrip(".")}')
    if faults:
        more = f'; and {len(faults) - NAMED} more' if len(faults) > NAMED else ''
        report = f'{path}: {len(faults)} bad: {"; ".join(faults[:NAMED])}{more}.'
        if bad_rows == 'error':
            raise ValueError(f"{report} Mend them, or leave them out: bad_rows='skip'.")
        logging.warning('%s Left out.', report)
    if not found:
        raise ValueError(f'{path} has nothing to read.')
    return found
