"""Points: heads on a plane, and values with their intervals in rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection

from bert_secrets_jax.plots.figure import (
    MAPS,
    Figure,
    colour_of,
    dashed,
    figure_of,
    name_rows,
    style_of,
    styled,
)
from bert_secrets_jax.plots.kinds import look
from bert_secrets_jax.plots.numbers import Arrays, Numbers, Panel


@styled
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
    titles = ['by layer', 'by what they mostly do']
    figure, axes = figure_of(3.8, 3.7, titles, sharex=True, sharey=True, grid=None)
    by_layer, by_kind = axes
    # The ends of the colours are nearly those of a dark and of a light page; the edge is not.
    points = by_layer.scatter(
        *positions.T, c=layers, cmap=MAPS, s=18, edgecolors='0.5', linewidths=0.8
    )
    _layer_colours(figure, points, by_layer, shrink=0.9)
    entries = {}
    for index, kind in enumerate(order):
        chosen = positions[[each == kind for each in kinds]]
        if len(chosen):
            colour = '0.7' if kind == order[-1] else look(kind).fill
            style = style_of(index) | {'color': colour, 'edgecolors': '0.4'}
            entries[f'{kind} ({len(chosen)})'] = by_kind.scatter(*chosen.T, s=16, **style)
    # Below, where no head is.
    figure.named(entries, 'lower center', ncols=4)
    for axis in axes:
        # Directions mean nothing, distances do.
        axis.set_aspect('equal', adjustable='box')
        axis.set(xticks=[], yticks=[])
    words = np.array(kinds, object).reshape(shape)
    panel = Panel('what they mostly do', {'': up}, {'across': across, 'kinds': words})
    figure.numbers = Numbers('points', '', [panel])
    return figure


@styled
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
    """
    figure, (axis,) = figure_of(6.4, 0.24 * len(rows) + 1.2, grid='x', xlabel=label)
    heights, entries = np.arange(len(rows)), {}
    for index, (title, (values, low, high)) in enumerate(points.items()):
        if low is not None and high is not None:
            axis.hlines(heights, low, high, color=colour_of(index), linewidth=1)
        entries[title] = axis.scatter(values, heights, s=16, zorder=3, **style_of(index))
    name_rows(axis, rows)
    axis.set_xlim(0, None)
    figure.named(entries, 'upper center', ncols=len(points))
    return figure


def _layer_colours(figure: Figure, points: PathCollection, axes: Any, **how: Any) -> None:
    """Explain the colours of points by a bar with the number of each layer."""
    bar = figure.colorbar(points, ax=axes, label='layer', pad=0.01, **how)
    bar.set_ticks(np.unique(np.asarray(points.get_array())).tolist())


@styled
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
    """
    figure, (axis,) = figure_of(4.8, 3.0, xlabel='heads')
    entries: dict[str, Artist] = {level_name: dashed(axis, level)}
    for index, (title, (heads, scores, low, high)) in enumerate(points.items()):
        axis.vlines(heads, low, high, color=colour_of(index), linewidth=1, alpha=0.6)
        entries[title] = axis.scatter(heads, scores, s=16, zorder=3, **style_of(index))
    axis.set_xlim(-0.02 * most, 1.02 * most)
    # Above and not beside the axis, which long names of metrics exceed.
    axis.set_title(label, loc='left', fontsize=8)
    axis.xaxis.get_major_locator().set_params(integer=True)  # pyright: ignore[reportCallIssue]
    figure.named(entries, 'lower right', ncols=3)
    return figure


@styled
def head_scatter(panels: Arrays, values: np.ndarray, *, label: str, across_label: str) -> Figure:
    """Draw each head as a point, one panel per title, coloured by layer.

    Args:
      panels: The values on the horizontal axis of each panel [L, N], by its title.
      values: The values on the vertical axis of all panels [L, N].
      across_label: The name of the horizontal axes, also where a page tells numbers of a head.
    """
    figure, axes = figure_of(
        2.3, 2.7, panels, beside=0.9, title_size=8, sharey=True, grid='both', ylabel=label
    )
    layers = np.repeat(np.arange(1, len(values) + 1), values.shape[1])
    for axis, each in zip(axes, panels.values(), strict=True):
        points = axis.scatter(each.ravel(), values.ravel(), c=layers, cmap=MAPS, s=12)
        axis.axhline(0, color='0.5', linewidth=0.8, zorder=0)
        axis.set_xlabel(across_label, fontsize=8)
        axis.tick_params(labelsize=7)
        # More would overlap where numbers are small, and long.
        axis.locator_params(axis='x', nbins=4)
    _layer_colours(figure, points, axes)
    points = [
        Panel(title.replace('\n', ' '), {'': values}, {'across': each})
        for title, each in panels.items()
    ]
    figure.numbers = Numbers('points', label, points, {'across': across_label})
    return figure
