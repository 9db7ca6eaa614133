"""Heat maps over layers, heads, pairs of heads and features."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from bert_secrets_jax.plots.figure import (
    COLOURS,
    INK,
    MAPS,
    Figure,
    figure_of,
    layers_down_heads_across,
    styled,
    without_lines,
)
from bert_secrets_jax.plots.numbers import Numbers, Panel

# Without the head, the score falls where the colour is red, rises where it is blue, and stays
# where it is white.
_EFFECTS = 'RdBu'


@styled
def head_grids(
    grids: Mapping[str, np.ndarray],
    *,
    label: str,
    limits: tuple[float, float] | None = None,
    differences: bool = False,
    marked: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Draw heat maps [L, N] side by side on one colour scale (Figures 3, 5, 6 and 8).

    Args:
      grids: The values [L, N] of each heat map, by title.
      label: The label of the colour bar, with the unit.
      limits: The ends of the colour scale; None makes it reach from 0 to the greatest value.
      differences: Whether the colour scale is centred on 0, with red below and blue above.
      marked: Booleans [L, N] that mark heads by a circle, by title; None marks none.
    """
    marked, values = marked or {}, list(grids.values())
    layers, heads = values[0].shape
    lowest, highest = limits or (0, max(np.nanmax(grid) for grid in values))
    if differences:
        highest = max(np.nanmax(np.abs(grid)) for grid in values) or 1
        lowest = -highest
    columns = 4 if len(grids) in (4, 7, 8) else min(len(grids), 3)
    rows = -(-len(grids) // columns)
    # As wide as the heads, and as the titles, which have a dozen letters to the inch.
    width = columns * max(0.24 * heads + 0.7, max(map(len, grids)) / 12) + 0.9
    shape = {'rows': rows, 'columns': columns, 'used': len(grids)}
    figure, axes = figure_of(width, rows * (0.24 * layers + 0.9), **shape, grid=None)
    for axis, (title, grid) in zip(axes, grids.items(), strict=False):
        colours = _EFFECTS if differences else MAPS
        image = axis.imshow(grid, cmap=colours, vmin=lowest, vmax=highest)
        if title in marked:
            down, across = np.nonzero(marked[title])
            axis.scatter(across, down, s=16, facecolor='none', edgecolor='#0072ff', linewidth=0.8)
        axis.set_title(title)
        layers_down_heads_across(axis, layers, heads)
    figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
    panels = [
        Panel(title, {'': grid}, {'circles': np.asarray(marked.get(title, ()), int)})
        for title, grid in grids.items()
    ]
    scale = {'low': float(lowest), 'high': float(highest), 'centred': differences}
    figure.numbers = Numbers('heads', label, panels, scale)
    return figure


@styled
def effect_grid(
    effects: np.ndarray,
    *,
    label: str,
    real: np.ndarray | None = None,
    likely: np.ndarray | None = None,
    reach: float = 0.0,
    extremes: Mapping[str, tuple[np.ndarray, float, float]] | None = None,
) -> Figure:
    """Draw the effect of disabling each head, on a colour scale centred on 0 (Figure 8).

    Args:
      effects: The score without each head minus the score with all heads [L, N].
      label: The label of the colour bar, with the unit.
      real, likely: Booleans [L, N] that mark heads by a filled and an open circle, if any.
      reach: The least end of the colours, such as the smallest effect that can be found.
      extremes: The effects in each seed [S] and the ends of the interval of their mean, by the name
        of the head: drawn beside the grid, from top to bottom. None draws the grid alone.
    """
    layers, heads = effects.shape
    width, height = 0.24 * heads + 1.7, 0.24 * layers
    if extremes is None:
        figure, axes = figure_of(width, height + 0.9, grid=None)
    else:
        size = width + 3.3, max(height, 0.2 * len(extremes)) + 0.9
        figure, axes = figure_of(*size, columns=2, grid=None, width_ratios=(width, 3.3))
    axis = axes[0]
    image, highest = _effects(axis, effects, reach)
    layers_down_heads_across(axis, layers, heads)
    circles = np.zeros(effects.shape, int)
    for chosen, face, kind in ((likely, 'none', 1), (real, INK, 2)):
        if chosen is not None:
            rows, columns = np.nonzero(chosen)
            axis.scatter(columns, rows, s=14, facecolor=face, edgecolor=INK, linewidth=0.7)
            circles[rows, columns] = kind
    figure.colorbar(image, ax=axis, label=label, pad=0.01)
    panel = Panel(label[:1].upper() + label[1:], {'': effects}, {'circles': circles})
    scale = {'low': -highest, 'high': highest, 'centred': True}
    figure.numbers = Numbers('heads', label, [panel], scale)
    if extremes is not None:
        beside = axes[1]
        beside.axvline(0, color='0.5', linewidth=0.8)
        for row, (in_each, low, high) in enumerate(extremes.values()):
            beside.hlines(row, low, high, color=COLOURS[0], linewidth=1.2)
            beside.plot(in_each, np.full(len(in_each), row), 'o', color='0.3', markersize=2.5)
            beside.plot(np.mean(in_each), row, 'D', color=COLOURS[0], markersize=4)
        beside.set_yticks(range(len(extremes)), list(extremes), fontsize=7)
        beside.set(xlabel=label)
        beside.invert_yaxis()
        beside.grid(axis='x', alpha=0.3)
    return figure


@styled
def interaction_matrix(
    matrices: Mapping[str, np.ndarray],
    names: Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    label: str,
) -> Figure:
    """Draw matrices [heads, heads] of interactions, each on its own scale centred on 0.

    Args:
      matrices: The interactions of each pair of heads, by title (with the unit). NaN stays empty.
      names: The names of the heads, in order. If there are many, only some are shown.
      columns: The names of what stands across, such as tokens of another text; None if the same.
      label: The label of the colour bars.
    """
    side = min(max(0.16 * len(names), 2.2), 6)
    size = len(matrices) * (side + 0.7) + 1, side + 0.6
    figure, axes = figure_of(*size, columns=len(matrices), grid=None)
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        image, _ = _effects(axis, matrix)
        axis.set_title(title)
        axis.set_xticks(*_ticks(names if columns is None else columns), rotation=90, fontsize=5)
        axis.set_yticks(*_ticks(names), fontsize=5)
        figure.colorbar(image, ax=axis, label=label, shrink=0.8, pad=0.01)
    return figure


@styled
def feature_matrices(
    matrices: Mapping[str, np.ndarray],
    columns: Sequence[str],
    *,
    label: str,
    layer: int,
    highest: float | None = None,
) -> Figure:
    """Draw matrices [N, F] with heads down and features across, on one colour scale (Figure 7).

    Args:
      matrices: The values [N, F] of each matrix, by title. NaN stays empty.
      columns: The names of the features [F].
      label: The label of the colour bar.
      layer: The layer of the heads, from 0.
      highest: The upper end of the colour scale; None takes the greatest value.
    """
    heads = len(next(iter(matrices.values())))
    size = len(matrices) * (0.28 * len(columns) + 0.7) + 0.9, 0.24 * heads + 1.3
    figure, axes = figure_of(*size, columns=len(matrices), grid=None)
    highest = highest or float(max(np.nanmax(matrix) for matrix in matrices.values()))
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        image = axis.imshow(matrix, cmap=MAPS, vmin=0, vmax=highest)
        axis.set(title=title, ylabel='head')
        axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
        axis.set_yticks(range(heads), map(str, range(1, heads + 1)), fontsize=6)
        without_lines(axis)
    figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
    panels = [
        Panel(title, dict(zip(columns, matrix.T, strict=True)))
        for title, matrix in matrices.items()
    ]
    scale = {'low': 0.0, 'high': highest, 'centred': False, 'layer': layer}
    figure.numbers = Numbers('features', label, panels, scale)
    return figure


def _ticks(names: Sequence[str]) -> tuple[range, list[str]]:
    ticks = range(0, len(names), -(-len(names) // 40))
    return ticks, [names[tick] for tick in ticks]


def _effects(axis: Axes, values: np.ndarray, reach: float = 0.0) -> tuple[AxesImage, float]:
    """Draw a heat map on a scale centred on 0; a grid without any effect is white."""
    highest = float(np.nanmax(np.abs(values), initial=reach)) or 1.0
    image = axis.imshow(values, cmap=_EFFECTS, vmin=-highest, vmax=highest)
    without_lines(axis)
    return image, highest
