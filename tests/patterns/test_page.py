"""The labelling page: over HTTP, and in a real browser where there is one."""

import contextlib
import csv
import json
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from bert_secrets_jax.patterns import page
from bert_secrets_jax.patterns.sample import MapSample


@pytest.fixture
def maps():
    rng = np.random.default_rng(0)
    return MapSample(
        values=[rng.dirichlet(np.ones(length), length) for length in (5, 7, 6)],
        first_text=np.array([5, 3, 4]),
        source=np.array(['a, b'] * 3),
        example=np.array(['own/0', 'own/1', 'own/2']),
        layer=np.array([0, 1, 2]),
        head=np.array([3, 0, 1]),
        text=np.arange(3),
    )


@contextlib.contextmanager
def served(maps, path):
    server = page.serve(maps, path)
    thread = threading.Thread(target=server.serve_forever)
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


def rows(path):
    with path.open(newline='') as file:
        return list(csv.DictReader(file))


def test_every_decision_is_a_row_at_once(maps, tmp_path):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url:
        assert json.loads(get(f'{url}/state')) == {'next': 0, 'done': 0, 'total': 3, 'last': None}
        state = post(f'{url}/label', {'number': 0, 'class': 'diagonal'})
        assert state == {'next': 1, 'done': 1, 'total': 3, 'last': [0, 'diagonal']}
        assert rows(path) == [
            {'number': '0', 'source': 'a, b', 'example': 'own/0', 'layer': '1', 'head': '4',
             'class': 'diagonal'}
        ]  # fmt: skip


def test_undo_and_going_on_after_a_kill(maps, tmp_path):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url:
        post(f'{url}/label', {'number': 0, 'class': 'diagonal'})
        post(f'{url}/label', {'number': 1, 'class': 'block'})
        assert post(f'{url}/undo', {})['next'] == 1
    with served(maps, path) as url:
        assert json.loads(get(f'{url}/state'))['last'] == [0, 'diagonal']
        for number in (1, 2):
            state = post(f'{url}/label', {'number': number, 'class': 'vertical'})
        assert state['next'] is None and state['done'] == 3
    assert page.read_labels(path, maps) == {0: 'diagonal', 1: 'vertical', 2: 'vertical'}


def test_what_does_not_belong_is_refused_and_changes_nothing(maps, tmp_path):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url:
        for address, body, headers, status in (
            ('/label', {'number': 9, 'class': 'block'}, {}, 400),
            ('/label', {'number': 0, 'class': 'round'}, {}, 400),
            ('/label', {'number': 0}, {}, 400),
            ('/label', b'{', {}, 400),
            ('/label', {'number': 0, 'class': 'block'}, {'Content-Type': 'text/plain'}, 403),
            ('/label', {'number': 0, 'class': 'block'}, {'Host': 'elsewhere.org'}, 403),
        ):
            with pytest.raises(urllib.error.HTTPError) as error:
                post(url + address, body, **headers)
            assert error.value.code == status
        for address in ('/map/3', '/map/x', '/nothing'):
            with pytest.raises(urllib.error.HTTPError, match='404'):
                get(url + address)
        assert get(f'{url}/map/2').startswith(b'\x89PNG')
    assert not path.exists()


def test_labels_of_other_maps_are_refused(maps, tmp_path):
    path = tmp_path / 'labels.csv'
    path.write_text(f'{",".join(page.COLUMNS)}\n1,"a, b",own/7,2,1,block\n')
    with pytest.raises(ValueError, match='line 2: a label of another map'):
        page.serve(maps, path)
    path.write_text('number,class\n1,block\n')
    with pytest.raises(ValueError, match='line 2: not a decision'):
        page.serve(maps, path)


def test_in_a_browser_by_keyboard(maps, tmp_path, browser):
    path = tmp_path / 'labels.csv'
    with served(maps, path) as url, browser.new_page() as tab:
        complaints = []
        tab.on('console', lambda message: complaints.append(message.text))
        tab.on('pageerror', lambda error: complaints.append(str(error)))
        waiting = []
        tab.route('**/map/1', lambda route: waiting.append(route))
        tab.goto(url)
        press = lambda key: (tab.wait_for_function('shown === number'), tab.keyboard.press(key))
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
        tab.wait_for_function('shown === 1')
        assert tab.evaluate('document.getElementById("map").naturalWidth') > 100
        tab.keyboard.press('u')
        tab.wait_for_selector('text=Map 1')
        for key, then in (('4', 'Map 2'), ('1', 'Map 3'), ('5', 'All maps are labelled.')):
            press(key)
            tab.wait_for_selector(f'text={then}')
        assert tab.inner_text('#count') == '3 of 3'
        assert [each for each in complaints if 'favicon' not in each] == []
    assert page.read_labels(path, maps) == {0: 'block', 1: 'vertical', 2: 'heterogeneous'}
