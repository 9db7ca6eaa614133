"""Tables of sentences and annotations, of any text and any bytes."""

import csv
import functools
import io
import json
import pathlib
import re
from typing import Any

import pandas as pd
from hypothesis import example
from hypothesis import strategies as st

import bert_secrets_jax as bs
from tests.fuzz.broken import Format, filled, integer, number, plain_json, require, visible
from tests.fuzz.damage import broken, changed_line, changes, encoded, respelled

_COLUMNS = ('id', 'sentence', 'label', 'note')
_SENTENCES = (
    'The cat saw a dog.',
    'It said "no", twice, and left.',
    'Ça va? Über-größe \u4f60\u597d \U0001f600',
    ' A text with spaces at its ends ',
    "=SUM(A1) is no formula, it's a text",
)


_ROWS = [(f'{row}', text, f'{row % 2}', f'note {row}') for row, text in enumerate(_SENTENCES)]


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


_ODD = (
    '-1', '1000000000', str(10**400), '9' * 5000, 'NaN', 'inf', '1e400', '1_0', '\u0661', '', ' 1 ',
    '0x1', 'True', '+1', '1e3', '1\x00', '\u00b2', '-0', 'null', '1,5', '\u200b\u200d\ufeff', '"',
    'a"b', '""', 'a\u2028b', '\x85', 'a\rb', '\ufeffa', '\u202eabc', '\x1b[31m', 'a\x0cb', '\ud800',
)  # fmt: skip
# What stands in a table, and what in its place makes it another, or none.
_EDITS = (
    ('note', 'label'), ('sentence', 'Sentence'), ('sentence', ' sentence'), ('label', 'class'),
    (',', ';'), ('\t', ' '), ('note 0', 'note 0,x\tx'), ('cat', '"cat'), ('The cat', '"The cat'),
    ('The cat', '"The" cat'), ('"The cat saw a dog."', '12'), ('"The cat saw a dog."', 'null'),
    ('"The cat saw a dog."', '["a"]'), ('cat', r'c\ud83d'), ('0,', ''), ('0\t', ''),
)  # fmt: skip


@st.composite
def other_tables(draw, suffix: str) -> bytes:
    """A table with another cell, a column of such cells, or rows missing or there twice."""
    rows = [list(row) for row in _ROWS]
    numbers = st.integers().map(str) | st.floats().map(str)
    odd = draw(st.sampled_from(_ODD) | st.text(max_size=20) | numbers)
    column, row = draw(st.integers(0, 3)), draw(st.integers(0, len(rows) - 1))
    for place in draw(st.sampled_from(([row], range(len(rows))))):
        rows[place][column] = odd
    rows = draw(st.sampled_from((rows, rows, rows[:row], rows + rows[row:])))
    return encoded(table_text(suffix, rows))


def _plain_table(folder: pathlib.Path, suffix: str) -> list[bs.Example]:
    text = (folder / f'texts.{suffix}').read_bytes().decode('utf-8').removeprefix('\ufeff')
    if suffix == 'jsonl':
        records = _records(text)
        pairs = [(_spelled(each['sentence']), _spelled(each['label'])) for each in records]
    else:
        if suffix == 'csv':
            found = pd.read_csv(io.StringIO(text), header=None, dtype=str, keep_default_na=False)
            header, *rows = found.to_numpy().tolist()
        else:
            lines = [line for line in text.split('\n') if line.strip('\r')]
            header, *rows = (line.removesuffix('\r').split('\t') for line in lines)
        require(header.count('sentence') == header.count('label') == 1, header)
        require(all(len(row) == len(header) for row in rows), 'fields')
        pairs = [(row[header.index('sentence')], row[header.index('label')]) for row in rows]
    labels = [label.strip() for _, label in pairs]
    require(labels and all('_' not in label and label.isascii() for label in labels))
    whole = all(re.fullmatch('[+-]?[0-9]+', label) for label in labels)
    return [
        bs.Example(
            filled(text), None, int(label) if whole else number(float(label)), f'texts/{row}'
        )
        for row, ((text, _), label) in enumerate(zip(pairs, labels, strict=True))
    ]


def _spelled(value: Any) -> str:
    """Return a value as the package documents it: numbers and truth values as JSON has them."""
    require(value is not None and not isinstance(value, list | dict))
    text = value if isinstance(value, str) else json.dumps(value)
    require(text not in ('NaN', 'Infinity', '-Infinity') or isinstance(value, str))
    return text


def _table(suffix: str) -> Format:
    def make(folder):
        (folder / f'texts.{suffix}').write_text(table_text(suffix, _ROWS), encoding='utf-8')

    def read(folder):
        return bs.read_table(folder / f'texts.{suffix}', text_a='sentence', label='label')

    return Format(make, read, functools.partial(_plain_table, suffix=suffix))


CSV, TSV, JSONL = map(_table, ('csv', 'tsv', 'jsonl'))


def tables(kind: Format, suffix: str, *how) -> st.SearchStrategy[dict[str, bytes | str]]:
    def other(data):
        return other_tables(suffix)

    def spelled(data):
        return respelled(data.decode(), *_EDITS)

    return changes(kind, f'texts.{suffix}', other, spelled, *how)


@broken(tables(CSV, 'csv'), share=3)
@example({'texts.csv': b'label,sentence\n1,"' + b'x' * 200_000 + b'"\n'})
@example({'texts.csv': b'sentence,label\n'})
@example({'texts.csv': b'sentence,label\ncat,0\ndog,"1\n'})
@example({'texts.csv': b'sentence,label\ncat,0\rdog,1\r'})
def test_csv(changed):
    CSV.check(changed)


@broken(tables(TSV, 'tsv'), share=2)
def test_tsv(changed):
    TSV.check(changed)


@broken(tables(JSONL, 'jsonl', changed_line), share=3)
def test_jsonl(changed):
    JSONL.check(changed)


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


def _records(text: str) -> list[dict]:
    records = [plain_json(line) for line in text.split('\n') if line.strip()]
    require(records and all(isinstance(record, dict) for record in records))
    return records


def _lines(folder: pathlib.Path) -> list[dict]:
    return _records((folder / FILE).read_bytes().decode('utf-8-sig'))


def _span(value: Any, texts: list[str | None]) -> bs.Span:
    require(isinstance(value, list) and len(value) in (2, 3), value)
    start, end, which = (*value, 0)[:3]
    text = texts[integer(which, 0, 1)]
    require(text is not None)
    integer(start, 0, integer(end, 1, len(text)) - 1)
    return bs.Span(start, end, which)


def _spans(values: Any, texts: list[str | None]) -> tuple[bs.Span, ...]:
    require(isinstance(values, list), values)
    return tuple(_span(value, texts) for value in values)


def _plain_annotations(folder: pathlib.Path) -> tuple[list, list]:
    examples, read = [], []
    for row, record in enumerate(_lines(folder)):
        require(set(record) <= {'text_a', 'text_b', 'features', 'relations', 'note'}, record)
        texts = [filled(record['text_a']), record.get('text_b')]
        require(texts[1] is None or filled(texts[1]))
        features, relations = record.get('features', {}), record.get('relations', {})
        require(isinstance(features, dict) and isinstance(relations, dict))
        for name in [*features, *relations]:
            taken = ('token', 'cls', 'sep', 'word', 'period_comma', 'notebook', 'random')
            require(visible(name) not in taken, name)
        linked = {}
        for name, links in relations.items():
            require(isinstance(links, list), links)
            require(all(isinstance(link, dict) and len(link) == 2 for link in links), links)
            ends = [[_spans(link[end], texts) for end in ('source', 'target')] for link in links]
            require(all(map(all, ends)))
            linked[name] = [bs.Link(*each) for each in ends]
        read.append(({name: _spans(each, texts) for name, each in features.items()}, linked))
        examples.append(bs.Example(*texts, id=f'lines/{row}'))
    names = [{name: () for each in read for name in each[part]} for part in (0, 1)]
    require(not names[0].keys() & names[1].keys())
    return examples, [bs.Annotation(names[0] | one, names[1] | other) for one, other in read]


def _make(folder: pathlib.Path, records) -> None:
    lines = [json.dumps(each, ensure_ascii=False) + '\n' for each in records]
    (folder / FILE).write_text(''.join(lines), encoding='utf-8')


FILE = 'lines.jsonl'
ANNOTATIONS = Format(
    functools.partial(_make, records=_ANNOTATED),
    lambda folder: bs.read_annotations(folder / FILE),
    _plain_annotations,
)


def other_lines(data: bytes) -> st.SearchStrategy[bytes]:
    """Lines of another format, before, behind or in place of these; or as one value of JSON."""
    text = data.decode()
    whole = json.dumps([json.loads(line) for line in text.splitlines()], indent=1)
    more = [
        json.dumps(record) + '\n'
        for record in ({'sentence': 'a dog barks', 'target_span': [6, 11]}, *_ANNOTATED)
    ]
    found = [*(line + text for line in more), *(text + line for line in more), *more, whole]
    return st.sampled_from([encoded(each) for each in found]) | respelled(text)


@broken(changes(ANNOTATIONS, FILE, other_lines, changed_line, changed_line), share=2)
def test_annotations(changed):
    ANNOTATIONS.check(changed)


_PAIRS = tuple(
    {'good': text, 'bad': f'{text} not', 'phenomenon': f'{row % 2}', 'note': row}
    for row, text in enumerate(_SENTENCES)
)


def _columns(folder: pathlib.Path, *names: str) -> list[list[str]]:
    return [[filled(_spelled(each[name])) for name in names] for each in _lines(folder)]


def _plain_pairs(folder: pathlib.Path) -> list[bs.MinimalPair]:
    rows = _columns(folder, 'good', 'bad', 'phenomenon')
    require(all(good != bad for good, bad, _ in rows))
    return [bs.MinimalPair(*row, id=f'lines/{at}') for at, row in enumerate(rows)]


PAIRS = Format(
    functools.partial(_make, records=_PAIRS),
    lambda folder: bs.read_pairs(folder / FILE),
    _plain_pairs,
)


@broken(changes(PAIRS, FILE, other_lines, changed_line), share=2)
def test_pairs(changed):
    PAIRS.check(changed)


def _plain_search(folder: pathlib.Path) -> tuple:
    rows = _columns(folder, '_id', 'text', 'answers')
    texts = {name: text for name, text, _ in rows}
    require(len(texts) == len(rows) and {row[2] for row in rows} <= texts.keys())
    return texts, texts, [(query, document) for document, _, query in rows]


SEARCH = Format(
    functools.partial(
        _make,
        records=[
            {'_id': f'd{at}', 'text': text, 'answers': f'd{at // 2}'}
            for at, text in enumerate(_SENTENCES)
        ],
    ),
    lambda folder: bs.read_search(*[folder / FILE] * 3, columns=('_id', 'text', 'answers', '_id')),
    _plain_search,
)


@broken(changes(SEARCH, FILE, other_lines, changed_line), share=2)
@example({FILE: b'{"_id": "d0", "text": "a cat", "answers": "d0"}\n' * 2})
def test_search(changed):
    SEARCH.check(changed)


_TREES = """# text = The cat doesn't see "it".
1\tThe\tthe\tDET\t_\tDefinite=Def\t2\tdet\t_\t_
2\tcat\tcat\tNOUN\t_\t_\t5\tnsubj\t_\t_
3-4\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_
3\tdoes\tdo\tAUX\t_\t_\t5\taux\t_\t_
4\tn't\tnot\tPART\t_\tPolarity=Neg\t5\tadvmod\t_\t_
5\tsee\tsee\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No
5.1\tseen\t_\t_\t_\t_\t_\t_\t0:root\t_
6\t.\t.\tPUNCT\t_\t_\t5\tpunct\t_\t_

# text = Über \u4f60
1\tÜber\tüber\tADP\t_\t_\t2\tcase\t_\t_
2\t\u4f60\t\u4f60\tPRON\t_\tCase=Acc|Number=Sing\t0\troot\t_\t_
"""
_TREE_EDITS = (
    ('\t5\t', '\t50\t'), ('\t5\t', '\t-1\t'), ('\t0\t', '\t1\t'), ('\tdet\t', '\t_\t'),
    ('\t2\tdet', '\t0\troot'), ('\tdet\t', '\troot\t'), ('DET', '_'),
    ('5.1', '5-1'), ('5.1', '5.9'), ('5.1', '0.1'), ('3-4', '4-3'), ('3-4', '3-40'), ('3-4', '1-4'),
    ('\t', '  '), ('\t', ' '), ('\tcat', '\t\t'), ('cat', 'the cat'), ('1\tThe', '01\tThe'),
    ('SpaceAfter=No', 'SpaceAfter=Yes'), ('Polarity=Neg', 'Neg'), ('Polarity=Neg', 'A=B|A=C'),
    ('\n\n', '\n'), ('# text', 'text'), ('# text =', '# global.columns = ID FORM HEAD DEPREL\n#'),
)  # fmt: skip


def _plain_features(text: str) -> dict[str, str]:
    pairs = [each.partition('=') for each in text.split('|') if text not in ('', '_')]
    require(all(name and value and '=' not in value for name, _, value in pairs), text)
    require(len({name for name, *_ in pairs}) == len(pairs), text)
    return {name: value for name, _, value in pairs}


def _plain_trees(folder: pathlib.Path) -> list:
    """Read CoNLL-U as its guidelines have it: ten columns, and numbers that count on."""
    text = (folder / 'trees.conllu').read_bytes().decode().removeprefix('\ufeff')
    read = []
    for block in re.split(r'\n\s*\n', text.replace('\r\n', '\n').strip()):
        rows = [line.split('\t') for line in block.split('\n') if not line.startswith('#')]
        require(rows and all(len(row) == 10 and row[1] for row in rows), rows)
        words = [row for row in rows if row[0].isdecimal()]
        require([row[0] for row in words] == [f'{at}' for at in range(1, len(words) + 1)])
        require(all(row[6].isdecimal() for row in words))
        heads = [integer(int(row[6]), 0, len(words)) for row in words]
        reached = {0}
        for _ in heads:
            reached |= {at for at, head in enumerate(heads, 1) if head in reached}
        require(len(reached) == len(heads) + 1, 'a circle')
        written, end = '', 0
        for row in rows:
            inside = row[0].isdecimal() and int(row[0]) <= end
            first, _, last = row[0].partition('-')
            end = integer(int(last), int(first) + 1, len(words)) if last else end
            if not inside and '.' not in row[0]:
                written += row[1] + ' ' * ('SpaceAfter=No' not in row[9].split('|'))
        require(all(row[7] not in ('', '_') for row in words) and heads.count(0) == 1)
        require(all((int(row[6]) == 0) == (row[7] == 'root') for row in words))
        features = [_plain_features(row[5]) for row in words]
        columns = [tuple(row[at] for row in words) for at in (1, 7)]
        columns.append(tuple('X' if row[3] in ('', '_') else row[3] for row in words))
        read.append((written.strip(' '), *columns, tuple(heads), features))
    return read


def _read_trees(folder: pathlib.Path) -> list:
    return [
        (
            each.example.text_a, each.forms, each.relations, each.classes,
            tuple(head + 1 for head in each.heads), list(each.features),
        )
        for each in bs.read_treebank(folder / 'trees.conllu')
    ]  # fmt: skip


TREES = Format(
    lambda folder: (folder / 'trees.conllu').write_text(_TREES, encoding='utf-8'),
    _read_trees,
    _plain_trees,
)


@broken(
    changes(TREES, 'trees.conllu', *[lambda data: respelled(data.decode(), *_TREE_EDITS)] * 2),
    share=2,
)
def test_trees(changed):
    TREES.check(changed)
