"""Methods beside each other: means with intervals."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.plots.figure import Figure, colour_of, figure_of, styled
from bert_secrets_jax.plots.numbers import Arrays, Ends


@styled
def interval_panels(
    rows: Sequence[str], panels: Mapping[str, Ends], *, filled: Arrays, columns: int | None = None
) -> Figure:
    """Draw values with intervals in rows that several panels share.

    Args:
      rows: The names of the R rows.
      panels: By title, the values [R] and the lower and upper ends [R] of their intervals.
      filled: By title, whether a point is filled [R]; the others are hollow.
      columns: The number of panels side by side; None is all of them.
    """
    columns = columns or len(panels)
    height = 0.26 * len(rows) + 0.9
    figure, axes = figure_of(
        2.4, height, panels, across=columns, beside=1.2, title_size=9, sharey=True, grid='x'
    )
    heights = np.arange(len(rows))
    for index, (axis, title) in enumerate(zip(axes, panels, strict=True)):
        (values, low, high), colour = panels[title], colour_of(index)
        axis.axvline(0, color='0.6', linewidth=0.8)
        axis.hlines(heights, low, high, color=colour, linewidth=1)
        faces = np.where(filled[title], colour, 'white')
        axis.scatter(values, heights, s=20, color=faces, edgecolors=colour, zorder=3)
    for axis in axes[::columns]:
        axis.set_yticks(heights, rows, fontsize=8)
    axes[0].invert_yaxis()
    return figure
