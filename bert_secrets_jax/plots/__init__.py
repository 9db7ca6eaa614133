# ruff: noqa: F401  (the imports under TYPE_CHECKING are the public names; see lazy.py)
"""Figures in the style of the paper. Every function draws the arrays that it is given.

    figure = plots.head_grids({'[SEP]': grid}, label='share of attention')
    plots.save(figure, 'figures', 'sep')

A `label` is that of the axis or the colours of the numbers, with their unit; `xlabel` is that of
the horizontal axis. `published_name` names published numbers in the legend. Layers and heads count
from 1 in everything that a person reads. Matplotlib is loaded when the first of these functions is
used.
"""

from typing import TYPE_CHECKING

from bert_secrets_jax import lazy

if TYPE_CHECKING:
    from bert_secrets_jax.plots.figure import Figure, Numbers, Panel, Source, save, svg
    from bert_secrets_jax.plots.grids import (
        class_examples,
        class_grids,
        class_shares,
        effect_grid,
        feature_matrices,
        head_grids,
        head_maps,
        interaction_matrix,
        map_grid,
        share_bars,
    )
    from bert_secrets_jax.plots.profiles import (
        beside_random,
        depth_profiles,
        dimensions_by_layer,
        distance_histograms,
        distance_preferences,
        head_points,
        head_scatter,
        interval_panels,
        layer_curves,
        layer_effects,
        layer_profiles,
        learning_curves,
        planes,
        points_by_row,
        pruning_curves,
        scores_by_heads,
    )

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
