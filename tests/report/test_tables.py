"""CSV keeps every digit and says what it is."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.report import tables


def test_heads_survive_the_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    written = {
        name: HeadTable(
            mean=rng.random((2, 3), np.float32),
            variance=rng.random((2, 3), np.float32) * 1e-7,
            count=7.0,
        )
        for name in ('[CLS]', 'entropy, in nats')
    }
    written['[CLS]'].mean[1, 2] = np.nan
    tables.write_heads(tmp_path / 'heads.csv', written)
    read = tables.read_heads(tmp_path / 'heads.csv', written)
    assert list(read) == list(written)
    for name, table in written.items():
        np.testing.assert_array_equal(read[name].mean, table.mean)
        np.testing.assert_array_equal(read[name].variance, table.variance)
        assert read[name].count == 7.0
    first, second = (tmp_path / 'heads.csv').read_text().splitlines()[:2]
    assert first == 'statistic,layer,head,mean,variance,standard_error,examples'
    assert second.startswith('[CLS],1,1,')


def test_another_table_and_a_damaged_one_are_refused(tmp_path):
    file = tmp_path / 'heads.csv'
    table = HeadTable(mean=np.ones((2, 3)), variance=np.ones((2, 3)), count=7.0)
    tables.write_heads(file, {'a': table, 'b': table})
    whole = file.read_text()
    rows = whole.splitlines(keepends=True)
    for text in ('a,b\n1,2\n', '', whole[:-8], ''.join(rows[:-1]), ''.join(rows[:7])):
        file.write_text(text)
        with pytest.raises(ValueError, match='heads.csv is damaged or from another version'):
            tables.read_heads(file, ['a', 'b'])
    file.write_text(whole)
    with pytest.raises(ValueError, match='is damaged or from another version'):
        tables.read_heads(file, ['a', 'c'])


def table(seed: int, shape=(2, 3)) -> HeadTable:
    rng = np.random.default_rng(seed)
    return HeadTable(mean=rng.random(shape), variance=rng.random(shape), count=7.0)


def test_a_frame_says_what_the_file_says(tmp_path):
    found = {'a': table(0), 'b': table(1)}
    frame = bs.to_frame(found)
    tables.write_heads(tmp_path / 'heads.csv', found)
    (tmp_path / 'config.json').write_text('{}')
    read = bs.read_results(tmp_path)
    assert list(read) == ['heads']
    assert list(read['heads'].columns) == list(frame.columns)
    np.testing.assert_allclose(read['heads'].iloc[:, 1:], frame.iloc[:, 1:], rtol=1e-8)
    grid = frame.query('statistic == "b"').pivot(index='layer', columns='head', values='mean')
    np.testing.assert_array_equal(grid, found['b'].mean)
    assert grid.index.tolist() == [1, 2] and grid.columns.tolist() == [1, 2, 3]


def test_frames_of_several_tasks_are_one(tmp_path):
    for seed, task in enumerate(('mrpc', 'rte')):
        tables.write_heads(tmp_path / task / 'heads.csv', {'a': table(seed)})
        (tmp_path / task / 'config.json').write_text('{}')
    tables.write_csv(tmp_path / 'rte' / 'finetune' / 'curve.csv', ('step',), [(1,)])
    tables.write_csv(tmp_path / 'tasks.csv', ('task', 'score'), [('mrpc', 0.5), ('rte', 0.25)])
    read = bs.read_results(tmp_path)
    assert set(read) == {'heads', 'finetune/curve', 'tasks'}
    assert read['tasks']['score'].tolist() == [0.5, 0.25]
    assert read['heads']['run'].tolist() == ['mrpc'] * 6 + ['rte'] * 6
    np.testing.assert_allclose(read['heads']['mean'][6:], table(1).mean.ravel())
    assert read['finetune/curve'].to_dict('list') == {'run': ['rte'], 'step': [1]}


def test_what_is_no_frame_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not the --workdir of a run'):
        bs.read_results(tmp_path)
    with pytest.raises(ValueError, match="Values of 'a' have further axes, \\[2, 3, 4\\]"):
        bs.to_frame({'a': table(0, (2, 3, 4))})
