"""The outputs of the heads of the intact model: what another input, or the mean of many, gives.

A head's output is its context, its map times the values, before the output projection.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_secrets_jax.data.encoding import Batch, listed
from bert_secrets_jax.devices import DATA, fetch, replicate, split
from bert_secrets_jax.measure.stream import check_split
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, check_whole

# The mean outputs of the heads over a corpus.
Means = Float[np.ndarray, 'L N H']


def mean_contexts(
    pretrained: Pretrained, batches: Iterable[Batch], *, mesh: Mesh | None = None
) -> Means:
    """Return the mean output of each head over all real tokens of all examples.

    It replaces the output of a disabled head in mean ablation (the baseline 'mean'; Wang et al.
    2022 use it on GPT-2). Each token counts once, so that long examples weigh more. Labels are not
    used.

    Args:
      pretrained: A model, with or without a classifier.
      batches: The batches of the corpus, read once.
      mesh: The devices, along an axis `data`, that share the examples of each batch; None uses one.

    Raises:
      TypeError: The model is not a `Pretrained`, or a single batch is given.
      ValueError: There are no examples, or a batch cannot be split over the devices.
    """
    check_whole(pretrained)
    params, devices, place = on_devices(pretrained.params, mesh)
    sums, tokens = np.zeros(()), 0
    for batch in listed(batches):
        check_split(batch, devices)
        # Filler rows may repeat an example.
        counted = np.asarray(batch.attention_mask) * (np.asarray(batch.example) >= 0)[:, None]
        tokens += int(counted.sum())
        # Sums of many batches in float64: their order then changes no digit that is kept.
        batch_sums = fetch(_total(pretrained.bert, params, *place((batch, counted))))
        sums = sums + batch_sums.astype(np.float64)
    if not tokens:
        raise ValueError('There are no examples to take the mean output of heads over.')
    return (sums / tokens).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def intact_contexts(bert: Bert, params, batch: Batch) -> Float[Array, 'B L T N H']:
    """Return the outputs of all heads."""
    return bert.apply({'params': params}, **batch.inputs).contexts


@functools.partial(jax.jit, static_argnums=0)
def _total(bert: Bert, params, batch: Batch, counted) -> Float[Array, 'L N H']:
    """Return the sum of the outputs of the heads in float32, where [B, T] is 1, not 0."""
    contexts = intact_contexts(bert, params, batch)
    return jnp.einsum(
        'BLTNH,BT->LNH',
        contexts,
        counted.astype(contexts.dtype),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


def layers_of(params: Any) -> list[Any]:
    """Return the parameters of each layer, apart: a slice of their stack is copied in each call."""
    stacked = params['layers']
    count = len(jax.tree.leaves(stacked)[0])
    return [jax.tree.map(operator.itemgetter(layer), stacked) for layer in range(count)]


def on_devices(params: Any, mesh: Mesh | None) -> tuple[Any, int, Callable[[Any], Any]]:
    """Return the parameters on all devices, their number, and a function that places a batch."""
    count = 1 if mesh is None else mesh.shape[DATA]
    return replicate(params, mesh), count, functools.partial(split, mesh=mesh)
