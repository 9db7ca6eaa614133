"""Mean outputs of heads, against brute force in NumPy."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.ablation.test_sweep import batch_of
from tests.conftest import forward, random_inputs, random_params, relative
from tests.model import numpy_bert


def test_equals_the_mean_by_hand(config, params, inputs, pretrained):
    """Map times values of each real token in float64, added up one at a time."""
    weights = params['layers']['attention']['value']
    kernel, bias = (np.asarray(weights[name]) for name in ('kernel', 'bias'))
    total, count = np.zeros((3, 4, 6)), 0
    for index in range(3):
        states, maps, _ = numpy_bert.forward(
            config, params, *(inputs[name][index] for name in inputs)
        )
        for token in range(inputs['attention_mask'][index].sum()):
            count += 1
            for layer in range(3):
                for head in range(4):
                    value = states[layer] @ kernel[layer, :, head] + bias[layer, head]
                    total[layer, head] += maps[layer, head, token] @ value
    found = bs.mean_contexts(pretrained, [batch_of(inputs)])
    assert found.dtype == np.float32
    assert np.abs(total).max() > 1
    np.testing.assert_allclose(found, total / count, atol=5e-6)


@pytest.mark.parametrize(
    'model_type', ['roberta', 'distilbert', 'electra', 'mpnet', 'esm', 'modernbert']
)
def test_other_model_types_give_what_their_model_gives(config, model_type):
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
    with pytest.raises(ValueError, match='A batch of 3 rows does not split over 4 devices'):
        bs.mean_contexts(pretrained, [take([6, 1, 5])], mesh=mesh)


def test_errors_say_what_is_wrong(pretrained, inputs, untyped):
    with pytest.raises(ValueError, match='There are no examples'):
        bs.mean_contexts(pretrained, [])
    with pytest.raises(TypeError, match='Batches are several'):
        bs.mean_contexts(pretrained, batch_of(inputs))
