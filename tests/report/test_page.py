"""The page is one file that asks for nothing, made of results by their protocol alone."""

import dataclasses
import html.parser
import math
import re

import numpy as np
import pandas
import pytest

from bert_secrets_jax import plots
from bert_secrets_jax.measure.token_maps import TokenMaps
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.page import Part, Picture, file_name, write_page
from bert_secrets_jax.report.templates import linked
from bert_secrets_jax.runs.result import Badge, Finding, Result
from tests.plots.test_texts import NASTY
from tests.report.conftest import contents, count, stored, texts, widest
from tests.words import count_words


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
        if tag not in ('meta', 'img', 'link', 'input', 'br'):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


COLUMNS = ('head', '', 'mean', 'effect', 'p', 'count', 'top_head')
ROWS = (
    ('L1-H10', 'c', '85.5 ± 1.4', '-3.1 (-4 to -2)', '1.2e-5', '1,020', 'L2-H12  0.751 ± 0.004'),
    ('L1-H2', 'a', '9.25 ± 0.5', '+0.6 (-0.1 to +1.5)', '<.001', '473', 'L2 +0.9'),
    ('L2-H1', 'b', '–', '−10.0', '.5', '1,020', 'L3-H1  0.05'),
    ('L1-H1', 'D', '100', '0', '.001', 'none', '–'),
)


def finding(sentence, **fields):
    return Finding(
        name=sentence, estimate=1.0, unit='x', source='here', template=sentence, **fields
    )


class Shown(Result):
    """A result with whatever it is given."""

    tables: dict = dataclasses.field(default_factory=dict)
    said: tuple = ()
    known: dict = dataclasses.field(default_factory=dict)
    maps: dict = dataclasses.field(default_factory=dict)
    marks: tuple = ()
    badged: tuple = ()

    @property
    def title(self):
        return 'Shown <here>'

    def frames(self):
        return self.tables

    def findings(self):
        return list(self.said)

    def notes(self):
        return ['How it is read.']

    def head_notes(self):
        return self.known

    def token_maps(self):
        return self.maps

    def head_marks(self):
        return list(self.marks)

    def badges(self):
        return list(self.badged)


def framed(rows=ROWS, columns=COLUMNS, **attributes):
    frame = pandas.DataFrame(list(rows), columns=list(columns))
    frame.attrs |= attributes
    return frame


def written(path, parts, **arguments):
    arguments = {'title': 'BERT & <friends>', 'lead': 'In short.', 'details': {}} | arguments
    write_page(path / 'report.html', parts=parts, **arguments)
    return (path / 'report.html').read_text('utf-8')


MAPS = TokenMaps(['[CLS]', 'so', '[SEP]'], np.full((1, 2, 3, 3), 1 / 3))


@pytest.fixture
def report(tmp_path):
    """The text of a report with one of everything."""
    svg = plots.svg(plots.head_grids({'a': np.eye(2)}, label='x'))
    first = Part('first', Shown({'table': framed(caption='Numbers')}, (finding('Words <b>.'),)))
    parts = [
        first.with_pictures([Picture('first_grid', svg, 'A "grid".')]),
        Part('second', Shown(maps={'it': [MAPS]})),
        Part('third', message='It failed: <no reason>.'),
    ]
    return written(tmp_path, parts, details={'Settings': {'seed': 0}})


def test_a_report(report):
    page = Page(report)
    expected = [
        'BERT & <friends>', 'Words <b>.', '85.5 ± 1.4', 'top head', 'Numbers', 'seed',
        'How it is read.', 'third (failed)', 'It failed: <no reason>.',
    ]  # fmt: skip
    assert [text for text in expected if text not in page.text] == []
    assert page.tags.count('section') == 3 and page.tags.count('img') == 1
    assert not {'link', 'iframe', 'object'} & set(page.tags)
    ours = ('data:', '#', 'figures/first_grid.', 'first_table.csv')
    addresses = [value for name, value in page.attributes if name in ('src', 'href')]
    assert all(value.startswith(ours) for value in addresses)


def test_frames_are_asked_for_once_however_often_the_page_is_written(tmp_path):
    asked = []

    class Counted(Shown):
        def frames(self):
            asked.append(self)
            return super().frames()

    part = Part('a', Counted(tables={'rows': framed()}))
    first, second = (written(tmp_path / f'{number}.html', [part]) for number in range(2))
    assert first == second and 'a_rows.csv' in first
    assert len(asked) == 1
    # The result of a changed setting is another part.
    written(tmp_path / 'again.html', [Part('a', Counted(tables={'rows': framed()}))])
    assert len(asked) == 2


def test_warnings_stand_first_and_what_is_to_come_is_said(tmp_path):
    warned = Part('a', Shown(said=(finding('Fine.'), finding('Nothing learnt.', warning=True))))
    in_task = dataclasses.replace(warned, group='RTE')
    page = written(tmp_path, [warned, in_task], to_come=['ablate', 'maps'])
    first = page.split('<nav')[0]
    assert re.findall('role="note">(.*?)</p>', first) == [
        'Nothing learnt.', '<bdi dir="ltr">RTE</bdi>: Nothing learnt.'
    ]  # fmt: skip
    assert 'Still to come, reload the page then: ablate, maps.' in first
    assert 'Fine.' not in first and 'RTE: Fine' in page and 'RTE: Shown &lt;here&gt;' in page
    assert 'Still to come' not in written(tmp_path, [warned])


def test_tables_show_two_digits_and_what_has_a_value(tmp_path):
    values = {
        'count': 1020, 'whole': 1020.0, 'share': 0.12345, 'tiny': 0.00012345, 'large': 12345.6,
        'none': math.nan, 'missing': None, 'zero': 0.0, 'negative': -0.5, 'numpy': np.float32(0.25),
    }  # fmt: skip
    frame = framed(values.items(), ('name', 'value'))
    # Or pandas would make numbers of all.
    frame['value'] = pandas.Series([*values.values()], dtype=object)
    page = written(tmp_path, [Part('a', Shown({'table': frame}))])
    shown = dict(re.findall('<tr><td>(.*?)</td><td>(.*?)</td></tr>', page))
    assert shown == {
        'count': '1020', 'whole': '1,020', 'share': '0.12', 'tiny': '0.00012', 'large': '12,346',
        'none': '–', 'missing': '–', 'zero': '0', 'negative': '-0.5', 'numpy': '0.25',
    }  # fmt: skip
    rows = [('a', math.nan, '', 0.0), ('b', math.nan, '–', math.nan)]
    page = written(tmp_path, [Part('a', Shown({'t': framed(rows, ('x', 'none', 'no', 'some'))}))])
    assert re.findall('<th scope="col">(.*?)</th>', page) == ['x', 'some']
    assert '<tr><td>b</td><td>–</td></tr>' in page
    long = framed([(row, row) for row in range(33)], ('number', 'value'))
    short = framed([('a', 'b')], ('seen', 'only_in_the_file'), shown=['seen'])
    page = written(tmp_path, [Part('toy', Shown({'heads': long, 'toy_short': short}))])
    assert 'toy_heads.csv (33), toy_short.csv (1)' in Page(page).text
    assert 'only in the file' not in page and '<th scope="col">seen</th>' in page
    assert file_name('toy', 'toy_short') == 'toy_short' and file_name('toy', 'x') == 'toy_x'


def test_the_explorer_knows_what_the_others_found_of_the_same_task(tmp_path):
    known = [{name: np.array([['a', 'b']])} for name in ('effect', 'more', 'foreign')]
    parts = [
        Part('maps', Shown(known=known[0], maps={'it': [MAPS]}), group='MRPC'),
        Part('other', Shown(known=known[1]), group='MRPC'),
        Part('failed', message='No.', group='MRPC'),
        Part('foreign', Shown(known=known[2]), group='RTE'),
    ]
    notes = stored(written(tmp_path, parts))['notes']
    assert notes == [['effect', ['a', 'b']], ['more', ['a', 'b']]]


@pytest.fixture(scope='module')
def nasty(tmp_path_factory):
    """The text of a page with nasty texts in every place that takes one."""
    svg = plots.svg(plots.effect_grid(np.eye(2), label='\x00$'))
    maps = TokenMaps(['[CLS]', '</script>', '\udc80'], np.full((1, 2, 3, 3), 1 / 3))
    # As objects: the texts of pandas are UTF-8.
    columns = pandas.Index(['a', '\udc80'], dtype=object)
    rows = pandas.DataFrame([[each, each] for each in NASTY[:30]], columns=columns, dtype=object)
    rows.attrs['caption'] = 'cap\x1bשלום'
    long = pandas.DataFrame({'a': [''] * 33})
    said = [finding(text.replace('{', '{{').replace('}', '}}'), warning=True) for text in NASTY]
    parts = [
        Part('one', Shown({'rows': rows, '\udc80': long}, tuple(said)), group='gpj.\u202eexe')
        .with_pictures([Picture('pic\udc80', svg, text) for text in NASTY[:40]]),
        Part('maps', Shown(maps={'\u202e': [maps]}, known={'\x00': np.array([['\ud800', '']])})),
        *[Part(text, message=text, group=text) for text in NASTY],
    ]  # fmt: skip
    return written(
        tmp_path_factory.mktemp('nasty'), parts, title='</title>\ud800', lead='\n'.join(NASTY),
        details={text: {text: text} for text in NASTY}, to_come=NASTY,
    )  # fmt: skip


def test_any_text_is_on_the_page_as_it_is(nasty):
    text = Page(nasty).text
    assert [each for each in NASTY if visible(each, keep='\t\n') not in text] == []
    for each in ('</title>⟨U+D800⟩', 'one_⟨U+DC80⟩.csv', 'cap⟨U+001B⟩'):
        assert each in text
    # Nothing else of what is hidden is left than line ends, tabs and joiners.
    hidden = {each for each in set(nasty) if visible(each) != each}
    assert hidden == {'\n', '\t'}
    assert Page(nasty).tags.count('script') == nasty.count('</script>') == 4


def test_any_text_leaves_the_page_in_order(visit, nasty):
    tab = visit(nasty, viewport={'width': 900, 'height': 800})
    assert widest(tab) <= 900 and tab.title() == '</title>⟨U+D800⟩'
    assert tab.inner_text('.warning').startswith('gpj.⟨U+202E⟩exe: $')
    assert count(tab, '.bs-explorer .head') == 2
    shown = [visible(each, keep='\t') for each in NASTY]
    heads = contents(tab, '.part h3')[-len(NASTY) :]
    assert heads == [f'{each}: {each} (failed)' for each in shown]


def test_a_large_page_is_told(tmp_path, caplog):
    for size, told in ((14_000_000, 0), (15_000_000, 1)):
        with caplog.at_level('WARNING', logger='absl'):
            written(tmp_path, [Part('one', message='x' * size)])
        assert caplog.text.count('has 15 MB: fewer example sentences make it smaller') == told


def test_tables_are_sorted_by_click_and_by_key(visit, report):
    tab = visit(report)
    tab.evaluate('for (const part of document.querySelectorAll("details")) part.open = true')
    table = tab.locator('.table', has_text=ROWS[0][2])
    # Rows by what they were, as read off the first column.
    was = [row[0] for row in ROWS]
    shown = lambda: ''.join(
        str(was.index(cell)) for cell in table.locator('tbody td:first-child').all_inner_texts()
    )
    # Cells that are no numbers stay last.
    last = {2: '3012', 5: '0213', 6: '1023'}
    for column, order in enumerate(('3102', '1203', '1032', '2031', '0132', '1023', '2013')):
        heading = table.locator('th').nth(column)
        button = heading.locator('button')
        state = lambda heading=heading: (shown(), heading.get_attribute('aria-sort'))
        assert shown() == '0123'
        button.click()
        assert state() == (order, 'ascending')
        button.press('Enter')
        assert state() == (last.get(column, order[::-1]), 'descending')
        table.locator('th button').nth((column + 1) % 5).press('Space')
        assert state()[1] is None
        for _ in range(3):
            button.click()
        assert state() == ('0123', 'none')


def test_the_page_is_whole_without_scripts(visit, report):
    tab = visit(report, javascript=False)
    table = tab.locator('.table', has_text=ROWS[0][2])
    assert table.locator('td').count() == len(ROWS) * len(COLUMNS)
    assert count(tab, 'th button') == 0 and 'drawn by a script' in tab.inner_text('.bs-explorer')
    assert texts(tab, 'nav a') == [
        'Shown <here>', 'third (failed)', 'How this page was made',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('sentence', 'ours'),
    [
        ('L1-H2 attends most; L2-H1 least, not L3-H1, L1-H4 or L0-H1.', ['L1-H2', 'L2-H1']),
        ('L1-H2 is best. In the paper it is L2-H1. Then comes L2-H2.', ['L1-H2', 'L2-H2']),
        ('The paper found 2 heads, L1-H2 and L2-H1, on 4 sentences.', []),
        ('L2-H1 does what the published head L1-H1 does.', ['L2-H1']),
    ],
)
def test_names_of_heads_lead_to_them_unless_they_are_the_papers(sentence, ours):
    assert linked('L1-H2 & x', ('mrpc-', 2, 3)) == '<a href="#mrpc-L1-H2">L1-H2</a> &amp; x'
    assert linked(f'{sentence} & x', None) == f'{sentence} &amp; x'
    assert re.findall(r'href="#(.*?)"', linked(sentence, ('', 2, 2))) == ours


def test_a_headline_has_14_words_and_what_it_leaves_out_follows():
    model = 'organisation/a-very-long-name-of-a-model-in-one-word'
    layers = [f'layer {layer}' for layer in range(1, 49)]
    for sentence, title, rest in (
        ('A is 5 (0.5); as was b.', 'A is 5 (0.5)', 'As was b.'),
        ('One is so. Two are not.', 'One is so', 'Two are not.'),
        (f'It is so (0.5, as in{" b" * 12}).', 'It is so', f'0.5, as in{" b" * 12}.'),
        (f'Of {model} (a{" b" * 14}; c) it is so.', f'Of {model} it is so', None),
        (f'Of {", ".join([model, *layers])}.', f'Of {", ".join([model, *layers[:12]])} …', None),
    ):
        found = finding(sentence)
        assert found.headline == title and found.rest == (rest or sentence)
        assert count_words(found.headline) <= 14


def test_sections_stand_in_chapters_under_what_they_found(visit, tmp_path):
    """Each is one line until it is opened; texts other than the page's are named."""
    said = finding('Layer 6 changes most (0.56 of 1), then 5; as in the paper.', p=0.01, sample=9)
    claims = Shown(badged=(Badge('holds', 'A <claim>.', 'It is 5.', 'A whole claim.'),))
    parts = [
        Part('one', Shown(said=(said,)), chapter='What changed', about='example treebank'),
        Part('two', claims, chapter='What matters', about='your texts: a.csv', main=True),
        Part('maps', Shown(maps={'it': [TokenMaps(['a'], np.ones((1, 2, 1, 1)))]}), chapter='x'),
    ]
    text = written(tmp_path, parts, told={'': ['No head matters.']})
    assert text.index('No head matters.') < text.index('bs-explorer') < text.index('<nav')
    tab = visit(text)
    assert texts(tab, 'h2')[:2] == ['What changed', 'What matters']
    first = tab.locator('#part1')
    assert first.inner_text().split('\n')[0].startswith('Layer 6 changes most (0.56 of 1), then 5')
    assert first.locator('summary .tag').inner_text() == 'example treebank'
    assert not first.locator('.answer').is_visible()
    first.locator('summary h3').click()
    assert first.locator('.answer').inner_text().strip() == 'As in the paper.'
    assert first.locator('.sure').get_attribute('data-said') == 'p = 0.01. 9 examples. here'
    tab.click('#part2 summary h3')
    assert tab.inner_text('#part2 .claim summary') == 'holds: A <claim>.'
    # Texts that the page names first are only said at the end of a section.
    assert contents(tab, '#part2 .tag') == ['your texts: a.csv']
    assert count(tab, '#part2 .more .tag') == 1
    assert not tab.get_by_text('A whole claim.').is_visible()
    tab.get_by_text('A <claim>.').click()
    assert tab.get_by_text('A whole claim.').is_visible()
