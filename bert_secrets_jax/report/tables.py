"""Tidy tables: one row per observation; CSV and back again without loss, pandas frames."""

import csv
import io
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.report.figures import head_name

# Loaded where it is used: programs, which do not, start half a second earlier.
if TYPE_CHECKING:
    import pandas

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
    write_csv(path, _HEAD_COLUMNS, _rows(tables))


def _rows(tables: Mapping[str, HeadTable]) -> Iterator[tuple]:
    if not (
        isinstance(tables, Mapping)
        and all(isinstance(table, HeadTable) for table in tables.values())
    ):
        raise TypeError('Tables come by name, as `collect` returns them: {name: table}.')
    for name, table in tables.items():
        if table.mean.ndim > 2:
            raise ValueError(
                f'Values of {name!r} have further axes, {list(table.mean.shape)}: name its parts '
                'with `dict(zip(names, table.unstack()))`.'
            )
        error = table.standard_error
        for place in np.ndindex(table.mean.shape):
            layer, head = place
            yield (
                name, layer + 1, head + 1, table.mean[place], table.variance[place], error[place],
                table.count,
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


def to_frame(tables: Mapping[str, HeadTable]) -> 'pandas.DataFrame':
    """Return what `collect` returned as a pandas frame.

    Columns are statistic, layer, head (both from 1), mean, variance, standard_error and examples.

    Args:
      tables: name to a table [L, N].

    Raises:
      ValueError: for a table with further axes.
    """
    import pandas

    return pandas.DataFrame(list(_rows(tables)), columns=list(_HEAD_COLUMNS))


def read_results(workdir: str | pathlib.Path) -> 'dict[str, pandas.DataFrame]':
    """Read all tables of a run as pandas frames.

        results = bs.read_results('results/quickstart')
        sep = results['heads'].query('statistic == "[SEP]"')
        sep.pivot(index='layer', columns='head', values='mean')

    Args:
      workdir: of a run, or a folder of several, such as one that ran several tasks: frames then
        begin with a column `run`, the name of its folder.

    Returns:
      Name of the CSV file, such as 'ablation_heads' or 'finetune/pretrained/curve', to frame.

    Raises:
      FileNotFoundError: no run was there.
    """
    import pandas

    workdir = pathlib.Path(workdir)
    read = lambda files: {
        file.relative_to(workdir).with_suffix('').as_posix(): pandas.read_csv(file)
        for file in sorted(files)
    }
    if (workdir / 'config.json').exists():
        return read(workdir.rglob('*.csv'))
    runs = sorted(path.parent for path in workdir.glob('*/config.json'))
    if not runs:
        raise FileNotFoundError(
            f'{workdir} is not the --workdir of a run, nor a folder of some: no config.json there.'
        )
    parts = {}
    for run in runs:
        for name, frame in read_results(run).items():
            frame.insert(0, 'run', run.name)
            parts.setdefault(name, []).append(frame)
    joined = {name: pandas.concat(frames, ignore_index=True) for name, frames in parts.items()}
    return joined | read(workdir.glob('*.csv'))


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
