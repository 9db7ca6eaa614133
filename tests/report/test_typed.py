"""The page on which one types: any sentence is shown or refused in words, to nobody else."""

import dataclasses
import http.client
import threading
import urllib.parse

import pytest

from bert_secrets_jax.report.typed import heads_of, page_of, serve
from tests.report.test_page import Page


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


def asked(port, path, method='GET', body=None, **headers):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    connection.request(method, path, body, headers)
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


def test_no_address_leads_to_a_file(served):
    for path in (
        '/../../../../etc/passwd', '/%2e%2e/%2e%2e/%2e%2e/etc/passwd', '//etc/passwd',
        '/two/../../../etc/passwd', '/heads/../../etc/passwd', '/..%5c..%5cetc', '/.git/config',
        'file:///etc/passwd', '/config.json', '/two/', '/' + 'a' * 60_000,
    ):  # fmt: skip
        status, _, body = asked(served, path)
        assert status in (400, 404) and 'root:' not in body, path


def test_a_body_changes_nothing(served):
    for method, status in {'POST': 501, 'PUT': 501, 'GET': 200}.items():
        assert asked(served, '/', method, b'<script>' * 10**6)[0] == status


@pytest.mark.parametrize('view', [pytest.param('/', marks=pytest.mark.slow), '/two'])
def test_markup_in_any_field_is_text(models, view):
    def tags(mark, **fields):
        named = {f'a model{mark}': models['<tiny>']}
        page = Page(page_of(named, **fields, max_length=24, view=view))
        return page.tags, [name for name, _ in page.attributes]

    for mark in ('<b onclick=x>', '"><svg onload=x>', "' onfocus='x", '</script><script>', '&lt;i'):
        words = 'the cat saw it'
        for fields in (
            {'first': words, 'second': f'{words} {mark}'},
            {'first': f'{mark} {words}', 'second': words},
            {'second': mark},
        ):
            plain = {name: text.replace(mark, '.') for name, text in fields.items()}
            assert tags(mark, **fields) == tags('', **plain), (mark, fields)
    with pytest.raises(ValueError, match='must be a number from 0 to 0'):
        heads_of(models, words, words, 24, mark)
