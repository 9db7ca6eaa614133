"""Mean outputs of heads, against those of the model."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.ablation.test_sweep import batch_of
from tests.conftest import forward, random_inputs, random_params, relative


@pytest.mark.parametrize(
    'model_type', ['bert', 'roberta', 'distilbert', 'electra', 'mpnet', 'esm', 'modernbert']
)
def test_it_is_the_mean_of_what_the_model_gives(config, model_type):
    """What that is by hand, tests/model has."""
    config = dataclasses.replace(relative(config, model_type), label_names=(), add_pooler=False)
    bert = bs.Bert(config)
    params = random_params(bert)
    inputs = random_inputs(bert.config, lengths=(9, 4, 6), length=9, seed=1)
    contexts = np.asarray(forward(bert, params, inputs).contexts)
    real = inputs['attention_mask'].astype(bool)
    found = bs.mean_contexts(bs.Pretrained(bert, params, None), [batch_of(inputs)])
    expected = contexts.swapaxes(1, 2)[real].mean(axis=0)
    np.testing.assert_allclose(found, expected, atol=5e-6)


def test_batches_padding_and_devices_are_no_matter(config, pretrained):
    inputs = random_inputs(config, lengths=(3, 9, 5, 8, 4, 7, 6, 2), length=9, seed=5)
    whole = batch_of(inputs)
    expected = bs.mean_contexts(pretrained, [whole])
    take = lambda rows: jax.tree.map(lambda array: array[rows], whole)
    padded = {name: np.pad(array, ((0, 0), (0, 4))) for name, array in inputs.items()}
    mesh = jax.make_mesh((4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))
    for batches, on in (
        ([take([6, 1, 5]), take([7, 3, 0, 2, 4])], None),
        ([batch_of(padded)], None),
        ([whole], mesh),
    ):
        found = bs.mean_contexts(pretrained, iter(batches), mesh=on)
        np.testing.assert_allclose(found, expected, atol=2e-6)
