"""Attention maps of one text."""

from collections.abc import Collection, Mapping, Sequence

import matplotlib
import numpy as np

from bert_secrets_jax.plots.figure import COLOURS, MAPS, STYLE, Figure


def map_grid(attentions: np.ndarray) -> Figure:
    """Draw the maps of all heads on one example: layers down, heads across.

    Args:
      attentions: The maps [L, N, T, T].
    """
    with matplotlib.rc_context(STYLE):
        layers, heads = attentions.shape[:2]
        figure = Figure(figsize=(0.75 * heads + 0.5, 0.75 * layers + 0.5))
        axes = figure.subplots(
            layers, heads, squeeze=False, gridspec_kw={'wspace': 0.06, 'hspace': 0.06}
        )
        figure.subplots_adjust(left=0.05, right=0.995, top=0.94, bottom=0.005)
        for layer in range(layers):
            for head in range(heads):
                axis = axes[layer, head]
                axis.imshow(attentions[layer, head], cmap=MAPS, vmin=0, vmax=1)
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
      maps: The values [T, T] of each map, by title.
      tokens: The tokens of the text [T].
      sources: The positions where links begin; their tokens are bold and blue.
      targets: The positions where links end; their tokens are bold and red.

    Raises:
      ValueError: A map has another shape.
    """
    for title, values in maps.items():
        if np.shape(values) != (len(tokens), len(tokens)):
            raise ValueError(
                f'The map {title!r} must be [T, T] of {len(tokens)} tokens, got '
                f'{list(np.shape(values))}.'
            )
    with matplotlib.rc_context(STYLE):
        columns = min(len(maps), 3)
        rows = -(-len(maps) // columns)
        # More tokens than these could not be read.
        labelled = len(tokens) <= 64
        side = min(max(0.11 * len(tokens), 1.2), 7) + 0.7
        figure = Figure(figsize=(columns * side + 0.9, rows * (side + 0.1)), layout='constrained')
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, (title, values) in zip(axes, maps.items(), strict=False):
            image = axis.imshow(values, cmap=MAPS, vmin=0, vmax=1)
            axis.set_title(title, fontsize=7)
            axis.set(xticks=[], yticks=[])
            if labelled:
                axis.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=6)
                axis.set_yticks(range(len(tokens)), tokens, fontsize=6)
                for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
                    for positions, colour in ((sources, COLOURS[0]), (targets, COLOURS[1])):
                        for position in positions:
                            labels[position].set(color=colour, fontweight='bold')
            axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')
            axis.tick_params(length=0)
        for axis in axes[len(maps) :]:
            axis.set_axis_off()
        figure.colorbar(image, ax=axes, label='attention', shrink=0.8, pad=0.01)
        return figure
