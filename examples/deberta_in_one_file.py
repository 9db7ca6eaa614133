"""DeBERTa's encoder (versions 2 and 3) in plain JAX, in one file: no Flax, no library, only arrays.

    python examples/deberta_in_one_file.py FOLDER "The cat sat down."

FOLDER holds config.json, model.safetensors and a tokenizer, as Hugging Face saves them. Read it
beside `bert_in_one_file.py`: what DeBERTa adds is in `distances`, `score`, and `convolve`.
Attention maps are outputs, and a mask over heads is an argument. A test holds this file to the
library.

Source: He et al. 2021, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention".

Shapes: B batch, T query, S key, N head, H width of a head, D hidden width, L layer, K rows of the
table of distances.
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
ACTIVATIONS = {'tanh': jnp.tanh, 'gelu': lambda x: gelu(x), 'relu': jax.nn.relu}


class Config(NamedTuple):
    """The settings of config.json that the encoder needs.

    Attributes:
      relative: Whether distances count at all.
      parts: The summands of a score besides that of the contents: 'c2p' and 'p2c', or none.
      buckets: The number of distances, both ways, with a row of their own or shared; 0 for no
        sharing.
      farthest: The distance from which on all share the last row.
      shared_keys: Whether the projections of contents also project distances.
      norm_distances: Whether the table of distances is normalised.
      conv_groups, conv_act: The groups and the activation of the convolution; no groups without it.
    """

    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float
    relative: bool
    parts: tuple[str, ...]
    buckets: int
    farthest: int
    shared_keys: bool
    norm_distances: bool
    conv_groups: int
    conv_act: str

    @property
    def span(self):
        """Half the number of rows of the table of distances."""
        return self.buckets if self.buckets > 0 else self.farthest


class Output(NamedTuple):
    """All that the encoder returns.

    Attributes:
      hidden_states: [L + 1, B, T, D] The embeddings, and the output of each layer.
      attentions: [L, B, N, T, S] The learned maps, before heads are disabled.
    """

    hidden_states: jax.Array
    attentions: jax.Array


def load(folder):
    """Return the config and the weights of a checkpoint, by the names of their tensors."""
    folder = pathlib.Path(folder)
    written = json.loads((folder / 'config.json').read_text())
    if written['model_type'] != 'deberta-v2' or written.get('hidden_act', 'gelu') != 'gelu':
        raise ValueError(f'{folder} is no DeBERTa-v2 with GELU: this file reads nothing else.')
    farthest = written.get('max_relative_positions', -1)
    parts = written.get('pos_att_type') or ()
    kernel = written.get('conv_kernel_size', 0)
    config = Config(
        num_attention_heads=written['num_attention_heads'],
        num_hidden_layers=written['num_hidden_layers'],
        layer_norm_eps=written.get('layer_norm_eps', 1e-7),
        relative=written.get('relative_attention', False),
        parts=tuple(parts.split('|') if isinstance(parts, str) else parts),
        buckets=written.get('position_buckets', -1),
        farthest=farthest if farthest > 0 else written['max_position_embeddings'],
        shared_keys=written.get('share_att_key', False),
        norm_distances='layer_norm' in written.get('norm_rel_ebd', 'none'),
        conv_groups=written.get('conv_groups', 1) if kernel else 0,
        conv_act=written.get('conv_act', 'tanh'),
    )
    tensors = load_file(folder / 'model.safetensors')
    # A model with a head has its encoder under 'deberta.'.
    names = {name.removeprefix('deberta.'): jnp.asarray(each) for name, each in tensors.items()}
    return config, names


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
    """The exact GELU, by erf. The approximation by tanh is another model."""
    return x / 2 * (1 + jax.lax.erf(x / jnp.sqrt(2.0)))


def embed(config, weights, input_ids, token_type_ids, real):
    """Look up the words, normalise them, and set padding to 0.

    Positions and segments are added where the checkpoint has them. Most have neither: words stand
    alone, and order enters by distances.
    """
    total = weights['embeddings.word_embeddings.weight'][input_ids]
    if 'embeddings.position_embeddings.weight' in weights:
        total += weights['embeddings.position_embeddings.weight'][None, : input_ids.shape[1]]
    if 'embeddings.token_type_embeddings.weight' in weights:
        total += weights['embeddings.token_type_embeddings.weight'][token_type_ids]
    if 'embeddings.embed_proj.weight' in weights:
        projection = weights['embeddings.embed_proj.weight']
        total = jnp.einsum('BTE,DE->BTD', total, projection, precision=EXACT)
    normed = layer_norm(weights, 'embeddings.LayerNorm', total, config.layer_norm_eps)
    return normed * real[..., None]


def rows_of_distances(config, length):
    """Return the row [T, S] of each distance, query minus key, in the table of 2 * span rows.

    Distances up to half the buckets have rows of their own. Longer ones share rows by their
    logarithm, so that 512 distances to each side need 256 rows.
    """
    distance = np.arange(length)[:, None] - np.arange(length)
    near = config.buckets // 2
    if near > 0:
        # In float32, as in PyTorch: a logarithm may fall on a bound between two rows.
        far = np.maximum(np.abs(distance), near).astype(np.float32) / np.float32(near)
        share = np.log(far) / np.log(np.float32((config.farthest - 1) / near))
        row = np.ceil(share * np.float32(near - 1)).astype(int) + near
        distance = np.where(np.abs(distance) <= near, distance, np.sign(distance) * row)
    return np.clip(distance + config.span, 0, 2 * config.span - 1)


def distances(config, weights):
    """Return the embeddings of all distances [K, D], which all layers share; None without any."""
    if not config.relative:
        return None
    table = weights['encoder.rel_embeddings.weight'][: 2 * config.span]
    if config.norm_distances:
        table = layer_norm(weights, 'encoder.LayerNorm', table, config.layer_norm_eps)
    return table


def project(config, weights, name, x):
    """Project [..., D] to the heads [..., N, H]."""
    return dense(weights, name, x).reshape(*x.shape[:-1], config.num_attention_heads, -1)


def score(config, weights, name, hidden, table):
    """Return the scores [B, N, T, S]: contents meet contents, and each meets the distance.

    'c2p': the query meets the key of its distance to the key's token. 'p2c': the key meets the
    query of that distance (equation 4). The scale reckons with all three, even where distances do
    not count.
    """
    query = project(config, weights, f'{name}.query_proj', hidden)
    key = project(config, weights, f'{name}.key_proj', hidden)
    total = jnp.einsum('BTNH,BSNH->BNTS', query, key, precision=EXACT)
    rows = rows_of_distances(config, hidden.shape[1])
    own = '' if config.shared_keys else 'pos_'
    if config.relative and 'c2p' in config.parts:
        keys = project(config, weights, f'{name}.{own}key_proj', table)
        of_rows = jnp.einsum('BTNH,KNH->BNTK', query, keys, precision=EXACT)
        total += jnp.take_along_axis(of_rows, jnp.asarray(rows)[None, None], axis=-1)
    if config.relative and 'p2c' in config.parts:
        queries = project(config, weights, f'{name}.{own}query_proj', table)
        of_rows = jnp.einsum('BSNH,KNH->BNSK', key, queries, precision=EXACT)
        of_keys = jnp.take_along_axis(of_rows, jnp.asarray(rows.T)[None, None], axis=-1)
        total += jnp.swapaxes(of_keys, -1, -2)
    return total / jnp.sqrt(jnp.float32(query.shape[-1] * (1 + len(config.parts))))


def attend(config, weights, name, hidden, table, real, keep):
    """Run self-attention.

    Args:
      config, weights: Those of the model.
      name: The beginning of the names of the layer's tensors.
      hidden: [B, T, D] The input.
      table: [K, D] The embeddings of distances, or None.
      real: [B, S] 1 on real tokens, 0 on padding.
      keep: [N] 1 keeps a head, 0 disables it, fractions interpolate.

    Returns:
      The output [B, T, D] and the learned maps [B, N, T, S].
    """
    scores = score(config, weights, f'{name}.self', hidden, table)
    # The lowest finite number: with -inf, a row without real keys would become NaN.
    scores = jnp.where(real[:, None, None] == 1, scores, jnp.finfo(jnp.float32).min)
    learned = jax.nn.softmax(scores)
    uniform = (real / real.sum(-1, keepdims=True))[:, None, None]
    keep = keep[None, :, None, None]
    used = keep * learned + (1 - keep) * uniform
    value = project(config, weights, f'{name}.self.value_proj', hidden)
    context = jnp.einsum('BNTS,BSNH->BTNH', used, value, precision=EXACT)
    summed = dense(weights, f'{name}.output.dense', context.reshape(hidden.shape)) + hidden
    normed = layer_norm(weights, f'{name}.output.LayerNorm', summed, config.layer_norm_eps)
    return normed, learned


def run_layer(config, weights, name, hidden, table, real, keep):
    """Run one layer: attention, then the feed-forward network, each with its LayerNorm."""
    hidden, learned = attend(config, weights, f'{name}.attention', hidden, table, real, keep)
    inner = gelu(dense(weights, f'{name}.intermediate.dense', hidden))
    summed = dense(weights, f'{name}.output.dense', inner) + hidden
    return layer_norm(weights, f'{name}.output.LayerNorm', summed, config.layer_norm_eps), learned


def convolve(config, weights, embedded, hidden):
    """Add a convolution over the embeddings to the output of the first layer (xlarge models)."""
    name = 'encoder.conv.conv'
    kernel = weights[f'{name}.weight']
    mixed = jax.lax.conv_general_dilated(
        embedded,
        kernel,
        window_strides=(1,),
        padding=[((kernel.shape[-1] - 1) // 2,) * 2],
        dimension_numbers=('NTC', 'OIT', 'NTC'),
        feature_group_count=config.conv_groups,
        precision=EXACT,
    )
    added = hidden + ACTIVATIONS[config.conv_act](mixed + weights[f'{name}.bias'])
    return layer_norm(weights, 'encoder.conv.LayerNorm', added, config.layer_norm_eps)


def run(config, weights, input_ids, token_type_ids, attention_mask, *, head_mask=None):
    """Run the encoder. At padding, the results mean nothing.

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
    embedded = embed(config, weights, jnp.asarray(input_ids), jnp.asarray(token_type_ids), real)
    hidden, table = embedded, distances(config, weights)
    states, maps = [hidden], []
    for layer in range(config.num_hidden_layers):
        name, keep = f'encoder.layer.{layer}', jnp.asarray(head_mask[layer])
        hidden, learned = run_layer(config, weights, name, hidden, table, real, keep)
        if layer == 0 and config.conv_groups:
            hidden = convolve(config, weights, embedded, hidden)
        states.append(hidden)
        maps.append(learned)
    return Output(jnp.stack(states), jnp.stack(maps))


def main(folder, text):
    """Print, for each layer, the head that attends most to [SEP]."""
    from transformers import AutoTokenizer

    encoded = AutoTokenizer.from_pretrained(folder)([text], return_tensors='np')
    config, weights = load(folder)
    inputs = [encoded[name] for name in ('input_ids', 'token_type_ids', 'attention_mask')]
    output = jax.jit(run, static_argnums=0)(config, weights, *inputs)
    to_last = output.attentions[:, 0, :, :, -1].mean(-1)
    for layer, heads in enumerate(np.asarray(to_last), 1):
        print(f'L{layer}-H{heads.argmax() + 1} gives [SEP] {heads.max():.2f} of its attention')


if __name__ == '__main__':
    main(*sys.argv[1:])
