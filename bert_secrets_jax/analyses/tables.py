"""Tables of heads in results: what their statistics are called, and what several runs share.

Shapes: L layers, N heads.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.stats

from bert_secrets_jax.ablation.significance import holm
from bert_secrets_jax.measure.catalogue import Described
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import framed

LEVEL = 0.05
Tables = Mapping[str, HeadTable]


@dataclasses.dataclass(frozen=True)
class Description:
    """What a person reads about a statistic, as `measure.catalogue.Described` has it.

    Attributes:
      name: Key of its table.
      title: Noun phrase for captions.
      unit: Unit of its values.
      least_first: Whether the smallest values are the most remarkable, as of an entropy.
      source: Where it comes from.
      reading: 'paper' or 'notebook'.
    """

    name: str
    title: str
    unit: str
    least_first: bool
    source: str
    reading: str


def describe(statistics: Iterable[Described]) -> tuple[Description, ...]:
    """Return the descriptions of statistics, without the functions."""
    fields = [field.name for field in dataclasses.fields(Description)]
    return tuple(
        Description(**{name: getattr(each, name) for name in fields}) for each in statistics
    )


def over_seeds(runs: Sequence[Tables], names: Iterable[str]) -> dict[str, HeadTable]:
    """Return the mean of several runs' tables; its variance is that over examples."""
    return {
        name: HeadTable(
            mean=np.mean([run[name].mean for run in runs], axis=0),
            variance=np.mean([run[name].variance for run in runs], axis=0),
            count=runs[0][name].count,
        )
        for name in names
    }


def top_head(values: np.ndarray) -> tuple[int, int]:
    """Return layer and head, from 0, of the greatest of values [L, N]."""
    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    return int(layer), int(head)


def half_width(table: HeadTable, head: tuple[int, int]) -> float:
    """Return half the 95 % interval of a head's mean over examples; NaN below two examples."""
    if table.count < 2:
        return np.nan
    return float(scipy.stats.t.ppf(0.975, table.count - 1) * table.standard_error[head])


def with_error(table: HeadTable, head: tuple[int, int], digits: int = 3) -> str:
    """Return 'L3-H8  0.512 ± 0.011' (mean and standard error)."""
    text = f'{head_name(*head)}  {table.mean[head]:.{digits}f}'
    if table.count > 1:
        text += f' ± {table.standard_error[head]:.{digits}f}'
    return text


def significant_change(changed: HeadTable) -> np.ndarray | None:
    """Say which heads rise or fall from one model to another (t-test, Holm over all heads).

    Args:
      changed: Of the difference of both models on each example.

    Returns:
      [L * N] 1 for heads that rise and -1 for those that fall significantly, else 0; None below
      two examples.
    """
    if changed.count < 2:
        return None
    mean, error = (
        values.astype(np.float64).ravel() for values in (changed.mean, changed.standard_error)
    )
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
    real = holm(2 * scipy.stats.t.sf(np.abs(t), changed.count - 1)) <= LEVEL
    return np.sign(mean) * real


_COLUMNS = ('statistic', 'layer', 'head', 'mean', 'variance', 'standard_error', 'examples', 'unit')


def heads_frame(tables: Tables, units: Mapping[str, str] | str, caption: str = ''):
    """Return a tidy frame, a row per statistic, layer and head (both from 1).

    Args:
      tables: Name to a table [L, N].
      units: Name to the unit of the statistic, or one unit of all.
      caption: What the frame shows.
    """
    return framed(_COLUMNS, _rows(tables, units), caption)


def seeds_frame(runs: Mapping[str, Tables], units: Mapping[str, str] | str, caption: str = ''):
    """Return the same of several runs, with a first column `seed`."""
    rows = [(seed, *row) for seed, tables in runs.items() for row in _rows(tables, units)]
    return framed(('seed', *_COLUMNS), rows, caption)


def _rows(tables: Tables, units: Mapping[str, str] | str) -> list[tuple]:
    return [
        (
            name, layer + 1, head + 1, table.mean[layer, head], table.variance[layer, head],
            error[layer, head], table.count,
            units if isinstance(units, str) else units.get(name, ''),
        )
        for name, table in tables.items()
        for error in [table.standard_error]
        for layer, head in np.ndindex(table.mean.shape)
    ]  # fmt: skip


def notes_of(tables: Sequence[HeadTable]) -> np.ndarray:
    """Return [L, N] means and standard errors as texts, of one model or also of its tuned self."""
    shape = tables[0].mean.shape
    texts = [
        ', fine-tuned '.join(
            f'{table.mean[head]:.4f} ± {table.standard_error[head]:.4f}' for table in tables
        )
        for head in np.ndindex(shape)
    ]
    return np.reshape(texts, shape)
