"""The page is one file that asks for nothing."""

import html.parser

import numpy as np

from bert_secrets_jax.report import figures
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


def test_a_report(tmp_path):
    picture = figures.save(figures.head_grids({'a': np.eye(2)}, label='x'), tmp_path, 'grid')
    write_report(
        tmp_path / 'report.html',
        title='BERT & <friends>',
        lead='In short.',
        sections=[
            Section('First', ['Words <b>.'], [Picture(picture, 'A "grid".')]),
            Section('Second', [], [Table('Numbers', ('layer', '[CLS]'), [(1, '0.25')])]),
        ],
        details={'Settings': {'seed': 0}},
    )
    page = Page((tmp_path / 'report.html').read_text())
    for text in (
        'BERT & <friends>',
        'Words <b>.',
        '0.25',
        'Numbers',
        'seed',
        'grid.{pdf,svg,png}',
    ):
        assert text in page.text
    assert page.tags.count('section') == 2 and page.tags.count('img') == 1
    assert not {'script', 'link', 'iframe', 'object'} & set(page.tags)
    for name, value in page.attributes:
        if name in ('src', 'href'):
            assert value.startswith(('data:', '#')), value
