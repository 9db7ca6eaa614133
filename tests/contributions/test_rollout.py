"""Rollout and flow beside loops, cuts of tiny graphs, and another library."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.contributions.layerwise import attention_graph, flow, rollout


def test_rollout_is_the_product_of_the_layers():
    rng = np.random.default_rng(0)
    maps = np.zeros((2, 3, 4, 6, 6), np.float32)
    maps[0] = rng.dirichlet(np.ones(6), (3, 4, 6))
    # The second example has two tokens of padding, whose own rows are arbitrary.
    maps[1, ..., :4] = rng.dirichlet(np.ones(4), (3, 4, 6))
    found = np.asarray(rollout(attention_graph(jnp.asarray(maps))))
    for example, length in enumerate((6, 4)):
        expected = np.eye(length)
        for layer in range(3):
            matrix = maps[example, layer, :, :length, :length].astype(np.float64).mean(axis=0)
            expected = (matrix + np.eye(length)) / 2 @ expected
            np.testing.assert_allclose(found[example, layer, :length, :length], expected, atol=1e-6)
        np.testing.assert_allclose(expected.sum(axis=1), 1)
    assert not found[1, :, :4, 4:].any()


def least_cut(matrices, read, sink):
    """The least capacity of all cuts between the source and an input token."""
    layers, length, _ = matrices.shape
    best = np.inf
    nodes = list(itertools.product(range(layers + 1), range(length)))
    for sides in itertools.product((True, False), repeat=len(nodes)):
        with_source = dict(zip(nodes, sides, strict=True))
        if with_source[0, sink]:
            continue
        cut = sum(read[token] for token in range(length) if not with_source[layers, token])
        for layer, above, below in np.ndindex(matrices.shape):
            if with_source[layer + 1, above] and not with_source[layer, below]:
                cut += matrices[layer, above, below]
        best = min(best, cut)
    return best


@pytest.mark.parametrize('read', [(1, 0, 0), (1 / 3, 1 / 3, 1 / 3)])
def test_flow_is_the_least_cut(read):
    matrices = np.random.default_rng(0).dirichlet(np.full(3, 0.4), (2, 3))
    read = np.array(read, float)
    found = flow(matrices, read)
    expected = [least_cut(matrices, read, sink) for sink in range(3)]
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.ptp(found) > 0.05


def test_flow_through_whole_pipes_is_exact():
    """The greatest capacities that there are: nothing overflows."""
    matrices = np.broadcast_to(np.eye(5), (3, 5, 5))
    np.testing.assert_array_equal(flow(matrices, np.eye(5)[0]), np.eye(5)[0])
    np.testing.assert_array_equal(flow(np.ones((3, 5, 5)), np.eye(5)[0]), np.ones(5))
