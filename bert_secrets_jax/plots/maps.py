"""Attention maps of one text."""

from collections.abc import Collection, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.checks import check_shape
from bert_secrets_jax.plots.figure import COLOURS, MAPS, Figure, figure_of, framed, styled
from bert_secrets_jax.plots.numbers import Arrays


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
