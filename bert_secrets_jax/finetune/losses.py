"""The loss that fine-tuning minimises."""

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Num


def loss_per_example(
    logits: Float[Array | np.ndarray, 'B C'], labels: Num[Array | np.ndarray, ' B']
) -> Float[Array, ' B']:
    """Return the loss of each example: the cross entropy, or the squared error of a regression.

    Args:
      logits: The class scores [B, C]; a single column has the predicted values of a regression.
      labels: The class ids [B], or the values of a regression.
    """
    if logits.shape[-1] == 1:
        return (logits[:, 0] - labels) ** 2
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels.astype(jnp.int32))
