"""Tables of all heads, one value per layer and head: as a pandas frame, and the top heads.

Shapes: E examples, L layers, N heads.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.checks import brief
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.names import head_name

# Loaded where it is used, since it takes half a second.
if TYPE_CHECKING:
    import pandas

_COLUMNS = ('statistic', 'layer', 'head', 'mean', 'variance', 'standard_error', 'examples')
# A page colours heads by the mean of a statistic.
COLOURS = Colours('heads', {'mean': ('standard_error', 'examples')}, by=('statistic',))


@dataclasses.dataclass(frozen=True)
class HeadTable:
    """A statistic of every head over a corpus. The dots are further axes of its value, mostly none.

    Attributes:
      mean: [L, N, ...] The weighted mean over examples; NaN if the statistic applied to none.
      variance: [L, N, ...] The unbiased variance over examples; NaN for fewer than two examples.
      count: The sum of the weights, that is, the number of examples to which the statistic applied:
        a number, or [...] if the weights have the further axes.
      values: [E, L, N, ...] The value of each example, NaN where there is none; None if not kept.
    """

    mean: Float[np.ndarray, 'L N *further']
    variance: Float[np.ndarray, 'L N *further']
    count: float | Float[np.ndarray, '*further']
    values: Float[np.ndarray, 'E L N *further'] | None = None

    __repr__ = brief

    @property
    def standard_error(self) -> Float[np.ndarray, 'L N *further']:
        """[L, N, ...] The standard error of the mean."""
        return np.sqrt(self.variance / np.maximum(self.count, 1))

    def unstack(self) -> 'list[HeadTable]':
        """Return one table [L, N, ...] for each index of the last axis."""
        further = self.mean.shape[2:]
        counts = np.broadcast_to(self.count, further)
        return [
            HeadTable(
                mean=self.mean[..., index],
                variance=self.variance[..., index],
                count=float(counts[index]) if len(further) == 1 else counts[..., index],
                values=None if self.values is None else self.values[..., index],
            )
            for index in range(further[-1])
        ]


def to_frame(tables: Mapping[str, HeadTable]) -> 'pandas.DataFrame':
    """Return tables [L, N] of all heads by name, as `collect` returns them, as one pandas frame.

    Its columns are statistic, layer, head (both count from 1), mean, variance, standard_error and
    examples.

    Raises:
      TypeError: The tables are not a dictionary of `HeadTable`s.
      ValueError: A table has further axes.
    """
    import pandas

    listed = tables.values() if isinstance(tables, Mapping) else [None]
    if not all(isinstance(table, HeadTable) for table in listed):
        raise TypeError('Tables come by name, as `collect` returns them: {name: table}.')
    rows = []
    for name, table in tables.items():
        if table.mean.ndim > 2:
            raise ValueError(
                f'Values of {name!r} have further axes, {list(table.mean.shape)}: name its parts '
                'with `dict(zip(names, table.unstack()))`.'
            )
        columns = (table.mean, table.variance, table.standard_error)
        for layer, head in np.ndindex(table.mean.shape):
            numbers = (each[layer, head] for each in columns)
            rows.append((name, layer + 1, head + 1, *numbers, table.count))
    frame = pandas.DataFrame(rows, columns=list(_COLUMNS))
    frame.attrs['colours'] = COLOURS
    return frame


def top_heads(table: HeadTable, count: int = 3, *, least: bool = False) -> list[str]:
    """Return the `count` heads with the greatest means, or the least: 'L3-H8  0.512 ± 0.011'.

    The error is that of the mean.
    """
    order = np.argsort(table.mean if least else -table.mean, axis=None, kind='stable')[:count]
    tops = [tuple(map(int, np.unravel_index(index, table.mean.shape))) for index in order]
    return [
        f'{head_name(*top)}  {table.mean[top]:.3f}'
        + (f' ± {table.standard_error[top]:.3f}' if table.count > 1 else '')
        for top in tops
    ]
