"""Runs before and after a change are compared number by number."""

from tools.frozen import differences

BEFORE = 'layer,name,value\n1,,0.5\n2,L2,nan\n'


def found(tmp_path, text, name='heads.csv'):
    for each, content, file in (('old', BEFORE, 'heads.csv'), ('new', text, name)):
        (tmp_path / each).mkdir()
        (tmp_path / each / file).write_text(content)
    return list(differences(tmp_path / 'old', tmp_path / 'new'))


def test_rounding_is_no_difference(tmp_path):
    assert found(tmp_path, BEFORE.replace('0.5', '0.5000001')) == []


def test_numbers_words_columns_and_tables_are_named(tmp_path):
    assert found(tmp_path, 'layer,name,other\n1,,0.6\n2,L3,nan\n') == [
        "heads.csv: columns gone ['value'], new ['other']",
        "heads.csv, name: 1 differ, such as 'L2', now 'L3'",
    ]


def test_a_number_that_differs_and_a_missing_row(tmp_path):
    assert found(tmp_path, 'layer,name,value\n1,,0.6\n2,L2,nan\n') == [
        'heads.csv, value: 1 of 2 differ, by up to 0.1'
    ]


def test_tables_that_are_missing_or_new(tmp_path):
    assert found(tmp_path, BEFORE, 'layers.csv') == ['heads.csv: missing', 'layers.csv: new']
