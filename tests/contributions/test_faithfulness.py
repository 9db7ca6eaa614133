"""Scores of tokens, and the test of whether they say what the model does without these tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.contributions import faithfulness as module
from bert_secrets_jax.contributions.faithfulness import compare, faithfulness, kept_tokens
from bert_secrets_jax.contributions.layerwise import attention_graph, rollout
from bert_secrets_jax.contributions.scores import (
    METHODS,
    SIGNED,
    _gradients,
    prediction_weights,
    token_contributions,
    token_scores,
)
from bert_secrets_jax.data.encoding import tokenize
from tests.conftest import PAIRS, forward, rarely
from tests.contributions.reference import random_model

TEXTS = [*PAIRS, ('a dog', 'small'), ('big', 'red')]
COMPUTE = bs.Compute(max_length=24)


@pytest.fixture(scope='module')
def model(config, tokenizer):
    return random_model(config, tokenizer)


@pytest.fixture(scope='module')
def scores(model):
    return token_scores(model, TEXTS, compute=COMPUTE, seed=3)


@pytest.fixture(scope='module')
def encoded(model):
    return tokenize(model.tokenizer, TEXTS, max_length=24)


@pytest.fixture(scope='module')
def tested(model, scores, encoded, tmp_path_factory):
    folder = tmp_path_factory.mktemp('unfinished')
    return faithfulness(
        model, encoded, scores, compute=bs.Compute(max_length=24, folder=folder)
    ), folder


def run(model, ids, types):
    """The logits of a row of tokens."""
    return np.asarray(alone(model, ids, types).logits[0], np.float64)


def alone(model, ids, types):
    """The output of a row of tokens, without padding."""
    ids, types = np.array([ids]), np.array([types])
    inputs = {'input_ids': ids, 'token_type_ids': types, 'attention_mask': np.ones_like(ids)}
    return forward(model.bert, model.params, inputs)


def margin(logits, top):
    return logits[top] - np.delete(logits, top).mean()


def test_scores_are_those_of_each_text_alone(model, scores, encoded):
    assert set(scores.scores) == set(METHODS)
    for text in (0, 3):
        ids = encoded.input_ids[text, : encoded.lengths[text]]
        types = encoded.token_type_ids[text, : encoded.lengths[text]]
        output = alone(model, ids, types)
        attention = np.asarray(output.attentions[0], np.float64)
        np.testing.assert_allclose(
            scores.scores['attention'][text], attention[-1].mean(axis=0)[0], atol=1e-5
        )
        product = np.asarray(rollout(attention_graph(output.attentions)))[0, -1]
        np.testing.assert_allclose(scores.scores['rollout'][text], product[0], atol=1e-5)
        for name in ('value zeroing', 'ALTI', 'GlobEnc'):
            np.testing.assert_allclose(scores.scores[name][text].sum(), 1, atol=1e-5)
        np.testing.assert_allclose(scores.logits[text], output.logits[0], atol=2e-5)
        assert scores.scores['flow'][text].shape == ids.shape
        # More can flow through several ways than rollout sends down each.
        assert (scores.scores['flow'][text] > product[0] - 1e-6).all()
        given = model.bert, model.params, output, jnp.ones((1, len(ids)), int), prediction_weights
        expected = np.asarray(token_contributions(*given))[0]
        np.testing.assert_allclose(
            scores.scores['DecompX'][text], expected, atol=1e-4 * np.abs(expected).max()
        )


def test_gradients_are_those_of_the_model(model, encoded):
    """A bias of the embeddings moves all of them: its gradient is the sum of those of tokens."""
    batch = encoded.batch(np.array([0]), 24)

    @jax.jit
    def both(params, batch):
        def moved(bias):
            norm = params['embeddings']['norm'] | {'bias': bias}
            changed = params | {'embeddings': params['embeddings'] | {'norm': norm}}
            logits = model.bert.apply({'params': changed}, **batch.inputs).logits
            return (logits * jax.lax.stop_gradient(prediction_weights(logits))).sum()

        _, gradients = _gradients(model.bert, params, batch)
        return gradients, jax.grad(moved)(params['embeddings']['norm']['bias'])

    gradients, expected = both(model.params, batch)
    mask = batch.attention_mask[0].astype(bool)
    assert not np.asarray(gradients)[0, ~mask].any()
    np.testing.assert_allclose(
        np.asarray(gradients)[0].sum(axis=0), expected, atol=1e-4 * np.abs(expected).max()
    )


@pytest.mark.slow
def test_devices_share_the_examples(model, scores):
    mesh = jax.sharding.Mesh(jax.devices()[:2], ('data',))
    shared = token_scores(model, TEXTS, compute=bs.Compute(max_length=24, mesh=mesh), seed=3)
    for method, mine in scores.scores.items():
        for each, other in zip(mine, shared.scores[method], strict=True):
            np.testing.assert_allclose(each, other, atol=1e-5)


def test_random_scores_do_not_depend_on_other_texts(model, scores):
    again = token_scores(model, TEXTS[:2], methods=['random'], compute=COMPUTE, seed=3)
    for text in range(2):
        np.testing.assert_array_equal(again.scores['random'][text], scores.scores['random'][text])
    other = token_scores(model, TEXTS[:1], methods=['random'], compute=COMPUTE, seed=4)
    assert (other.scores['random'][0] != scores.scores['random'][0]).all()


@pytest.mark.slow
def test_the_test_is_that_of_texts_without_tokens(model, scores, encoded, tested):
    found, _ = tested
    method = METHODS.index('gradient x input')
    for text in (0, 4):
        length = encoded.lengths[text]
        given = [each[text, :length] for each in (encoded.input_ids, encoded.token_type_ids)]
        places = np.flatnonzero(~encoded.special[text, :length])
        without = lambda lost, given=given: run(model, *(np.delete(each, lost) for each in given))
        whole = without([])
        top = whole.argmax()
        effects = np.array([margin(whole, top) - margin(without(each), top) for each in places])
        np.testing.assert_allclose(found.effects[text][places], effects, atol=1e-4)
        assert not found.effects[text][encoded.special[text, :length]].any()
        score = scores.scores['gradient x input'][text][places]
        order = places[np.argsort(-score)]
        for column, share in enumerate(found.shares):
            best = order[: int(np.ceil(share * len(places)))]
            for measure, lost in (
                (found.comprehensiveness, best),
                (found.sufficiency, np.setdiff1d(places, best)),
            ):
                before, after = (
                    scipy.special.softmax(each)[top] for each in (whole, without(lost))
                )
                fall = measure[method, column, text]
                np.testing.assert_allclose(fall, before - after, atol=2e-5)
        if len(places) >= 3:
            rank = lambda *given: scipy.stats.spearmanr(*given).statistic
            absolute = rank(np.abs(score), np.abs(effects))
            np.testing.assert_allclose(found.rank[method, text], absolute, atol=1e-9)
            np.testing.assert_allclose(found.signed[method, text], rank(score, effects), atol=1e-9)
    assert np.isnan(found.rank[:, 4]).all() and found.tokens.tolist()[3:] == [3, 2]
    unsigned = [row for row, name in enumerate(METHODS) if name not in SIGNED]
    assert np.isnan(found.signed[unsigned]).all()


def test_what_was_computed_is_read(model, scores, encoded, tested, monkeypatch):
    found, folder = tested
    monkeypatch.setattr(module.Descent, 'steps', None)
    again = faithfulness(model, encoded, scores, compute=bs.Compute(max_length=24, folder=folder))
    np.testing.assert_array_equal(again.comprehensiveness, found.comprehensiveness)


def test_kept_tokens_move_up_and_keep_their_segment(encoded):
    kept = np.ones((1, encoded.lengths[0]), bool)
    kept[0, [1, 4, 12]] = False
    found = kept_tokens(encoded, np.array([0]), kept)
    length = found.lengths[0]
    assert length == encoded.lengths[0] - 3
    for name in ('input_ids', 'token_type_ids', 'special', 'text'):
        np.testing.assert_array_equal(
            getattr(found, name)[0, :length], getattr(encoded, name)[0][kept[0]]
        )


@pytest.mark.parametrize(
    ('call', 'message'),
    [
        (lambda model: token_scores(model, ['a'], methods=['saliency']), "must be 'random'"),
        (lambda model: token_scores(model, ['a'], methods='rollout'), "'rollout' must be a list"),
        (lambda model: token_scores(without_classifier(model), ['a']), 'has no classifier'),
        (lambda model: bs.analyses.attribution(model, ['a'], shares=(1.0,)), 'Shares are a list'),
        (
            lambda model: bs.analyses.attribution(model, ['a'], shown=-1),
            'shown=-1 must be .* from 0',
        ),
        *(
            (lambda model, shares=shares: module.check_shares(shares), 'numbers between 0 and 1')
            for shares in ((), (0.5, 0.1, 0.1), (0.0, 0.5), (1.0,), 0.5, '0.5', ('a',), None)
        ),
    ],
)
def test_what_does_not_fit_is_named(model, untyped, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def without_classifier(model):
    config = dataclasses.replace(model.config, label_names=())
    return dataclasses.replace(model, bert=bs.Bert(config))


def test_what_is_the_same_in_all_texts_is_not_told_apart():
    for size in (0.1, 0.2, 0.3):
        same = np.repeat(size * np.arange(1.0, 4)[:, None], 20, axis=1)
        found = compare(('a', 'b', 'c'), same, rivals=('a',), more_is_better=True)
        assert found.best == 'c' and found.tied == ('a', 'b')
        assert (found.beyond['a'].corrected == 1).all()


def test_intervals_stay_where_the_measure_is():
    values = np.array([[0.9, -0.9, 0.1], [1.0, 0.5, 0.9]])
    free = compare(('a', 'b'), values, rivals=(), more_is_better=True)
    assert free.low.min() < -1 and free.high.max() > 1
    found = compare(('a', 'b'), values, rivals=(), more_is_better=True, limit=1.0)
    assert (found.low >= -1).all() and (found.high <= 1).all()


def world(rng, *, better, methods=6, texts=40):
    """Scores of methods that are all as good as random but for the last, which is just better."""
    # An easy text is easy for all methods, and the rest is skewed as falls are.
    values = rng.normal(0, 0.15, texts) + rng.gamma(1.5, 0.15, (methods, texts))
    values[-1] += better
    return values


@pytest.mark.parametrize(
    ('better', 'bounds'), rarely([(0.0, (0, 0.1)), (0.2, (0.8, 1))], often=[(0.0, (0, 0.1))])
)
def test_error_rate_and_power_in_simulated_worlds(better, bounds):
    names = ('random', 'a', 'b', 'c', 'd', 'e')
    worlds, found, told, covered = 60, 0, 0, 0
    for seed in range(worlds):
        values = world(np.random.default_rng(seed), better=better)
        compared = compare(
            names, values, rivals=('random', 'not there'), more_is_better=True, seed=seed
        )
        assert set(compared.beyond) == {'random'} and compared.texts == 40
        beyond = compared.beyond['random']
        # In a world without better methods, any discovery is false.
        real = beyond.corrected <= 0.05
        found += bool(real[-1] if better else real.any())
        told += not compared.tied and compared.best == 'e'
        covered += bool(beyond.low[-1] <= better <= beyond.high[-1])
    assert bounds[0] <= found / worlds <= bounds[1]
    assert covered / worlds > 0.88
    assert told / worlds > 0.5 if better else told / worlds < 0.05


def test_less_can_be_better():
    values = world(np.random.default_rng(0), better=-0.4)
    names = ('random', 'a', 'b', 'c', 'd', 'e')
    found = compare(names, values, rivals=('random',), more_is_better=False)
    assert found.best == 'e' and not found.tied and found.beyond['random'].high[-1] < 0
    with pytest.raises(ValueError, match='two are needed'):
        compare(names, values[:, :1], rivals=(), more_is_better=True)
