"""The page is one file that asks for nothing."""

import html.parser

import numpy as np
import pytest

from bert_secrets_jax.measure.maps import TokenMaps
from bert_secrets_jax.report import figures
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.html import Picture, Section, Table, write_report


class Page(html.parser.HTMLParser):
    """Collects tags, their attributes and all text; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = [], [], '', []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in ('meta', 'img'):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def report(tmp_path):
    """The text of a report with one of everything."""
    picture = figures.save(figures.head_grids({'a': np.eye(2)}, label='x'), tmp_path, 'grid')
    maps = TokenMaps(['[CLS]', 'so', '[SEP]'], np.full((1, 2, 3, 3), 1 / 3))
    write_report(
        tmp_path / 'report.html',
        title='BERT & <friends>',
        lead='In short.',
        sections=[
            Section('First', ['Words <b>.'], [Picture(picture, 'A "grid".')]),
            Section('Second', [], [Table('Numbers', COLUMNS, ROWS), Explorer({'it': [maps]})]),
        ],
        details={'Settings': {'seed': 0}},
    )
    return (tmp_path / 'report.html').read_text()


COLUMNS = ('head', '', 'mean', 'effect', 'p', '', 'top head')
ROWS = (
    ('L1-H10', 'c', '85.5 ± 1.4', '-3.1 (-4 to -2)', '1.2e-5', '1,020', 'L2-H12  0.751 ± 0.004'),
    ('L1-H2', 'a', '9.25 ± 0.5', '+0.6 (-0.1 to +1.5)', '<.001', '473', 'L2 +0.9'),
    ('L2-H1', 'b', '–', '−10.0', '.5', '1,020', 'L3-H1  0.05'),
    ('L1-H1', 'D', '100', '0', '.001', 'none', '–'),
)


def test_a_report(report):
    page = Page(report)
    for text in (
        'BERT & <friends>',
        'Words <b>.',
        '85.5 ± 1.4',
        'Numbers',
        'seed',
        'grid.{pdf,svg,png}',
    ):
        assert text in page.text
    assert page.tags.count('section') == 2 and page.tags.count('img') == 1
    assert not {'link', 'iframe', 'object'} & set(page.tags)
    for name, value in page.attributes:
        if name in ('src', 'href'):
            assert value.startswith(('data:', '#')), value


def test_a_large_page_is_told(tmp_path, caplog):
    for size, told in ((14_000_000, 0), (15_000_000, 1)):
        section = Section('One', ['x' * size], [])
        with caplog.at_level('WARNING', logger='absl'):
            write_report(tmp_path / 'r.html', title='', lead='', sections=[section], details={})
        assert caplog.text.count('r.html has 15 MB: fewer --config.maps.examples') == told


@pytest.mark.parametrize(
    ('column', 'order'), [(0, '3102'), (1, '1203'), (2, '1032'), (3, '2031'), (4, '0132'),
                          (5, '1023'), (6, '2013')]
)  # fmt: skip
def test_tables_are_sorted_by_click_and_by_key(visit, report, column, order):
    tab = visit(report)
    table = tab.locator('.table').first
    heading = table.locator('th').nth(column)
    # Rows by what they were, as read off the first column.
    was = [row[0] for row in ROWS]
    shown = lambda: ''.join(
        str(was.index(cell)) for cell in table.locator('tbody td:first-child').all_inner_texts()
    )
    assert shown() == '0123'
    heading.locator('button').click()
    assert shown() == order and heading.get_attribute('aria-sort') == 'ascending'
    heading.locator('button').press('Enter')
    # What is no number stays last.
    ranked = {2: '3012', 5: '0213', 6: '1023'}.get(column, order[::-1])
    assert shown() == ranked and heading.get_attribute('aria-sort') == 'descending'
    other = table.locator('th').nth((column + 1) % 5)
    other.locator('button').press('Space')
    assert heading.get_attribute('aria-sort') is None
    for _ in range(3):
        heading.locator('button').click()
    assert shown() == '0123' and heading.get_attribute('aria-sort') == 'none'


def test_the_page_is_whole_without_scripts(visit, report):
    tab = visit(report, javascript=False)
    assert tab.locator('.table').first.locator('td').count() == len(ROWS) * len(COLUMNS)
    assert tab.locator('th button').count() == 0
    assert tab.locator('nav a').all_inner_texts() == ['First', 'Second']


@pytest.mark.parametrize('width', [500, 1400])
def test_the_explorer_is_wider_than_the_text_and_not_than_the_window(visit, report, width):
    tab = visit(report, viewport={'width': width, 'height': 800})
    box = tab.locator('.bs-explorer').bounding_box()
    assert box['x'] >= 0 and box['x'] + box['width'] <= width
    assert box['width'] > tab.locator('section p').first.bounding_box()['width'] * 0.99
    assert tab.evaluate('document.documentElement.scrollWidth') <= width
