"""The outputs of the heads of the intact model: what another input, or the mean of many, gives.

A head's output is its context, its map times the values, before the output projection.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from bert_secrets_jax.ablation.layers import Static, close_intact, embed, open_intact, total
from bert_secrets_jax.data.encoding import Batch, listed
from bert_secrets_jax.devices import DATA, fetch, replicate, split
from bert_secrets_jax.measure.stream import check_split
from bert_secrets_jax.model.encoder import kinds_of_layers, scope_of
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
    setting = Static(pretrained.config, 'mean')
    params, devices, place = on_devices(pretrained.params, mesh)
    layers = layers_of(params)
    sums, tokens = np.zeros(()), 0
    for batch in listed(batches):
        check_split(batch, devices)
        # Filler rows may repeat an example.
        counted = np.asarray(batch.attention_mask) * (np.asarray(batch.example) >= 0)[:, None]
        tokens += int(counted.sum())
        batch, counted = place((batch, counted))
        contexts = intact_contexts(setting, params['embeddings'], layers, batch)
        batch_sums = fetch([total(each, counted) for each in contexts])
        # Sums of many batches in float64: their order then changes no digit that is kept.
        sums = sums + np.stack(batch_sums).astype(np.float64)
    if not tokens:
        raise ValueError('There are no examples to take the mean output of heads over.')
    return (sums / tokens).astype(np.float32)


def intact_contexts(
    setting: Static, embeddings: Any, layers: Sequence[Any], batch: Batch
) -> Iterator[Any]:
    """Yield the outputs [B, T, N, H] of the heads, layer by layer, each when it is asked."""
    hidden, scopes = embed(setting, embeddings, batch)
    for params, kind in zip(layers, kinds_of_layers(setting.config), strict=False):
        scope = scope_of(scopes, kind)
        context = open_intact(setting, params, hidden, scope)
        yield context
        hidden = close_intact(setting, params, hidden, scope, context)


def layers_of(params: Any) -> list[Any]:
    """Return the parameters of each layer, apart: a slice of their stack is copied in each call."""
    stacked = params['layers']
    count = len(jax.tree.leaves(stacked)[0])
    return [jax.tree.map(operator.itemgetter(layer), stacked) for layer in range(count)]


def on_devices(params: Any, mesh: Mesh | None) -> tuple[Any, int, Callable[[Any], Any]]:
    """Return the parameters on all devices, their number, and a function that places a batch."""
    count = 1 if mesh is None else mesh.shape[DATA]
    return replicate(params, mesh), count, functools.partial(split, mesh=mesh)
