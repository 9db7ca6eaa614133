"""Sections that fail, that are finished, that are stale: what is said of them, what goes on."""

import dataclasses
import logging
import re

import numpy as np
import pandas
import pytest

from bert_secrets_jax.checks import TooFewTextsError
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs import inputs, report
from bert_secrets_jax.programs.given import Pace, Study
from bert_secrets_jax.programs.sources import Given
from bert_secrets_jax.runs.call import INPUTS, Call, Input, call
from bert_secrets_jax.runs.result import HeadMarks, Result, Subject
from tests.programs.conftest import fake


class Told(Result):
    """A result that tells something."""

    what: str

    @property
    def title(self):
        return f'About {self.what}'

    def frames(self):
        return {'told': pandas.DataFrame({'what': [self.what]})}


def fine(*, seed) -> Told:
    """Answer with what depends on the seed."""
    return Told(f'seed {seed}')


def about_others(*results) -> Told:
    """Answer with what the others have found, as the claims do."""
    return Told(', '.join(result.what for result in results))


FINE = fake(fine)
ABOUT_OTHERS = fake(
    about_others,
    inputs={'results': lambda given: [given.result(name) for name in given.results]},
    kept=False,
    file='claims',
)


@pytest.fixture
def run(tmp_path):
    return tmp_path / 'run'


def headings(folder):
    found = re.findall('<h3>(.*?)</h3>', (folder / 'report.html').read_text())
    return [each for each in found if each != 'To go on in Python']


def test_the_others_run(answer, run, caplog):
    """One error of two sections is told once; an unexpected one says where it arose, in the log."""

    def unreadable() -> Told:
        raise OSError('texts.tsv is not there.\nline 1\nline 2')

    def mistaken() -> Told:
        raise KeyError('no such key')

    def damaged() -> Told:
        raise ValueError('own.jsonl is damaged.\nline 9')

    answers = {'a': unreadable, 'b': fine, 'c': unreadable, 'd': mistaken, 'e': damaged}
    known = {name: fake(each) for name, each in answers.items()} | {'claims': ABOUT_OTHERS}
    logging.getLogger('absl').propagate = True
    with pytest.raises(SystemExit) as stopped:
        answer(known)
    details = run / 'error.txt'
    mended = f'texts.tsv is not there. All of them: {details}'
    unexpected = "KeyError: 'no such key' (unexpected; log.txt has where)"
    assert str(stopped.value).splitlines() == [
        f'error: {mended} (a, c)',
        f'error: {unexpected} (d)',
        f'error: own.jsonl is damaged. All of them: {details} (e)',
    ]
    assert headings(run) == [
        'a (failed)', 'About seed 0', 'c (failed)', 'd (failed)', 'e (failed)', 'About seed 0',
    ]  # fmt: skip
    page = (run / 'report.html').read_text()
    assert f'<p>It failed: {mended}</p>' in page and '<p>It failed as a did.</p>' in page
    assert details.read_text().splitlines() == [
        'texts.tsv is not there.', 'line 1', 'line 2', 'own.jsonl is damaged.', 'line 9',
    ]  # fmt: skip
    assert 'in mistaken' in caplog.text and 'in unreadable' not in caplog.text


def test_too_few_texts_for_one_section_are_no_failure(answer, run):
    def few() -> Told:
        raise TooFewTextsError('Too few pairs: give more.')

    # No SystemExit, which a failure would lead to.
    answer({'a': fake(few), 'b': FINE})
    assert headings(run) == ['a (too few texts)', 'About seed 0']
    assert '<p>Too few pairs: give more.</p>' in (run / 'report.html').read_text()


def test_what_the_language_leaves_out_is_on_the_page(answer, run, monkeypatch):
    monkeypatch.setattr(Given, 'foreign', lambda given, known='en': 'German (de)')
    foreign = fake(fine, needs=(lambda given: f'texts in English, not in {given.foreign()}',))
    answer({'a': foreign, 'b': fake(fine, needs=(lambda given: 'labels',)), 'c': FINE})
    assert headings(run) == ['a (left out)', 'About seed 0']
    reason = '<p>Left out: a needs texts in English, not in German (de).</p>'
    assert reason in (run / 'report.html').read_text()
    answer({'a': foreign, 'c': FINE}, ['c'])
    assert headings(run) == ['About seed 0']


def test_a_user_can_still_stop(answer, run):
    def stopped() -> Told:
        raise KeyboardInterrupt

    def last() -> Told:
        return Told('the last')

    with pytest.raises(KeyboardInterrupt):
        answer({'b': FINE, 'a': fake(stopped), 'c': fake(last)})
    # Finished sections stand on the page already.
    assert headings(run) == ['About seed 0']
    assert 'Still to come, reload the page then: a, c.' in (run / 'report.html').read_text()


def test_what_several_sections_need_is_tried_once(answer, monkeypatch):
    tried = []

    def train(start):
        tried.append(start)
        if start == 'bad':
            raise FloatingPointError('The loss is not finite.')
        return start

    def needs(name, start):
        def answered(trained) -> Told:
            return Told(trained)

        answered.__name__ = name
        own = Input(make=lambda given: call(train, start), content=lambda given, name: name)
        monkeypatch.setitem(INPUTS, start, own)
        return fake(answered, inputs={'trained': start})

    starts = {'a': 'bad', 'b': 'bad', 'c': 'good', 'd': 'good'}
    known = {name: needs(name, start) for name, start in starts.items()}
    for times in (1, 2):
        with pytest.raises(SystemExit, match=r'^error: The loss is not finite. \(a, b\)$'):
            answer(known)
        # Another run tries again, but for what is finished.
        assert tried == ['bad', 'good', 'bad'][: times + 1]


def test_the_page_is_written_after_every_section(answer, run, caplog, monkeypatch):
    """Where it is, and how long the rest takes, is said in the log."""
    pages = []
    monkeypatch.setattr(report, 'pace_of', lambda given: Pace(1.0, 0.0))
    logging.getLogger('absl').propagate = True

    def looks(name):
        def look() -> Told:
            page = run / 'report.html'
            pages.append(page.read_text() if page.exists() else '')
            return Told(f'look {len(pages)}')

        return fake(look, title=name, file=name, cost=lambda given: costs[name])

    costs = {'a': 0, 'b': 120, 'c': 240}
    with caplog.at_level(logging.INFO, logger='absl'):
        answer({name: looks(name) for name in costs})
    said = [each for each in caplog.messages if each.startswith(('Section', 'First'))]
    assert said[:3] == [
        'Section 1 of 3: a. About 6 min left.',
        f'First figures: {run / "report.html"}',
        'Section 2 of 3: b. About 6 min left.',
    ]
    # That section took no time.
    assert re.fullmatch(r'Section 3 of 3: c. About \d+ s left.', said[3]) and len(said) == 4
    assert ['About look' in page for page in pages] == [False, True, True]
    assert 'Still to come, reload the page then: b, c.' in pages[1]
    assert 'Still to come' not in (run / 'report.html').read_text()
    assert headings(run) == ['About look 1', 'About look 2', 'About look 3']


def named(name):
    """Return a section whose result depends on the seed, but for the one that is named 'fixed'."""

    def answered(*, seed=0) -> Told:
        return Told(f'{name} {seed}')

    return fake(answered, title=name, file=name, inputs={'seed': ...} if name == 'fixed' else {})


KNOWN = {name: named(name) for name in ('fixed', 'one', 'two')} | {'claims': ABOUT_OTHERS}


def test_finished_sections_stay_and_stale_ones_go(answer, run):
    answer(KNOWN)
    everything = headings(run)
    assert everything == [
        'About fixed 0', 'About one 0', 'About two 0', 'About fixed 0, one 0, two 0',
    ]  # fmt: skip
    first = (run / 'report.html').read_text()
    # One section, nothing changed: the page stays whole, and the same.
    answer(KNOWN, ['one'])
    assert (run / 'report.html').read_text() == first
    # Other settings: what depends on them, and is not asked for, is gone, and its files too.
    answer(KNOWN, ['one'], seed=1)
    assert headings(run) == ['About fixed 0', 'About one 1', 'About fixed 0, one 1']
    assert not (run / 'two_told.csv').exists() and not (run / 'findings' / 'two.csv').exists()
    assert (run / 'one_told.csv').read_text() == 'what\none 1\n'
    assert (run / 'fixed_told.csv').exists()
    # The former settings find all of it again.
    answer(KNOWN, ['one'])
    assert headings(run) == everything and (run / 'report.html').read_text() == first


def test_what_is_about_others_is_made_again_with_them(answer, run):
    maps = dataclasses.replace(ABOUT_OTHERS, kept=True, file='maps', title='maps')
    known = {'one': KNOWN['one'], 'two': KNOWN['two'], 'maps': maps}
    answer(known, ['one', 'maps'])
    answer(known, ['two', 'maps'])
    assert headings(run)[-1] == 'About one 0, two 0'


def test_claims_about_nothing_do_not_stay(answer, run):
    answer({'one': KNOWN['one'], 'claims': KNOWN['claims']})
    assert (run / 'claims_told.csv').exists()

    def fails() -> Told:
        raise ValueError('No.')

    with pytest.raises(SystemExit):
        answer({'one': fake(fails), 'claims': KNOWN['claims']}, ['one'], seed=1)
    assert not (run / 'claims_told.csv').exists() and not (run / 'report.html').exists()


def test_sections_without_what_they_need_are_left_out(answer, run):
    lacking = fake(fine, needs=(lambda given: 'a pipeline',))
    answer({'a': lacking, 'one': KNOWN['one']})
    assert headings(run) == ['About one 0']
    with pytest.raises(ValueError, match='^a needs a pipeline.$'):
        answer({'a': lacking, 'one': KNOWN['one']}, ['a'])
    for wrong, said in (['onw'], "section 'onw'. Did you mean one?"), ([], 'are a, one, or all.'):
        with pytest.raises(ValueError, match=re.escape(said)):
            answer({'a': lacking, 'one': KNOWN['one']}, wrong)


def test_what_takes_long_is_offered_with_its_price(answer, run):
    known = {
        'one': KNOWN['one'],
        'long': fake(fine, report='all', file='long'),
        'longer': fake(fine, report='name', file='longer', title='longer'),
    }
    answer(known)
    page = (run / 'report.html').read_text()
    assert headings(run) == ['About one 0'] and 'Not computed: long, longer' in page
    assert f'--out={run}' in page and '<td>5 s</td>' in page

    def gone(given):
        raise FileNotFoundError('The texts are gone.')

    # What is finished keeps its offers without the texts.
    (run / 'report.html').unlink()
    answer(known | {'claims': dataclasses.replace(ABOUT_OTHERS, cost=gone)})
    assert 'Not computed: long, longer' in (run / 'report.html').read_text()
    answer(known, ['all'])
    assert 'Not computed: longer<' in (run / 'report.html').read_text()
    answer(known, ['longer'])
    assert 'Not computed' not in (run / 'report.html').read_text()


def test_what_a_failed_section_wants_is_not_measured_with_the_others(answer):
    """One statistic that cannot be computed does not take the others along."""
    wanted = []

    def one_pass(study) -> Told:
        wanted.append(list(study.watched))
        if 'own' in study.watched:
            raise TypeError('Statistics return two things.')
        return Told('it')

    of_run = {'study': lambda given: Call(Study, make=lambda: given.study, content=str)}
    known = {name: fake(one_pass, title=name, inputs=of_run) for name in ('own', 'relations')}
    with pytest.raises(SystemExit, match=r'^error: TypeError: Statistics .*\(own\)$'):
        answer(known)
    assert wanted == [['own', 'relations'], ['relations']]


def test_inputs_that_are_missing_fail_once(answer, run, monkeypatch):
    tried = []

    def missing(given, name):
        if given['data.task'] == 'rte' and name == 'texts':
            raise FileNotFoundError('There is no RTE.')
        return name

    def counted(task) -> Told:
        tried.append(task)
        return Told(task)

    monkeypatch.setattr(Given, 'digest', missing)
    of_task = {'inputs': {'task': 'data.task'}}
    known = {name: fake(counted, title=name, **of_task) for name in 'ab'}
    known['claims'] = ABOUT_OTHERS
    with pytest.raises(FileNotFoundError, match='There is no RTE'):
        answer(known, tasks=['rte'])
    # No page about nothing.
    assert tried == [] and not (run / 'report.html').exists()
    for name in ('_side_by_side', 'write_part'):
        monkeypatch.setattr(report, name, lambda *given: None)
    with pytest.raises(SystemExit, match=r'^error: There is no RTE. \(RTE: inputs\)$'):
        answer(known, tasks=['rte', 'mrpc'])
    assert set(tried) == {'mrpc'} and headings(run)[0] == 'RTE: inputs (failed)'


class Marked(Told):
    marks: HeadMarks

    def head_marks(self):
        return [self.marks]


def test_all_texts_are_named_and_the_headline_is_about_ones_own():
    """A head that other texts colour is missing from the count, as in the atlas."""

    def result(texts, rank, marks):
        marks, about = np.array([marks]), {'title': 'does', 'drawn': 'colour', 'rank': rank}
        marks = HeadMarks(marks=marks, sentences=marks, **about)
        return Marked('x', marks, subject=Subject('m', texts))

    own = result('mine', 1, ['self', 'self', ''])
    other = result('the example frames', 0, ['', 'target', 'target'])
    assert report.headlines({'own': own, 'other': other}, 'mine') == [
        'Each of the 3 heads counts once, by the most specific thing that it does: '
        '1 self, 2 others.'
    ]
    said = [report._texts(each, own.subject, own=True) for each in (own, other)]
    assert said == [('your texts: mine', True), ('example frames', False)]
    data = base.get_config().data
    data.update({'source': 'file', 'file': 'my/mine.csv'})
    assert inputs.is_own(data) and inputs.texts_in_words(data) == 'Your texts: mine.csv.'
