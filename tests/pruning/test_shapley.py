"""Shapley values: by enumeration, the axioms, and errors that say how far off they are."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.pruning.shapley import (
    coalitions,
    correct,
    draw_permutations,
    negative_loss,
    shapley_of,
    shapley_values,
)
from tests.conftest import forward
from tests.pruning.conftest import LABELS, PAIRS

COMPUTE = bs.Compute(max_length=24)


def exact_values(game, heads):
    """Return the Shapley values [n, ...] of a game over sets of heads, by its formula."""
    found = []
    for head in range(heads):
        others = [other for other in range(heads) if other != head]
        total = 0
        for size in range(heads):
            weight = math.factorial(size) * math.factorial(heads - size - 1) / math.factorial(heads)
            for members in map(frozenset, itertools.combinations(others, size)):
                total = total + weight * (game[members | {head}] - game[members])
        found.append(total)
    return np.stack(found)


def random_game(heads, examples, seed):
    """A value [E] of every set of heads: what single heads add, and anything else on top."""
    rng = np.random.default_rng(seed)
    alone = rng.normal(size=(heads, examples))
    return {
        frozenset(members): alone[list(members)].sum(axis=0) + rng.normal(size=examples)
        for size in range(heads + 1)
        for members in itertools.combinations(range(heads), size)
    }


def play(game, permutations, shape):
    masks = coalitions(permutations, shape).reshape(-1, permutations.shape[1])
    values = np.stack([game[frozenset(np.flatnonzero(mask).tolist())] for mask in masks])
    return shapley_of(values, permutations, shape)


def all_permutations(heads):
    """All of them, each next to its reverse."""
    half = [order for order in itertools.permutations(range(heads)) if order[0] < order[-1]]
    return np.array([each for order in half for each in (order, order[::-1])])


def test_all_permutations_give_the_exact_values():
    """The estimator is the mean over pairs that are equally likely: it is unbiased."""
    game = random_game(4, 3, seed=0)
    exact = exact_values(game, 4)
    found = play(game, all_permutations(4), (2, 2))
    assert found.permutations == 24
    np.testing.assert_allclose(found.of_examples, exact.T.reshape(3, 2, 2), atol=1e-12)
    np.testing.assert_allclose(found.values, exact.mean(axis=1).reshape(2, 2), atol=1e-12)
    # Single pairs are far from it, or the comparison proves nothing.
    assert np.abs(found.of_pairs - found.values).max() > 0.3


def test_intervals_of_the_fewest_permutations():
    """They hold the value in .93 of cases; of four, which are refused, they hold .72."""
    heads, covered = 5, []
    with pytest.raises(ValueError, match='even, .* and at least 20: intervals of fewer'):
        draw_permutations(heads, 18, seed=0)
    for number in range(6):
        game = random_game(heads, 1, seed=number)
        exact = exact_values(game, heads)[:, 0]
        for seed in range(60):
            found = play(game, draw_permutations(heads, 20, seed=seed), (1, heads))
            reach = scipy.stats.t.ppf(0.975, 9) * found.errors[0]
            covered.append(np.abs(found.values[0] - exact) <= reach)
    assert 0.91 <= np.mean(covered) <= 0.97


def test_permutations_come_with_their_reverses():
    drawn = draw_permutations(9, 24, seed=3)
    assert (np.sort(drawn, axis=1) == np.arange(9)).all()
    np.testing.assert_array_equal(drawn[::2], drawn[1::2, ::-1])
    np.testing.assert_array_equal(drawn[:20], draw_permutations(9, 20, seed=3))
    assert len({tuple(order) for order in drawn}) == 24


def enumerated(model, value, baseline='zero'):
    """Return the exact values [n, E] from a forward pass of each of the 16 models."""
    (batch,) = bs.encode(model.tokenizer, PAIRS, max_length=24, buckets=())
    replacement = bs.mean_contexts(model, [batch]) if baseline == 'mean' else None
    given = {'baseline': baseline, 'replacement': replacement}
    game = {}
    for kept in itertools.product((0.0, 1.0), repeat=4):
        mask = np.array(kept, np.float32).reshape(2, 2)
        output = forward(model.bert, model.params, batch.inputs, head_mask=mask, **given)
        logits = np.asarray(output.logits)[np.argsort(batch.example)]
        game[frozenset(np.flatnonzero(kept).tolist())] = value(logits[None], LABELS)[0]
    return exact_values(game, 4)


@pytest.mark.parametrize('value', [negative_loss, correct])
@pytest.mark.parametrize('baseline', ['zero', 'mean'])
def test_a_model_is_a_game(model, baseline, value, monkeypatch):
    monkeypatch.setattr(
        'bert_secrets_jax.pruning.shapley.draw_permutations',
        lambda heads, count, seed: all_permutations(heads),
    )
    found = shapley_values(model, PAIRS, LABELS, value=value, baseline=baseline, compute=COMPUTE)
    exact = enumerated(model, value, baseline)
    np.testing.assert_allclose(found.of_examples, exact.T.reshape(5, 2, 2), atol=2e-5)
    np.testing.assert_allclose(found.values.sum(), found.intact - found.empty, atol=1e-12)
    assert np.ptp(exact) > 0.1


def test_equal_models_are_run_once(model, tmp_path):
    """All and none are shared by all permutations, and so are prefixes that two have in common."""
    compute = bs.Compute(max_length=24, folder=tmp_path)
    shapley_values(model, PAIRS, LABELS, permutations=20, compute=compute)
    assert len(coalitions(draw_permutations(4, 20, seed=0), (2, 2))) > 16
    for part in tmp_path.iterdir():
        with np.load(part) as arrays:
            assert len(arrays['logits']) <= 16


def test_values_of_examples():
    logits = np.array([[[0.0, 1.0], [3.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]]], np.float32)
    labels = np.array([1, 0])
    expected = np.log([[1 + np.exp(-1), 1 + np.exp(-3)], [1 + np.exp(2), 2]])
    np.testing.assert_allclose(negative_loss(logits, labels), -expected, rtol=1e-5)
    assert correct(logits, labels).tolist() == [[1, 1], [0, 1]]
    predicted = np.array([[[0.5], [2.0]]], np.float32)
    found = negative_loss(predicted, np.array([1.0, 4.5]))
    np.testing.assert_allclose(found, [[-0.25, -6.25]])


def test_errors_say_what_is_wrong(model):
    for count in (2, 18, 21):
        with pytest.raises(ValueError, match=f'permutations={count} must be even'):
            shapley_values(model, PAIRS, LABELS, permutations=count)
    with pytest.raises(ValueError, match=r'\[examples\] = \[5\], got \[3\], one for each'):
        shapley_values(model, PAIRS, LABELS[:3])
    tokens = dataclasses.replace(model.config, head='token_classification', add_pooler=False)
    with pytest.raises(ValueError, match='Each text has one label here, .* gives others'):
        shapley_values(dataclasses.replace(model, bert=bs.Bert(tokens)), PAIRS, LABELS)
    with pytest.raises(ValueError, match=r'value returns must be \[models, examples\] = '):
        shapley_values(
            model, PAIRS, LABELS, permutations=20, compute=COMPUTE,
            value=lambda logits, labels: negative_loss(logits, labels).mean(axis=1),
        )  # fmt: skip
    with pytest.raises(FloatingPointError, match='value of some model is NaN'):
        shapley_of(np.full((8, 3), np.nan), draw_permutations(4, 20, seed=0)[:2], (2, 2))
