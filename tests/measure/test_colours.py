"""What heads are coloured by, as frames of every form declare it."""

import numpy as np
import pandas

from bert_secrets_jax.measure.colours import Colours, head_tables, sets_of

LAYER, HEAD = np.indices((2, 3)).reshape(2, -1) + 1
VALUES = np.arange(6.0)


def tables(told, *by, **columns):
    """The tables of heads of a frame with these columns."""
    frame = pandas.DataFrame(columns)
    frame.attrs['colours'] = Colours('heads', dict.fromkeys(told, ()), by)
    return head_tables({'all_heads': frame, 'others': pandas.DataFrame(columns)})


def test_columns_are_tables_of_heads_if_they_are_declared():
    found = tables(['gate', 'mostly', 'count'], layer=LAYER, head=HEAD, gate=VALUES,
                   p_value=VALUES, mostly=list('abcabc'), count=LAYER)  # fmt: skip
    assert list(found) == ['all heads: gate']
    assert found['all heads: gate'].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_sets_are_told_apart_and_seeds_are_averaged():
    found = tables(
        ['mean'], 'seed', 'statistic',
        seed=np.repeat([0, 1], 12),
        statistic=np.tile(np.repeat(['self', '[SEP]'], 6), 2),
        layer=np.tile(LAYER, 4),
        head=np.tile(HEAD, 4),
        mean=np.concatenate([VALUES, -VALUES, VALUES + 2, -VALUES]),
    )  # fmt: skip
    assert list(found) == ['all heads: self', 'all heads: [SEP]']
    np.testing.assert_allclose(found['all heads: self'].ravel(), VALUES + 1)


def test_layers_have_names_and_no_tables_of_heads():
    frame = pandas.DataFrame({'price': [0.5, 0.5], 'disabled': ['L2', 'L1'], 'loss': [1.0, 2.0]})
    frame.attrs['colours'] = Colours('layers', {'loss': ()}, ('price',))
    ((title, alike, rows),) = sets_of(frame)
    assert title == alike == 'price 0.5' and rows['loss'].tolist() == [2.0, 1.0]
    assert head_tables({'a': frame}) == {}
