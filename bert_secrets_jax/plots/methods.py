"""Methods beside each other: curves over shares of tokens, and means with intervals."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, Figure, colour_of, figure_of, marker_of, styled


@styled
def share_curves(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    shares: np.ndarray,
    *,
    label: str,
    grey: str | None = None,
) -> Figure:
    """Draw values by the share of tokens, a line for each method, one panel per title.

    Args:
      panels: By title, the values [P] of each method, by its name.
      shares: The shares of tokens [P].
      grey: The method that is drawn grey and dashed; None draws all in colours.
    """
    figure, axes = figure_of(3.1 * len(panels) + 1.6, 3.0, columns=len(panels), sharey=True)
    drawn = {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            is_grey = name == grey
            (drawn[name],) = axis.plot(
                100 * shares,
                values,
                color='0.55' if is_grey else colour_of(index),
                linestyle='--' if is_grey or index >= len(COLOURS) else '-',
                marker=marker_of(index),
                markersize=4,
                linewidth=1.1,
            )
        axis.set(title=title, xlabel='share of tokens (%)', xticks=100 * shares)
    axes[0].set_ylabel(label)
    figure.named(drawn, 'right upper')
    return figure


@styled
def interval_panels(
    rows: Sequence[str],
    panels: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    *,
    filled: Mapping[str, np.ndarray],
    columns: int | None = None,
) -> Figure:
    """Draw values with intervals in rows that several panels share.

    Args:
      rows: The names of the R rows.
      panels: By title, the values [R] and the lower and upper ends [R] of their intervals.
      filled: By title, whether a point is filled [R]; the others are hollow.
      columns: The number of panels side by side; None is all of them.
    """
    columns = columns or len(panels)
    lines = -(-len(panels) // columns)
    size = 2.4 * columns + 1.2, (0.26 * len(rows) + 0.9) * lines
    shape = {'rows': lines, 'columns': columns, 'used': len(panels)}
    figure, axes = figure_of(*size, **shape, sharey=True, grid='x')
    heights = np.arange(len(rows))
    for index, (title, (values, low, high)) in enumerate(panels.items()):
        axis, colour = axes[index], colour_of(index)
        axis.axvline(0, color='0.6', linewidth=0.8)
        axis.hlines(heights, low, high, color=colour, linewidth=1)
        faces = np.where(filled[title], colour, 'white')
        axis.scatter(values, heights, s=20, color=faces, edgecolors=colour, zorder=3)
        axis.set_title(title, fontsize=9)
    for axis in axes[::columns]:
        axis.set_yticks(heights, rows, fontsize=8)
    axes[0].invert_yaxis()
    return figure
