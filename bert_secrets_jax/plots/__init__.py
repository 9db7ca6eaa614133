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
    from bert_secrets_jax.plots.classes import class_examples, class_grids, class_shares, share_bars
    from bert_secrets_jax.plots.dimensions import beside_random, dimensions_by_layer
    from bert_secrets_jax.plots.figure import Figure, save, svg
    from bert_secrets_jax.plots.grids import (
        effect_grid,
        feature_matrices,
        head_grids,
        interaction_matrix,
    )
    from bert_secrets_jax.plots.maps import head_maps, map_grid
    from bert_secrets_jax.plots.methods import interval_panels
    from bert_secrets_jax.plots.numbers import Numbers, Panel, Source
    from bert_secrets_jax.plots.points import head_scatter, planes, points_by_row, scores_by_heads
    from bert_secrets_jax.plots.profiles import (
        depth_profiles,
        distance_histograms,
        distance_preferences,
        head_points,
        layer_curves,
        layer_effects,
        layer_profiles,
        learning_curves,
        pruning_curves,
    )

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
