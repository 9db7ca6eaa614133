"""Shares as bars, and the five classes of maps (section 4.1): their heads and examples."""

from collections.abc import Mapping, Sequence

import matplotlib.colors
import matplotlib.patches
import numpy as np

from bert_secrets_jax.plots.figure import (
    INK,
    MAPS,
    Figure,
    figure_of,
    framed,
    layers_down_heads_across,
    name_rows,
    styled,
)
from bert_secrets_jax.plots.kinds import look
from bert_secrets_jax.plots.numbers import Arrays, Numbers, Panel

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
    panels = [
        Panel(title, dict(zip(classes, np.moveaxis(each, -1, 0), strict=True)))
        for title, each in shares.items()
    ]
    figure.numbers = Numbers('classes', 'share', panels)
    return figure


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
