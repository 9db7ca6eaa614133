"""Contributions within layers and to logits, beside NumPy with all vectors written out."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.layerwise import LAYERWISE
from bert_secrets_jax.contributions.scores import (
    prediction_weights,
    token_contributions,
    token_scores,
)
from tests.conftest import RELATIVES, forward, real_checkpoint, relative
from tests.contributions.reference import Reference, batch_of, random_model


def shares(matrix):
    return matrix / matrix.sum(axis=1, keepdims=True)


@functools.partial(jax.jit, static_argnums=0)
def everything(bert, params, batch):
    output = bert.apply({'params': params}, **batch.inputs)
    given = bert, params, output, batch.attention_mask
    found = {name: method(*given) for name, method in LAYERWISE.items()}
    return output, found, token_contributions(*given, prediction_weights)


@pytest.mark.parametrize(
    ('model_type', 'scale'),
    [
        ('bert', 0.2), ('bert', 0.02), ('esm', 0.2), ('modernbert', 0.2), ('modernbert', 0.02),
        ('mpnet', 0.2),
        *(
            pytest.param(name, 0.2, marks=pytest.mark.slow)
            for name in sorted(RELATIVES.keys() - {'bert', 'esm', 'modernbert', 'mpnet'})
        ),
    ],
)  # fmt: skip
def test_all_are_those_of_vectors_written_out(config, tokenizer, model_type, scale):
    mine = relative(config, model_type)
    if model_type == 'modernbert' and scale == 0.2:
        mine = dataclasses.replace(mine, classifier_pooling='mean')
    if model_type == 'eurobert':
        mine = dataclasses.replace(mine, classifier_pooling='late')
    if model_type == 'esm':
        mine = dataclasses.replace(mine, label_names=('value',))
    compare_with_reference(random_model(mine, tokenizer, scale))


@pytest.mark.parametrize('real', [False, True])
def test_scores_of_globenc_multiply_norms(config, tokenizer, real):
    """Scores are the published ones: norms as they are, multiplied, and a row is read.

    Products of norms whose rows are made to sum to 1, which is not published, are far from them.
    """
    text, model = 'the cat saw a dog ran .', random_model(config, tokenizer)
    if real:
        model = bs.from_pretrained(real_checkpoint('all-MiniLM-L6-v2'))
        model = bs.with_classifier(model, ('no', 'yes'), seed=0)
    (scores,) = token_scores(model, [text], methods=['GlobEnc']).scores['GlobEnc']
    inputs = dict(model.tokenizer(text, return_tensors='np'))
    reference = Reference(model, forward(model.bert, model.params, inputs), 0, len(scores))
    published = other = np.eye(len(scores))
    for layer in range(model.config.num_hidden_layers):
        norms = reference.globenc(layer)
        published, other = norms @ published, shares(norms) @ other
    published = published[0] / published[0].sum()
    np.testing.assert_allclose(scores, published, atol=2e-6)
    assert np.abs(published - other[0]).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('name', ['all-MiniLM-L6-v2', 'gte-small'])
def test_real_weights(name):
    model = bs.from_pretrained(real_checkpoint(name))
    # The reference computes each layer once for each token that it takes away.
    compare_with_reference(bs.with_classifier(model, ('no', 'yes'), seed=0), texts=1)


def compare_with_reference(model, texts=None):
    """Compare all methods on a few texts, or on so many of them, with the reference in float64."""
    batch, mine = batch_of(model), model.config
    output, found, contributions = everything(model.bert, model.params, batch)
    for row in np.flatnonzero(batch.example >= 0)[:texts]:
        length = int(batch.lengths[row])
        reference = Reference(model, output, row, length)
        for layer in range(mine.num_hidden_layers):
            for name in LAYERWISE:
                matrix = getattr(reference, name.lower().replace(' ', '_'))(layer)
                mine_of = np.asarray(found[name][row, layer])
                np.testing.assert_allclose(
                    mine_of[:length, :length], shares(matrix), atol=5e-4, err_msg=name
                )
                assert not mine_of[:length, length:].any() and shares(matrix).std() > 1e-3
        parts, logits = reference.logits(), np.asarray(output.logits[row], np.float64)
        # A check of the reference itself: what all bring is what the model says.
        np.testing.assert_allclose(parts.sum(axis=0), logits, atol=2e-4 * np.abs(parts).max())
        weights = np.asarray(prediction_weights(output.logits))[row]
        expected = parts[:-1] @ weights
        assert expected.std() > 1e-4 * np.abs(parts).max()
        np.testing.assert_allclose(
            contributions[row, :length], expected, atol=2e-4 * np.abs(expected).max()
        )
        assert not np.asarray(contributions)[row, length:].any()
        # Biases have a part, too, which is no token's.
        assert np.abs(parts[-1]).max() > 1e-3 * np.abs(parts).max()
