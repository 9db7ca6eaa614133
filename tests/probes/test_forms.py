"""Scores beside loops over pairs, as the equations of the paper and the published code have it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.probes.forms import (
    ATTENTION,
    ATTENTION_WORDS,
    DISTANCES_WORDS,
    FORMS,
    Sentence,
    Sizes,
    candidate_vectors,
)

MAPS, WIDTH, PADDED = 5, 4, 6


def sentence(*, count=4, padded=PADDED, seed=0, reading='paper'):
    """Return a sentence of some words, whose padding is full of numbers that count for nothing."""
    rng = np.random.default_rng(seed)
    maps = rng.random((MAPS, padded + 2, padded + 2)).astype(np.float32)
    vectors = rng.normal(size=(padded, WIDTH)).astype(np.float32)
    candidates, named = candidate_vectors(jnp.asarray(vectors), jnp.int32(count), reading=reading)
    return Sentence(
        jnp.asarray(maps), jnp.asarray(vectors), candidates, named, jnp.asarray(count, jnp.int32)
    )


def params_of(form, seed=0):
    params = form.init(jax.random.key(seed), Sizes(MAPS, WIDTH))
    # Biases begin at 0, where nothing of them would be seen.
    leaves, tree = jax.tree.flatten(params)
    rng = np.random.default_rng(seed)
    return jax.tree.unflatten(
        tree, [jnp.asarray(rng.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    )


def both_vectors(one, word, candidate, reading):
    """The concatenation of the published code, whose dummy for ROOT stands first or last."""
    count, vectors = int(one.count), np.asarray(one.vectors, np.float64)
    pairs = [np.concatenate([vectors[word], vectors[other]]) for other in range(count)]
    dummy = [np.zeros(2 * WIDTH)]
    return (dummy + pairs if reading == 'paper' else pairs + dummy)[candidate]


def stacked(one, root):
    """All maps of both directions with ROOT in front, as the published code stacks them."""
    maps, count = np.asarray(one.maps, np.float64), int(one.count)
    kept = [*range(count), PADDED, PADDED + 1]
    maps = maps[:, kept][:, :, kept]
    maps = np.concatenate([maps, maps.transpose(0, 2, 1)])
    of_root = root[0] * maps[:, :count, -2] + root[1] * maps[:, :count, -1]
    return np.concatenate([of_root[:, :, None], maps[:, :count, :count]], axis=2)


def loop(form, params, one, reading):
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    count = int(one.count)
    scores = np.zeros((count, count + 1))
    features = expected_distances(count)
    for word in range(count):
        for candidate in range(count + 1):
            pair = both_vectors(one, word, candidate, reading)
            if form is ATTENTION:
                weights = params['maps'].reshape(-1)
            elif form is ATTENTION_WORDS:
                kernel = params['kernel'].reshape(2, 2 * WIDTH, MAPS)
                weights = np.concatenate(
                    [pair @ kernel[which] + params['bias'][which] for which in range(2)]
                )
            else:
                read = np.concatenate([features[:, word, candidate], pair])
                hidden = np.tanh(read @ params['hidden'] + params['hidden_bias'])
                scores[word, candidate] = hidden @ params['output']
                continue
            maps = stacked(one, params['root'])
            scores[word, candidate] = weights @ maps[:, word, candidate]
    return scores


def expected_distances(count):
    features = np.zeros((8, count, count + 1))
    for word in range(count):
        features[7, word, 0] = 1
        for other in range(count):
            features[0, word, other + 1] = max(other - word, 0) / count
            features[1, word, other + 1] = max(word - other, 0) / count
            for which, near in enumerate((0, -1, 1, -2, 2), start=2):
                features[which, word, other + 1] = other - word == near
    return features


@pytest.mark.parametrize('reading', ['paper', 'notebook'])
@pytest.mark.parametrize('form', FORMS, ids=lambda form: form.name)
def test_scores_are_those_of_a_loop_over_pairs(form, reading):
    one, params = sentence(reading=reading), params_of(form)
    found = np.asarray(form.scores(params, one))[:4, :5]
    np.testing.assert_allclose(found, loop(form, params, one, reading), atol=2e-5)


def test_initial_weights_are_glorots():
    """Uniform up to the limits of the published shapes: 2 M maps, 2 V numbers, 256 units."""
    sizes = Sizes(150, 100)
    attention = ATTENTION.init(jax.random.key(0), sizes)
    words = ATTENTION_WORDS.init(jax.random.key(0), sizes)
    distances = DISTANCES_WORDS.init(jax.random.key(0), sizes)
    limits = [
        (attention['maps'], (6 / 600) ** 0.5),
        (words['kernel'], (6 / 500) ** 0.5),
        (distances['hidden'], (6 / (209 + 256)) ** 0.5),
        (distances['output'], (6 / 257) ** 0.5),
    ]
    for weights, limit in limits:
        greatest = float(jnp.abs(weights).max())
        assert 0.97 * limit < greatest <= limit
        assert abs(float(weights.std()) / (limit / 3**0.5) - 1) < 0.1
    assert not words['bias'].any() and not distances['hidden_bias'].any()
