"""Runs before and after a change are compared number by number."""

import pytest

from tools.frozen import differences

BEFORE = 'layer,name,value\n1,,0.5\n2,L2,nan\n'


@pytest.mark.parametrize(
    ('text', 'name', 'said'),
    [
        (BEFORE.replace('0.5', '0.5000001'), 'heads.csv', []),
        (
            'layer,name,other\n1,,0.6\n2,L3,nan\n',
            'heads.csv',
            [
                "heads.csv: columns gone ['value'], new ['other']",
                "heads.csv, name: 1 differ, such as 'L2', now 'L3'",
            ],
        ),
        (
            BEFORE.replace('0.5', '0.6'),
            'heads.csv',
            ['heads.csv, value: 1 of 2 differ, by up to 0.1'],
        ),
        (BEFORE, 'layers.csv', ['heads.csv: missing', 'layers.csv: new']),
    ],
)
def test_all_but_rounding_is_named(tmp_path, text, name, said):
    for folder, content, file in (('old', BEFORE, 'heads.csv'), ('new', text, name)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(content)
    assert list(differences(tmp_path / 'old', tmp_path / 'new')) == said
