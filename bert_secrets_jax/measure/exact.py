"""Products of arrays that are as exact on every device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def product(equation: str, *arrays: Array | np.ndarray) -> Array:
    """Return an einsum in float32: by default a GPU rounds to TF32, and a TPU to bfloat16."""
    return jnp.einsum(equation, *arrays, precision=jax.lax.Precision.HIGHEST)
