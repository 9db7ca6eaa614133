"""Points: heads on a plane, and values with their intervals in rows."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, STYLE, Figure

_MARKERS = 'osD^vPX*'


def planes(
    positions: np.ndarray, *, layers: np.ndarray, kinds: Sequence[str], order: Sequence[str]
) -> Figure:
    """Draw the heads twice, coloured by layer and by kind (Clark et al. 2019, Figure 6).

    Args:
      positions: The places of the heads [H, 2].
      layers: The layer of each head [H], from 1.
      kinds: The kind of each head.
      order: All kinds, in the order of the legend; the last one is drawn in grey.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.7), layout='constrained')
        by_layer, by_kind = figure.subplots(1, 2, sharex=True, sharey=True)
        points = by_layer.scatter(*positions.T, c=layers, cmap='viridis', s=16)
        bar = figure.colorbar(points, ax=by_layer, label='layer', shrink=0.9, pad=0.01)
        bar.set_ticks(np.unique(layers))
        for index, kind in enumerate(order):
            chosen = [row for row, each in enumerate(kinds) if each == kind]
            if chosen:
                by_kind.scatter(
                    *positions[chosen].T,
                    s=16,
                    marker=_MARKERS[index % len(_MARKERS)],
                    color='0.7' if kind == order[-1] else COLOURS[index % len(COLOURS)],
                    label=f'{kind} ({len(chosen)})',
                )
        # Below, where no head is.
        figure.legend(fontsize=7, loc='outside lower center', ncols=4, frameon=False)
        for axis in (by_layer, by_kind):
            # Directions mean nothing, distances do.
            axis.set_aspect('equal', adjustable='box')
            axis.set_xticks([])
            axis.set_yticks([])
        by_layer.set_title('by layer')
        by_kind.set_title('by what they mostly do')
        return figure


def points_by_row(
    rows: Sequence[str],
    points: Mapping[str, tuple[np.ndarray, np.ndarray | None, np.ndarray | None]],
    *,
    label: str,
) -> Figure:
    """Draw values in rows, several of each row in their own colours, with intervals.

    Args:
      rows: The names of the R rows.
      points: By the title in the legend, the values [R] and the lower and upper ends [R] of their
        intervals; None where they have no intervals. NaN draws nothing.
      label: The label of the horizontal axis, with the unit.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.24 * len(rows) + 1.2), layout='constrained')
        axis = figure.subplots()
        heights = np.arange(len(rows))
        drawn = []
        for index, (values, low, high) in enumerate(points.values()):
            colour = COLOURS[index % len(COLOURS)]
            if low is not None and high is not None:
                axis.hlines(heights, low, high, color=colour, linewidth=1)
            marker = _MARKERS[index % len(_MARKERS)]
            drawn.append(axis.scatter(values, heights, s=16, color=colour, marker=marker, zorder=3))
        axis.set_yticks(heights, rows, fontsize=8)
        axis.invert_yaxis()
        axis.set(xlabel=label, xlim=(0, None))
        axis.grid(axis='x', alpha=0.3)
        # Named here: Matplotlib leaves out points whose label begins with an underscore.
        figure.legend(drawn, list(points), loc='outside upper center', ncols=len(points),
                      frameon=False, fontsize=7)  # fmt: skip
        return figure
