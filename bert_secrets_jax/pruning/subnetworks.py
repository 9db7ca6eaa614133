"""Subnetworks: a model some of whose heads are gone for good, to be trained again.

Prasanna et al. (2020, section 3.2) compare three: the heads that survive pruning ("good"), as many
drawn at random, and as many of those that did not survive ("bad").

Shapes: L layers, N heads.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from bert_secrets_jax.model.weights import Pretrained, check_whole
from bert_secrets_jax.pruning.removal import heads_kept

GOOD, RANDOM, BAD = 'good', 'random', 'bad'
KINDS = (GOOD, RANDOM, BAD)


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
