"""Figures show what they are given, count from 1, and come out the same every time."""

import struct

import matplotlib.figure
import numpy as np
import pytest

from bert_secrets_jax import names, plots


def texts_of(artists):
    return [each.get_text() for each in artists]


def test_head_grids_draw_the_values_with_layers_down():
    grid = np.arange(6.0).reshape(2, 3)
    figure = plots.head_grids({'a': grid, 'b': grid / 2}, label='share')
    first, second = (axis.images[0] for axis in figure.axes[:2])
    np.testing.assert_array_equal(first.get_array(), grid)
    assert first.get_clim() == second.get_clim() == (0, 5)
    assert texts_of(figure.axes[0].get_yticklabels()) == ['1', '2']
    assert texts_of(figure.axes[0].get_xticklabels()) == ['1', '2', '3']
    assert figure.axes[0].get_ylabel() == 'layer' and figure.axes[0].get_xlabel() == 'head'


def test_layer_profiles_put_the_paper_at_the_same_depth():
    ours, theirs = np.random.default_rng(0).random((6, 4)), np.ones((12, 12)) / 2
    figure = plots.layer_profiles(
        {'[CLS]': ours, '[SEP]': ours}, label='share', published={'[SEP]': theirs},
        published_name='paper',
    )  # fmt: skip
    first, second = figure.axes
    assert len(first.lines) == 1 and len(second.lines) == 2
    np.testing.assert_allclose(first.lines[0].get_ydata(), ours.mean(axis=1))
    assert second.lines[1].get_xdata()[[0, -1]].tolist() == [1, 6]


def test_head_points_are_the_heads_and_the_line_their_mean():
    rng = np.random.default_rng(0)
    one, other = rng.random((3, 4)), 2 * rng.random((3, 4))
    figure = plots.head_points(
        {'left': {'a': one, 'b': other}, 'right': {'b': other}}, label='share',
        levels={'even': 1.5}, published={'b': np.array([np.nan, 3.0, np.nan])},
        published_name='paper',
    )  # fmt: skip
    left, right = figure.axes
    for axis, values in ((left, (one, other)), (right, (other,))):
        for points, expected in zip(axis.collections, values, strict=True):
            np.testing.assert_allclose(points.get_offsets()[:, 1], expected.ravel())
            # Each stands above its own layer.
            layers = np.rint(points.get_offsets()[:, 0])
            np.testing.assert_array_equal(layers, np.repeat([1, 2, 3], 4))
    np.testing.assert_allclose(left.lines[0].get_ydata(), one.mean(axis=1))
    crosses = next(line for line in right.lines if line.get_marker() == 'x')
    assert crosses.get_color() == left.lines[1].get_color()
    # Published values are not cut off, in either panel.
    assert left.get_ylim()[1] > 3 and left.get_ylim() == right.get_ylim()
    (legend,) = figure.legends
    assert set(texts_of(legend.get_texts())) == {'a', 'b', 'paper', 'even'}


def test_maps_are_drawn_with_their_tokens():
    maps = np.random.default_rng(0).random((2, 3, 4, 4))
    tokens = ['[CLS]', 'a', 'b', '[SEP]']
    figure = plots.map_grid(maps)
    joined = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(joined[6:10, 6:10], maps[1, 1], rtol=1e-6)
    assert joined.mask[5].all() and joined.shape == (11, 16)
    figure = plots.head_maps({'L1-H1': maps[0, 0], 'L2-H3': maps[1, 2]}, tokens)
    for axis, rows in zip(figure.axes, (tokens, []), strict=False):
        assert texts_of(axis.get_xticklabels()) == tokens
        assert texts_of(axis.get_yticklabels()) == rows
    np.testing.assert_array_equal(figure.axes[1].images[0].get_array(), maps[1, 2])


def test_effects_stand_on_a_scale_around_zero():
    effects = np.array([[1.0, -4.0], [0.0, 2.0]])
    marked = {'real': effects == -4, 'likely': np.abs(effects) > 1}
    figure = plots.effect_grid(effects, label='points', **marked)
    axis = figure.axes[0]
    assert axis.images[0].get_clim() == (-4, 4)
    opened, filled = axis.collections
    assert filled.get_offsets().tolist() == [[1, 0]]
    assert opened.get_offsets().tolist() == [[1, 0], [1, 1]]
    nothing = plots.effect_grid(np.zeros((2, 2)), label='points').axes[0].images[0]
    assert nothing.get_clim() == (-1, 1)
    # Where a model is worse, there is less of a score and more of a loss.
    for red, colours in ((-8.0, 'RdBu'), (8.0, 'RdBu_r')):
        grids = plots.head_grids({'a': effects}, label='x', limits=(red, -red), differences=True)
        for drawn in (plots.effect_grid(effects, label='x', red=red), grids):
            image = drawn.axes[0].images[0]
            assert image.get_clim() == (-8, 8) and image.get_cmap().name == colours
            assert drawn.numbers.scale == {'low': red, 'high': -red}
    loss = plots.interaction_matrix({'loss': effects}, ['a', 'b'], label='x', red={'loss': 8.0})
    assert loss.axes[0].images[0].get_cmap().name == 'RdBu_r'


def test_layer_effects_have_intervals():
    effects = np.array([-1.0, 2.0, 0.5])
    figure = plots.layer_effects(
        effects, effects - 1, effects + 2, label='points', published=np.ones(12),
        published_name='paper',
    )  # fmt: skip
    axis = figure.axes[0]
    segments = axis.collections[0].get_segments()
    assert [segment[:, 1].tolist() for segment in segments] == [[-2, 1], [1, 4], [-0.5, 2.5]]
    assert axis.lines[2].get_xdata()[[0, -1]].tolist() == [1, 3]
    # Within the axis, the dot of the legend would be read as the effect of a layer.
    (legend,) = figure.legends
    assert axis.get_legend() is None and axis.get_legend_handles_labels() == ([], [])
    assert texts_of(legend.get_texts()) == ['this model', 'paper']
    figure.canvas.draw()
    assert not legend.get_window_extent().overlaps(axis.get_window_extent())
    assert plots.layer_effects(effects, effects, effects, label='points').legends == []


def test_layer_curves_have_intervals_and_published_means():
    mean = np.array([20.0, 40.0])
    figure = plots.layer_curves(
        {'a': (mean, mean - 1, mean + 2), 'b': (mean / 2, mean / 2, mean / 2)},
        label='%', limits=(0.0, 100.0), published={'b': 15.0}, published_name='paper',
    )  # fmt: skip
    axis = figure.axes[0]
    segments = axis.collections[0].get_segments()
    assert [segment[:, 1].tolist() for segment in segments] == [[19, 22], [39, 42]]
    (dotted,) = (line for line in axis.lines if line.get_linestyle() == ':')
    assert dotted.get_ydata() == [15, 15] and axis.get_ylim() == (0, 100)
    assert dotted.get_color() == axis.lines[1].get_color() != axis.lines[0].get_color()
    assert texts_of(figure.legends[0].get_texts()) == ['a', 'b', 'paper']


def test_interactions_are_named_where_there_is_room():
    heads = [names.head_name(*head) for head in np.ndindex(6, 12)]
    matrix = np.full((72, 72), np.nan)
    matrix[0, 1] = matrix[1, 0] = -3
    figure = plots.interaction_matrix(
        {'f1 (points)': matrix, 'loss (nats)': -matrix / 3}, heads, label='points'
    )
    first, second = (axis for axis in figure.axes if axis.images)
    assert first.images[0].get_clim() == (-3, 3) and second.images[0].get_clim() == (-1, 1)
    shown = texts_of(first.get_xticklabels())
    assert shown[:3] == ['L1-H1', 'L1-H3', 'L1-H5']


def draw() -> plots.Figure:
    return plots.head_grids({'a': np.eye(3)}, label='share')


def test_an_svg_is_text_that_leaves_the_figure_as_it_was(tmp_path):
    figure = draw()
    image = figure.axes[0].images[0]
    before = image.get_interpolation()
    text = plots.svg(figure)
    assert image.get_interpolation() == before
    assert text.startswith('<?xml') and '>share</text>' in text


def test_every_function_draws_a_figure_that_shows_itself():
    figure = draw()
    assert isinstance(figure, plots.Figure) and isinstance(figure, matplotlib.figure.Figure)
    assert figure.caption == ''
    figure.caption = 'One head.'
    assert draw().caption == ''
    png = figure._repr_png_()
    width, height = struct.unpack('>2I', png[16:24])
    assert png.startswith(b'\x89PNG')
    assert (width, height) == pytest.approx(figure.get_size_inches() * figure.dpi, abs=1)


def test_a_notebook_shows_a_figure_once():
    nbclient = pytest.importorskip('nbclient')
    nbformat = pytest.importorskip('nbformat')
    pytest.importorskip('ipykernel')
    cells = [
        '%matplotlib inline\nimport numpy\nfrom bert_secrets_jax import plots',
        "plots.head_grids({'a': numpy.eye(3)}, label='share')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, kernel_name='python3', timeout=120).execute()
    outputs = notebook.cells[-1].outputs
    assert [output.output_type for output in outputs] == ['execute_result']
    assert set(outputs[0].data) == {'image/png', 'text/plain'}


def test_training_curves_have_a_line_for_each_seed():
    curves = {'a': np.array([[3.0, 2.0], [4.0, 1.0]]), 'b': np.array([[5.0, 5.0]])}
    figure = plots.training_curves(curves, np.array([10, 20]), xlabel='sentences', label='loss')
    (axis,) = figure.axes
    assert [line.get_ydata().tolist() for line in axis.lines] == [[3, 2], [4, 1], [5, 5]]
    assert axis.lines[0].get_color() == axis.lines[1].get_color() != axis.lines[2].get_color()
    assert texts_of(figure.legends[0].get_texts()) == ['a', 'b']


def test_methods_have_curves_over_shares_and_intervals_in_rows():
    shares, values = np.array([0.1, 0.5]), np.array([0.2, 0.4])
    figure = plots.share_curves(
        {'fall': {'a': values, 'random': values / 2}}, shares, label='fall', grey='random'
    )
    first, second = figure.axes[0].lines
    assert first.get_xdata().tolist() == [10, 50] and first.get_ydata().tolist() == [0.2, 0.4]
    assert second.get_color() == '0.55' and second.get_linestyle() == '--'
    figure = plots.interval_panels(
        ['a', 'b'],
        {'rank': (values, values - 0.1, values + 0.1)},
        filled={'rank': np.array([True, False])},
    )
    lines, points = figure.axes[0].collections
    ends = [each[:, 0] for each in lines.get_segments()]
    np.testing.assert_allclose(ends, [[0.1, 0.3], [0.3, 0.5]])
    assert points.get_offsets().tolist() == [[0.2, 0], [0.4, 1]]
    full, hollow = points.get_facecolors()
    assert hollow.tolist() == [1, 1, 1, 1] != full.tolist()


def test_shares_are_bars_that_touch_and_numbers_where_there_is_room():
    fills = {'x': '#ffffff', 'y': '#eeeeee', 'z': '#dddddd'}
    figure = plots.share_bars({'a': np.array([0.7, 0.28, 0.02])}, fills, label='percent')
    bars = figure.axes[0].patches
    np.testing.assert_allclose([bar.get_x() for bar in bars], [0, 70, 98])
    np.testing.assert_allclose([bar.get_width() for bar in bars], [70, 28, 2])
    assert [text.get_text() for text in figure.axes[0].texts] == ['70', '28']
    assert texts_of(figure.legends[0].get_texts()) == ['x', 'y', 'z']


@pytest.mark.parametrize('heads', [4, 12])
def test_the_names_of_classes_have_room_above_one_grid(heads):
    classes = ['vertical', 'diagonal', 'vertical + diagonal', 'block', 'heterogeneous']
    figure = plots.class_grids({'one': np.full((6, heads, 5), 0.2)}, classes)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert figure.bbox.x0 <= legend.get_window_extent().x0
    assert legend.get_window_extent().x1 <= figure.bbox.x1
