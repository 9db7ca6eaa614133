"""Integrals along the path from a reference: their sums, and a plain loop of PyTorch."""

import functools

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.integrated import integrated_gradients
from bert_secrets_jax.contributions.scores import INTEGRATED, prediction_weights, token_scores
from tests.conftest import PAIRS, as_torch, rarely, relative
from tests.contributions.reference import batch_of, random_model


@functools.partial(jax.jit, static_argnames=('bert', 'steps'))
def gradients_of(bert, params, batch, steps):
    """Integrated gradients, and what they should sum to."""
    logits = bert.apply({'params': params}, **batch.inputs).logits
    weights = prediction_weights(logits)
    return *integrated_gradients(bert, params, batch, weights, steps=steps), weights


@pytest.mark.parametrize(
    'model_type',
    rarely(
        ['bert', 'modernbert', 'mpnet', 'esm', 'roberta', 'albert', 'deberta-v2', 'jina_bert'],
        often=['bert'],
    ),
)
def test_integrated_gradients_sum_to_the_change_of_the_logits(config, tokenizer, model_type):
    """From [CLS] [PAD] ... [SEP], up to an error that falls with the steps."""
    model = random_model(relative(config, model_type), tokenizer, scale=0.1)
    batch = batch_of(model)
    errors = []
    for steps in (2, 16):
        scores, change, _ = gradients_of(model.bert, model.params, batch, steps)
        errors.append(np.abs(scores.sum(axis=1) - change).max() / np.abs(scores).sum(axis=1).max())
    assert np.abs(change).max() > 0.005
    assert errors[0] > 1e-3 and errors[1] < 2e-5
    real = batch.attention_mask.astype(bool)
    assert not np.asarray(scores)[~real].any()
    special = (batch.marks['cls'] | batch.marks['sep'])[real]
    assert not np.asarray(scores)[real][special].any()
    # In the tests' vocabulary, [UNK] has the number of some families' [PAD].
    other = batch.input_ids[real] != model.config.pad_token_id
    assert np.asarray(scores)[real][~special & other].all()


def test_integrated_gradients_are_those_of_a_loop_in_pytorch(config, tokenizer, tmp_path):
    torch = pytest.importorskip('torch')
    transformers = pytest.importorskip('transformers')
    model, steps = random_model(config, tokenizer, scale=0.1), 16
    bs.save_pretrained(model, tmp_path)
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = batch_of(model)
    found, _, weights = gradients_of(model.bert, model.params, batch, steps)
    given = as_torch(config, batch.inputs)
    table = theirs.get_input_embeddings().weight.detach()
    kept = torch.tensor(batch.marks['cls'] | batch.marks['sep'])
    start = table[torch.where(kept, given['input_ids'], tokenizer.pad_token_id)]
    asked = torch.tensor(np.array(weights))
    path, total = table[given.pop('input_ids')] - start, 0
    for place, share in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
        point = (start + (1 + place) / 2 * path).requires_grad_()
        value = (theirs(inputs_embeds=point, **given).logits * asked).sum()
        total += share / 2 * torch.autograd.grad(value, point)[0]
    expected = (total * path).sum(-1).numpy()
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_scores_have_the_steps_that_were_asked(config, tokenizer):
    model = random_model(config, tokenizer, scale=0.1)
    found = token_scores(model, PAIRS, methods=[INTEGRATED], steps=2).scores[INTEGRATED]
    expected, *_ = gradients_of(model.bert, model.params, batch_of(model), 2)
    for text, scores in enumerate(found):
        np.testing.assert_allclose(scores, np.asarray(expected)[text, : len(scores)], atol=1e-6)
    assert np.abs(scores).max() > 1e-3
    with pytest.raises(ValueError, match='steps=0 must be a whole number from 1'):
        bs.token_scores(model, PAIRS, methods=[INTEGRATED], steps=0)


def test_what_integrated_gradients_miss_is_told(config, tokenizer, caplog):
    model = random_model(config, tokenizer, scale=0.6)
    token_scores(model, PAIRS, methods=[INTEGRATED], steps=1)
    assert 'Integrated gradients of' in caplog.text and 'take more steps than 1' in caplog.text
    caplog.clear()
    token_scores(random_model(config, tokenizer, scale=0.1), PAIRS, methods=[INTEGRATED])
    assert 'Integrated' not in caplog.text
