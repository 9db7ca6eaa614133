"""Heat maps over layers, heads, pairs of heads and features."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, INK, STYLE, Figure
from bert_secrets_jax.plots.numbers import Numbers, Panel

_HEADS = 'viridis'
# Without the head, the score falls where the colour is red, rises where it is blue, and stays
# where it is white.
_EFFECTS = 'RdBu'


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
    marked = marked or {}
    with matplotlib.rc_context(STYLE):
        values = list(grids.values())
        layers, heads = values[0].shape
        lowest, highest = limits or (0, max(np.nanmax(grid) for grid in values))
        if differences:
            highest = max(np.nanmax(np.abs(grid)) for grid in values) or 1
            lowest = -highest
        columns = 4 if len(grids) in (4, 7, 8) else min(len(grids), 3)
        rows = -(-len(grids) // columns)
        figure = Figure(
            figsize=(
                # As wide as the heads, and as the titles, which have a dozen letters to the inch.
                columns * max(0.24 * heads + 0.7, max(map(len, grids)) / 12) + 0.9,
                rows * (0.24 * layers + 0.9),
            ),
            layout='constrained',
        )
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, (title, grid) in zip(axes, grids.items(), strict=False):
            colours = _EFFECTS if differences else _HEADS
            image = axis.imshow(grid, cmap=colours, vmin=lowest, vmax=highest)
            if title in marked:
                down, across = np.nonzero(marked[title])
                axis.scatter(across, down, s=16, facecolor='none', edgecolor='red', linewidth=0.8)
            axis.set(title=title, xlabel='head', ylabel='layer')
            axis.set_xticks(range(heads), range(1, heads + 1), fontsize=6)
            axis.set_yticks(range(layers), range(1, layers + 1), fontsize=6)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        for axis in axes[len(grids) :]:
            axis.set_axis_off()
        figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
        panels = [
            Panel(title, {'': grid}, {'circles': np.asarray(marked.get(title, ()), int)})
            for title, grid in grids.items()
        ]
        scale = {'low': float(lowest), 'high': float(highest), 'centred': differences}
        figure.numbers = Numbers('heads', label, panels, scale)
        return figure


def effect_grid(
    effects: np.ndarray,
    *,
    label: str,
    real: np.ndarray | None = None,
    likely: np.ndarray | None = None,
    ylabel: str = 'layer',
) -> Figure:
    """Draw the effect of disabling each head, on a colour scale centred on 0 (Figure 8).

    Args:
      effects: The score without each head minus the score with all heads [L, N].
      label: The label of the colour bar, with the unit.
      real, likely: Booleans [L, N] that mark heads by a filled and an open circle, if any.
      ylabel: The label of the vertical axis.
    """
    with matplotlib.rc_context(STYLE):
        layers, heads = effects.shape
        figure = Figure(figsize=(0.24 * heads + 1.7, 0.24 * layers + 0.9), layout='constrained')
        axis = figure.subplots()
        image = _heads_and_marks(axis, effects, real, likely, ylabel)
        figure.colorbar(image, ax=axis, label=label, pad=0.01)
        figure.numbers = _effects_as_numbers(effects, label, real, likely)
        return figure


def effects_over_seeds(
    effects: np.ndarray,
    extremes: Mapping[str, tuple[np.ndarray, float, float]],
    *,
    label: str,
    real: np.ndarray | None = None,
    likely: np.ndarray | None = None,
) -> Figure:
    """Draw mean effects over seeds as `effect_grid` does, and beside it the effects in each seed.

    Args:
      effects: The mean effects of the heads [L, N].
      extremes: The effects in each seed [S] and the ends of the interval of their mean, by the name
        of the head, in the order from top to bottom.
      label: The label of the colour bar and of the second panel, with the unit.
      real, likely: Booleans [L, N] that mark heads by a filled and an open circle, if any.
    """
    with matplotlib.rc_context(STYLE):
        layers, heads = effects.shape
        figure = Figure(
            figsize=(0.24 * heads + 5.0, max(0.24 * layers, 0.2 * len(extremes)) + 0.9),
            layout='constrained',
        )
        axis, beside = figure.subplots(1, 2, width_ratios=(0.24 * heads + 1.7, 3.3))
        image = _heads_and_marks(axis, effects, real, likely)
        figure.colorbar(image, ax=axis, label=label, pad=0.01)
        beside.axvline(0, color='0.5', linewidth=0.8)
        for row, (in_each, low, high) in enumerate(extremes.values()):
            beside.hlines(row, low, high, color=COLOURS[0], linewidth=1.2)
            beside.plot(in_each, np.full(len(in_each), row), 'o', color='0.3', markersize=2.5)
            beside.plot(np.mean(in_each), row, 'D', color=COLOURS[0], markersize=4)
        beside.set_yticks(range(len(extremes)), list(extremes), fontsize=7)
        beside.set(xlabel=label)
        beside.invert_yaxis()
        beside.grid(axis='x', alpha=0.3)
        figure.numbers = _effects_as_numbers(effects, label, real, likely)
        return figure


def _effects_as_numbers(
    effects: np.ndarray, label: str, real: np.ndarray | None, likely: np.ndarray | None
) -> Numbers:
    """Return the grid of effects, with the circles that `_heads_and_marks` draws on it."""
    circles = np.zeros(effects.shape, int)
    for chosen, kind in ((likely, 1), (real, 2)):
        if chosen is not None:
            circles[np.asarray(chosen, bool)] = kind
    highest = float(np.nanmax(np.abs(effects), initial=0)) or 1.0
    name = label[:1].upper() + label[1:]
    panel = Panel(name, {'': effects}, {'circles': circles})
    scale = {'low': -highest, 'high': highest, 'centred': True}
    return Numbers('heads', label, [panel], scale)


def _heads_and_marks(axis, effects, real, likely, ylabel: str = 'layer'):
    """Draw effects [L, N] on an axis, with filled and open circles."""
    layers, heads = effects.shape
    image = _effects(axis, effects)
    axis.set(xlabel='head', ylabel=ylabel)
    axis.set_xticks(range(heads), range(1, heads + 1), fontsize=6)
    axis.set_yticks(range(layers), range(1, layers + 1), fontsize=6)
    for chosen, face in ((real, INK), (likely, 'none')):
        if chosen is not None:
            rows, columns = np.nonzero(chosen)
            axis.scatter(columns, rows, s=14, facecolor=face, edgecolor=INK, linewidth=0.7)
    return image


def interaction_matrix(
    matrices: Mapping[str, np.ndarray], names: Sequence[str], *, label: str
) -> Figure:
    """Draw matrices [heads, heads] of interactions, each on its own scale centred on 0.

    Args:
      matrices: The interactions of each pair of heads, by title (with the unit). NaN stays empty.
      names: The names of the heads, in order. If there are many, only some are shown.
      label: The label of the colour bars.
    """
    with matplotlib.rc_context(STYLE):
        side = min(max(0.16 * len(names), 2.2), 6)
        figure = Figure(
            figsize=(len(matrices) * (side + 0.7) + 1, side + 0.6), layout='constrained'
        )
        axes = figure.subplots(1, len(matrices), squeeze=False)[0]
        step = -(-len(names) // 40)
        ticks = range(0, len(names), step)
        for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
            image = _effects(axis, matrix)
            axis.set_title(title)
            axis.set_xticks(ticks, [names[tick] for tick in ticks], rotation=90, fontsize=5)
            axis.set_yticks(ticks, [names[tick] for tick in ticks], fontsize=5)
            figure.colorbar(image, ax=axis, label=label, shrink=0.8, pad=0.01)
        return figure


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
    with matplotlib.rc_context(STYLE):
        heads = len(next(iter(matrices.values())))
        figure = Figure(
            figsize=(len(matrices) * (0.28 * len(columns) + 0.7) + 0.9, 0.24 * heads + 1.3),
            layout='constrained',
        )
        axes = figure.subplots(1, len(matrices), squeeze=False)[0]
        highest = highest or float(max(np.nanmax(matrix) for matrix in matrices.values()))
        for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
            image = axis.imshow(matrix, cmap=_HEADS, vmin=0, vmax=highest)
            axis.set(title=title, ylabel='head')
            axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
            axis.set_yticks(range(heads), range(1, heads + 1), fontsize=6)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
        panels = [
            Panel(title, dict(zip(columns, matrix.T, strict=True)))
            for title, matrix in matrices.items()
        ]
        scale = {'low': 0.0, 'high': highest, 'centred': False, 'layer': layer}
        figure.numbers = Numbers('features', label, panels, scale)
        return figure


def _effects(axis, values: np.ndarray):
    """Draw a heat map on a scale centred on 0; a grid without any effect is white."""
    highest = np.nanmax(np.abs(values), initial=0) or 1
    image = axis.imshow(values, cmap=_EFFECTS, vmin=-highest, vmax=highest)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image
