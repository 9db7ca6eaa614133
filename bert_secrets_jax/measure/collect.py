"""The one streaming pass: any number of statistics, memory independent of the corpus."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.statistics import Comparison, Statistic
from bert_secrets_jax.model.bert import Bert


@dataclasses.dataclass(frozen=True)
class HeadTable:
    """A statistic of every head over a corpus.

    Attributes:
      mean: [L, N] weighted mean over examples; NaN where the statistic applied to none.
      variance: [L, N] unbiased variance over examples; NaN below two examples.
      count: sum of the weights, that is, the number of examples the statistic applied to.
      values: [E, L, N] per example, NaN where it did not apply; None unless asked for.
    """

    mean: np.ndarray
    variance: np.ndarray
    count: float
    values: np.ndarray | None = None

    @property
    def standard_error(self) -> np.ndarray:
        """[L, N] standard error of the mean."""
        return np.sqrt(self.variance / max(self.count, 1))


@flax.struct.dataclass
class _Moments:
    """Count, mean and sum of squared deviations: merges without cancellation (Chan et al. 1979)."""

    count: Any
    mean: Any
    squares: Any


def collect(
    bert: Bert,
    params: Mapping[str, Any],
    batches: Iterable[Batch],
    statistics: Mapping[str, Statistic],
    *,
    head_mask=None,
    baseline: str = 'uniform',
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[str, HeadTable]:
    """Measure statistics of all heads over all examples in one forward pass each.

    Args:
      bert: the model.
      params: its parameters.
      batches: from `encode`; any iterable, read once, at most two batches held at a time.
      statistics: name to statistic (`measure/statistics.py`, or your own). Pass the same function
        objects again and nothing is compiled again.
      head_mask: [L, N], as in the model; maps of later layers change with it.
      baseline: of masked heads.
      keep_values: also bring back the value of each example; memory then grows with the corpus.
      mesh: devices with an axis `data` over which each batch is split; its rows must be a
        multiple of their number (`encode(..., batch_multiple=...)`).

    Returns:
      Name to HeadTable. The same for any size and order of batches and any number of devices,
      up to float32 rounding.

    Raises:
      ValueError: no batches, or rows that the mesh does not divide.
    """
    measure = _Measure((bert,), tuple(statistics.items()), baseline)
    head_mask = None if head_mask is None else jnp.asarray(head_mask, jnp.float32)
    return _stream(measure, (params,), batches, head_mask, keep_values, mesh)


def compare(
    before: tuple[Bert, Mapping[str, Any]],
    after: tuple[Bert, Mapping[str, Any]],
    batches: Iterable[Batch],
    statistics: Mapping[str, Comparison],
    *,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[str, HeadTable]:
    """Measure what differs between the maps of two models, such as before and after fine-tuning.

    Both models run in one jitted pass, and their maps are never stored.

    Args:
      before, after: model and parameters; as many layers and heads in both.
      batches: as in `collect`.
      statistics: name to a function `(attentions, other attentions, marks) -> (value, weight)`.
      keep_values, mesh: as in `collect`.

    Returns:
      As `collect`.
    """
    measure = _Measure((before[0], after[0]), tuple(statistics.items()), 'uniform')
    return _stream(measure, (before[1], after[1]), batches, None, keep_values, mesh)


@dataclasses.dataclass(frozen=True)
class _Measure:
    """What is compiled: models, statistics of their maps together, baseline of masked heads."""

    models: tuple[Bert, ...]
    statistics: tuple[tuple[str, Callable], ...]
    baseline: str


def _stream(measure, params, batches, head_mask, keep_values, mesh) -> dict[str, HeadTable]:
    if mesh is not None:
        params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    state, kept = None, []
    for batch in batches:
        if mesh is not None:
            batch = _shard(batch, mesh)
        before = state
        state, values = _step(measure, params, batch, state, head_mask)
        if keep_values:
            kept.append((np.asarray(batch.example), jax.device_get(values)))
        # JAX queues work without limit; waiting for the step before keeps memory constant and
        # the progress shown honest, while the device never runs dry.
        jax.block_until_ready(before)
    if state is None:
        raise ValueError('There are no batches to measure.')
    state = jax.device_get(state)
    return {name: _table(name, state[name], kept) for name, _ in measure.statistics}


@functools.partial(jax.jit, static_argnums=0)
def _step(measure, params, batch, state, head_mask):
    maps = [
        bert.apply(
            {'params': of_model},
            **batch.inputs,
            head_mask=head_mask,
            baseline=measure.baseline,
        ).attentions
        for bert, of_model in zip(measure.models, params, strict=True)
    ]
    measured = {
        name: jax.vmap(statistic)(*maps, batch.marks) for name, statistic in measure.statistics
    }
    for name, (value, weight) in measured.items():
        if value.shape != maps[0].shape[:3] or weight.shape != maps[0].shape[:1]:
            raise ValueError(
                f'Statistic {name!r} must return a value [layers, heads] = '
                f'{list(maps[0].shape[1:3])} and a weight [], got {list(value.shape[1:])} and '
                f'{list(weight.shape[1:])}.'
            )
    filled = batch.example >= 0
    measured = {
        name: (value, jnp.where(filled, weight, 0)) for name, (value, weight) in measured.items()
    }
    moments = {name: _moments(*pair) for name, pair in measured.items()}
    if state is not None:
        moments = {name: _merge(state[name], moments[name]) for name in moments}
    values = {
        name: jnp.where(weight[:, None, None] > 0, value, jnp.nan)
        for name, (value, weight) in measured.items()
    }
    return moments, values


def _moments(values, weights) -> _Moments:
    # A statistic may be NaN where it does not apply, and 0 * NaN is NaN.
    values = jnp.where(weights[:, None, None] > 0, values, 0)
    count = weights.sum()
    mean = jnp.einsum('BLN,B->LN', values, weights) / jnp.where(count > 0, count, 1)
    squares = jnp.einsum('BLN,B->LN', (values - mean[None]) ** 2, weights)
    return _Moments(count, mean, squares)


def _merge(a: _Moments, b: _Moments) -> _Moments:
    count = a.count + b.count
    share = b.count / jnp.where(count > 0, count, 1)
    difference = b.mean - a.mean
    return _Moments(
        count=count,
        mean=a.mean + difference * share,
        squares=a.squares + b.squares + difference**2 * a.count * share,
    )


def _shard(batch: Batch, mesh: Mesh) -> Batch:
    rows, devices = len(batch.example), mesh.shape['data']
    if rows % devices:
        raise ValueError(
            f'A batch of {rows} rows does not split over {devices} devices: '
            f'encode(..., batch_multiple={devices}).'
        )
    return jax.device_put(batch, NamedSharding(mesh, PartitionSpec('data')))


def _table(name: str, moments: _Moments, kept) -> HeadTable:
    count = float(moments.count)
    if count == 0:
        logging.warning('Statistic %r applied to no example.', name)
    nothing = np.full_like(moments.mean, np.nan)
    values = None
    if kept:
        index = np.concatenate([example for example, _ in kept])
        if len(np.unique(index[index >= 0])) < (index >= 0).sum():
            raise ValueError(
                'keep_values needs batches of one call of encode: an example occurs twice.'
            )
        stacked = np.concatenate([batch[name] for _, batch in kept])
        values = np.full((index.max() + 1, *stacked.shape[1:]), np.nan, np.float32)
        values[index[index >= 0]] = stacked[index >= 0]
    return HeadTable(
        mean=moments.mean if count > 0 else nothing,
        variance=moments.squares / (count - 1) if count > 1 else nothing,
        count=count,
        values=values,
    )
