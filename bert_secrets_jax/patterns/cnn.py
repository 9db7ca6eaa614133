"""The classifier of attention maps: a convolutional network (section 4.1).

The paper names 8 convolutional layers with ReLU and no more. Widths and pooling are those of the
classifier that the same group published later (Prasanna et al. 2020). With their initial weights
(Xavier's) and no normalization the signal fades over eight ReLUs, and it hardly learns; here they
are He's, with group normalization.

Shapes: B maps, T positions, X side of the image.
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

CLASSES = ('vertical', 'diagonal', 'vertical_diagonal', 'block', 'heterogeneous')
# As they are called in what a person reads.
TITLES = tuple(name.replace('_', ' + ') for name in CLASSES)
SIDE = 32


def image(
    attention: Float[Array, 'T T'],
    length: Int[Array, ''],
    first_text: Int[Array, ''],
    *,
    side: int = SIDE,
    longest: int | None = None,
) -> Float[Array, 'X X 3']:
    """Bring the map of an input of any length to one size.

    The real part is stretched or shrunk, with a filter as wide as a pixel, and divided by its
    greatest value, as a person sees it. The second channel is 1 where query and key are in the same
    text: whether a block is one cannot be seen from the map alone. The third is the square root of
    the first, in which what is faint beside a bright cell can be seen.

    Args:
      attention: probabilities; what is beyond `length` is padding.
      length: number of tokens.
      first_text: number of tokens of [CLS] A [SEP]; `length` for single sentences.
      side: pixels; at least 32, for the network.
      longest: None fills the image with the map; a number of tokens is what fills it, and shorter
        maps are padded, longer ones cut.
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
    """Eight convolutions, two poolings, the mean over the image."""

    dropout: float = 0.2

    @nn.compact
    def __call__(
        self, images: Float[Array, 'B X X 3'], *, deterministic: bool = True
    ) -> Float[Array, 'B C']:
        """Return logits of the five classes."""
        convolve = functools.partial(
            nn.Conv,
            kernel_init=nn.initializers.he_normal(),
            precision=jax.lax.Precision.HIGHEST,
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
