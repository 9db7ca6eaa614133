"""Rows of files: where each stands, and all bad ones told at once."""

import dataclasses
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_secrets_jax.checks import check_name, meant
from bert_secrets_jax.files import of_kind, open_decompressed, parse_json, without_compression

Read = TypeVar('Read')
AnyPath = str | os.PathLike[str]
_LONGEST_FAULT = 1000  # characters
_NAMED = 5  # so many faults are named; of more, their number is told
# A line of more bytes, or a field of more characters, is no text of a row: a file of one line, or a
# quote that is never closed, would fill the memory.
LONGEST = 2**26
# The bytes that a compressed file may unpack to, and those for each byte of it: texts shrink to no
# less than a hundredth, while a hostile file of one line shrinks to a thousandth.
_UNPACKED_AT_LEAST, _UNPACKED_PER_BYTE = 2**20, 100


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of a file: its place, such as 'line 3', and its value, or the fault in its place."""

    where: str
    value: Any = None
    fault: Exception | None = None

    def then(self, read: Callable[[Any], Any]) -> 'Row':
        """Return a row with what is read from the value of this one, or with the fault there."""
        if self.fault is not None:
            return self
        try:
            return Row(self.where, read(self.value))
        except ValueError as fault:
            return Row(self.where, fault=fault)


class Lines:
    """The numbered lines of a file in UTF-8, with their ends, of which one at a time is held.

    The file may be compressed (.gz, .xz) and have a byte order mark. Only a line feed ends a line:
    the other characters at which Python ends lines (`str.splitlines`) occur inside sentences.
    `share` is the share of the file that has been read.
    """

    def __init__(self, path: AnyPath):
        self.path = pathlib.Path(path)
        self.share = 0.0
        check_there(self.path)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line."""
        start = 0
        for number, line in self.encoded():
            try:
                text = line.decode('utf-8')
            except UnicodeDecodeError as error:
                raise ValueError(
                    f'{self.path}: not UTF-8 at line {number}, byte {start + error.start} '
                    'of the file. Save it as UTF-8.'
                ) from error
            yield number, text.removeprefix('\ufeff') if number == 1 else text
            start += len(line)

    def encoded(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the bytes of each line."""
        with open_decompressed(self.path) as (file, raw):
            size, before, left = max(os.fstat(raw.fileno()).st_size, 1), 0, _UNPACKED_AT_LEAST
            for number, line in enumerate(iter(lambda: file.readline(LONGEST), b''), 1):
                if len(line) == LONGEST:
                    raise ValueError(
                        f'{self.path}: line {number} has more than {LONGEST:,} bytes: is this a '
                        'file of lines?'
                    )
                left += _UNPACKED_PER_BYTE * (raw.tell() - before)
                # However much came before, it allows for little of this.
                before, left = raw.tell(), min(left, LONGEST) - len(line)
                if left < 0:
                    raise ValueError(
                        f'{self.path} unpacks to far more than a file of its size should hold: '
                        'if this is meant, unpack it first.'
                    )
                self.share = before / size
                yield number, line

    @property
    def rows(self) -> Iterator[Row]:
        """The lines that are not blank, without their ends."""
        for number, line in self:
            if line.strip():
                yield Row(f'line {number}', line.removesuffix('\n').removesuffix('\r'))

    @property
    def objects(self) -> Iterator[Row]:
        """The JSON objects of these lines, or their faults."""

        def read(line: str) -> dict[str, Any]:
            try:
                return of_kind(parse_json(line), dict)
            except json.JSONDecodeError as error:
                raise ValueError(f'malformed JSON at column {error.colno}: {error.msg}') from error

        return (row.then(read) for row in self.rows)


def check_there(path: pathlib.Path) -> None:
    """Raise FileNotFoundError if there is no such file, and say what its folder holds instead."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f'{path} not found: there is no folder {path.parent}.')
    if not path.exists():
        folder = path.parent.resolve()
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith('.'))
        near = f'{path} not found. {meant(path.name, names)}'.rstrip()
        raise FileNotFoundError(f'{near} {folder} holds: {some_of(names, 20) or "nothing"}.')


def some_of(items: Sequence[str], most: int, *, count: int = 0, separator: str = ', ') -> str:
    """Return the first items, `most` at most, and how many more of them, or of `count`, there are.

    >>> some_of('abcd', 2)
    'a, b and 2 more'
    """
    hidden = max(count, len(items)) - most
    return separator.join(items[:most]) + (f' and {hidden} more' if hidden > 0 else '')


def check_texts(given: Any, *names: str) -> None:
    """Refuse what has anything but a text, which is not empty, as one of some attributes."""
    for name in names:
        value = getattr(given, name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f'{name}={value!r} must be a text that is not empty.')


def good_rows(
    path: AnyPath,
    rows: Iterable[Row] | None,
    read: Callable[[Any, str, str], Read],
    bad_rows: str,
    *,
    name: str | None = None,
    stop: bool = False,
) -> Iterator[Read]:
    """Yield what is read from the good rows of a file; None stands for JSON objects, one a line.

    `read` takes the value of a row, its id `{name}/{row}` and its place, and raises ValueError,
    TypeError or KeyError for a bad one. Rows count from 0, bad ones too; the name is by default the
    file's. With `stop`, the first bad row is refused at once, and not all at the end.
    """
    check_name('bad_rows', bad_rows, ('error', 'skip'))
    path = pathlib.Path(path)
    rows = Lines(path).objects if rows is None else rows
    name = without_compression(path).stem if name is None else name
    count, bad, faults = 0, 0, []
    for count, row in enumerate(rows, 1):
        try:
            if row.fault is not None:
                raise row.fault
            found = read(row.value, f'{name}/{count - 1}', f'{path}, {row.where}')
        except (ValueError, TypeError, KeyError) as error:
            bad += 1
            if bad <= _NAMED:
                what = f'there is no {error}' if isinstance(error, KeyError) else str(error)
                # A hint stands in brackets within the sentence.
                what = re.sub(r'\. (Did you mean .*\?)$', r' (\1)', what.rstrip('.'))
                what = what if len(what) <= _LONGEST_FAULT else f'{what[:_LONGEST_FAULT]}...'
                faults.append(f'{row.where}: {what}')
            if stop and bad_rows == 'error':
                raise ValueError(
                    f"{path}: {faults[0]}. Correct it, or leave bad rows out: bad_rows='skip'."
                ) from error
        else:
            yield found
    if not count:
        raise ValueError(f'{path} has nothing to read.')
    if bad:
        shown = some_of(faults, _NAMED, count=bad, separator='; ')
        report = f'{path}: {bad} of {count} rows are bad: {shown}.'
        if bad_rows == 'error':
            raise ValueError(f"{report} Correct them, or leave them out: bad_rows='skip'.")
        if bad == count:
            raise ValueError(f'{report} No good row is left.')
        logging.warning('%s Left out.', report)
