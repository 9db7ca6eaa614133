"""Points: heads on a plane, and values with their intervals in rows."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, MARKERS, STYLE, Figure
from bert_secrets_jax.plots.numbers import Numbers, Panel


def planes(positions: np.ndarray, *, kinds: Sequence[str], order: Sequence[str]) -> Figure:
    """Draw the heads twice, coloured by layer and by kind (Clark et al. 2019, Figure 6).

    Args:
      positions: The places of the heads [L, N, 2].
      kinds: The kind of each of the L N heads, in the order of layers.
      order: All kinds, in the order of the legend; the last one is drawn in grey.
    """
    shape = positions.shape[:2]
    layers = np.repeat(np.arange(1, shape[0] + 1), shape[1])
    across, up = np.moveaxis(positions, -1, 0)
    positions = positions.reshape(-1, 2)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.6, 3.7), layout='constrained')
        by_layer, by_kind = figure.subplots(1, 2, sharex=True, sharey=True)
        # The ends of the colours are nearly those of a dark and of a light page; the edge is not.
        points = by_layer.scatter(
            *positions.T, c=layers, cmap='viridis', s=18, edgecolors='0.5', linewidths=0.8
        )
        bar = figure.colorbar(points, ax=by_layer, label='layer', shrink=0.9, pad=0.01)
        bar.set_ticks(np.unique(layers))
        for index, kind in enumerate(order):
            chosen = [row for row, each in enumerate(kinds) if each == kind]
            if chosen:
                by_kind.scatter(
                    *positions[chosen].T,
                    s=16,
                    marker=MARKERS[index % len(MARKERS)],
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
        title = 'what they mostly do'
        words = np.array(kinds, object).reshape(shape)
        panel = Panel(title, {'': up}, {'across': across, 'kinds': words})
        figure.numbers = Numbers('points', '', [panel])
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
            marker = MARKERS[index % len(MARKERS)]
            drawn.append(axis.scatter(values, heights, s=16, color=colour, marker=marker, zorder=3))
        axis.set_yticks(heights, rows, fontsize=8)
        axis.invert_yaxis()
        axis.set(xlabel=label, xlim=(0, None))
        axis.grid(axis='x', alpha=0.3)
        # Named here: Matplotlib leaves out points whose label begins with an underscore.
        figure.legend(drawn, list(points), loc='outside upper center', ncols=len(points),
                      frameon=False, fontsize=7)  # fmt: skip
        return figure


def scores_by_heads(
    points: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]],
    *,
    level: float,
    level_name: str,
    most: int,
    label: str,
) -> Figure:
    """Draw scores against the number of heads that a model has, with intervals.

    Args:
      points: By the title in the legend, the numbers of heads, the scores, and the lower and upper
        ends of their intervals [K each]. NaN draws nothing.
      level, level_name: The score of the model with all heads, a dashed line, and its name.
      most: The number of all heads.
      label: The label of the vertical axis.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.0), layout='constrained')
        axis = figure.subplots()
        entries = [(axis.axhline(level, color='0.4', linestyle='--', linewidth=0.9), level_name)]
        for index, (title, (heads, scores, low, high)) in enumerate(points.items()):
            colour = COLOURS[index % len(COLOURS)]
            axis.vlines(heads, low, high, color=colour, linewidth=1, alpha=0.6)
            marker = MARKERS[index % len(MARKERS)]
            drawn = axis.scatter(heads, scores, s=16, color=colour, marker=marker, zorder=3)
            entries.append((drawn, title))
        axis.set(xlabel='heads', xlim=(-0.02 * most, 1.02 * most))
        # Above and not beside the axis, which long names of metrics exceed.
        axis.set_title(label, loc='left', fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(axis='y', alpha=0.3)
        # Named here: Matplotlib leaves out points whose label begins with an underscore.
        figure.legend(*zip(*entries, strict=True), loc='outside lower right', ncols=3,
                      frameon=False, fontsize=7)  # fmt: skip
        return figure


def head_scatter(
    panels: Mapping[str, np.ndarray], values: np.ndarray, *, label: str, across_label: str
) -> Figure:
    """Draw each head as a point, one panel per title, coloured by layer.

    Args:
      panels: The values on the horizontal axis of each panel [L, N], by its title.
      values: The values on the vertical axis of all panels [L, N].
      label: The label of the vertical axis, with the unit.
      across_label: The name of the horizontal axes, where a page tells the numbers of a head.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.3 * len(panels) + 0.9, 2.7), layout='constrained')
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        layers = np.repeat(np.arange(1, len(values) + 1), values.shape[1])
        for axis, (title, each) in zip(axes, panels.items(), strict=True):
            points = axis.scatter(each.ravel(), values.ravel(), c=layers, cmap='viridis', s=12)
            axis.axhline(0, color='0.5', linewidth=0.8, zorder=0)
            axis.set_title(title, fontsize=8)
            axis.tick_params(labelsize=7)
            # More would overlap where numbers are small, and long.
            axis.locator_params(axis='x', nbins=4)
            axis.grid(alpha=0.3)
        axes[0].set_ylabel(label)
        bar = figure.colorbar(points, ax=axes, label='layer', pad=0.01)
        bar.set_ticks(np.unique(layers))
        points = [
            Panel(title.replace('\n', ' '), {'': values}, {'across': each})
            for title, each in panels.items()
        ]
        figure.numbers = Numbers('points', label, points, {'across': across_label})
        return figure
