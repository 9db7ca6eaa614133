"""Sentences and labels from TSV, CSV and JSON lines, with every bad row named."""

import csv
import functools
import json
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from bert_secrets_jax.checks import check_different, meant, shortened
from bert_secrets_jax.data.rows import LONGEST, AnyPath, Lines, Row, good_rows, some_of
from bert_secrets_jax.data.tasks import MOST_CLASSES, Example
from bert_secrets_jax.files import long_fields, without_compression
from bert_secrets_jax.names import counted

_NAMED = 50  # columns of a table, and names of labels, that an error lists
_NO_HEADER = 'If it has no header, name all its columns: columns=(...) (setting data.columns).'


def read_table(
    path: AnyPath,
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
      text_a, text_b: The columns of the texts; None if there is no second one.
      label: The column of the label; None gives examples without labels.
      labels: The labels as the file spells them, in the order of their class ids, or names for
        labels that are numbers from 0; an empty tuple reads scores (floats). None reads numbers:
        integers if all are, otherwise floats. Rows with NaN or a word among them are bad.
      bad_rows: 'error' refuses a file with bad rows; 'skip' leaves them out and warns. A row is bad
        if it has too few or too many fields, an empty text or label, a label that cannot be read,
        or malformed JSON.
      name: The first part of the ids, by default the file's name without its extension. The ids
        are `{name}/{row}`, where rows count from 0 and include the skipped ones.
      columns: The names of all columns of a `.tsv` or `.csv` that has no header.

    Raises:
      FileNotFoundError: There is no such file; the error says what the folder holds instead.
      ValueError: A label is named twice, some rows are bad (one error names them all), a column is
        missing, the extension is unknown, the file has no rows or is not UTF-8, the labels need
        `labels`, or the quotes of a CSV do not match (whatever `bad_rows` says).
    """
    path = pathlib.Path(path)
    wanted = [column for column in (text_a, text_b, label) if column is not None]
    rows = list(table_rows(Lines(path), wanted, columns))
    if label is not None:
        to_label = _label_reader(path, [row.value[-1] for row in rows if row.value], labels)

    classes = () if label is None else tuple(labels or ())

    def read(values: Sequence[str], identity: str, where: str) -> Example:
        texts = values[: 1 if text_b is None else 2]
        known = None if label is None else to_label(values[-1])
        return Example(*texts, label=known, id=identity, where=where, classes=classes)

    return list(good_rows(path, rows, read, bad_rows, name=name))


def sorted_classes(
    texts: str, train: str | None, *, label: str, columns: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the classes of labels that are words, in sorted order; () if all are numbers.

    ValueError if words and numbers are mixed, words differ in capitals or spaces alone, there is
    one class or too many, or a class of the texts is in no row of `train`.
    """
    tables = [path for path in (texts, train) if path is not None]
    found: list[dict[str, str]] = []
    for path in tables:
        found.append({})
        for row in table_rows(Lines(path), [label], columns):
            if row.fault is None:
                found[-1].setdefault(row.value[0], f'{path}, {row.where}')
    places = found[-1] | found[0]
    words = sorted(text for text in places if not NUMBER.fullmatch(text))
    if not all(map(_WHOLE.fullmatch, places.keys() - words)):
        # A regression: what is no number there is a bad row, and no class.
        return ()
    spelt: dict[str, str] = {}
    for word in words:
        other = spelt.setdefault(''.join(word.split()).casefold(), word)
        if other != word:
            how = f'differs from {other!r} in capitals or spaces alone'
        elif len(words) < len(places):
            how = 'is no number, and others are'
        else:
            continue
        raise ValueError(
            f'{places[word]}: label {word!r} {how}: correct it, or name all classes (setting '
            'data.labels).'
        )
    if words and not 1 < len(words) <= MOST_CLASSES:
        raise ValueError(
            f'{tables[-1]}: column {label!r} has {counted(len(words), "label")}, as {words[0]!r}: '
            f'from 2 to {MOST_CLASSES} classes can be learnt.'
        )
    value = str if words else int
    known = set(map(value, found[-1]))
    for text, place in found[0].items():
        if value(text) not in known:
            raise ValueError(
                f'{place}: label {text!r} is in no row of {train}, which has '
                f'{some_of(sorted(found[-1]), 10)}: add such rows there, or leave it out here.'
            )
    return tuple(words)


def table_rows(
    lines: Lines, columns: Sequence[str], header: Sequence[str] | None = None
) -> Iterator[Row]:
    """Yield the rows of wanted columns (`read_table`), which are read while they are iterated."""
    path = lines.path
    match without_compression(path).suffix.lower():
        case '.tsv':
            kept = ((number, line) for number, line in lines if line.strip('\r\n'))
            whole = ((number, line.removesuffix('\n').removesuffix('\r')) for number, line in kept)
            records = ((number, line.split('\t')) for number, line in whole)
        case '.csv':
            records = _split_with_quotes(lines)
        case '.jsonl' if header is None:
            yield from _json_rows(lines, columns)
            return
        case '.jsonl':
            raise ValueError(
                f'{path}: JSON lines name their columns themselves; leave columns={header!r} out.'
            )
        case suffix:
            known = '.tsv, .csv, .jsonl'
            raise ValueError(f'{path}: unknown extension {suffix!r}; known: {known}.')
    hint = _NO_HEADER if header is None else 'These are the given columns.'
    names = next(records, (0, []))[1] if header is None else list(header)
    if not names:
        raise ValueError(f'{path} is empty.')
    _check_columns(path, names, columns, hint)
    places = [names.index(column) for column in columns]

    def wanted(fields: list[str]) -> tuple[str, ...]:
        if len(fields) != len(names):
            raise ValueError(f'{counted(len(fields), "field")}, expected {len(names)}')
        return filled(columns, [fields[place] for place in places])

    for number, fields in records:
        yield Row(f'line {number}', fields).then(wanted)


def filled(columns: Sequence[str], values: Sequence[str]) -> tuple[str, ...]:
    """Return the texts of some columns, or raise ValueError if one of them is empty."""
    for column, value in zip(columns, values, strict=True):
        if not value.strip():
            raise ValueError(f'{column!r} is empty')
    return tuple(values)


def _split_with_quotes(lines: Lines) -> Iterator[tuple[int, list[str]]]:
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


def _json_rows(lines: Lines, columns: Sequence[str]) -> Iterator[Row]:
    found: dict[str, None] = {}  # in the order of the file
    for row in lines.objects:
        found |= dict.fromkeys(row.value or ())
        yield row.then(
            lambda record: filled(columns, [_json_text(record, column) for column in columns])
        )
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


def _check_columns(
    path: pathlib.Path, header: Sequence[str], columns: Sequence[str], hint: str = ''
) -> None:
    for column in columns:
        if header.count(column) != 1:
            how = 'no' if column not in header else 'more than one'
            names = some_of(
                [shortened(name) for name in header[:_NAMED]], _NAMED, count=len(header)
            )
            near = f' {meant(column, header)}' * (how == 'no')
            message = f'{path} has {how} column {column!r}; it has: {names}.{near.rstrip()} {hint}'
            raise ValueError(message.rstrip())


def _label_reader(
    path: pathlib.Path, texts: Iterable[str], labels: Sequence[str] | None
) -> Callable[[str], int | float]:
    """Return a function from the text of a label to a class id or a score."""
    stripped = [text.strip() for text in texts]
    if labels is None:
        read = list(filter(NUMBER.fullmatch, stripped))
        # Among numbers, a row with NaN or a word is bad, and says nothing of the others.
        if 2 * len(read) >= len(stripped):
            kind = int if all(map(_WHOLE.fullmatch, read)) else float
            return functools.partial(_score, kind=kind)
        shown = some_of([repr(text) for text in sorted({*stripped})], 10)
        raise ValueError(
            f'{path}: labels are not all numbers: {shown}. Name them in the order of their '
            'class ids: labels=(...).'
        )
    if not labels:
        return _score
    check_different('labels', labels, 'each is one class')
    ids = {label: index for index, label in enumerate(labels)}
    numbers = {str(index): index for index in range(len(labels))}
    expected = some_of(labels, _NAMED)
    if numbers.keys() & stripped and not ids.keys() & stripped:
        # The file has numbers, and these are their names.
        ids, expected = numbers, f'{expected}, or a number from 0'

    def class_id(text: str) -> int:
        # Numbers may have spaces around them, names are to the letter.
        found = ids.get(text, ids.get(text.strip()) if text.strip().isdecimal() else None)
        if found is None:
            raise _UnknownLabel(text, expected, ids)
        return found

    return class_id


# Python's own `int` and `float` also read 1_0, and the digits of other scripts.
_WHOLE = re.compile(r'\s*[+-]?[0-9]+\s*')
NUMBER = re.compile(r'\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*')


def _score(text: str, kind: Callable[[str], int | float] = float) -> int | float:
    score = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(score):
        raise ValueError(f'label {text!r} is not a finite number')
    return kind(text)


class _UnknownLabel(ValueError):
    """Its line, which takes longer than a row, is made only for those rows that are named."""

    def __str__(self) -> str:
        text, expected, ids = self.args
        near = meant(text, ids)
        return f'unknown label {shortened(text)}, expected one of {expected}. {near}'.rstrip()
