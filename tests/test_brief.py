"""Objects that hold large arrays are shown in a line."""

import re

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.common.disabling import named_masks
from bert_secrets_jax.contributions.scores import check_methods
from bert_secrets_jax.stats.intervals import count


@pytest.mark.parametrize(
    ('shown', 'expected'),
    [
        (
            bs.TokenMaps(['token'] * 50, np.zeros((6, 12, 50, 50), np.float32)),
            'TokenMaps(tokens=<50 items>, attentions=float32[6, 12, 50, 50], second=None, '
            "word=None, words=None, further={}, scores={}, prediction='', cut=False)",
        )
    ],
)
def test_arrays_are_shown_by_type_and_shape(shown, expected):
    assert repr(shown) == expected


@pytest.mark.parametrize(
    ('ask', 'nearest'),
    [
        (lambda: bs.get_task('MCRP'), 'mrpc'),
        (lambda: bs.read_corpus('trian'), 'train'),
        (lambda: bs.catalogue.named('entopy (nats)'), 'entropy (nats)'),
        (lambda: count('f1macro', np.eye(2), np.ones(2), np.ones(2)), 'f1_macro'),
        (lambda: check_methods(['alti']), 'ALTI'),
        (lambda: named_masks('laiers', bs.BertConfig()), 'layers'),
        (lambda: bs.patterns.pattern(bs.patterns.load_classifier(), ('blok',)), 'block'),
    ],
)
def test_a_misspelt_name_is_asked_back(ask, nearest):
    with pytest.raises(ValueError, match=rf'Did you mean {re.escape(nearest)}'):
        ask()


def test_many_marks_are_counted(tokenizer):
    encoded = bs.tokenize(tokenizer, ['the cat ran'])
    (batch,) = bs.bucket(encoded)
    assert 'marks={word}, classes=None, cut=bool[1], ' in repr(encoded) and len(repr(encoded)) < 200
    assert 'marks={word, token, cls, sep, period_comma}' in repr(batch)
    here = {f'mark{number}': batch.marks['cls'] for number in range(7)}
    many = bs.Batch(batch.input_ids, batch.input_ids, batch.input_ids, here, batch.example)
    assert 'marks={mark0, mark1, mark2, mark3, mark4 and 2 more}' in repr(many)
    shapes = jax.eval_shape(lambda batch: batch, many)
    assert repr(shapes) == repr(many)


def test_trees_in_notebooks(model, tokenizer):
    shown = model._repr_html_()
    assert 'float32[3, 24, 4, 6]' in shown and '<details open>' in shown
    assert shown.count('<details') == shown.count('</details>') > 10 and len(shown) < 20_000
    (batch,) = bs.encode(tokenizer, ['the cat ran'], labels=[1])
    assert 'labels = <code>int64[1], 8 B</code>' in batch._repr_html_()
    hostile = bs.TokenMaps(['<script>'], np.zeros((1, 1, 1, 1)), scores={'<b>': np.zeros(1)})
    assert '<script>' not in hostile._repr_html_() and '&lt;b&gt;' in hostile._repr_html_()
    tuned = bs.Finetuned(
        start='pretrained', seeds=(0,), metrics=('f1',), label_names=('<i>', 'yes'),
        train_examples=2, dev_examples=2, larger_class=0.5, history=[],
    )  # fmt: skip
    assert '&lt;i&gt;' in tuned._repr_html_() and "('<i>', 'yes')" in repr(tuned)
