"""Replacements of the output of a disabled head: that on another input, or the mean over many.

A head's output is its context, its map times the values, before the output projection.

In resample ablation (Chan et al. 2022, causal scrubbing) a head gives an example its output on
another one, the donor. Donors are drawn over all examples at once, and tokens are paired by
position in the text. Neither depends on batches, padding or devices.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.compute import DATA, fetch, replicate, split
from bert_secrets_jax.data.encoding import Batch, listed
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


def draw_donors(lengths: Int[np.ndarray, ' E'], *, seed: int) -> Int[np.ndarray, ' E']:
    """Draw the donor of each example: another one, of the closest length that there is.

    Among examples of one length, each lends its output once, and each other one is equally likely.
    An example that is alone with its length has any donor of the one or two nearest lengths.
    """
    check_enough("examples for 'resample', which takes outputs of others", lengths, 2)
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(lengths))
    distinct = np.unique(lengths)
    groups = [shuffled[lengths[shuffled] == length] for length in distinct]
    donors = np.empty(len(lengths), int)
    for group, length in zip(groups, distinct, strict=True):
        if len(group) > 1:
            donors[group] = np.roll(group, 1)
            continue
        gaps = np.abs(distinct - length)
        nearest = gaps == gaps[gaps > 0].min()
        near = np.concatenate([groups[index] for index in np.flatnonzero(nearest)])
        donors[group] = rng.choice(near)
    return donors


def donor_tokens(
    lengths: Int[np.ndarray, ' B'], donor_lengths: Int[np.ndarray, ' B'], width: int
) -> Int[np.ndarray, 'B T']:
    """Return the position in the donor from which each token takes the output of a head.

    [CLS] and the last [SEP] take those of the donor's. The other tokens take those of the donor's
    other tokens in order, from the first again where the donor is shorter; a donor without any
    lends its last [SEP]. Padding takes from position 0. Lengths are 0 in a filler row.
    """
    places = np.arange(width)[None]
    last, donor_last = lengths[:, None] - 1, donor_lengths[:, None] - 1
    inner = 1 + (places - 1) % np.maximum(donor_last - 1, 1)
    taken = np.where(places == 0, 0, np.where(places == last, donor_last, inner))
    return np.where(places <= last, np.maximum(taken, 0), 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Donors:
    """The wordpieces and segments of each example, the number of its donor, and batches' widths."""

    texts: Mapping[int, Int[np.ndarray, '2 length']]
    donors: Int[np.ndarray, ' E']
    widths: Int[np.ndarray, ' W']

    @classmethod
    def drawn(cls, batches: Sequence[Batch], *, seed: int) -> 'Donors':
        """Draw donors among the examples of all batches, which have each example once."""
        texts = {}
        for batch in batches:
            tokens = np.stack([batch.input_ids, batch.token_type_ids], axis=1)
            lengths = np.asarray(batch.attention_mask).sum(axis=1)
            rows = zip(np.asarray(batch.example).tolist(), tokens, lengths, strict=True)
            texts |= {example: row[:, :length] for example, row, length in rows}
        texts.pop(-1, None)  # filler rows
        # In the order of the examples, so that the order of the batches is no matter.
        examples = np.array(sorted(texts), int)
        lengths = np.array([texts[example].shape[1] for example in examples.tolist()], int)
        donors = np.full(examples.max(initial=-1) + 1, -1)
        donors[examples] = examples[draw_donors(lengths, seed=seed)]
        return cls(texts, donors, np.unique([np.shape(each.input_ids)[1] for each in batches]))

    def of(self, batch: Batch, *, padding: int) -> tuple[Batch, Int[np.ndarray, 'B T']]:
        """Return the donors of a batch, row by row, and the result of `donor_tokens` for them.

        The donors have no marks, and are padded to a length that occurs among all batches.
        """
        examples = np.asarray(batch.example)
        donors = np.where(examples >= 0, self.donors[examples], -1)
        lenders = [self.texts.get(donor, np.zeros((2, 0), int)) for donor in donors.tolist()]
        lengths = np.array([each.shape[1] for each in lenders])
        width = int(self.widths[self.widths >= lengths.max()].min())
        tokens = np.zeros((2, len(donors), width), np.int32)
        tokens[0] = padding
        for row, (each, length) in enumerate(zip(lenders, lengths, strict=True)):
            tokens[:, row, :length] = each
        real = (np.arange(width) < lengths[:, None]).astype(np.int32)
        lent = Batch(tokens[0], tokens[1], real, marks={}, example=donors.astype(np.int32))
        own = np.asarray(batch.attention_mask).sum(axis=1) * (examples >= 0)
        return lent, donor_tokens(own, lengths, np.shape(batch.input_ids)[1]).astype(np.int32)
