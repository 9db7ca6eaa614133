"""The five classes of maps (section 4.1): their shares, their heads and examples of them."""

from collections.abc import Mapping, Sequence

import matplotlib
import matplotlib.colors
import matplotlib.patches
import numpy as np

from bert_secrets_jax.plots.figure import INK, MAPS, STYLE, Figure
from bert_secrets_jax.plots.numbers import Numbers, Panel

# People with colour blindness can tell these five apart, too.
_CLASSES = ('#0072b2', '#e69f00', '#009e73', '#cc79a7', '#bbbbbb')


def class_shares(shares: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw shares of classes [C], which sum to 1, as stacked bars by title (Figure 2)."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.42 * len(shares) + 1.1), layout='constrained')
        axis = figure.subplots()
        bars = []
        for row, values in enumerate(shares.values()):
            start = 0.0
            for value, colour in zip(values, _CLASSES, strict=False):
                bars.append(axis.barh(row, 100 * value, left=100 * start, color=colour, height=0.7))
                if value >= 0.04:
                    axis.text(100 * (start + value / 2), row, f'{100 * value:.0f}', fontsize=8,
                              ha='center', va='center', color=_ink(colour))  # fmt: skip
                start += value
        axis.set_yticks(range(len(shares)), shares)
        axis.invert_yaxis()
        axis.set(xlim=(0, 100), xlabel='percent of all maps')
        axis.spines['left'].set_visible(False)
        axis.tick_params(axis='y', length=0)
        # Named here: Matplotlib leaves out bars whose label begins with an underscore.
        figure.legend(bars[: len(classes)], classes, loc='outside upper center', ncols=len(classes),
                      frameon=False, fontsize=8, columnspacing=1, handlelength=1)  # fmt: skip
        return figure


def class_grids(shares: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Draw the most frequent class of every head; paler means less frequent.

    Args:
      shares: The share of each head's maps in each class [L, N, C], by title.
      classes: The names of the classes.
    """
    with matplotlib.rc_context(STYLE):
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
        panels = [
            Panel(title, dict(zip(classes, np.moveaxis(each, -1, 0), strict=True)))
            for title, each in shares.items()
        ]
        figure.numbers = Numbers('classes', 'share', panels)
        return figure


def class_examples(panels: Mapping[str, Sequence[tuple[str, np.ndarray]]]) -> Figure:
    """Draw examples of maps, one column per class, every map on its own scale (Figure 1).

    Args:
      panels: The maps of each class by its name, each a title and values [T, T]; may be empty.
    """
    with matplotlib.rc_context(STYLE):
        rows = max(max(map(len, panels.values())), 1)
        figure = Figure(figsize=(1.7 * len(panels), 1.75 * rows + 0.3), layout='constrained')
        axes = figure.subplots(rows, len(panels), squeeze=False)
        for axis in axes.flat:
            axis.set_axis_off()
        for column, (name, maps) in enumerate(panels.items()):
            for row, (title, values) in enumerate(maps):
                axis = axes[row, column]
                axis.set_axis_on()
                axis.imshow(values, cmap=MAPS, vmin=0)
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')
                axis.set_xlabel(title, fontsize=7)
            axes[0, column].set_title(name)
            if not maps:
                axes[0, column].text(0.5, 0.5, 'none', ha='center', va='center', color='0.5')
        return figure


def _ink(colour: str) -> str:
    """Return black or white, whichever is legible on the colour."""
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else 'white'
