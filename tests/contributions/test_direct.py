"""Direct effects: the parts of the logits sum to them, and are those of NumPy; and the lens."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.direct import direct_parts
from bert_secrets_jax.data.masking import mask_words
from tests.conftest import PAIRS, RELATIVES, forward, rarely, relative
from tests.contributions.reference import Reference, Summands, batch_of, random_model

TYPES = sorted(RELATIVES.keys() - {'xlm-roberta', 'camembert'})
POOLINGS = {'modernbert': 'mean', 'eurobert': 'late'}


def check_sums(found, margins, right, *, dropped=False):
    """The parts sum to the margin of the right answer, and the last layer answers as the model."""
    parts = [found.heads, found.fed, found.biases, found.embeddings[:, None]]
    total = sum(
        np.asarray(each, np.float64).reshape(len(margins), -1).sum(axis=1) for each in parts
    )
    scale = max(np.abs(each).max() for each in parts)
    np.testing.assert_allclose(total, margins, atol=2e-5 * scale)
    np.testing.assert_allclose(found.total, margins, atol=2e-5 * scale)
    # Where training dropped tokens, the embedding of [MASK] is 0.
    for each in parts[: 3 if dropped else 4]:
        assert np.abs(each).max() > 1e-3 * scale
    np.testing.assert_array_equal(found.right[:, -1].reshape(right.shape), right)


@pytest.mark.parametrize('model_type', rarely(TYPES, often=['bert']))
def test_parts_of_a_classifier_sum_to_the_margin(config, tokenizer, model_type):
    mine = relative(config, model_type)
    if model_type in POOLINGS:
        mine = dataclasses.replace(mine, classifier_pooling=POOLINGS[model_type])
    model = random_model(mine, tokenizer)
    batch = batch_of(model)
    labels = np.array([2, 0, 1])
    found = direct_parts(model.bert, model.params, batch, None, labels[:, None])
    logits = np.asarray(forward(model.bert, model.params, batch.inputs).logits, np.float64)
    own = logits[np.arange(3), labels]
    others = (logits.sum(axis=1) - own) / 2
    check_sums(found, own - others, logits.argmax(axis=1) == labels)
    assert found.right.shape == (3, 3, 1)


@pytest.mark.parametrize('model_type', rarely(TYPES, often=['bert']))
def test_parts_of_a_masked_lm_sum_to_the_margins(config, tokenizer, model_type):
    mine = relative(config, model_type)
    if model_type == 'eurobert':  # has no biases otherwise
        mine = dataclasses.replace(mine, mlp_bias=True)
    pools = mine.family.pools_tokens
    mine = dataclasses.replace(mine, head='masked_lm', label_names=(), add_pooler=pools)
    model = random_model(mine, tokenizer)
    (batch,) = mask_words(model.tokenizer, PAIRS, masking=bs.Masking(share=0.3)).batches
    found = direct_parts(model.bert, model.params, batch, batch.places, batch.words)
    logits = np.asarray(forward(model.bert, model.params, batch.inputs).logits, np.float64)
    logits = np.take_along_axis(logits, batch.places[:, :, None], axis=1)
    own = np.take_along_axis(logits, np.maximum(batch.words, 0)[:, :, None], axis=2)[..., 0]
    margin = own - (logits.sum(axis=2) - own) / (logits.shape[2] - 1)
    asked = batch.words >= 0
    assert asked.any() and not asked.all()
    right = (logits.argmax(axis=2) == batch.words) & asked
    check_sums(found, (margin * asked).sum(axis=1), right, dropped=mine.token_dropout)


def test_a_head_is_what_numpy_carries_to_the_logits(config, tokenizer):
    """In float64: through LayerNorms whose deviations are those of the whole, and nothing else."""
    model = random_model(config, tokenizer)
    batch = batch_of(model)
    output = forward(model.bert, model.params, batch.inputs)
    labels = np.array([[2], [0], [1]])
    found = direct_parts(model.bert, model.params, batch, None, labels)
    for layer, head in ((0, 1), (2, 3)):
        reference = Reference(model, output, 0, int(batch.lengths[0]))
        context = np.asarray(output.contexts, np.float64)[0, layer, 0, head]
        kernel = reference.layer(layer)['attention']['output']['kernel'][head]
        state, part = reference.states[layer][0], context @ kernel
        # Two summands: what the head adds, and all the rest.
        state = Summands(np.stack([part, state - part]))
        for number in range(layer, config.num_hidden_layers):
            weights = reference.layer(number)
            states = Summands(reference.states[number][None].copy())
            state.parts[1] += (reference.attended(number, states).whole - states.whole)[0]
            state = reference.norm(state, weights['attention_norm'])
            state.parts[1] += reference.fed(weights, Summands(state.whole[None])).whole
            state = reference.norm(state, weights['output_norm'])
        state = state.dense(reference.params['pooler']).activated('tanh')
        part = state.dense(reference.params['classifier']).parts[0]
        expected = part[2] - part[:2].mean()
        assert abs(expected) > 1e-4
        np.testing.assert_allclose(found.heads[0, layer, head], expected, rtol=2e-4)


def test_the_lens_is_the_head_on_what_leaves_a_layer(config, tokenizer):
    """As if the layers above were not there."""
    model = random_model(config, tokenizer)
    batch = batch_of(model)
    cut = dataclasses.replace(config, num_hidden_layers=2)
    layers = jax.tree.map(lambda leaf: leaf[:2], model.params['layers'])
    logits = forward(bs.Bert(cut), model.params | {'layers': layers}, batch.inputs).logits
    answers = np.asarray(logits).argmax(axis=1)
    for labels in (answers, (answers + 1) % 3):
        found = direct_parts(model.bert, model.params, batch, None, labels[:, None])
        assert (np.asarray(found.right[:, 1, 0]) == (labels == answers)).all()
