"""Sentences and labels from TSV, CSV and JSON lines, with every bad row named."""

import csv
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from absl import logging

from bert_secrets_jax.brief import shortened
from bert_secrets_jax.data.rows import LONGEST, NAMED, Lines, check_bad_rows
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.files import long_fields, parse_json, without_compression


@dataclasses.dataclass(frozen=True)
class Row:
    """The wanted columns of one row, or its fault.

    Attributes:
      line: The physical line on which the row starts; the first line of a file is 1.
      values: The wanted columns, in the order asked for; empty for a faulty row.
      fault: The reason why there are no values; empty for a good row.
    """

    line: int
    values: tuple[str, ...] = ()
    fault: str = ''


def read_table(
    path: str | os.PathLike[str],
    *,
    text_a: str,
    text_b: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    bad_rows: str = 'error',
    name: str | None = None,
    columns: Sequence[str] | None = None,
) -> list[Example]:
    """Read named columns of a table in UTF-8, with or without a byte order mark.

    The extension decides how the file is read: `.tsv` is split at tabs and has no quotes, as in
    GLUE's files; `.csv` has ordinary quotes; `.jsonl` has one object per line. `.gz` or `.xz` after
    it means a compressed file. Texts are kept to the letter. Blank lines are not counted as rows.

    Args:
      path: The file.
      text_a: The column of the first or only text.
      text_b: The column of the second text, if there is one.
      label: The column of the label; None gives examples without labels.
      labels: The labels as the file spells them, in the order of their class ids, or names for
        labels that are numbers from 0; an empty tuple reads scores (floats). None reads numbers:
        integers if all labels are, otherwise floats.
      bad_rows: The treatment of bad rows: 'error' refuses the file; 'skip' leaves them out and
        warns. A row is bad if it has too few or too many fields, an empty text or label, a label
        that cannot be read, or malformed JSON.
      name: The first part of the ids, by default the file's name without its extension. The ids
        are `{name}/{row}`, where rows count from 0 and include the skipped ones.
      columns: The names of all columns of a `.tsv` or `.csv` that has no header; None reads them
        from its first line.

    Raises:
      FileNotFoundError: There is no such file; the error says what the folder holds instead.
      ValueError: A label is named twice, some rows are bad (one error names them all), a column is
        missing, the extension is unknown, the file has no rows or is not UTF-8, the labels need
        `labels`, or the quotes of a CSV do not match (whatever `bad_rows` says, since the rows
        after them cannot be told apart).
    """
    check_bad_rows(bad_rows)
    if not isinstance(text_a, str):
        raise ValueError(f'{text_a=} must be the name of a column.')
    if labels is not None:
        if isinstance(labels, str):
            raise ValueError(f"{labels=} is one text: give a sequence of names, ('no', 'yes').")
        twice = [name for name in labels if list(labels).count(name) > 1]
        if twice:
            raise ValueError(f'labels has the name {twice[0]!r} twice: each is one class.')
    path = pathlib.Path(path)
    wanted = [column for column in (text_a, text_b, label) if column is not None]
    rows = list(table_rows(Lines(path), wanted, columns))
    if not rows:
        raise ValueError(f'{path} has no rows.')
    to_label = _label_reader(path, rows, labels) if label is not None else None
    prefix = without_compression(path).stem if name is None else name

    examples, faults = [], []
    for position, row in enumerate(rows):
        try:
            check_row(row, wanted)
            examples.append(
                Example(
                    text_a=row.values[0],
                    text_b=row.values[1] if text_b is not None else None,
                    label=to_label(row.values[-1]) if to_label else None,
                    id=f'{prefix}/{position}',
                    where=f'{path}, line {row.line}',
                )
            )
        except ValueError as fault:
            faults.append(f'line {row.line}: {fault}')

    if faults:
        noun = 'bad row' if len(faults) == 1 else 'bad rows'
        report = f'{path}: {len(faults)} {noun}: {_shorten(faults, NAMED, "; ")}'
        if bad_rows == 'error':
            raise ValueError(f"{report}. Fix them, or leave them out: bad_rows='skip'.")
        if not examples:
            raise ValueError(f'{report}. No good row is left.')
        logging.warning('%s. Skipped.', report)
    return examples


def _checked_header(path: pathlib.Path, columns: Sequence[str] | None) -> list[str] | None:
    """Return the header that a user gives for a file that has none; None if it is in the file."""
    if columns is None:
        return None
    if isinstance(columns, str):
        raise ValueError(f"{columns=} is one text: give a sequence of names, ('text', 'label').")
    if without_compression(path).suffix.lower() == '.jsonl':
        raise ValueError(f'{path}: JSON lines name their columns themselves; leave {columns=} out.')
    return list(columns)


def check_row(row: Row, columns: Sequence[str]) -> None:
    """Refuse a row that has a fault, or is empty in a column.

    Args:
      row: The row.
      columns: The wanted columns, which it has the values of.

    Raises:
      ValueError: It is bad; the error says why.
    """
    if row.fault:
        raise ValueError(row.fault)
    for column, value in zip(columns, row.values, strict=True):
        if not value.strip():
            raise ValueError(f'{column!r} is empty')


def table_rows(
    lines: Lines, columns: Sequence[str], header: Sequence[str] | None = None
) -> Iterator[Row]:
    """Return the rows of a table, which are read while they are iterated.

    Args:
      lines: The lines of the file. Its extension decides how they are read, see `read_table`.
      columns: The wanted columns.
      header: The names of all columns of a file without header; None if it has one.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The extension is unknown, or while rows are read: a column is missing, the file is
        not UTF-8, or the quotes of a CSV do not match.
    """
    path = lines.path
    header = _checked_header(path, header)
    match without_compression(path).suffix.lower():
        case '.tsv':
            read = functools.partial(_read_tsv, header=header)
        case '.csv':
            read = functools.partial(_read_csv, header=header)
        case '.jsonl':
            read = _read_jsonl
        case suffix:
            raise ValueError(f'{path}: unknown extension {suffix!r}; known: .tsv, .csv, .jsonl.')
    check_there(path)
    return read(lines, columns)


def check_there(path: pathlib.Path) -> None:
    """Refuse the path of a file that does not exist, and say what its folder holds instead.

    Raises:
      FileNotFoundError: There is no such file.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f'{path} not found: there is no folder {path.parent}.')
    if not path.exists():
        folder = path.parent.resolve()
        names = sorted(each.name for each in folder.iterdir() if not each.name.startswith('.'))
        raise FileNotFoundError(
            f'{path} not found. {folder} holds: {_shorten(names, 20, ", ") or "nothing"}.'
        )


def _read_tsv(lines: Lines, columns: Sequence[str], *, header: list[str] | None) -> Iterator[Row]:
    records = (
        (number, line.removesuffix('\n').removesuffix('\r').split('\t'))
        for number, line in lines
        if line.strip('\r\n')
    )
    return _pick_columns(lines.path, records, columns, header)


def _read_csv(lines: Lines, columns: Sequence[str], *, header: list[str] | None) -> Iterator[Row]:
    return _pick_columns(lines.path, _split_csv(lines), columns, header)


def _split_csv(lines: Lines) -> Iterator[tuple[int, list[str]]]:
    """Yield the line on which each record starts, and its fields."""
    # Strict: otherwise a quote that is never closed swallows rows without a word.
    reader = csv.reader((line for _, line in lines), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            with long_fields(LONGEST):
                fields = next(reader, None)
        except csv.Error as error:
            raise ValueError(
                f'{lines.path}: line {first_line}: {error}. Correct the quotes, or save the '
                'file as .tsv, which has none.'
            ) from error
        if fields is None:
            return
        if fields:
            yield first_line, fields


def _pick_columns(
    path: pathlib.Path,
    records: Iterator[tuple[int, list[str]]],
    columns: Sequence[str],
    header: list[str] | None,
) -> Iterator[Row]:
    """Keep the wanted columns; without a header, the first record is it."""
    given = header is not None
    if header is None:
        _, header = next(records, (0, []))
    if not header:
        raise ValueError(f'{path} is empty.')
    hint = 'These are the given columns.' if given else _NO_HEADER
    _check_columns(path, header, columns, hint)
    places = [header.index(column) for column in columns]
    for line, fields in records:
        if len(fields) == len(header):
            yield Row(line, tuple(fields[place] for place in places))
        else:
            noun = 'field' if len(fields) == 1 else 'fields'
            fault = f'{len(fields)} {noun}, expected {len(header)}'
            yield Row(line, fault=fault)


def _read_jsonl(lines: Lines, columns: Sequence[str]) -> Iterator[Row]:
    found: dict[str, None] = {}  # in the order of the file
    for number, line in lines:
        if not line.strip():
            continue
        try:
            record = parse_json(line)
            if not isinstance(record, dict):
                raise ValueError('not a JSON object')
            found |= dict.fromkeys(record)
            yield Row(number, tuple(_json_text(record, column) for column in columns))
        except json.JSONDecodeError as error:
            yield Row(number, fault=f'malformed JSON at column {error.colno}')
        except ValueError as fault:
            yield Row(number, fault=str(fault))
    # A column that no row has is a wrong name, not as many bad rows.
    if found:
        _check_columns(lines.path, list(found), columns)


def _json_text(record: dict, column: str) -> str:
    """Spell a value as the other formats would; numbers and booleans as in JSON."""
    value = record.get(column)
    if value is None:
        raise ValueError(f'no {column!r}')
    if isinstance(value, list | dict):
        raise ValueError(f'{column!r} is not a text')
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f'{column!r} is {value}, which is neither a text nor a number')
    text = value if isinstance(value, str) else json.dumps(value)
    text.encode()  # Half of a surrogate pair, which JSON can escape, raises here.
    return text


_NO_HEADER = (
    'If that is its first row, because it has no header, name all its columns: columns=(...), in '
    'the programs data.columns.'
)


def _check_columns(
    path: pathlib.Path, header: Sequence[str], columns: Sequence[str], hint: str = ''
) -> None:
    for column in columns:
        if header.count(column) != 1:
            how = 'no' if column not in header else 'more than one'
            names = ', '.join(shortened(name) for name in header)
            message = f'{path} has {how} column {column!r}; it has: {names}. {hint}'
            raise ValueError(message.rstrip())


def _label_reader(
    path: pathlib.Path, rows: Iterable[Row], labels: Sequence[str] | None
) -> Callable[[str], int | float]:
    """Return what turns the text of a label into a class id or a score."""
    if labels is None:
        texts = [row.values[-1] for row in rows if row.values and row.values[-1].strip()]
        return _number_reader(path, texts)
    if not labels:
        return _score
    texts = {row.values[-1].strip() for row in rows if row.values}
    numbers = {str(index): index for index in range(len(labels))}
    if texts & numbers.keys() and not texts & set(labels):
        # The file has numbers, and these are their names.
        return functools.partial(_class_id, numbers, f'{", ".join(labels)}, or a number from 0')
    return functools.partial(
        _class_id, {label: index for index, label in enumerate(labels)}, ', '.join(labels)
    )


def _number_reader(path: pathlib.Path, texts: Iterable[str]) -> Callable[[str], int | float]:
    """Return `int` if all labels are whole numbers, otherwise `_score` if all are numbers."""
    kinds = set(texts)
    if all(_WHOLE.fullmatch(text) for text in kinds):
        return int
    if all(_NUMBER.fullmatch(text) for text in kinds):
        return _score
    found = _shorten([repr(text) for text in sorted(kinds)], 10, ', ')
    raise ValueError(
        f'{path}: labels are not all numbers: {found}. Name them in the order of their '
        'class ids: labels=(...).'
    )


# Python's own `int` and `float` also read 1_0, and the digits of other scripts.
_WHOLE = re.compile(r'\s*[+-]?[0-9]+\s*')
_NUMBER = re.compile(r'\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*')


def _score(text: str) -> float:
    score = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(score):
        raise ValueError(f'label {text!r} is not a finite number')
    return score


def _class_id(ids: dict[str, int], expected: str, text: str) -> int:
    # Numbers may have spaces around them, names are to the letter.
    found = ids.get(text, ids.get(text.strip()) if text.strip().isdecimal() else None)
    if found is None:
        raise ValueError(f'unknown label {text!r}, expected one of {expected}')
    return found


def _shorten(items: Sequence[str], limit: int, separator: str) -> str:
    shown = separator.join(items[:limit])
    hidden = len(items) - limit
    return f'{shown} and {hidden} more' if hidden > 0 else shown
