"""The one streaming pass: any number of statistics, in memory that does not grow with the corpus.

Shapes: B batch, L layers, N heads. A statistic's value may have further axes, `...`.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh
from jaxtyping import Array, Float

from bert_secrets_jax.checks import check_enough, meant
from bert_secrets_jax.compute import DATA, fetch, replicate, split
from bert_secrets_jax.data.encoding import Batch, in_order, listed
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.attention import MAP_BASELINES, check_baseline
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.intervention import check_amounts
from bert_secrets_jax.model.weights import Pretrained, check_whole

K = TypeVar('K', bound=Hashable)
BatchMaps = Float[Array, 'B L N T S']
# Gives the maps of a model, its parameters and a batch, like `learned_maps`.
MapsOf = Callable[..., BatchMaps]


def learned_maps(bert: Bert, params: Mapping[str, Any], batch: Batch, **options: Any) -> BatchMaps:
    """Return the learned probabilities of a batch; the options are those of `Bert`."""
    return bert.apply({'params': params}, **batch.inputs, **options).attentions


class Reducer(Protocol):
    """Makes something of the values of all examples, on the host."""

    def add(self, examples: np.ndarray, values: np.ndarray) -> None:
        """Take the numbers [B] and values [B, L, N, ...] of some examples, each example once."""

    def result(self) -> Any:
        """Return what was made of them."""


@dataclasses.dataclass(frozen=True)
class Reduction:
    """A statistic of whose values a new `Reducer` makes something else than a table."""

    statistic: Callable
    reducer: Callable[[], Reducer]


def stream(
    models: Sequence[Pretrained],
    batches: Iterable[Batch],
    statistics: Mapping[K, Callable | Reduction],
    *,
    head_mask: Any = None,
    baseline: str = 'uniform',
    keep_values: bool = False,
    mesh: Mesh | None = None,
    maps_of: MapsOf = learned_maps,
) -> dict[K, Any]:
    """Measure statistics of the maps of one model, or of two.

    Batches are read once, and at most two of them are held at a time. A statistic takes the maps of
    each model, one argument each, and then the marks; the result of a `Reduction` stands in the
    place of a table. `maps_of` gives the maps, like `learned_maps`, or what stands in their place,
    such as gradients; the same function is not compiled again. All else is as in `collect`.

    Raises:
      ValueError, TypeError: As in `collect`; or a statistic returns other shapes than it should.
    """
    check_whole(*models)
    check_baseline(baseline, MAP_BASELINES)
    check_enough('statistics to measure', statistics)
    params = tuple(replicate(model.params, mesh) for model in models)
    if head_mask is not None:
        check_amounts(head_mask)
        head_mask = jnp.asarray(head_mask, jnp.float32)
    reductions = {key: each for key, each in statistics.items() if isinstance(each, Reduction)}
    tables = {key: each for key, each in statistics.items() if key not in reductions}
    reducers = {key: each.reducer() for key, each in reductions.items()}
    functions: dict[Any, Any] = tables | {key: each.statistic for key, each in reductions.items()}
    berts = tuple(model.bert for model in models)
    how = {'tables': len(tables), 'baseline': baseline, 'maps_of': maps_of}
    state, kept = None, []
    for batch in listed(batches):
        numbers = np.asarray(batch.example)
        if mesh is not None:
            check_split(batch, mesh.shape[DATA])
            batch = split(batch, mesh)
        before = state
        moments, values = step(berts, tuple(functions.items()), params, batch, head_mask, **how)
        state = moments if state is None else merged(state, moments)
        for reducer, value in zip(reducers.values(), values[len(tables) :], strict=True):
            reducer.add(numbers[numbers >= 0], fetch(value)[numbers >= 0])
        if keep_values:
            kept.append((numbers, fetch(values[: len(tables)])))
        # JAX queues work without limit. Waiting for the step before keeps memory constant and the
        # progress that is shown true, while the device always has work.
        jax.block_until_ready(before)
    if state is None:
        raise ValueError('There are no batches to measure.')
    examples = [example for example, _ in kept]
    found: dict[K, Any] = {
        key: _table(key, moments, examples, [values[index] for _, values in kept])
        for index, (key, moments) in enumerate(zip(tables, fetch(state), strict=True))
    }
    found |= {key: reducer.result() for key, reducer in reducers.items()}
    return {key: found[key] for key in statistics}


@flax.struct.dataclass
class Moments:
    """Weighted sums that merge without cancellation (Chan et al. 1979)."""

    count: Any  # [1, 1, ...] the weights; ones for the dots if these have no further axes
    mean: Any  # [L, N, ...]
    squares: Any  # [L, N, ...] the squared deviations from the mean


def step(
    models: tuple[Bert, ...],
    statistics: tuple[tuple[Hashable, Callable], ...],
    params: tuple[Mapping[str, Any], ...],
    batch: Batch,
    head_mask: Float[Array, 'L N'] | Float[Array, 'B L N'] | None = None,
    *,
    tables: int,
    baseline: str = 'uniform',
    maps_of: MapsOf = learned_maps,
) -> tuple[list[Moments], list[Float[Array, 'B L N ...']]]:
    """Measure one batch: the moments of the first `tables`, and all values or NaN by example.

    The maps are one compiled program and the statistics, with their keys as in `stream`, another,
    so that passes over the same texts share the first.
    """
    maps = [
        maps_in(maps_of, bert, baseline, of_model, batch, head_mask)
        for bert, of_model in zip(models, params, strict=True)
    ]
    return _measured(statistics, tables, batch.marks, batch.example, maps)


def maps_in(
    maps_of: MapsOf,
    bert: Bert,
    baseline: str,
    params: Mapping[str, Any],
    batch: Batch,
    head_mask: Float[Array, 'L N'] | Float[Array, 'B L N'] | None,
) -> BatchMaps:
    """Return the maps of a batch, from a program that is compiled once for each shape of it."""
    if maps_of is learned_maps:
        # Marks differ from pass to pass, and these maps read none.
        batch = dataclasses.replace(batch, marks={})
    return _compiled_maps(maps_of, bert, baseline, params, batch, head_mask)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _compiled_maps(maps_of, bert, baseline, params, batch, head_mask):
    return maps_of(bert, params, batch, head_mask=head_mask, baseline=baseline)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _measured(statistics, tables, marks, example, maps):
    moments, values = [], []
    for key, statistic in statistics:
        value, weight = _batch_values(key, statistic, marks, maps)
        further = weight.shape[1:] or (1,) * (value.ndim - 3)
        weight = jnp.where(
            # Filler rows count for nothing.
            (example >= 0).reshape(-1, *[1] * (value.ndim - 1)),
            weight.reshape(-1, 1, 1, *further),
            0,
        )
        if len(moments) < tables:
            # A statistic may be NaN where it does not apply, and 0 * NaN is NaN.
            known, count = jnp.where(weight > 0, value, 0), weight.sum(axis=0)
            mean = (known * weight).sum(axis=0) / jnp.where(count > 0, count, 1)
            squares = ((known - mean[None]) ** 2 * weight).sum(axis=0)
            moments.append(Moments(count, mean, squares))
        values.append(jnp.where(weight > 0, value, jnp.nan))
    return moments, values


@jax.jit
def merged(state: list[Moments], moments: list[Moments]) -> list[Moments]:
    """Return the moments of the batches so far with those of one more, in a program of its own."""
    found = []
    for a, b in zip(state, moments, strict=True):
        count = a.count + b.count
        share = b.count / jnp.where(count > 0, count, 1)
        difference = b.mean - a.mean
        squares = a.squares + b.squares + difference**2 * a.count * share
        found.append(Moments(count, a.mean + difference * share, squares))
    return found


def _batch_values(key, statistic, marks, maps):
    result = jax.vmap(lambda marks, *maps: statistic(*maps, _Marks(marks)))(marks, *maps)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ValueError(f'Statistic {key!r} must return two things, a value and a weight.')
    value, weight = result
    value = jnp.asarray(value)
    if value.shape[:3] != maps[0].shape[:3] or weight.shape[1:] not in ((), value.shape[3:]):
        layers, heads = maps[0].shape[1:3]
        raise ValueError(
            f'Statistic {key!r} must return a value [layers, heads] = [{layers}, {heads}], '
            f'with or without axes behind them, and a weight [] or of these axes, got '
            f'{list(value.shape[1:])} and {list(weight.shape[1:])}.'
        )
    # A statistic may make a number of maps that are NaN, such as 0 of an entropy.
    for each in maps:
        broken = ~jnp.isfinite(each.sum(axis=(-2, -1)))
        if each.shape != maps[0].shape:
            # All heads, where a model with other heads has any.
            broken = broken.any(axis=(1, 2), keepdims=True)
        broken = broken.reshape(*broken.shape, *[1] * (value.ndim - 3))
        value = jnp.where(broken, jnp.nan, value)
    return value, weight


class _Marks(dict):
    """Marks whose error lists the names that exist when one is missing."""

    def __init__(self, marks: Mapping[str, Any], group: str = ''):
        super().__init__(
            {
                name: _Marks(mark, name) if isinstance(mark, Mapping) else mark
                for name, mark in marks.items()
            }
        )
        self._group = f' under {group!r}' if group else ''

    def __missing__(self, name):
        here = ', '.join(map(str, self)) or 'nothing'
        text = (
            f'These batches have no marks {name!r}{self._group}, but {here}: what words are, '
            'encode(..., annotations=bs.annotate(examples)) marks, and random links come from '
            f'bs.links.with_random_links. {meant(name, self)}'
        )
        raise ValueError(text.rstrip())


def check_split(batch: Batch, devices: int) -> None:
    """Raise ValueError if the rows of a batch cannot be shared equally by the devices."""
    rows = len(batch.example)
    if rows % devices:
        raise ValueError(
            f'A batch of {rows} rows does not split over {devices} devices: '
            f'encode the texts with bs.encode(..., batch_multiple={devices}).'
        )


def _table(
    key: Hashable,
    moments: Moments,
    examples: list[np.ndarray],
    values: list[Float[np.ndarray, '_ L N ...']],
) -> HeadTable:
    count = moments.count
    if not count.any():
        logging.warning('The statistic "%s" applies to none of the examples.', key)
    broken = (np.isnan(moments.mean) & (count > 0)).sum()
    if broken:
        logging.warning('The statistic "%s" is NaN for %d heads: shown as such.', key, broken)
    return HeadTable(
        mean=np.where(count > 0, moments.mean, np.nan),
        variance=np.where(count > 1, moments.squares / np.maximum(count - 1, 1), np.nan),
        count=float(count.item()) if count.size == 1 else count[0, 0],
        values=in_order(examples, values) if values else None,
    )
