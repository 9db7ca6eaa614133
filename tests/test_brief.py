"""Objects that hold large arrays are shown in a line."""

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs


@pytest.mark.parametrize(
    ('shown', 'expected'),
    [
        (
            bs.TokenMaps(['token'] * 50, np.zeros((6, 12, 50, 50), np.float32)),
            'TokenMaps(tokens=<50 items>, attentions=float32[6, 12, 50, 50], second=None, '
            "word=None, words=None, further={}, scores={}, prediction='')",
        ),
        (
            bs.HeadTable(np.zeros((3, 3), np.float32), np.zeros((3, 3), np.float32), 7.0),
            'HeadTable(mean=float32[3, 3], variance=float32[3, 3], count=7.0, values=None)',
        ),
    ],
)
def test_arrays_are_shown_by_type_and_shape(shown, expected):
    assert repr(shown) == expected


def test_many_marks_are_counted(tokenizer):
    encoded = bs.tokenize(tokenizer, ['the cat ran'])
    (batch,) = bs.bucket(encoded)
    assert 'marks={word}, classes=None)' in repr(encoded) and len(repr(encoded)) < 200
    assert 'marks={word, token, cls, sep, period_comma}' in repr(batch)
    here = {f'mark{number}': batch.marks['cls'] for number in range(7)}
    many = bs.Batch(batch.input_ids, batch.input_ids, batch.input_ids, here, batch.example)
    assert 'marks={mark0, mark1, mark2, mark3, mark4 and 2 more}' in repr(many)
    shapes = jax.eval_shape(lambda batch: batch, many)
    assert repr(shapes) == repr(many)
