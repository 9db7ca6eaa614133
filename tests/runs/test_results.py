"""Tables of a run as pandas frames."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.files import checksums, sealed, write_csv, write_json
from bert_secrets_jax.runs import folder as results
from tests.fuzz.broken import logged


def table(seed: int) -> bs.HeadTable:
    rng = np.random.default_rng(seed)
    return bs.HeadTable(mean=rng.random((2, 3)), variance=rng.random((2, 3)), count=7.0)


def test_frames_of_a_run(tmp_path):
    (tmp_path / 'config.json').write_text('{}')
    frame = bs.to_frame({'a': table(0), 'b': table(1)})
    frame.to_csv(tmp_path / 'special_tokens_heads.csv', index=False)
    write_csv(tmp_path / 'findings' / 'special_tokens.csv', ('finding',), [('one',)])
    read = bs.read_results(str(tmp_path))
    assert set(read) == {'special_tokens_heads', 'findings/special_tokens'}
    heads = read['special_tokens_heads'].query('statistic == "b"')
    grid = heads.pivot(index='layer', columns='head', values='mean')
    np.testing.assert_allclose(grid, table(1).mean, rtol=1e-8)
    assert grid.index.tolist() == [1, 2] and grid.columns.tolist() == [1, 2, 3]


def test_frames_of_several_tasks_are_one(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not the folder of a run'):
        bs.read_results(tmp_path)
    for seed, task in enumerate(('mrpc', 'rte')):
        (tmp_path / task).mkdir()
        bs.to_frame({'a': table(seed)}).to_csv(tmp_path / task / 'heads.csv', index=False)
        (tmp_path / task / 'config.json').write_text('{}')
    write_csv(tmp_path / 'rte' / 'finetune' / 'curve.csv', ('step',), [(1,)])
    write_csv(tmp_path / 'tasks.csv', ('task', 'score'), [('mrpc', 0.5), ('rte', 0.25)])
    read = bs.read_results(tmp_path)
    assert set(read) == {'heads', 'finetune/curve', 'tasks'}
    assert read['tasks']['score'].tolist() == [0.5, 0.25]
    assert read['heads']['run'].tolist() == ['mrpc'] * 6 + ['rte'] * 6
    np.testing.assert_allclose(read['heads']['mean'][6:], table(1).mean.ravel())
    assert read['finetune/curve'].to_dict('list') == {'run': ['rte'], 'step': [1]}


@pytest.fixture
def folder(tmp_path):
    """A run with one table, and the record of what was written."""
    write_csv(tmp_path / 'a.csv', ('token', 'value'), [('-', 1.5), ('=x', 2.5), ('cat', -3.0)])
    noted = {'sha256_of': checksums(tmp_path)}
    write_json(tmp_path / 'outputs.json', {'a': sealed(noted)})
    (tmp_path / 'config.json').write_text('{}')
    return tmp_path


def test_texts_that_are_quoted_for_spreadsheets_come_back_as_they_were(folder):
    assert "'=x" in (folder / 'a.csv').read_text()
    frame = bs.read_results(folder)['a']
    assert frame['token'].tolist() == ['-', '=x', 'cat']
    assert frame['value'].tolist() == [1.5, 2.5, -3.0]


def test_tables_that_were_changed_are_named(folder):
    file = folder / 'a.csv'
    whole = file.read_bytes()
    for damaged in (b'', whole[:-4], whole.replace(b'1.5', b'1.6'), whole + b'cat,1\n', None):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r'a\.csv is missing or was changed'):
            bs.read_results(folder)


@pytest.mark.parametrize(
    'damaged',
    ['', 'x,y\n1,2\n3\n', 'x,y\n1,2,3\n', 'x\n"1\n', 'x\n\0\n', 'x,x\n1,2\n', 'x,\n1,2\n'],
)
def test_what_is_no_table_is_named(tmp_path, damaged):
    (tmp_path / 'config.json').write_text('{}')
    (tmp_path / 'b.csv').write_text(damaged)
    with pytest.raises(ValueError, match=r'b\.csv is no table'):
        bs.read_results(tmp_path)


def test_a_damaged_record_of_outputs_is_told_and_tables_are_read(folder):
    damaged = (folder / 'outputs.json').read_text().replace('a.csv', 'b.csv')
    for text in ('', '[]', '{', damaged):
        (folder / 'outputs.json').write_text(text)
        with logged() as lines:
            assert list(bs.read_results(folder)) == ['a']
        assert 'outputs.json' in lines[0]


@pytest.mark.parametrize(
    'part',
    [
        {},
        {'sha256_of': {'/etc/passwd': ''}},
        {'sha256_of': ['a.csv']},
        {'sha256_of': {'../a.csv': ''}},
        {'sha256_of': {}, 'pictures': [['../a', 'b']]},
        {'sha256_of': {}, 'pictures': [['a']]},
    ],
)
def test_a_record_that_names_files_of_others_is_not_used(tmp_path, part):
    """Anybody can seal a record; its files are removed when there is a new result."""
    write_json(tmp_path / 'outputs.json', {'a': sealed(part)})
    assert results.read_manifest(tmp_path) == {}
