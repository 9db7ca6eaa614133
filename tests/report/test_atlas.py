"""The atlas: every head at a glance, read with and without its script."""

import dataclasses
import html
import json
import re

import numpy as np
import pytest

from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.plots.kinds import TABLE, look, looks
from bert_secrets_jax.report.atlas import ALL, atlas, drawn_alike, what_heads_do
from bert_secrets_jax.report.page import Part
from bert_secrets_jax.runs.result import Badge, HeadMarks
from tests.report.test_page import Shown, written

SHAPE = (2, 3)


def marked(drawn='colour', *, at=(), title='does', mark='next token', rank=0, **about):
    """Marks of some heads of two layers of three."""
    marks, sentences = np.full((2, *SHAPE), '', object)
    for number, place in enumerate(at, 1):
        marks[place], sentences[place] = mark, f'Says {number} of <it>.'
    return HeadMarks(
        title=title,
        drawn=drawn,
        marks=marks.astype(str),
        sentences=sentences.astype(str),
        rank=rank,
        **about,
    )


@pytest.fixture
def results():
    """A link is more particular than a share; one head is needed, one changed."""
    at = [(0, 0), (0, 1), (1, 2)]
    share = marked(at=at, rank=1, title='attends mostly to', bound='half')
    return [
        Shown(marks=(share,)),
        Shown(marks=(marked(at=[(0, 1)], mark='verb to <subject>', title='follows a link'),)),
        Shown(marks=(marked('ring', at=[(1, 1)], mark='needed', title='F1 without it', rank=1),)),
        Shown(marks=(marked('ring', at=[(0, 2)], mark='needed', title='F1 over 10 fine-tunings'),)),
        Shown(marks=(marked('corner', at=[(1, 0)], mark='changed', title='pattern changed'),)),
        Shown(badged=(Badge('holds', 'A <claim>.', 'It is 5.'), Badge('holds', 'B.', 'It is 6.'))),
    ]


def cells(fragment):
    """Return what each cell of the grid says, by the address that it leads to."""
    found = re.findall(r'<a class="([^"]*)" href="#([^"]*)" aria-label="([^"]*)"', fragment)
    return {address: (kinds.split(), html.unescape(label)) for kinds, address, label in found}


def test_what_is_most_particular_colours_a_head_and_all_is_there(results):
    found = cells(atlas(results))
    assert list(found) == ['L1-H1', 'L1-H2', 'L1-H3', 'L2-H1', 'L2-H2', 'L2-H3']
    assert found['L1-H1'][1] == 'L1-H1, next token'
    assert found['L1-H2'][1] == 'L1-H2, verb to <subject>'
    # The result of the lower rank draws the ring if two results do.
    assert found['L1-H3'] == (['head', 'ring0'], 'L1-H3, needed')
    assert found['L2-H2'] == (['head'], 'L2-H2')
    assert found['L2-H1'] == (['head', 'corner'], 'L2-H1, changed')
    fragment = atlas(results)
    (title,) = re.findall(r'aria-label="L1-H2[^"]*" title="([^"]*)"', fragment)
    assert html.unescape(title) == 'L1-H2: Says 1 of <it>. Says 2 of <it>.'
    assert '<it>' not in fragment and '</script>' in fragment


def test_what_heads_do_is_counted_as_the_atlas_colours_them():
    own = marked(at=[(0, 0), (0, 1), (1, 2)], rank=1, bound='half')
    marks = [own, marked(at=[(0, 1)], mark='obj')]
    marks += [marked('ring', mark='needed', title='F1 without it')]
    told = what_heads_do(marks, marks)
    assert told == (
        'Each of the 6 heads counts once, by the most specific thing that it does: 2 next token, '
        '1 obj, 3 without a name.'
    )
    assert what_heads_do([], []) == what_heads_do(marks[2:], marks[2:]) == ''
    # No head is grey where each has a colour.
    broad = marked(at=list(np.ndindex(*SHAPE)), mark='broad', title='pattern', rank=2)
    assert '<p class="grey"></p>' in atlas([Shown(marks=(*marks, broad))])
    assert what_heads_do([*marks, broad], [broad]).endswith(': 3 broad, 3 others.')


def test_letters_can_be_read_on_every_colour_and_none_is_grey():
    def luminance(fill):
        share = np.frombuffer(bytes.fromhex(fill[1:]), np.uint8) / 255
        return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4) @ [
            0.2126, 0.7152, 0.0722,
        ]  # fmt: skip

    for fill in {each.fill for each in map(look, TABLE['kinds'])} | set(TABLE['fills']):
        assert (luminance(fill) + 0.05) / (luminance('#222222') + 0.05) >= 4.5
        assert np.ptp(np.frombuffer(bytes.fromhex(fill[1:]), np.uint8).astype(int)) > 50


def test_no_code_of_a_kind_is_the_name_of_a_score():
    assert {each.letter for each in map(look, TABLE['kinds'])}.isdisjoint(TITLES.values())


def test_what_other_texts_say_of_a_head_is_marked(tmp_path, visit):
    mine = Shown(marks=(marked(at=[(0, 0)], title='attends mostly to', rank=1),))
    frames = Shown(marks=(marked(at=[(0, 1)], mark='target', title='follows a link'),))
    parts = [
        Part('mine', mine, about='mine', main=True),
        Part('frames', frames, about='our frames'),
    ]
    page = written(tmp_path, parts)
    assert '<span>target*</span>' in page and '<span>next token</span>' in page
    tab = visit(page)
    words = tab.eval_on_selector_all(
        '.bs-atlas .whole span', 'all => all.map(each => each.textContent)'
    )
    assert words == ['next token', 'target*', '', '', '', '']
    assert 'target*: 1' in tab.inner_text('.bs-atlas .legend')
    told = '* Not from the texts of this page: target (from our frames).'
    assert tab.inner_text('.elsewhere') == told
    tab.select_option('.bs-atlas select', 'attends mostly to')
    assert not tab.is_visible('.elsewhere')


def test_own_marks_have_patterns_and_letters_that_tell_them_apart():
    drawn = looks(f'mark {number:02}' for number in range(24)).values()
    assert len({each.letter for each in drawn}) == len(drawn) == 24
    assert {each.pattern for each in drawn} <= set(TABLE['patterns'])


def test_a_kind_looks_the_same_whatever_else_there_is():
    known, page = TABLE['kinds'], [*TABLE['kinds'], 'my own', 'a question']
    assert [looks(page)[name] for name in known] == [look(name) for name in known]
    assert len({each.letter for each in looks(page).values()}) == len(page)
    assert looks(['my own'])['my own'] == looks(page)['my own'] == look('my own')
    assert not {each.pattern for each in map(look, known)} & set(TABLE['patterns'])
    # Of one colour, kinds differ in the pattern, or are relations between words.
    plain = [each for each in map(look, known) if each.shape != 'links']
    assert len({(each.fill, each.pattern) for each in plain}) == len(plain)


def test_marks_of_one_title_are_one_view():
    links = (
        marked(at=[(0, 0)], mark='verb to subject', title='follows a link'),
        marked(at=[(0, 1)], mark='frame', title='follows a link'),
    )
    (data,) = re.findall(
        r'<script type="application/json">(.*?)</script>',
        atlas([Shown(marks=(*links, marked(at=[(1, 1)], title='attends mostly to', rank=1)))]),
    )
    views = {each['title']: each['marks'] for each in json.loads(data)['views']}
    assert list(views) == [ALL, 'follows a link', 'attends mostly to']
    assert views['follows a link'] == ['verb to subject', 'frame', '', '', '', '']


def test_a_fine_tuned_model_stands_beside_the_model_as_it_is(visit):
    before = marked(at=[(0, 0), (0, 1)], mark='vertical', title='pattern')
    after = marked(at=[(0, 0), (1, 2)], mark='block', title='pattern', model='fine-tuned')
    other = marked(at=[(1, 0)], mark='self', title='attends mostly to', rank=1)
    fragment = atlas([Shown(marks=(before, after, other))])
    every = [before, after, other]
    assert what_heads_do(every, every).endswith(': 2 vertical, 1 self, 3 without a name.')
    page = visit(f'<!doctype html><body>{fragment}')
    assert (
        page.inner_text('.pairs:has(.pair) > summary')
        == 'How fine-tuning changed the pattern of each head'
    )
    page.click('.pairs:has(.pair) > summary')
    assert texts(page, '.pair caption') == ['as it is', 'fine-tuned']
    heads = page.locator('.pair table').nth(1).locator('a')
    labels = heads.evaluate_all('all => all.map(each => each.ariaLabel)')
    assert labels == ['L1-H1, block', 'L1-H2', 'L1-H3', 'L2-H1', 'L2-H2', 'L2-H3, block']
    # A class has one colour and one letter wherever it is seen.
    fill = lambda grid: page.eval_on_selector(
        f'{grid} a[href="#L1-H2"]',
        "each => each.style.getPropertyValue('--fill') + each.dataset.letter",
    )
    assert fill('.whole') == fill('.pair table:first-child')
    legend = texts(page, '.pair + .rings li')
    assert [each.strip() for each in legend] == ['B block', 'V vertical']
    page.locator('.pair table').nth(1).locator('a[href="#L2-H3"]').hover()
    assert page.inner_text('output') == 'fine-tuned, L2-H3: Says 2 of <it>.'


def test_the_same_mark_is_drawn_alike_on_models_beside_each_other():
    """Alone, each would begin with the first colour. The red ring is for the worse."""
    one = [
        Shown(
            marks=(
                marked(at=[(0, 0), (0, 1)], mark='self'),
                marked('ring', at=[(0, 0)], mark='needed'),
            )
        )
    ]
    other = [
        Shown(
            marks=(
                marked(at=[(1, 0)], mark='next'),
                marked('ring', at=[(1, 0)], mark='better without'),
            )
        )
    ]
    drawn = drawn_alike([one, other])
    assert set(drawn.looks) == {'self', 'next'} and drawn.rings == ('needed', 'better without')
    fragments = [atlas(each, drawn=drawn) for each in (one, other)]
    assert [set(re.findall(r'--fill:(#[0-9a-f]{6})', each)) for each in fragments] == [
        {look('self').fill}, {look('next').fill},
    ]  # fmt: skip
    assert cells(fragments[1])['L2-H1'][0] == ['head', 'ring1', look('next').pattern]
    assert cells(atlas(other))['L2-H1'][0] == ['head', 'ring1', look('next').pattern]
    # The legend of one has nothing of the other.
    assert '"next"' not in fragments[0] and 'better' not in fragments[0]


def test_what_does_not_fit_is_refused(results):
    other = HeadMarks(
        title='x', drawn='colour', marks=np.full((4, 4), 'a'), sentences=np.full((4, 4), 'b'),
    )  # fmt: skip
    with pytest.raises(ValueError, match='give results of one model'):
        atlas([*results, Shown(marks=(other,))])
    with pytest.raises(ValueError, match="must be 'colour', 'ring' or 'corner'"):
        marked('star')
    with pytest.raises(ValueError, match=r'must all be \[layers, heads\], got \[2, 3\], \[6\]'):
        dataclasses.replace(marked(), sentences=np.full(6, ''))
    assert atlas([Shown()]) == ''


@pytest.fixture
def page(results, tmp_path, visit):
    maps = TokenMaps(['[CLS]', 'it', '[SEP]'], np.full((*SHAPE, 3, 3), 1 / 3))
    results = [*results, Shown(maps={'as it is': [maps]})]
    parts = [Part(str(number), result) for number, result in enumerate(results)]
    return visit(written(tmp_path, parts), viewport={'width': 390, 'height': 900})


def test_keyboard_and_mouse_tell_of_a_head(page):
    readout = page.locator('.bs-atlas output')
    page.hover('a.head[href="#L1-H2"]')
    assert readout.inner_text() == 'L1-H2: Says 1 of <it>. Says 2 of <it>.'
    page.focus('a.head[href="#L1-H1"]')
    for key in ('ArrowRight', 'ArrowRight', 'ArrowDown'):
        page.keyboard.press(key)
    assert readout.inner_text() == 'L2-H3: Says 3 of <it>.'
    page.keyboard.press('Home')
    assert page.evaluate('document.activeElement.getAttribute("href")') == '#L2-H1'
    # One stop of the tab key.
    assert count(page, '.bs-atlas a[tabindex="0"]') == 1
    # Nothing is wider than a phone.
    assert page.evaluate('document.documentElement.scrollWidth') <= 390


def test_a_click_opens_the_maps_of_a_head(page):
    # Under a policy that lets the page ask for nothing.
    policy = page.get_attribute('meta[http-equiv="Content-Security-Policy"]', 'content')
    assert policy.startswith("default-src 'none';")
    page.click('a.head[href="#L1-H2"]')
    page.wait_for_selector('.bs-explorer .detail:not([hidden])')
    assert page.inner_text('.bs-explorer .detail h3') == 'L1-H2'
    # What few readers change is folded away.
    assert not page.get_by_label('each map on its own scale').is_visible()
    page.go_back()
    page.wait_for_selector('.bs-explorer .grid:not([hidden])')


@pytest.mark.parametrize(('shape', 'words'), [((24, 16), False), ((12, 12), True), ((2, 2), True)])
def test_the_whole_atlas_is_in_the_first_screen_and_no_word_is_cut(visit, tmp_path, shape, words):
    marks = np.resize(list(TABLE['kinds'])[:22], shape)
    about = {'marks': marks, 'sentences': marks}
    part = Part('x', Shown(marks=(HeadMarks(title='does', drawn='colour', **about),)))
    said = {'': ['A sentence of some twenty words, which takes two lines. ' * 3] * 4}
    page = written(tmp_path, [part], told=said, lead='In short. ' * 20)
    tab = visit(page, viewport={'width': 1400, 'height': 900})
    box = tab.locator('.bs-atlas .legend').bounding_box()
    assert box['y'] + box['height'] <= 900
    assert tab.evaluate('document.documentElement.scrollWidth') <= 1400
    shown = tab.locator('.whole a.head span')
    assert [each.is_visible() for each in shown.all()] == [words] * np.prod(shape)
    cut = 'all => all.filter(each => each.scrollWidth > each.parentElement.clientWidth)'
    assert shown.evaluate_all(f'{cut}.length') == 0


def test_views_and_filters(page):
    label = lambda name: page.get_attribute(f'a.head[href="#{name}"]', 'aria-label')
    options = texts(page, '.bs-atlas select option')
    assert options == [ALL, 'follows a link', 'attends mostly to']
    assert page.inner_text('.grey') == 'Grey heads: none of these; the bound is half.'
    page.select_option('.bs-atlas select', 'follows a link')
    assert page.inner_text('.grey') == ''
    page.select_option('.bs-atlas select', ALL)
    page.click('.legend button:has-text("next token: 2")')
    dimmed = count(page, '.bs-atlas a.dim')
    assert dimmed == 4
    page.select_option('.bs-atlas select', 'attends mostly to')
    assert count(page, '.bs-atlas a.dim') == 0
    assert label('L1-H2') == 'L1-H2, next token' and label('L2-H1') == 'L2-H1, changed'
    page.select_option('.bs-atlas select', ALL)
    assert label('L1-H2') == 'L1-H2, verb to <subject>'
