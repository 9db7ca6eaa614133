"""The classifier of attention maps: a convolutional network (section 4.1).

The paper says only that it has 8 convolutional layers with ReLU. Their widths and the pooling are
those of a classifier that the same group published later (Prasanna et al. 2020). That one has
Xavier's initial weights and no normalization, and hardly learns from our maps, because the signal
fades over eight ReLUs. Here the initial weights are He's, with group normalization.

Shapes: B maps, T positions, X side of the image.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_secrets_jax.patterns.classes import CLASSES

SIDE = 32


def image(
    attention: Float[Array, 'T T'],
    length: Int[Array, ''],
    first_text: Int[Array, ''],
    *,
    side: int = SIDE,
    longest: int | None = None,
) -> Float[Array, 'X X 3']:
    """Turn an attention map of any length into an image of one size.

    The image has three channels.
    - The map without its padding, resized with an antialiasing filter and divided by its greatest
      value.
    - 1 where the query and the key stand in the same text, 0 elsewhere. The map alone does not show
      whether a square in it is a text.
    - The square root of the first channel, which shows what is faint beside a bright cell.

    Args:
      attention: The map of one head. Rows and columns from `length` on are padding.
      length: The number of tokens.
      first_text: The number of tokens in [CLS] A [SEP]; `length` for a single sentence.
      side: The width and height of the image in pixels (X). The network needs at least 32.
      longest: The number of tokens that fills the image: shorter maps are padded and longer ones
        are cut. None lets every map fill the image.

    Returns:
      The image, with values from 0 to 1.
    """
    filled = jnp.asarray(length if longest is None else longest, jnp.float32)
    # Centres of pixels in tokens, and how much of each token is in a pixel: linear, over at least
    # a token and at least a pixel.
    place = (jnp.arange(side) + 0.5) * filled / side
    token = jnp.arange(attention.shape[0])
    distance = jnp.abs(place[:, None] - (token[None] + 0.5)) / jnp.maximum(filled / side, 1)
    share = jnp.where(token[None] < length, jnp.maximum(1 - distance, 0), 0)
    share = share / jnp.maximum(share.sum(axis=1, keepdims=True), 1e-9)
    # Exact on every device, as the model itself is.
    exact = jax.lax.Precision.HIGHEST
    pixels = jnp.einsum(
        'XT,TS,YS->XY', share, attention.astype(jnp.float32), share, precision=exact
    )
    pixels = pixels / jnp.maximum(pixels.max(), 1e-9)
    text = jnp.where(place < length, place < first_text, jnp.nan)
    same = text[:, None] == text[None, :]
    return jnp.stack([pixels, same.astype(jnp.float32), jnp.sqrt(pixels)], axis=-1)


class PatternCNN(nn.Module):
    """Eight convolutions with two poolings between them, and the mean over the image at the end.

    Attributes:
      dropout: The share of the last features that are dropped while training.
    """

    dropout: float = 0.2

    @nn.compact
    def __call__(
        self, images: Float[Array, 'B X X 3'], *, deterministic: bool = True
    ) -> Float[Array, 'B C']:
        """Return the logits of the five classes."""
        convolve = functools.partial(
            nn.Conv, kernel_init=nn.initializers.he_normal(), precision=jax.lax.Precision.HIGHEST
        )
        hidden = images
        for widths in ((16, 16), (32, 32), (64, 64)):
            for width in widths:
                hidden = convolve(width, (3, 3), padding='VALID')(hidden)
                hidden = nn.relu(nn.GroupNorm(num_groups=4)(hidden))
            if widths != (64, 64):
                hidden = nn.max_pool(hidden, (2, 2), (2, 2))
        hidden = nn.relu(convolve(16, (1, 1))(hidden))
        hidden = hidden.mean(axis=(1, 2), keepdims=True)
        hidden = nn.Dropout(self.dropout)(hidden, deterministic=deterministic)
        return convolve(len(CLASSES), (1, 1))(hidden)[:, 0, 0]
