"""Grids of heads and links to heads: any frame that declares what heads are coloured by."""

import dataclasses
import io
import pathlib
import re
from functools import partial

import numpy as np
import pandas
import pytest
from PIL import Image

from bert_secrets_jax import plots
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.plots.kinds import look
from bert_secrets_jax.report.page import Part, Picture, figure_numbers, grids, traced
from bert_secrets_jax.runs.result import HeadMarks
from tests.conftest import rarely
from tests.report.conftest import colours, count, press, texts, wait_until, widest
from tests.report.test_atlas import ALL, marked
from tests.report.test_page import Shown, finding, written

HEADS = ('', 2, 3)
VALUES = np.array([0.123456, 0.5, np.nan, -0.25, 1e-7, 12.0])


def coloured(frame, axis, columns, *by, **more):
    """A frame that declares what its heads or layers are coloured by."""
    frame.attrs['caption'] = 'The score without each.'
    frame.attrs['colours'] = Colours(axis, columns, by, **more)
    return frame


def named(order=range(6)):
    """A frame with the names of heads, in an order."""
    names = [f'L{at // 3 + 1}-H{at % 3 + 1}' for at in order]
    frame = pandas.DataFrame({'disabled': names, 'difference': VALUES[list(order)], 'examples': 7})
    return coloured(frame, 'heads', {'difference': ('examples',)})


def numbered():
    """A frame with numbers of layers and heads, for two statistics and two seeds."""
    ways = {'statistic': ['[CLS]', 'self'], 'seed': [0, 1], 'layer': [1, 2], 'head': [1, 2, 3]}
    frame = pandas.MultiIndex.from_product(ways.values(), names=ways).to_frame(index=False)
    frame['mean'] = frame.eval('100 * seed + 10 * layer + head + 500 * (statistic == "self")')
    return coloured(frame, 'heads', {'mean': ()}, 'statistic', 'seed')


def test_numbers_are_those_of_frames_and_words_are_classes():
    found = {each['name']: each for each in grids({'a': named(), 'b': numbered()}, HEADS)}
    assert found['a']['columns'] == ['difference', 'examples']
    assert found['a']['about'] == [0] and found['a']['beside'] == [[1], []]
    (only,) = found['a']['sets']
    assert only['values'] == [[0.12346, 0.5, None, -0.25, 1e-7, 12.0], [7.0] * 6]
    assert only['of'] == '' and only['classes'] == [] and found['a']['axis'] == 'heads'
    assert [each['of'] for each in found['b']['sets']] == [
        '[CLS], seed 0', '[CLS], seed 1', 'self, seed 0', 'self, seed 1',
    ]  # fmt: skip
    assert found['b']['sets'][1]['values'] == [[111, 112, 113, 121, 122, 123]]
    # The order of rows does not matter.
    assert grids({'a': named([5, 0, 3, 1, 2, 4])}, HEADS) == grids({'a': named()}, HEADS)
    assert grids({'a': named()}, None) == []
    (found,) = grids({'a': layered()}, HEADS)
    assert found['axis'] == 'layers' and found['beside'][0] == [1, 2, 3]
    assert [each['of'] for each in found['sets']] == ['F1', 'accuracy']
    assert found['sets'][0]['values'][0] == [-0.25, 0.0625]
    assert found['columns'] == ['difference', 'low', 'high', 'p']
    _, words = grids(classed(), HEADS)
    assert words['sets'][0]['classes'] == [('mostly', KINDS)]


def test_other_frames_are_left_to_their_files():
    """A head is missing, as in that of another model; nothing is declared; too many; none."""
    many = pandas.concat([named().assign(seed=seed) for seed in range(61)])
    bare = pandas.DataFrame({'disabled': named()['disabled'], 'mean': VALUES})
    left = [named()[:5], bare, coloured(many, 'heads', {'difference': ()}, 'seed'), named()[:0]]
    assert [grids({'a': frame}, HEADS) for frame in left] == [[]] * 4


SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10">'
    '<path d="M0 0H10V10H0z" style="fill: #ffffff"/></svg>'
)

MARKS = Part('marks', Shown(marks=(marked(at=[(0, 0)]),)))
UNIFORM = TokenMaps(['[CLS]', 'it', '[SEP]'], np.full((2, 3, 3, 3), 1 / 3))
MAPS = Part('maps', Shown(maps={'it': [UNIFORM]}))


@pytest.fixture
def parts():
    """A result with marks, one with numbers, one that names a head and has a figure."""
    said, made_by = Shown(said=(finding('The most is in L2-H2.'),)), ('Python', 'bs.ablation(x)')
    return [
        MARKS,
        Part('ablation', Shown({'heads': named()}), made_by=(made_by,)),
        Part('said', said, folder='mrpc/').with_pictures([Picture('curve', SVG, 'A curve.')]),
    ]


def coloured_by(marks):
    """A part whose result colours the heads of the atlas by these marks."""
    about = {'marks': marks, 'sentences': marks}
    return Part('atlas', Shown(marks=(HeadMarks(title='does', drawn='colour', rank=0, **about),)))


@pytest.fixture
def open_page(visit, tmp_path):
    """Return what writes a page of some parts, and opens it in a tab."""
    return lambda parts, **settings: visit(written(tmp_path, parts), **settings)


def unfold(tab):
    """Open all sections, and what stands below the first figure of each."""
    tab.evaluate("for (const each of document.querySelectorAll('.part')) each.open = true")
    for each in tab.locator('.more > summary').all():
        each.click()


def shown_in(tab, name):
    """The figure of a page with such a name."""
    return tab.locator('figure', has_text=f'Shows {name}.')


def told(figure, link, at=0):
    """What a figure says of the head, or the layer, that is pointed at."""
    figure.locator(link).nth(at).hover()
    return figure.locator('output').inner_text()


def boxes(cells):
    """The left and upper ends, widths and heights of some cells [cells, 4]."""
    found = [each.bounding_box() for each in cells.all()]
    return np.array([[box[name] for name in ('x', 'y', 'width', 'height')] for box in found])


SORTED = 'as a grid, the heads of each layer sorted'


def test_a_page_says_where_its_files_are_and_what_made_them(tmp_path, parts):
    page = written(tmp_path, parts)
    for suffix in ('pdf', 'svg', 'png'):
        assert f'href="mrpc/figures/curve.{suffix}"' in page
    assert 'href="ablation_heads.csv"' in page and 'bs.ablation(x)' in page
    heads = {'head': ['L1-H1'], 'published_head': ['L1-H2'], 'paper: BERT': ['L1-H3']}
    page = written(tmp_path, [parts[0], Part('x', Shown({'t': pandas.DataFrame(heads)}))])
    assert '<td><a href="#L1-H1">L1-H1</a></td><td>L1-H2</td><td>L1-H3</td>' in page


CHANGE = plots.Source('heads', 'difference', times=100)


def picture(name, figure, source=None, part='x'):
    """A figure of a page, which shows a column of a frame."""
    figure.source = source
    return Picture(name, SVG, f'Shows {name}.', figure_numbers(figure, part))


def change(title='Change'):
    """A grid of the change of heads, in points."""
    grids = {title: 100 * np.reshape(VALUES, (2, 3))}
    return plots.head_grids(grids, label='change (points)', differences=True)


def test_figures_of_other_things_stay_images():
    drawn = figure_numbers(change(), 'x')
    assert traced(None, [], HEADS) is None and traced(drawn, [], None) is None
    assert traced(drawn, [], ('', 3, 2)) is None
    assert figure_numbers(plots.learning_curves({}, label='x'), 'x') is None


def layered():
    """A frame as that of a test of every layer, in shares, for two metrics."""
    change = np.array([-0.25, 0.0625, 0.25, -0.0625])
    of = {'metric': ['f1', 'f1', 'accuracy', 'accuracy'], 'disabled': ['L1', 'L2'] * 2}
    numbers = {'difference': change, 'low': change - 0.1, 'high': change + 0.1}
    frame = pandas.DataFrame({**of, **numbers, 'p_value': [0.04, 0.08] * 2})
    return coloured(frame, 'layers', {'difference': ('low', 'high', 'p_value')}, 'metric')


SHARES = np.array([0.6, 0.4, 0.5, 0.3, 1.0, 0.7])
KINDS = ['column', 'block', 'column', 'block', 'column', 'column']
SCORES = np.array([[0.1, 0.2, 0.9], [0.3, 0.5, 0.4]])
OWN = ['vertical', 'my own', 'another thing']


def classed():
    """The shares of two classes of every head, and a word for each."""
    heads = numbered()[['layer', 'head']][:6]
    shares = pandas.concat(
        heads.assign(statistic=f'pattern: {name}', mean=each, standard_error=error, examples=9)
        for name, each, error in (('vertical', SHARES, 0.01), ('block', 1 - SHARES, 0.02))
    )
    words = heads.assign(mostly=KINDS, nearest=[f'L1-H{at}' for at in range(6)], distance=VALUES)
    return {
        'shares': coloured(shares, 'heads', {'mean': ('standard_error', 'examples')}, 'statistic'),
        'words': coloured(words, 'heads', {'distance': (), 'mostly': ()}),
    }


@pytest.fixture
def others():
    """A result with figures of classes, features, layers and points.

    Points stand above their layers, beside scores, and on a plane.
    """
    one, points = SHARES.reshape(2, 3), 100 * layered()['difference'].to_numpy()[:2]
    shares, of = np.stack([one, 1 - one], axis=-1), partial(plots.Source, 'shares', 'mean')
    book = {'label': 'share', 'published_name': 'book'}
    means = np.array([[561, 562, 563], [571, 572, 573.0]])
    sure = {'low': VALUES - 0.1, 'high': VALUES + 0.1, 'p_value': 0.04, 'holm': 0.5, 'examples': 7}
    heads = coloured(named().assign(**sure), 'heads', {'difference': tuple(sure)})
    figures = {
        'heads': (change(), CHANGE),
        'two': (
            plots.head_grids(
                {'one': VALUES.reshape(2, 3), 'other': np.zeros((2, 3))}, label='share',
                limits=(0.0, 12.0), marked={'other': np.eye(2, 3)},
            ),
        ),
        'classes': (
            plots.class_grids({'before': shares, 'after': shares}, ['vertical', 'block']),
            of('pattern: {}'),
        ),
        'features': (
            plots.feature_matrices({'now': shares[1]}, ['a', 'b'], label='x', layer=1),
            {'now': of('pattern: vertical'), ('now', 'b'): of('pattern: block')},
        ),
        'layers': (
            plots.layer_effects(
                points, points - 10, points + 10, label='change (points)',
                published=np.array([-1.5, 0.5]), published_name='paper',
            ),
            plots.Source('layers', 'difference', 'f1', times=100),
        ),
        'above': (
            plots.head_points(
                {'one': {'pattern: vertical': one, 'pattern: block': 1 - one}}, label='share',
                published={'pattern: block': np.array([0.5, np.nan])},
                published_name='paper',
            ),
            of(),
        ),
        'beside': (
            plots.head_scatter(
                {'first': SCORES, 'second': -SCORES}, one, label='loss (nats)', across_label='score'
            ),
            of('pattern: vertical'),
        ),
        'alone': (
            plots.head_points({'one': {'a': one}}, published={'b': np.ones(2)}, **book),
            plots.Source('a file alone', 'mean'),
        ),
        'own': (plots.class_grids({'now': np.eye(3)[[0, 1, 2, 2, 2, 2]].reshape(2, 3, 3)}, OWN),),
        'means': (plots.head_grids({'self': means}, label='x'), plots.Source('seeds', 'mean')),
        'profile': (
            plots.layer_profiles({'self': means}, label='x', published={'self': means[:, :2]}),
            plots.Source('seeds', 'mean'),
        ),
        'plane': (
            plots.planes(
                np.stack([SCORES, 2 * SCORES], axis=-1), kinds=KINDS,
                order=['column', 'block', 'none'],
            ),
        ),
    }  # fmt: skip
    result = Shown(
        {'layers': layered(), **classed(), 'seeds': numbered(), 'heads': heads},
        (finding('It is L2-H3.'),),
    )
    pictures = [Picture('x_curve', SVG, 'A curve.')]
    pictures += [picture(f'x_{name}', *each) for name, each in figures.items()]
    atlas = coloured_by(np.array([*OWN[:2], '', '', '', ''], object).reshape(2, 3))
    return [atlas, Part('x', result).with_pictures(pictures)]


@pytest.fixture(params=[390, 1400])
def tab(open_page, others, request):
    """The page of the others, unfolded, which is never wider than its window."""
    tab = open_page(others, viewport={'width': request.param, 'height': 800})
    unfold(tab)
    yield tab
    assert widest(tab) <= request.param


def test_pointing_at_a_head_tells_the_numbers_of_the_file(tab):
    """A list has the same, one row for each head."""
    sure, unsure = (f'standard error {error}, examples 9' for error in (0.01, 0.02))
    of_two = 'mean of 2 fine-tunings'
    tested = 'interval 40 to 60, p 0.04, holm 0.5, examples 7'
    for name, link, at, said, row, cells in (
        ('heads', '#L1-H2', 0, f'L1-H2, Change: 50, {tested}.', 1, ['L1-H2', '50', tested]),
        ('two', '#L2-H2', 1, 'L2-H2, other: 0, open circle.', -1, ['L2-H3', '12', '', '0', '']),
        ('classes', '#L1-H1', 0, f'L1-H1, before: vertical 0.6, {sure}, block 0.4, {unsure}.',
         1, ['L1-H2', 'block', '0.6']),
        ('features', '#L2-H3', 0, f'L2-H3, a, now: 0.7, {sure}.', -1, ['L2-H3', '0.7', '0.3']),
        ('features', '#L2-H3', 1, f'L2-H3, b, now: 0.3, {unsure}.', 0, ['L2-H1', '0.3', '0.7']),
        ('above', '#L2-H3', 0, f'L2-H3, one: pattern: vertical 0.7, {sure}.',
         -1, ['L2-H3', '0.7', '0.3']),
        ('beside', '#L1-H2', 1, f'L1-H2, second: score -0.2, loss (nats) 0.4, {sure}.',
         1, ['L1-H2', '0.2', '0.4', '-0.2', '0.4']),
        ('means', '#L1-H1', 0, f'L1-H1, self: 561, {of_two}, 511 to 611.',
         1, ['L1-H2', '562', f'{of_two}, 512 to 612']),
        ('alone', '#L1-H1', 0, 'L1-H1, one: a 0.6.', 1, ['L1-H2', '0.4']),
        ('plane', '#L1-H2', 0, 'L1-H2, what they mostly do: block.', 1, ['L1-H2', 'block']),
    ):  # fmt: skip
        figure = shown_in(tab, f'x_{name}')
        figure.locator('select').select_option(index=0)
        assert told(figure, f'a[href="{link}"]', at) == said
        figure.locator('select').select_option('as a list')
        listed = figure.locator('tbody tr').nth(row).locator('td').all_inner_texts()
        assert listed[: len(cells)] == cells
    assert figure.locator('thead th').first.inner_text() == 'head'


def test_a_figure_of_heads_is_a_grid_with_its_image_one_click_away(tab):
    """It stands before the curve. Grids of one figure have one scale."""
    figure = tab.locator('figure').first
    assert figure.locator('table.heads').is_visible() and not figure.locator('img').is_visible()
    figure.locator('summary').click()
    assert figure.locator('img').is_visible()
    files = figure.locator('.file a').all_inner_texts()
    assert files == ['PDF', 'SVG', 'PNG', 'x_heads.csv']
    figure = shown_in(tab, 'x_two')
    fills = colours(figure.locator('.heads a'))
    # 0.0000001 of twelve has the colour of nothing, though the other grid has nothing else.
    assert fills[4] == fills[6] != fills[5]
    assert figure.locator('.key').inner_text().split() == ['0', '12', 'share', '(dark:', 'more)']
    figure.locator('select').select_option(SORTED)
    letters = figure.locator('.heads a').all_inner_texts()[:6]
    assert letters == ['H2', 'H1', 'H3', 'H3', 'H2', 'H1']


def test_classes_have_one_colour_and_letter_each_and_are_sorted(tab):
    figure = shown_in(tab, 'x_classes')
    cells = figure.locator('.heads a')
    fills, letters = colours(cells), cells.all_inner_texts()
    # On both grids; what is rarer is paler.
    assert fills[:6] == fills[6:] and fills[4] != fills[0] != fills[5]
    assert letters[0] == letters[4] == letters[5] != letters[1] == letters[3]
    figure.locator('select').select_option(SORTED)
    # Heads of the first class first, those of its greatest share before others.
    assert cells.all_inner_texts()[3:6] == ['H2', 'H3', 'H1']
    # As in the atlas; one that the atlas has not, and nobody knows, gets its look from its name.
    here, there = shown_in(tab, 'x_own').locator('.heads a'), tab.locator('.whole a.head')
    assert colours(here)[:2] == colours(there)[:2]
    drawn, in_atlas = (
        each.evaluate_all(
            """all => all.map(each => [each.dataset.letter || each.textContent,
              each.className.replace('head', '').trim()])"""
        )
        for each in (here, there)
    )
    looks = [[one.letter, one.pattern] for one in map(look, OWN)]
    assert drawn[:3] == looks and in_atlas[:2] == looks[:2]


def test_pointing_at_a_layer_tells_value_interval_and_p(tab):
    figure = shown_in(tab, 'x_layers')
    said = 'L1, Change (points): -25, interval -35 to -15, p 0.04, paper -1.5.'
    assert told(figure, '.layer') == said
    # Of heads it shows the mean.
    said = 'L1, self: 562, range of heads 561 to 563, mean of 3 heads, published 561.5.'
    assert told(shown_in(tab, 'x_profile'), '.layer') == said
    # One stop of the tab key; arrows go on.
    assert figure.locator('.layer[tabindex="0"]').count() == 1
    figure.locator('.layer[tabindex="0"]').focus()
    tab.keyboard.press('ArrowDown')
    assert figure.locator('output').inner_text().startswith('L2, ')
    # A bar of a fall ends where that of a rise begins.
    (fall, _, long, _), (rise, _, short, _) = boxes(figure.locator('.layers .bar'))[:2]
    assert fall + long == pytest.approx(rise, abs=1) and long == pytest.approx(4 * short, rel=0.05)
    figure.locator('select').select_option('as bars, sorted')
    assert figure.locator('.layer b').all_inner_texts() == ['L2', 'L1']


def test_points_stand_above_their_layers(tab):
    figure = shown_in(tab, 'x_above')
    # Greater shares stand higher; heads of one layer in one column for each colour.
    x, y, wide, high = boxes(figure.locator('.cloud a')).T
    heights, middles = y + high / 2, x + wide / 2
    drawn = np.array([*SHARES, *(1 - SHARES)])
    slope = (heights[4] - heights[3]) / (drawn[4] - drawn[3])
    np.testing.assert_allclose(heights, heights[0] + slope * (drawn - drawn[0]), atol=0.6)
    assert len(set(np.round(middles))) == 4 and middles[0] < middles[6] < middles[3] < middles[9]
    # One number of two was published, two colours have a mean in each of two layers.
    counts = [figure.locator(f'.cloud {each}').count() for each in ('a', '.dot', '.mean')]
    assert counts == [12, 1, 4]
    assert 'paper' in figure.inner_text()
    # Where nothing that is drawn was published, no sign is explained.
    alone = shown_in(tab, 'x_alone')
    assert alone.locator('.dot').count() == 0 and 'book' not in alone.inner_text()


def test_points_of_a_scatter_and_of_a_plane_stand_where_their_numbers_say(tab):
    clouds = shown_in(tab, 'x_beside').locator('.cloud')
    for at, scores in enumerate((SCORES, -SCORES)):
        left = boxes(clouds.nth(at).locator('a'))[:, 0]
        np.testing.assert_array_equal(np.argsort(left), np.argsort(scores.ravel()))
    points = shown_in(tab, 'x_plane').locator('.cloud a')
    letters = points.all_inner_texts()
    assert letters[0] == letters[2] == letters[4] != letters[1] == letters[3]
    # The same length is the same distance either way: the plane is twice as high as wide.
    across, up, *_ = boxes(points)[2] - boxes(points)[0]
    assert -up == pytest.approx(2 * across, rel=0.02)
    points.nth(2).click()
    assert tab.evaluate('location.hash') == '#L1-H3'


def test_all_numbers_of_a_result_are_bars_of_layers_and_classes_of_heads(tab):
    numbers = tab.locator('.bs-grids', has_text='All numbers')
    numbers.locator('summary').click()
    numbers.get_by_label('Numbers of').select_option('accuracy')
    assert numbers.get_by_label('Shown').locator('option').all_inner_texts()[0] == 'as bars'
    said = 'L2, accuracy: difference -0.0625, interval -0.1625 to 0.0375, p 0.08.'
    assert told(numbers, '.layer', 1) == said
    numbers.get_by_label('Numbers of').select_option('Shown <here>: words')
    # An unknown value is said to be so, and has no colour.
    assert told(numbers, 'a[href="#L1-H3"]') == 'L1-H3: distance –, mostly: column.'
    assert numbers.locator('a[href="#L1-H3"]').get_attribute('style') is None
    assert numbers.locator('a[tabindex="0"]').count() == 1
    numbers.get_by_label('Coloured by').select_option('mostly')
    assert told(numbers, 'a[href="#L2-H1"]') == 'L2-H1: distance -0.25, mostly: block.'
    tab.click('.part > p a[href="#L2-H3"]')
    tab.locator('.card td', has_text='column').wait_for(state='attached')


def test_figures_say_what_was_found(tmp_path):
    names = '[CLS]', 'entropy (nats)', 'heads: best to lose', 'heads: worst to lose'
    said = [dataclasses.replace(finding(f'{name} is so.'), name=name) for name in names]
    files = 'x_curve', 'x_entropy_nats', 'x_heads'
    pictures = [Picture(name, SVG, 'A caption.') for name in files]
    pictures.append(picture('x_kinds', change(names[1])))
    page = written(tmp_path, [Part('x', Shown(said=said)).with_pictures(pictures)])
    first, second, *last = (f'{name} is so.' for name in names)
    assert re.findall('alt="(.*?)"', page) == [first, second, ' '.join(last), second]


def test_with_maps_the_numbers_stand_below_them_and_colour_the_explorer(open_page, parts):
    tab = open_page([*parts, MAPS])
    tab.click('.bs-atlas a[href="#L1-H1"]')
    assert tab.inner_text('.bs-explorer .card h3') == 'All numbers of L1-H1'
    # What the atlas says in words stands above, and the numbers are folded.
    assert tab.inner_text('.bar + .said') == 'Says 1 of <it>.'
    assert count(tab, '.card details[open]') == 0
    tab.click('.bs-explorer button[aria-label="next head"]')
    tab.locator('.card h3', has_text='All numbers of L1-H2').wait_for()
    assert count(tab, '.card') == 1
    press(tab, 'Escape')
    tab.locator('.card').wait_for(state='detached')
    tab.click('.further summary')
    # The number of examples is the same for all heads.
    assert texts(tab, '[aria-label="Heads by"] option') == ['their maps', 'difference']


@pytest.mark.parametrize('theme', ['light', 'dark'])
def test_what_is_printed_has_everything(open_page, parts, theme):
    wide = pandas.DataFrame({f'column {at}': [f'value {at}'] for at in range(24)})
    part = Part('wide', Shown({'t': wide}, tuple(finding(f'{at}.') for at in 'ab')))
    part = part.with_pictures([Picture('wide_curve', SVG, 'A curve.')])
    tab = open_page([*parts, part], color_scheme=theme, viewport={'width': 390, 'height': 700})
    folded = lambda: count(tab, '.more[open]') == 0 and unfolded(tab) == []
    assert folded()
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert count(tab, 'details:not([open], .image, .bs-grids)') == 0
    # The width of A4 without its margins.
    tab.set_viewport_size({'width': 703, 'height': 900})
    tab.emulate_media(media='print', color_scheme=theme)
    table = tab.locator('.table').last
    (x, _, width, _), *_ = boxes(table)
    assert x >= 0 and x + width <= 703 and widest(tab) <= 703
    assert table.evaluate('each => each.scrollWidth <= each.clientWidth')
    assert colours(tab.locator('body')) == [[255, 255, 255]]
    kept = 'each => getComputedStyle(each).printColorAdjust'
    assert tab.eval_on_selector('.bs-atlas a.head', kept) == 'exact'
    tab.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded()


@pytest.mark.parametrize(('worse', 'meaning'), [(-1, 'red: less'), (1, 'red: more')])
@pytest.mark.parametrize(
    ('size', 'tested', 'sure'),
    [
        (1, 'p_holm', 'With a dot: significant (1 of 6 heads; p corrected (Holm): at most 0.05).'),
        (1 / 15, 'p', 'No effect shown: p is above 0.05 for every head.'),
    ],
)
def test_effects_are_as_red_as_they_are_large(open_page, worse, meaning, size, tested, sure):
    """Small ones are pale, what is worse is red, and what is significant has a dot, everywhere."""
    effects = -worse * size * np.array([-0.02, 0.01, -0.01, 0, -0.3, -0.02])
    p_values = np.array([0.2, 0.2, 0.2, 0.2, 0.2 * (size < 1), 0.2])
    frame = named().assign(**{'difference': effects, tested: p_values})
    red = {('difference', ''): worse * 0.3}
    frame = coloured(frame, 'heads', {'difference': (tested,)}, red=red)
    figure = plots.effect_grid(100 * effects.reshape(2, 3), label='points', red=worse * 30.0)
    pictures = [picture('ablation_heads', figure, CHANGE, 'ablation')]
    tab = open_page([MARKS, Part('ablation', Shown({'heads': frame})).with_pictures(pictures)])
    inks = colours(tab.locator('.whole a.head'), 'color')
    tab.select_option('.bs-atlas select', 'effect of losing it (points)')
    unfold(tab)
    tab.click('.bs-grids > summary')
    tab.locator('.bs-grids .heads').wait_for()
    for place in ('.whole a.head', '.bs-figure .heads a', '.bs-grids .heads a'):
        *pale, (red, _, blue), last = colours(tab.locator(place))
        assert min(map(sum, [*pale, last])) > 650
        assert red > blue and (red + blue < 200) == (size == 1)
    for place in ('.bs-atlas .legend', '.bs-figure .key', '.bs-grids .key'):
        said = tab.inner_text(place)
        assert meaning in said and 'Full colour: a change that these texts would show' in said
    hashes = tab.eval_on_selector_all('.whole a.significant', 'all => all.map(each => each.hash)')
    assert hashes == ['#L2-H2'] * (size == 1)
    assert sure in tab.inner_text('.bs-atlas .legend')
    tab.fill('.search input', 'What is the most important head?')
    assert tab.inner_text('.search li') == (
        f'Greatest effect of losing it (points): L2-H2 ({round(30 * worse * size)}). {sure} '
        '(what losing a head does)'
    )
    # The white words of dark cells do not stay when cells are light again.
    tab.select_option('.bs-atlas select', ALL)
    assert colours(tab.locator('.whole a.head'), 'color') == inks


def test_search_finds_sentences_and_heads_whose_numbers_open(open_page, parts):
    tab = open_page(parts)

    def found(asked):
        tab.fill('.search input', asked)
        return texts(tab, '.search li')

    assert set(found('l2-h2')) == {'L2-H2', 'The most is in L2-H2'}
    tab.locator('.search li a[href="#L2-H2"]', has_text='L2-H2').first.click()
    assert tab.inner_text('.card h3') == 'All numbers of L2-H2'
    assert texts(tab, '.card tbody td') == ['', '1.00e-7', '7']
    tab.click('.bs-atlas a[href="#L1-H1"]')
    for name in ('L1-H1', 'L2-H2'):
        wait_until(tab, f"document.querySelector('.card h3').textContent.endsWith('{name}')")
        assert count(tab, '.card') == 1
        tab.go_back()
    assert found('nowhere')[0].startswith('Nothing on this page. Ask for')
    # In a reader's words, with what they were taken for.
    first = found('Which head looks at the following token?')[0]
    assert first == 'L1-H1, next token (attention to the next token)'
    found('colour effect')
    tab.click('.search li a')
    assert tab.get_attribute('.whole a[href="#L1-H2"]', 'aria-label') == (
        'L1-H2, effect of losing it (points) 50'
    )
    # The list covers the page only while it is used.
    for leave in (lambda: tab.mouse.click(5, 5), lambda: press(tab, 'Escape')):
        answers = found('l')
        assert 0 < len(answers) <= 13 and len(answers) == len(set(answers))
        leave()
        assert tab.is_hidden('.search ul')


@pytest.fixture
def telephone(open_page, parts):
    """Return what opens a page at the width of a telephone, at an address in it."""
    small = {'width': 390, 'height': 700}
    return lambda address='': open_page([*parts, MAPS], address=address, viewport=small)


def unfolded(tab):
    """The places of the sections that are not folded."""
    return tab.eval_on_selector_all(
        '.part', 'all => all.flatMap((each, at) => each.open ? [at] : [])'
    )


def test_on_a_telephone_the_page_is_the_atlas_and_a_list_of_sections(telephone, open_page, parts):
    tab = telephone()
    assert unfolded(tab) == [] and tab.is_visible('.bs-atlas .head')
    assert count(tab, '.part > summary h3') == 4
    # They stand in one list only.
    assert tab.is_hidden('nav ol')
    assert tab.evaluate('document.documentElement.scrollHeight') < 1500
    tab.focus('.part > summary >> nth=1')
    for opened in ([1], []):
        press(tab, 'Enter')
        assert unfolded(tab) == opened
    # Wide screens have everything open.
    assert unfolded(open_page(parts, viewport={'width': 1400, 'height': 700})) == [0, 1, 2]


def test_a_link_to_what_is_folded_opens_it_and_search_finds_it(telephone):
    tab = telephone()
    tab.fill('.search input', 'the most is in')
    press(tab, 'Enter')
    wait_until(tab, "document.querySelectorAll('.part')[3].open")
    assert tab.locator('.part .answer', has_text='L2-H2').is_visible()
    # A head opens on a sheet, above which its link stays in view; Escape leads back to it.
    tab.click('.part > p a')
    (_, above, _, high), (_, opened, _, height) = (
        boxes(tab.locator(each))[0] for each in ('.part > p a', '.sheet .detail')
    )
    assert above >= 0 and above + high <= opened < 600
    assert opened + height == pytest.approx(700, abs=1)
    press(tab, 'Escape')
    assert tab.evaluate('document.activeElement.hash') == '#L2-H2'
    assert count(tab, '.sheet .detail') == 0
    tab.click('.part > summary >> nth=3')
    # Where both have room, it stands beneath the atlas.
    tab.click('.bs-atlas a[href="#L1-H2"]')
    assert unfolded(tab) == [0] and count(tab, '.sheet .detail') == 0
    atlas, *_, head = boxes(tab.locator('.whole, .detail h3'))[:2, 1]
    # Browsers scroll by whole pixels.
    assert -1 < atlas < head < 500
    # An address that is there already is followed again.
    tab.evaluate("location.hash = '#part2'")
    wait_until(tab, "document.querySelectorAll('.part')[2].open")
    tab.click('.part > summary >> nth=2')
    tab.evaluate('document.querySelector(\'nav a[href="#part2"]\').click()')
    wait_until(tab, "document.querySelectorAll('.part')[2].open")


@pytest.mark.parametrize(
    ('address', 'opened'),
    [('#L2-H3', [0]), ('#part2', [2]), ('#heads', []), ('#%ff', []), ('#%22L1-H1', [])],
)
def test_what_an_address_names_is_open_from_the_beginning(telephone, address, opened):
    tab = telephone(address)
    assert unfolded(tab) == opened and (tab.evaluate('scrollY') > 0 or not opened)


@pytest.mark.parametrize(
    ('theme', 'width'),
    rarely([('light', 390), ('light', 1400), ('dark', 390), ('dark', 1400)], often=[('dark', 390)]),
)
def test_axe_finds_nothing_that_shuts_anybody_out(visit, tmp_path, parts, others, theme, width):
    axe = pytest.importorskip('axe_playwright_python')
    script = (pathlib.Path(axe.__file__).parent / 'axe.min.js').read_text('utf-8')
    scores = {'signed': np.array([-1.0, 0.1, 1.0]), 'shares': np.array([0.0, 0.5, 1.0])}
    scored = Part('maps', Shown(maps={'it': [dataclasses.replace(UNIFORM, scores=scores)]}))
    page = written(tmp_path, [*parts, others[1], scored])
    tab = visit(page, color_scheme=theme, bypass_csp=True, viewport={'width': width, 'height': 800})
    tab.evaluate(script)

    def look():
        found = tab.evaluate('axe.run()')
        assert len(found['passes']) > 20
        worst = [each for each in found['violations'] if each['impact'] in ('serious', 'critical')]
        assert [(each['id'], each['nodes'][0]['html']) for each in worst] == []

    if width == 390:
        look()
    unfold(tab)
    for each in tab.locator('.bs-grids summary').all():
        each.click()
    tab.click('.further summary')
    for method in scores:
        tab.select_option('[aria-label="Scores of tokens"]', method)
        look()
    tab.click('.bs-atlas a[href="#L1-H1"]')
    look()
    (paper,) = colours(tab.locator('.bs-explorer'))
    assert (min(paper[:3]) > 200) == (theme == 'light')


@pytest.mark.parametrize(('theme', 'colour'), [('light', 255), ('dark', 0x16)])
def test_figures_are_dark_where_the_page_is(open_page, parts, theme, colour):
    tab = open_page(parts, color_scheme=theme)
    unfold(tab)
    seen = Image.open(io.BytesIO(tab.locator('figure img').screenshot()))
    assert seen.getpixel((5, 5))[0] == colour


def test_a_finger_is_told_first_and_taken_there_by_its_second_tap(open_page, others):
    tab = open_page(others, viewport={'width': 390, 'height': 700}, has_touch=True, is_mobile=True)
    unfold(tab)
    for place, at in (('.bs-atlas', 1), ('.bs-figure', 4)):
        cell, readout = tab.locator(f'{place} a').nth(at), tab.locator(f'{place} output').first
        before, name = tab.evaluate('location.hash'), cell.get_attribute('href')
        cell.tap()
        assert readout.inner_text().startswith(name[1:]) and tab.evaluate('location.hash') == before
        assert readout.bounding_box()['y'] < 700
        cell.tap()
        assert tab.evaluate('location.hash') == name


def test_an_address_of_no_head_says_so(open_page, parts):
    for address, lost in (('#L2-H2', ''), ('#L9-H9', 'This page has no head L9-H9.')):
        tab = open_page(parts, address=address)
        assert tab.inner_text('.search + p') == lost
    for address, hidden in (('L1-H1', ''), ('l1-h1', '!'), ('part1', '')):
        tab.evaluate(f"location.hash = '#{address}'")
        wait_until(tab, f"{hidden}document.querySelector('.search + p').hidden")


def test_the_names_of_sorted_heads_fit_into_narrow_panels(open_page):
    values = {f'panel {at}': np.random.default_rng(at).random((2, 12)) for at in range(4)}
    grid = picture('x', plots.head_grids(values, label='x'))
    result = Shown(said=(finding('It is L2-H12.'),))
    atlas = coloured_by(np.full((2, 12), 'self', object))
    tab = open_page([atlas, Part('x', result).with_pictures([grid])])
    unfold(tab)
    figure = shown_in(tab, 'x')
    figure.locator('select').select_option(SORTED)
    cut_off = """all => all.filter(each => each.scrollWidth > each.clientWidth + 1
      || each.scrollHeight > each.clientHeight + 1).map(each => each.textContent)"""
    assert figure.locator('.panels > div').count() == 4
    assert figure.locator('.sorted a').evaluate_all(cut_off) == []
