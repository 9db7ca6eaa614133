"""Divergences between heads beside SciPy's, the plane, and the test of layers."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.spatial.distance
from sklearn.manifold import MDS

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.clusters import (
    BEHAVIOURS,
    BROAD,
    DIVERGENCE,
    OTHER,
    compare_layers,
    from_tables,
)
from bert_secrets_jax.measure.catalogue import UNIFORM
from bert_secrets_jax.measure.statistics import SMOOTHING, head_divergences, uniform_entropy
from tests.analyses.conftest import flat_table
from tests.conftest import forward


def maps(rng, shape, real):
    found = rng.dirichlet(np.full(real, 0.3), shape[:-1])
    return np.pad(found, [(0, 0)] * (len(shape) - 1) + [(0, shape[-1] - real)])


def test_divergences_are_scipys():
    rng = np.random.default_rng(0)
    attentions = maps(rng, (2, 3, 9, 9), 7).astype(np.float32)
    token = np.arange(9) < 7
    # Nobody reads the attention of padding.
    attentions[:, :, 7:] = rng.random((2, 3, 2, 9))
    found, count = head_divergences(jnp.asarray(attentions), {'token': jnp.asarray(token)})
    rows = (1 - SMOOTHING) * attentions.reshape(6, 9, 9)[:, :7, :7] + SMOOTHING / 7
    expected = [
        [np.mean(scipy.spatial.distance.jensenshannon(a, b, axis=-1) ** 2) for b in rows]
        for a in rows
    ]
    assert count == 7
    np.testing.assert_allclose(found.reshape(6, 6), expected, atol=2e-6)
    uniform, _ = uniform_entropy(jnp.asarray(attentions), {'token': jnp.asarray(token)})
    np.testing.assert_allclose(uniform, np.log(7), rtol=1e-6)


def test_a_corpus_is_a_mean_over_tokens(model, texts, settings):
    """A long example counts for more than a short one, whatever the batches and the padding."""
    result = bs.analyses.clusters(model, texts, settings=settings)
    total, tokens = 0, 0
    for example in texts:
        (batch,) = bs.encode(model.tokenizer, [example], max_length=32)
        output = forward(model.bert, model.params, batch.inputs)
        marks = {name: jnp.asarray(mark[0]) for name, mark in batch.marks.items()}
        value, count = head_divergences(output.attentions[0], marks)
        total, tokens = total + np.asarray(value) * count, tokens + count
    expected = (total / tokens).reshape(12, 12)
    np.testing.assert_allclose(result.divergences, (expected + expected.T) / 2, atol=2e-6)
    assert result.tables[DIVERGENCE].count == tokens
    assert (np.diag(result.divergences) == 0).all()
    nearest = result.divergences + np.diag(np.full(12, np.inf))
    names = [result.names[index] for index in nearest.argmin(axis=1)]
    assert result.frames()['heads']['nearest_head'].tolist() == names


def tables_of(divergences, *, layers, **behaviours):
    heads = len(divergences) // layers
    shape = layers, heads
    means = dict.fromkeys(BEHAVIOURS, np.zeros(shape))
    means |= {'entropy (nats)': np.full(shape, 1.0), UNIFORM: np.full(shape, np.log(128))}
    means |= {name.replace('_', ' '): each for name, each in behaviours.items()}
    means[DIVERGENCE] = divergences.reshape(*shape, -1)
    return {name: flat_table(mean) for name, mean in means.items()}


def clusters_of(divergences, **options):
    return from_tables(tables_of(divergences, **options), seed=0)


def test_a_plane_gives_back_distances_that_lie_in_one():
    rng = np.random.default_rng(1)
    points = rng.random((12, 2)) * 0.3
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = clusters_of(apart, layers=3)
    again = np.linalg.norm(found.positions[:, None] - found.positions[None], axis=-1)
    np.testing.assert_allclose(again, apart, atol=0.01)
    assert found.stress < 0.02
    np.testing.assert_array_equal(found.positions, clusters_of(apart, layers=3).positions)


def test_stress_is_kruskals():
    """It is that of scikit-learn, whose best of five placements is the same."""
    rng = np.random.default_rng(4)
    apart = np.linalg.norm(rng.random((15, 1, 4)) - rng.random((15, 4)), axis=-1)
    apart = (apart + apart.T) * (1 - np.eye(15))
    how = {'n_init': 5, 'max_iter': 1000, 'init': 'random', 'random_state': 0}
    scaling = MDS(metric='precomputed', normalized_stress=True, **how).fit(apart)
    found = clusters_of(apart, layers=3)
    np.testing.assert_allclose(found.stress, scaling.stress_, rtol=1e-6)
    assert found.stress > 0.2


def test_what_heads_mostly_do():
    rng = np.random.default_rng(2)
    apart = np.abs(rng.normal(size=(4, 4)))
    given = {'all [SEP]': np.array([[0, 0], [0.7, 0]]), 'entropy (nats)': [[1, 1], [1, 4.0]]}
    found = clusters_of(apart + apart.T, layers=2, next_token=[[0.6, 0.4], [0, 0]], **given)
    assert found.behaviours == ['next token', OTHER, 'all [SEP]', BROAD]
    assert found.names == ['L1-H1', 'L1-H2', 'L2-H1', 'L2-H2']


def worlds(rng, lead, *, layers=4, heads=6):
    """Distances of heads that scatter about the middle of their layer."""
    middles = np.repeat(lead * rng.normal(size=(layers, 3)), heads, axis=0)
    points = middles + rng.normal(size=(layers * heads, 3))
    return np.linalg.norm(points[:, None] - points[None], axis=-1)


def test_error_rate_and_power_of_the_test_of_layers():
    rng = np.random.default_rng(3)

    def rejected(lead, runs):
        each = (compare_layers(worlds(rng, lead), heads=6, seed=i, rounds=199) for i in range(runs))
        return np.mean([found.p_value <= 0.05 for found in each])

    assert rejected(0, 300) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert rejected(1, 40) >= 0.9


def test_one_layer_and_two_heads():
    rng = np.random.default_rng(4)
    alone = compare_layers(worlds(rng, 0, layers=1), heads=6, seed=0)
    assert alone.p_value == 1 and np.isnan(alone.between)
    apart = worlds(rng, 0, layers=1)
    found = clusters_of(apart, layers=1)
    assert [each.name for each in found.findings()] == ['most similar heads']
    with pytest.raises(ValueError, match='too few heads: 2 given, at least 3'):
        clusters_of(np.zeros((2, 2)), layers=1)
