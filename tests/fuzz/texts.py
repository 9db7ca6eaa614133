"""Tables of sentences, annotations, and prepared frames."""

import csv
import io
import json
import math
import pathlib
import random
import re
from typing import Any

from tests.fuzz import mutate
from tests.fuzz.target import Target, filled, integer, plain_json, require, visible

_COLUMNS = ('id', 'sentence', 'label', 'note')
_SENTENCES = (
    'The cat saw a dog.',
    'It said "no", twice, and left.',
    'Ça va? Über-größe \u4f60\u597d \U0001f600',
    ' A text with spaces at its ends ',
    "=SUM(A1) is no formula, it's a text",
    'A tab is not here, a comma is',
)


def _rows(number: int) -> list[tuple[str, str, str, str]]:
    return [
        (str(row), sentence, str((row + number) % 2), f'note {row * number}')
        for row, sentence in enumerate(_SENTENCES)
    ]


def table_text(suffix: str, rows) -> str:
    """Return a table with the columns of the sample, in the format of a suffix."""
    if suffix == 'jsonl':
        records = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
        return ''.join(json.dumps(record, ensure_ascii=False) + '\n' for record in records)
    if suffix == 'tsv':
        return ''.join('\t'.join(row) + '\n' for row in [_COLUMNS, *rows])
    out = io.StringIO()
    csv.writer(out, lineterminator='\n').writerows([_COLUMNS, *rows])
    return out.getvalue()


_LABELS = (
    '-1', '1000000000', str(10**400), '9' * 5000, '0.5', 'NaN', 'inf', '1e400', '1_0', '\u0661',
    'no', '', ' 1 ', '1.0', '0x1', 'True', '+1', '1e3', '--1', '1\x00', '\u00b2', '-0', 'null',
    '.5',
    '1,5',
)  # fmt: skip
_TEXTS = (
    '', ' ', '\u200b', '\u200b\u200d\ufeff', '\x00', 'a\x00b', '"', 'a"b', '""', '\u2028',
    'a\u2028b', '\x85', 'a\rb', '\ufeffa', '\u202eabc', '\x1b[31m', 'x' * 100_000, ',', '\\', "'",
    '\x0b', 'a\x0cb',
)  # fmt: skip


def _change_table(rng: random.Random, folder: pathlib.Path, suffix: str) -> str:
    file = folder / f'texts.{suffix}'
    rows = _rows(0)
    row = rng.randrange(len(rows))
    match rng.randrange(14):
        case 0 | 1 | 2 | 3:
            return mutate.damage_file(rng, folder, file.name)
        case 4 | 5:
            # One label, or all of them: a column of -1 and 1, or of floats.
            label = rng.choice(_LABELS)
            every = rng.randrange(3) == 0
            rows = [
                (*each[:2], label if every or place == row else each[2], each[3])
                for place, each in enumerate(rows)
            ]
            how = f'label {label[:20]!r}'
        case 6 | 7:
            text = rng.choice(_TEXTS)
            if not rng.randrange(60):
                text = 'long ' * 2_000_000
            rows[row] = (rows[row][0], text, *rows[row][2:])
            how = f'text {text[:10]!r}'
        case 8:
            encoding = rng.choice(
                ('utf-8-sig', 'utf-16', 'utf-16-le', 'utf-32', 'latin-1', 'cp1252')
            )
            data = table_text(suffix, rows).encode(encoding, 'replace')
            file.write_bytes(rng.choice((b'', b'\xef\xbb\xbf')) + data)
            return f'{encoding}:'
        case 9:
            text = table_text(suffix, rows)
            how, text = rng.choice(
                (
                    ('line ends of Windows', text.replace('\n', '\r\n')),
                    ('line ends of old', text.replace('\n', '\r')),
                    ('no last line end', text[:-1]),
                    ('blank lines', text.replace('\n', '\n\n')),
                    ('lines of spaces', text.replace('\n', '\n  \n')),
                    ('only the header', text.partition('\n')[0] + '\n'),
                    ('header twice', text.partition('\n')[0] + '\n' + text),
                    ('no header', text.partition('\n')[2]),
                    ('a column twice', text.replace('note', 'label')),
                    ('another column', text.replace('sentence', 'Sentence')),
                    ('a column of spaces', text.replace('sentence', ' sentence')),
                    ('no labels', text.replace('label', 'class')),
                    ('another separator', text.replace(',', ';').replace('\t', ' ')),
                    ('a field more', text.replace('note 0', 'note 0,x\tx')),
                    ('a quote', text.replace('cat', '"cat')),
                    ('a quote before', text.replace('The cat', '"The cat')),
                    ('quotes', text.replace('The cat', '"The" cat')),
                    ('a NUL', text.replace('cat', 'c\x00t')),
                    ('a number for a text', text.replace('"The cat saw a dog."', '12')),
                    ('null', text.replace('"The cat saw a dog."', 'null')),
                    ('a list', text.replace('"The cat saw a dog."', '["a"]')),
                    ('half of a pair', text.replace('cat', r'c\ud83d')),
                )
            )
            file.write_bytes(text.encode())
            return f'{how}:'
        case 10 | 11 | 12 if suffix == 'jsonl':
            return mutate.change_json_line(rng, file)
        case 10:
            fields = list(rows[row])
            del fields[rng.randrange(4)]
            rows[row] = tuple(fields)
            how = 'a field fewer'
        case 11:
            rows[row] = (*rows[row], rng.choice(('', 'more')))
            how = 'a field more'
        case _:
            rows[row], rows[row - 1] = rows[row - 1], rows[row]
            how = 'rows swapped'
    if suffix == 'jsonl' and len(rows[row]) != 4:
        rows[row] = (*rows[row][:3], 'x')
    file.write_bytes(table_text(suffix, rows).encode('utf-8', 'surrogatepass'))
    return f'{how}:'


def _example(example) -> tuple:
    return example.text_a, example.text_b, example.label, example.id


def _read_table(folder: pathlib.Path, suffix: str) -> list[tuple]:
    import bert_secrets_jax as bs

    file = folder / f'texts.{suffix}'
    return [_example(each) for each in bs.read_table(file, text_a='sentence', label='label')]


def split_csv(text: str) -> list[list[str]]:
    """Split a CSV as RFC 4180 says, without the module `csv`; blank lines are no rows.

    Raises:
      ValueError: Quotes do not match, or a line ends in a carriage return alone.
    """
    rows: list[list[str]] = []
    fields: list[str] = []
    place, ended = 0, True
    while place < len(text):
        if text[place] == '"':
            found = re.compile('"((?:[^"]|"")*+)"').match(text, place)
            require(found, 'a quote that is not closed')
            field = found[1].replace('""', '"')
        else:
            found = re.compile('[^,\r\n]*').match(text, place)
            field = found[0]
        quoted, place = text[place] == '"', found.end()
        fields.append(field)
        ending = re.compile(',|\r?\n|$').match(text, place)
        require(ending, 'letters behind a quote, or a carriage return alone')
        place, ended = ending.end(), ending[0] != ','
        if ended:
            # A line without anything is no row.
            if quoted or fields != ['']:
                rows.append(fields)
            fields = []
    if not ended:
        rows.append([*fields, ''])
    return rows


def _plain_table(folder: pathlib.Path, suffix: str) -> list[tuple]:
    text = (folder / f'texts.{suffix}').read_bytes().decode('utf-8').removeprefix('\ufeff')
    if suffix == 'jsonl':
        records = [plain_json(line) for line in text.split('\n') if line.strip()]
        require(all(isinstance(record, dict) for record in records))
        pairs = [(_spelled(each['sentence']), _spelled(each['label'])) for each in records]
    else:
        rows = (
            split_csv(text)
            if suffix == 'csv'
            else [
                line.removesuffix('\r').split('\t') for line in text.split('\n') if line.strip('\r')
            ]
        )
        header, *rows = rows
        require(header.count('sentence') == header.count('label') == 1, header)
        require(all(len(row) == len(header) for row in rows), 'fields')
        places = header.index('sentence'), header.index('label')
        pairs = [tuple(row[place] for place in places) for row in rows]
    require(pairs)
    labels = [label.strip() for _, label in pairs]
    if all(re.fullmatch('[+-]?[0-9]+', label) for label in labels):
        values: list[Any] = list(map(int, labels))
    else:
        values = list(map(float, labels))
        require(all('_' not in label and label.isascii() for label in labels))
        require(all(map(math.isfinite, values)))
    return [
        (filled(text), None, label, f'texts/{row}')
        for row, ((text, _), label) in enumerate(zip(pairs, values, strict=True))
    ]


def _spelled(value: Any) -> str:
    """Return a value as the package documents it: numbers and truth values as JSON has them."""
    require(value is not None and not isinstance(value, list | dict))
    text = value if isinstance(value, str) else json.dumps(value)
    require(text not in ('NaN', 'Infinity', '-Infinity') or isinstance(value, str))
    return text


_ANNOTATED = (
    {
        'text_a': 'The cat saw itself.',
        'features': {'noun': [[4, 7]], 'verb': [[8, 11]]},
        'relations': {'coreference': [{'source': [[12, 18]], 'target': [[4, 7]]}]},
        'note': {'by': 'hand'},
    },
    {
        'text_a': 'A dog ran.',
        'text_b': 'It was not happy \U0001f600.',
        'features': {'noun': [[2, 5], [3, 6, 1]]},
        'relations': {
            'coreference': [{'source': [[0, 2, 1]], 'target': [[2, 5]]}],
            'subject': [{'source': [[6, 9]], 'target': [[0, 1], [2, 5]]}],
        },
    },
    {'text_a': 'Nothing is here.'},
)
_FRAMES = (
    {'sentence': 'He was agitated .', 'target_span': [7, 15], 'link_spans': [[0, 2]]},
    {'sentence': 'Über allem lag Ruh', 'target_span': [11, 14], 'link_spans': [[0, 4], [15, 18]]},
    {'sentence': 'a dog barks', 'target_span': [6, 11], 'link_spans': [[0, 5]], 'frame': 'Sounds'},
)


def _make_lines(file: pathlib.Path, records, number: int) -> None:
    chosen = records[::-1] if number else records
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(''.join(json.dumps(each, ensure_ascii=False) + '\n' for each in chosen))


def _change_lines(rng: random.Random, folder: pathlib.Path, name: str, others) -> str:
    file = folder / name
    match rng.randrange(8):
        case 0 | 1:
            return mutate.damage_file(rng, folder, name)
        case 2:
            text = file.read_text(encoding='utf-8')
            how, data = rng.choice(
                (
                    ('line ends of Windows', text.replace('\n', '\r\n').encode()),
                    ('line ends of old', text.replace('\n', '\r').encode()),
                    ('utf-8-sig', text.encode('utf-8-sig')),
                    ('utf-16', text.encode('utf-16')),
                    ('latin-1', text.encode('latin-1', 'replace')),
                    ('blank lines', text.replace('\n', '\n \n').encode()),
                    ('one list', ('[' + text.strip().replace('\n', ',') + ']').encode()),
                    ('indented', json.dumps(json.loads(text.split('\n')[0]), indent=2).encode()),
                    ('other format', b''.join(json.dumps(o).encode() + b'\n' for o in others)),
                    ('other format behind', (text + json.dumps(others[0])).encode()),
                    ('other format before', (json.dumps(others[0]) + '\n' + text).encode()),
                )
            )
            file.write_bytes(data)
            return f'{how}:'
        case 3:
            lines = file.read_text(encoding='utf-8').splitlines()
            row = rng.randrange(len(lines))
            record = json.loads(lines[row])
            key = 'sentence' if 'sentence' in record else 'text_a'
            record[key] = rng.choice(_TEXTS)
            lines[row] = json.dumps(record)
            file.write_text('\n'.join(lines) + '\n')
            return f'text {record[key][:10]!r}:'
    return mutate.change_json_line(rng, file)


def _facts(examples, annotations) -> list:
    def spans(end):
        return [(span.start, span.end, span.text) for span in end]

    return [
        (
            _example(example),
            {name: spans(end) for name, end in annotation.features.items()},
            {
                name: [(spans(link.source), spans(link.target)) for link in links]
                for name, links in annotation.relations.items()
            },
        )
        for example, annotation in zip(examples, annotations, strict=True)
    ]


def _read_annotations(folder: pathlib.Path) -> list:
    import bert_secrets_jax as bs

    return _facts(*bs.read_annotations(folder / 'annotated.jsonl'))


def _read_frames(folder: pathlib.Path) -> list:
    import bert_secrets_jax as bs

    return _facts(*bs.read_framenet_sample(folder / 'frames.jsonl'))


def _lines(file: pathlib.Path) -> list[dict]:
    text = file.read_bytes().decode('utf-8-sig')
    records = [plain_json(line) for line in text.split('\n') if line.strip()]
    require(records and all(isinstance(record, dict) for record in records))
    return records


def _span(value: Any, texts: list[str | None]) -> tuple[int, int, int]:
    require(isinstance(value, list) and len(value) in (2, 3), value)
    start, end, which = (*value, 0)[:3]
    text = texts[integer(which, 0, 1)]
    require(text is not None)
    integer(start, 0, integer(end, 1, len(text)) - 1)
    return start, end, which


def _spans(values: Any, texts: list[str | None]) -> list:
    require(isinstance(values, list), values)
    return [_span(value, texts) for value in values]


def _plain_annotations(file: pathlib.Path) -> list:
    read = []
    for row, record in enumerate(_lines(file)):
        require(set(record) <= {'text_a', 'text_b', 'features', 'relations', 'note'}, record)
        texts = [filled(record['text_a']), record.get('text_b')]
        require(texts[1] is None or filled(texts[1]))
        features, relations = record.get('features', {}), record.get('relations', {})
        require(isinstance(features, dict) and isinstance(relations, dict))
        require(not features.keys() & relations.keys())
        for name in [*features, *relations]:
            taken = ('token', 'cls', 'sep', 'word', 'notebook', 'random')
            require(visible(name) not in taken, name)
        linked = {}
        for name, links in relations.items():
            require(isinstance(links, list), links)
            linked[name] = []
            for link in links:
                require(isinstance(link, dict) and set(link) == {'source', 'target'}, link)
                ends = _spans(link['source'], texts), _spans(link['target'], texts)
                require(all(ends))
                linked[name].append(ends)
        marked = {name: _spans(values, texts) for name, values in features.items()}
        read.append(((*texts, None, f'{file.stem}/{row}'), marked, linked))
    names = [{name for each in read for name in each[part]} for part in (1, 2)]
    require(not names[0] & names[1])
    return [
        (
            example,
            *(
                {name: part.get(name, []) for name in all_}
                for part, all_ in zip(parts, names, strict=True)
            ),
        )
        for example, *parts in read
    ]


def _plain_frames(file: pathlib.Path) -> list:
    records = _lines(file)
    if 'sentence' not in records[0]:
        read = _plain_annotations(file)
        require(any(links for _, _, relations in read for links in relations.values()))
        return read
    read = []
    for row, record in enumerate(records):
        texts = [filled(record['sentence'])]
        target = _span(record['target_span'], texts)
        elements = _spans(record['link_spans'], texts)
        require(all(len(value) == 2 for value in [record['target_span'], *record['link_spans']]))
        links = [([element], [target]) for element in elements]
        name = 'frame element-target'
        read.append(((*texts, None, None, f'{file.stem}/{row}'), {}, {name: links}))
    require(any(relations[name] for _, _, relations in read))
    return read


def _table(suffix: str) -> Target:
    def make(folder, number):
        folder.mkdir(parents=True, exist_ok=True)
        text = table_text(suffix, _rows(number))
        (folder / f'texts.{suffix}').write_text(text, encoding='utf-8')

    return Target(
        suffix,
        make,
        lambda rng, folder: _change_table(rng, folder, suffix),
        lambda folder: _read_table(folder, suffix),
        lambda folder: _plain_table(folder, suffix),
    )


TABLES = tuple(map(_table, ('csv', 'tsv', 'jsonl')))
ANNOTATIONS = Target(
    'annotations',
    lambda folder, number: _make_lines(folder / 'annotated.jsonl', _ANNOTATED, number),
    lambda rng, folder: _change_lines(rng, folder, 'annotated.jsonl', _FRAMES),
    _read_annotations,
    lambda folder: _plain_annotations(folder / 'annotated.jsonl'),
)
FRAMES = Target(
    'frames',
    lambda folder, number: _make_lines(folder / 'frames.jsonl', _FRAMES, number),
    lambda rng, folder: _change_lines(rng, folder, 'frames.jsonl', _ANNOTATED),
    _read_frames,
    lambda folder: _plain_frames(folder / 'frames.jsonl'),
)
