"""Rotary positions: queries and keys are turned by angles that grow with the place (RoPE).

They add nothing to embeddings. The product of a query and a key then hangs on their distance: pairs
of dimensions turn, each with a frequency of its own (Su et al. 2021, "RoFormer", equation 15).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_secrets_jax.model.config import BertConfig

# [2, T, H/2] cosines and sines of the angles of each place.
Turns = Float[Array, '2 T half']


def rotation_frequencies(width: int, base: float) -> Float[np.ndarray, ' half']:
    """Return frequencies of rotary positions (Su et al. 2021, RoFormer, equation 15)."""
    # In NumPy: at the thousandth token, a rounded frequency is a thousand times as far off.
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    # PyTorch rounds the power as float64 does; NumPy's in float32 differs in each sixth.
    return np.float32(1) / (base ** exponents.astype(float)).astype(np.float32)


def sinusoids(length: int, width: int) -> Float[np.ndarray, '2 T half']:
    """Return cosines and sines of the angles of RoFormer, rounded only once they are computed."""
    angles = np.arange(length)[:, None] / 10_000.0 ** (np.arange(0, width, 2)[None, :] / width)
    return np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


def rotate(
    x: Float[Array, 'B T N H'], turns: Turns, *, interleaved: bool = False
) -> Float[Array, 'B T N H']:
    """Rotate queries or keys by their positions; arguments as in `attention.Scope`."""
    cos, sin = turns[:, None, :, None]
    axis, half = (-1 if interleaved else -2), x.shape[-1] // 2
    shape = (half, 2) if interleaved else (2, half)
    pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], *shape)
    first, second = jnp.moveaxis(pairs, axis, 0)
    rotated = jnp.stack([first * cos - second * sin, second * cos + first * sin], axis=axis)
    return rotated.reshape(x.shape).astype(x.dtype)


def saved_sinusoids(config: BertConfig, dtype: str) -> np.ndarray:
    """Return sines, then cosines, of the angles of each position [T, H], as RoFormer keeps them."""
    table = sinusoids(config.max_position_embeddings, config.head_size)
    return np.concatenate(table[::-1], axis=1).astype(jnp.dtype(dtype))


def frequencies_of(config: BertConfig, rope_theta: float) -> np.ndarray:
    """Return the frequencies [H/2] of rotary positions of a base."""
    if config.rope_frequencies is not None:
        return np.array(config.rope_frequencies, np.float32)
    return rotation_frequencies(config.head_size, rope_theta)


def turns_of(config: BertConfig, rope_theta: float | None, length: int) -> Turns | None:
    """Return the cosines and sines of the angles of rotary positions of a base; None has none."""
    if rope_theta is None:
        return None
    if config.family.sinusoidal:
        table = sinusoids(length, config.head_size)
        return jnp.asarray(table).astype(config.rotary_rounding).astype(jnp.float32)
    frequencies = jnp.asarray(frequencies_of(config, rope_theta))
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * frequencies[None, :]
    return jnp.stack([jnp.cos(angles), jnp.sin(angles)])


def turned(config: BertConfig, value: Float[Array, 'B S N H']) -> Float[Array, 'B S N H']:
    """Return values rotated by their positions, where a model does that (`rotary_value`)."""
    if not config.rotary_value:
        return value
    turns = turns_of(config, config.rope_theta, value.shape[1])
    assert turns is not None
    return rotate(value, turns, interleaved=config.family.sinusoidal)
