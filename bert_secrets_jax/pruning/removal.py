"""Heads cut out of the weights: the model is smaller, and computes what it computes under a mask.

Shapes: L layers, N heads, D hidden width, H width of a head, B batch, T and S tokens.

A mask saves nothing: masked heads are computed, and then multiplied by 0. `remove_heads` leaves
them out, so that layers have different numbers of heads.

`bs.from_pretrained` reads what `bs.save_pretrained` writes of such a model. So does release 4 of
`transformers` (`pruned_heads` in config.json) for BERT, RoBERTa, XLM-R, CamemBERT, ELECTRA,
DistilBERT (if each layer keeps a head), ALBERT and ESM, but not MPNet and ModernBERT. Release 5
cannot remove heads. There are two ways to it:

1. `bs.save_pretrained(bs.restore_heads(cut), directory)` writes an ordinary checkpoint with the
   same logits, in which the heads that were removed are zeros. Nothing is saved.
2. Cut the modules of a BERT, and load the smaller weights from the folder `directory`:

    import safetensors.torch
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(directory)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    for layer, heads in config.pruned_heads.items():
        attention = model.base_model.encoder.layer[int(layer)].attention
        left = config.num_attention_heads - len(heads)
        width = attention.self.attention_head_size * left
        for name in ('query', 'key', 'value'):
            setattr(attention.self, name, torch.nn.Linear(config.hidden_size, width))
        attention.output.dense = torch.nn.Linear(width, config.hidden_size)
    model.load_state_dict(safetensors.torch.load_file(f'{directory}/model.safetensors'))
    model.eval()
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from bert_secrets_jax.ablation.contexts import layers_of
from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.encoder import OF_HEADS, spread_heads
from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.names import head_name

# Subnetworks: the heads that survive pruning, as many drawn at random, and as many of the others
# (Prasanna et al. 2020, section 3.2).
GOOD, RANDOM, BAD = 'good', 'random', 'bad'
KINDS = (GOOD, RANDOM, BAD)


def remove_heads(pretrained: Pretrained, head_mask: Shaped[np.ndarray, 'L N']) -> Pretrained:
    """Return the model without the heads that a mask disables; its logits are those under the mask.

    This is how Michel et al. (2019) measure what pruned heads save: their rows of the query, key
    and value matrices and their columns of the output matrix are left out. The logits equal those
    of `bert.apply(..., head_mask=head_mask, baseline='zero')` up to rounding. A layer without heads
    gives the bias of the output matrix alone.

    The result can be run, fine-tuned, saved and loaded, and more heads can be removed from it. Its
    heads cannot be asked about (`sweep`, `collect`, `compare`, a `head_mask`): ask the whole model.
    ALBERT's layers that are one layer remain so if they lose the same heads; if not, each becomes a
    layer of its own, and the file grows. So do keys and values that heads share (EuroBERT): each
    head that stays has its own.

    Args:
      pretrained: The model; its other weights are shared with the result.
      head_mask: 1 for heads that stay, 0 for those that are removed.

    Raises:
      TypeError: The model is not a `Pretrained`.
      ValueError: The mask has another shape or other numbers, or keeps heads that were removed.
    """
    config = pretrained.config
    kept = heads_kept(config, head_mask)
    already = heads_left(config)
    lost = np.argwhere(kept & ~already)
    if len(lost):
        raise ValueError(
            f'head_mask keeps {head_name(*lost[0])}, which this model has lost: give 0 there, or '
            'remove heads from the whole model.'
        )
    if (kept == already).all():
        return pretrained
    return cut(restore_heads(pretrained), kept)


def restore_heads(pretrained: Pretrained) -> Pretrained:
    """Return an ordinary model with the same logits, in which heads that were removed are zeros.

    They attend to all tokens alike and add nothing; their former weights are not in the model. A
    model that has lost no heads is returned as it is.

    Raises:
      TypeError: The model is not a `Pretrained`.
    """
    config = pretrained.config
    if not config.pruned_heads:
        return pretrained
    spread = functools.partial(spread_heads, count=config.num_attention_heads)
    layers = [
        _with_heads(pretrained.params['layers'][str(layer)], spread, np.array(left, int))
        for layer, left in enumerate(config.heads_left)
    ]
    stacked = jax.tree.map(lambda *each: jnp.stack(each), *layers)
    params = {**pretrained.params, 'layers': stacked}
    whole = dataclasses.replace(config, pruned_heads=())
    return Pretrained(Bert(whole), params, pretrained.tokenizer)


def cut(pretrained: Pretrained, kept: Bool[np.ndarray, 'L N']) -> Pretrained:
    """Return a whole model with its layers apart, each with the heads that are kept, even all."""
    config = pretrained.config
    pruned = tuple(tuple(map(int, np.flatnonzero(~row))) for row in kept)
    groups = config.num_hidden_groups
    if groups is not None and len({*zip(config.groups, pruned, strict=True)}) > groups:
        groups = config.num_hidden_layers
    layers = {
        str(layer): _with_heads(each, jnp.take, np.flatnonzero(kept[layer]))
        for layer, each in enumerate(layers_of(pretrained.params))
    }
    config = dataclasses.replace(
        config, pruned_heads=pruned, num_hidden_groups=groups, num_key_value_heads=None
    )
    return Pretrained(Bert(config), {**pretrained.params, 'layers': layers}, pretrained.tokenizer)


def heads_left(config: BertConfig) -> Bool[np.ndarray, 'L N']:
    """Return whether a model has each of its heads, or has lost it."""
    left = np.zeros((config.num_hidden_layers, config.num_attention_heads), bool)
    for layer, heads in enumerate(config.heads_left):
        left[layer, list(heads)] = True
    return left


def heads_kept(config: BertConfig, head_mask: Any) -> Bool[np.ndarray, 'L N']:
    """Return which heads a mask of 0 and 1 keeps; ValueError if it is none."""
    mask, whole = np.asarray(head_mask), heads_left(config).shape
    check_shape('head_mask', mask, layers=whole[0], heads=whole[1])
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(
            'head_mask must be 1 for heads that stay and 0 for those that are removed; no other '
            f'number, such as {mask[~np.isin(mask, (0, 1))][0]}, can be cut out.'
        )
    return mask == 1


# The axis of heads in the parameters of one layer that have one.
_AXES: dict[tuple[str, ...], int] = {
    ('attention', 'output', 'kernel'): 0,
    **{('attention', name, 'kernel'): 1 for name in OF_HEADS},
    **{('attention', name, 'bias'): 0 for name in OF_HEADS},
}


def _with_heads(layer: Any, change: Callable[..., Array], heads: Int[np.ndarray, ' N']) -> Any:
    """Return the parameters of a layer, those with an axis of heads changed along it."""

    def changed(path, leaf):
        axis = _AXES.get(tuple(each.key for each in path))
        return leaf if axis is None else change(leaf, heads, axis=axis)

    return jax.tree_util.tree_map_with_path(changed, layer)


def without_heads(pretrained: Pretrained, head_mask: Shaped[np.ndarray, 'L N']) -> Pretrained:
    """Return the model with the values and outputs of some heads at zero, where they stay.

    Such a head puts out nothing, as with `head_mask` and baseline 'zero'. Nor does it ever learn:
    the gradient of its values has its output weights as a factor, and that of its output weights
    has its values. Models with other heads missing train by the same compiled program.
    `remove_heads` cuts such heads out when training is done.

    Args:
      pretrained: The model.
      head_mask: 1 keeps a head, 0 leaves it out.

    Raises:
      TypeError: The model is not a `Pretrained`.
      ValueError: The mask has another shape or other numbers, heads were removed from the model, or
        it uses a layer several times (ALBERT), where a head cannot be missing once.
    """
    check_whole(pretrained)
    config = pretrained.config
    mask = heads_kept(config, head_mask)
    if config.num_hidden_groups is not None:
        groups = np.array(config.groups)
        if any(not (mask[groups == group] == mask[groups == group][0]).all() for group in groups):
            raise ValueError(
                'This model uses the same layer several times, so that its heads are missing '
                'everywhere or nowhere: give layers of one group the same heads.'
            )
    shared = np.array(config.key_value_heads)
    if (mask != mask[:, shared.searchsorted(shared)]).any():
        raise ValueError(
            f'Heads share keys and values in this model ({config.summary}), and one cannot be '
            'missing alone: give heads that share them (config.key_value_heads) the same.'
        )
    attention = pretrained.params['layers']['attention']
    keep = jnp.asarray(mask, jnp.float32)
    # Kernels are [L, D, N, H] of values and [L, N, H, D] of outputs.
    value = {
        name: leaf * (keep[:, None, :, None] if leaf.ndim == 4 else keep[:, :, None])
        for name, leaf in attention['value'].items()
    }
    kernel = attention['output']['kernel'] * keep[:, :, None, None]
    attention = {**attention, 'value': value, 'output': {**attention['output'], 'kernel': kernel}}
    layers = {**pretrained.params['layers'], 'attention': attention}
    return dataclasses.replace(pretrained, params={**pretrained.params, 'layers': layers})


def subnetwork_masks(
    good: Shaped[np.ndarray, 'L N'], *, seed: int
) -> dict[str, Float[np.ndarray, 'L N']]:
    """Return masks of the good, a random and a bad (not surviving) subnetwork of one size."""
    rng = np.random.default_rng(seed)
    survive = np.asarray(good).ravel() != 0
    size = int(survive.sum())
    shuffled = rng.permutation(survive.size)
    # Those that did not survive come first, in random order.
    lost_first = shuffled[np.argsort(survive[shuffled], kind='stable')]
    chosen = {
        GOOD: np.flatnonzero(survive),
        RANDOM: rng.permutation(survive.size)[:size],
        BAD: lost_first[:size],
    }
    every = np.arange(survive.size).reshape(np.shape(good))
    return {kind: np.isin(every, heads).astype(np.float32) for kind, heads in chosen.items()}
