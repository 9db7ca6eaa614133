"""Curves, points and bars: by layer, by epoch and by distance."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.lines import Line2D

from bert_secrets_jax.plots.figure import COLOURS, MARKERS, STYLE, Figure
from bert_secrets_jax.plots.numbers import Numbers, Panel


def layer_profiles(
    profiles: Mapping[str, np.ndarray],
    *,
    label: str,
    published: Mapping[str, np.ndarray] | None = None,
    published_name: str = '',
) -> Figure:
    """Draw the mean over the heads of each layer, and their range, one panel per title.

    Args:
      profiles: The values [L, N] of each panel, by title.
      label: The label of the vertical axis, with the unit.
      published: Published values [L', N'] by title, drawn dotted beside ours, stretched over the
        same depth.
      published_name: The name of the published values in the legend.
    """
    published = published or {}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(profiles) + 0.4, 2.7), layout='constrained')
        axes = figure.subplots(1, len(profiles), sharey=True, squeeze=False)[0]
        for axis, (title, values), colour in zip(axes, profiles.items(), COLOURS, strict=False):
            layers = np.arange(1, len(values) + 1)
            heads = axis.fill_between(
                layers, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15,
                linewidth=0,
            )  # fmt: skip
            (ours,) = axis.plot(layers, values.mean(axis=1), 'o-', color=colour, markersize=4)
            entries = [(heads, 'range of heads'), (ours, 'this model')]
            if title in published:
                other = published[title]
                # Layer l of L' stands at the same relative depth: 1 at the first, L at the last.
                depth = np.linspace(1, len(values), len(other))
                (theirs,) = axis.plot(depth, other.mean(axis=1), 'k:', marker='x', markersize=4)
                entries += [(theirs, published_name)] if published_name else []
            axis.set(title=title, xlabel='layer', xticks=layers, ylim=(0, None))
            axis.grid(axis='y', alpha=0.3)
        axes[0].set_ylabel(label)
        # Named here: Matplotlib leaves out lines whose label begins with an underscore.
        axes[-1].legend(*zip(*entries, strict=True), frameon=False, fontsize=7, loc='best')
        panels = [
            Panel(
                title,
                {'': each.mean(axis=1)},
                {
                    'ends': [each.min(axis=1), each.max(axis=1)],
                    'published': published[title].mean(axis=1) if title in published else [],
                },
            )
            for title, each in profiles.items()
        ]
        scale = {'ends': 'range of heads', 'published': published_name.replace('\n', ' ')}
        figure.numbers = Numbers('layers', label, panels, scale)
        return figure


def head_points(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    *,
    label: str,
    levels: Mapping[str, float] | None = None,
    published: Mapping[str, np.ndarray] | None = None,
    published_name: str = '',
) -> Figure:
    """Draw each head as a point above its layer, and the mean of each layer as a line.

    Args:
      panels: The values [L, N] by their names, for each panel by its title. A name has one colour
        in all panels.
      label: The label of the vertical axis, with the unit.
      levels: Values by their names that are drawn as dashed lines in all panels.
      published: Published means of layers [L] by the name of ours, drawn as crosses of its colour;
        NaN where nothing was published.
      published_name: The name of the published means in the legend.
    """
    published, levels = published or {}, levels or {}
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.7 * len(panels) + 0.4, 3.2), layout='constrained')
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        entries = {}
        for axis, (title, panel) in zip(axes, panels.items(), strict=True):
            # Side by side, so that the points of one do not hide those of another.
            apart = 0.6 / len(panel)
            for index, (name, values) in enumerate(panel.items()):
                colour = COLOURS[names.index(name) % len(COLOURS)]
                layers = np.arange(1, len(values) + 1)
                shifted = layers + apart * (index - (len(panel) - 1) / 2)
                axis.scatter(
                    np.repeat(shifted, values.shape[1]), values, s=6, color=colour, alpha=0.35,
                    linewidth=0,
                )  # fmt: skip
                (entries[name],) = axis.plot(
                    layers, values.mean(axis=1), 'o-', color=colour, markersize=3, linewidth=1.2
                )
                if name in published:
                    axis.plot(
                        layers, published[name], 'x', color=colour, markersize=6, markeredgewidth=2
                    )
                    if published_name:
                        entries[published_name] = Line2D([], [], color='k', marker='x', ls='')
            for name, level in levels.items():
                entries[name] = axis.axhline(level, color='0.4', linestyle='--', linewidth=0.9)
            axis.set(title=title, xlabel='layer', xticks=layers)
            axis.grid(axis='y', alpha=0.3)
        # The axis is shared: its limits are known when all panels are drawn.
        axes[0].set(ylabel=label, ylim=(0, None))
        figure.legend(
            entries.values(), entries.keys(), loc='outside lower center', ncols=3, frameon=False,
            fontsize=7,
        )  # fmt: skip
        drawn = [
            Panel(title, panel, {'published': {name: published[name] for name in panel
                                               if name in published}})
            for title, panel in panels.items()
        ]  # fmt: skip
        scale = {
            'levels': [[name, float(level)] for name, level in levels.items()],
            'published': published_name.replace('\n', ' '),
        }
        figure.numbers = Numbers('points', label, drawn, scale)
        return figure


def layer_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    *,
    label: str,
    limits: tuple[float, float],
    published: Mapping[str, float] | None = None,
    published_name: str = '',
) -> Figure:
    """Draw numbers of layers with their intervals, one colour for each name.

    Args:
      curves: The numbers [L] and the ends of their intervals [L], by name.
      label: The label of the vertical axis, with the unit.
      limits: The ends of the vertical axis.
      published: Published means over layers by the names of ours, drawn dotted in their colours.
      published_name: The name of the published means in the legend.
    """
    published = published or {}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.4), layout='constrained')
        axis = figure.subplots()
        entries = {}
        for index, (name, (values, low, high)) in enumerate(curves.items()):
            colour = COLOURS[index % len(COLOURS)]
            layers = np.arange(1, len(values) + 1)
            axis.vlines(layers, low, high, color=colour, linewidth=1.2)
            (entries[name],) = axis.plot(
                layers, values, 'o-', color=colour, markersize=3, linewidth=1.2
            )
            if name in published:
                axis.axhline(published[name], color=colour, linestyle=':', linewidth=0.9)
        if published and published_name:
            entries[published_name] = Line2D([], [], color='k', linestyle=':', linewidth=0.9)
        axis.set(xlabel='layer', ylabel=label, xticks=layers, ylim=limits)
        axis.grid(axis='y', alpha=0.3)
        figure.legend(
            entries.values(), entries.keys(), loc='outside lower center', ncols=2, frameon=False,
            fontsize=7,
        )  # fmt: skip
        panels = [
            # The published mean over all layers is the same line at any depth.
            Panel(name, {'': values}, {'ends': ends, 'published': np.full(2, published[name])
                                       if name in published else []})
            for name, (values, *ends) in curves.items()
        ]  # fmt: skip
        scale = {'ends': 'interval', 'published': published_name}
        figure.numbers = Numbers('layers', label, panels, scale)
        return figure


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
      label: The label of the vertical axis, with the unit.
      published: Published values [L'], drawn dotted beside ours, stretched over the same depth.
      published_name: The name of the published values in the legend.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(0.3 * len(effects) + 2.2, 2.7), layout='constrained')
        axis = figure.subplots()
        layers = np.arange(1, len(effects) + 1)
        axis.axhline(0, color='0.5', linewidth=0.8)
        axis.vlines(layers, low, high, color=COLOURS[0], linewidth=1.2)
        (ours,) = axis.plot(layers, effects, 'o', color=COLOURS[0], markersize=4)
        entries = [(ours, 'this model')]
        if published is not None:
            depth = np.linspace(1, len(effects), len(published))
            (theirs,) = axis.plot(depth, published, 'k:', marker='x', markersize=4)
            entries += [(theirs, published_name)] if published_name else []
        axis.set(xlabel='disabled layer', ylabel=label, xticks=layers)
        axis.grid(axis='y', alpha=0.3)
        axis.legend(*zip(*entries, strict=True), frameon=False, fontsize=7)
        title = label[:1].upper() + label[1:]
        scale = {'ends': 'interval', 'published': published_name}
        beside = {'ends': [low, high], 'published': [] if published is None else published}
        panel = Panel(title, {'': effects}, beside)
        figure.numbers = Numbers('layers', label, [panel], scale)
        return figure


def learning_curves(curves: Mapping[str, Sequence[Mapping]], *, label: str) -> Figure:
    """Draw dev scores, times 100, by epoch: one colour per start and one line per seed.

    Args:
      curves: Rows with the keys 'seed', 'epoch' and 'score', by the name of the start.
      label: The name of the score.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2, 2.7), layout='constrained')
        axis = figure.subplots()
        for (start, rows), colour in zip(curves.items(), COLOURS, strict=False):
            for index, seed in enumerate(sorted({row['seed'] for row in rows})):
                mine = [row for row in rows if row['seed'] == seed]
                axis.plot(
                    [row['epoch'] for row in mine],
                    [100 * row['score'] for row in mine],
                    'o-',
                    color=colour,
                    markersize=3,
                    alpha=0.8,
                    label=f'from {start}' if index == 0 else None,
                )
        axis.set(xlabel='epoch')
        # Above and not beside the axis, which long names of metrics exceed.
        axis.set_title(f'{label}, x 100', loc='left', fontsize=8)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(axis='y', alpha=0.3)
        if len(curves) > 1:
            figure.legend(loc='outside lower right', ncols=2, frameon=False, fontsize=7)
        return figure


def training_curves(
    curves: Mapping[str, np.ndarray], seen: np.ndarray, *, xlabel: str, label: str
) -> Figure:
    """Draw losses in the course of training: one colour per name and one line per seed.

    Args:
      curves: The losses [R, P] of each seed, by name.
      seen: How much was learnt from at each point [P].
      xlabel, label: The labels of the axes.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.6, 2.7), layout='constrained')
        axis = figure.subplots()
        drawn = []
        for index, of_seeds in enumerate(curves.values()):
            colour = COLOURS[index % len(COLOURS)]
            lines = axis.plot(seen, np.atleast_2d(of_seeds).T, color=colour, linewidth=1, alpha=0.8)
            drawn.append(lines[0])
        axis.set(xlabel=xlabel, ylabel=label)
        axis.grid(axis='y', alpha=0.3)
        # Named here: Matplotlib leaves out lines whose label begins with an underscore.
        figure.legend(drawn, list(curves), loc='outside right upper', frameon=False, fontsize=7)
        return figure


def pruning_curves(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
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
      label: The label of the vertical axis, with the unit.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout='constrained')
        axis = figure.subplots()
        entries = {'all heads': axis.axhline(full, color='0.4', linestyle='--', linewidth=0.9)}
        share = 100 * kept
        if random is not None:
            low, high = random.min(axis=0), random.max(axis=0)
            axis.fill_between(share, low, high, color='0.85', linewidth=0)
            (entries['at random'],) = axis.plot(share, random.mean(axis=0), color='0.55')
        # Side by side, so that the intervals of one order do not hide those of another.
        apart = 1.4 / max(len(curves), 1)
        for index, (name, (values, low, high)) in enumerate(curves.items()):
            colour = COLOURS[index % len(COLOURS)]
            shifted = share + apart * (index - (len(curves) - 1) / 2)
            axis.vlines(shifted, low, high, color=colour, linewidth=0.8, alpha=0.6)
            (entries[name],) = axis.plot(
                shifted, values, 'o-', color=colour, markersize=3, linewidth=1.2
            )
        values = [each for each, _, _ in curves.values()] + ([] if random is None else [random])
        least, most = (
            function([full, *(function(each) for each in values)])
            for function in (np.nanmin, np.nanmax)
        )
        # Intervals of few examples may be wider than what there is to see, and end where no score
        # is.
        room = 0.5 * (most - least) or 1.0
        ends = [full, *(np.nanmin(low) for _, low, _ in curves.values()), least]
        tops = [full, *(np.nanmax(high) for _, _, high in curves.values()), most]
        limits = max(least - room, min(ends) - 1), min(most + room, max(tops) + 1)
        axis.set(xlabel='heads that are left (%)', ylabel=label, ylim=limits)
        axis.invert_xaxis()
        axis.grid(axis='y', alpha=0.3)
        figure.legend(
            entries.values(), entries.keys(), loc='outside lower center', ncols=3, frameon=False,
            fontsize=7,
        )  # fmt: skip
        return figure


def distance_histograms(counts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw the share of links by the distance of their tokens, one panel per title.

    Args:
      counts: The offsets (position of the key minus position of the query) and the number of links
        at each, by title.
    """
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.8 * len(counts) + 0.4, 2.2), layout='constrained')
        axes = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
        edge = 12
        for axis, (title, (offsets, links)), colour in zip(
            axes, counts.items(), COLOURS, strict=False
        ):
            # Links with greater offsets are counted at the edge.
            share = np.zeros(2 * edge + 1)
            np.add.at(share, np.clip(offsets, -edge, edge) + edge, links / links.sum())
            axis.bar(np.arange(-edge, edge + 1), share, color=colour)
            axis.set(title=title, xlabel=f'offset (at ±{edge}: or farther)')
            axis.grid(axis='y', alpha=0.3)
        axes[0].set_ylabel('share of links')
        return figure


def depth_profiles(panels: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Draw means of layers by relative depth, one panel per title and one line per name.

    Args:
      panels: By title, the means of the layers [L] by name; each has an L of its own. A name has
        one colour in all panels.
    """
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    with matplotlib.rc_context(STYLE):
        columns = min(len(panels), 3)
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(3.1 * columns + 0.4, 2.4 * rows + 0.5), layout='constrained')
        axes, entries = list(figure.subplots(rows, columns, squeeze=False).flat), {}
        for axis, (title, panel) in zip(axes, panels.items(), strict=False):
            for name, means in panel.items():
                index = names.index(name)
                (entries[name],) = axis.plot(
                    np.linspace(0, 1, len(means)),
                    means,
                    color=COLOURS[index % len(COLOURS)],
                    marker=MARKERS[index % len(MARKERS)],
                    markersize=4,
                    linewidth=1.2,
                )
            axis.set_title(title, fontsize=8)
            axis.set(xlabel='relative depth', xlim=(-0.03, 1.03))
            axis.tick_params(labelsize=7)
            axis.grid(axis='y', alpha=0.3)
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        # Named here: Matplotlib leaves out lines whose label begins with an underscore.
        figure.legend(entries.values(), entries.keys(), loc='outside lower center', ncols=2,
                      frameon=False, fontsize=7)  # fmt: skip
        return figure
