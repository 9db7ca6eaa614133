"""Figures show what they are given, count from 1, and come out the same every time."""

import struct

import matplotlib.figure
import numpy as np
import pytest

from bert_secrets_jax import names, plots


def texts_of(artists):
    return [each.get_text() for each in artists]


def legend_of(figure):
    """The names in the one legend of a figure."""
    (legend,) = figure.legends
    return texts_of(legend.get_texts())


def ends_of(lines, along=1):
    """The ends of intervals [intervals, 2] along an axis."""
    return [each[:, along].tolist() for each in lines.get_segments()]


def test_head_grids_draw_the_values_with_layers_down():
    grid = np.arange(6.0).reshape(2, 3)
    figure = plots.head_grids({'a': grid, 'b': grid / 2}, label='share')
    axis, other, *_ = figure.axes
    np.testing.assert_array_equal(axis.images[0].get_array(), grid)
    assert axis.images[0].get_clim() == other.images[0].get_clim() == (0, 5)
    assert texts_of(axis.get_yticklabels()) == ['1', '2']
    assert texts_of(axis.get_xticklabels()) == ['1', '2', '3']
    assert axis.get_ylabel() == 'layer' and axis.get_xlabel() == 'head'


def test_layer_profiles_put_the_paper_at_the_same_depth():
    ours, paper = np.random.default_rng(0).random((6, 4)), {'[SEP]': np.ones((12, 12)) / 2}
    given = {'[CLS]': ours, '[SEP]': ours}
    figure = plots.layer_profiles(given, label='share', published=paper, published_name='paper')
    first, second = figure.axes
    np.testing.assert_allclose(first.lines[0].get_ydata(), ours.mean(axis=1))
    assert len(first.lines) == 1 and second.lines[1].get_xdata()[[0, -1]].tolist() == [1, 6]


def test_head_points_are_the_heads_and_the_line_their_mean():
    one, other = np.random.default_rng(0).random((2, 3, 4))
    figure = plots.head_points(
        {'left': {'a': one, 'b': other}, 'right': {'b': other}}, label='share',
        published={'b': np.array([np.nan, 3.0, np.nan])},
        published_name='paper',
    )  # fmt: skip
    left, right = figure.axes
    drawn = [each.get_offsets() for each in (*left.collections, *right.collections)]
    for points, values in zip(drawn, (one, other, other), strict=True):
        np.testing.assert_allclose(points[:, 1], values.ravel())
        # Each stands above its own layer.
        np.testing.assert_array_equal(np.rint(points[:, 0]), np.repeat([1, 2, 3], 4))
    np.testing.assert_allclose(left.lines[0].get_ydata(), one.mean(axis=1))
    crosses = next(line for line in right.lines if line.get_marker() == 'x')
    assert crosses.get_color() == left.lines[1].get_color()
    # Published values are not cut off, in either panel.
    assert left.get_ylim()[1] > 3 and left.get_ylim() == right.get_ylim()
    assert set(legend_of(figure)) == {'a', 'b', 'paper'}


def test_maps_are_drawn_with_their_tokens():
    maps, tokens = np.random.default_rng(0).random((2, 3, 4, 4)), ['[CLS]', 'a', 'b', '[SEP]']
    joined = plots.map_grid(maps).axes[0].images[0].get_array()
    np.testing.assert_allclose(joined[6:10, 6:10], maps[1, 1], rtol=1e-6)
    assert joined.mask[5].all() and joined.shape == (11, 16)
    figure = plots.head_maps({'L1-H1': maps[0, 0], 'L2-H3': maps[1, 2]}, tokens, targets=[2])
    first, second, _ = figure.axes
    for axis, rows in ((first, tokens), (second, [])):
        assert texts_of(axis.get_xticklabels()) == tokens
        assert texts_of(axis.get_yticklabels()) == rows
    np.testing.assert_array_equal(second.images[0].get_array(), maps[1, 2])
    weights = [each.get_fontweight() for each in first.get_yticklabels()]
    assert weights == ['normal', 'normal', 'bold', 'normal']


def test_effects_stand_on_a_scale_around_zero():
    effects = np.array([[1.0, -4.0], [0.0, 2.0]])
    marked = {'real': effects == -4, 'likely': np.abs(effects) > 1}
    axis = plots.effect_grid(effects, label='points', **marked).axes[0]
    assert axis.images[0].get_clim() == (-4, 4)
    opened, filled = (each.get_offsets().tolist() for each in axis.collections)
    assert filled == [[1, 0]] and opened == [[1, 0], [1, 1]]
    nothing = plots.effect_grid(np.zeros((2, 2)), label='points').axes[0].images[0]
    assert nothing.get_clim() == (-1, 1)
    # Where a model is worse, there is less of a score and more of a loss.
    for red, colours in ((-8.0, 'RdBu'), (8.0, 'RdBu_r')):
        grid = plots.effect_grid(effects, label='x', red=red)
        grids = plots.head_grids({'a': effects}, label='x', limits=(red, -red), differences=True)
        matrix = plots.interaction_matrix({'a': effects}, ['a', 'b'], label='x', red={'a': red})
        for drawn in (grid, grids, matrix):
            image = drawn.axes[0].images[0]
            assert image.get_clim() == (-8, 8) and image.get_cmap().name == colours
        assert grid.numbers.scale == grids.numbers.scale == {'low': red, 'high': -red}


def test_layer_effects_and_curves_have_intervals_and_published_means():
    effects, paper = np.array([-1.0, 2.0, 0.5]), {'label': 'points', 'published_name': 'paper'}
    ends = effects, effects - 1, effects + 2
    figure = plots.layer_effects(*ends, published=np.ones(12), **paper)
    (axis,) = figure.axes
    assert ends_of(axis.collections[0]) == [[-2, 1], [1, 4], [-0.5, 2.5]]
    assert axis.lines[2].get_xdata()[[0, -1]].tolist() == [1, 3]
    # Within the axis, the dot of the legend would be read as the effect of a layer.
    assert axis.get_legend() is None and legend_of(figure) == ['this model', 'paper']
    figure.canvas.draw()
    assert not figure.legends[0].get_window_extent().overlaps(axis.get_window_extent())
    assert plots.layer_effects(*ends, label='points').legends == []
    curves = {'a': ends, 'b': (effects / 2, effects / 2, effects / 2)}
    figure = plots.layer_curves(curves, limits=(0.0, 100.0), published={'b': 15.0}, **paper)
    (axis,) = figure.axes
    assert ends_of(axis.collections[0]) == [[-2, 1], [1, 4], [-0.5, 2.5]]
    (dotted,) = (line for line in axis.lines if line.get_linestyle() == ':')
    assert dotted.get_ydata() == [15, 15] and axis.get_ylim() == (0, 100)
    assert dotted.get_color() == axis.lines[1].get_color() != axis.lines[0].get_color()
    assert legend_of(figure) == ['a', 'b', 'paper']


def test_interactions_are_named_where_there_is_room():
    heads = [names.head_name(*head) for head in np.ndindex(6, 12)]
    matrix = np.full((72, 72), np.nan)
    matrix[0, 1] = matrix[1, 0] = -3
    given = {'f1 (points)': matrix, 'loss (nats)': -matrix / 3}
    axes = [axis for axis in plots.interaction_matrix(given, heads, label='x').axes if axis.images]
    assert [axis.images[0].get_clim() for axis in axes] == [(-3, 3), (-1, 1)]
    assert texts_of(axes[0].get_xticklabels())[:3] == ['L1-H1', 'L1-H3', 'L1-H5']


def draw() -> plots.Figure:
    return plots.head_grids({'a': np.eye(3)}, label='share')


def test_a_figure_shows_itself_and_is_left_as_it_was():
    figure = draw()
    assert isinstance(figure, plots.Figure) and isinstance(figure, matplotlib.figure.Figure)
    figure.caption = 'One head.'
    assert draw().caption == ''
    png = figure._repr_png_()
    width, height = struct.unpack('>2I', png[16:24])
    assert png.startswith(b'\x89PNG')
    assert (width, height) == pytest.approx(figure.get_size_inches() * figure.dpi, abs=1)
    image = figure.axes[0].images[0]
    before, text = image.get_interpolation(), plots.svg(figure)
    assert image.get_interpolation() == before
    assert text.startswith('<?xml') and '>share</text>' in text


def test_a_notebook_shows_a_figure_once():
    nbclient = pytest.importorskip('nbclient')
    nbformat = pytest.importorskip('nbformat')
    pytest.importorskip('ipykernel')
    cells = [
        '%matplotlib inline\nimport numpy\nfrom bert_secrets_jax import plots',
        "plots.head_grids({'a': numpy.eye(3)}, label='share')",
    ]
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    nbclient.NotebookClient(notebook, kernel_name='python3', timeout=120).execute()
    (output,) = notebook.cells[-1].outputs
    assert output.output_type == 'execute_result'
    assert set(output.data) == {'image/png', 'text/plain'}


def test_methods_have_intervals_in_rows():
    values = np.array([0.25, 0.5])
    rows, filled = {'rank': (values, values - 0.25, values + 0.25)}, {'rank': values < 0.5}
    lines, points = plots.interval_panels(['a', 'b'], rows, filled=filled).axes[0].collections
    assert ends_of(lines, 0) == [[0, 0.5], [0.25, 0.75]]
    assert points.get_offsets().tolist() == [[0.25, 0], [0.5, 1]]
    full, hollow = points.get_facecolors().tolist()
    assert hollow == [1, 1, 1, 1] != full


def test_shares_are_bars_that_touch_and_numbers_where_there_is_room():
    fills = {'x': '#ffffff', 'y': '#eeeeee', 'z': '#dddddd'}
    figure = plots.share_bars({'a': np.array([0.7, 0.28, 0.02])}, fills, label='percent')
    (axis,) = figure.axes
    bars = [(bar.get_x(), bar.get_width()) for bar in axis.patches]
    np.testing.assert_allclose(bars, [(0, 70), (70, 28), (98, 2)])
    assert texts_of(axis.texts) == ['70', '28', ''] and legend_of(figure) == ['x', 'y', 'z']


@pytest.mark.parametrize('heads', [4, 12])
def test_the_names_of_classes_have_room_above_one_grid(heads):
    classes = ['vertical', 'diagonal', 'vertical + diagonal', 'block', 'heterogeneous']
    figure = plots.class_grids({'one': np.full((6, heads, 5), 0.2)}, classes)
    figure.canvas.draw()
    extent = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= extent.x0 and extent.x1 <= figure.bbox.x1
