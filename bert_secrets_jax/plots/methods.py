"""Methods beside each other: curves over shares of tokens, and means with intervals."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, Figure, colour_of, figure_of, style_of, styled
from bert_secrets_jax.plots.numbers import Arrays, Ends


@styled
def share_curves(
    panels: Mapping[str, Arrays], shares: np.ndarray, *, label: str, grey: str | None = None
) -> Figure:
    """Draw values by the share of tokens, a line for each method, one panel per title.

    Args:
      panels: By title, the values [P] of each method, by its name.
      shares: The shares of tokens [P].
      grey: The method that is drawn grey and dashed; None draws all in colours.
    """
    figure, axes = figure_of(
        3.1, 3.0, panels, beside=1.6, sharey=True, xlabel='share of tokens (%)', ylabel=label
    )
    drawn = {}
    for axis, curves in zip(axes, panels.values(), strict=True):
        for index, (name, values) in enumerate(curves.items()):
            style = style_of(index)
            if name == grey:
                style['color'] = '0.55'
            style['linestyle'] = '--' if name == grey or index >= len(COLOURS) else '-'
            (drawn[name],) = axis.plot(100 * shares, values, markersize=4, linewidth=1.1, **style)
        axis.set_xticks(100 * shares)
    figure.named(drawn, 'right upper')
    return figure


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
