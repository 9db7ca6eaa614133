"""Tidy CSV: one row per observation, and back again without loss."""

import csv
import io
import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.report.figures import head_name

_HEAD_COLUMNS = (
    'statistic',
    'layer',
    'head',
    'mean',
    'variance',
    'standard_error',
    'examples',
)


def write_csv(path: pathlib.Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write a table; floats keep every digit that float32 has."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            [f'{value:.9g}' if isinstance(value, float | np.floating) else value for value in row]
        )
    write_atomically(path, text.getvalue().encode())


def write_heads(path: pathlib.Path, tables: Mapping[str, HeadTable]) -> None:
    """Write statistics of all heads, a row per statistic, layer and head (both from 1)."""
    write_csv(
        path,
        _HEAD_COLUMNS,
        (
            (
                name, layer + 1, head + 1, table.mean[layer, head], table.variance[layer, head],
                table.standard_error[layer, head], table.count,
            )
            for name, table in tables.items()
            for layer, head in np.ndindex(table.mean.shape)
        ),
    )  # fmt: skip


def read_heads(path: pathlib.Path, expected: Iterable[str]) -> dict[str, HeadTable]:
    """Read what `write_heads` wrote.

    Args:
      path: the file.
      expected: names of statistics that must be in it.

    Raises:
      ValueError: when they are not, or the file is damaged.
    """
    with path.open(newline='', encoding='utf-8') as file:
        rows = list(csv.DictReader(file))
    damaged = ValueError(f'{path} is damaged or from another version: delete it to measure anew.')
    if not rows or any(tuple(row) != _HEAD_COLUMNS or None in row.values() for row in rows):
        raise damaged
    tables = {}
    for name in dict.fromkeys([row['statistic'] for row in rows] + list(expected)):
        mine = [row for row in rows if row['statistic'] == name]
        try:
            shape = (int(mine[-1]['layer']), int(mine[-1]['head']))
            mean, variance = (
                np.array([float(row[column]) for row in mine], np.float32).reshape(shape)
                for column in ('mean', 'variance')
            )
            tables[name] = HeadTable(mean=mean, variance=variance, count=float(mine[0]['examples']))
        except (IndexError, TypeError, ValueError) as error:
            raise damaged from error
    if len({table.mean.shape for table in tables.values()}) > 1:
        raise damaged
    return tables


def top_heads(table: HeadTable, count: int = 3, *, least: bool = False) -> list[str]:
    """Return the heads with the greatest means as 'L3-H8  0.512 ± 0.011' (standard error).

    Args:
      table: of a statistic [L, N].
      count: how many.
      least: those with the smallest means instead.
    """
    order = np.argsort(table.mean if least else -table.mean, axis=None, kind='stable')[:count]
    tops = [np.unravel_index(index, table.mean.shape) for index in order]
    return [
        f'{head_name(*top)}  {table.mean[top]:.3f}'
        + (f' ± {table.standard_error[top]:.3f}' if table.count > 1 else '')
        for top in tops
    ]
