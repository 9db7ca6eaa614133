"""Dimensions of hidden states: their parameters by layer, and what they do beside random ones."""

from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, Figure, dashed, figure_of, style_of, styled
from bert_secrets_jax.plots.numbers import Arrays


@styled
def dimensions_by_layer(
    panels: Arrays, marked: Mapping[str, int], *, label: str, bound: float | None = None
) -> Figure:
    """Draw each dimension as a point above its layer, and some of them as lines.

    Args:
      panels: The values [L, D] of each panel, by its title.
      marked: The dimensions that are lines, by their names in the legend.
      bound: Where dashed lines are drawn, above 0 and below; None draws none.
    """
    figure, axes = figure_of(
        3.7, 3.4, panels, beside=0.4, sharey=True, xlabel='layer', ylabel=label
    )
    entries = {}
    for axis, values in zip(axes, panels.values(), strict=True):
        layers = np.arange(1, len(values) + 1)
        axis.plot(layers, values, '.', color='0.7', markersize=2, zorder=1)
        for level in () if bound is None else (-bound, bound):
            dashed(axis, level)
        for index, (name, dimension) in enumerate(marked.items()):
            (entries[name],) = axis.plot(
                layers, values[:, dimension], '-', markersize=4, linewidth=1.2, **style_of(index)
            )
        axis.set_xticks(layers)
    if entries:
        figure.named(entries, 'lower center', ncols=4)
    return figure


@styled
def beside_random(
    random: np.ndarray,
    rows: Mapping[str, tuple[float, float, float]],
    *,
    label: str,
    random_name: str,
) -> Figure:
    """Draw effects with their intervals in rows, under a row with the effects of random draws [R].

    Args:
      rows: The effect and the ends of its interval, by the name of the row. NaN draws nothing.
      random_name: The name of the row of random draws.
    """
    names = [random_name, *rows]
    figure, (axis,) = figure_of(5.6, 0.3 * len(names) + 0.9, grid='x', xlabel=label)
    axis.axvline(0, color='0.5', linewidth=0.8)
    # Above and below each other, so that equal ones are seen to be several.
    apart = np.linspace(-0.25, 0.25, len(random) + 2)[1:-1]
    axis.scatter(random, apart, s=8, color='0.5', alpha=0.6, linewidth=0)
    for height, (value, low, high) in enumerate(rows.values(), start=1):
        axis.hlines(height, low, high, color=COLOURS[1], linewidth=1.2)
        axis.scatter(value, height, s=18, color=COLOURS[1], zorder=3)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    return figure
