"""Tables of heads as frames."""

import numpy as np
import pytest

from bert_secrets_jax.measure import tables
from bert_secrets_jax.measure.tables import HeadTable


def test_tables_that_are_refused(untyped):
    with pytest.raises(ValueError, match="Values of 'a' have further axes, \\[2, 3, 4\\]"):
        tables.to_frame({'a': table(0, (2, 3, 4))})
    for wrong in ({'a': np.eye(2)}, [table(0)]):
        with pytest.raises(TypeError, match='Tables come by name'):
            tables.to_frame(wrong)


def table(seed: int, shape=(2, 3)) -> HeadTable:
    rng = np.random.default_rng(seed)
    return HeadTable(mean=rng.random(shape), variance=rng.random(shape), count=7.0)


def test_a_frame_says_what_the_tables_say():
    found = {'a': table(0), 'b': table(1)}
    frame = tables.to_frame(found)
    names = ['statistic', 'layer', 'head', 'mean', 'variance', 'standard_error', 'examples']
    assert list(frame.columns) == names
    grid = frame.query('statistic == "b"').pivot(index='layer', columns='head', values='mean')
    np.testing.assert_array_equal(grid, found['b'].mean)
    assert grid.index.tolist() == [1, 2] and grid.columns.tolist() == [1, 2, 3]


def test_top_heads():
    found = HeadTable(np.array([[0.1, 0.5], [0.3, 0.2]]), np.full((2, 2), 0.04), 4.0)
    assert tables.top_heads(found, 2) == ['L1-H2  0.500 ± 0.100', 'L2-H1  0.300 ± 0.100']
    assert tables.top_heads(found, 1, least=True) == ['L1-H1  0.100 ± 0.100']
