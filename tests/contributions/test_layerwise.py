"""Contributions within layers and to logits, beside NumPy in float64 with all vectors written out.

One compiled function of each model gives them all.
"""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.decomposition import token_contributions
from bert_secrets_jax.contributions.layerwise import alti, globenc, value_zeroing
from bert_secrets_jax.contributions.scores import of_prediction
from tests.conftest import real_checkpoint, relative
from tests.contributions.test_norms import batch_of, random_model

# Rows of a matrix that are shares, and what they are shares of.
METHODS = {'value zeroing': value_zeroing, 'ALTI': alti, 'GlobEnc': globenc}


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTS = {'gelu': gelu, 'gelu_new': gelu_new, 'tanh': np.tanh, 'relu': lambda x: np.maximum(x, 0)}


class Summands:
    """Vectors [P, ...] whose sum is a state of the model; the last is what biases have made."""

    def __init__(self, parts):
        self.parts = parts

    @property
    def whole(self):
        return self.parts.sum(axis=0)

    def __add__(self, other):
        return Summands(self.parts + other.parts)

    def dense(self, layer, axes=1):
        parts = np.tensordot(self.parts, layer['kernel'], axes)
        return Summands(parts).biased(layer)

    def biased(self, layer):
        self.parts[-1] += layer.get('bias', 0)
        return self

    def times(self, factors):
        return Summands(self.parts * factors)

    def normed(self, weights, epsilon):
        deviation = np.sqrt(self.whole.var(axis=-1, keepdims=True) + epsilon)
        centred = self.parts - self.parts.mean(axis=-1, keepdims=True)
        return Summands(centred / deviation * weights['scale']).biased(weights)

    def activated(self, name):
        return self.times(ACTS[name](self.whole) / self.whole)


class Reference:
    """A model in float64, of one example without padding, from its embeddings and maps."""

    def __init__(self, model, output, example, length):
        as_float = lambda each: np.asarray(each, np.float64)
        self.config, self.length = model.config, length
        self.params = jax.tree.map(as_float, model.params)
        self.states = as_float(output.hidden_states[example, :, :length])
        self.maps = as_float(output.attentions[example, :, :, :length, :length])

    def layer(self, number):
        return jax.tree.map(lambda each: each[number], self.params['layers'])

    def read(self, number, state):
        normed = self.config.family.norm_first and self.config.layer_kinds[number].normed
        return self.norm(state, self.layer(number)['attention_norm']) if normed else state

    def norm(self, state, weights):
        return state.normed(weights, self.config.layer_norm_eps)

    def attended(self, number, state, lost=None):
        """The residual stream after attention, with the values of a token zero."""
        weights = self.layer(number)['attention']
        values = self.read(number, state).dense(weights['value']).parts
        if lost is not None:
            values[:, lost] = 0
        contexts = Summands(np.einsum('nts,psnh->ptnh', self.maps[number], values))
        return state + contexts.dense(weights['output'], 2)

    def rest(self, number, residual):
        weights = self.layer(number)
        if self.config.family.norm_first:
            return residual + self.fed(weights, self.norm(residual, weights['output_norm']))
        normed = self.norm(residual, weights['attention_norm'])
        return self.norm(normed + self.fed(weights, normed), weights['output_norm'])

    def fed(self, weights, state):
        wide = state.dense(weights['intermediate'])
        if self.config.family.gated:
            gates = ACTS[self.config.hidden_act](wide.whole[:, 0])
            wide = Summands(wide.parts[:, :, 1]).times(gates)
        else:
            wide = wide.activated(self.config.hidden_act)
        return wide.dense(weights['output'])

    def apart(self, state):
        """A state with a summand for each of its tokens, and none of biases."""
        parts = np.zeros((self.length + 1, *state.shape))
        parts[np.arange(self.length), np.arange(self.length)] = state
        return Summands(parts)

    def logits(self):
        """The summands [T + 1, C] of the logits."""
        state, family = self.apart(self.states[0]), self.config.family
        for number in range(self.config.num_hidden_layers):
            state = self.rest(number, self.attended(number, state))
        if family.norm_first:
            state = self.norm(state, self.params['final_norm'])
        mean = self.config.classifier_pooling == 'mean'
        pooled = Summands(state.parts.mean(axis=1) if mean else state.parts[:, 0])
        pooled = pooled.dense(self.params['pooler']).activated(family.pooler_act)
        if family.pooler_norm:
            pooled = self.norm(pooled, self.params['pooler_norm'])
        return pooled.dense(self.params['classifier']).parts

    def value_zeroing(self, number):
        state = Summands(self.states[number][None].copy())
        whole = self.rest(number, self.attended(number, state)).whole
        found = np.zeros((self.length, self.length))
        for token in range(self.length):
            other = self.rest(number, self.attended(number, state, token)).whole
            cosine = (whole * other).sum(axis=1)
            cosine /= np.linalg.norm(whole, axis=1) * np.linalg.norm(other, axis=1)
            found[:, token] = 1 - cosine
        return found

    def of_attention(self, number):
        """Vectors [i, j, D] after attention and residual, what biases add, and after LayerNorm."""
        weights = self.layer(number)
        value, output = weights['attention']['value'], weights['attention']['output']['kernel']
        read = self.read(number, Summands(self.states[number][None].copy())).whole
        values = np.tensordot(read, value['kernel'], 1) + value.get('bias', 0)
        vectors = np.einsum('nij,jnh,nhd->ijd', self.maps[number], values, output)
        vectors[np.arange(self.length), np.arange(self.length)] += self.states[number]
        bias = weights['attention']['output'].get('bias', np.zeros(vectors.shape[-1]))
        whole = vectors.sum(axis=1) + bias
        if self.config.family.norm_first:
            return vectors, whole, vectors
        norm, second = weights['attention_norm'], weights['output_norm']
        deviation = np.sqrt(whole.var(axis=1) + self.config.layer_norm_eps)[:, None]
        centre = lambda x: x - x.mean(axis=-1, keepdims=True)
        vectors = centre(vectors) / deviation[:, None] * norm['scale']
        whole = centre(whole) / deviation * norm['scale'] + norm.get('bias', 0)
        # Any standard deviation: those of rows cancel.
        return vectors, whole, centre(vectors) * second['scale'] / 7

    def alti(self, number):
        vectors, whole, _ = self.of_attention(number)
        length = np.abs(whole).sum(axis=1)
        return np.maximum(length[:, None] - np.abs(whole[:, None] - vectors).sum(axis=2), 0)

    def globenc(self, number):
        return np.linalg.norm(self.of_attention(number)[2], axis=2)


def shares(matrix):
    return matrix / matrix.sum(axis=1, keepdims=True)


@functools.partial(jax.jit, static_argnums=0)
def everything(bert, params, batch):
    output = bert.apply({'params': params}, **batch.inputs)
    given = bert, params, output, batch.attention_mask
    found = {name: method(*given) for name, method in METHODS.items()}
    return output, found, token_contributions(*given, of_prediction)


@pytest.mark.parametrize(
    ('model_type', 'scale'),
    [
        ('bert', 0.2), ('bert', 0.02), ('esm', 0.2), ('modernbert', 0.2), ('modernbert', 0.02),
        ('mpnet', 0.2),
        *(
            pytest.param(name, 0.2, marks=pytest.mark.slow)
            for name in ('distilbert', 'albert', 'electra', 'roberta', 'xlm-roberta', 'camembert')
        ),
    ],
)  # fmt: skip
def test_all_are_those_of_vectors_written_out(config, tokenizer, model_type, scale):
    mine = relative(config, model_type)
    if model_type == 'modernbert' and scale == 0.2:
        mine = dataclasses.replace(mine, classifier_pooling='mean')
    if model_type == 'esm':
        mine = dataclasses.replace(mine, label_names=('value',))
    compare_with_reference(random_model(mine, tokenizer, scale))


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
            for name in METHODS:
                matrix = getattr(reference, name.lower().replace(' ', '_'))(layer)
                mine_of = np.asarray(found[name][row, layer])
                np.testing.assert_allclose(
                    mine_of[:length, :length], shares(matrix), atol=5e-4, err_msg=name
                )
                assert not mine_of[:length, length:].any() and shares(matrix).std() > 1e-3
        parts, logits = reference.logits(), np.asarray(output.logits[row], np.float64)
        # A check of the reference itself: what all bring is what the model says.
        np.testing.assert_allclose(parts.sum(axis=0), logits, atol=2e-4 * np.abs(parts).max())
        weights = np.asarray(of_prediction(output.logits))[row]
        expected = parts[:-1] @ weights
        assert expected.std() > 1e-4 * np.abs(parts).max()
        np.testing.assert_allclose(
            contributions[row, :length], expected, atol=2e-4 * np.abs(expected).max()
        )
        assert not np.asarray(contributions)[row, length:].any()
        # Biases have a part, too, which is no token's.
        assert np.abs(parts[-1]).max() > 1e-3 * np.abs(parts).max()
