"""CSV keeps every digit and says what it is."""

import numpy as np
import pytest

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
