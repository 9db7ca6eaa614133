"""Figures in the style of the paper: heat maps over layers and heads, profiles, attention maps.

Layers and heads count from 1 in everything that a person reads.
"""

import io
import pathlib
from collections.abc import Collection, Mapping, Sequence

import matplotlib
import matplotlib.colors
import matplotlib.patches
import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from bert_secrets_jax.files import write_atomically

_HEADS = 'viridis'
_MAPS = 'magma_r'
# Red is lost without the head, blue is gained; white is no difference.
_EFFECTS = 'RdBu'
_COLOURS = ('#1f77b4', '#d62728', '#2ca02c', '#9467bd', '#ff7f0e', '#17becf')
# Of the five classes of section 4.1; also told apart by those who do not see colours as most do.
_CLASSES = ('#0072b2', '#e69f00', '#009e73', '#cc79a7', '#bbbbbb')
_STYLE = {
    'font.family': 'DejaVu Sans',
    'font.size': 9,
    'axes.titlesize': 10,
    'axes.spines.top': False,
    'axes.spines.right': False,
    # Text stays text, in SVG and in PDF: searchable and editable in a paper.
    'svg.fonttype': 'none',
    'pdf.fonttype': 42,
    # The same numbers give the same file.
    'svg.hashsalt': 'bert_secrets_jax',
}


def head_name(layer: int, head: int) -> str:
    """Return the 1-based name of a head that is given 0-based.

    >>> head_name(0, 1)
    'L1-H2'
    """
    return f'L{layer + 1}-H{head + 1}'


def head_grids(
    grids: Mapping[str, np.ndarray],
    *,
    label: str,
    limits: tuple[float, float] | None = None,
    differences: bool = False,
    marked: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """Draw one heat map [L, N] per entry, side by side on one colour scale (Figures 3, 5, 6, 8).

    Args:
      grids: title to values.
      label: of the colour bar, with its unit.
      limits: of the colour scale; by default 0 to the greatest value.
      differences: a scale around 0 instead: red is below, blue above.
      marked: title to [L, N], heads marked by a circle.
    """
    marked = marked or {}
    with matplotlib.rc_context(_STYLE):
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
                columns * (0.24 * heads + 0.7) + 0.9,
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
        return figure


def layer_profiles(
    profiles: Mapping[str, np.ndarray],
    *,
    label: str,
    published: Mapping[str, np.ndarray] | None = None,
    published_name: str = '',
) -> Figure:
    """Draw the mean over heads per layer, with the range of the heads, one panel per entry.

    Args:
      profiles: title to values [L, N].
      label: of the vertical axis, with its unit.
      published: title to values [L', N'], dotted, stretched over the same depth if L' is not L.
      published_name: what `published` is, for the legend.
    """
    published = published or {}
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(3.2 * len(profiles) + 0.4, 2.7), layout='constrained')
        axes = figure.subplots(1, len(profiles), sharey=True, squeeze=False)[0]
        for axis, (title, values), colour in zip(axes, profiles.items(), _COLOURS, strict=False):
            layers = np.arange(1, len(values) + 1)
            axis.fill_between(
                layers, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15,
                label='range of heads', linewidth=0,
            )  # fmt: skip
            axis.plot(
                layers,
                values.mean(axis=1),
                'o-',
                color=colour,
                markersize=4,
                label='ours',
            )
            if title in published:
                other = published[title]
                # Layer l of L' stands at the same relative depth: 1 at the first, L at the last.
                depth = np.linspace(1, len(values), len(other))
                axis.plot(depth, other.mean(axis=1), 'k:', marker='x', markersize=4,
                          label=published_name)  # fmt: skip
            axis.set(title=title, xlabel='layer', xticks=layers, ylim=(0, None))
            axis.grid(axis='y', alpha=0.3)
        axes[0].set_ylabel(label)
        axes[-1].legend(frameon=False, fontsize=7, loc='best')
        return figure


def effect_grid(
    effects: np.ndarray,
    *,
    label: str,
    real: np.ndarray | None = None,
    likely: np.ndarray | None = None,
    ylabel: str = 'layer',
) -> Figure:
    """Draw what disabling each head does, [L, N], on a scale around 0 (Figure 8).

    Args:
      effects: score without the head less score with all.
      label: of the colour bar, with its unit.
      real, likely: [L, N] heads marked by a filled and by an open circle.
      ylabel: of the vertical axis.
    """
    with matplotlib.rc_context(_STYLE):
        layers, heads = effects.shape
        figure = Figure(figsize=(0.24 * heads + 1.7, 0.24 * layers + 0.9), layout='constrained')
        axis = figure.subplots()
        image = _effects(axis, effects)
        axis.set(xlabel='head', ylabel=ylabel)
        axis.set_xticks(range(heads), range(1, heads + 1), fontsize=6)
        axis.set_yticks(range(layers), range(1, layers + 1), fontsize=6)
        for chosen, face in ((real, 'black'), (likely, 'none')):
            if chosen is not None:
                rows, columns = np.nonzero(chosen)
                axis.scatter(columns, rows, s=14, facecolor=face, edgecolor='black', linewidth=0.7)
        figure.colorbar(image, ax=axis, label=label, pad=0.01)
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
    """Draw what disabling each layer does, [L], with its interval (Figure 9).

    Args:
      effects: score without the layer less score with all.
      low, high: [L] ends of the interval.
      label: of the vertical axis, with its unit.
      published: [L'], dotted, stretched over the same depth if L' is not L.
      published_name: what that is.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(0.3 * len(effects) + 2.2, 2.7), layout='constrained')
        axis = figure.subplots()
        layers = np.arange(1, len(effects) + 1)
        axis.axhline(0, color='0.5', linewidth=0.8)
        axis.vlines(layers, low, high, color=_COLOURS[0], linewidth=1.2)
        axis.plot(layers, effects, 'o', color=_COLOURS[0], markersize=4, label='ours')
        if published is not None:
            depth = np.linspace(1, len(effects), len(published))
            axis.plot(depth, published, 'k:', marker='x', markersize=4, label=published_name)
        axis.set(xlabel='disabled layer', ylabel=label, xticks=layers)
        axis.grid(axis='y', alpha=0.3)
        axis.legend(frameon=False, fontsize=7)
        return figure


def interaction_matrix(
    matrices: Mapping[str, np.ndarray], names: Sequence[str], *, label: str
) -> Figure:
    """Draw matrices [heads, heads] of interactions, each on a scale of its own around 0.

    Args:
      matrices: title, with the unit, to values; NaN stays empty.
      names: of the heads, in their order; shown where there are few.
      label: of the colour bars.
    """
    with matplotlib.rc_context(_STYLE):
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


def _effects(axis, values: np.ndarray):
    """Draw a heat map around 0; a grid without any effect is white."""
    highest = np.nanmax(np.abs(values), initial=0) or 1
    image = axis.imshow(values, cmap=_EFFECTS, vmin=-highest, vmax=highest)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    return image


def learning_curves(curves: Mapping[str, Sequence[Mapping]], *, label: str) -> Figure:
    """Draw dev scores, x 100, by epoch, a colour per start and a line per seed.

    Args:
      curves: start to rows with 'seed', 'epoch' and 'score'.
      label: of the scores.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(4.2, 2.7), layout='constrained')
        axis = figure.subplots()
        for (start, rows), colour in zip(curves.items(), _COLOURS, strict=False):
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


def map_grid(attentions: np.ndarray) -> Figure:
    """Draw the maps [L, N, T, T] of all heads on one example: layers down, heads across."""
    with matplotlib.rc_context(_STYLE):
        layers, heads = attentions.shape[:2]
        figure = Figure(figsize=(0.75 * heads + 0.5, 0.75 * layers + 0.5))
        axes = figure.subplots(
            layers, heads, squeeze=False, gridspec_kw={'wspace': 0.06, 'hspace': 0.06}
        )
        figure.subplots_adjust(left=0.05, right=0.995, top=0.94, bottom=0.005)
        for layer in range(layers):
            for head in range(heads):
                axis = axes[layer, head]
                axis.imshow(attentions[layer, head], cmap=_MAPS, vmin=0, vmax=1)
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')
                if layer == 0:
                    axis.set_title(f'H{head + 1}', fontsize=7, pad=2)
                if head == 0:
                    axis.set_ylabel(
                        f'L{layer + 1}', fontsize=7, rotation=0, ha='right', va='center'
                    )
        return figure


def head_maps(
    maps: Mapping[str, np.ndarray],
    tokens: Sequence[str],
    *,
    sources: Collection[int] = (),
    targets: Collection[int] = (),
) -> Figure:
    """Draw large maps [T, T] with their tokens: queries down, keys across (Figure 4).

    Args:
      maps: title to values.
      tokens: [T].
      sources, targets: positions of the ends of links, whose tokens are bold blue and red.

    Raises:
      ValueError: for a map of another shape.
    """
    for title, values in maps.items():
        if np.shape(values) != (len(tokens), len(tokens)):
            raise ValueError(
                f'The map {title!r} must be [T, T] of {len(tokens)} tokens, got '
                f'{list(np.shape(values))}.'
            )
    with matplotlib.rc_context(_STYLE):
        columns = min(len(maps), 3)
        rows = -(-len(maps) // columns)
        # Beyond that, tokens are too many to be read.
        labelled = len(tokens) <= 64
        side = min(max(0.11 * len(tokens), 1.2), 7) + 0.7
        figure = Figure(figsize=(columns * side + 0.9, rows * (side + 0.1)), layout='constrained')
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, (title, values) in zip(axes, maps.items(), strict=False):
            image = axis.imshow(values, cmap=_MAPS, vmin=0, vmax=1)
            axis.set_title(title, fontsize=7)
            axis.set(xticks=[], yticks=[])
            if labelled:
                axis.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=6)
                axis.set_yticks(range(len(tokens)), tokens, fontsize=6)
                for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
                    for positions, colour in ((sources, _COLOURS[0]), (targets, _COLOURS[1])):
                        for position in positions:
                            labels[position].set(color=colour, fontweight='bold')
            axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')
            axis.tick_params(length=0)
        for axis in axes[len(maps) :]:
            axis.set_axis_off()
        figure.colorbar(image, ax=axes, label='attention', shrink=0.8, pad=0.01)
        return figure


def feature_matrices(
    matrices: Mapping[str, np.ndarray],
    columns: Sequence[str],
    *,
    label: str,
    highest: float | None = None,
) -> Figure:
    """Draw heads down and features across, [N, F], per entry, on one colour scale (Figure 7).

    Args:
      matrices: title to values; NaN stays empty.
      columns: names of the features.
      label: of the colour bar.
      highest: of the colour scale; by default the greatest value.
    """
    with matplotlib.rc_context(_STYLE):
        heads = len(next(iter(matrices.values())))
        figure = Figure(
            figsize=(len(matrices) * (0.28 * len(columns) + 0.7) + 0.9, 0.24 * heads + 1.3),
            layout='constrained',
        )
        axes = figure.subplots(1, len(matrices), squeeze=False)[0]
        highest = highest or max(np.nanmax(matrix) for matrix in matrices.values())
        for axis, (title, matrix) in zip(axes, matrices.items(), strict=True):
            image = axis.imshow(matrix, cmap=_HEADS, vmin=0, vmax=highest)
            axis.set(title=title, ylabel='head')
            axis.set_xticks(range(len(columns)), columns, rotation=90, fontsize=7)
            axis.set_yticks(range(heads), range(1, heads + 1), fontsize=6)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label=label, shrink=0.9, pad=0.01)
        return figure


def class_shares(shares: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw shares [C] of classes as stacked bars, one per entry (Figure 2).

    Args:
      shares: title to shares, which sum to 1.
      classes: their names.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 0.42 * len(shares) + 1.1), layout='constrained')
        axis = figure.subplots()
        for row, values in enumerate(shares.values()):
            start = 0.0
            for value, name, colour in zip(values, classes, _CLASSES, strict=False):
                axis.barh(row, 100 * value, left=100 * start, color=colour, height=0.7,
                          label=name if row == 0 else None)  # fmt: skip
                if value >= 0.04:
                    axis.text(100 * (start + value / 2), row, f'{100 * value:.0f}', fontsize=8,
                              ha='center', va='center', color=_ink(colour))  # fmt: skip
                start += value
        axis.set_yticks(range(len(shares)), shares)
        axis.invert_yaxis()
        axis.set(xlim=(0, 100), xlabel='percent of all maps')
        axis.spines['left'].set_visible(False)
        axis.tick_params(axis='y', length=0)
        figure.legend(loc='outside upper center', ncols=len(classes), frameon=False, fontsize=8,
                      columnspacing=1, handlelength=1)  # fmt: skip
        return figure


def class_grids(shares: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw the most frequent class of every head, [L, N, C], per entry; paler is less frequent.

    Args:
      shares: title to the share of each class of a head's maps.
      classes: their names.
    """
    with matplotlib.rc_context(_STYLE):
        layers, heads = next(iter(shares.values())).shape[:2]
        figure = Figure(
            figsize=(len(shares) * (0.24 * heads + 0.8), 0.24 * layers + 1.2), layout='constrained'
        )
        axes = figure.subplots(1, len(shares), squeeze=False)[0]
        colours = np.array([matplotlib.colors.to_rgb(colour) for colour in _CLASSES])
        for axis, (title, grid) in zip(axes, shares.items(), strict=True):
            # The greatest of five classes holds a fifth at least; its colour can still be told.
            strength = np.interp(grid.max(axis=-1), (0.2, 1), (0.35, 1))[..., None]
            axis.imshow(1 - strength * (1 - colours[grid.argmax(axis=-1)]))
            axis.set(title=title, xlabel='head', ylabel='layer')
            axis.set_xticks(range(heads), range(1, heads + 1), fontsize=6)
            axis.set_yticks(range(layers), range(1, layers + 1), fontsize=6)
            axis.tick_params(length=0)
            axis.spines[:].set_visible(False)
        handles = [
            matplotlib.patches.Patch(color=colour, label=name)
            for colour, name in zip(_CLASSES, classes, strict=False)
        ]
        figure.legend(handles=handles, loc='outside upper center', ncols=len(classes),
                      frameon=False, fontsize=8, columnspacing=1, handlelength=1)  # fmt: skip
        return figure


def class_examples(panels: Mapping[str, Sequence[tuple[str, np.ndarray]]]) -> Figure:
    """Draw maps by class, one column each, every map on a scale of its own (Figure 1).

    Args:
      panels: class to (title, values [T, T]), some of them or none.
    """
    with matplotlib.rc_context(_STYLE):
        rows = max(max(map(len, panels.values())), 1)
        figure = Figure(figsize=(1.7 * len(panels), 1.75 * rows + 0.3), layout='constrained')
        axes = figure.subplots(rows, len(panels), squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for column, (name, maps) in enumerate(panels.items()):
            for row, (title, values) in enumerate(maps):
                axis = axes[row, column]
                axis.set_axis_on()
                axis.imshow(values, cmap=_MAPS, vmin=0)
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')
                axis.set_xlabel(title, fontsize=7)
            axes[0, column].set_title(name)
            if not maps:
                axes[0, column].text(0.5, 0.5, 'none', ha='center', va='center', color='0.5')
        return figure


def _ink(colour: str) -> str:
    """Return black or white, whichever can be read on a colour."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return 'black' if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else 'white'


def distance_histograms(counts: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """Draw how far apart linked tokens are: the share of links per offset, one panel per entry.

    Args:
      counts: title to offsets (key less query position) and numbers of links.
    """
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(2.8 * len(counts) + 0.4, 2.2), layout='constrained')
        axes = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
        edge = 12
        for axis, (title, (offsets, links)), colour in zip(
            axes, counts.items(), _COLOURS, strict=False
        ):
            # What is farther away is counted at the edge.
            share = np.zeros(2 * edge + 1)
            np.add.at(share, np.clip(offsets, -edge, edge) + edge, links / links.sum())
            axis.bar(np.arange(-edge, edge + 1), share, color=colour)
            axis.set(title=title, xlabel=f'offset (at ±{edge}: or farther)')
            axis.grid(axis='y', alpha=0.3)
        axes[0].set_ylabel('share of links')
        return figure


def save(figure: Figure, directory: str | pathlib.Path, name: str) -> pathlib.Path:
    """Write `name` as PDF, SVG and PNG (200 dpi); returns the path of the SVG."""
    directory = pathlib.Path(directory)
    with matplotlib.rc_context(_STYLE):
        for suffix, metadata in (
            ('pdf', {'CreationDate': None}),
            ('png', {}),
            ('svg', {'Date': None}),
        ):
            if suffix == 'svg':
                # One pixel for each cell, which browsers keep sharp at any size; some viewers of
                # PDF would blur it.
                for image in figure.findobj(AxesImage):
                    image.set_interpolation('none')
            data = io.BytesIO()
            figure.savefig(data, format=suffix, dpi=200, metadata=metadata)
            write_atomically(directory / f'{name}.{suffix}', data.getvalue())
    return directory / f'{name}.svg'
