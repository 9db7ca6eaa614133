"""Two texts side by side: numbers are those of the library, and a refusal says how to mend it."""

import importlib
import json
import urllib.parse

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.report.typed import check_texts, page_of, patched_heads, serve, two_texts
from tests.report.conftest import wait_until
from tests.report.test_typed import asked, running

A, B = 'the cat saw it', 'a dog chased he'
QUERY = urllib.parse.urlencode({'text_a': A, 'text_b': B})


@pytest.fixture(scope='module')
def pooled(model):
    return bs.with_pooling(model, 'mean')


@pytest.fixture(scope='module')
def served(pooled):
    yield from running(serve('<tiny>', pooled, max_length=16))


def test_pairs_of_tokens_are_those_of_the_library(pooled):
    shown = json.loads(json.dumps(two_texts(pooled, A, B)))
    (found,) = bs.paired_tokens(pooled, [(A, B)])
    assert shown['tokens'] == [list(each) for each in found.tokens]
    pairs = shown['pairs']
    np.testing.assert_allclose(pairs['contributions'], found.contributions, atol=1e-4)
    alone = np.array(pairs['interactions'], float)
    np.testing.assert_allclose(alone, found.interactions, atol=1e-6)
    total = np.sum(pairs['contributions']) + pairs['reference']
    a, b = bs.embed(pooled, [A, B], normalised=True)
    assert (pairs['similarity'], total) == pytest.approx((a @ b, a @ b), abs=1e-3)
    assert shown['unpaired'] == shown['unpatched'] == '' and shown['cut'] == 0


def test_heads_are_patched_as_by_the_library(pooled, pretrained):
    (towards,) = bs.embed(pooled, [A], normalised=True)
    cosine = lambda output: (output.logits @ towards) / (output.logits**2).sum(-1) ** 0.5
    shown, found = patched_heads(pooled, A, B), bs.patch(pooled, [A], [B], metric=cosine)
    assert shown['clean'] == pytest.approx(1) and shown['metric'] == 'cosine with A'
    for direction in ('denoising', 'noising'):
        np.testing.assert_allclose(shown[direction], getattr(found, direction)[0], atol=1e-6)
        assert np.ptp(shown[direction]) > 1e-4
    # A classifier has a margin, above 0 for the class that it predicts for A.
    shown = patched_heads(pretrained, A, B)
    label = shown['metric'].removeprefix('margin of “').removesuffix('”')
    found = bs.patch(pretrained, [A], [B], answers=[label])
    assert shown['noising'] == found.noising[0].tolist()
    assert shown['clean'] == pytest.approx(found.clean[0]) and shown['clean'] > 0
    assert two_texts(pretrained, A, B)['unpaired'].endswith('This one is a classifier.')


def test_a_refusal_says_how_to_mend_it(pooled, model, monkeypatch):
    uneven = two_texts(pooled, A, 'a dog ran')
    assert uneven['pairs'] and uneven['unpatched'].startswith('A has 6 tokens, and B has 5.')
    with pytest.raises(ValueError, match='6 and 5 tokens'):
        patched_heads(pooled, A, 'a dog ran')
    assert two_texts(pooled, A, 'a dog ' * 24, max_length=8)['cut'] == 8
    monkeypatch.setattr(importlib.import_module(two_texts.__module__), '_MOST_TOKENS', 5)
    long = two_texts(pooled, A, 'a dog ran')
    assert long['pairs'] is None and 'A has 6, and B has 5: make them' in long['unpaired']
    with pytest.raises(ValueError, match='neither pools texts nor classifies them'):
        two_texts(model, A, B)


def test_a_prompt_is_patched_as_it_is_embedded(pooled):
    prompted = bs.with_pooling(pooled, bs.Pooling(prompts=(('q', 'she saw '),), prompt='q'))
    assert patched_heads(prompted, A, B) == patched_heads(pooled, f'she saw {A}', f'she saw {B}')
    assert two_texts(prompted, A, B)['tokens'][0][:4] == ['[CLS]', 'she', 'saw', 'the']


def test_the_page_escapes_and_refuses(pooled, model):
    named, hostile = ('<tiny>', pooled), '</script> the cat saw it and a dog'
    page, empty = (page_of(*named, *texts, 32, '/two') for texts in ((hostile, hostile), ('', '')))
    assert 'bs-two' in page and '</script> the' not in page and '<tiny>' not in page
    assert 'bs-two' not in empty and 'role="alert"' not in empty
    for texts, said in (((A, ' '), 'not two texts'), (('мы', 'вы'), 'can read next to nothing')):
        assert said in page_of(*named, *texts, view='/two')
    assert 'neither pools' in page_of('plain', model, A, B, view='/two')
    with pytest.raises(ValueError, match='at most 5,000 characters'):
        check_texts(pooled, 'a' * 5001, B)


def test_heads_are_asked_for_by_the_page_alone(served, pooled):
    status, headers, body = asked(served, f'/heads?{QUERY}')
    assert status == 200 and headers['Content-Type'] == 'application/json'
    assert json.loads(body) == patched_heads(pooled, A, B)
    assert asked(served, '/heads?text_a=the&text_b=a+cat')[0] == 400
    assert asked(served, f'/heads?{QUERY}', **{'Sec-Fetch-Site': 'cross-site'})[0] == 403


def test_in_a_browser(served, browser, pooled):
    tab, complaints = browser.new_page(), []
    for kind in ('console', 'pageerror'):
        tab.on(kind, lambda complaint: complaints.append(str(complaint)))
    tab.goto(f'http://127.0.0.1:{served}/')
    tab.fill('input[name=text_a]', f'{A} & it ran')
    tab.keyboard.press('Enter')
    tab.click('.bs-explorer .head >> nth=0')
    assert tab.inner_text('.bs-explorer h3') == 'L1-H1'
    assert tab.input_value('input[name=text_a]') == f'{A} & it ran'
    tab.click('text="Two texts"')
    tab.fill('input[name=text_a]', A)
    tab.fill('input[name=text_b]', B)
    tab.keyboard.press('Enter')
    first, pairs = tab.locator('.bs-two').first, two_texts(pooled, A, B)['pairs']
    first.locator('.token').first.wait_for()
    every = first.locator('line:visible').count()
    first.locator('.token').first.focus()
    for key in ('ArrowRight', 'ArrowDown'):
        tab.keyboard.press(key)
    assert 0 < first.locator('line:visible').count() < every
    said = f'“a” (B, 2) adds {sum(row[1] for row in pairs["contributions"]):+.3f} in all'
    assert first.locator('output').first.inner_text().startswith(said.replace('-', '−'))
    first.locator('.head').first.focus()
    tab.keyboard.press('ArrowRight')
    tab.keyboard.press('Enter')
    wait_until(tab, "document.querySelectorAll('.bs-two .head[style*=rgb]').length === 1")
    said = f'({patched_heads(pooled, A, B)["denoising"][0][1]:+.4f})'.replace('-', '−')
    assert said in first.locator('output').last.inner_text()
    first.locator('text="All heads"').click()
    wait_until(tab, "document.querySelectorAll('.bs-two .head[style*=rgb]').length === 12")
    tab.close()
    assert complaints == []
