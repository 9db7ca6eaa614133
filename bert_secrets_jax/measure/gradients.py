"""How much the loss depends on attention: gradients with respect to the maps, by type of token.

Clark et al. (2019, section 3.2, Figure 3) ask how much a loss would change if attention to a token
changed, and take the magnitude of its gradient for that, inspired by Sundararajan et al. (2017).

Shapes: B examples, L layers, N heads, T query tokens, S key tokens, K hidden wordpieces.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

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
        return jnp.abs(map_gradients(loss, bert, params, batch, **options)[0])

    return maps_of


def map_gradients(loss: Loss, bert, params, batch: Batch, **options) -> tuple[Array, Array]:
    """Return d loss / d attention of a batch [B, L, N, T, S], and its maps."""
    (rows, length), config = batch.input_ids.shape, bert.config

    def total(change):
        output = bert.apply({'params': params}, **batch.inputs, map_change=change, **options)
        return total_loss(loss, output, batch), output.attentions

    shape = (rows, config.num_hidden_layers, config.num_attention_heads, length, length)
    return jax.grad(total, has_aux=True)(jnp.zeros(shape))


def total_loss(loss: Loss, output: BertOutput, batch: Batch) -> Float[Array, '']:
    """Return the sum over examples; the maps and masks of each change its own summand alone."""
    return jnp.where(batch.example >= 0, loss(output, batch), 0).sum()


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
