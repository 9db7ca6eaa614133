"""The explorer shows the maps that it is given, by mouse and by keyboard, and asks for nothing."""

import base64
import dataclasses
import json
import re

import numpy as np
import pytest

from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.explorer import Explorer
from tests.plots.test_texts import HIDDEN, LONG, MARKUP, SCRIPTS
from tests.report.conftest import wait_until

HOSTILE = ['[CLS]', '<s>', '</script>', '<img src=x onerror=alert(1)>', '&amp;', "it's", '[SEP]']
WORDS = ['[CLS]', 'the', 'cat', 'saw', 'it', '[SEP]']
# A sentence with a word of two wordpieces.
SPLIT = {
    'tokens': ['[CLS]', 'un', '##like', 'it', '[SEP]'],
    'words': ['[CLS]', 'Unlike', 'it', '[SEP]'],
    'word': np.array([0, 1, 1, 2, 3]),
}


def random_maps(*token_lists, layers=2, heads=3, seed=0):
    rng = np.random.default_rng(seed)
    return [
        TokenMaps(
            tokens, rng.dirichlet(np.full(len(tokens), 0.3), (layers, heads, len(tokens)))
        )
        for tokens in token_lists
    ]  # fmt: skip


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


def stored(explorer):
    """Return the data of the fragment, as its script reads it."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', explorer.html(), re.S)
    return json.loads(text)


def numbers(readout):
    """Return the weights of a line such as 'cat (3) → it (5): tuned 0.12, difference −0.03'."""
    found = re.findall(r'(?<![(\d])[−+]?\d\.\d+', readout.split('): ')[-1])
    return [float(number.replace('−', '-')) for number in found]


def test_a_byte_is_as_exact_as_it_is_said_to_be_and_a_page_is_small():
    maps = random_maps(WORDS, HOSTILE, layers=3, heads=4)
    # Nothing but one weight, and all alike.
    maps[0].attentions[0, 0] = np.eye(6)
    maps[0].attentions[0, 1] = 1 / 6
    data = stored(Explorer({'it': maps}))
    for each, sentence in zip(maps, data['sentences'], strict=True):
        length = len(each.tokens)
        (weights,) = sentence['kinds']
        read = np.frombuffer(base64.b64decode(weights['maps'][0]), np.uint8) / 255
        greatest = np.reshape(weights['greatest'][0], (3, 4, 1, 1))
        read = read.reshape(3, 4, length, length) * greatest
        error = np.abs(read - each.attentions)
        assert (error <= greatest / 510 + 1e-6).all() and error.max() > 1e-5
        np.testing.assert_array_equal(read[error == 0], each.attentions[error == 0])
    np.testing.assert_allclose(read.sum(axis=-1), 1, atol=0.02)
    tokens = [f'token{index}' for index in range(40)]
    maps = random_maps(tokens, tokens, tokens, layers=12, heads=12)
    assert len(Explorer({'a': maps, 'b': maps}).html()) < 2.1e6
    # Norms are as large as weights; rollout is one map a layer.
    every = [
        dataclasses.replace(
            each, further={'norms': each.attentions, 'rollout': each.attentions[:, :1]}
        )
        for each in maps
    ]
    assert len(Explorer({'a': every, 'b': every}).html()) < 4.3e6


def test_a_small_difference_is_not_lost_in_rounding():
    maps = random_maps(WORDS, layers=3, heads=4)[0]
    change = 1e-3 * np.random.default_rng(2).normal(size=maps.attentions.shape)
    after = TokenMaps(maps.tokens, np.clip(maps.attentions + change, 0, 1))
    (sentence,) = stored(Explorer({'a': [maps], 'b': [after]}))['sentences']
    (weights,) = sentence['kinds']
    read = np.frombuffer(base64.b64decode(weights['maps'][1]), np.uint8).astype(float) - 128
    greatest = np.reshape(weights['greatest'][1], (3, 4, 1, 1))
    error = np.abs(
        read.reshape(change.shape) / 127 * greatest - (after.attentions - maps.attentions)
    )
    assert (error <= greatest / 254 + 1e-6).all() and greatest.max() < 0.01


MAPS = random_maps(WORDS)


def other(**change):
    """What an explorer is given, of one model whose maps are changed."""
    return [{'a': [dataclasses.replace(MAPS[0], **change)]}]


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ([{}], 'one model or two, got 0'),
        ([{'a': []}], 'at least one sentence'),
        ([{'a': MAPS, 'b': random_maps(HOSTILE)}], 'b has maps of other tokens'),
        ([{'a': MAPS, 'b': random_maps(WORDS, layers=1)}], r'2 layers x 3 heads, b has \[1, 3\]'),
        (
            [{'a': MAPS}, {'entropy': np.zeros((3, 2))}],
            r"'entropy' must be \[layers, heads\] = \[2",
        ),
        (other(attentions=9 * MAPS[0].attentions), 'from 0 to 1'),
        (other(attentions=np.nan * MAPS[0].attentions), 'from 0 to 1'),
        (other(further={'norms': 9 * MAPS[0].attentions}), 'from 0 to 1'),
        (other(scores={'ALTI': np.full(6, np.nan)}), 'scores of a by ALTI are not finite'),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        Explorer(*given)


def test_a_head_in_passing_is_shown_larger(visit, pair):
    tab = visit(page(pair), viewport={'width': 1300, 'height': 900})
    preview, thumbs = tab.locator('.preview'), tab.locator('.head')
    drawn = '(canvas) => canvas.toDataURL()'
    assert preview.is_hidden()
    thumbs.nth(4).hover()
    assert preview.locator('strong').inner_text() == 'L2-H2'
    assert preview.inner_text().split('\n') == ['L2-H2', 'without <it>: e & f', 'to [CLS]: 0.571']
    assert preview.locator('canvas').evaluate(drawn) == (
        thumbs.nth(4).locator('canvas').evaluate(drawn)
    )
    # It is beside the head, and in the window, where the page has moved the explorer, too.
    for moved in ('', 'translate(40px, -30px)'):
        tab.evaluate('(moved) => { document.body.style.transform = moved; }', moved)
        tab.mouse.move(5, 5)
        thumbs.nth(4).hover()
        head, shown = thumbs.nth(4).bounding_box(), preview.bounding_box()
        assert shown['x'] == pytest.approx(head['x'] + head['width'] + 8, abs=1)
        assert 0 <= shown['y'] <= 900 - shown['height'] + 1
    # It goes by Escape, by leaving, and by opening; and comes by keyboard.
    tab.keyboard.press('Tab')
    thumbs.nth(0).focus()
    tab.keyboard.press('ArrowRight')
    assert preview.locator('strong').inner_text() == 'L1-H2'
    tab.keyboard.press('Escape')
    assert preview.is_hidden()
    thumbs.nth(5).hover()
    assert preview.is_visible()
    tab.mouse.move(5, 5)
    assert preview.is_hidden()
    thumbs.nth(5).click()
    assert preview.is_hidden() and tab.inner_text('h3') == 'L2-H3'


def test_the_mean_of_chosen_heads(visit, pair):
    tab = visit(page(pair))
    head = lambda index: tab.locator('.bs-explorer .head').nth(index)
    button = tab.locator('.bs-explorer .hint button')
    head(1).click(modifiers=['Shift'])
    assert button.is_hidden() and head(1).get_attribute('aria-pressed') == 'true'
    head(5).focus()
    tab.keyboard.press('x')
    button.click()
    assert tab.inner_text('.bs-explorer h3') == 'Mean of L1-H2, L2-H3'
    assert count(tab, 'dl div') == 0
    tab.focus('.maps')
    tab.keyboard.press('ArrowDown')
    first, second, change = numbers(tab.inner_text('.bs-explorer output'))
    at = lambda model: pair.maps[model][0].attentions[[0, 1], [1, 2], 1, 0].mean()
    assert first == pytest.approx(at('as it is'), abs=0.003)
    assert second == pytest.approx(at('tuned'), abs=0.006)
    assert change == pytest.approx(at('tuned') - at('as it is'), abs=0.006)
    # One head after the mean is one head again.
    tab.keyboard.press('Escape')
    head(1).click()
    assert tab.inner_text('.bs-explorer h3') == 'L1-H2'
    assert count(tab, 'dl div') == 2


def test_numbers_colour_sort_and_filter_the_heads(visit, pair):
    tab = visit(page(pair), viewport={'width': 1000, 'height': 900})
    options = texts(tab, 'select[aria-label="Heads by"] option')
    # The other note has words.
    assert options == ['their maps', 'to [CLS]']
    assert tab.is_hidden('input[aria-label="at least"]')
    tab.select_option('select[aria-label="Heads by"]', 'to [CLS]')
    label = lambda at: tab.locator('.head').nth(at).get_attribute('aria-label')
    assert [label(0), label(5)] == ['L1-H1, to [CLS] 0', 'L2-H3, to [CLS] 0.714']
    colours = tab.eval_on_selector_all('.head', 'all => all.map(each => each.style.background)')
    assert len(set(colours)) == 6
    assert tab.is_hidden('.head canvas')
    assert tab.inner_text('.what').startswith('to [CLS], all heads.')
    # The greatest first, with their names, and the arrows go in this order.
    tab.get_by_label('sorted').check()
    assert [label(0)[:5], label(5)[:5]] == ['L2-H3', 'L1-H1']
    assert tab.inner_text('.head').split() == ['L2-H3', '0.71']
    tab.focus('.head')
    tab.keyboard.press('ArrowRight')
    focused = tab.evaluate('document.activeElement.getAttribute("aria-label")')
    assert focused.startswith('L2-H2')
    tab.fill('input[aria-label="at least"]', '0.3')
    tab.fill('input[aria-label="at most"]', '0.6')
    dim = tab.eval_on_selector_all(
        '.head.dim', 'all => all.map(each => each.ariaLabel.slice(0, 5))'
    )
    assert sorted(dim) == ['L1-H1', 'L1-H2', 'L1-H3', 'L2-H3']
    # Their maps, in the order of the numbers.
    tab.get_by_label('colours in place of maps').uncheck()
    assert tab.is_visible('.head canvas')
    assert tab.inner_text('.head') == 'L2-H3'


def test_heads_in_notes_are_links(visit, pair):
    near = np.full((2, 3), 'L2-H1 (0.02), not L3-H1', object)
    near[0, 1] = 'as L1-H1 of the paper'
    tab = visit(page(dataclasses.replace(pair, notes={'nearest head': near})))
    tab.click('.head[aria-label="L1-H1"]')
    assert '#' not in tab.url
    assert texts(tab, 'dd a') == ['L2-H1']
    tab.click('dd a')
    assert tab.inner_text('.detail h3') == 'L2-H1' and '#' not in tab.url
    tab.click('button[aria-label="previous layer"]')
    tab.click('button[aria-label="next head"]')
    assert tab.inner_text('.detail h3') == 'L1-H2' and count(tab, 'dd a') == 0


def test_a_notebook_shows_ten_notes_first_those_of_few_heads(visit, pair):
    notes = {f'number {each}': np.full((2, 3), each / 2) for each in range(11)}
    notes |= {'words': np.full((2, 3), 'so'), 'few': np.array([['1', '', ''], [''] * 3])}
    tab = visit(page(dataclasses.replace(pair, notes=notes)))
    tab.click('.head[aria-label="L1-H1"]')
    first = ['few', 'words', *(f'number {each}' for each in range(8))]
    assert contents(tab, '.detail > dl dt') == first
    assert contents(tab, '.detail > details dt') == [*notes][8:11]


def test_lines_stand_beside_a_map_and_follow_the_pointed_row(visit, pair):
    tab = visit(page(pair))
    assert tab.is_hidden('label:has-text("lines beside the map")')
    tab.locator('.bs-explorer .head').nth(1).click()
    tab.check('label:has-text("lines beside the map") input')
    drawn = tab.locator('svg.lines')
    # Two models and their difference; the weights of all rows, as nobody points at one.
    assert drawn.count() == 3
    everything = pair.maps['as it is'][0].attentions[0, 1]
    assert drawn.first.locator('line:not(.off)').count() == (everything >= 0.0195).sum()
    tab.keyboard.press('Tab')
    tab.focus('.maps')
    for key in ('ArrowDown', 'ArrowDown'):
        tab.keyboard.press(key)
    shown = drawn.first.locator('line:not(.off)')
    weights = pair.maps['as it is'][0].attentions[0, 1, 2]
    # A line for each weight that can be seen, as strong as the weight.
    assert shown.count() == (weights >= 0.0195).sum()
    opacity = sorted(float(each.get_attribute('opacity')) for each in shown.all())
    assert opacity == pytest.approx(sorted(weights[weights >= 0.0195]), abs=0.003)
    assert drawn.first.locator('text.on').all_text_contents() == ['[CLS]', 'cat']
    # Those of all again where the pointer has left.
    tab.hover('.maps')
    tab.hover('.detail h3')
    assert drawn.first.locator('line.off').count() == 0
    tab.uncheck('label:has-text("lines beside the map") input')
    assert drawn.count() == 0


def test_a_click_opens_a_head_and_the_pointer_reads_its_weights(visit, pair):
    tab = visit(page(pair), viewport={'width': 1300, 'height': 900})
    assert count(tab, '.head') == 6 and not tab.is_visible('.detail')
    # Without further maps or scores there is nothing to choose.
    assert tab.get_by_role('radio').count() == 3 and tab.is_visible('.sentence')
    assert not tab.get_by_role('combobox', name='Scores of tokens').is_visible()
    tab.click('button[aria-label="L2-H1"]')
    assert tab.inner_text('h3') == 'L2-H1'
    assert not tab.is_visible('.grid')
    assert texts(tab, 'dd') == ['d', '0.429']
    assert texts(tab, 'figcaption')[2].startswith('tuned less as it is')
    assert count(tab, 'svg') == 3
    before, after = (models[0].attentions[1, 0] for models in pair.maps.values())
    for which, (row, column) in ((0, (2, 4)), (1, (5, 0)), (2, (3, 3))):
        box = tab.locator('svg image').nth(which).bounding_box()
        step = box['width'] / len(WORDS)
        tab.mouse.move(box['x'] + (column + 0.5) * step, box['y'] + (row + 0.5) * step)
        line = tab.inner_text('output')
        assert line.startswith(f'{WORDS[row]} ({row + 1}) → {WORDS[column]} ({column + 1}): ')
        expected = before[row, column], after[row, column], (after - before)[row, column]
        assert numbers(line) == pytest.approx(expected, abs=0.009)
        # The tokens of the cell stand out in all three.
        assert contents(tab, 'text.on') == [WORDS[row], WORDS[column]] * 3
    tab.get_by_role('button', name='all heads').click()
    assert tab.is_visible('.grid')


def test_a_switch_puts_wordpieces_together(visit):
    pieces, words = SPLIT['tokens'], SPLIT['words']
    split, plain = random_maps(pieces, WORDS)
    tab = visit(page(Explorer({'it': [dataclasses.replace(split, **SPLIT), plain]})))
    assert tab.inner_text('.sentence') == ' '.join(pieces)
    tab.get_by_label('whole words').check()
    assert tab.inner_text('.sentence') == ' '.join(words)
    tab.get_by_label('whole words').uncheck()
    assert tab.inner_text('.sentence') == ' '.join(pieces)
    # Where every wordpiece is a word there is nothing to switch.
    tab.get_by_label('Sentence').select_option(index=1)
    assert not tab.get_by_label('whole words').is_visible()


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
        assert said in tab.inner_text('.what')
        tab.click('button[aria-label="L2-H3"]')
        # It goes on being said beside one head.
        assert said in tab.inner_text('.what')
        # The pair of tokens stays, of whatever it is.
        for key in ('ArrowDown', 'ArrowDown', 'ArrowRight') if kind == 'norms' else ():
            tab.keyboard.press(key)
        before, after = (models[0].further[kind][1, -1, 2, 1] for models in maps.values())
        assert numbers(tab.inner_text('output')) == pytest.approx(
            (before, after, after - before), abs=0.009
        )
        assert 'rollout' not in kind or tab.get_attribute('svg', 'aria-label').startswith(
            'Rollout: '
        )
        tab.keyboard.press('Escape')
    # In the grid all heads of a layer have the same rollout, and layers differ.
    drawn = [each.evaluate('canvas => canvas.toDataURL()') for each in tab.locator('canvas').all()]
    assert len(set(drawn[:3])) == len(set(drawn[3:6])) == 1 and drawn[0] != drawn[3]
    tab.get_by_label('whole words').check()
    tab.click('button[aria-label="L1-H2"]')
    for _ in range(2):
        tab.keyboard.press('ArrowRight')
    tab.keyboard.press('ArrowDown')
    expected = [models[0].of_words().further['rollout'][0, 0, 1, 2] for models in maps.values()]
    assert numbers(tab.inner_text('output'))[:2] == pytest.approx(expected, abs=0.009)


def test_scores_of_tokens_stand_above_the_sentence(visit):
    maps = scored_maps()
    tab = visit(page(Explorer({'it': [maps]})))
    tokens = lambda: contents(tab, '.scores li')
    assert tokens() == ['[CLS] +0.3', 'un −1.5', '##like +0.5', 'it 0.0', '[SEP] +0.1']
    said = tab.inner_text('.meant')
    assert 'each token counts for the prediction “<b>yes</b> (0.93)”, by DecompX (' in said
    assert '(follows each token through the layers). Plus' in ' '.join(said.split())
    assert 'Plus speaks for it' in said and not tab.is_visible('.sentence')
    rgb = (
        'each => each.map(li => getComputedStyle(li).backgroundColor.match(/[\\d.]+/g).map(Number))'
    )
    (_, against, support, none, _) = tab.eval_on_selector_all('.scores li', rgb)
    assert against[0] > against[2] and support[2] > support[0] and min(none[:3]) > 230
    choice = tab.get_by_role('combobox', name='Scores of tokens')
    choice.select_option('ALTI')
    assert tokens() == ['[CLS] 0.10', 'un 0.20', '##like 0.30', 'it 0.40', '[SEP] 0.00']
    assert 'Plus speaks' not in tab.inner_text('.meant')
    light = np.sum(tab.eval_on_selector_all('.scores li', rgb), axis=-1)
    assert np.argsort(light).tolist() == [3, 2, 1, 0, 4]
    tab.get_by_label('whole words').check()
    assert tokens() == ['[CLS] 0.10', 'Unlike 0.50', 'it 0.40', '[SEP] 0.00']
    choice.select_option('none')
    assert not tab.is_visible('.scores') and tab.is_visible('.sentence')


def test_scores_are_those_of_the_model_that_has_them(visit):
    plain, scored = dataclasses.replace(scored_maps(), scores={}), scored_maps(1)
    tab = visit(page(Explorer({'as it is': [plain], 'tuned': [scored]})))
    assert tab.get_by_role('combobox', name='Scores of tokens').locator(
        'option'
    ).all_text_contents() == ['tuned: DecompX', 'tuned: ALTI', 'none']
    assert tab.locator('.scores li').nth(1).text_content() == 'un −0.75'
    # Where only some sentences have scores or further maps there is no switch.
    explorer = Explorer({'it': [scored, *random_maps(WORDS)]})
    assert stored(explorer)['scored'] == [] and stored(explorer)['kinds'] == ['weights']


def test_everything_is_done_by_keyboard(visit, pair):
    tab = visit(page(pair))
    focused = lambda: tab.evaluate('document.activeElement.getAttribute("aria-label")')
    press = lambda *keys: [tab.keyboard.press(key) for key in keys]
    press('Tab')
    assert focused() == 'Sentence'
    press('Tab', 'ArrowRight', 'ArrowRight')
    assert 'tuned less as it is' in tab.inner_text('.what')
    press('Tab', 'Tab', 'Space')
    assert tab.get_by_role('checkbox').is_checked()
    press('Tab')
    assert focused() == 'Heads by'
    press('Tab')
    assert focused() == 'L1-H1'
    # The grid is one stop; at its edges arrows stay.
    press('ArrowDown', 'ArrowRight', 'ArrowRight', 'ArrowRight', 'ArrowDown')
    assert focused() == 'L2-H3'
    press('Home')
    assert focused() == 'L2-H1'
    press('End', 'ArrowUp', 'ArrowLeft', 'Enter')
    assert tab.inner_text('h3') == 'L1-H2'
    assert focused().startswith('L1-H2: arrow keys')
    press('ArrowDown', 'ArrowDown', 'ArrowRight', 'ArrowUp', 'ArrowLeft', 'ArrowLeft')
    line = tab.inner_text('output')
    assert line.startswith('the (2) → [CLS] (1): ')
    tab.get_by_label('next layer').press('Enter')
    assert tab.inner_text('h3') == 'L2-H2'
    assert tab.get_by_label('next layer').is_disabled()
    press('Escape')
    assert tab.is_visible('.grid')
    assert focused() == 'L2-H2'


def test_the_grid_draws_weights_and_differences(visit, pair):
    tab = visit(page(pair))
    before, after = (models[0].attentions[1, 2] for models in pair.maps.values())

    def pixels():
        canvas = tab.get_by_role('button', name='L2-H3').locator('canvas')
        data = canvas.evaluate("""canvas => {
          const copy = new OffscreenCanvas(6, 6).getContext('2d', {willReadFrequently: true});
          copy.drawImage(canvas, 0, 0);
          return [...copy.getImageData(0, 0, 6, 6).data];
        }""")
        return np.reshape(data, (6, 6, 4)).astype(int)

    # On a light page more attention is darker.
    order = np.argsort(pixels()[..., :3].sum(axis=-1), axis=None)
    assert np.diff(before.ravel()[order]).max() < 0.02
    tab.get_by_label('difference').check()
    bluer = (pixels()[..., 2] - pixels()[..., 0]).ravel()
    change = (after - before).ravel()
    assert (np.sign(bluer) == np.sign(change))[np.abs(change) > 0.05].all()
    shared = pixels()
    tab.get_by_role('checkbox').check()
    # On a scale of its own the greatest change of a head has the last colour.
    largest = np.unravel_index(np.abs(after - before).argmax(), (6, 6))
    assert (pixels() != shared).any()
    assert pixels()[largest][:3].tolist() in ([103, 0, 31], [5, 48, 97])


def test_any_text_is_shown_as_it_is(visit):
    tokens = [*MARKUP, *HIDDEN, *SCRIPTS, LONG[0]]
    maps, model = random_maps(tokens, layers=1, heads=1), 'gpj.\u202eexe</script>'
    explorer = Explorer({model: maps}, {'<b>\x00': np.array([['&amp;\udc80']])})
    tab = visit(page(explorer), viewport={'width': 800, 'height': 600})
    assert visible(model) in tab.inner_text('.what')
    tab.click('button[aria-label="L1-H1"]')
    labels = contents(tab, 'svg .from')
    whole = [visible(token) for token in tokens]
    assert [label.removesuffix('…') for label in labels] == [
        each if len(each) <= 14 else each[:13] for each in whole
    ]
    assert contents(tab, 'dt') == ['<b>⟨U+0000⟩']
    assert contents(tab, 'dd') == ['&amp;⟨U+DC80⟩']
    words = tab.text_content('.sentence')
    assert [each for each in whole[:-1] if each not in words] == [] and 'xx…' in words
    assert tab.evaluate('document.documentElement.scrollWidth') <= 800
    assert count(tab, 'script') == 2 and count(tab, 'b') == 0


def test_a_text_from_the_right_turns_nothing_beside_it(visit):
    tokens = ['[CLS]', 'אחד', '##שתיים', 'مرحبا', '[SEP]']
    names = ['מודל', 'tuned']
    maps = random_maps(tokens)
    tab = visit(page(Explorer(dict.fromkeys(names, maps))))
    places = """(element, words) => {
      const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), range = new Range();
      const found = {};
      for (let node = walker.nextNode(); node; node = walker.nextNode()) for (const word of words) {
        const start = node.data.indexOf(word);
        if (start < 0 || word in found) continue;
        range.setStart(node, start);
        range.setEnd(node, start + word.length);
        found[word] = range.getBoundingClientRect().x;
      }
      return words.map(word => found[word]);
    }"""
    in_order = lambda where, *words: (
        np.diff(tab.locator(where).evaluate(places, list(words))) > 0
    ).all()
    assert in_order('.sentence', '[CLS]', 'אחד', 'שתיים', 'مرحبا', '[SEP]')
    tab.click('button[aria-label="L1-H1"]')
    for _ in range(2):
        tab.keyboard.press('ArrowDown')
    tab.keyboard.press('ArrowRight')
    line = tab.inner_text('output')
    assert re.sub('[\u2066\u2069]', '', line).startswith('##שתיים (3) → אחד (2): מודל 0.')
    assert in_order(
        'output', '##', 'שתיים', '(3)', '→', 'אחד', '(2)', 'מודל', 'tuned', 'difference'
    )


def test_a_wide_label_has_room(visit):
    tab = visit(page(Explorer({'a': random_maps(['中' * 14, 'W' * 14, '👩' * 14], heads=1)})))
    tab.click('button[aria-label="L1-H1"]')
    edge = tab.locator('svg').bounding_box()['x']
    for label in tab.locator('svg .from').all():
        assert label.bounding_box()['x'] >= edge - 1


def test_a_notebook_may_run_its_cell_twice(visit, pair):
    tab = visit('<!doctype html><div id="cell1"></div><div id="cell2"></div>')
    for cell in ('cell1', 'cell2'):
        # Notebooks insert the fragment, and then its scripts once more so that they run.
        tab.evaluate(
            """([cell, fragment]) => {
              const output = document.getElementById(cell);
              output.innerHTML = fragment;
              for (const script of output.querySelectorAll('script')) {
                const again = document.createElement('script');
                if (script.type) again.type = script.type;
                again.textContent = script.textContent;
                script.replaceWith(again);
              }
            }""",
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
    tab.click('button[aria-label="L1-H1"]')
    for button in tab.locator('.bar button').all()[1:]:
        assert button.is_disabled()
    box = tab.locator('svg').bounding_box()
    assert box['x'] >= 0 and box['x'] + box['width'] <= tab.viewport_size['width']


def test_paper_is_light_and_without_controls(visit, pair):
    tab = visit(page(pair), color_scheme='dark')
    tab.click('button[aria-label="L1-H1"]')
    # Dark is much on a dark screen, too.
    drawn = 'document.querySelector("svg image").getAttribute("href")'
    on_screen = tab.evaluate(drawn)
    tab.emulate_media(media='print')
    paper = "getComputedStyle(document.querySelector('.bs-explorer')).backgroundColor"
    wait_until(tab, f'{paper} === "rgb(255, 255, 255)"')
    assert tab.evaluate(drawn) == on_screen
    assert tab.is_visible('svg') and tab.is_visible('h3')
    assert count(tab, 'select:visible') == 0
    assert not tab.is_visible('.bar button')


def test_without_scripts_it_says_so(visit, pair):
    tab = visit(page(pair), javascript=False)
    assert 'drawn by a script' in tab.inner_text('.bs-explorer')


def test_heads_have_addresses(pair, browser, tmp_path):
    """#L2-H1 opens a head, the browser goes back, and another explorer's addresses are not ours."""
    ours, theirs = (dataclasses.replace(pair, address=address) for address in ('', 'rte-'))
    (tmp_path / 'page.html').write_text(page(ours, theirs), 'utf-8')
    address = (tmp_path / 'page.html').as_uri()
    tab = browser.new_page()
    opened = lambda: tab.evaluate(
        '[...document.querySelectorAll(".bs-explorer .detail")]'
        '.map(each => each.hidden ? "" : each.querySelector("h3").textContent)'
    )
    tab.goto(address)
    tab.click('.bs-explorer button.head')
    assert opened() == ['L1-H1', ''] and tab.url == f'{address}#L1-H1'
    # Back leads to where the reader was.
    tab.go_back()
    wait_until(tab, 'document.querySelectorAll(".detail:not([hidden])").length === 0')
    assert tab.url == address and tab.evaluate('document.activeElement.className') != 'head'
    tab.goto('about:blank')
    tab.goto(f'{address}#L2-H1')
    assert opened() == ['L2-H1', '']
    tab.evaluate('location.hash = "#rte-L1-H3"')
    wait_until(tab, 'document.querySelectorAll(".detail:not([hidden])").length === 2')
    assert opened() == ['L2-H1', 'L1-H3']
    # Nothing opens for a head that there is not.
    tab.goto(f'{address}#L9-H1')
    tab.reload()
    assert opened() == ['', '']
    tab.click('.bs-explorer button.head')
    tab.click('button[aria-label="next head"]')
    assert tab.url.endswith('#L1-H2')
    tab.keyboard.press('Escape')
    assert opened() == ['', ''] and tab.url.endswith('#heads')
    tab.close()
