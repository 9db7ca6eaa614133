"""Tables of a run as pandas frames."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.files import write_csv
from bert_secrets_jax.measure.tables import write_heads


def table(seed: int) -> bs.HeadTable:
    rng = np.random.default_rng(seed)
    return bs.HeadTable(mean=rng.random((2, 3)), variance=rng.random((2, 3)), count=7.0)


def test_frames_of_a_run(tmp_path):
    (tmp_path / 'config.json').write_text('{}')
    write_heads(tmp_path / 'special_tokens_heads.csv', {'a': table(0), 'b': table(1)})
    write_csv(tmp_path / 'findings' / 'special_tokens.csv', ('finding',), [('one',)])
    read = bs.read_results(str(tmp_path))
    assert set(read) == {'special_tokens_heads', 'findings/special_tokens'}
    heads = read['special_tokens_heads'].query('statistic == "b"')
    grid = heads.pivot(index='layer', columns='head', values='mean')
    np.testing.assert_allclose(grid, table(1).mean, rtol=1e-8)
    assert grid.index.tolist() == [1, 2] and grid.columns.tolist() == [1, 2, 3]


def test_frames_of_several_tasks_are_one(tmp_path):
    for seed, task in enumerate(('mrpc', 'rte')):
        write_heads(tmp_path / task / 'heads.csv', {'a': table(seed)})
        (tmp_path / task / 'config.json').write_text('{}')
    write_csv(tmp_path / 'rte' / 'finetune' / 'curve.csv', ('step',), [(1,)])
    write_csv(tmp_path / 'tasks.csv', ('task', 'score'), [('mrpc', 0.5), ('rte', 0.25)])
    read = bs.read_results(tmp_path)
    assert set(read) == {'heads', 'finetune/curve', 'tasks'}
    assert read['tasks']['score'].tolist() == [0.5, 0.25]
    assert read['heads']['run'].tolist() == ['mrpc'] * 6 + ['rte'] * 6
    np.testing.assert_allclose(read['heads']['mean'][6:], table(1).mean.ravel())
    assert read['finetune/curve'].to_dict('list') == {'run': ['rte'], 'step': [1]}


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match='is not the folder of a run'):
        bs.read_results(tmp_path)
