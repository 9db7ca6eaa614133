"""Annotations of texts by characters: features, links, their file format, their wordpieces.

A feature is a set of spans (the nouns, the negations); a relation is a set of links between spans
(verb and subject, anaphor and antecedent). Bring your own as JSON lines, one example per line:

    {"text_a": "The cat saw itself.",
     "features": {"noun": [[4, 7]]},
     "relations": {"coreference": [{"source": [[12, 18]], "target": [[4, 7]]}]}}

- `text_a`, and `text_b` for pairs: The texts to the letter.
- `features`: A name and its spans. A span is `[start, end]`, the characters (code points) from
  `start` up to, but not including, `end`; `[start, end, 1]` is a span of `text_b`.
- `relations`: A name and its links. Each end of a link is a list of one span or more. Statistics
  read the attention from source to target unless told otherwise: the source is the query.
- `classes`: A word class (part of speech) and its spans. Each word is in one of them.
- `words`: The spans of the words, in their order, where they are not those between spaces.
- `note`: Anything you like; it is not read.

All keys but `text_a` may be left out. A name that some lines lack is empty there.
"""

import dataclasses
import itertools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_secrets_jax.checks import check_lengths, check_name
from bert_secrets_jax.data.rows import AnyPath, good_rows
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.files import of_kind, write_text

_KEYS = ('text_a', 'text_b', 'features', 'relations', 'classes', 'words', 'note')
_TEXTS = ('text_a', 'text_b')
_ENDS = ('source', 'target')
# The keys, among the marks, of the marks in the notebook's reading and of random links.
NOTEBOOK, RANDOM = 'notebook', 'random'
# Names with a meaning of their own: the marks that every batch has, and the two above.
_TAKEN = ('token', 'cls', 'sep', 'word', 'period_comma', NOTEBOOK, RANDOM)


@dataclasses.dataclass(frozen=True)
class Span:
    """Characters `[start, end)` of one text of an example, counted from 0 in code points.

    `text` is 0 for `text_a` and 1 for `text_b`.

    Raises:
      ValueError: The span is empty, or in no text.
    """

    start: int
    end: int
    text: int = 0

    def __post_init__(self):
        if not 0 <= self.start < self.end:
            raise ValueError(
                f'span [{self.start}, {self.end}] is empty: it needs 0 <= start < end, and the '
                'character at end is not part of it'
            )
        if self.text not in (0, 1):
            raise ValueError(f'span in text {self.text}: text_a is 0 and text_b is 1')


@dataclasses.dataclass(frozen=True)
class Link:
    """A link between words, such as from a verb to its subject.

    Attributes:
      source, target: One span or more each, the query and the key of the measured attention.

    Raises:
      ValueError: One end has no spans.
    """

    source: tuple[Span, ...]
    target: tuple[Span, ...]

    def __post_init__(self):
        if not (self.source and self.target):
            raise ValueError('a link needs at least one span as source and one as target')


@dataclasses.dataclass(frozen=True)
class Annotation:
    """The annotation of one example. All examples of a corpus have the same names.

    Attributes:
      features: The spans of each feature by its name; empty if the example has none of it.
      relations: The links of each relation by its name; empty if the example has none of it.
      classes: The spans of each word class (part of speech), if they are known, one for each word.
      words: The words in their order, if they are not those that the tokenizer divides texts into.

    Raises:
      ValueError: A name is taken, or names a feature and a relation.
    """

    features: Mapping[str, tuple[Span, ...]]
    relations: Mapping[str, tuple[Link, ...]]
    classes: Mapping[str, tuple[Span, ...]] = dataclasses.field(default_factory=dict)
    words: tuple[Span, ...] = ()

    def __post_init__(self):
        for name in [*self.features, *self.relations]:
            if name in _TAKEN:
                raise ValueError(
                    f'{name!r} cannot name a feature or relation: {", ".join(_TAKEN)} have a '
                    'meaning of their own'
                )
        for name in self.features.keys() & self.relations.keys():
            raise ValueError(f'{name!r} names a feature and a relation: rename one of them')

    @property
    def spans(self) -> list[Span]:
        """The spans of all features, links, word classes and words."""
        links = itertools.chain.from_iterable(self.relations.values())
        ends = [self.words, *(link.source + link.target for link in links)]
        return [*itertools.chain(*self.features.values(), *ends, *self.classes.values())]


def check_spans(example: Example, annotation: Annotation) -> None:
    """Raise ValueError if a span is not within the texts of its example; it names the first one."""
    for span in annotation.spans:
        text = example.texts[span.text]
        if text is None:
            raise ValueError(f'span [{span.start}, {span.end}, 1], but there is no text_b')
        if span.end > len(text):
            raise ValueError(
                f'span [{span.start}, {span.end}] is not within {_TEXTS[span.text]}, which has '
                f'{len(text)} characters'
            )


def check_annotations(examples: Sequence[Example], annotations: Sequence[Annotation]) -> None:
    """Check several annotations as `check_spans` does; the error names the example."""
    for example, annotation in zip(examples, annotations, strict=True):
        try:
            check_spans(example, annotation)
        except ValueError as fault:
            raise ValueError(f'{example.id}: {fault}.') from None


def align(annotations: Sequence[Annotation], encoded: Any) -> dict[str, Any]:
    """Carry annotations of E examples (`Encoded`), all with the same names, to wordpieces.

    Return marks by name in the paper's reading, and under 'notebook' a dictionary of the same names
    in that of the authors' notebook. A feature is [E, T] bool: the wordpieces that overlap a span.
    The notebook marks every wordpiece, anywhere in the input, that is spelled like one of the
    spans, and never a word of several pieces. (Byte-level tokenizers spell a word at the start of a
    text otherwise than after a space.)

    A relation is [E, P, 3] int32, rows of query position, key position and number of the link, from
    0 in each example, filled up with (0, 0, -1). It pairs all wordpieces of the source with all
    others of the target. The notebook pairs the first ones of both, the second ones and so on, each
    at the place where the same wordpiece occurs first in the input. A link of whose source or
    target truncation leaves nothing, or within one wordpiece, is left out; log lines say how
    many are.
    """
    check_lengths(annotations=annotations, examples=encoded.input_ids)
    for index, annotation in enumerate(annotations):
        for kind in ('features', 'relations'):
            expected, names = (getattr(each, kind).keys() for each in (annotations[0], annotation))
            if names != expected:
                raise ValueError(
                    f'Annotation {index} has the {kind} {sorted(names)}, the first one has '
                    f'{sorted(expected)}: what an example has none of is an empty tuple.'
                )
    unknown, examples = encoded.tokenizer.unk_token_id, _pieces_of(encoded)
    both = list(zip(examples, annotations, strict=True))
    marks, notebook = {}, {}
    for name in annotations[0].features:
        spans = [(pieces, annotation.features[name]) for pieces, annotation in both]
        marks[name] = np.stack([pieces.overlap(each).any(axis=0) for pieces, each in spans])
        notebook[name] = np.stack([pieces.spelled_as(each, unknown) for pieces, each in spans])
    total = whole = kept = 0
    relations = annotations[0].relations
    firsts = [pieces.first_occurrence() for pieces in examples if relations]
    for name in relations:
        ends = [pieces.ends(annotation.relations[name]) for pieces, annotation in both]
        linked = [[each for each in links if len({*each[0], *each[1]}) > 1] for links in ends]
        marks[name] = fill_up([_crossed(links) for links in linked])
        notebook[name] = fill_up(list(map(_zipped, linked, firsts)))
        total += sum(len(annotation.relations[name]) for annotation in annotations)
        whole += sum(map(len, ends))
        kept += sum(map(len, linked))
    for count, why in (
        (total - whole, 'an end has no wordpiece (cut off, or only spaces)'),
        (whole - kept, 'both ends are in one wordpiece'),
    ):
        if count:
            logging.info('%d of %d links are left out: %s.', count, total, why)
    return marks | {NOTEBOOK: notebook}


def words_of_pieces(
    spans: Sequence[Sequence[Span]], encoded: Any
) -> tuple[np.ndarray, dict[str, int]]:
    """Return the first of given words that each wordpiece overlaps [E, T], or -1, and counts.

    The counts are those of `count_pieces`.
    """
    counts = np.zeros(encoded.text.shape, np.int32)
    words: np.ndarray = counts - 1
    for row, (pieces, of_text) in enumerate(zip(_pieces_of(encoded), spans, strict=True)):
        inside = pieces.overlap(of_text)
        counts[row] = inside.sum(axis=0)
        if len(of_text):
            words[row] = np.where(counts[row] > 0, inside.argmax(axis=0), -1)
    written, total = encoded.text >= 0, sum(map(len, spans))
    empty = written & (encoded.offsets[..., 0] == encoded.offsets[..., 1])
    return words, {
        'sentences': len(spans),
        'words': total,
        'words without a wordpiece': total - sum(len(set(row[row >= 0])) for row in words),
        'wordpieces': int(written.sum()),
        'wordpieces of several words': int((counts > 1).sum()),
        'lone boundaries of words': int(empty.sum()),
        'wordpieces of no word': int((written & (counts == 0)).sum()),
    }


def align_classes(annotations: Sequence[Annotation], encoded: Any) -> np.ndarray | None:
    """Return the word class of a wordpiece [E, T] int8, -1 without one; None if none is known."""
    names = sorted({name for each in annotations for name, spans in each.classes.items() if spans})
    if not names:
        return None
    if len(names) > 127:
        raise ValueError(f'{len(names)} word classes, and at most 127 can be told apart.')
    classes = np.full(encoded.text.shape, -1, np.int8)
    for row, (pieces, annotation) in enumerate(zip(_pieces_of(encoded), annotations, strict=True)):
        for number, name in enumerate(names):
            classes[row, pieces.overlap(annotation.classes.get(name, ())).any(axis=0)] = number
    return classes


def _pieces_of(encoded: Any) -> list['_Pieces']:
    arrays = encoded.input_ids, encoded.offsets, encoded.text
    return [_Pieces(*each) for each in zip(*arrays, strict=True)]


@dataclasses.dataclass(frozen=True)
class _Pieces:
    """The wordpieces of one example: [T] ids, [T, 2] offsets, [T] texts."""

    ids: np.ndarray
    offsets: np.ndarray
    text: np.ndarray

    def overlap(self, spans: Sequence[Span]) -> np.ndarray:
        """[spans, T] whether a wordpiece has characters of a span."""
        start, end, text = _columns(spans)
        first, after = self.offsets[:, 0], self.offsets[:, 1]
        # A lone boundary of words has no characters, and belongs to the word that begins there.
        begins = (first == after) & (first == start)
        return (self.text == text) & (begins | ((first < end) & (start < after)))

    def spelled_as(self, spans: Sequence[Span], unknown: int | None) -> np.ndarray:
        """[T] whether a wordpiece is the same as one that is a whole span."""
        start, end, _ = _columns(spans)
        whole = (self.offsets[:, 0] == start) & (self.offsets[:, 1] == end)
        overlap = self.overlap(spans)
        single = overlap.sum(axis=1, keepdims=True) == 1
        found = self.ids[(overlap & whole & single).any(axis=0)]
        # An unknown word is spelled '[UNK]' among the wordpieces, so that no word is found there.
        return np.isin(self.ids, found[found != unknown]) & (self.text >= 0)

    def ends(self, links: Sequence[Link]) -> list[tuple[list[int], list[int]]]:
        """Positions of source and target of the links of which both are there."""
        # Each span once, however many links share it.
        spans = list({span: None for link in links for span in (*link.source, *link.target)})
        rows, columns = np.nonzero(self.overlap(spans))
        places: dict[Span, list[int]] = {}
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            places.setdefault(spans[row], []).append(column)

        def positions(end):
            return sorted({place for span in end for place in places.get(span, ())})

        ends = [(positions(link.source), positions(link.target)) for link in links]
        return [(source, target) for source, target in ends if source and target]

    def first_occurrence(self) -> list[int]:
        """[T] where the same wordpiece occurs first in the texts."""
        ids = np.where(self.text >= 0, self.ids, -1)
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        return first[inverse].tolist()


def _columns(spans: Sequence[Span]) -> np.ndarray:
    """[3, spans, 1] start, end and text."""
    rows = [(span.start, span.end, span.text) for span in spans]
    return np.array(rows, np.int64).reshape(-1, 3).T[:, :, None]


def _crossed(links) -> list[tuple[int, int, int]]:
    return [
        (query, key, number)
        for number, ends in enumerate(links)
        for query, key in itertools.product(*ends)
        if query != key
    ]


def _zipped(links, place: Sequence[int]) -> list[tuple[int, int, int]]:
    return [
        (place[query], place[key], number)
        for number, (source, target) in enumerate(links)
        for query, key in zip(source, target, strict=False)
    ]


def fill_up(pairs: Sequence[Sequence[tuple[int, int, int]] | np.ndarray]) -> np.ndarray:
    """Stack pairs [E, P, 3]; never to zero pairs, of which no statistic has a maximum."""
    shape = (len(pairs), max([1, *map(len, pairs)]), 1)
    stacked = np.tile(np.array([0, 0, -1], np.int32), shape)
    for row, of_example in zip(stacked, pairs, strict=True):
        row[: len(of_example)] = np.reshape(of_example, (-1, 3))
    return stacked


def read_annotations(
    path: AnyPath, *, bad_rows: str = 'error'
) -> tuple[list[Example], list[Annotation]]:
    """Read texts and their annotations from JSON lines (see the top of this module).

    Examples have no labels, and the ids '{file name without its extension}/{row}'. `bad_rows` and
    errors are as in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some lines are bad (one error names them all with their faults, unless `bad_rows`
        is 'skip'), the file is not UTF-8, or it has no lines.
    """
    read = list(good_rows(path, None, _read_line, bad_rows))
    # In the order of the file; a set has none.
    features = {name: () for _, one in read for name in one.features}
    relations = {name: () for _, one in read for name in one.relations}
    annotations = [
        dataclasses.replace(
            one, features=features | dict(one.features), relations=relations | dict(one.relations)
        )
        for _, one in read
    ]
    return [example for example, _ in read], annotations


def write_annotations(
    path: AnyPath, examples: Sequence[Example], annotations: Sequence[Annotation]
) -> None:
    """Write texts and their annotations as JSON lines; labels and ids are not written.

    Raises:
      ValueError: A span is not within its text; the error names the example.
    """
    check_annotations(examples, annotations)

    def spans(end):
        return [[s.start, s.end, s.text] if s.text else [s.start, s.end] for s in end]

    lines = []
    for example, annotation in zip(examples, annotations, strict=True):
        record = {
            'text_a': example.text_a,
            'text_b': example.text_b,
            'features': {name: spans(each) for name, each in annotation.features.items()},
            'relations': {
                name: [{end: spans(getattr(link, end)) for end in _ENDS} for link in links]
                for name, links in annotation.relations.items()
            },
            'classes': {name: spans(each) for name, each in annotation.classes.items()},
            'words': spans(annotation.words),
        }
        seldom = ('text_b', 'classes', 'words')
        kept = {key: each for key, each in record.items() if each or key not in seldom}
        lines.append(json.dumps(kept, ensure_ascii=False) + '\n')
    write_text(pathlib.Path(path), ''.join(lines))


def _read_line(record: dict[str, Any], identity: str, where: str) -> tuple[Example, Annotation]:
    for key in record:
        check_name('key', key, _KEYS)
    texts = record['text_a'], record.get('text_b')
    for name, text in zip(_TEXTS, texts, strict=True):
        is_text = isinstance(text, str) and text.strip()
        if not is_text and (name, text) != ('text_b', None):
            raise ValueError(f'{name!r} is not a text')
    example = Example(*texts, id=identity, where=where)
    annotation = Annotation(
        features=_named(record, 'features', 'feature', spans_of),
        relations=_named(record, 'relations', 'relation', _links),
        classes=_named(record, 'classes', 'class', spans_of),
        words=spans_of(record.get('words', []), 'words'),
    )
    check_spans(example, annotation)
    return example, annotation


def _named(record: dict, key: str, kind: str, read: Callable[[Any, str], tuple]) -> dict:
    found = of_kind(record.get(key, {}), dict, f'{key!r}: ')
    return {name: read(value, f'{kind} {name!r}') for name, value in found.items()}


def _links(values: Any, what: str) -> tuple[Link, ...]:
    links = []
    for value in of_kind(values, list, f'{what}: '):
        for key in of_kind(value, dict, f'{what}: a link: '):
            check_name('key', key, _ENDS)
        links.append(Link(*(spans_of(value.get(end, []), f'{what}, {end}') for end in _ENDS)))
    return tuple(links)


def spans_of(values: Any, what: str) -> tuple[Span, ...]:
    """Return the spans of a list in JSON, or raise a ValueError that says what is meant."""
    spans = []
    for value in of_kind(values, list, f'{what}: '):
        # Not isinstance: to Python, true is an int.
        numbers = isinstance(value, list) and all(type(number) is int for number in value)
        if not numbers or len(value) not in (2, 3):
            raise ValueError(
                f'{what}: {json.dumps(value)} is not [start, end] or [start, end, text]'
            )
        spans.append(Span(*value))
    return tuple(spans)
