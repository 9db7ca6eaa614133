"""How much a loss depends on attention to types of token, and on heads: magnitudes of gradients.

Clark et al. (2019, section 3.2, Figure 3) ask how much a loss would change if attention to a token
changed, and take the magnitude of its gradient for that, inspired by Sundararajan et al. (2017).

Michel et al. (2019, section 4.1, equation 2) multiply each head by a number xi, which is 1. The
mean over examples of |d loss / d xi|, the importance of the head, says how much the loss is
expected to change if the head were not there.

Shapes: B examples, L layers, N heads, T query tokens, S key tokens, K hidden wordpieces.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Shaped

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.data.masking import MaskedBatch
from bert_secrets_jax.measure.exact import product
from bert_secrets_jax.measure.statistics import Maps, Marks, Result
from bert_secrets_jax.measure.stream import BatchMaps, stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.bert import BertOutput
from bert_secrets_jax.model.weights import Pretrained

# The types of keys. All tokens that have none of the marks are of the last type.
OTHERS = 'other tokens'
TYPES = ('[CLS]', '[SEP]', 'period or comma', OTHERS)
_MARKS = ('cls', 'sep', 'period_comma')
NORMS = ('layer', 'all', 'none')
Loss = Callable[[BertOutput, Any], Float[Array, ' B']]


def masked_lm_loss(output: BertOutput, batch: MaskedBatch) -> Float[Array, ' B']:
    """Return the loss of a masked LM on each text: the mean over its hidden wordpieces, in nats."""
    assert output.logits is not None
    logits = jnp.take_along_axis(output.logits, batch.places[:, :, None], axis=1)  # [B, K, C]
    hidden = batch.words >= 0
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(batch.words, 0))
    return jnp.where(hidden, losses, 0).sum(axis=1) / jnp.maximum(hidden.sum(axis=1), 1)


def gradient_importance(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    loss: Loss,
    *,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[str, HeadTable]:
    """Measure how much the loss of an example depends on attention to each type of token.

    The importance of a type to a head is the mean of |d loss / d alpha_ts| over all pairs of a
    query t and a key s of this type, and then over the examples that have the type. Each alpha is
    changed by itself: rows need not sum to 1. Padding never counts. Clark et al. do not say how
    they average; they show means by layer. Gradients take several times the memory of a forward
    pass; that does not grow with the corpus.

    The loss makes that of each example from the output of the model and a batch, like
    `masked_lm_loss`; the same function is not compiled again. All else is as in `collect`. There is
    a table [L, N] for each of `TYPES`, by its name.
    """
    tables = stream(
        (pretrained,), batches, {'gradients': by_type}, keep_values=keep_values, mesh=mesh,
        maps_of=absolute_gradients(loss),
    )  # fmt: skip
    return dict(zip(TYPES, tables['gradients'].unstack(), strict=True))


@functools.cache
def absolute_gradients(loss: Loss):
    """Return a function that gives |d loss / d attention| in the place of the maps of a batch."""

    def maps_of(bert, params, batch: Batch, **options) -> BatchMaps:
        change = jnp.zeros((*_heads(bert, batch), *batch.input_ids.shape[1:] * 2))
        return jnp.abs(_gradients(loss, bert, params, batch, 'map_change', change, **options))

    return maps_of


def _heads(bert, batch: Batch) -> tuple[int, int, int]:
    config = bert.config
    return len(batch.example), config.num_hidden_layers, config.num_attention_heads


def _gradients(loss: Loss, bert, params, batch: Batch, name: str, at: Array, **options) -> Array:
    """Return d loss / d what the model takes by a name."""

    def total(given):
        output = bert.apply({'params': params}, **batch.inputs, **options, **{name: given})
        # The sum over examples: the maps and masks of each change its own summand alone.
        return jnp.where(batch.example >= 0, loss(output, batch), 0).sum()

    return jax.grad(total)(at)


def by_type(gradients: Maps, marks: Marks) -> Result:
    """Mean [L, N, 4] over real pairs of what stands in the place of maps, by type of the key."""
    token = marks['token']
    named = jnp.stack([marks[name] for name in _MARKS])
    types = jnp.concatenate([named, token[None] & ~named.any(axis=0)[None]]).astype(jnp.float32)
    # As product and sum XLA makes it part of the loop over the maps.
    received = (gradients * token[None, None, :, None]).sum(axis=-2)
    sizes = types.sum(axis=-1)
    total = product('LNS,FS->LNF', received, types)
    means = total / jnp.maximum(sizes * token.sum(), 1)[None, None]
    return means, (sizes > 0).astype(jnp.float32)


def head_importance(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    loss: Loss,
    *,
    head_mask: Shaped[np.ndarray, 'L N'] | None = None,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> HeadTable:
    """Measure how much the loss of an example depends on each head, as Michel et al. (2019) do.

    The arguments are as in `gradient_importance`. `head_mask` [L, N] has the numbers xi;
    None stands for 1. Heads with 0 are removed, and what the loss depends on without them counts.
    """
    return stream(
        (pretrained,), batches, {'importance': of_heads}, head_mask=head_mask, baseline='zero',
        keep_values=keep_values, mesh=mesh, maps_of=mask_gradients(loss),
    )['importance']  # fmt: skip


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
    """Return a function that gives |d loss / d mask| in the place of the maps of a batch."""

    def maps_of(bert, params, batch: Batch, *, head_mask, baseline) -> Float[Array, 'B L N 1 1']:
        mask = jnp.broadcast_to(1.0 if head_mask is None else head_mask, _heads(bert, batch))
        of_mask = _gradients(loss, bert, params, batch, 'head_mask', mask, baseline=baseline)
        return jnp.abs(of_mask)[..., None, None]

    return maps_of


def of_heads(values: Float[Array, 'L N 1 1'], marks: Marks) -> Result:
    """Return the number of each head that stands in the place of its map."""
    return values[..., 0, 0], jnp.float32(1)
