"""Models in NumPy's float64, with the vectors of all pairs of tokens and all parts written out."""

import math

import jax
import numpy as np

import bert_secrets_jax as bs
from tests.conftest import PAIRS, random_params


def random_model(config, tokenizer, scale=0.2):
    """A model all of whose parameters are random, biases and scales of LayerNorm included."""
    bert = bs.Bert(config)
    rng = np.random.default_rng(5)
    params = jax.tree.map(
        lambda leaf: leaf * (scale / 0.2) + rng.normal(0, scale / 2, leaf.shape).astype(np.float32),
        random_params(bert),
    )
    return bs.Pretrained(bert, params, tokenizer)


def batch_of(model):
    (batch,) = bs.encode(model.tokenizer, PAIRS, max_length=24, buckets=())
    return batch


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_new(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


ACTS = {
    'silu': silu,
    'gelu': gelu,
    'gelu_new': gelu_new,
    'tanh': np.tanh,
    'relu': lambda x: np.maximum(x, 0),
}


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
        if self.config.family.rms_norm:
            square = (state.whole**2).mean(axis=-1, keepdims=True)
            return state.times(weights['scale'] / np.sqrt(square + self.config.layer_norm_eps))
        return state.normed(weights, self.config.layer_norm_eps)

    def turned(self, values):
        """Values [..., T, N, H] rotated by their positions, where the model does that."""
        if not self.config.rotary_value:
            return values
        frequencies = 10_000.0 ** (-np.arange(0, values.shape[-1], 2) / values.shape[-1])
        turns = np.exp(1j * np.arange(values.shape[-3])[:, None, None] * frequencies)
        numbers = (values[..., ::2] + 1j * values[..., 1::2]) * turns
        return np.stack([numbers.real, numbers.imag], axis=-1).reshape(values.shape)

    def attended(self, number, state, lost=None):
        """The residual stream after attention, with the values of a token zero."""
        weights = self.layer(number)['attention']
        values = self.turned(self.read(number, state).dense(weights['value']).parts)
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
        return self.wide(weights, state).dense(weights['output'])

    def wide(self, weights, state):
        wide = state.dense(weights['intermediate'])
        if not self.config.family.gated:
            return wide.activated(self.config.hidden_act)
        gates = ACTS[self.config.hidden_act](wide.whole[:, 0])
        return Summands(wide.parts[:, :, 1]).times(gates)

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
        pooling = self.config.classifier_pooling
        pooled = Summands(state.parts[:, 0] if pooling == 'cls' else state.parts)
        if pooling == 'mean':
            pooled = Summands(state.parts.mean(axis=1))
        pooled = pooled.dense(self.params['pooler']).activated(
            family.pooler_act or self.config.hidden_act
        )
        if pooling == 'late':
            pooled = Summands(pooled.parts.mean(axis=1))
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

    def vectors(self, number):
        """What each head gives each token from each other one [N, T, S, D], without biases."""
        attention = self.layer(number)['attention']
        read = self.read(number, Summands(self.states[number][None].copy())).whole
        values = np.tensordot(read, attention['value']['kernel'], 1)
        values = self.turned(values + attention['value'].get('bias', 0))
        return np.einsum(
            'nts,snh,nhd->ntsd', self.maps[number], values, attention['output']['kernel']
        )

    def of_attention(self, number):
        """Vectors [i, j, D] after attention and residual, what biases add, and after LayerNorm."""
        weights = self.layer(number)
        vectors = self.vectors(number).sum(axis=0)
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
        state = Summands(whole[None])
        fed = (state + self.fed(weights, state)).whole
        deviation = np.sqrt(fed.var(axis=1) + self.config.layer_norm_eps)[:, None, None]
        return vectors, whole, centre(vectors) / deviation * second['scale']

    def alti(self, number):
        vectors, whole, _ = self.of_attention(number)
        length = np.abs(whole).sum(axis=1)
        return np.maximum(length[:, None] - np.abs(whole[:, None] - vectors).sum(axis=2), 0)

    def globenc(self, number):
        return np.linalg.norm(self.of_attention(number)[2], axis=2)
