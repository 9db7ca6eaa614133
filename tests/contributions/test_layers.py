"""The parts of a layer add up to what the layer did, in all families."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.contributions.layers import each_layer
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.encoder import RestOfLayer
from tests.conftest import RELATIVES, random_inputs, random_params, relative


@pytest.mark.parametrize('model_type', RELATIVES)
def test_parts_add_up(config, model_type):
    """The sum of what tokens give is the residual stream, from which the next layer follows."""
    config = relative(config, model_type)
    bert = Bert(config)
    params = random_params(bert)
    inputs = random_inputs(config, lengths=(9, 4), length=9, seed=1)
    output = bert.apply({'params': params}, **inputs)

    def of_layer(of_params, attended):
        given = jnp.einsum('BNTS,BSND->BTND', attended.maps, attended.moved)
        bias = of_params['attention']['output'].get('bias', jnp.zeros(config.hidden_size))
        left = RestOfLayer(config).apply({'params': of_params}, attended.residual)
        summed = attended.entered + given.sum(axis=2) + bias[None, None]
        return summed, attended.residual, given, attended.given, left

    summed, residual, given, by_heads, left = jax.jit(
        lambda params, output: each_layer(of_layer, bert, params, output)
    )(params, output)
    real = inputs['attention_mask'].astype(bool)
    rows = lambda states: np.moveaxis(np.asarray(states), 1, 0)[:, real]
    np.testing.assert_allclose(rows(summed), rows(residual), atol=2e-5)
    np.testing.assert_allclose(rows(given), rows(by_heads), atol=2e-5)
    # The last state has gone through a final LayerNorm where LayerNorm comes first.
    expected = rows(output.hidden_states)[1:-1]
    np.testing.assert_allclose(rows(left)[:-1], expected, atol=2e-5)


def test_removed_heads_are_refused(config, params, untyped):
    pruned = Bert(dataclasses.replace(config, pruned_heads=((1,), (), ())))
    with pytest.raises(ValueError, match='Heads were removed'):
        each_layer(lambda *parts: parts, pruned, params, None)
