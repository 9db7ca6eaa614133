"""The optimisers are the ones they are called after."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from transformers import get_linear_schedule_with_warmup

from bert_secrets_jax.finetune import optimizers


def test_bert_adam_is_adam_without_bias_correction():
    """Three steps written out in NumPy for one tensor of stacked layers."""
    weight = np.random.default_rng(0).normal(size=(3, 4, 5))
    gradient = 0.7 * weight
    optimizer = optimizers.make_optimizer(
        'bert_adam', optax.constant_schedule(0.1), weight_decay=0.01, clip=1.0
    )
    weights, gradients = (
        {'layers': {'output': {'kernel': jnp.asarray(each, jnp.float32)}}}
        for each in (weight, gradient)
    )
    state = optimizer.init(weights)
    for _ in range(3):
        updates, state = optimizer.update(gradients, state, weights)
        weights = optax.apply_updates(weights, updates)
    found = weights['layers']['output']['kernel']
    for layer in range(3):  # each layer's tensor is clipped by itself
        norm = np.linalg.norm(gradient[layer])
        assert norm > 1
        gradient[layer] /= norm
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for _ in range(3):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weight -= 0.1 * (mean / (np.sqrt(square) + 1e-6) + 0.01 * weight)
    np.testing.assert_allclose(found, weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ('steps', 'warmup', 'rising'),
    [(1, 0.1, 0), (1, 0.9, 0), (4, 0.0, 0), (10, 0.1, 1), (9, 0.4, 4)],
)
def test_the_rate_is_that_of_transformers(steps, warmup, rising):
    """Without a warmup, the first step has the whole rate."""
    ours = optimizers.make_schedule(2.0, steps, warmup)
    step = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    theirs = get_linear_schedule_with_warmup(step, rising, steps)
    expected = []
    for _ in range(steps):
        expected += theirs.get_last_lr()
        step.step()
        theirs.step()
    np.testing.assert_allclose([ours(at) for at in range(steps)], expected, rtol=1e-6)
    assert any(expected)


def test_layers_apart_are_clipped_as_in_their_stack():
    """Those of a model that has lost heads, which stand under their numbers."""
    stacked = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
    clip = lambda tree: optimizers.clip_each(1.0).update(tree, ())[0]['layers']
    expected = clip({'layers': {'output': {'kernel': stacked}}})['output']['kernel']
    layers = {str(at): {'output': {'kernel': each}} for at, each in enumerate(stacked)}
    apart = clip({'layers': layers})
    for layer in range(3):
        np.testing.assert_allclose(
            apart[str(layer)]['output']['kernel'], expected[layer], rtol=1e-6
        )
