"""Measure statistics over a corpus: of one model, or of the difference between two."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from bert_secrets_jax.data.encoding import Batch
from bert_secrets_jax.measure.catalogue import Described, measure, measure_change, named
from bert_secrets_jax.measure.statistics import Comparison, Statistic
from bert_secrets_jax.measure.stream import MapsOf, learned_maps, stream
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.model.weights import Pretrained, check_heads_alike

__all__ = ['HeadTable', 'collect', 'compare']


def collect(
    pretrained: Pretrained,
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Statistic] | Sequence[str | Described],
    *,
    head_mask: Any = None,
    baseline: str = 'uniform',
    keep_values: bool = False,
    mesh: Mesh | None = None,
    maps_of: MapsOf = learned_maps,
) -> dict[Hashable, HeadTable]:
    """Measure statistics of all heads over all examples, in one forward pass for each example.

    Args:
      pretrained: The model.
      batches: The batches from `encode`, or from `stream_batches` for a corpus of any size. Any
        iterable will do: it is read once, and at most two batches are held at a time.
      statistics: Names, such as ['[SEP]', 'entropy (nats)'], or functions by names of your choice,
        such as {'mine': my_statistic}. A listed name is one of `bs.catalogue.CATALOGUE`, or
        'package.module:name' of a function of your own; a `Described` can stand in its place. A
        function takes the maps and marks of one example (`measure/statistics.py`) and returns a
        value [L, N], or with further axes [L, N, ...], and a weight. If you pass the same function
        objects again, nothing is compiled again.
      head_mask: A mask [L, N] of the heads: 1 keeps a head, 0 replaces its map by the baseline.
        This also changes the maps of later layers. None keeps all heads.
      baseline: The map of masked heads: 'uniform' (the same weight on every token) or 'zero'.
      keep_values: Whether to return the value of each example as well, which takes memory.
      mesh: The devices, with an axis `data`, over which each batch is split; None uses one device.
        Rows must be a multiple of the devices (`encode(..., batch_multiple=...)`).
      maps_of: The values that the maps have: their weights, or how much is moved along them
        (`bs.shares_of_norms`, `bs.norms_of_heads`). The same function is not compiled again.

    Returns:
      A table for each name. It is the same for any size and order of the batches and any number of
      devices, up to the rounding of float32.

    Raises:
      ValueError: There are no batches, their rows cannot be split over the devices, the texts lack
        marks that a statistic reads, or there is no statistic of that name.
      TypeError: The arguments are not a model, batches and statistics.
    """
    options = dict(
        head_mask=head_mask, baseline=baseline, keep_values=keep_values, mesh=mesh, maps_of=maps_of
    )
    if isinstance(statistics, Mapping):
        return stream((pretrained,), batches, _checked(statistics), **options)
    return {**measure(pretrained, batches, _described(statistics), **options)}


def compare(
    before: Pretrained,
    after: Pretrained,
    batches: Iterable[Batch],
    statistics: Mapping[Hashable, Comparison] | Sequence[str | Described],
    *,
    keep_values: bool = False,
    mesh: Mesh | None = None,
) -> dict[Hashable, HeadTable]:
    """Compare the maps of two models, such as those before and after fine-tuning.

    Both models run in one compiled pass, and their maps are never stored. Tables, batches and the
    other options are as in `collect`.

    Args:
      before, after: The two models, with as many layers and as many heads each.
      statistics: Names, or functions by name, as in `collect`. A function takes the maps of the
        first model, those of the second and the marks. The name of a statistic of one model, such
        as '[SEP]', gives two tables: the second model's under its name, and the second model's
        minus the first model's under 'change of [SEP]'.

    Raises:
      ValueError, TypeError: As in `collect`.
    """
    check_heads_alike(before, after)
    options = {'keep_values': keep_values, 'mesh': mesh}
    if isinstance(statistics, Mapping):
        return stream((before, after), batches, _checked(statistics), **options)
    return {**measure_change(before, after, batches, _described(statistics), **options)}


_MEND = (
    "give names, ['[SEP]', 'entropy (nats)'], or functions by name, {'mine': my_statistic}; "
    'list(bs.catalogue.CATALOGUE) has all names.'
)


def _checked(statistics: Mapping[Hashable, Any]) -> Mapping[Hashable, Any]:
    for name, statistic in statistics.items():
        if not callable(statistic):
            raise TypeError(
                f'Statistic {name!r} is a {type(statistic).__name__} and no function: {_MEND}'
            )
    return statistics


def _described(statistics: Sequence[str | Described]) -> list[Described]:
    if isinstance(statistics, str | Described) or callable(statistics):
        raise TypeError(f'Statistics are several, and this is a single one: {_MEND}')
    described = []
    for each in statistics:
        if not isinstance(each, str | Described):
            raise TypeError(f'A {type(each).__name__} has no name as a statistic: {_MEND}')
        described.append(named(each) if isinstance(each, str) else each)
    return described
