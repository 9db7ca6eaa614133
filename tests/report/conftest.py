"""Pages in a real browser, where there is one: any complaint or request of theirs is a failure."""

import json
import re
import time

import pytest

_SECONDS = 30


def wait_until(tab, expression):
    """Wait until an expression is true in a tab.

    Playwright's own `wait_for_function` evaluates it within the page if it is not true at once,
    which the policy of our pages forbids.
    """
    end = time.monotonic() + _SECONDS
    while not tab.evaluate(expression):
        assert time.monotonic() < end, expression
        tab.wait_for_timeout(20)


def texts(tab, selector):
    """What a reader sees in each of some elements."""
    return tab.locator(selector).all_inner_texts()


def contents(tab, selector):
    """The texts of some elements, also of what is folded."""
    return tab.locator(selector).all_text_contents()


def count(tab, selector):
    return tab.locator(selector).count()


def colours(cells, name='backgroundColor'):
    """The colours of some elements as they are seen: red, green, blue and, if not 1, opacity."""
    seen = cells.evaluate_all(f'all => all.map(each => getComputedStyle(each).{name})')
    return [[float(each) for each in re.findall(r'[\d.]+', colour)] for colour in seen]


def stored(fragment):
    """The data of a fragment, as its script reads it."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', fragment, re.S)
    return json.loads(text)


def press(tab, *keys):
    for key in keys:
        tab.keyboard.press(key)


def widest(tab):
    """The width that a page needs, in pixels."""
    return tab.evaluate('document.documentElement.scrollWidth')


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that opens HTML as a file and returns the tab."""
    tabs, complaints, requests, allowed = [], [], [], []

    def visit(text, *, address='', javascript=True, **settings):
        file = tmp_path / f'page{len(tabs)}.html'
        file.write_text(text, encoding='utf-8')
        allowed.append(file.as_uri())
        tab = browser.new_page(java_script_enabled=javascript, **settings)
        tab.on('console', lambda message: complaints.append(message.text))
        tab.on('pageerror', lambda error: complaints.append(str(error)))
        tab.on('dialog', lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.on('request', lambda request: requests.append(request.url))
        tab.goto(f'{file.as_uri()}{address}')
        tabs.append(tab)
        return tab

    yield visit
    for tab in tabs:
        tab.close()
    assert complaints == []
    # A figure inside the page, as data, is none.
    assert [url for url in requests if not url.startswith('data:image/')] == allowed
