"""Importance of heads: beside finite differences of the mask, by example, by token, by layer."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import encode, with_labels
from bert_secrets_jax.measure.gradients import gradient_importance, head_importance, normalised
from bert_secrets_jax.measure.relevance import head_relevance
from tests.conftest import PAIRS, forward, random_params, relative

LABELS = np.array([1, 0, 2])


@pytest.fixture(scope='module', params=['bert', 'modernbert'])
def model(request, config, tokenizer):
    mine = dataclasses.replace(
        relative(config, request.param),
        label_names=('no', 'yes', 'perhaps'),
        classifier_pooling='mean' if request.param == 'modernbert' else 'cls',
    )
    bert = bs.Bert(mine)
    return bs.Pretrained(bert, random_params(bert), tokenizer)


def batches_of(tokenizer, **options):
    encoded = encode(tokenizer, PAIRS, **({'max_length': 24} | options))
    return [with_labels(batch, LABELS) for batch in encoded]


def slopes(model, batch, mask):
    """Return the slope of the loss of each example in each number of the mask [B, L, N]."""

    @jax.jit
    def losses(mask):
        output = forward(model.bert, model.params, batch.inputs, head_mask=mask, baseline='zero')
        return bs.task_loss(output, batch)

    found = np.zeros((len(batch.example), *mask.shape))
    for place in np.ndindex(mask.shape):
        step = np.zeros(mask.shape, np.float32)
        step[place] = 1e-2
        found[(slice(None), *place)] = (losses(mask + step) - losses(mask - step)) / 2e-2
    return found[np.argsort(batch.example)][-len(PAIRS) :]


def test_importance_is_the_magnitude_of_slopes(model):
    mask = np.ones((3, 4), np.float32)
    mask[0, 1] = mask[2, 3] = 0
    (batch,) = batches_of(model.tokenizer, buckets=())
    expected = np.abs(slopes(model, batch, mask))
    found = head_importance(model, [batch], bs.task_loss, head_mask=mask, keep_values=True)
    np.testing.assert_allclose(found.values, expected, rtol=3e-2, atol=3e-4)
    np.testing.assert_allclose(found.mean, found.values.mean(axis=0), rtol=1e-5)
    assert found.count == 3 and (found.mean > 0).all()


# What measures heads, and how far rounding may move it.
MEASURES = {
    'gradients': (
        lambda *given, **how: gradient_importance(*given, bs.task_loss, **how)['other tokens'],
        {'rtol': 1e-3, 'atol': 1e-6},
    ),
    'relevance': (head_relevance, {'rtol': 1e-4}),
    'paper': (functools.partial(head_importance, loss=bs.task_loss), {'rtol': 2e-3, 'atol': 1e-6}),
}


@pytest.mark.parametrize('kind', MEASURES)
def test_batches_padding_and_devices_do_not_matter(model, kind, mesh):
    measure, near = MEASURES[kind]
    first, *others = (
        measure(
            model, batches_of(model.tokenizer, **options)[::-1], keep_values=True,
            mesh=mesh if 'batch_multiple' in options else None,
        ).values
        for options in (
            {'buckets': ()}, {'tokens_per_batch': 24, 'buckets': ()},
            {'max_length': 31, 'buckets': ()}, {'batch_multiple': 8},
        )
    )  # fmt: skip
    for values in others:
        np.testing.assert_allclose(values, first, **near)


def test_norms():
    importance = np.random.default_rng(0).random((2, 3, 4))
    by_layer = normalised(importance)
    np.testing.assert_allclose((by_layer**2).sum(axis=-1), 1)
    np.testing.assert_allclose(
        by_layer / by_layer.max(axis=-1, keepdims=True),
        importance / importance.max(axis=-1, keepdims=True),
    )
    of_all = normalised(importance, norm='all')
    np.testing.assert_allclose((of_all**2).sum(axis=(1, 2)), 1)
    assert normalised(importance, norm='none') is importance
    assert not normalised(np.zeros((3, 4))).any()
