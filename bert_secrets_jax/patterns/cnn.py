"""The classifier of attention maps: a convolutional network (section 4.1).

The paper names 8 convolutional layers with ReLU and no more. Widths and pooling are those of the
classifier that the same group published later (Prasanna et al. 2020).

Shapes: B maps, T positions, X side of the image.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

CLASSES = ('vertical', 'diagonal', 'vertical_diagonal', 'block', 'heterogeneous')
SIDE = 64


def image(
    attention: Float[Array, 'T T'],
    length: Int[Array, ''],
    first_text: Int[Array, ''],
    side: int = SIDE,
) -> Float[Array, 'X X 2']:
    """Bring the map of an input of any length to one size.

    The real part is stretched or shrunk, with a filter as wide as a pixel, and divided by its
    greatest value, as a person sees it. The second channel is 1 where query and key are in the same
    text: whether a block is one cannot be seen from the map alone.

    Args:
      attention: probabilities; what is beyond `length` is padding.
      length: number of tokens.
      first_text: number of tokens of [CLS] A [SEP]; `length` for single sentences.
      side: pixels.
    """
    scale = side / length.astype(jnp.float32)
    position = jnp.arange(attention.shape[0])
    real = position < length
    attention = jnp.where(real[:, None] & real[None, :], attention, 0)
    pixels = jax.image.scale_and_translate(
        attention.astype(jnp.float32),
        (side, side),
        (0, 1),
        jnp.full(2, scale),
        jnp.zeros(2),
        method='linear',
    )
    pixels = jnp.maximum(pixels, 0)
    pixels = pixels / jnp.maximum(pixels.max(), 1e-9)
    first = (jnp.arange(side) + 0.5) / scale < first_text
    same = first[:, None] == first[None, :]
    return jnp.stack([pixels, same.astype(jnp.float32)], axis=-1)


class PatternCNN(nn.Module):
    """Eight convolutions, ReLU, two poolings, the mean over the image."""

    dropout: float = 0.2

    @nn.compact
    def __call__(
        self, images: Float[Array, 'B X X 2'], *, deterministic: bool = True
    ) -> Float[Array, 'B C']:
        """Return logits of the five classes."""
        convolve = functools.partial(nn.Conv, kernel_init=nn.initializers.xavier_normal())
        hidden = images
        for widths in ((16, 16), (32, 32), (64, 64)):
            for width in widths:
                hidden = nn.relu(convolve(width, (3, 3), padding='VALID')(hidden))
            if widths != (64, 64):
                hidden = nn.max_pool(hidden, (2, 2), (2, 2))
        hidden = nn.relu(convolve(16, (1, 1))(hidden))
        hidden = hidden.mean(axis=(1, 2), keepdims=True)
        hidden = nn.Dropout(self.dropout)(hidden, deterministic=deterministic)
        return convolve(len(CLASSES), (1, 1))(hidden)[:, 0, 0]
