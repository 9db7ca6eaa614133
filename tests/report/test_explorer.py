"""The explorer shows the maps that it is given, by mouse and by keyboard, and asks for nothing."""

import base64
import dataclasses
import io
import re

import numpy as np
import pytest
from PIL import Image

from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.explorer import Explorer
from tests.plots.test_texts import HIDDEN, LONG, MARKUP, SCRIPTS
from tests.report.conftest import colours, contents, count, press, stored, texts, wait_until, widest

HOSTILE = ['[CLS]', '<s>', '</script>', '<img src=x onerror=alert(1)>', '&amp;', "it's", '[SEP]']
WORDS = ['[CLS]', 'the', 'cat', 'saw', 'it', '[SEP]']
WIDE = ['中' * 14, 'W' * 14, '👩' * 14]
DRAWN = 'canvas => canvas.toDataURL()'
# A sentence with a word of two wordpieces.
SPLIT = {
    'tokens': ['[CLS]', 'un', '##like', 'it', '[SEP]'],
    'words': ['[CLS]', 'Unlike', 'it', '[SEP]'],
    'word': np.array([0, 1, 1, 2, 3]),
}


def random_maps(*token_lists, layers=2, heads=3, seed=0):
    rng = np.random.default_rng(seed)
    drawn = lambda length: rng.dirichlet(np.full(length, 0.3), (layers, heads, length))
    return [TokenMaps(tokens, drawn(len(tokens))) for tokens in token_lists]


def page(*explorers):
    fragments = ''.join(each._repr_html_() for each in explorers)
    # What is folded at first is open here.
    opened = fragments.replace("className: 'further'", "className: 'further', open: true")
    return f'<!doctype html><title>maps</title><body>{opened}</body>'


@pytest.fixture
def pair():
    """Two models on two sentences, and what is known of their heads."""
    notes = {
        'to [CLS]': np.arange(6.0).reshape(2, 3) / 7,
        'without <it>': np.array([['a', 'b', 'c'], ['d', 'e & f', '']]),
    }
    models = {'as it is': random_maps(WORDS, HOSTILE), 'tuned': random_maps(WORDS, HOSTILE, seed=1)}
    return Explorer(models, notes)


def numbers(readout):
    """Return the weights of a line such as 'cat (3) → it (5): tuned 0.12, difference −0.03'."""
    found = re.findall(r'(?<![(\d])[−+]?\d\.\d+', readout.split('): ')[-1])
    return [float(number.replace('−', '-')) for number in found]


def test_a_byte_is_as_exact_as_it_is_said_to_be():
    """A small difference is not lost in rounding."""
    maps, rng = random_maps(WORDS, HOSTILE, layers=3, heads=4), np.random.default_rng(2)
    # Nothing but one weight, and all alike.
    maps[0].attentions[0, :2] = np.eye(6), np.full((6, 6), 1 / 6)
    noisy = lambda values: np.clip(values + 1e-3 * rng.normal(size=values.shape), 0, 1)
    after = [TokenMaps(each.tokens, noisy(each.attentions)) for each in maps]
    sentences = stored(Explorer({'a': maps, 'b': after}).html())['sentences']
    for one, other, sentence in zip(maps, after, sentences, strict=True):
        (kind,), change = sentence['kinds'], other.attentions - one.attentions
        for which, values, zero, steps in ((0, one.attentions, 0, 255), (1, change, 128, 127)):
            in_bytes = np.frombuffer(base64.b64decode(kind['maps'][which]), np.uint8)
            greatest = np.reshape(kind['greatest'][which], (3, 4, 1, 1))
            read = (in_bytes.reshape(values.shape).astype(float) - zero) / steps * greatest
            error = np.abs(read - values)
            assert (error <= greatest / steps / 2 + 1e-6).all() and error.max() > 1e-7
        assert greatest.max() < 0.01


def test_a_page_is_small():
    tokens = [f'token{index}' for index in range(40)]
    maps = random_maps(tokens, tokens, tokens, layers=12, heads=12)
    # Norms are as large as weights; rollout is one map a layer.
    further = lambda values: {'norms': values, 'rollout': values[:, :1]}
    every = [dataclasses.replace(each, further=further(each.attentions)) for each in maps]
    for given, most in ((maps, 2.1e6), (every, 4.3e6)):
        assert len(Explorer({'a': given, 'b': given}).html()) < most


MAPS = random_maps(WORDS)


def other(**change):
    """What an explorer is given, of one model whose maps are changed."""
    return [{'a': [dataclasses.replace(MAPS[0], **change)]}]


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ([{}], 'one model or two, got 0'),
        ([{'a': []}], 'There are no sentences'),
        ([{'a': MAPS, 'b': random_maps(HOSTILE)}], 'b has maps of other tokens'),
        ([{'a': MAPS, 'b': random_maps(WORDS, layers=1)}], r'of b must be .* = \[2, 3\], got'),
        ([{'a': MAPS}, {'so': np.zeros((3, 2))}], r"'so' must be \[layers, heads\] = \[2, 3"),
        (other(attentions=9 * MAPS[0].attentions), 'from 0 to 1'),
        (other(attentions=np.nan * MAPS[0].attentions), 'from 0 to 1'),
        (other(further={'norms': 9 * MAPS[0].attentions}), 'from 0 to 1'),
        (other(scores={'ALTI': np.full(6, np.nan)}), 'scores of a by ALTI must be finite'),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        Explorer(*given)


def test_a_head_in_passing_is_shown_larger(visit, pair):
    tab = visit(page(pair), viewport={'width': 1300, 'height': 900})
    preview, thumbs = tab.locator('.preview'), tab.locator('.head')
    assert preview.is_hidden()
    thumbs.nth(4).hover()
    assert preview.inner_text().split('\n') == ['L2-H2', 'without <it>: e & f', 'to [CLS]: 0.571']
    drawn = [each.locator('canvas').evaluate(DRAWN) for each in (preview, thumbs.nth(4))]
    assert drawn[0] == drawn[1]
    # It is beside the head, and in the window, where the page has moved the explorer, too.
    for moved in ('', 'translate(40px, -30px)'):
        tab.evaluate('(moved) => { document.body.style.transform = moved; }', moved)
        tab.mouse.move(5, 5)
        thumbs.nth(4).hover()
        head, shown = thumbs.nth(4).bounding_box(), preview.bounding_box()
        assert shown['x'] == pytest.approx(head['x'] + head['width'] + 8, abs=1)
        assert 0 <= shown['y'] <= 900 - shown['height'] + 1
    # It comes by keyboard, too, and goes by Escape, by leaving, and by opening.
    press(tab, 'Tab')
    thumbs.nth(0).focus()
    press(tab, 'ArrowRight')
    assert tab.inner_text('.preview strong') == 'L1-H2'
    for at, leave in (
        (3, lambda: press(tab, 'Escape')),
        (4, lambda: tab.mouse.move(5, 5)),
        (5, thumbs.nth(5).click),
    ):
        thumbs.nth(at).hover()
        assert preview.is_visible()
        leave()
        assert preview.is_hidden()
    assert tab.inner_text('h3') == 'L2-H3'


def test_the_mean_of_chosen_heads(visit, pair):
    tab = visit(page(pair))
    tab.click('.head >> nth=1', modifiers=['Shift'])
    assert tab.is_hidden('.hint button')
    assert tab.get_attribute('.head >> nth=1', 'aria-pressed') == 'true'
    tab.focus('.head >> nth=5')
    press(tab, 'x')
    tab.click('.hint button')
    assert tab.inner_text('h3') == 'Mean of L1-H2, L2-H3' and count(tab, 'dl div') == 0
    tab.focus('.maps')
    press(tab, 'ArrowDown')
    before, after = (each[0].attentions[[0, 1], [1, 2], 1, 0].mean() for each in pair.maps.values())
    expected = before, after, after - before
    assert numbers(tab.inner_text('output')) == pytest.approx(expected, abs=0.006)
    # One head after the mean is one head again.
    press(tab, 'Escape')
    tab.click('.head >> nth=1')
    assert tab.inner_text('h3') == 'L1-H2' and count(tab, 'dl div') == 2


def test_numbers_colour_sort_and_filter_the_heads(visit, pair):
    tab = visit(page(pair), viewport={'width': 1000, 'height': 900})
    labels = lambda heads='.head': tab.eval_on_selector_all(
        heads, 'all => all.map(each => each.ariaLabel)'
    )
    by, least, most = (f'[aria-label="{each}"]' for each in ('Heads by', 'at least', 'at most'))
    # The other note has words.
    assert texts(tab, f'{by} option') == ['their maps', 'to [CLS]'] and tab.is_hidden(least)
    tab.select_option(by, 'to [CLS]')
    assert labels()[::5] == ['L1-H1, to [CLS] 0', 'L2-H3, to [CLS] 0.714']
    fills = 'all => new Set(all.map(each => each.style.background)).size'
    assert tab.eval_on_selector_all('.head', fills) == 6 and tab.is_hidden('.head canvas')
    assert tab.inner_text('.what').startswith('to [CLS], all heads.')
    # The greatest first, with their names, and the arrows go in this order.
    tab.get_by_label('sorted').check()
    assert [each[:5] for each in labels()[::5]] == ['L2-H3', 'L1-H1']
    assert tab.inner_text('.head').split() == ['L2-H3', '0.71']
    tab.focus('.head')
    press(tab, 'ArrowRight')
    assert labels(':focus')[0].startswith('L2-H2')
    tab.fill(least, '0.3')
    tab.fill(most, '0.6')
    dim = sorted(each[:5] for each in labels('.head.dim'))
    assert dim == ['L1-H1', 'L1-H2', 'L1-H3', 'L2-H3']
    # Their maps, in the order of the numbers.
    tab.get_by_label('colours in place of maps').uncheck()
    assert tab.is_visible('.head canvas') and tab.inner_text('.head') == 'L2-H3'


def test_a_notebook_shows_ten_notes_first_those_of_few_heads_and_links_heads(visit, pair):
    notes = {f'number {each}': np.full((2, 3), each / 2) for each in range(11)}
    near = np.full((2, 3), 'L2-H1 (0.02), not L3-H1', object)
    near[0, 1] = 'as L1-H1 of the paper'
    few = np.array([['1', '', ''], [''] * 3])
    tab = visit(page(dataclasses.replace(pair, notes=notes | {'nearest head': near, 'few': few})))
    tab.click('[aria-label="L1-H1"]')
    assert contents(tab, 'dt') == ['few', 'nearest head', *notes]
    assert contents(tab, 'details dt') == [*notes][8:]
    assert texts(tab, 'dd a') == ['L2-H1']
    tab.click('dd a')
    assert tab.inner_text('h3') == 'L2-H1'
    for way in ('previous layer', 'next head'):
        tab.click(f'[aria-label="{way}"]')
    assert tab.inner_text('h3') == 'L1-H2' and count(tab, 'dd a') == 0
    assert '#' not in tab.url


def test_lines_stand_beside_a_map_and_follow_the_pointed_row(visit, pair):
    tab, switch = visit(page(pair)), 'label:has-text("lines beside the map")'
    assert tab.is_hidden(switch)
    tab.click('[aria-label="L1-H2"]')
    tab.check(f'{switch} input')
    drawn, weights = tab.locator('svg.lines'), pair.maps['as it is'][0].attentions[0, 1]
    shown = drawn.first.locator('line:not(.off)')
    # Two models and their difference; the weights of all rows, as nobody points at one.
    assert drawn.count() == 3 and shown.count() == (weights >= 0.0195).sum()
    press(tab, 'Tab')
    tab.focus('.maps')
    press(tab, 'ArrowDown', 'ArrowDown')
    # A line for each weight that can be seen, as strong as the weight.
    opacity = shown.evaluate_all('all => all.map(each => Number(each.getAttribute("opacity")))')
    row = weights[2][weights[2] >= 0.0195]
    assert sorted(opacity) == pytest.approx(sorted(row), abs=0.003)
    assert drawn.first.locator('text.on').all_text_contents() == ['[CLS]', 'cat']
    # Those of all again where the pointer has left.
    for place in ('.maps', 'h3'):
        tab.hover(place)
    assert drawn.first.locator('line.off').count() == 0
    tab.uncheck(f'{switch} input')
    assert drawn.count() == 0


def test_a_click_opens_a_head_and_the_pointer_reads_its_weights(visit, pair):
    tab = visit(page(pair), viewport={'width': 1300, 'height': 900})
    assert count(tab, '.head') == 6 and not tab.is_visible('.detail')
    # Without further maps or scores there is nothing to choose.
    assert tab.get_by_role('radio').count() == 3 and tab.is_visible('.sentence')
    assert not tab.get_by_role('combobox', name='Scores of tokens').is_visible()
    tab.click('[aria-label="L2-H1"]')
    assert tab.inner_text('h3') == 'L2-H1' and not tab.is_visible('.grid')
    assert texts(tab, 'dd') == ['d', '0.429'] and count(tab, 'svg') == 3
    assert texts(tab, 'figcaption')[2].startswith('tuned less as it is')
    before, after = (models[0].attentions[1, 0] for models in pair.maps.values())
    for which, (row, column) in enumerate([(2, 4), (5, 0), (3, 3)]):
        box = tab.locator('svg image').nth(which).bounding_box()
        step = box['width'] / len(WORDS)
        tab.mouse.move(box['x'] + (column + 0.5) * step, box['y'] + (row + 0.5) * step)
        line, tokens = tab.inner_text('output'), [WORDS[row], WORDS[column]]
        assert line.startswith(f'{tokens[0]} ({row + 1}) → {tokens[1]} ({column + 1}): ')
        expected = before[row, column], after[row, column], (after - before)[row, column]
        assert numbers(line) == pytest.approx(expected, abs=0.009)
        # The tokens of the cell stand out in all three.
        assert contents(tab, 'text.on') == tokens * 3
    tab.get_by_role('button', name='all heads').click()
    assert tab.is_visible('.grid')


def scored_maps(seed=0):
    """Maps of three kinds, and scores by two methods: one has a sign."""
    weights, norms, rollout = (
        random_maps(SPLIT['tokens'], seed=10 * seed + each)[0].attentions for each in range(3)
    )
    scores = {
        'DecompX': np.array([0.25, -1.5, 0.5, 0.0, 0.125]) / (seed + 1),
        'ALTI': np.array([0.1, 0.2, 0.3, 0.4, 0.0]),
    }
    return TokenMaps(
        **SPLIT, attentions=weights, further={'norms': norms, 'rollout': rollout[:, :1]},
        scores=scores, prediction='<b>yes</b> (0.93)',
    )  # fmt: skip


def test_a_switch_between_weights_norms_and_rollout(visit):
    maps = {'as it is': [scored_maps()], 'tuned': [scored_maps(1)]}
    tab = visit(page(Explorer(maps)), viewport={'width': 1300, 'height': 900})
    assert tab.inner_text('.what').startswith('Attention weights, all heads, as it is.')
    for kind, said in (('norms', 'as shares of a row'), ('rollout', 'One map a layer, the same')):
        tab.get_by_role('radio', name=kind).check()
        grid = tab.inner_text('.what')
        tab.click('[aria-label="L2-H3"]')
        # It goes on being said beside one head.
        assert said in grid and said in tab.inner_text('.what')
        # The pair of tokens stays, of whatever it is.
        press(tab, *(['ArrowDown', 'ArrowDown', 'ArrowRight'] if kind == 'norms' else ()))
        before, after = (models[0].further[kind][1, -1, 2, 1] for models in maps.values())
        expected = before, after, after - before
        assert numbers(tab.inner_text('output')) == pytest.approx(expected, abs=0.009)
        named = tab.get_attribute('svg >> nth=0', 'aria-label')
        press(tab, 'Escape')
    assert named.startswith('Rollout: ')
    # In the grid all heads of a layer have the same rollout, and layers differ.
    drawn = [each.evaluate(DRAWN) for each in tab.locator('canvas').all()]
    assert len(set(drawn[:3])) == len(set(drawn[3:6])) == 1 and drawn[0] != drawn[3]
    tab.get_by_label('whole words').check()
    tab.click('[aria-label="L1-H2"]')
    press(tab, 'ArrowRight', 'ArrowRight', 'ArrowDown')
    expected = [models[0].of_words().further['rollout'][0, 0, 1, 2] for models in maps.values()]
    assert numbers(tab.inner_text('output'))[:2] == pytest.approx(expected, abs=0.009)


def test_scores_of_tokens_and_of_whole_words_stand_above_the_sentence(visit):
    plain = dataclasses.replace(scored_maps(), word=None, words=None)
    tab = visit(page(Explorer({'it': [scored_maps(), plain]})))
    tokens = lambda: contents(tab, '.scores li')
    seen = lambda: np.array(colours(tab.locator('.scores li')))
    assert tokens() == ['[CLS] +0.3', 'un −1.5', '##like +0.5', 'it 0.0', '[SEP] +0.1']
    said = ' '.join(tab.inner_text('.meant').split())
    assert 'each token counts for the prediction “<b>yes</b> (0.93)”, by DecompX (' in said
    assert '(follows each token through the layers). Plus speaks for it' in said
    assert not tab.is_visible('.sentence')
    _, against, support, none, _ = seen()
    assert against[0] > against[2] and support[2] > support[0] and min(none[:3]) > 230
    choice = tab.get_by_role('combobox', name='Scores of tokens')
    choice.select_option('ALTI')
    assert tokens() == ['[CLS] 0.10', 'un 0.20', '##like 0.30', 'it 0.40', '[SEP] 0.00']
    assert 'Plus speaks' not in tab.inner_text('.meant')
    assert np.argsort(seen().sum(axis=-1)).tolist() == [3, 2, 1, 0, 4]
    switch = tab.get_by_label('whole words')
    switch.check()
    assert tokens() == ['[CLS] 0.10', 'Unlike 0.50', 'it 0.40', '[SEP] 0.00']
    choice.select_option('none')
    assert not tab.is_visible('.scores') and tab.inner_text('.sentence') == '[CLS] Unlike it [SEP]'
    switch.uncheck()
    assert tab.inner_text('.sentence') == ' '.join(SPLIT['tokens'])
    # Where every wordpiece is a word there is nothing to switch.
    tab.get_by_label('Sentence').select_option(index=1)
    assert not switch.is_visible()


def test_scores_are_those_of_the_model_that_has_them(visit):
    plain, scored = dataclasses.replace(scored_maps(), scores={}), scored_maps(1)
    tab = visit(page(Explorer({'as it is': [plain], 'tuned': [scored]})))
    ways = contents(tab, '[aria-label="Scores of tokens"] option')
    assert ways == ['tuned: DecompX', 'tuned: ALTI', 'none']
    assert contents(tab, '.scores li')[1] == 'un −0.75'
    # Where only some sentences have scores or further maps there is no switch.
    data = stored(Explorer({'it': [scored, *random_maps(WORDS)]}).html())
    assert data['scored'] == [] and data['kinds'] == ['weights']


def test_everything_is_done_by_keyboard(visit, pair):
    """The grid is one stop of the tab key; at its edges arrows stay."""
    tab = visit(page(pair))
    focused = lambda: tab.get_attribute(':focus', 'aria-label')
    for keys, label in (
        (['Tab'], 'Sentence'),
        (['Tab', 'ArrowRight', 'ArrowRight', 'Tab', 'Tab', 'Space', 'Tab'], 'Heads by'),
        (['Tab'], 'L1-H1'),
        (['ArrowDown', 'ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowDown'], 'L2-H3'),
        (['Home'], 'L2-H1'),
        (['End', 'ArrowUp', 'ArrowLeft'], 'L1-H2'),
    ):
        press(tab, *keys)
        assert focused() == label
    assert 'tuned less as it is' in tab.inner_text('.what')
    assert tab.get_by_role('checkbox').is_checked()
    press(tab, 'Enter')
    assert tab.inner_text('h3') == 'L1-H2' and focused().startswith('L1-H2: arrow keys')
    press(tab, 'ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowUp', 'ArrowLeft', 'ArrowLeft')
    assert tab.inner_text('output').startswith('the (2) → [CLS] (1): ')
    tab.get_by_label('next layer').press('Enter')
    assert tab.inner_text('h3') == 'L2-H2' and tab.get_by_label('next layer').is_disabled()
    press(tab, 'Escape')
    assert tab.is_visible('.grid') and focused() == 'L2-H2'


def test_the_grid_draws_weights_and_differences(visit, pair):
    tab = visit(page(pair))
    before, after = (models[0].attentions[1, 2] for models in pair.maps.values())
    change = after - before

    def pixels():
        _, drawn = tab.eval_on_selector('[aria-label="L2-H3"] canvas', DRAWN).split(',')
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(drawn))), int)

    # On a light page more attention is darker.
    order = np.argsort(pixels()[..., :3].sum(axis=-1), axis=None)
    assert np.diff(before.ravel()[order]).max() < 0.02
    tab.get_by_label('difference').check()
    shared = pixels()
    bluer = np.sign(shared[..., 2] - shared[..., 0])
    assert (bluer == np.sign(change))[np.abs(change) > 0.05].all()
    tab.get_by_role('checkbox').check()
    # On a scale of its own the greatest change of a head has the last colour.
    largest = pixels()[np.abs(change) == np.abs(change).max()]
    assert (pixels() != shared).any()
    assert largest[0, :3].tolist() in ([103, 0, 31], [5, 48, 97])


def test_any_text_is_shown_as_it_is(visit):
    tokens, model = [*MARKUP, *HIDDEN, *SCRIPTS, *WIDE, LONG[0]], 'gpj.\u202eexe</script>'
    maps, notes = random_maps(tokens, layers=1, heads=1), {'<b>\x00': np.array([['&amp;\udc80']])}
    tab = visit(page(Explorer({model: maps}, notes)), viewport={'width': 800, 'height': 600})
    assert visible(model) in tab.inner_text('.what')
    tab.click('[aria-label="L1-H1"]')
    whole = list(map(visible, tokens))
    labels = [label.removesuffix('…') for label in contents(tab, 'svg .from')]
    assert labels == [each if len(each) <= 14 else each[:13] for each in whole]
    assert contents(tab, 'dt') == ['<b>⟨U+0000⟩'] and contents(tab, 'dd') == ['&amp;⟨U+DC80⟩']
    words = tab.text_content('.sentence')
    assert [each for each in whole[:-1] if each not in words] == [] and 'xx…' in words
    left, *places = tab.eval_on_selector_all(
        'svg, svg .from', 'all => all.map(each => each.getBoundingClientRect().x)'
    )
    assert min(places) >= left - 1
    assert widest(tab) <= 800 and count(tab, 'script') == 2 and count(tab, 'b') == 0


def test_a_text_from_the_right_turns_nothing_beside_it(visit):
    tokens = ['[CLS]', 'אחד', '##שתיים', 'مرحبا', '[SEP]']
    names = ['מודל', 'tuned']
    maps = random_maps(tokens)
    tab = visit(page(Explorer(dict.fromkeys(names, maps))))
    places = """({firstChild: text}, words) => words.map(word => {
      const range = new Range(), start = text.data.indexOf(word);
      range.setStart(text, start);
      range.setEnd(text, start + word.length);
      return range.getBoundingClientRect().x;
    })"""
    in_order = lambda where, *words: (
        np.diff(tab.eval_on_selector(where, places, list(words))) > 0
    ).all()
    assert in_order('.sentence', '[CLS]', 'אחד', 'שתיים', 'مرحبا', '[SEP]')
    tab.click('[aria-label="L1-H1"]')
    press(tab, 'ArrowDown', 'ArrowDown', 'ArrowRight')
    line = re.sub('[\u2066\u2069]', '', tab.inner_text('output'))
    assert line.startswith('##שתיים (3) → אחד (2): מודל 0.')
    said = ['##', 'שתיים', '(3)', '→', 'אחד', '(2)', 'מודל', 'tuned', 'difference']
    assert in_order('output', *said)


def test_a_notebook_may_run_its_cell_twice(visit, pair):
    tab = visit('<!doctype html><div id="cell1"></div><div id="cell2"></div>')
    for cell in ('cell1', 'cell2'):
        # Its scripts run when it is inserted.
        tab.evaluate(
            """([cell, fragment]) => document.getElementById(cell).append(
              document.createRange().createContextualFragment(fragment))""",
            [cell, pair._repr_html_()],
        )
    assert count(tab, '.bs-explorer') == 2 and count(tab, '.head') == 12
    first, second = tab.locator('#cell1'), tab.locator('#cell2')
    second.get_by_role('button', name='L2-H1').click()
    assert second.locator('svg').count() == 3 and first.locator('.grid').is_visible()
    # Each leaves the other alone.
    first.get_by_label('difference').check()
    assert not second.get_by_label('difference').is_checked()
    tab.keyboard.press('Escape')
    assert not second.locator('.grid').is_visible()
    second.locator('.maps').press('Escape')
    assert second.locator('.grid').is_visible()


def test_one_head_and_a_long_sentence(visit):
    words = [f'word{index}' for index in range(128)]
    tab = visit(page(Explorer({'small': random_maps(words, layers=1, heads=1)})))
    assert tab.locator('.head').bounding_box()['width'] < 150
    tab.click('[aria-label="L1-H1"]')
    assert count(tab, '.bar button:disabled') == count(tab, '.bar button') - 1
    box = tab.locator('svg').bounding_box()
    assert box['x'] >= 0 and box['x'] + box['width'] <= tab.viewport_size['width']


def test_paper_is_light_and_without_controls(visit, pair):
    tab = visit(page(pair), color_scheme='dark')
    tab.click('[aria-label="L1-H1"]')
    # Dark is much on a dark screen, too.
    on_screen = tab.get_attribute('svg image', 'href')
    tab.emulate_media(media='print')
    paper = "getComputedStyle(document.querySelector('.bs-explorer')).backgroundColor"
    wait_until(tab, f'{paper} === "rgb(255, 255, 255)"')
    assert tab.get_attribute('svg image', 'href') == on_screen
    assert tab.is_visible('svg') and tab.is_visible('h3')
    assert count(tab, 'select:visible, .bar button:visible') == 0


def test_heads_have_addresses(pair, visit):
    """#L2-H1 opens a head, the browser goes back, and another explorer's addresses are not ours."""
    text = page(*(dataclasses.replace(pair, address=address) for address in ('', 'rte-')))
    opened = lambda tab: texts(tab, '.detail:not([hidden]) h3')
    tab = visit(text)
    address = tab.url
    tab.click('button.head')
    assert opened(tab) == ['L1-H1'] and tab.url == f'{address}#L1-H1'
    # Back leads to where the reader was.
    tab.go_back()
    wait_until(tab, 'document.querySelectorAll(".detail:not([hidden])").length === 0')
    assert tab.url == address and tab.evaluate('document.activeElement.className') != 'head'
    tab = visit(text, address='#L2-H1')
    assert opened(tab) == ['L2-H1']
    tab.evaluate('location.hash = "#rte-L1-H3"')
    wait_until(tab, 'document.querySelectorAll(".detail:not([hidden])").length === 2')
    assert opened(tab) == ['L2-H1', 'L1-H3']
    # Nothing opens for a head that there is not.
    tab = visit(text, address='#L9-H1')
    assert opened(tab) == []
    tab.click('button.head')
    tab.click('[aria-label="next head"]')
    assert tab.url.endswith('#L1-H2')
    press(tab, 'Escape')
    assert opened(tab) == [] and tab.url.endswith('#heads')
