"""Heat maps over layers, heads, pairs of heads and features."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from bert_secrets_jax.plots.figure import (
    COLOURS,
    INK,
    MAPS,
    Figure,
    count_ticks,
    figure_of,
    layers_down_heads_across,
    name_rows,
    styled,
    without_lines,
)
from bert_secrets_jax.plots.numbers import Arrays, Numbers, Panel


@styled
def head_grids(
    grids: Arrays,
    *,
    label: str,
    limits: tuple[float, float] | None = None,
    differences: bool = False,
    marked: Arrays | None = None,
) -> Figure:
    """Draw heat maps [L, N] side by side on one colour scale (Figures 3, 5, 6 and 8).

    Args:
      grids: The values [L, N] of each heat map, by title.
      label: The label of the colour bar, with the unit.
      limits: The ends of the colour scale; None makes it reach from 0 to the greatest value.
      differences: Whether the colour scale is centred on 0 and begins with red: at the lowest
        value, or at the first of the limits.
      marked: Booleans [L, N] that mark heads by a circle, by title; None marks none.
    """
    marked, values = marked or {}, list(grids.values())
    layers, heads = values[0].shape
    lowest, highest = limits or (0, max(np.nanmax(grid) for grid in values))
    if differences and limits is None:
        highest = float(max(np.nanmax(np.abs(grid)) for grid in values)) or 1.0
        lowest = -highest
    # As wide as the heads, and as the titles, which have a dozen letters to the inch.
    width = max(0.24 * heads + 0.7, max(map(len, grids)) / 12)
    across, height = 4 if len(grids) in (4, 7, 8) else 3, 0.24 * layers + 0.9
    figure, axes = figure_of(width, height, grids, across=across, beside=0.9, grid=None)
    for axis, (title, grid) in zip(axes, grids.items(), strict=True):
        if differences:
            image, _ = _effects(axis, grid, lowest)
        else:
            image = axis.imshow(grid, cmap=MAPS, vmin=lowest, vmax=highest)
        if title in marked:
            down, across = np.nonzero(marked[title])
            axis.scatter(across, down, s=16, facecolor='none', edgecolor='#0072ff', linewidth=0.8)
        layers_down_heads_across(axis, layers, heads)
    figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
    panels = [
        Panel(title, {'': grid}, {'circles': np.asarray(marked.get(title, ()), int)})
        for title, grid in grids.items()
    ]
    scale = {'low': float(lowest), 'high': float(highest)}
    figure.numbers = Numbers('heads', label, panels, scale)
    return figure


@styled
def effect_grid(
    effects: np.ndarray,
    *,
    label: str,
    real: np.ndarray | None = None,
    likely: np.ndarray | None = None,
    red: float | None = None,
    extremes: Mapping[str, tuple[np.ndarray, float, float]] | None = None,
) -> Figure:
    """Draw the effect of disabling each head, on a colour scale centred on 0 (Figure 8).

    Args:
      effects: The score without each head minus the score with all heads [L, N].
      label: The label of the colour bar, with the unit.
      real, likely: Booleans [L, N] that mark heads by a filled and an open circle, if any.
      red: The effect that is fully red, for the worse, such as the loss of score that would be
        found, which is below 0. None takes the greatest effect, below 0.
      extremes: The effects in each seed [S] and the ends of the interval of their mean, by the name
        of the head: drawn beside the grid, from top to bottom. None draws the grid alone.
    """
    layers, heads = effects.shape
    width, height = 0.24 * heads + 1.7, 0.24 * layers
    if extremes is None:
        figure, axes = figure_of(width, height + 0.9, grid=None)
    else:
        height, widths = max(height, 0.2 * len(extremes)) + 0.9, (width, 3.3)
        panels = ['', '']
        figure, axes = figure_of(sum(widths) / 2, height, panels, grid=None, width_ratios=widths)
    axis = axes[0]
    image, red = _effects(axis, effects, red)
    layers_down_heads_across(axis, layers, heads)
    circles = np.zeros(effects.shape, int)
    for chosen, face, kind in ((likely, 'none', 1), (real, INK, 2)):
        if chosen is not None:
            places = np.nonzero(chosen)[::-1]
            axis.scatter(*places, s=14, facecolor=face, edgecolor=INK, linewidth=0.7)
            circles[chosen] = kind
    figure.colorbar(image, ax=axis, label=label, pad=0.01)
    panel = Panel(label[:1].upper() + label[1:], {'': effects}, {'circles': circles})
    figure.numbers = Numbers('heads', label, [panel], {'low': red, 'high': -red})
    if extremes is not None:
        beside = axes[1]
        beside.axvline(0, color='0.5', linewidth=0.8)
        for row, (in_each, low, high) in enumerate(extremes.values()):
            beside.hlines(row, low, high, color=COLOURS[0], linewidth=1.2)
            beside.plot(in_each, np.full(len(in_each), row), 'o', color='0.3', markersize=2.5)
            beside.plot(np.mean(in_each), row, 'D', color=COLOURS[0], markersize=4)
        name_rows(beside, [*extremes], size=7)
        beside.set_xlabel(label)
        beside.grid(axis='x', alpha=0.3)
    return figure


@styled
def interaction_matrix(
    matrices: Arrays,
    names: Sequence[str],
    *,
    columns: Sequence[str] | None = None,
    label: str,
    red: Mapping[str, float] = MappingProxyType({}),
) -> Figure:
    """Draw matrices [heads, heads] of interactions, each on its own scale centred on 0.

    Args:
      matrices: The interactions of each pair of heads, by title (with the unit). NaN stays empty.
      names: The names of the heads, in order. If there are many, only some are shown.
      columns: The names of what stands across, such as tokens of another text; None if the same.
      label: The label of the colour bars.
      red: The effect that is fully red, as in `effect_grid`, by title.
    """
    side = min(max(0.16 * len(names), 2.2), 6)
    figure, axes = figure_of(side + 0.7, side + 0.6, matrices, beside=1.0, grid=None)
    for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
        image, _ = _effects(axis, matrix, red.get(title))
        axis.set_xticks(*_ticks(names if columns is None else columns), rotation=90, fontsize=5)
        axis.set_yticks(*_ticks(names), fontsize=5)
        figure.colorbar(image, ax=axis, label=label, shrink=0.8, pad=0.01)
    return figure


@styled
def feature_matrices(
    matrices: Arrays,
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
    size = 0.28 * len(columns) + 0.7, 0.24 * heads + 1.3
    figure, axes = figure_of(*size, matrices, beside=0.9, grid=None)
    highest = highest or float(max(np.nanmax(matrix) for matrix in matrices.values()))
    for axis, matrix in zip(axes, matrices.values(), strict=True):
        image = axis.imshow(matrix, cmap=MAPS, vmin=0, vmax=highest)
        axis.set_ylabel('head')
        axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
        count_ticks(axis.set_yticks, heads)
        without_lines(axis)
    figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
    panels = [
        Panel(title, dict(zip(columns, matrix.T, strict=True)))
        for title, matrix in matrices.items()
    ]
    scale = {'low': 0.0, 'high': highest, 'layer': layer}
    figure.numbers = Numbers('features', label, panels, scale)
    return figure


def _ticks(names: Sequence[str]) -> tuple[range, list[str]]:
    ticks = range(0, len(names), -(-len(names) // 40))
    return ticks, [names[tick] for tick in ticks]


def _effects(axis: Axes, values: np.ndarray, red: float | None) -> tuple[AxesImage, float]:
    """Draw a heat map that is red where a model is worse, blue where it is better, white at 0."""
    red = red or -float(np.nanmax(np.abs(values))) or -1.0
    # There is less of a score where it is worse, and more of a loss.
    colours = 'RdBu_r' if red > 0 else 'RdBu'
    image = axis.imshow(values, cmap=colours, vmin=-abs(red), vmax=abs(red))
    without_lines(axis)
    return image, red
