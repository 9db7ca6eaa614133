"""Heat maps over layers, heads and features, the five classes of maps, and attention maps."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import matplotlib
import matplotlib.colors
import matplotlib.patches
import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.plots.figure import (
    COLOURS,
    INK,
    MAPS,
    Arrays,
    Figure,
    Panel,
    count_ticks,
    figure_of,
    framed,
    layers_down_heads_across,
    name_rows,
    styled,
    without_lines,
)
from bert_secrets_jax.plots.kinds import look


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
    panels = (
        Panel(title, {'': grid}, {'circles': np.asarray(marked.get(title, ()), int)})
        for title, grid in grids.items()
    )
    return figure.numbered('heads', label, panels, low=float(lowest), high=float(highest))


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
    widths, rows = [0.24 * heads + 1.7], 0.24 * layers
    if extremes is not None:
        widths, rows = [*widths, 3.3], max(rows, 0.2 * len(extremes))
    how = {'grid': None, 'width_ratios': widths}
    figure, axes = figure_of(sum(widths) / len(widths), rows + 0.9, [''] * len(widths), **how)
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
    panel = Panel(label[:1].upper() + label[1:], {'': effects}, {'circles': circles})
    return figure.numbered('heads', label, [panel], low=red, high=-red)


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
    panels = (
        Panel(title, dict(zip(columns, matrix.T, strict=True)))
        for title, matrix in matrices.items()
    )
    return figure.numbered('features', label, panels, low=0.0, high=highest, layer=layer)


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


@styled
def map_grid(attentions: np.ndarray) -> Figure:
    """Draw the maps [L, N, T, T] of all heads on one example: layers down, heads across."""
    layers, heads, length = attentions.shape[:3]
    # One image of all maps with a line between them: an axis for each takes ten times as long.
    side = length + 1
    joined = np.full((layers, side, heads, side), np.nan, np.float32)
    joined[:, 1:, :, 1:] = np.moveaxis(attentions, 1, 2)
    joined = joined.reshape(layers * side, heads * side)
    joined = np.pad(joined, ((0, 1), (0, 1)), constant_values=np.nan)
    colours = matplotlib.colormaps[MAPS].with_extremes(bad='0.7')
    figure = Figure(figsize=(0.75 * heads + 0.5, 0.75 * layers + 0.5))
    axis = figure.add_axes((0.05, 0.005, 0.945, 0.935))
    axis.imshow(joined, cmap=colours, vmin=0, vmax=1, aspect='auto')
    for ticks, letter, count in ((axis.set_xticks, 'H', heads), (axis.set_yticks, 'L', layers)):
        middles = np.arange(count) * side + side / 2
        ticks(middles, [f'{letter}{number + 1}' for number in range(count)], fontsize=7)
    axis.tick_params(length=0, labeltop=True, labelbottom=False, pad=2)
    axis.spines[:].set(visible=False)
    return figure


@styled
def head_maps(
    maps: Arrays,
    tokens: Sequence[str],
    *,
    sources: Collection[int] = (),
    targets: Collection[int] = (),
) -> Figure:
    """Draw large maps [T, T], by title, with their tokens: queries down, keys across (Figure 4).

    Tokens where links begin (`sources`) are bold and blue, those where they end (`targets`) red.

    Raises:
      ValueError: A map has another shape.
    """
    for title, values in maps.items():
        check_shape(f'The map {title!r}', values, queries=len(tokens), keys=len(tokens))
    columns = min(len(maps), 3)
    side = min(max(0.11 * len(tokens), 1.2), 7) + 0.7
    figure, axes = figure_of(
        side, side + 0.1, maps, across=columns, beside=0.9, title_size=7, grid=None
    )
    for axis, values in zip(axes, maps.values(), strict=True):
        image = axis.imshow(values, cmap=MAPS, vmin=0, vmax=1)
        framed(axis)
        axis.tick_params(length=0)
    # All maps have the same tokens: below the last of each column, and at the left.
    sides = [(axis.xaxis, 90) for axis in axes[-columns:]]
    sides += [(axis.yaxis, 0) for axis in axes[::columns]]
    # More tokens than these could not be read.
    for side, rotation in sides if len(tokens) <= 64 else ():
        side.set_ticks(range(len(tokens)), tokens, rotation=rotation, fontsize=6)
        labels = side.get_ticklabels()
        for positions, colour in ((sources, COLOURS[0]), (targets, COLOURS[1])):
            for position in positions:
                labels[position].set(color=colour, fontweight='bold')
    figure.colorbar(image, ax=axes, label='attention', shrink=0.8, pad=0.01)
    return figure


_NARROW = {'fontsize': 8, 'columnspacing': 1, 'handlelength': 1}


@styled
def share_bars(shares: Arrays, fills: Mapping[str, str], *, label: str) -> Figure:
    """Draw shares [C], which sum to 1, as stacked bars by title, in percent.

    Args:
      shares: The shares of the C parts, by title.
      fills: The colour of each part, by its name. Black has to be readable on it.
    """
    figure, (axis,) = figure_of(6.4, 0.42 * len(shares) + 1.1, grid=None, xlabel=label)
    percent = 100 * np.array([*shares.values()])
    starts, entries = percent.cumsum(axis=1) - percent, {}
    for part, (name, colour) in enumerate(fills.items()):
        how = {'left': starts[:, part], 'color': colour, 'height': 0.7}
        entries[name] = axis.barh(range(len(shares)), percent[:, part], **how)
        told = [f'{each:.0f}' if each >= 4 else '' for each in percent[:, part]]
        axis.bar_label(entries[name], told, label_type='center', color=INK, fontsize=8)
    name_rows(axis, [*shares], size=9)
    axis.set_xlim(0, 100)
    axis.spines['left'].set_visible(False)
    axis.tick_params(axis='y', length=0)
    figure.named(entries, 'upper center', ncols=len(fills), **_NARROW)
    return figure


def class_shares(shares: Arrays, classes: Sequence[str]) -> Figure:
    """Draw shares of classes [C], which sum to 1, as stacked bars by title (Figure 2)."""
    fills = {name: look(name).fill for name in classes}
    return share_bars(shares, fills, label='percent of all maps')


@styled
def class_grids(shares: Arrays, classes: Sequence[str]) -> Figure:
    """Draw the most frequent class of every head; paler means less frequent.

    Args:
      shares: The share of each head's maps in each class [L, N, C], by title.
      classes: The names of the classes.
    """
    layers, heads = next(iter(shares.values())).shape[:2]
    figure, axes = figure_of(0.24 * heads + 0.8, 0.24 * layers + 1.2, shares, grid=None)
    fills = {name: look(name).fill for name in classes}
    colours = matplotlib.colors.to_rgba_array([*fills.values()])[:, :3]
    for axis, grid in zip(axes, shares.values(), strict=True):
        # The greatest of five classes holds a fifth at least; its colour can still be told.
        strength = np.interp(grid.max(axis=-1), (0.2, 1), (0.35, 1))[..., None]
        axis.imshow(1 - strength * (1 - colours[grid.argmax(axis=-1)]))
        layers_down_heads_across(axis, layers, heads)
    entries = {name: matplotlib.patches.Patch(color=colour) for name, colour in fills.items()}
    columns = min(len(classes), int(figure.get_figwidth()))
    figure.named(entries, 'upper center', ncols=columns, **_NARROW)
    panels = (
        Panel(title, dict(zip(classes, np.moveaxis(each, -1, 0), strict=True)))
        for title, each in shares.items()
    )
    return figure.numbered('classes', 'share', panels)


@styled
def class_examples(panels: Mapping[str, Sequence[tuple[str, np.ndarray]]]) -> Figure:
    """Draw examples of maps, one column per class, every map on its own scale (Figure 1).

    Args:
      panels: The maps of each class by its name, each a title and values [T, T]; may be empty.
    """
    rows, columns = max(1, *map(len, panels.values())), len(panels)
    titles = [*panels, *[''] * (rows - 1) * columns]
    figure, axes = figure_of(1.7, 1.75, titles, across=columns, below=0.3, grid=None)
    for axis in axes:
        axis.set_axis_off()
    for column, maps in enumerate(panels.values()):
        for axis, (title, values) in zip(axes[column::columns], maps, strict=False):
            axis.set_axis_on()
            axis.imshow(values, cmap=MAPS, vmin=0)
            framed(axis)
            axis.set_xlabel(title, fontsize=7)
        if not maps:
            axes[column].text(0.5, 0.5, 'none', ha='center', va='center', color='0.5')
    return figure
