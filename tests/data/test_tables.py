"""Reading tables: what is kept to the letter, and how every bad row is named."""

import re

import pytest

from bert_secrets_jax.data import tables
from bert_secrets_jax.data.tasks import Example


def write(path, text, encoding='utf-8'):
    path.write_bytes(text.encode(encoding))
    return path


def pairs(path, **options):
    return tables.read_table(path, text_a='left', text_b='right', label='gold', **options)


# Some of these only Python reads as numbers.
BAD = ('warm', '1_0', '\u0661', 'nan', 'inf', '1e999', '0x1', '1,5')
GOOD_TSV = 'left\tright\tgold\nA kettle sings.\tTea.\tyes\nIt rains.\tStay here.\tno\n'


@pytest.mark.parametrize(
    ('name', 'text', 'rows'),
    [
        ('x.tsv', GOOD_TSV, [('A kettle sings.', 'Tea.', 1), ('It rains.', 'Stay here.', 0)]),
        # There are no quotes in it.
        (
            'x.tsv',
            'left\tgold\tright\n"Well, he began.\tyes\tHe "stayed"\nShe left.\tno\t"\n',
            [('"Well, he began.', 'He "stayed"', 1), ('She left.', '"', 0)],
        ),
        (
            'x.csv',
            'gold,left,right\nyes,"Milk, then tea.","She said ""no""."\nno,"Two\nlines",One line\n',
            [('Milk, then tea.', 'She said "no".', 1), ('Two\nlines', 'One line', 0)],
        ),
        (
            'x.jsonl',
            '{"gold": "yes", "left": "Köln ist alt.", "right": "A tab\\tinside"}\n\n'
            '{"left": "Up", "right": "Down", "gold": "no", "extra": [1, 2]}',
            [('Köln ist alt.', 'A tab\tinside', 1), ('Up', 'Down', 0)],
        ),
    ],
)
def test_what_is_read_of_each_format(tmp_path, name, text, rows):
    path = write(tmp_path / name, text)
    assert pairs(path, labels=('no', 'yes')) == [
        Example(*row, f'x/{number}') for number, row in enumerate(rows)
    ]
    # Without a label, without a second text, and under another name.
    assert tables.read_table(path, text_a='right', name='a/b') == [
        Example(text_b, None, None, f'a/b/{number}') for number, (_, text_b, _) in enumerate(rows)
    ]


def read_labels(tmp_path, *column, **options):
    rows = ''.join(f'Some words\t{label}\n' for label in column)
    path = write(tmp_path / 'x.tsv', f's\ty\n{rows}')
    return [each.label for each in tables.read_table(path, text_a='s', label='y', **options)]


@pytest.mark.parametrize(
    ('column', 'labels', 'expected'),
    [
        (['3', '0', '-1'], None, [3, 0, -1]),
        (['3', '0.5', '1e-1'], None, [3.0, 0.5, 0.1]),
        (['4', '4.75'], (), [4.0, 4.75]),
        (['1', '0'], ('no', 'yes'), [1, 0]),
        # Where a name is spelt like a number, labels are names.
        (['1', '0'], ('1', '0'), [0, 1]),
    ],
)
def test_labels(tmp_path, column, labels, expected):
    found = read_labels(tmp_path, *column, labels=labels)
    assert found == expected and {type(label) for label in found} == {type(expected[0])}


@pytest.mark.parametrize(
    ('column', 'labels', 'fault'),
    [
        (['1'], ('no',), "unknown label '1', expected one of no"),
        # A label that is neither is the only bad one.
        (['1', '?', ' 0'], ('no', 'yes'), r"1 of 3 .* line 3: .* '\?', .* no, yes, or a numb"),
        (['1'], ('no', 'no'), "labels has 'no' twice: each is one class"),
        *((['4', score], (), f'line 3: label {score!r} is not a finite num') for score in BAD),
        *((['1', score], None, f'line 3: label {score!r} is not a finite num') for score in BAD),
        (['1', 'a', 'b'], None, r"not all numbers: '1', 'a', 'b'.*labels=\("),
    ],
)
def test_labels_that_are_refused(tmp_path, untyped, column, labels, fault):
    with pytest.raises(ValueError, match=fault):
        read_labels(tmp_path, *column, labels=labels)


@pytest.mark.parametrize(
    ('texts', 'train', 'expected'),
    [
        ('pos neg', 'neg pos meh', ('meh', 'neg', 'pos')),
        ('True False', None, ('False', 'True')),
        # Numbers stay numbers: of classes, however they are spelt, and of a regression.
        ('1 0', '0 +1', ()),
        ('1 2.5', '1.0 2', ()),
        ('1 2.5 nan', None, ()),
        ('neg', 'neg pos', ('neg', 'pos')),
        ('pos meh', 'neg pos', r"texts\.tsv, line 3: label 'meh' is in no row of .*train\.tsv, w"),
        ('1 2', '0 1', r"texts\.tsv, line 3: label '2' is in no row of .* which has 0, 1"),
        ('0 n/a', '0 1', "line 3: label 'n/a' is no number, and others are: correct it, or name"),
        ('yes no', 'no Yes', "label 'yes' differs from 'Yes' in capitals or spaces alone"),
        ('pos', None, "column 'gold' has 1 label, as 'pos': from 2 to 1000 classes"),
    ],
)
def test_classes_of_words_are_sorted(tmp_path, texts, train, expected):
    paths = [
        names and str(write(tmp_path / file, '\n'.join(['gold', *names.split(), ''])))
        for file, names in (('texts.tsv', texts), ('train.tsv', train))
    ]
    if isinstance(expected, tuple):
        assert tables.sorted_classes(*paths, label='gold') == expected
    else:
        with pytest.raises(ValueError, match=expected):
            tables.sorted_classes(*paths, label='gold')


BAD_TSV = (
    'left\tright\tgold\n'
    'Good one.\tStill good.\tyes\n'
    'Too short.\tyes\n'
    'Too\tlong\ta row\tyes\n'
    '\n'
    ' \tThe left one is blank.\tno\n'
    'Odd label.\tVery odd.\tmaybe\n'
    'No label.\tNone.\t\n'
    'Good again.\tQuite good.\tno\n'
)
BAD_TSV_FAULTS = (
    'x.tsv: 5 of 7 rows are bad: line 3: 2 fields, expected 3; line 4: 4 fields, expected 3; '
    "line 6: 'left' is empty; line 7: unknown label 'maybe', expected one of no, yes; "
    "line 8: 'gold' is empty"
)


def test_bad_rows_are_all_named_at_once_or_left_out(tmp_path, caplog):
    path = write(tmp_path / 'x.tsv', BAD_TSV)
    with pytest.raises(ValueError, match=re.escape(BAD_TSV_FAULTS)) as error:
        pairs(path, labels=('no', 'yes'))
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith("Correct them, or leave them out: bad_rows='skip'.")
    # The ids stay those of the file.
    assert pairs(path, labels=('no', 'yes'), bad_rows='skip') == [
        Example('Good one.', 'Still good.', 1, 'x/0'),
        Example('Good again.', 'Quite good.', 0, 'x/6'),
    ]
    assert [record.levelname for record in caplog.records] == ['WARNING']
    assert BAD_TSV_FAULTS in caplog.text
    caplog.clear()
    pairs(write(path, GOOD_TSV), labels=('no', 'yes'), bad_rows='skip')
    assert not caplog.records


@pytest.mark.parametrize(('name', 'separator'), [('x.tsv', '\t'), ('x.csv', ',')])
def test_a_file_without_a_header(tmp_path, name, separator):
    """Its columns are named, and its first line is an example; without names the error says how."""
    path = write(tmp_path / name, 'id7,Words,1\nid8,More,0\n'.replace(',', separator))
    columns = ('id', 'sentence', 'label')
    found = tables.read_table(path, text_a='sentence', label='label', columns=columns)
    assert [(each.text_a, each.label) for each in found] == [('Words', 1), ('More', 0)]
    assert found[0].where == f'{path}, line 1' and found[0].id == 'x/0'
    for options, fault in (
        ({'text_a': 's'}, r"it has: 'id7', 'Words', '1'\. If it has no header, .* columns=\("),
        ({'text_a': 's', 'columns': columns}, r"no column 's'; .* These are the given columns\."),
        ({'text_a': 's', 'columns': ('s', 'y')}, '2 of 2 rows .* line 1: 3 fields, expected 2'),
    ):
        with pytest.raises(ValueError, match=fault):
            tables.read_table(path, **options)


@pytest.mark.parametrize(
    ('name', 'text', 'options', 'fault'),
    [
        ('x.tsv', 's\ty\nWords\t1\n', {'text_a': 't'}, "no column 't'; it has: 's', 'y'"),
        ('x.jsonl', '{"s": "a"}\n{"s": "b", "y": 1}\n', {'text_a': 't'}, "it has: 's', 'y'"),
        ('x.jsonl', '{"s": "a"}\n', {'columns': ('s',)}, 'JSON lines name their columns'),
        ('x.tsv', 's\ts\nWords\tOthers\n', {}, "more than one column 's'"),
        ('x.xlsx', GOOD_TSV, {}, r"'\.xlsx'; known: \.tsv, \.csv, \.jsonl"),
        # Physical lines are counted.
        ('x.csv', 's,y\n"a\nb\nc",1\n\nlonely\nfine,0\n,1\n', {}, "e 6: 1 field, .*e 8: 's' is e"),
        *(
            (f'x.{kind}', text, {}, f'x.{kind} (is empty|has nothing to read)')
            for kind in ('tsv', 'csv', 'jsonl')
            for text in ('', '\n', '\ufeff')
        ),
        ('x.tsv', 's\n', {}, 'x.tsv (is empty|has nothing to read)'),
    ],
)
def test_files_that_are_refused(tmp_path, name, text, options, fault):
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=fault):
        tables.read_table(path, **{'text_a': 's'} | options)


def test_missing_files_and_bytes_that_are_no_text(tmp_path):
    write(tmp_path / 'dev.partial.tsv', GOOD_TSV)
    for path, fault in (
        (tmp_path / 'dev.tsv', r'dev\.tsv.*holds: dev\.partial\.tsv'),
        (tmp_path / 'nowhere' / 'dev.tsv', r'no folder .*nowhere'),
    ):
        with pytest.raises(FileNotFoundError, match=fault):
            tables.read_table(path, text_a='left')
    path = tmp_path / 'x.tsv'
    path.write_bytes(b'\xef\xbb\xbfs\ty\ngood\t1\ncaf\xe9\t0\n')
    with pytest.raises(ValueError, match='x.tsv: not UTF-8 at line 3, byte 17 of'):
        tables.read_table(path, text_a='s')


def test_jsonl_labels_are_spelled_as_json_spells_them(tmp_path):
    path = write(tmp_path / 'flags.jsonl', '{"s": "On", "y": true}\n{"s": "Off", "y": false}\n')
    examples = tables.read_table(path, text_a='s', label='y', labels=('false', 'true'))
    assert [example.label for example in examples] == [1, 0]
