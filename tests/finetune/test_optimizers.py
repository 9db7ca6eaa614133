"""The optimisers are the ones they are called after."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bert_secrets_jax.finetune import optimizers


@pytest.fixture
def weights():
    rng = np.random.default_rng(0)
    return {
        'layers': {
            'output': {'kernel': rng.normal(size=(3, 4, 5)), 'bias': rng.normal(size=(3, 5))}
        },
        'pooler': {'kernel': rng.normal(size=(4, 4)), 'bias': rng.normal(size=4)},
        'embeddings': {
            'word': {'embedding': rng.normal(size=(6, 4))},
            'norm': {'scale': rng.normal(size=4), 'bias': rng.normal(size=4)},
        },
    }


def as_jax(tree):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)


def run(optimizer, weights, gradients, steps):
    weights = as_jax(weights)
    state = optimizer.init(weights)
    for _ in range(steps):
        updates, state = optimizer.update(as_jax(gradients), state, weights)
        weights = optax.apply_updates(weights, updates)
    return weights


def test_schedule():
    schedule = optimizers.make_schedule(5e-5, 100, 0.1)
    values = [float(schedule(step)) for step in (0, 5, 10, 55, 100)]
    np.testing.assert_allclose(values, [0, 2.5e-5, 5e-5, 2.5e-5, 0], atol=1e-12)


def test_only_kernels_and_embeddings_decay(weights):
    found = optimizers.decays(weights)
    assert found['layers']['output'] == {'kernel': True, 'bias': False}
    assert found['embeddings'] == {
        'word': {'embedding': True}, 'norm': {'scale': False, 'bias': False}
    }  # fmt: skip


def test_bert_adam_is_adam_without_bias_correction(weights):
    """Three steps written out in NumPy for one tensor of stacked layers."""
    gradients = jax.tree.map(lambda leaf: 0.7 * leaf, weights)
    optimizer = optimizers.make_optimizer(
        'bert_adam', optax.constant_schedule(0.1), weight_decay=0.01, clip=1.0
    )
    found = run(optimizer, weights, gradients, 3)['layers']['output']['kernel']
    weight, gradient = (t['layers']['output']['kernel'].copy() for t in (weights, gradients))
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


def test_an_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="'sgd' is unknown; choose one of"):
        optimizers.make_optimizer('sgd', lambda step: 1, weight_decay=0.0, clip=1.0)
