"""How much a loss depends on each head: gradients with respect to the mask of heads.

Michel et al. (2019, section 4.1, equation 2) multiply each head by a number xi, which is 1. The
mean over examples of |d loss / d xi|, the importance of the head, says how much the loss is
expected to change if the head were not there.

Shapes: B examples, L layers, N heads, T query tokens, S key tokens, Q query tokens or 1.
"""

import functools
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.brief import check_name
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.gradients import Loss, map_gradients, total_loss
from bert_secrets_jax.measure.statistics import READINGS, Marks, Result
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained

NORMS = ('layer', 'all', 'none')


def head_importance(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    loss: Loss,
    *,
    head_mask: Shaped[np.ndarray, 'L N'] | None = None,
    reading: str = 'paper',
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> HeadTable:
    """Measure how much the loss of an example depends on each head, as Michel et al. (2019) do.

    The arguments are as in `gradients.gradient_importance`. `head_mask` [L, N] has the numbers xi;
    None stands for 1. Heads with 0 are removed, and what the loss depends on without them counts.

    The reading 'paper' takes the magnitude of each example's gradient. 'notebook' takes it of what
    each query token adds to the gradient, as the published code does, and averages it over tokens;
    in the last layer, where only [CLS] has a gradient, over examples.
    """
    check_name('reading', reading, READINGS)
    statistics, maps_of = {'importance': _magnitude}, mask_gradients(loss)
    if reading == 'notebook':
        statistics, maps_of = {'importance': _magnitudes, 'length': _length}, token_gradients(loss)
    tables = stream(
        (pretrained,), batches, statistics, head_mask=head_mask, baseline='zero',
        keep_values=keep_values, mesh=mesh, maps_of=maps_of,
    )  # fmt: skip
    table = tables['importance']
    if reading == 'paper':
        return table
    share = 1 / tables['length'].mean
    share[-1] = 1
    values = None if table.values is None else table.values * share
    return HeadTable(table.mean * share, table.variance * share**2, table.count, values)


def normalised(
    importance: Float[np.ndarray, '*R L N'], *, norm: str = 'layer'
) -> Float[np.ndarray, '*R L N']:
    """Return importance that can be compared between layers.

    It is divided by the Euclidean norm of its 'layer', as published, of 'all' heads, or 'none'.
    """
    check_name('norm', norm, NORMS)
    if norm == 'none':
        return importance
    axis = -1 if norm == 'layer' else (-2, -1)
    length = np.sqrt((importance**2).sum(axis=axis, keepdims=True))
    return importance / np.where(length > 0, length, 1)


@functools.cache
def mask_gradients(loss: Loss):
    """Return a function that gives d loss / d mask in the place of the maps of a batch."""

    def maps_of(bert, params, batch: Batch, *, head_mask, baseline) -> Float[Array, 'B L N 1 1']:
        def total(mask):
            options = {'head_mask': mask, 'baseline': baseline}
            output = bert.apply({'params': params}, **batch.inputs, **options)
            return total_loss(loss, output, batch)

        config = bert.config
        shape = (len(batch.example), config.num_hidden_layers, config.num_attention_heads)
        mask = jnp.ones(shape) if head_mask is None else jnp.broadcast_to(head_mask, shape)
        return jax.grad(total)(mask)[..., None, None]

    return maps_of


@functools.cache
def token_gradients(loss: Loss):
    """Return a function that gives what each query token adds to d loss / d mask.

    That is attention times d loss / d attention, summed over keys.
    """

    def maps_of(bert, params, batch: Batch, **options) -> Float[Array, 'B L N T 1']:
        gradients, maps = map_gradients(loss, bert, params, batch, **options)
        return product('BLNTS,BLNTS->BLNT', maps, gradients)[..., None]

    return maps_of


def _magnitude(gradients: Float[Array, 'L N Q 1'], marks: Marks) -> Result:
    return jnp.abs(gradients[..., 0, 0]), jnp.float32(1)


def _magnitudes(gradients: Float[Array, 'L N Q 1'], marks: Marks) -> Result:
    return (jnp.abs(gradients[..., 0]) * marks['token'][None, None]).sum(axis=-1), jnp.float32(1)


def _length(gradients: Float[Array, 'L N Q 1'], marks: Marks) -> Result:
    return jnp.full(gradients.shape[:2], marks['token'].sum(), jnp.float32), jnp.float32(1)
