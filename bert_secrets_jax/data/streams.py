"""Corpora of any size: texts that are read, and batches that are made, while they are used.

    texts = bs.stream_texts('corpus.txt.gz')
    batches = bs.stream_batches(pretrained.tokenizer, texts)
    tables = bs.collect(pretrained, batches, ['[SEP]', 'entropy (nats)'])

Held at a time are some hundred texts, less than a batch of each padded length, and some batches.
"""

import collections
import dataclasses
import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import numpy as np

from bert_secrets_jax.data.encoding import (
    BUCKETS,
    Batch,
    Encoded,
    Losses,
    check_tokenizer,
    padded_lengths,
    tokenize_part,
    tokens_read,
)
from bert_secrets_jax.data.rows import AnyPath, Lines, Row, check_there, good_rows
from bert_secrets_jax.data.tables import filled, table_rows
from bert_secrets_jax.data.tasks import Example, Text, as_example
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import open_regular, without_compression
from bert_secrets_jax.progress import progress

T = TypeVar('T')
_TABLES = ('.tsv', '.csv', '.jsonl')
_RECORDS = '.array_record'
# Texts and characters that are tokenised in one call, and records that are read in one.
_TEXTS, _CHARACTERS, _TOGETHER = 512, 2**20, 256
_WAITING = 8  # batches that wait for the device: about what one call of the tokenizer makes


@dataclasses.dataclass(frozen=True)
class Texts:
    """The texts of a file, which each iteration reads anew. `stream_texts` makes them."""

    path: pathlib.Path
    columns: tuple[str, ...]  # none if each line or record is a text
    header: tuple[str, ...] | None
    bad_rows: str
    name: str | None

    def __iter__(self) -> Iterator[Example]:
        return (example for example, _ in self.read())

    def read(self) -> Iterator[tuple[Example, float]]:
        """Yield each example, and the share of the file that has been read with it."""
        # tensorflow-datasets numbers its files: x.array_record-00000-of-00002.
        if _RECORDS in self.path.name.lower():
            source = _Records(self.path, self.columns)
            rows = source.rows
        else:
            source = Lines(self.path)
            rows = table_rows(source, self.columns, self.header) if self.columns else source.rows

        def read(texts: Any, identity: str, where: str) -> Example:
            texts = (texts,) if isinstance(texts, str) else texts
            return Example(*texts, id=identity, where=where)

        examples = good_rows(self.path, rows, read, self.bad_rows, name=self.name, stop=True)
        yield from ((example, source.share) for example in examples)


def stream_texts(
    path: AnyPath,
    *,
    text_a: str | None = None,
    text_b: str | None = None,
    columns: Sequence[str] | None = None,
    bad_rows: str = 'error',
    name: str | None = None,
) -> Texts:
    """Open a file of any size as texts for `stream_batches`: examples, read anew each time.

    The extension decides how the file is read. The rows of a table, `.tsv`, `.csv` or `.jsonl`, are
    read as by `read_table`. Each record of an `.array_record` is a text in UTF-8 or, if columns are
    named, a `tf.train.Example` with these features, as tensorflow-datasets writes them (its files
    have a number after that extension). In any other file each line that is not blank is a text.
    `.gz` or `.xz` after the extension of a text file or a table means a compressed file. Examples
    have no labels, and the ids `{name}/{row}`, where rows count from 0.

    Args:
      text_a: The column or the feature of the first or only text; None if each line or record is a
        text.
      text_b: The column or the feature of the second text, if there is one.
      bad_rows: 'error' stops at the first bad row; 'skip' leaves bad rows out, and a warning at the
        end of the file tells their number and the first ones.
      columns, name: As in `read_table`.

    Raises:
      FileNotFoundError: There is no such file; the error says what the folder holds instead.
      ValueError: A column is not named or is missing, the file has no texts, is not UTF-8 or is
        damaged, or a row is bad. What the first text does not show is raised during the iteration.
    """
    path = pathlib.Path(path)
    wanted = tuple(column for column in (text_a, text_b) if column is not None)
    is_table = without_compression(path).suffix.lower() in _TABLES
    if text_a is None and text_b is not None:
        raise ValueError(f'{text_b=} is the second text: name the first one, text_a=...')
    if not wanted and is_table:
        raise ValueError(f'{path} is a table: name the column of its texts, text_a=...')
    if wanted and not (is_table or _RECORDS in path.name.lower()):
        raise ValueError(
            f'{path} has no columns, and {text_a=} names one: those that have some end in '
            f'{", ".join((*_TABLES, _RECORDS))}.'
        )
    check_there(path)
    texts = Texts(path, wanted, None if columns is None else tuple(columns), bad_rows, name)
    # A fault of the file as a whole shows in its first text.
    next(iter(texts))
    return texts


class _Records:
    """The records of an array_record, as rows of texts."""

    def __init__(self, path: pathlib.Path, features: Sequence[str]):
        self.path = path
        self.features = features
        self.share = 0.0

    @property
    def rows(self) -> Iterator[Row]:
        require('array_record', *['tensorflow_datasets'] * bool(self.features))
        from array_record.python.array_record_module import ArrayRecordReader

        # Its reader says neither that there is no file nor that it is a folder.
        open_regular(self.path).close()
        try:
            reader = ArrayRecordReader(str(self.path))
            count = reader.num_records()
            for start in range(0, count, _TOGETHER):
                records = reader.read(start, min(start + _TOGETHER, count))
                for number, record in enumerate(records, start + 1):
                    self.share = number / count
                    yield Row(f'record {number}', record).then(self._texts)
            reader.close()
        except RuntimeError as fault:
            raise ValueError(f'{self.path} is damaged, or no {_RECORDS} file: {fault}') from None

    def _texts(self, record: bytes) -> tuple[str, ...]:
        values = self._values(record) if self.features else (record,)
        try:
            texts = [str(each, 'utf-8') for each in values]
        except UnicodeDecodeError:
            raise ValueError('not UTF-8') from None
        return filled(self.features or ('text',), texts)

    def _values(self, record: bytes) -> Iterator[bytes]:
        # It takes a second, and records of plain texts do without.
        from google.protobuf.message import DecodeError
        from tensorflow_datasets.proto import tf_example_pb2

        example = tf_example_pb2.Example  # pyright: ignore[reportAttributeAccessIssue]
        try:
            there = example.FromString(record).features.feature
        except DecodeError:
            raise ValueError('no tf.train.Example') from None
        for feature in self.features:
            if feature not in there:
                known = ', '.join(sorted(there)) or 'none'
                raise ValueError(f'no feature {feature!r}, but {known}')
            if len(there[feature].bytes_list.value) != 1:
                raise ValueError(f'the feature {feature!r} is not one text')
            yield from there[feature].bytes_list.value


@dataclasses.dataclass(frozen=True)
class Batches:
    """Batches of texts, which each iteration makes anew. `stream_batches` makes them."""

    tokenizer: Any = dataclasses.field(repr=False)
    texts: Iterable[Text] = dataclasses.field(repr=False)
    max_length: int | None
    tokens_per_batch: int
    buckets: tuple[int, ...]
    fewest: int
    batch_multiple: int

    def __iter__(self) -> Iterator[Batch]:
        return _ahead(self._made())

    def _rows(self, length: int) -> int:
        return max(self.tokens_per_batch // length // self.batch_multiple, 1) * self.batch_multiple

    def _made(self) -> Iterator[Batch]:
        edges = padded_lengths(self.buckets, self.max_length or tokens_read(self.tokenizer))
        losses = Losses(self.tokenizer, self.max_length)
        # The examples of each padded length that do not fill a batch yet, and lengths with batches.
        left: dict[int, Encoded] = {}
        whole: set[int] = set()
        shown = {'size': lambda part: len(part[0]), 'share': lambda part: part[1]}
        for part, _ in progress(_parts(self.texts), 'Texts', unit='texts', compiles=False, **shown):
            first = losses.examples
            encoded = tokenize_part(part, losses)
            losses.check()
            encoded = dataclasses.replace(encoded, numbers=np.arange(first, losses.examples))
            padded = edges[np.searchsorted(edges, encoded.lengths)]
            for length in np.unique(padded).tolist():
                waiting = encoded.take(np.flatnonzero(padded == length)).after(left.get(length))
                rows, places = self._rows(length), np.arange(len(waiting.lengths))
                full = len(places) // rows * rows
                for batch in waiting.in_rows(places[:full], rows, length):
                    whole.add(length)
                    yield batch
                left[length] = waiting.take(places[full:])
        if not losses.examples:
            raise ValueError('There are no texts to encode.')
        # A few examples of a length that nothing was compiled for go with longer ones.
        for length, longer in itertools.pairwise(sorted(whole | left.keys())):
            if length not in whole and len(left[length].lengths) < self.fewest:
                left[longer] = left.pop(length).after(left.get(longer))
        for length, waiting in sorted(left.items()):
            yield from waiting.in_rows(np.arange(len(waiting.lengths)), self._rows(length), length)
        losses.tell()


def stream_batches(
    tokenizer,
    texts: Iterable[Text],
    *,
    max_length: int | None = None,
    tokens_per_batch: int = 2048,
    buckets: Sequence[int] = BUCKETS,
    fewest: int = 32,
    batch_multiple: int = 1,
) -> Batches:
    """Make batches of texts of any number while they are used, grouped by length as by `encode`.

    All batches of one padded length have the same number of rows, so a jitted function compiles at
    most once per length. A batch is made as soon as there are enough texts of its length, in the
    order of the texts, from 0, and the last ones are filled up with empty rows. A thread of its own
    reads and tokenises while the device computes: use the tokenizer for nothing else meanwhile. A
    log line tells the progress; what was cut or is unknown to the tokenizer is told at the end.
    Annotations need the whole corpus: `encode` takes them.

    Args:
      texts: An iterable such as `stream_texts` returns: strings, pairs of strings or examples, all
        single sentences, or all pairs. An iterator can be used once only.
      buckets: The padded lengths. They cannot be chosen to fit texts that are still to come.
      tokenizer, max_length, tokens_per_batch, fewest, batch_multiple: As in `encode`.

    Raises:
      TypeError: The texts or the tokenizer are something else.
      ValueError: The tokenizer lacks special tokens. During the iteration: there are no texts,
        single sentences are mixed with pairs, or the tokenizer is not made for the texts.
    """
    check_tokenizer(tokenizer, max_length, pair=False)
    return Batches(
        tokenizer, texts, max_length, tokens_per_batch, tuple(buckets), fewest, batch_multiple
    )


def _parts(texts: Iterable[Text]) -> Iterator[tuple[list[Example], float | None]]:
    """Yield texts in parts that are tokenised in one call each.

    With each comes the share of all that has been read with it; None if it is not known.
    """
    count = len(texts) if isinstance(texts, Sized) else math.inf
    made = ((as_example(text, row)[0], (row + 1) / count) for row, text in enumerate(texts))
    part, characters, share = [], 0, None
    for example, known in texts.read() if isinstance(texts, Texts) else made:
        part.append(example)
        share = known or None
        characters += len(example.text_a) + len(example.text_b or '')
        if len(part) == _TEXTS or characters >= _CHARACTERS:
            yield part, share
            part, characters = [], 0
    if part:
        yield part, share


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield items that a thread of its own makes while the ones before are used."""
    end = object()
    with ThreadPoolExecutor(1) as worker:
        waiting = collections.deque(worker.submit(next, items, end) for _ in range(_WAITING))
        try:
            while (item := waiting.popleft().result()) is not end:
                waiting.append(worker.submit(next, items, end))
                yield cast('T', item)
        finally:
            worker.shutdown(wait=False, cancel_futures=True)
