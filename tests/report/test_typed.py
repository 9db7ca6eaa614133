"""The page on which one types: any sentence is shown or refused in words, to nobody else."""

import dataclasses
import http.client
import threading
import urllib.parse

import pytest

from bert_secrets_jax.report.typed import page_of, serve


@pytest.fixture(scope='module')
def models(pretrained):
    return {'<tiny>': pretrained}


def running(server):
    """Yield the port of a server that runs until then."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def served(models):
    yield from running(serve(models, max_length=16))


def asked(port, path, **headers):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    connection.request('GET', path, headers=headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_a_sentence_and_a_pair_are_shown(models):
    assert 'bs-explorer' not in page_of(models) and '&lt;tiny&gt;' in page_of(models)
    one = page_of(models, 'the cat saw it')
    assert 'bs-explorer' in one and 'value="the cat saw it"' in one and 'role="alert"' not in one
    pair = page_of(models, 'the cat saw it', 'a dog ran')
    assert '"tokens":["[CLS]","the","cat","saw","it","[SEP]"]' in one
    assert '"it","[SEP]","a","dog","ran","[SEP]"]' in pair


def test_nothing_is_not_answered_by_nothing(models):
    for empty in ({'first': '  '}, {'first': ' ', 'second': 'a dog'}, {'second': 'a dog'}):
        page = page_of(models, **empty)
        assert 'There is no sentence to show' in page and 'bs-explorer' not in page
    # For a reader, and not for whoever writes the program.
    strange = page_of(models, 'кошка видела собаку')
    assert '&lt;tiny&gt; can read next to nothing of this' in strange
    assert 'from_pretrained' not in strange and 'bs-explorer' not in strange


def test_what_is_cut_and_what_is_refused_is_said(models):
    long = page_of(models, 'the cat ' * 20, max_length=16)
    assert 'This is cut after 16 tokens' in long
    assert 'cut after' not in page_of(models, 'the cat', max_length=16)
    assert 'at most 5,000 characters' in page_of(models, 'a' * 5001)
    bare = dict.fromkeys(models, dataclasses.replace(models['<tiny>'], tokenizer=None))
    assert 'role="alert"' in page_of(bare, 'the cat')
    hostile = page_of(models, '</script><script>alert(1)</script>')
    assert '<script>alert(1)' not in hostile


def test_it_answers_its_own_page_alone(served):
    query = urllib.parse.urlencode({'text_a': 'the cat saw it'})
    status, headers, body = asked(served, f'/?{query}')
    assert status == 200 and 'bs-explorer' in body
    assert "form-action 'self'" in headers['Content-Security-Policy']
    elsewhere = {'Sec-Fetch-Site': 'cross-site', 'Sec-Fetch-Mode': 'navigate'}
    assert asked(served, f'/?{query}', **elsewhere)[0] == 403
    assert asked(served, '/', **elsewhere)[0] == 200
    assert asked(served, '/', Host='evil.example')[0] == 403
    assert asked(served, '/state')[0] == 404
    assert asked(served, '/?' + '&'.join('a=1' for _ in range(9)))[0] == 400


def test_in_a_browser(served, browser):
    tab = browser.new_page()
    complaints = []
    tab.on('console', lambda message: complaints.append(message.text))
    tab.on('pageerror', lambda error: complaints.append(str(error)))
    tab.goto(f'http://127.0.0.1:{served}/')
    tab.fill('input[name=text_a]', 'she ran & it ran')
    tab.keyboard.press('Enter')
    tab.wait_for_selector('.bs-explorer .head')
    assert tab.input_value('input[name=text_a]') == 'she ran & it ran'
    tab.locator('.bs-explorer .head').first.click()
    assert tab.inner_text('.bs-explorer h3') == 'L1-H1'
    tab.close()
    assert complaints == []
