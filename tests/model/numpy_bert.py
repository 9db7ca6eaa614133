"""A BERT written again in NumPy, one head and one example at a time, as reference for masks.

Shares no code with the package: loops where the package has einsums, float64 where it has
float32, and a disabled head's map put in by hand.
"""

import math
import operator

import jax
import numpy as np

from tests.contributions.reference import gelu


def forward(
    config, params, input_ids, token_type_ids, attention_mask, *, replace=None, outputs=None
):
    """Run one example [T]; `replace[layer, head]` makes a map from its real length and T.

    `outputs[layer, head]` [T, H] is put in the place of map times values.

    Returns hidden states [L+1, T, D], learned maps [L, N, T, T], logits [C].
    """
    replace, outputs = replace or {}, outputs or {}
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    real = np.asarray(attention_mask).astype(bool)
    embed = p['embeddings']
    hidden = (
        embed['word']['embedding'][input_ids]
        + embed['token_type']['embedding'][token_type_ids]
        + embed['position']['embedding'][np.arange(len(input_ids))]
    )
    hidden = _norm(hidden, embed['norm'], config.layer_norm_eps)
    states, maps = [hidden], []
    for layer in range(config.num_hidden_layers):
        weights = jax.tree.map(operator.itemgetter(layer), p['layers'])
        attention = weights['attention']
        attended = np.zeros_like(hidden) + attention['output']['bias']
        for head in range(config.num_attention_heads):
            q, k, v = (
                hidden @ attention[name]['kernel'][:, head] + attention[name]['bias'][head]
                for name in ('query', 'key', 'value')
            )
            scores = q @ k.T / math.sqrt(config.head_size)
            scores[:, ~real] = -np.inf
            learned = np.exp(scores - scores.max(axis=1, keepdims=True))
            learned /= learned.sum(axis=1, keepdims=True)
            maps.append(learned)
            used = learned
            if (layer, head) in replace:
                used = replace[layer, head](int(real.sum()), len(real))
            context = outputs.get((layer, head), used @ v)
            attended += context @ attention['output']['kernel'][head]
        hidden = _norm(hidden + attended, weights['attention_norm'], config.layer_norm_eps)
        wide = hidden @ weights['intermediate']['kernel'] + weights['intermediate']['bias']
        narrow = gelu(wide) @ weights['output']['kernel'] + weights['output']['bias']
        hidden = _norm(hidden + narrow, weights['output_norm'], config.layer_norm_eps)
        states.append(hidden)
    pooled = np.tanh(hidden[0] @ p['pooler']['kernel'] + p['pooler']['bias'])
    logits = pooled @ p['classifier']['kernel'] + p['classifier']['bias']
    length = len(real)
    shape = (config.num_hidden_layers, config.num_attention_heads, length, length)
    return np.stack(states), np.stack(maps).reshape(shape), logits


def uniform_map(real_length: int, length: int) -> np.ndarray:
    """The paper's replacement: 1/length to every real token, from every query."""
    result = np.zeros((length, length))
    result[:, :real_length] = 1 / real_length
    return result


def zero_map(real_length: int, length: int) -> np.ndarray:
    del real_length
    return np.zeros((length, length))


def _norm(x, weights, epsilon):
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
    return scaled * weights['scale'] + weights['bias']
