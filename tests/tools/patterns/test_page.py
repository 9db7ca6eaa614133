"""The labelling page: over HTTP, and in a real browser where there is one."""

import base64
import contextlib
import errno
import fcntl
import hashlib
import json
import pathlib
import re
import socket
import threading
import time
import urllib.request

import pytest

from bert_secrets_jax import files, local
from tests.report.conftest import wait_until
from tools.patterns import page
from tools.patterns.sample import read_labels


@pytest.fixture
def maps(maps):
    return maps.take([0, 1, 2])


@contextlib.contextmanager
def served(maps, path):
    server = page.serve(maps, path)
    thread = threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.02})
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_address[1]}'
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def post(url, body, **headers):
    headers = {'Content-Type': 'application/json', **headers}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        return json.load(answer)


def raw(url, request):
    """Send bytes, and return the status, the headers and the body that answer them."""
    with connected(url) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return answer_of(connection)


def connected(url):
    host, port = url.removeprefix('http://').split(':')
    return socket.create_connection((host, int(port)), timeout=20)


def answer_of(connection):
    received = b''
    while more := connection.recv(65536):
        received += more
    if not received.startswith(b'HTTP/'):
        # As HTTP had it before there were headers.
        return None, '', received
    head, _, body = received.partition(b'\r\n\r\n')
    status, _, headers = head.decode('latin-1').partition('\r\n')
    return int(status.split()[1]), headers, body


def request(url, method='POST', path='/label', body=b'{}', *, without=(), **headers):
    """Return the bytes of a request as the page sends it, apart from what is given."""
    headers = {
        'Host': url.removeprefix('http://'),
        'Content-Type': 'application/json',
        'Content-Length': str(len(body)),
    } | {name.replace('_', '-'): value for name, value in headers.items()}
    lines = [f'{method} {path} HTTP/1.1']
    lines += [f'{name}: {value}' for name, value in headers.items() if name not in without]
    return '\r\n'.join([*lines, '', '']).encode('latin-1') + body


DECISION = b'{"number": 1, "class": "block"}'


@pytest.fixture
def labelled(maps, tmp_path, capfd):
    """The address of a page with one label, whose file and answers must be as they were.

    Nothing that is sent makes the server complain in the terminal.
    """
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url:
        post(f'{url}/label', {'number': 0, 'class': 'diagonal'})
        before, state = path.read_bytes(), get(f'{url}/state')
        # The thread of this request ends.
        time.sleep(0.1)
        yield url
        assert path.read_bytes() == before and get(f'{url}/state') == state
        assert capfd.readouterr().err == ''


def test_every_decision_is_a_row_at_once(maps, tmp_path):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url:
        assert json.loads(get(f'{url}/state')) == {'next': 0, 'done': 0, 'total': 3, 'last': None}
        assert get(f'{url}/map/2').startswith(b'\x89PNG')
        state = post(f'{url}/label', {'number': 0, 'class': 'diagonal'})
        assert state == {'next': 1, 'done': 1, 'total': 3, 'last': [0, 'diagonal']}
        assert read_labels(path, maps) == {0: 'diagonal'}


@pytest.mark.parametrize(
    ('change', 'status'),
    [
        *[({'body': body}, 400) for body in (
            b'', b'null', b'\xff', DECISION.replace(b'1', b'true'), DECISION.replace(b'1', b'3'),
            DECISION.replace(b'block', rb'\ud800\r\nX: y'), b'{}', DECISION[:-1] + b', "x": 0}',
        )],
        # Fewer bytes than it says.
        *[({'Content_Length': text}, 400) for text in ('-1', '\xb2', '32', '30')],
        ({'Content_Length': '31\r\nContent-Length: 31'}, 400),
        ({'Content_Length': '9' * 5000}, 413), ({'body': DECISION + b' ' * 4096}, 413),
        ({'without': ['Content-Length']}, 411), ({'Transfer_Encoding': 'chunked'}, 411),
    ],
    ids=lambda _: '',
)  # fmt: skip
def test_a_body_that_is_no_decision_changes_nothing(labelled, change, status):
    for path in ('/label', '/undo'):
        if path == '/label' or change != {'body': b'{}'}:
            sent = request(labelled, path=path, **{'body': DECISION} | change)
            found, headers, line = raw(labelled, sent)
            assert found == status and 'text/plain' in headers
            assert line.decode() and b'\n' not in line


def test_an_address_that_is_none_changes_nothing(labelled):
    for path in ('/', '/label/', '/state', '/map/0', '//a.org/label'):
        assert raw(labelled, request(labelled, path=path, body=DECISION))[0] == 404, path
    for path in ('/labels', '/map/3', '/map/-1', '/map/\xb2'):
        assert raw(labelled, request(labelled, 'GET', path))[0] == 404, path
    for method in ('PUT', 'HEAD'):
        status, _, body = raw(labelled, request(labelled, method, '/label', DECISION))
        assert status == 501 and bool(body) == (method != 'HEAD') and b'<' not in body


def test_only_the_page_itself_is_answered(labelled):
    """Whom the server refuses at which address is tested in tests/report/test_typed.py."""
    port = labelled.rpartition(':')[2]
    for change in (
        {'Host': f'elsewhere.org:{port}'}, {'without': ['Host']}, {'Origin': 'null'},
        {'Host': f'localhost:{port}\r\nHost: a.org'}, {'Sec_Fetch_Site': 'same-site'},
    ):  # fmt: skip
        assert raw(labelled, request(labelled, path='/undo', **change))[0] == 403, change
    # A form of another page can send a text.
    form = request(labelled, body=DECISION, Content_Type='text/plain')
    assert raw(labelled, form)[0] == 403
    there = {'Host': f'LOCALHOST:{port}', 'Origin': f'http://localhost:{port}'}
    assert raw(labelled, request(labelled, 'GET', '/state', **there))[0] == 200
    # A link to the page, in a notebook for example.
    link = {'Sec_Fetch_Site': 'cross-site', 'Sec_Fetch_Mode': 'navigate'}
    statuses = [
        raw(labelled, request(labelled, method, path, **link))[0]
        for method, path in (('GET', '/'), ('POST', '/'), ('GET', '/state'), ('POST', '/undo'))
    ]
    assert statuses == [200, 403, 403, 403]
    headers = local.Message()
    # The port that browsers leave out.
    headers['Host'] = 'localhost'
    assert not local.refusal('GET', '/state', headers, 80)


def test_the_page_runs_its_own_script_alone(labelled):
    _, headers, body = raw(labelled, request(labelled, 'GET', '/'))
    policy = re.search('Content-Security-Policy: (.*)', headers).group(1)
    allowed = dict(each.split(' ', 1) for each in policy.strip().split('; '))
    for tag in ('script', 'style'):
        (content,) = re.findall(f'<{tag}>(.*?)</{tag}>'.encode(), body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        assert allowed.pop(f'{tag}-src') == f"'sha256-{digest}'"
    assert allowed == {
        'default-src': "'none'", 'img-src': "'self' data:", 'connect-src': "'self'",
        'base-uri': "'none'", 'form-action': "'none'", 'frame-ancestors': "'none'",
    }  # fmt: skip
    for path in ('/', '/state', '/map/0', '/nothing'):
        assert 'X-Content-Type-Options: nosniff' in raw(labelled, request(labelled, 'GET', path))[1]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(local.Handler, 'timeout', 0.4)


def gone(threads, seconds=20):
    """Whether no more threads are left than there were, soon."""
    end = time.monotonic() + seconds
    while threading.active_count() > threads and time.monotonic() < end:
        time.sleep(0.02)
    return threading.active_count() <= threads


@pytest.mark.parametrize(('sent', 'dripping'), [(0, False), (14, True), (-4005, True), (-9, False)])
def test_a_slow_client_is_left(labelled, impatient, sent, dripping):
    """After nothing, within a line, before or within the body."""
    whole = request(labelled, body=DECISION + b' ' * 4000)
    threads = threading.active_count()
    with connected(labelled) as connection:
        connection.sendall(whole[:sent])
        start = time.monotonic()
        if dripping:
            # Faster than any timeout of a single byte.
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - start < 8:
                    connection.sendall(b' ')
                    time.sleep(0.05)
                raise AssertionError('still read')
        else:
            status = answer_of(connection)[0]
            assert status == (408 if sent else None)
        assert 0.3 < time.monotonic() - start < 8
        # Others are answered in the meantime, and the thread ends though the client stays.
        assert get(f'{labelled}/state')
        assert gone(threads)


def test_a_client_that_does_not_read_is_left(labelled, impatient, monkeypatch):
    monkeypatch.setattr(page, '_draw', lambda one: b'x' * 50_000_000)
    threads = threading.active_count()
    with connected(labelled) as connection:
        connection.sendall(request(labelled, 'GET', '/map/0'))
        time.sleep(0.2)
        assert threading.active_count() > threads
        assert gone(threads)


def test_connections_are_bounded(maps, tmp_path, impatient, monkeypatch):
    monkeypatch.setattr(local, '_MOST_CONNECTIONS', 3)
    with served(maps, tmp_path / 'labels.csv') as url, contextlib.ExitStack() as stack:
        threads = threading.active_count()
        silent = [stack.enter_context(connected(url)) for _ in range(5)]
        time.sleep(0.2)
        assert threading.active_count() == threads + 3
        # They are left in time, and the others come.
        assert get(f'{url}/state') and len(silent) == 5
        assert gone(threads)
    assert local.Server.daemon_threads


@pytest.mark.parametrize(('number', 'status'), [(errno.ENOSPC, 507), (errno.EIO, 500)])
def test_a_disk_that_is_full(labelled, tmp_path, monkeypatch, number, status):
    def full(self, target):
        raise OSError(number, 'No space', str(self))

    with monkeypatch.context() as patched:
        patched.setattr(pathlib.Path, 'replace', full)
        found, _, line = raw(labelled, request(labelled, body=DECISION))
    assert found == status and str(tmp_path / 'labels.csv').encode() in line and b'\n' not in line
    assert sorted(each.name for each in tmp_path.iterdir()) == ['labels.csv', 'labels.csv.lock']


@pytest.mark.parametrize('processes', [1, 2])
def test_decisions_at_the_same_time_are_all_kept(maps, tmp_path, monkeypatch, processes):
    """Two servers share nothing but the file, like two processes; one of them has two threads."""
    path = tmp_path / 'labels.csv'
    write = page.write_csv
    # Long enough for the others to read what is about to be replaced.
    monkeypatch.setattr(page, 'write_csv', lambda *given: (time.sleep(0.2), write(*given)))
    if processes == 1:
        # As on Windows, where threads alone keep out of each other's way.
        monkeypatch.setattr(files, 'fcntl', None)
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(served(maps, path)) for _ in range(processes)]
        given = {0: 'block', 1: 'vertical', 2: 'diagonal'}
        threads = [
            threading.Thread(
                target=post,
                args=(f'{urls[number % processes]}/label', {'number': number, 'class': name}),
            )
            for number, name in given.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for url in urls:
            assert json.loads(get(f'{url}/state'))['done'] == 3
    assert read_labels(path, maps) == given


def test_a_lock_that_is_never_freed(labelled, tmp_path, monkeypatch):
    monkeypatch.setattr(page, '_LOCK_PATIENCE', 0.2)
    with (tmp_path / 'labels.csv.lock').open('ab') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, _, line = raw(labelled, request(labelled, body=DECISION))
        assert status == 503 and b'labels.csv.lock' in line
        assert get(f'{labelled}/state')


def test_a_port_that_cannot_be_had(maps, tmp_path):
    with pytest.raises(ValueError, match='cannot have the port 65536 .*Choose another'):
        page.serve(maps, tmp_path / 'labels.csv', port=65536)


def test_in_a_browser_by_keyboard(maps, tmp_path, browser):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url, browser.new_page() as tab:
        complaints = []
        tab.on('console', lambda message: complaints.append(message.text))
        tab.on('pageerror', lambda error: complaints.append(str(error)))
        waiting = []
        tab.route('**/map/1', lambda route: waiting.append(route))
        tab.goto(url)
        press = lambda key: (wait_until(tab, 'shown === number'), tab.keyboard.press(key))
        tab.wait_for_selector('text=Map 1')
        press('2')
        tab.wait_for_selector('text=Map 2')
        assert tab.inner_text('#last') == 'last: diagonal'
        # Its picture is not there yet: nobody can have seen the map.
        tab.keyboard.press('3')
        tab.wait_for_timeout(300)
        assert tab.inner_text('#count') == '1 of 3'
        waiting[0].continue_()
        tab.unroute('**/map/1')
        wait_until(tab, 'shown === 1')
        assert tab.evaluate('document.getElementById("map").naturalWidth') > 100
        tab.keyboard.press('u')
        tab.wait_for_selector('text=Map 1')
        for key, then in (('4', 'Map 2'), ('1', 'Map 3'), ('5', 'All maps are labelled.')):
            press(key)
            tab.wait_for_selector(f'text={then}')
        assert tab.inner_text('#count') == '3 of 3'
        assert [each for each in complaints if 'favicon' not in each] == []
    assert read_labels(path, maps) == {0: 'block', 1: 'vertical', 2: 'heterogeneous'}
