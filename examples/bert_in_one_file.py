"""BERT's encoder in plain JAX, in one file: no Flax, no library, only arrays.

    python examples/bert_in_one_file.py FOLDER "The cat sat down."

FOLDER holds config.json, model.safetensors and a tokenizer of a BERT, as Hugging Face saves them.
Attention maps are outputs. A mask over heads is an argument: 1 keeps a head, 0 lets it attend to
all real tokens alike (Kovaleva et al. 2019, section 4.6). A test holds this file to the library.

Shapes: B batch, T query, S key, N head, H width of a head, D hidden width, L layer.
"""

import json
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

# float32 means float32 on every device: others multiply with fewer bits by default.
EXACT = jax.lax.Precision.HIGHEST


class Config(NamedTuple):
    """The numbers of config.json that the encoder needs."""

    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float


class Output(NamedTuple):
    """All that the encoder returns.

    Attributes:
      hidden_states: [L + 1, B, T, D] The embeddings, and the output of each layer.
      attentions: [L, B, N, T, S] The learned maps, before heads are disabled.
      pooled: [B, D] The pooled state of [CLS]; None if the checkpoint has no pooler.
    """

    hidden_states: jax.Array
    attentions: jax.Array
    pooled: jax.Array | None


def load(folder):
    """Return the config and the weights of a checkpoint, by the names of their tensors."""
    folder = pathlib.Path(folder)
    written = json.loads((folder / 'config.json').read_text())
    if written['model_type'] != 'bert' or written.get('hidden_act', 'gelu') != 'gelu':
        raise ValueError(f'{folder} is no BERT with GELU: this file reads nothing else.')
    config = Config(
        written['num_attention_heads'],
        written['num_hidden_layers'],
        written.get('layer_norm_eps', 1e-12),
    )
    tensors = load_file(folder / 'model.safetensors')
    # A model with a head has its encoder under 'bert.'.
    return config, {name.removeprefix('bert.'): jnp.asarray(each) for name, each in tensors.items()}


def dense(weights, name, x):
    """Multiply by a matrix, which PyTorch stores as [out, in], and add a bias."""
    product = jnp.einsum('...I,OI->...O', x, weights[f'{name}.weight'], precision=EXACT)
    return product + weights[f'{name}.bias']


def layer_norm(weights, name, x, eps):
    """Normalise the last axis. The variance is that of the centred values: E[x^2] - E[x]^2
    cancels."""
    centred = x - x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + eps)
    return centred * scale * weights[f'{name}.weight'] + weights[f'{name}.bias']


def gelu(x):
    """The exact GELU of BERT, by erf. The approximation by tanh is another model."""
    return x / 2 * (1 + jax.lax.erf(x / jnp.sqrt(2.0)))


def embed(config, weights, input_ids, token_type_ids):
    """Add up the embeddings of words, positions and segments, and normalise the sum."""
    words = weights['embeddings.word_embeddings.weight'][input_ids]
    positions = weights['embeddings.position_embeddings.weight'][: input_ids.shape[1]]
    segments = weights['embeddings.token_type_embeddings.weight'][token_type_ids]
    total = words + segments + positions[None]
    return layer_norm(weights, 'embeddings.LayerNorm', total, config.layer_norm_eps)


def attend(config, weights, name, hidden, real, keep):
    """Run self-attention.

    Args:
      config, weights: Those of the model.
      name: The beginning of the names of the layer's tensors.
      hidden: [B, T, D] The input.
      real: [B, S] 1 on real tokens, 0 on padding.
      keep: [N] 1 keeps a head, 0 disables it, fractions interpolate.

    Returns:
      The output [B, T, D] and the learned maps [B, N, T, S].
    """

    def heads(part):
        projected = dense(weights, f'{name}.self.{part}', hidden)
        return projected.reshape(*hidden.shape[:2], config.num_attention_heads, -1)

    query, key, value = heads('query'), heads('key'), heads('value')
    scores = jnp.einsum('BTNH,BSNH->BNTS', query, key, precision=EXACT)
    scores = scores / jnp.sqrt(jnp.float32(query.shape[-1]))
    # The lowest finite number: with -inf, a row without real keys would become NaN.
    scores = jnp.where(real[:, None, None] == 1, scores, jnp.finfo(jnp.float32).min)
    learned = jax.nn.softmax(scores)
    uniform = (real / real.sum(-1, keepdims=True))[:, None, None]
    keep = keep[None, :, None, None]
    used = keep * learned + (1 - keep) * uniform
    context = jnp.einsum('BNTS,BSNH->BTNH', used, value, precision=EXACT)
    output = dense(weights, f'{name}.output.dense', context.reshape(hidden.shape))
    summed = output + hidden
    normed = layer_norm(weights, f'{name}.output.LayerNorm', summed, config.layer_norm_eps)
    return normed, learned


def run_layer(config, weights, name, hidden, real, keep):
    """Run one layer: attention, then the feed-forward network, each with its LayerNorm."""
    hidden, learned = attend(config, weights, f'{name}.attention', hidden, real, keep)
    inner = gelu(dense(weights, f'{name}.intermediate.dense', hidden))
    summed = dense(weights, f'{name}.output.dense', inner) + hidden
    return layer_norm(weights, f'{name}.output.LayerNorm', summed, config.layer_norm_eps), learned


def run(config, weights, input_ids, token_type_ids, attention_mask, *, head_mask=None):
    """Run the encoder.

    Args:
      config, weights: From `load`.
      input_ids: [B, T] The wordpieces, padded on the right.
      token_type_ids: [B, T] 0 in the first text, 1 in the second.
      attention_mask: [B, T] 1 on real tokens, 0 on padding.
      head_mask: [L, N] 1 keeps a head, 0 disables it; None keeps all.
    """
    real = jnp.asarray(attention_mask, jnp.float32)
    if head_mask is None:
        head_mask = np.ones((config.num_hidden_layers, config.num_attention_heads), np.float32)
    hidden = embed(config, weights, jnp.asarray(input_ids), jnp.asarray(token_type_ids))
    states, maps = [hidden], []
    for layer in range(config.num_hidden_layers):
        name, keep = f'encoder.layer.{layer}', jnp.asarray(head_mask[layer])
        hidden, learned = run_layer(config, weights, name, hidden, real, keep)
        states.append(hidden)
        maps.append(learned)
    pooled = None
    if 'pooler.dense.weight' in weights:
        pooled = jnp.tanh(dense(weights, 'pooler.dense', hidden[:, 0]))
    return Output(jnp.stack(states), jnp.stack(maps), pooled)


def main(folder, text):
    """Print, for each layer, the head that attends most to [SEP]."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer([text], return_tensors='np')
    config, weights = load(folder)
    inputs = [encoded[name] for name in ('input_ids', 'token_type_ids', 'attention_mask')]
    output = jax.jit(run, static_argnums=0)(config, weights, *inputs)
    to_last = output.attentions[:, 0, :, :, -1].mean(-1)
    for layer, heads in enumerate(np.asarray(to_last), 1):
        print(f'L{layer}-H{heads.argmax() + 1} gives [SEP] {heads.max():.2f} of its attention')


if __name__ == '__main__':
    main(*sys.argv[1:])
