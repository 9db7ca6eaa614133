"""Parts of the layers and heads of all encoders: dense layers, LayerNorm and dropout.

The modules that import `flax.linen` are `parts`, `encoder`, `heads` and `bert`, and, outside this
folder, the pattern classifier's network. Each is built from those before it.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from bert_secrets_jax.model.config import BertConfig

_PRECISIONS: Mapping[str, jax.lax.PrecisionLike] = {
    'float32': jax.lax.Precision.HIGHEST,
    'tf32x3': jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    'bfloat16': jax.lax.Precision.DEFAULT,
}


def gelu(x):
    """Return BERT's GELU, the exact one: `x / 2 (1 + erf(x / sqrt 2))`.

    JAX's own goes by erfc, which takes three times as long on a CPU.
    """
    # In bfloat16, 1 + erf would cancel to steps of 1/256.
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return (wide / 2 * (1 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(x.dtype)


ACTIVATIONS = {
    'gelu': gelu,
    'gelu_new': functools.partial(nn.gelu, approximate=True),
    'gelu_pytorch_tanh': functools.partial(nn.gelu, approximate=True),
    'relu': nn.relu,
    'silu': nn.silu,
    'tanh': nn.tanh,
}


def dense(
    config: BertConfig,
    features,
    name: str | None = None,
    axis: int | tuple[int, ...] = -1,
    *,
    bias: bool = True,
) -> nn.DenseGeneral:
    """Return BERT's dense layer, whose `features` may have several axes, such as (N, H)."""
    return nn.DenseGeneral(
        features,
        axis=axis,
        use_bias=bias,
        dtype=jnp.dtype(config.array_dtype),
        kernel_init=nn.initializers.normal(config.initializer_range),
        precision=matmul_precision(config),  # pyright: ignore[reportArgumentType]
        name=name,
    )


def embedded(config: BertConfig, count: int, name: str, ids, width: int | None = None) -> Array:
    """Return the rows of a table of `count` embeddings, in float32, as wide as wordpieces have."""
    width = width or config.embedding_size or config.hidden_size
    initial = nn.initializers.normal(config.initializer_range)
    # Weights may be stored in 16 bits.
    return nn.Embed(count, width, embedding_init=initial, name=name)(ids).astype(jnp.float32)


def applied(module: nn.Module, params: Mapping[str, Any], *inputs: Any) -> Array:
    """Return the array that a module with these parameters makes of its inputs."""
    return cast(Array, module.apply({'params': params}, *inputs))


def matmul_precision(config: BertConfig) -> jax.lax.PrecisionLike:
    """Return the precision of matrix products: float32 means float32 on every device.

    Left to itself, JAX multiplies float32 matrices in TF32 on GPUs and in bfloat16 on TPUs, which
    moves attention maps by 1e-3.
    """
    return _PRECISIONS[config.dtype]


def layer_norm(config: BertConfig, name: str) -> nn.LayerNorm | nn.RMSNorm:
    """Return LayerNorm or RMSNorm, computed in float32 whatever the model computes in."""
    if config.family.rms_norm:
        return nn.RMSNorm(epsilon=config.layer_norm_eps, dtype=jnp.float32, name=name)
    # The fast variance E[x^2] - E[x]^2 cancels catastrophically in float32.
    return nn.LayerNorm(
        epsilon=config.layer_norm_eps,
        use_fast_variance=False,
        use_bias=config.norm_bias,
        dtype=jnp.float32,
        name=name,
    )


def normed(config: BertConfig, name: str, x) -> Array:
    """Return what a norm makes of an array, in the type that the model computes in."""
    return layer_norm(config, name)(x).astype(config.array_dtype)


def unchanged(x):
    """Return what is given: the map that changes nothing."""
    return x


def within(whole: nn.Module, part: nn.Module) -> nn.Module:
    """Return a part whose parameters are those of the whole, with no name of its own between."""
    nn.share_scope(whole, part)
    return part


class Dropout(nn.Module):
    """Dropout per element, as in BERT, that does not depend on how examples are batched.

    Flax's own draws one mask for the whole padded batch. `axes` is 'hidden' for arrays [B, T, ...],
    'maps' for arrays [B, N, T, S].
    """

    rate: float
    axes: Literal['hidden', 'maps'] = 'hidden'

    @nn.compact
    def __call__(self, x, example_ids, *, deterministic: bool):
        if deterministic or self.rate == 0:
            return x
        key = self.make_rng('dropout')
        keys = jax.vmap(lambda example: jax.random.fold_in(key, example))(example_ids)
        draw = dropout_mask if self.axes == 'hidden' else attention_dropout_mask
        return jnp.where(draw(keys, self.rate, x.shape[1:]), x / (1 - self.rate), 0)


def dropping(rate: float, example_ids, deterministic: bool) -> Callable[[Any], Any]:
    """Return what drops elements of arrays [B, T, ...] of these examples, within a module."""
    return functools.partial(Dropout(rate), example_ids=example_ids, deterministic=deterministic)


def dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, ...]
) -> Bool[Array, 'B ...']:
    """Choose what dropout keeps: independent of batching and, along the first axis, of padding.

    Every example has a key of its own, and an element's fate is a hash of that key and of its
    position. Training in other batches, with other padding or on other devices is then the same.
    `rate` is the probability of a loss; `shape` is of one example, the padded axis first.
    """
    places = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _kept(keys, rate, places)


def attention_dropout_mask(
    keys: Key[Array, ' B'], rate: float, shape: tuple[int, int, int]
) -> Bool[Array, 'B N T S']:
    """Do the same for maps of `shape` (N, T, S), which are padded along queries and keys."""
    heads, queries, width = (jnp.arange(size, dtype=jnp.uint32) for size in shape)
    # Farther apart than any text is long, so that a place has the same number in all paddings.
    places = (queries[:, None] << 16) + width[None, :]
    each_head = heads[:, None, None] * jnp.uint32(0x9E3779B1)
    return _kept(keys, rate, places[None] + each_head)


def _kept(keys: Key[Array, ' B'], rate: float, places: Array) -> Bool[Array, 'B ...']:
    """Return what of each example is kept, by the number of each place.

    The hash is lowbias32 (https://nullprogram.com/blog/2018/07/31/) with the second half of the key
    added midway. It costs nine operations; JAX's own bits cost a hundred.
    """
    words = jax.random.key_data(keys)
    first, second = (
        words[:, at].reshape(-1, *[1] * places.ndim).astype(jnp.uint32) for at in (0, -1)
    )
    x = places[None] + first
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D) + second
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    x = x ^ (x >> 16)
    return x >= jnp.uint32(round(rate * 2**32))
