"""The one streaming pass: any number of statistics, memory independent of the corpus."""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bert_secrets_jax.data.encoding import Batch, in_order, listed
from bert_secrets_jax.measure.statistics import Comparison, Statistic
from bert_secrets_jax.model.bert import Bert, check_model


@dataclasses.dataclass(frozen=True)
class HeadTable:
    """A statistic of every head over a corpus.

    The dots are the further axes of the statistic's value, mostly none.

    Attributes:
      mean: [L, N, ...] weighted mean over examples; NaN where the statistic applied to none.
      variance: [L, N, ...] unbiased variance over examples; NaN below two examples.
      count: sum of the weights, that is, the number of examples the statistic applied to: a number,
        or [...] where weights have the further axes.
      values: [E, L, N, ...] per example, NaN where it did not apply; None unless asked for.
    """

    mean: np.ndarray
    variance: np.ndarray
    count: float | np.ndarray
    values: np.ndarray | None = None

    @property
    def standard_error(self) -> np.ndarray:
        """[L, N, ...] standard error of the mean."""
        return np.sqrt(self.variance / np.maximum(self.count, 1))

    def unstack(self) -> 'list[HeadTable]':
        """Return the tables [L, N] along the last axis."""
        return [
            HeadTable(
                mean=self.mean[..., index],
                variance=self.variance[..., index],
                count=float(np.broadcast_to(self.count, self.mean.shape[2:])[..., index]),
                values=None if self.values is None else self.values[..., index],
            )
            for index in range(self.mean.shape[-1])
        ]


@flax.struct.dataclass
class _Moments:
    """Count, mean and sum of squared deviations: merges without cancellation (Chan et al. 1979).

    Mean and squares are [L, N, ...], the count is [1, 1, ...] or [1, 1, 1, ...].
    """

    count: Any
    mean: Any
    squares: Any


def collect(
    bert: Bert,
    params: Mapping[str, Any],
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Statistic],
    *,
    head_mask=None,
    baseline: str = 'uniform',
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[Hashable, HeadTable]:
    """Measure statistics of all heads over all examples in one forward pass each.

    Args:
      bert: the model.
      params: its parameters.
      batches: from `encode`; any iterable, read once, at most two batches held at a time.
      statistics: name to statistic (`measure/statistics.py`, or your own), whose value for one
        example is [L, N] or has further axes, [L, N, ...]. Pass the same function objects again
        and nothing is compiled again.
      head_mask: [L, N], as in the model; maps of later layers change with it.
      baseline: of masked heads.
      keep_values: also bring back the value of each example; memory then grows with the corpus.
      mesh: devices with an axis `data` over which each batch is split; its rows must be a
        multiple of their number (`encode(..., batch_multiple=...)`).

    Returns:
      Name to HeadTable. The same for any size and order of batches and any number of devices,
      up to float32 rounding.

    Raises:
      ValueError: no batches, rows that the mesh does not divide, or marks that the texts lack.
      TypeError: something else than a model, batches and statistics.
    """
    measure = _measure((bert,), statistics, baseline)
    head_mask = None if head_mask is None else jnp.asarray(head_mask, jnp.float32)
    return _stream(measure, (params,), batches, head_mask, keep_values, mesh)


def compare(
    before: tuple[Bert, Mapping[str, Any]],
    after: tuple[Bert, Mapping[str, Any]],
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Comparison],
    *,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[Hashable, HeadTable]:
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
    measure = _measure((before[0], after[0]), statistics, 'uniform')
    return _stream(measure, (before[1], after[1]), batches, None, keep_values, mesh)


@dataclasses.dataclass(frozen=True)
class _Measure:
    """What is compiled: models, statistics of their maps together, baseline of masked heads."""

    models: tuple[Bert, ...]
    statistics: tuple[tuple[Hashable, Callable], ...]
    baseline: str


def _measure(models, statistics, baseline) -> _Measure:
    check_model(*models)
    if not isinstance(statistics, Mapping):
        raise TypeError("Statistics have names: {'sep': bs.statistics.to_sep}, for one.")
    return _Measure(models, tuple(statistics.items()), baseline)


class _Marks(dict):
    """Marks that say which there are."""

    def __missing__(self, name):
        raise ValueError(
            f'These batches have no marks {name!r}, but {", ".join(self)}: what words are, '
            'encode(..., annotations=bs.annotate(examples)) marks.'
        )


def _stream(measure, params, batches, head_mask, keep_values, mesh) -> dict[Hashable, HeadTable]:
    if mesh is not None:
        params = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
    state, kept = None, []
    for batch in listed(batches):
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
    measured = {}
    for name, statistic in measure.statistics:
        result = jax.vmap(functools.partial(_of_one, statistic))(batch.marks, *maps)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError(f'Statistic {name!r} must return two things, a value and a weight.')
        measured[name] = value, weight = result
        further = value.shape[3:]
        if value.shape[:3] != maps[0].shape[:3] or weight.shape[1:] not in ((), further):
            layers, heads = maps[0].shape[1:3]
            raise ValueError(
                f'Statistic {name!r} must return a value [layers, heads] = [{layers}, {heads}], '
                f'with or without axes behind them, and a weight [] or of these axes, got '
                f'{list(value.shape[1:])} and {list(weight.shape[1:])}.'
            )
    measured = {
        name: (value, _aligned(weight, value, batch.example >= 0))
        for name, (value, weight) in measured.items()
    }
    moments = {name: _moments(*pair) for name, pair in measured.items()}
    if state is not None:
        moments = {name: _merge(state[name], moments[name]) for name in moments}
    values = {
        name: jnp.where(weight > 0, value, jnp.nan) for name, (value, weight) in measured.items()
    }
    return moments, values


def _of_one(statistic, marks, *maps):
    return statistic(*maps, _Marks(marks))


def _aligned(weights, values, filled):
    """Weights [B] or [B, ...] with the axes of values [B, L, N, ...]; 0 for filler rows."""
    further = weights.shape[1:] or (1,) * (values.ndim - 3)
    return jnp.where(
        filled.reshape(-1, *[1] * (values.ndim - 1)), weights.reshape(-1, 1, 1, *further), 0
    )


def _moments(values, weights) -> _Moments:
    # A statistic may be NaN where it does not apply, and 0 * NaN is NaN.
    values = jnp.where(weights > 0, values, 0)
    count = weights.sum(axis=0)
    mean = (values * weights).sum(axis=0) / jnp.where(count > 0, count, 1)
    return _Moments(count, mean, ((values - mean[None]) ** 2 * weights).sum(axis=0))


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


def _table(name: Hashable, moments: _Moments, kept) -> HeadTable:
    count = moments.count
    if not count.any():
        logging.warning('Statistic %r applied to no example.', name)
    values = None
    if kept:
        values = in_order([example for example, _ in kept], [batch[name] for _, batch in kept])
    return HeadTable(
        mean=np.where(count > 0, moments.mean, np.nan),
        variance=np.where(count > 1, moments.squares / np.maximum(count - 1, 1), np.nan),
        count=float(count.item()) if count.size == 1 else count[0, 0],
        values=values,
    )
