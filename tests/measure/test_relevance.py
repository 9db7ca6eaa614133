"""Relevance of heads: contributions written out, the walk by autodiff, nothing lost on the way."""

import dataclasses
import functools
import operator

import hypothesis
import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.measure import relevance as module
from bert_secrets_jax.measure.relevance import ALPHA, ALPHA_BETA, EPSILON, head_relevance, linear
from tests.conftest import PAIRS, RELATIVES, relative
from tests.contributions.reference import random_model


def distributed(contributions, relevance):
    """Return what inputs [I] receive of outputs [O] with relevance, by contributions [I, O]."""
    positive, negative = np.maximum(contributions, 0), np.minimum(contributions, 0)
    shares = ALPHA * positive / (positive.sum(axis=0) + EPSILON)
    shares += (1 - ALPHA) * negative / (negative.sum(axis=0) - EPSILON)
    given = shares.sum(axis=0)
    return (shares / np.where(given, given, 1)) @ relevance


@pytest.fixture(scope='module')
def plain(config, tokenizer):
    return random_model(config, tokenizer)


def batches_of(tokenizer):
    return encode(tokenizer, PAIRS, max_length=24, buckets=())


def of_tokens(config):
    """The configuration of a classifier of tokens."""
    pools = config.family.pools_tokens
    return dataclasses.replace(config, head='token_classification', add_pooler=pools)


def of_means(config):
    """The configuration of a regression on the mean over tokens."""
    return dataclasses.replace(config, classifier_pooling='mean', label_names=('value',))


def written_again(steps, model, output, mask, shift):
    """The logits by the steps alone, with numbers [B, L, N] added to the outputs of heads."""
    hidden = output.hidden_states[:, 0]
    for layer, kind in enumerate(model.config.layer_kinds):
        given = (
            model.config,
            steps,
            jax.tree.map(operator.itemgetter(layer), model.params['layers']),
        )
        maps = output.attentions[:, layer]
        contexts = module.contexts_of(*given, hidden, maps=maps, normed=jnp.array(kind.normed))
        contexts += shift[:, layer, None, :, None]
        hidden = module.after_attention(*given, hidden, contexts)
    return module.classified(model.config, steps, model.params, hidden, mask)


@pytest.mark.parametrize(
    ('model_type', 'change'),
    [
        *((name, None) for name in RELATIVES), ('bert', of_tokens), ('modernbert', of_tokens),
        ('modernbert', of_means),
    ],
)  # fmt: skip
def test_the_walk_is_that_of_autodiff_and_loses_nothing(config, tokenizer, model_type, change):
    """Through the model, written again as steps that each distribute all the relevance they get."""
    mine = relative(config, model_type)
    model = random_model(change(mine) if change else mine, tokenizer)
    (batch,) = batches_of(tokenizer)
    mask, real = jnp.asarray(batch.attention_mask), batch.example >= 0

    @jax.jit
    def walked(params):
        output = model.bert.apply({'params': params}, **batch.inputs)
        start = functools.partial(module._start, model.config, attention_mask=mask)
        steps = functools.partial(written_again, ALPHA_BETA, model, output, mask)
        logits, back = jax.vjp(steps, jnp.zeros((len(mask), 3, 4)))
        carried, _ = module.walk_back(ALPHA_BETA, model.bert, params, output, mask, start)
        return output.logits, logits, back(start(logits))[0], carried.sum(axis=(1, 2))

    expected, logits, of_heads, carried = (each[real] for each in walked(model.params))
    seen = slice(None) if logits.ndim == 2 else np.asarray(mask, bool)[real]
    np.testing.assert_allclose(logits[seen], expected[seen], atol=2e-5)
    np.testing.assert_allclose(carried, 1, rtol=1e-4)
    found = head_relevance(model, [batch], keep_values=True)
    np.testing.assert_allclose(found.values[batch.example[real]], of_heads, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(found.mean, found.values.mean(axis=0), rtol=1e-5)
    assert found.count == len(PAIRS) and found.mean.std() > 1e-4
    assert (found.values > 0).all() and (found.values.sum(axis=-1) < 1).all()


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    arrays.arrays(np.float32, (2, 5), elements=st.floats(-4, 4, width=16)),
    arrays.arrays(np.float32, (5, 3), elements=st.floats(-4, 4, width=16)),
)
def test_a_linear_step_hands_on_all_it_has(inputs, weights):
    relevance = np.array([[1, 0.5, 2], [0, 3, 1]], np.float32)
    outputs, back = jax.vjp(
        functools.partial(linear, 'BI,IO->BO'), jnp.asarray(inputs), jnp.asarray(weights)
    )
    np.testing.assert_allclose(outputs, inputs @ weights, rtol=1e-5, atol=1e-5)
    received, of_weights = back(jnp.asarray(relevance))
    assert not of_weights.any() and (received >= 0).all()
    contributions = inputs[:, :, None] * weights[None]
    expected = np.where((contributions != 0).any(axis=1), relevance, 0)
    np.testing.assert_allclose(received.sum(axis=1), expected.sum(axis=1), rtol=1e-4)
    for row in range(2):
        np.testing.assert_allclose(
            received[row], distributed(contributions[row].astype(np.float64), relevance[row]),
            rtol=1e-3, atol=1e-5,
        )  # fmt: skip


def test_removed_heads_have_no_relevance(plain):
    batches = batches_of(plain.tokenizer)
    mask = np.ones((3, 4), np.float32)
    mask[0, 1] = mask[2, 3] = 0
    whole = head_relevance(plain, batches, head_mask=np.ones((3, 4), int)).mean
    np.testing.assert_array_equal(whole, head_relevance(plain, batches).mean)
    left = head_relevance(plain, batches, head_mask=mask).mean
    np.testing.assert_array_equal(left == 0, mask == 0)
    assert (np.abs(left - whole)[1] > 1e-5).all()


def test_what_is_refused(config, tokenizer, untyped):
    batches = batches_of(tokenizer)
    for head, names in (('masked_lm', ()), ('question_answering', ('start', 'end'))):
        mine = dataclasses.replace(config, head=head, label_names=names, add_pooler=False)
        with pytest.raises(ValueError, match='classifies texts or tokens'):
            head_relevance(random_model(mine, tokenizer), batches)
    mine = dataclasses.replace(config, label_names=())
    with pytest.raises(ValueError, match=r'none \(bert, 3 layers, 4 heads, width 24\)'):
        head_relevance(random_model(mine, tokenizer), batches)
