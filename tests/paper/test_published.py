"""The published numbers, where the paper's text states them."""

import numpy as np

from bert_secrets_jax import paper


def test_figure_6():
    grids = paper.special_token_attention('SST-2')
    assert grids['sep'].shape == grids['cls'].shape == (12, 12)
    # The greatest is L5-H4; later layers attend to [SEP], early ones to [CLS].
    assert np.unravel_index(grids['sep'].argmax(), (12, 12)) == (4, 3)
    assert grids['sep'][6:].mean() > grids['sep'][:4].mean()
    assert grids['cls'][:4].mean() > grids['cls'][6:].mean()
    assert paper.special_token_attention('CoLA') is None


def test_table_1():
    table = paper.published()['table1']
    assert table['MRPC']['values'][2] == [87.9, 82.3]
    assert table['MNLI-m']['values'] == [31.7, 61.0, 78.6]
