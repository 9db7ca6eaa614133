"""The loss that fine-tuning minimises."""

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Num

from bert_secrets_jax.data.encoding import LabelledBatch
from bert_secrets_jax.model.bert import BertOutput
from bert_secrets_jax.model.config import EMBEDDING, QUESTIONS, TOKENS
from bert_secrets_jax.model.heads import unit_length

# The label of a token, or the place of an answer, that has no part in the loss.
NONE = -1


def loss_per_example(
    logits: Float[Array | np.ndarray, 'rows *tokens C'],
    labels: Num[Array | np.ndarray, 'B *labels'],
    *,
    head: str = 'sequence_classification',
    real: Bool[Array | np.ndarray, 'B T'] | None = None,
) -> Float[Array, ' B']:
    """Return the loss of each example: the cross entropy, or the squared error of a regression.

    One column of logits [B, 1] is of a regression. With those of tokens [B, T, C], losses are
    summed over the labels [B, T], where NONE has no loss; for answers, they are the mean over the
    first and the last token [B, 2], among the `real` ones. `head` is one of `model.config.HEADS`.
    Of embeddings [2 B, C], first texts before second ones, the cosines are the values.
    """
    if head == QUESTIONS:
        assert real is not None
        # Otherwise the loss would depend on how far an example is padded.
        logits = jnp.where(real[..., None], logits, jnp.finfo(jnp.float32).min)
        both = _cross_entropy(jnp.swapaxes(logits, 1, 2), labels)
        return both.mean(axis=1)
    if head == TOKENS:
        return _cross_entropy(logits, labels).sum(axis=1)
    if head == EMBEDDING:
        return (cosines(*jnp.split(jnp.asarray(logits), 2)) - labels) ** 2
    if logits.shape[-1] == 1:
        return (jnp.asarray(logits)[:, 0] - labels) ** 2
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels.astype(jnp.int32))


def cosines(
    one: Float[Array | np.ndarray, 'B D'], other: Float[Array | np.ndarray, 'B D']
) -> Float[Array, ' B']:
    """Return the cosine of each pair of embeddings."""
    return (unit_length(jnp.asarray(one)) * unit_length(jnp.asarray(other))).sum(axis=-1)


def task_loss(output: BertOutput, batch: LabelledBatch) -> Float[Array, ' B']:
    """Return the loss of each text of a batch with labels, 0 in a filler row.

    How much the loss depends on each head is its gradient with respect to the mask:

        def loss(mask, batch):
            output = tuned.bert.apply({'params': tuned.params}, **batch.inputs, head_mask=mask)
            return bs.task_loss(output, batch).sum()

        labelled = bs.encode(tuned.tokenizer, dev, labels=True)
        gradient = sum(jax.grad(loss)(jnp.ones((6, 12)), batch) for batch in labelled)

    Raises:
      ValueError: The model has no classifier of whole texts.
    """
    if output.logits is None or output.logits.ndim != 2:
        raise ValueError(
            'Each text has one label, and this model has no classifier of texts: give one that '
            'was fine-tuned for that, such as `bs.finetune` returns.'
        )
    losses = loss_per_example(output.logits, batch.labels)
    return jnp.where(batch.example >= 0, losses, 0)


def losses_of(
    logits: Float[np.ndarray, 'M E C'], labels: Num[np.ndarray, ' E']
) -> Float[np.ndarray, 'M E']:
    """Return the loss of each example, by each of several models."""
    models, examples, classes = logits.shape
    rows = jnp.asarray(logits.reshape(-1, classes))
    losses = loss_per_example(rows, np.tile(labels, models))
    return np.asarray(losses, np.float64).reshape(models, examples)


def terms(labels: Num[np.ndarray, '*labels'], *, head: str) -> Int[np.ndarray, '*examples']:
    """Return over how many labels each example's loss is summed."""
    if head not in (TOKENS, QUESTIONS):
        return np.ones(labels.shape, int)
    known = labels != NONE
    return known.sum(axis=-1) if head == TOKENS else known.all(axis=-1).astype(int)


def _cross_entropy(logits, labels) -> Float[Array, '...']:
    classes = jnp.maximum(labels.astype(jnp.int32), 0)
    each = optax.softmax_cross_entropy_with_integer_labels(logits, classes)
    return jnp.where(labels == NONE, 0, each)
