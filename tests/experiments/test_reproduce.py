"""Sections that fail: what is said of them, and what goes on."""

import pytest
from absl import logging

from bert_secrets_jax.report.html import Section
from configs import base
from experiments import reproduce
from experiments.study import Study, fails_once


@pytest.fixture
def study(tmp_path):
    return Study(base.get_config(), tmp_path)


def fine(study):
    return Section('Fine', [], [])


def test_the_others_run(study, caplog):
    """One error of two sections is told once; an unexpected one says where it arose, in the log."""

    def unreadable(study):
        raise OSError('texts.tsv is not there.\nline 1\nline 2')

    def mistaken(study):
        return {}['no such key']

    def damaged(study):
        raise ValueError('own.jsonl is damaged.\nline 9')

    chosen = {'a': unreadable, 'b': fine, 'c': unreadable, 'd': mistaken, 'claims': fine}
    failures = {}
    logging.get_absl_logger().propagate = True
    sections = reproduce.run(study, chosen, 'RTE: ', failures)
    assert [section.title for section in sections] == [
        'RTE: Fine', 'RTE: a (failed)', 'RTE: Fine', 'RTE: c (failed)', 'RTE: d (failed)',
    ]  # fmt: skip
    details = study.workdir / 'error.txt'
    mended = f'texts.tsv is not there. All of them: {details}'
    unexpected = "KeyError: 'no such key' (unexpected; log.txt has where)"
    assert failures == {mended: ['RTE: a', 'RTE: c'], unexpected: ['RTE: d']}
    assert sections[1].paragraphs == [f'It failed: {mended}']
    assert sections[3].paragraphs == ['It failed as RTE: a did.']
    assert details.read_text().splitlines()[1:] == ['line 1', 'line 2']
    # What another one lists stands below.
    reproduce.run(study, {'e': damaged}, '', {})
    assert details.read_text().splitlines()[2:] == ['line 2', 'own.jsonl is damaged.', 'line 9']
    assert 'in mistaken' in caplog.text and 'in unreadable' not in caplog.text


def test_a_user_can_still_stop(study):
    def stopped(study):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce.run(study, {'a': stopped, 'b': fine}, '', {})


def test_what_several_sections_need_is_tried_once(study):
    tried = []

    @fails_once
    def train(study, start):
        """Train."""
        tried.append(start)
        if start == 'bad':
            raise FloatingPointError('The loss is not finite.')
        return len(tried)

    chosen = {name: lambda study: train(study, 'bad') for name in 'abc'}
    failures = {}
    reproduce.run(study, chosen, '', failures)
    assert tried == ['bad'] and failures == {'The loss is not finite.': ['a', 'b', 'c']}
    # Other arguments are another step, success is not remembered, and neither is another run's.
    assert [train(study, 'good'), train(study, 'good')] == [2, 3]
    with pytest.raises(FloatingPointError):
        train(Study(study.config, study.workdir), 'bad')
    assert len(tried) == 4 and train.__doc__ == 'Train.'
