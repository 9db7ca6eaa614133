"""Methods beside each other: curves over shares of tokens, and means with intervals by measure."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, MARKERS, STYLE, Figure


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
      label: The label of the vertical axis, with the unit.
      grey: The method that is drawn grey and dashed; None draws all in colours.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * len(panels) + 1.6, 3.0), layout='constrained')
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        drawn = {}
        for axis, (title, curves) in zip(axes, panels.items(), strict=True):
            for index, (name, values) in enumerate(curves.items()):
                is_grey = name == grey
                (drawn[name],) = axis.plot(
                    100 * shares,
                    values,
                    color='0.55' if is_grey else COLOURS[index % len(COLOURS)],
                    linestyle='--' if is_grey or index >= len(COLOURS) else '-',
                    marker=MARKERS[index % len(MARKERS)],
                    markersize=4,
                    linewidth=1.1,
                )
            axis.set(title=title, xlabel='share of tokens (%)', xticks=100 * shares)
            axis.grid(axis='y', alpha=0.3)
        axes[0].set_ylabel(label)
        # Named here: Matplotlib leaves out lines whose label begins with an underscore.
        figure.legend(list(drawn.values()), list(drawn), loc='outside right upper', frameon=False,
                      fontsize=7)  # fmt: skip
        return figure


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
    with matplotlib.rc_context(STYLE):
        size = (2.4 * columns + 1.2, (0.26 * len(rows) + 0.9) * lines)
        figure = Figure(figsize=size, layout='constrained')
        axes = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
        heights = np.arange(len(rows))
        for index, (axis, (title, (values, low, high))) in enumerate(
            zip(axes, panels.items(), strict=False)
        ):
            colour = COLOURS[index % len(COLOURS)]
            axis.axvline(0, color='0.6', linewidth=0.8)
            axis.hlines(heights, low, high, color=colour, linewidth=1)
            faces = np.where(filled[title], colour, 'white')
            axis.scatter(values, heights, s=20, color=faces, edgecolors=colour, zorder=3)
            axis.set_title(title, fontsize=9)
            axis.grid(axis='x', alpha=0.3)
        for axis in axes[::columns]:
            axis.set_yticks(heights, rows, fontsize=8)
        axes[0].invert_yaxis()
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        return figure
