"""A change of a model's heads while it runs: disabled heads, other outputs, other maps."""

from typing import Any

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bert_secrets_jax.model import attention
from bert_secrets_jax.model.config import BertConfig

# The shapes that the arguments of `Bert` may have, by the names of their axes.
_SHAPES = {
    'head_mask': ('layers, heads', 'batch, layers, heads'),
    'replacement': ('layers, heads, width', 'batch, layers, length, heads, width'),
    'map_change': ('batch, layers, heads, length, length',),
    'part_mask': ('layers, parts, heads',),
}


@flax.struct.dataclass
class Intervention:
    """A change of the heads, with one entry for each layer on the first axis.

    A scan over layers hands each layer its own entry, for which the two methods are.

    Attributes:
      mask: [L, N] or [L, B, N] 1 keeps a head, 0 replaces what it does; None keeps all.
      replacement: [L, #B, #T, N, H] The outputs of disabled heads; None if they have other maps.
      map_change: [L, B, N, T, S] The change that is added to the maps; None adds nothing.
      part_mask: [L, P, N] The factor of each part of the scores; None is 1.
    """

    mask: Any = None
    replacement: Any = None
    map_change: Any = None
    part_mask: Any = None
    baseline: str = flax.struct.field(default='uniform', pytree_node=False)

    def on_maps(
        self, learned: Float[Array, 'B N T S'], scope: attention.Scope
    ) -> Float[Array, 'B N T S']:
        """Return the maps that the heads of a layer use instead of those they have learned."""
        used = learned
        if self.mask is not None and self.replacement is None:
            used = attention.disable_heads(learned, self.mask, scope, baseline=self.baseline)
        return used if self.map_change is None else used + self.map_change

    def on_contexts(self, contexts: Float[Array, 'B T N H']) -> Float[Array, 'B T N H']:
        """Return the outputs of the heads of a layer: `mask * own + (1 - mask) * replacement`."""
        if self.mask is None or self.replacement is None:
            return contexts
        keep = jnp.atleast_2d(self.mask)[:, None, :, None].astype(contexts.dtype)
        return keep * contexts + (1 - keep) * self.replacement.astype(contexts.dtype)


def check_amounts(masks: ArrayLike) -> None:
    """Raise ValueError for a mask of heads with NaN, or with numbers below 0 or above 1."""
    masks = np.asarray(masks, np.float32)
    wrong = masks[~((masks >= 0) & (masks <= 1))]
    if wrong.size:
        raise ValueError(
            f'A mask of heads has {wrong[0]:g}: 1 keeps a head, 0 disables it, and numbers between '
            'them interpolate.'
        )


def intervention_on(
    config: BertConfig, batch: int, length: int, given: Intervention
) -> Intervention:
    """Check the arguments of `Bert` that change heads, and move layers to the first axis.

    ValueError if an array does not fit the model or the inputs, or the replacement the baseline.
    """
    sizes = {
        'batch': batch,
        'layers': config.num_hidden_layers,
        'length': length,
        'heads': config.num_attention_heads,
        'width': config.head_size,
        'parts': len(config.score_parts),
    }
    baseline = given.baseline
    attention.check_baseline(baseline)
    mask = _fitted('head_mask', given.mask, sizes)
    lacks = given.replacement is None and mask is not None
    if baseline in attention.MAP_BASELINES and given.replacement is not None:
        raise ValueError(
            f'{baseline=} takes no replacement: give one with {attention.OUTPUT_BASELINES}.'
        )
    if baseline in attention.OUTPUT_BASELINES and lacks:
        raise ValueError(
            f'{baseline=} needs a replacement, the outputs that disabled heads get: contexts of '
            'another pass, or bs.mean_contexts(pretrained, batches).'
        )
    replacement = _fitted('replacement', given.replacement, sizes)
    if replacement is not None and replacement.ndim == 3:
        replacement = replacement[:, None, None]
    change = _fitted('map_change', given.map_change, sizes)
    part_mask = _fitted('part_mask', given.part_mask, sizes)
    return Intervention(mask, replacement, change, part_mask, baseline)


def _fitted(name: str, array: ArrayLike | None, sizes: dict[str, int]) -> Array | None:
    """Return an argument in float32 with layers first; refuse one that has none of its shapes."""
    if array is None:
        return None
    known = {axes: [sizes[axis] for axis in axes.split(', ')] for axes in _SHAPES[name]}
    for axes, shape in known.items():
        if list(jnp.shape(array)) == shape:
            return jnp.moveaxis(
                jnp.asarray(array, jnp.float32), axes.split(', ').index('layers'), 0
            )
    allowed = ' or '.join(f'[{axes}] = {shape}' for axes, shape in known.items())
    raise ValueError(f'{name} must be {allowed}, got {list(jnp.shape(array))}.')
