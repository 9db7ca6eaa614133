"""Curves, points and bars: by layer, by epoch, by distance, on a plane, and in rows."""

import functools
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.lines import Line2D

from bert_secrets_jax.plots.figure import (
    COLOURS,
    MAPS,
    Arrays,
    Ends,
    Figure,
    Panel,
    colour_of,
    dashed,
    figure_of,
    name_rows,
    style_of,
    styled,
)
from bert_secrets_jax.plots.kinds import look

_by_layer = functools.partial(figure_of, beside=0.4, sharey=True, xlabel='layer')


@styled
def layer_profiles(
    profiles: Arrays, *, label: str, published: Arrays | None = None, published_name: str = ''
) -> Figure:
    """Draw the mean over the heads of each layer, and their range, one panel per title.

    Args:
      profiles: The values [L, N] of each panel, by title.
      published: Published values [L', N'] by title, drawn dotted beside ours, stretched over the
        same depth.
    """
    published = {title: grid.mean(axis=1) for title, grid in (published or {}).items()}
    figure, axes = _by_layer(3.2, 2.7, profiles, ylabel=label)
    panels = []
    for axis, (title, values), colour in zip(axes, profiles.items(), COLOURS, strict=False):
        layers, means = _counted(values), values.mean(axis=1)
        ends = [values.min(axis=1), values.max(axis=1)]
        heads = axis.fill_between(layers, *ends, color=colour, alpha=0.15, linewidth=0)
        (ours,) = axis.plot(layers, means, 'o-', color=colour, markersize=4)
        entries = {'range of heads': heads, 'this model': ours}
        if title in published:
            theirs = _draw_published(axis, published[title], len(values))
            entries |= {published_name: theirs} if published_name else {}
        axis.set(xticks=layers, ylim=(0, None))
        beside = {'ends': ends, 'published': published.get(title, [])}
        panels.append(Panel(title, {'': means}, beside))
    axes[-1].legend(list(entries.values()), list(entries), frameon=False, fontsize=7, loc='best')
    scale = {'ends': 'range of heads', 'published': published_name.replace('\n', ' ')}
    return figure.numbered('layers', label, panels, **scale)


def _counted(layers: np.ndarray) -> np.ndarray:
    """Return the numbers of layers as people count them."""
    return np.arange(1, len(layers) + 1)


def _draw_published(axis: Axes, values: np.ndarray, layers: int) -> Line2D:
    """Draw published values [L'] where layers have the same relative depth: 1 first, L last."""
    depth = np.linspace(1, layers, len(values))
    (line,) = axis.plot(depth, values, 'k:', marker='x', markersize=4)
    return line


@styled
def head_points(
    panels: Mapping[str, Arrays],
    *,
    label: str,
    published: Arrays | None = None,
    published_name: str = '',
) -> Figure:
    """Draw each head as a point above its layer, and the mean of each layer as a line.

    Args:
      panels: The values [L, N] by their names, for each panel by its title. A name has one colour
        in all panels.
      published: Published means of layers [L] by the name of ours, drawn as crosses of its colour;
        NaN where nothing was published.
    """
    published = published or {}
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    figure, axes = _by_layer(3.7, 3.2, panels, ylabel=label)
    entries, drawn = {}, []
    for axis, (title, panel) in zip(axes, panels.items(), strict=True):
        # Side by side, so that the points of one do not hide those of another.
        apart = 0.6 / len(panel)
        for index, (name, values) in enumerate(panel.items()):
            colour, layers = colour_of(names.index(name)), _counted(values)
            shifted = layers + apart * (index - (len(panel) - 1) / 2)
            places = np.repeat(shifted, values.shape[1])
            axis.scatter(places, values, s=6, color=colour, alpha=0.35, linewidth=0)
            entries[name] = _line_of(axis, layers, values.mean(axis=1), colour)
            if name in published:
                cross = {'color': colour, 'markersize': 6, 'markeredgewidth': 2}
                axis.plot(layers, published[name], 'x', **cross)
                if published_name:
                    entries[published_name] = Line2D([], [], color='k', marker='x', ls='')
        axis.set_xticks(layers)
        theirs = {name: published[name] for name in panel if name in published}
        drawn.append(Panel(title, panel, {'published': theirs}))
    # The axis is shared: its limits are known when all panels are drawn.
    axes[0].set_ylim(0, None)
    figure.named(entries, 'lower center', ncols=3)
    return figure.numbered('points', label, drawn, published=published_name.replace('\n', ' '))


def _line_of(axis: Axes, across: np.ndarray, values: np.ndarray, colour: str) -> Line2D:
    (line,) = axis.plot(across, values, 'o-', color=colour, markersize=3, linewidth=1.2)
    return line


@styled
def layer_curves(
    curves: Mapping[str, Ends],
    *,
    label: str,
    limits: tuple[float, float],
    published: Mapping[str, float] | None = None,
    published_name: str = '',
) -> Figure:
    """Draw numbers of layers with their intervals, one colour for each name.

    Args:
      curves: The numbers [L] and the ends of their intervals [L], by name.
      limits: The ends of the vertical axis.
      published: Published means over layers by the names of ours, drawn dotted in their colours.
    """
    published = published or {}
    figure, (axis,) = figure_of(5.4, 3.4, xlabel='layer', ylabel=label)
    entries, panels = {}, []
    for index, (name, (values, low, high)) in enumerate(curves.items()):
        colour, layers = colour_of(index), _counted(values)
        axis.vlines(layers, low, high, color=colour, linewidth=1.2)
        entries[name] = _line_of(axis, layers, values, colour)
        if name in published:
            axis.axhline(published[name], color=colour, linestyle=':', linewidth=0.9)
        # The published mean over all layers is the same line at any depth.
        theirs = np.full(2, published[name]) if name in published else []
        panels.append(Panel(name, {'': values}, {'ends': [low, high], 'published': theirs}))
    if published and published_name:
        entries[published_name] = Line2D([], [], color='k', linestyle=':', linewidth=0.9)
    axis.set(xticks=layers, ylim=limits)
    figure.named(entries, 'lower center', ncols=2)
    return figure.numbered('layers', label, panels, ends='interval', published=published_name)


@styled
def layer_effects(
    effects: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    label: str,
    published: np.ndarray | None = None,
    published_name: str = '',
) -> Figure:
    """Draw the effect of disabling each layer [L], with its interval (Figure 9).

    Args:
      effects: The score without each layer minus the score with all layers [L].
      low, high: The ends of the intervals [L].
      published: Published values [L'], drawn dotted beside ours, stretched over the same depth.
    """
    width, layers = 0.3 * len(effects) + 2.2, _counted(effects)
    figure, (axis,) = figure_of(width, 2.7, xlabel='disabled layer', ylabel=label)
    axis.axhline(0, color='0.5', linewidth=0.8)
    axis.vlines(layers, low, high, color=COLOURS[0], linewidth=1.2)
    (ours,) = axis.plot(layers, effects, 'o', color=COLOURS[0], markersize=4)
    axis.set_xticks(layers)
    if published is not None:
        theirs = _draw_published(axis, published, len(effects))
        # In the plot, its dot would be read as the effect of a layer.
        figure.named(
            {'this model': ours, published_name or 'published': theirs}, 'upper center', ncols=2
        )
    beside = {'ends': [low, high], 'published': [] if published is None else published}
    panels = [Panel(label[:1].upper() + label[1:], {'': effects}, beside)]
    return figure.numbered('layers', label, panels, ends='interval', published=published_name)


@styled
def learning_curves(curves: Mapping[str, Sequence[Mapping]], *, label: str) -> Figure:
    """Draw dev scores, times 100, by epoch: one colour per start and one line per seed.

    Args:
      curves: Rows with the keys 'seed', 'epoch' and 'score', by the name of the start.
      label: The name of the score.
    """
    figure, (axis,) = figure_of(4.2, 2.7, xlabel='epoch')
    entries, seed = {}, itemgetter('seed')
    for (start, rows), colour in zip(curves.items(), COLOURS, strict=False):
        for _, mine in groupby(sorted(rows, key=seed), seed):
            points = np.array([(row['epoch'], 100 * row['score']) for row in mine])
            style = {'color': colour, 'markersize': 3, 'alpha': 0.8}
            (entries[f'from {start}'],) = axis.plot(*points.T, 'o-', **style)
    # Above and not beside the axis, which long names of metrics exceed.
    axis.set_title(f'{label}, x 100', loc='left', fontsize=8)
    axis.xaxis.get_major_locator().set_params(integer=True)  # pyright: ignore[reportCallIssue]
    if len(curves) > 1:
        figure.named(entries, 'lower right', ncols=2)
    return figure


@styled
def pruning_curves(
    curves: Mapping[str, Ends],
    kept: np.ndarray,
    *,
    full: float,
    random: np.ndarray | None = None,
    label: str,
) -> Figure:
    """Draw scores against the share of heads that is left, one line per order.

    Args:
      curves: The scores [K] and the ends of their intervals [K], by the name of the order.
      kept: The share of heads that is left at each step [K].
      full: The score with all heads, drawn as a dashed line.
      random: The scores in random orders [D, K], drawn as a grey range; None draws none.
    """
    figure, (axis,) = figure_of(6.4, 3.6, xlabel='heads that are left (%)', ylabel=label)
    entries, share = {'all heads': dashed(axis, full)}, 100 * kept
    if random is not None:
        ends = random.min(axis=0), random.max(axis=0)
        axis.fill_between(share, *ends, color='0.85', linewidth=0)
        (entries['at random'],) = axis.plot(share, random.mean(axis=0), color='0.55')
    # Side by side, so that the intervals of one order do not hide those of another.
    apart = 1.4 / max(len(curves), 1)
    for index, (name, (values, low, high)) in enumerate(curves.items()):
        shifted = share + apart * (index - (len(curves) - 1) / 2)
        axis.vlines(shifted, low, high, color=colour_of(index), linewidth=0.8, alpha=0.6)
        entries[name] = _line_of(axis, shifted, values, colour_of(index))
    axis.invert_xaxis()
    figure.named(entries, 'lower center', ncols=3)
    return figure


@styled
def distance_histograms(counts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw the share of links by the distance of their tokens, one panel per title.

    Args:
      counts: The offsets (position of the key minus position of the query) and the number of links
        at each, by title.
    """
    edge = 12
    across = f'offset (at ±{edge}: or farther)'
    figure, axes = figure_of(
        2.8, 2.2, counts, beside=0.4, sharey=True, xlabel=across, ylabel='share of links'
    )
    for axis, (offsets, links), colour in zip(axes, counts.values(), COLOURS, strict=False):
        # Links with greater offsets are counted at the edge.
        share = np.zeros(2 * edge + 1)
        np.add.at(share, np.clip(offsets, -edge, edge) + edge, links / links.sum())
        axis.bar(np.arange(-edge, edge + 1), share, color=colour)
    return figure


@styled
def distance_preferences(scores: np.ndarray) -> Figure:
    """Draw how heads prefer distances, one panel per layer and one line per head.

    Args:
      scores: [L, N, offset] Scores of key minus query from -R to R, such as those of
        `bs.distance_preferences`. The mean of each head is subtracted: softmax ignores it.
    """
    titles, count = [f'layer {layer}' for layer in _counted(scores)], scores.shape[-1]
    figure, axes = figure_of(
        2.4, 2.0, titles, across=4, beside=0.4, below=0.6, title_size=8, sharex=True, sharey=True
    )
    offsets, entries = np.arange(count) - count // 2, {}
    for axis, values in zip(axes, scores, strict=True):
        for head, line in enumerate(values - values.mean(axis=1, keepdims=True)):
            every, style = max(count // 8, 1), style_of(head)
            (entries[f'H{head + 1}'],) = axis.plot(
                offsets, line, markersize=3, markevery=every, linewidth=1, **style
            )
        axis.set_xlabel('key minus query (tokens)', fontsize=7)
        axis.axvline(0, color='0.7', linewidth=0.6)
        axis.tick_params(labelsize=7)
    figure.supylabel('score before softmax, less its mean', fontsize=8)
    figure.named(entries, 'lower center', ncols=6)
    return figure


@styled
def depth_profiles(panels: Mapping[str, Arrays]) -> Figure:
    """Draw means of layers by relative depth, one panel per title and one line per name.

    Args:
      panels: By title, the means of the layers [L] by name; each has an L of its own. A name has
        one colour in all panels.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    figure, axes = figure_of(
        3.1, 2.4, panels, across=3, beside=0.4, below=0.5, title_size=8, xlabel='relative depth'
    )
    entries = {}
    for axis, panel in zip(axes, panels.values(), strict=True):
        for name, means in panel.items():
            depth, style = np.linspace(0, 1, len(means)), style_of(names.index(name))
            (entries[name],) = axis.plot(depth, means, markersize=4, linewidth=1.2, **style)
        axis.set_xlim(-0.03, 1.03)
        axis.tick_params(labelsize=7)
    figure.named(entries, 'lower center', ncols=2)
    return figure


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
    figure, axes = _by_layer(3.7, 3.4, panels, ylabel=label)
    entries = {}
    for axis, values in zip(axes, panels.values(), strict=True):
        layers = _counted(values)
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
    return figure.numbered('points', '', [panel])


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
    points = (
        Panel(title.replace('\n', ' '), {'': values}, {'across': each})
        for title, each in panels.items()
    )
    return figure.numbered('points', label, points, across=across_label)


@styled
def interval_panels(
    rows: Sequence[str], panels: Mapping[str, Ends], *, filled: Arrays, columns: int | None = None
) -> Figure:
    """Draw values with intervals in rows that several panels share.

    Args:
      rows: The names of the R rows.
      panels: By title, the values [R] and the lower and upper ends [R] of their intervals.
      filled: By title, whether a point is filled [R]; the others are hollow.
      columns: The number of panels side by side; None is all of them.
    """
    columns = columns or len(panels)
    height = 0.26 * len(rows) + 0.9
    figure, axes = figure_of(
        2.4, height, panels, across=columns, beside=1.2, title_size=9, sharey=True, grid='x'
    )
    heights = np.arange(len(rows))
    for index, (axis, title) in enumerate(zip(axes, panels, strict=True)):
        (values, low, high), colour = panels[title], colour_of(index)
        axis.axvline(0, color='0.6', linewidth=0.8)
        axis.hlines(heights, low, high, color=colour, linewidth=1)
        faces = np.where(filled[title], colour, 'white')
        axis.scatter(values, heights, s=20, color=faces, edgecolors=colour, zorder=3)
    for axis in axes[::columns]:
        axis.set_yticks(heights, rows, fontsize=8)
    axes[0].invert_yaxis()
    return figure
