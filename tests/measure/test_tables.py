"""Tables of heads: CSV keeps every digit and says what it is, and so does a frame."""

import numpy as np
import pytest

from bert_secrets_jax.measure import tables
from bert_secrets_jax.measure.tables import HeadTable


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


def test_tables_that_are_refused(tmp_path, untyped):
    file = tmp_path / 'heads.csv'
    tables.write_heads(file, {'a': table(0), 'b': table(1)})
    whole = file.read_text()
    rows = whole.splitlines(keepends=True)
    for text in ('a,b\n1,2\n', '', whole[:-8], ''.join(rows[:-1]), ''.join(rows[:7])):
        file.write_text(text)
        with pytest.raises(ValueError, match='heads.csv is damaged or from another version'):
            tables.read_heads(file, ['a', 'b'])
    file.write_text(whole)
    with pytest.raises(ValueError, match='is damaged or from another version'):
        tables.read_heads(file, ['a', 'c'])
    with pytest.raises(ValueError, match="Values of 'a' have further axes, \\[2, 3, 4\\]"):
        tables.to_frame({'a': table(0, (2, 3, 4))})
    for wrong in ({'a': np.eye(2)}, [table(0)]):
        with pytest.raises(TypeError, match='Tables come by name'):
            tables.to_frame(wrong)


def table(seed: int, shape=(2, 3)) -> HeadTable:
    rng = np.random.default_rng(seed)
    return HeadTable(mean=rng.random(shape), variance=rng.random(shape), count=7.0)


def test_a_frame_says_what_the_file_says(tmp_path):
    import pandas

    found = {'a': table(0), 'b': table(1)}
    frame = tables.to_frame(found)
    tables.write_heads(tmp_path / 'heads.csv', found)
    read = pandas.read_csv(tmp_path / 'heads.csv')
    assert list(read.columns) == list(frame.columns)
    np.testing.assert_allclose(read.iloc[:, 1:], frame.iloc[:, 1:], rtol=1e-8)
    grid = frame.query('statistic == "b"').pivot(index='layer', columns='head', values='mean')
    np.testing.assert_array_equal(grid, found['b'].mean)
    assert grid.index.tolist() == [1, 2] and grid.columns.tolist() == [1, 2, 3]


def test_stacked_tables_come_apart():
    rng = np.random.default_rng(0)
    stacked = HeadTable(
        rng.random((2, 3, 4)), rng.random((2, 3, 4)), np.arange(4.0), rng.random((5, 2, 3, 4))
    )
    parts = stacked.unstack()
    assert [part.count for part in parts] == [0, 1, 2, 3]
    for index, part in enumerate(parts):
        np.testing.assert_array_equal(part.mean, stacked.mean[..., index])
        np.testing.assert_array_equal(part.values, stacked.values[..., index])
        np.testing.assert_allclose(part.standard_error, stacked.standard_error[..., index])


def test_top_heads():
    found = HeadTable(np.array([[0.1, 0.5], [0.3, 0.2]]), np.full((2, 2), 0.04), 4.0)
    assert tables.top_heads(found, 2) == ['L1-H2  0.500 ± 0.100', 'L2-H1  0.300 ± 0.100']
    assert tables.top_heads(found, 1, least=True) == ['L1-H1  0.100 ± 0.100']
