"""The published numbers, where the paper's text states them."""

import numpy as np
import pytest

from bert_secrets_jax import paper


def test_figure_6():
    grids = paper.special_token_attention('SST-2')
    cls, sep = grids['[CLS]'], grids['[SEP]']
    assert sep.shape == cls.shape == (12, 12)
    # The greatest is L5-H4; later layers attend to [SEP], early ones to [CLS].
    assert np.unravel_index(sep.argmax(), (12, 12)) == (4, 3)
    assert sep[6:].mean() > sep[:4].mean()
    assert cls[:4].mean() > cls[6:].mean()
    with pytest.raises(KeyError, match='CoLA'):
        paper.special_token_attention('CoLA')


def test_table_1():
    table = paper.published()['table1']
    assert table['MRPC']['values'][2] == [87.9, 82.3]
    assert table['MNLI-m']['values'] == [31.7, 61.0, 78.6]
