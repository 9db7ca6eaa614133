"""The atlas: every head at a glance, read with and without its script."""

import dataclasses
import html
import re

import numpy as np
import pytest

from bert_secrets_jax.finetune.metrics import TITLES
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.plots.kinds import TABLE, look, looks
from bert_secrets_jax.report.atlas import ALL, atlas, drawn_alike, what_heads_do
from bert_secrets_jax.report.page import Part
from bert_secrets_jax.runs.result import Badge, HeadMarks
from tests.report.conftest import contents, count, press, stored, texts, widest
from tests.report.test_page import Shown, written

SHAPE = (2, 3)


def marked(drawn='colour', *, at=(), title='does', mark='next token', rank=0, **about):
    """Marks of some heads of two layers of three."""
    marks, sentences = np.full((2, *SHAPE), '', object)
    for number, place in enumerate(at, 1):
        marks[place], sentences[place] = mark, f'Says {number} of <it>.'
    given = {'marks': marks.astype(str), 'sentences': sentences.astype(str)}
    return HeadMarks(title=title, drawn=drawn, rank=rank, **given, **about)


def shown(*marks):
    """A result with such marks."""
    return Shown(marks=marks)


@pytest.fixture
def results():
    """A link is more particular than a share; one head is needed, one changed."""
    at = [(0, 0), (0, 1), (1, 2)]
    badges = Badge('holds', 'A <claim>.', 'It is 5.'), Badge('holds', 'B.', 'It is 6.')
    return [
        shown(marked(at=at, rank=1, title='attends mostly to', bound='half')),
        shown(marked(at=[(0, 1)], mark='verb to <subject>', title='follows a link')),
        shown(marked('ring', at=[(1, 1)], mark='worse', title='F1 without it', rank=1)),
        shown(marked('ring', at=[(0, 2)], mark='worse', title='F1 over 10 fine-tunings')),
        shown(marked('corner', at=[(1, 0)], mark='changed', title='pattern changed')),
        Shown(badged=badges),
    ]


def cells(fragment):
    """Return what each cell of the grid says, by the address that it leads to."""
    found = re.findall(r'<a class="([^"]*)" href="#([^"]*)" aria-label="([^"]*)"', fragment)
    return {address: (kinds.split(), html.unescape(label)) for kinds, address, label in found}


def test_what_is_most_particular_colours_a_head_and_all_is_there(results):
    fragment = atlas(results)
    found = cells(fragment)
    assert [label for _, label in found.values()] == [
        'L1-H1, next token', 'L1-H2, verb to <subject>', 'L1-H3, worse', 'L2-H1, changed',
        'L2-H2', 'L2-H3, next token',
    ]  # fmt: skip
    # The result of the lower rank draws the ring if two results do.
    drawn = [' '.join(found[name][0]) for name in ('L1-H3', 'L2-H1', 'L2-H2')]
    assert drawn == ['head ring0', 'head corner', 'head']
    (title,) = re.findall(r'aria-label="L1-H2[^"]*" title="([^"]*)"', fragment)
    assert html.unescape(title) == 'L1-H2: Says 1 of <it>. Says 2 of <it>.'
    assert '<it>' not in fragment and '</script>' in fragment


def test_what_heads_do_is_counted_as_the_atlas_colours_them():
    own = marked(at=[(0, 0), (0, 1), (1, 2)], rank=1, bound='half')
    marks = [own, marked(at=[(0, 1)], mark='obj')]
    marks += [marked('ring', mark='worse', title='F1 without it')]
    told = what_heads_do(marks, marks)
    assert told == (
        'Each of the 6 heads counts once, by the most specific thing that it does: 2 next token, '
        '1 obj, 3 without a name.'
    )
    assert what_heads_do([], []) == what_heads_do(marks[2:], marks[2:]) == ''
    # No head is grey where each has a colour.
    broad = marked(at=list(np.ndindex(*SHAPE)), mark='broad', title='pattern', rank=2)
    assert '<p class="grey"></p>' in atlas([shown(*marks, broad)])
    assert what_heads_do([*marks, broad], [broad]).endswith(': 3 broad, 3 others.')


def test_letters_can_be_read_on_every_colour_and_none_is_grey():
    fills = {look(kind).fill for kind in TABLE['kinds']} | {*TABLE['fills'], '#222222'}
    rgb = np.array([list(bytes.fromhex(fill[1:])) for fill in sorted(fills)])
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    ink, *paper = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    assert min(paper) / ink >= 4.5 and np.ptp(rgb[1:], axis=1).min() > 50


def test_what_other_texts_say_of_a_head_is_marked(tmp_path, visit):
    mine = shown(marked(at=[(0, 0)], title='attends mostly to', rank=1))
    frames = shown(marked(at=[(0, 1)], mark='target', title='follows a link'))
    parts = [
        Part('mine', mine, about='mine', main=True),
        Part('frames', frames, about='our frames'),
    ]
    page = written(tmp_path, parts)
    assert '<span>target*</span>' in page and '<span>next token</span>' in page
    tab = visit(page)
    words = contents(tab, '.bs-atlas .whole span')
    assert words == ['next token', 'target*', '', '', '', '']
    assert 'target*: 1' in tab.inner_text('.bs-atlas .legend')
    told = '* Not from the texts of this page: target (from our frames).'
    assert tab.inner_text('.elsewhere') == told
    tab.select_option('.bs-atlas select', 'attends mostly to')
    assert not tab.is_visible('.elsewhere')


def test_a_kind_looks_the_same_whatever_else_there_is():
    known, own = [*TABLE['kinds']], [f'mark {number:02}' for number in range(24)]
    page = looks([*known, *own])
    assert [page[name] for name in known] == list(map(look, known))
    assert looks(own[:1])[own[0]] == page[own[0]] == look(own[0])
    # Own marks have patterns and letters that tell them apart.
    assert len({each.letter for each in page.values()}) == len(page)
    assert {page[name].pattern for name in own} <= set(TABLE['patterns'])
    assert not {page[name].pattern for name in known} & set(TABLE['patterns'])
    # Of one colour, kinds differ in the pattern, or are relations between words.
    plain = [page[name][:2] for name in known if page[name].shape != 'links']
    assert len(set(plain)) == len(plain)
    # No letter is the name of a score.
    assert {page[name].letter for name in known}.isdisjoint(TITLES.values())


def test_marks_of_one_title_are_one_view():
    links = (
        marked(at=[(0, 0)], mark='verb to subject', title='follows a link'),
        marked(at=[(0, 1)], mark='frame', title='follows a link'),
    )
    data = stored(atlas([shown(*links, marked(at=[(1, 1)], title='attends mostly to', rank=1))]))
    views = {each['title']: each['marks'] for each in data['views']}
    assert list(views) == [ALL, 'follows a link', 'attends mostly to']
    assert views['follows a link'] == ['verb to subject', 'frame', '', '', '', '']


def test_a_fine_tuned_model_stands_beside_the_model_as_it_is(visit):
    before = marked(at=[(0, 0), (0, 1)], mark='vertical', title='pattern')
    after = marked(at=[(0, 0), (1, 2)], mark='block', title='pattern', model='fine-tuned')
    other = marked(at=[(1, 0)], mark='self', title='attends mostly to', rank=1)
    every = [before, after, other]
    fragment = atlas([shown(*every)])
    assert what_heads_do(every, every).endswith(': 2 vertical, 1 self, 3 without a name.')
    page = visit(f'<!doctype html><body>{fragment}')
    pairs = '.pairs:has(.pair) > summary'
    assert page.inner_text(pairs) == 'How fine-tuning changed the pattern of each head'
    page.click(pairs)
    assert texts(page, '.pair caption') == ['as it is', 'fine-tuned']
    heads = page.locator('.pair table').nth(1).locator('a')
    labels = heads.evaluate_all('all => all.map(each => each.ariaLabel)')
    assert labels == ['L1-H1, block', 'L1-H2', 'L1-H3', 'L2-H1', 'L2-H2', 'L2-H3, block']
    # A class has one colour and one letter wherever it is seen.
    looks = """all => all.map(each =>
      each.style.getPropertyValue('--fill').trim() + each.dataset.letter)"""
    fills = page.eval_on_selector_all('a[href="#L1-H2"]', looks)
    assert fills[0] == fills[1] != fills[2]
    assert list(map(str.strip, texts(page, '.pair + .rings li'))) == ['B block', 'V vertical']
    heads.last.hover()
    assert page.inner_text('output') == 'fine-tuned, L2-H3: Says 2 of <it>.'


def test_the_same_mark_is_drawn_alike_on_models_beside_each_other():
    """Alone, each would begin with the first colour. The red ring is for the worse."""
    one, other = (
        [shown(marked(at=at, mark=mark), marked('ring', at=at, mark=ring))]
        for at, mark, ring in (([(0, 0)], 'self', 'worse'), ([(1, 0)], 'next', 'better'))
    )
    drawn = drawn_alike([one, other])
    assert set(drawn.looks) == {'self', 'next'} and drawn.rings == ('worse', 'better')
    fragments = [atlas(each, drawn=drawn) for each in (one, other)]
    for fragment, mark in zip(fragments, ('self', 'next'), strict=True):
        assert set(re.findall(r'--fill:(#[0-9a-f]{6})', fragment)) == {look(mark).fill}
    for fragment in (fragments[1], atlas(other)):
        assert cells(fragment)['L2-H1'][0] == ['head', 'ring1', look('next').pattern]
    # The legend of one has nothing of the other.
    assert '"next"' not in fragments[0] and 'better' not in fragments[0]


def test_what_does_not_fit_is_refused(results):
    small = {name: getattr(marked(), name)[:1] for name in ('marks', 'sentences')}
    with pytest.raises(ValueError, match='give results of one model'):
        atlas([*results, shown(dataclasses.replace(marked(), **small))])
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
    press(page, 'ArrowRight', 'ArrowRight', 'ArrowDown')
    assert readout.inner_text() == 'L2-H3: Says 3 of <it>.'
    press(page, 'Home')
    assert page.get_attribute(':focus', 'href') == '#L2-H1'
    # One stop of the tab key.
    assert count(page, '.bs-atlas a[tabindex="0"]') == 1
    # Nothing is wider than a phone.
    assert widest(page) <= 390


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
    part = Part('x', shown(HeadMarks(title='does', drawn='colour', **about)))
    said = {'': ['A sentence of some twenty words, which takes two lines. ' * 3] * 4}
    page = written(tmp_path, [part], told=said, lead='In short. ' * 20)
    tab = visit(page, viewport={'width': 1400, 'height': 900})
    box = tab.locator('.bs-atlas .legend').bounding_box()
    assert box['y'] + box['height'] <= 900
    assert widest(tab) <= 1400
    spans = tab.locator('.whole a.head span')
    assert [each.is_visible() for each in spans.all()] == [words] * np.prod(shape)
    cut = 'all => all.filter(each => each.scrollWidth > each.parentElement.clientWidth)'
    assert spans.evaluate_all(f'{cut}.length') == 0


def test_views_and_filters(page):
    label = lambda name: page.get_attribute(f'a.head[href="#{name}"]', 'aria-label')
    options = texts(page, '.bs-atlas select option')
    assert options == [ALL, 'follows a link', 'attends mostly to']
    assert page.inner_text('.grey') == 'Grey heads: none of these; the bound is half.'
    page.select_option('.bs-atlas select', 'follows a link')
    assert page.inner_text('.grey') == ''
    page.select_option('.bs-atlas select', ALL)
    page.click('.legend button:has-text("next token: 2")')
    assert count(page, '.bs-atlas a.dim') == 4
    page.select_option('.bs-atlas select', 'attends mostly to')
    assert count(page, '.bs-atlas a.dim') == 0
    assert label('L1-H2') == 'L1-H2, next token' and label('L2-H1') == 'L2-H1, changed'
    page.select_option('.bs-atlas select', ALL)
    assert label('L1-H2') == 'L1-H2, verb to <subject>'
