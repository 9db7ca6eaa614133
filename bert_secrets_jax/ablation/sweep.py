"""The sweep over head masks: exact, and each mask costs only what it changes.

Masks that agree up to a layer share their hidden states up to there. In the layer where they part,
attention is shared as well, and each pays for the feed-forward network alone; in the last layer,
for the one row that the logits are read from.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_secrets_jax.ablation.layers import (
    Setting,
    close_layer,
    embed,
    last_layer,
    leave_layer,
    open_layer,
    run_layer,
)
from bert_secrets_jax.data.encoding import Batch, in_order, listed
from bert_secrets_jax.model.attention import check_baseline
from bert_secrets_jax.model.bert import Bert, check_model


def default_chunk_tokens() -> int:
    """Return the tokens of a call that suit the device: a CPU's cache, or what fills a GPU."""
    return 1024 if jax.default_backend() == 'cpu' else 65_536


def sweep(
    bert: Bert,
    params: Mapping[str, Any],
    batches: Iterable[Batch],
    masks,
    *,
    baseline: str = 'uniform',
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> np.ndarray:
    """Return the logits [K, E, C] of every example under every mask.

    Equal to one forward pass per mask, up to float32 rounding. For thousands of masks and examples
    take `sweep_batches`, which yields the same batch by batch.

    Args:
      bert: with a classification or regression head.
      params: its parameters.
      batches: from one call of `encode`.
      masks: [K, L, N] (`ablation/masks.py`, or your own): 1 keeps a head, 0 replaces its map by the
        baseline, fractions interpolate.
      baseline: 'uniform' (1/length: the paper, section 4.6) or 'zero' (Michel et al. 2019).
      chunk_tokens: tokens, of all examples and masks together, that one call computes. The default
        suits the device's kind; smaller needs less memory.
      mesh: devices along an axis `data` over which the examples of a batch are split.

    Raises:
      ValueError: when the masks do not fit the model, the model has no classifier, the baseline is
        unknown, there are no batches, or a batch does not split over the devices.
    """
    batches = list(listed(batches))
    if not batches:
        raise ValueError('There are no batches to sweep.')
    found = sweep_batches(
        bert, params, batches, masks, baseline=baseline, chunk_tokens=chunk_tokens, mesh=mesh
    )
    return in_order([batch.example for batch in batches], list(found), axis=1)


def sweep_batches(
    bert: Bert,
    params: Mapping[str, Any],
    batches: Iterable[Batch],
    masks,
    *,
    baseline: str = 'uniform',
    chunk_tokens: int | None = None,
    mesh: Mesh | None = None,
) -> Iterator[np.ndarray]:
    """Yield the logits [K, B, C] of each batch; rows of fillers mean nothing. As `sweep`."""
    check_model(bert)
    config = bert.config
    masks = np.asarray(masks, np.float32)
    expected = (config.num_hidden_layers, config.num_attention_heads)
    if masks.ndim != 3 or masks.shape[1:] != expected or not len(masks):
        raise ValueError(
            f'masks must be [masks, layers, heads] = [K, {expected[0]}, {expected[1]}] with at '
            f'least one mask, got {list(masks.shape)}.'
        )
    if not config.num_labels:
        raise ValueError(
            'A sweep compares logits, and this model has no classifier: load a fine-tuned '
            'checkpoint, or give label_names to from_pretrained.'
        )
    check_baseline(baseline)
    if chunk_tokens is None:
        chunk_tokens = default_chunk_tokens()
    devices = 1 if mesh is None else mesh.shape['data']
    distinct, place = np.unique(masks, axis=0, return_inverse=True)
    descent = _Descent.of(bert, params, distinct, baseline, chunk_tokens * devices, mesh)
    for batch in listed(batches):
        logits = np.empty((len(distinct), len(batch.example), config.num_labels), np.float32)
        for rows in _pieces(batch, chunk_tokens * devices, devices):
            piece = _take(batch, rows)
            for members, found in one_behind(descent.run(piece)):
                logits[np.ix_(members, rows)] = np.swapaxes(found, 0, 1)[: len(members)]
        yield logits[place.reshape(-1)]


def _pieces(batch: Batch, tokens: int, devices: int) -> Iterator[np.ndarray]:
    """Cut the rows of a batch into equal pieces of at most so many tokens (or a row per device)."""
    count, length = np.shape(batch.input_ids)
    if count % devices:
        raise ValueError(
            f'A batch of {count} rows does not split over {devices} devices: '
            f'encode(..., batch_multiple={devices}).'
        )
    most = max(tokens // length // devices, 1) * devices
    size = -(-count // -(-count // most) // devices) * devices
    for start in range(0, count, size):
        # The last piece repeats its last row: one shape, so one compilation.
        rows = np.minimum(np.arange(start, start + size), count - 1)
        if (np.asarray(batch.example)[rows] >= 0).any():
            yield rows


def _take(tree: Any, index: Any) -> Any:
    """Index the first axis of every array."""
    return jax.tree.map(lambda array: array[index], tree)


def one_behind(results: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, np.ndarray]]:
    """Bring results back while the device works on the next, and never queue more than that."""
    before = None
    for now in results:
        if before is not None:
            yield before[0], np.asarray(before[1])
        before = now
    if before is not None:
        yield before[0], np.asarray(before[1])


@dataclasses.dataclass(frozen=True)
class _Descent:
    """The way of all masks through the layers.

    Attributes:
      setting: what is compiled: once per shape, whatever the layer.
      embeddings, layers, pooler, classifier: parameters. Layers are apart: a slice of their stack
        would be copied in every call.
      masks: [K, L, N], all different.
      chunk_tokens: tokens of a call.
      place: moves a batch to the devices.
    """

    setting: Setting
    embeddings: Any
    layers: Sequence[Any]
    pooler: Any
    classifier: Any
    masks: np.ndarray
    chunk_tokens: int
    place: Callable[[Any], Any]

    @classmethod
    def of(cls, bert, params, masks, baseline, chunk_tokens, mesh) -> '_Descent':
        place = jax.device_put
        if mesh is not None:
            params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
            place = lambda batch: jax.device_put(batch, NamedSharding(mesh, PartitionSpec('data')))
        return cls(
            setting=Setting(bert.config, baseline),
            embeddings=params['embeddings'],
            layers=[_take(params['layers'], layer) for layer in range(len(masks[0]))],
            pooler=params['pooler'],
            classifier=params['classifier'],
            masks=masks,
            chunk_tokens=chunk_tokens,
            place=place,
        )

    def run(self, batch: Batch) -> Iterator[tuple[np.ndarray, Any]]:
        """Yield indices of masks and their logits [B, K', C]; what exceeds the indices is void."""
        batch = self.place(batch)
        hidden = embed(self.setting, self.embeddings, batch)
        yield from self._walk(hidden, batch.attention_mask, 0, np.arange(len(self.masks)))

    def _walk(self, hidden, attention_mask, first, members):
        """Go on from hidden states [B, T, D] that enter layer `first`, alike for all members."""
        examples = len(attention_mask)
        for layer in range(first, len(self.layers) - 1):
            params = self.layers[layer]
            distinct, which = np.unique(self.masks[members, layer], axis=0, return_inverse=True)
            which = which.reshape(-1)
            if len(distinct) == 1:
                head_mask = None
                if (distinct != 1).any():
                    head_mask = np.tile(distinct, (examples, 1))
                hidden = run_layer(self.setting, params, hidden, attention_mask, head_mask)
                continue
            opened = open_layer(self.setting, params, hidden, attention_mask)
            alone, unchanged = [], None
            for number, head_mask in enumerate(distinct):
                group = members[which == number]
                if (head_mask == 1).all():
                    unchanged = group
                elif len(group) == 1:
                    alone.append(group[0])
                else:
                    branch = self._close(layer, opened, group[:1])
                    yield from self._walk(branch, attention_mask, layer + 1, group)
            for chunk, filled in self._chunks(layer, np.array(alone, int), attention_mask.size):
                yield chunk, self._finish(layer, opened, attention_mask, filled)
            if unchanged is None:
                return
            members = unchanged
            hidden = leave_layer(self.setting, params, opened[0])
        # The rows of [CLS] under all masks are no more than the tokens of a call.
        most = max(self.chunk_tokens // examples, 1)
        size = _round_up(min(len(members), most))
        for start in range(0, len(members), size):
            chunk = members[start : start + size]
            masks = self.masks[np.resize(chunk, size), -1]
            yield chunk, self._logits(hidden, attention_mask, np.tile(masks, (examples, 1, 1)))

    def _chunks(self, layer, members, tokens):
        """Yield masks that change about as many heads of a layer, and the same filled up.

        Filled up to few sizes, as each is compiled.
        """
        most = max(self.chunk_tokens // tokens, 1)
        widths = self._changed(layer, members)
        for width in np.unique(widths):
            group = members[widths == width]
            size = _round_up(-(-len(group) // -(-len(group) // most)), most)
            for start in range(0, len(group), size):
                chunk = group[start : start + size]
                yield chunk, np.resize(chunk, size)

    def _changed(self, layer, members):
        """Return how many heads each mask changes in a layer, rounded up to few numbers."""
        heads = self.masks.shape[-1]
        counts = (self.masks[members, layer] != 1).sum(axis=-1)
        return np.array([_round_up(int(count), heads) for count in counts], int)

    def _close(self, layer, opened, members):
        """Return the output [B * K, T, D] of an opened layer for each of the masks."""
        amounts = 1 - self.masks[members, layer]
        width = self._changed(layer, members).max()
        heads = np.argsort(amounts == 0, axis=-1, kind='stable')[:, :width]
        return close_layer(
            self.setting,
            self.layers[layer],
            *opened,
            heads,
            np.take_along_axis(amounts, heads, axis=-1),
        )

    def _finish(self, layer, opened, attention_mask, members):
        """Take masks that share nothing after an opened layer to their logits [B, K, C]."""
        examples = len(attention_mask)
        hidden = self._close(layer, opened, members)
        for later in range(layer + 1, len(self.layers) - 1):
            masks, head_mask = self.masks[members, later], None
            if (masks != 1).any():
                head_mask = np.tile(masks, (examples, 1))
            hidden = run_layer(self.setting, self.layers[later], hidden, attention_mask, head_mask)
        head_masks = np.tile(self.masks[members, -1], (examples, 1))[:, None]
        logits = self._logits(hidden, attention_mask, head_masks)
        return logits.reshape(examples, len(members), -1)

    def _logits(self, hidden, attention_mask, head_masks):
        """Return the logits [R, K, C] of hidden states that enter the last layer."""
        return last_layer(
            self.setting,
            self.layers[-1],
            self.pooler,
            self.classifier,
            hidden,
            attention_mask,
            head_masks,
        )


def _round_up(count: int, most: int | None = None) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 …, but not above `most`."""
    power = 1 << max(count - 1, 0).bit_length()
    size = power * 3 // 4 if power >= 4 and count <= power * 3 // 4 else power
    return size if most is None else min(size, most)
