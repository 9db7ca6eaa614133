"""Texts of figures and pages are shown as they are, whatever they are."""

import inspect
import io
import itertools
import logging
import re
import warnings
import xml.etree.ElementTree

import matplotlib
import matplotlib.figure
import matplotlib.image
import numpy as np
import pytest
from matplotlib.text import Text

from bert_secrets_jax import plots
from bert_secrets_jax.names import code_point, visible
from bert_secrets_jax.plots import texts

SCRIPTS = ('中文', '한국어', 'ひらがな', 'नमस्ते', 'ไทย', '😀', '👩\u200d🚀', '\U0001d518')
FROM_THE_RIGHT = ('שלום', '##שלום', 'مرحبا', 'abc שלום (1)', 'שלום: share', 'می\u200cخواهم')
HIDDEN = (
    'tab\there', 'nul\x00', 'esc\x1b[0m', '\udc80file', 'json\ud800', 'zero\u200bwidth',
    '\ufeffbom', 'gpj.\u202eexe', '\u2066isolate\u2069', 'line\u2028', '\ufffe\uffff', 'c\x85',
)  # fmt: skip
MARKUP = (
    '$', '\\', r'$\frac$', '$a', r'\$', '$a$ b', '100 %s', 'a_b^c', '_private', '{x}',
    '<script>alert(1)</script>', '</script>', '<!-- x', ']]>', '&amp; &', '\'"`', 'e\u0301', ' ',
)  # fmt: skip
LONG = ('x' * 10_000, '中' * 10_000, 'e' + '\u0301' * 10_000, '\x00' * 10_000)
NASTY = (*MARKUP, *HIDDEN, *FROM_THE_RIGHT, *SCRIPTS, *LONG)
LINES = ('two\nlines', 'a\n' * 5_000)


TEXTS = itertools.cycle(NASTY + LINES)


def some(count):
    """Return the next of the texts."""
    return list(itertools.islice(TEXTS, count))


def of(value, count=2):
    """Return a value by each of the next texts."""
    return dict.fromkeys(some(count), value)


GRID = np.random.default_rng(0).random((2, 3))
SQUARE = np.random.default_rng(1).dirichlet(np.ones(len(NASTY)), len(NASTY))
SHARES = np.full((2, 3, 5), 0.2)
ENDS = (GRID[0], GRID[0] - 1, GRID[0] + 1)
POINTS = [{'seed': 0, 'epoch': epoch, 'score': epoch / 4} for epoch in range(3)]
FIRST, SECOND = some(2), some(2)


def call(*arguments, **named):
    return arguments, named


# The arguments of each function but for its labels. All texts of ours among them are shown.
DRAWINGS = {
    'head_grids': call(of(GRID)),
    'effect_grid': call(GRID, extremes=of((GRID[0], 0.1, 0.9), 4)),
    'interaction_matrix': call(of(SQUARE[:9, :9], 1), some(9)),
    'planes': call(SQUARE[:6, :2].reshape(2, 3, 2), kinds=FIRST * 3, order=[*FIRST, 'none']),
    'dimensions_by_layer': call(of(GRID), of(1), bound=0.5),
    'beside_random': call(GRID[0], of((0.1, 0.0, 0.2), 3)),
    'feature_matrices': call(of(SQUARE[:2, :12], 1), some(12), layer=0),
    'class_shares': call(of(SHARES[0, 0], 9), some(5)),
    'share_bars': call(of(SHARES[0, 0], 9), of('#dddddd', 5)),
    'class_grids': call(of(SHARES), some(5)),
    'class_examples': call(of([(*some(1), SQUARE)], 5) | {'none': []}),
    'head_maps': call(of(SQUARE, 1), NASTY, sources=range(0, 48, 2), targets=[1, 3]),
    'layer_profiles': call(dict.fromkeys(FIRST, GRID), published=dict.fromkeys(FIRST, GRID)),
    'layer_curves': call(of(ENDS) | {'a': ENDS}, limits=(0.0, 1.0), published={'a': 0.5}),
    'layer_effects': call(GRID[0], GRID[0], GRID[0], published=GRID[1]),
    'learning_curves': call(of(POINTS, 4)),
    'head_points': call(of(dict.fromkeys(FIRST, GRID)), published={FIRST[0]: GRID[:, 0]}),
    'points_by_row': call(some(3), of((GRID[0], GRID[0] / 2, GRID[0] * 2))),
    'head_scatter': call(of(GRID, 3), GRID - 0.5),
    'pruning_curves': call(of(ENDS, 3), np.array([1.0, 0.5, 0.2]), full=0.9, random=GRID),
    'scores_by_heads': call(of((np.arange(3), *ENDS)), level=0.4, most=12),
    'distance_preferences': call(np.stack([GRID, GRID], axis=-1)),
    'depth_profiles': call(of(of(GRID[0], 3))),
    'interval_panels': call(
        some(3), dict.fromkeys(SECOND, ENDS), filled=dict.fromkeys(SECOND, GRID[0] > 0.5)
    ),
    'distance_histograms': call(of((np.array([-1, 2]), np.array([3, 4])), 4)),
}


def texts_in(value):
    """Yield our texts among arguments, wherever they stand."""
    if isinstance(value, str):
        yield from {value} & {*NASTY, *LINES}
    elif isinstance(value, dict):
        yield from texts_in([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)


def in_svg(text):
    root = xml.etree.ElementTree.fromstring(text)
    return [each.text or '' for each in root.iter('{http://www.w3.org/2000/svg}text')]


def is_shown(text, found):
    """Return whether a text is among those of an SVG: whole, in lines, or as much as has room."""
    whole, lines = visible(text), visible(text, keep='\n').split('\n')
    # Some functions say more than they are given.
    found = {*found, *(re.sub(r'^from |, x 100$| \(\d+\)$', '', each) for each in found)}
    cut = any(each.endswith('…') and whole.startswith(each[:-1]) for each in found)
    return whole in found or set(lines) <= found or (cut and len(whole) > 20)


def written(figure):
    """Return the texts of a figure but for the numbers, which follow the layout."""
    labels = [
        label
        for axes in figure.axes
        for label in (*axes.get_xticklabels(), *axes.get_yticklabels())
    ]
    found = [text.get_text() for text in [*labels, *figure.findobj(Text)]]
    return sorted({text for text in found if not re.fullmatch(r'[−\d.]*', text)})


def picture(figure, **arguments):
    """Return a figure as a PNG, in the way that notebooks with `%matplotlib inline` take."""
    data = io.BytesIO()
    figure.canvas.print_figure(data, format='png', **arguments)
    return matplotlib.image.imread(io.BytesIO(data.getvalue()))


@pytest.fixture
def no_fonts(monkeypatch):
    """As if the machine had no fonts but Matplotlib's own."""
    monkeypatch.setattr(texts, '_FALLBACKS', ('DejaVu Sans',))


def test_all_functions_are_here():
    functions = {each for each in plots.__all__ if inspect.isfunction(getattr(plots, each))}
    assert set(DRAWINGS) == functions - {'save', 'svg', 'map_grid'}


@pytest.mark.parametrize('function', DRAWINGS)
def test_any_text_is_drawn_as_it_is(function, tmp_path, caplog):
    arguments, named = DRAWINGS[function]
    draw = getattr(plots, function)
    for name, parameter in inspect.signature(draw).parameters.items():
        if parameter.annotation is str:
            named = {name: next(TEXTS)} | named
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter('error')
        figure = draw(*arguments, **named)
        before = written(figure)
        plots.save(figure, tmp_path, 'figure')
    assert caplog.messages == []
    assert written(figure) == before
    svg, pdf, png = ((tmp_path / f'figure.{kind}').read_bytes() for kind in ('svg', 'pdf', 'png'))
    found = in_svg(svg)
    given = texts_in([arguments, named])
    assert [text for text in given if not is_shown(text, found)] == []
    assert max(map(len, found)) <= texts.LONGEST
    assert pdf.startswith(b'%PDF') and pdf.rstrip().endswith(b'%%EOF')
    assert matplotlib.image.imread(io.BytesIO(png)).std() > 0


def test_the_same_texts_give_the_same_files(tmp_path):
    for folder in ('one', 'two'):
        figure = plots.head_maps(
            {'中 $x$': SQUARE[:5, :5]}, ['中', 'שלום', '\udc80', '$', 'x' * 99]
        )
        saved = plots.save(figure, tmp_path / folder, 'figure')
        assert saved == tmp_path / folder / 'figure.svg'
    for suffix in ('svg', 'pdf', 'png'):
        one, two = ((tmp_path / name / f'figure.{suffix}').read_bytes() for name in ('one', 'two'))
        assert one == two


def test_what_no_font_has_is_a_code_point_but_in_svg(no_fonts):
    figure = plots.head_maps({'中': np.eye(3)}, ['##中文', '한', 'so'])
    title, labels = figure.axes[0].title, figure.axes[0].get_yticklabels
    with texts.as_drawn(figure, svg=False):
        assert title.get_text() == '⟨U+4E2D⟩'
        assert [each.get_text() for each in labels()] == ['##⟨U+4E2D⟩⟨U+6587⟩', '⟨U+D55C⟩', 'so']
    with texts.as_drawn(figure, svg=True):
        assert title.get_text() == '中'
    assert [each.get_text() for each in labels()] == ['##中文', '한', 'so']
    assert {'中', '##中文', '한'} <= set(in_svg(plots.svg(figure)))
    assert texts.differs_in_svg(figure) and not texts.differs_in_svg(
        plots.effect_grid(GRID, label='x')
    )


def test_other_fonts_are_asked_for_what_the_first_one_lacks(monkeypatch):
    monkeypatch.setattr(texts, '_FALLBACKS', ('There Is None', 'STIXGeneral', 'DejaVu Serif'))
    figure = plots.head_maps({'⌒': np.eye(2)}, ['plain', '⌒'])
    with texts.as_drawn(figure, svg=False):
        title, label = figure.axes[0].title, figure.axes[0].get_yticklabels()[1]
        assert title.get_text() == label.get_text() == '⌒'
        assert title.get_fontfamily() == label.get_fontfamily() == ['DejaVu Sans', 'STIXGeneral']
    assert title.get_fontfamily() == label.get_fontfamily() == ['DejaVu Sans']
    svg = plots.svg(figure)
    assert svg.count("'STIXGeneral'") == svg.count('>⌒<') == 3


def test_lines_begin_on_the_left_as_in_svg():
    given = ['שלום', '##שלום', 'שלום: share', 'a שלום', '中']
    figure = plots.head_maps({'x\nמ': np.eye(5)}, given)
    with texts.as_drawn(figure, svg=False):
        labels = [each.get_text() for each in figure.axes[0].get_xticklabels()]
        assert figure.axes[0].get_title() == 'x\n\u200eמ'
    assert labels[:4] == ['\u200eשלום', '##\u200eשלום', '\u200eשלום: share', 'a שלום']
    assert set(given) <= set(in_svg(plots.svg(figure)))


@pytest.mark.parametrize(
    ('text', 'size', 'expected'),
    [
        ('x' * 20, 6, 'x' * 20),
        ('x' * 21, 6, 'x' * 19 + '…'),
        ('x' * 41, 9, 'x' * 39 + '…'),
        ('中' * 20, 9, '中' * 20),
        ('中' * 21, 9, '中' * 19 + '…'),
        ('\x00' * 9, 6, '⟨U+0000⟩⟨U+0000⟩…'),
        ('a\nb', 6, 'a⟨U+000A⟩b'),
        ('e' + '\u0301' * 99, 6, 'e' + '\u0301' * 18 + '…'),
    ],
)
def test_labels_end_where_there_is_no_room(text, size, expected):
    figure = plots.class_shares({text: SHARES[0, 0]}, 'abcde')
    figure.axes[0].tick_params(axis='y', labelsize=size)
    with texts.as_drawn(figure, svg=True):
        assert figure.axes[0].get_yticklabels()[0].get_text() == expected


@pytest.mark.parametrize(
    ('text', 'expected'),
    [('x' * 60, 'x' * 60), ('x' * 61, 'x' * 59 + '…'), ('a\nb\nc', 'a\nb\nc'),
     ('a\nb\nc\nd', 'a\nb\nc…'), ('\n' * 9, '\n\n…')],
)  # fmt: skip
def test_titles_have_up_to_three_lines(text, expected):
    figure = plots.distance_histograms({text: (np.array([1]), np.array([1]))})
    with texts.as_drawn(figure, svg=True):
        assert figure.axes[0].get_title() == expected


def test_settings_of_the_user_change_nothing():
    draw = lambda: plots.svg(plots.head_grids({'$a$': GRID * 1e9}, label='$b$'))
    theirs = {
        'text.usetex': True, 'text.parse_math': True, 'axes.formatter.use_mathtext': True,
        'font.family': 'serif',
    }  # fmt: skip
    expected = draw()
    with matplotlib.rc_context(theirs):
        figure = plots.head_grids({'$a$': GRID * 1e9}, label='$b$')
        assert draw() == expected
        assert picture(figure).std() > 0
    assert {'$a$', '$b$'} <= set(in_svg(expected))


def test_formulas_stay_formulas_where_they_are_meant(tmp_path):
    theirs = matplotlib.figure.Figure(figsize=(3, 2))
    axes = theirs.subplots()
    axes.set_yscale('log')
    axes.plot([1, 1000])
    axes.set_title('$x^2$')
    axes.set_xlabel('\x00 中 שלום')
    plots.save(theirs, tmp_path, 'theirs')
    found = in_svg((tmp_path / 'theirs.svg').read_text('utf-8'))
    assert '⟨U+0000⟩ 中 שלום' in found and not any('$' in text for text in found)
    ours = plots.layer_effects(*GRID[[0, 0, 0]], label='$a$')
    ours.axes[0].set_yscale('log')
    found = in_svg(plots.svg(ours))
    assert [text for text in found if '$' in text] == ['$a$']


@pytest.mark.parametrize('text', [*MARKUP, *FROM_THE_RIGHT, *SCRIPTS, 'nbsp\xa0', '\u0600'])
def test_what_can_be_seen_stays(text):
    assert visible(text) == text


@pytest.mark.parametrize('text', HIDDEN)
def test_what_is_hidden_is_spelt(text):
    shown = visible(text)
    assert '⟨U+' in shown and visible(shown) == shown
    shown.encode()
    assert re.sub(r'⟨U\+(\w+)⟩', lambda found: chr(int(found[1], 16)), shown) == text
    xml.etree.ElementTree.fromstring(f'<a>{shown}</a>')


def test_prose_keeps_its_lines():
    assert visible('a\tb\n\x00', keep='\t\n') == 'a\tb\n⟨U+0000⟩'
    assert code_point('\U0001f600') == '⟨U+1F600⟩'
