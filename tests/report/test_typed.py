"""The page on which one types: any sentence is shown or refused in words, to nobody else."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import http.client
import http.server
import socket
import threading
import time
import urllib.parse

import pytest

from bert_secrets_jax import local
from bert_secrets_jax.report.typed import page_of, serve
from tests.report.test_page import Page


@pytest.fixture(scope='module')
def model(pretrained):
    return '<tiny>', pretrained


def running(server):
    """Yield the port of a server that runs until then."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def served(model):
    yield from running(serve(*model, max_length=16))


def asked(port, path, method='GET', body=None, **headers):
    connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_a_sentence_and_a_pair_are_shown(model):
    assert 'bs-explorer' not in page_of(*model) and '&lt;tiny&gt;' in page_of(*model)
    one = page_of(*model, 'the cat saw it')
    assert 'bs-explorer' in one and 'value="the cat saw it"' in one and 'role="alert"' not in one
    pair = page_of(*model, 'the cat saw it', 'a dog ran')
    assert '"tokens":["[CLS]","the","cat","saw","it","[SEP]"]' in one
    assert '"it","[SEP]","a","dog","ran","[SEP]"]' in pair


def test_nothing_is_not_answered_by_nothing(model):
    for empty in ({'first': '  '}, {'first': ' ', 'second': 'a dog'}, {'second': 'a dog'}):
        page = page_of(*model, **empty)
        assert 'There is no sentence to show' in page and 'bs-explorer' not in page
    # For a reader, and not for whoever writes the program.
    strange = page_of(*model, 'кошка видела собаку')
    assert 'The model can read next to nothing of this' in strange
    assert 'from_pretrained' not in strange and 'bs-explorer' not in strange


def test_what_is_cut_and_what_is_refused_is_said(model):
    long = page_of(*model, 'the cat ' * 20, max_length=16)
    assert 'This is cut after 16 tokens' in long
    assert 'cut after' not in page_of(*model, 'the cat', max_length=16)
    assert 'at most 5,000 characters' in page_of(*model, 'a' * 5001)
    bare = dataclasses.replace(model[1], tokenizer=None)
    assert 'role="alert"' in page_of('bare', bare, 'the cat')
    hostile = page_of(*model, '</script><script>alert(1)</script>')
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


def raw(port, data, *, wait=20.0):
    """Return what is answered to some bytes."""
    with socket.create_connection(('127.0.0.1', port), timeout=wait) as connection:
        connection.sendall(data)
        return b''.join(iter(functools.partial(connection.recv, 1 << 16), b''))


def request(port, path='/', method='GET', body=b'', **headers):
    lines = {'Host': f'127.0.0.1:{port}', 'Content-Length': len(body)} | headers
    head = [f'{method} {path} HTTP/1.1', *(f'{name}: {each}' for name, each in lines.items())]
    return '\r\n'.join([*head, '', '']).encode() + body


def status_of(answer):
    return int(answer.split(b' ', 2)[1])


@pytest.mark.parametrize('path', ['/', '/two', '/heads', '/nothing'])
def test_others_are_refused_at_every_address(served, path):
    for method in ('GET', 'POST', 'HEAD', 'OPTIONS'):
        for headers in (
            {'Host': 'evil.example'}, {'Host': f'127.0.0.1.evil.example:{served}'}, {'Host': ''},
            {'Host': f'evil@127.0.0.1:{served}'}, {'Origin': 'null'},
            {'Origin': 'http://evil.example'}, {'Origin': f'https://127.0.0.1:{served}'},
            {'Sec-Fetch-Site': 'same-site'},
        ):  # fmt: skip
            assert status_of(raw(served, request(served, path, method, **headers))) == 403, headers


@pytest.mark.parametrize('size', [0, 1, 5000, 10**7])
def test_a_body_of_any_size_changes_nothing(served, size):
    body = b'<script>' * (size // 8) + b'x' * (size % 8)
    for method, status in {'POST': 501, 'PUT': 501, 'GET': 200}.items():
        assert status_of(raw(served, request(served, '/', method, body))) == status
    # It says more than it sends.
    for length in ('9' * 5000, '-1', 'x', str(10**12)):
        odd = request(served, '/', 'POST', body[:9], **{'Content-Length': length})
        assert status_of(raw(served, odd)) == 501


@pytest.mark.parametrize('sent', [b'', b'GET / HT', b'GET / HTTP/1.1\r\nHost: 127'])
def test_a_slow_client_keeps_nobody_waiting(served, monkeypatch, sent):
    monkeypatch.setattr(local.Handler, 'timeout', 0.5)
    with socket.create_connection(('127.0.0.1', served), timeout=20) as slow:
        slow.sendall(sent)
        assert asked(served, '/')[0] == 200
        assert slow.recv(100) == b''


def test_clients_that_send_nothing_make_way(served):
    with contextlib.ExitStack() as stack:
        for number in range(60):
            slow = socket.create_connection(('127.0.0.1', served), timeout=20)
            stack.enter_context(slow).sendall(b'GET / HTTP/1.1\r\nHost' * (number % 2))
        start = time.monotonic()
        assert asked(served, '/two')[0] == 200
        assert time.monotonic() - start < 5


def test_200_requests_at_once_are_all_answered(served):
    paths = ['/', '/two', '/heads?text_a=the&text_b=a+cat', '/nothing'] * 50
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        answers = list(pool.map(functools.partial(asked, served), paths))
    assert [answer[0] for answer in answers] == [200, 200, 400, 404] * 50
    assert len({answer[2] for answer in answers[::4]}) == 1


@pytest.mark.parametrize('view', [pytest.param('/', marks=pytest.mark.slow), '/two'])
def test_markup_in_any_field_is_text(model, view):
    def tags(mark, **fields):
        named = f'a model{mark}', model[1]
        page = Page(page_of(*named, **fields, max_length=24, view=view))
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


def test_a_page_is_served_until_it_is_stopped(capsys):
    class Stopped(http.server.ThreadingHTTPServer):
        closed = False

        def __init__(self):
            self.server_address = ('127.0.0.1', 8888)

        def serve_forever(self):
            raise KeyboardInterrupt

        def server_close(self):
            self.closed = True

    server = Stopped()
    with pytest.raises(KeyboardInterrupt):
        local.serve_until_stopped(server)
    assert server.closed
    assert capsys.readouterr().out == 'http://127.0.0.1:8888/  (Ctrl-C stops)\n'
