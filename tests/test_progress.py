"""Progress yields every item and says where it stands."""

import io
import logging

import absl.logging
import pytest

from bert_secrets_jax import progress as progress_module
from bert_secrets_jax.progress import progress


def lines(caplog, items, **settings) -> list[str]:
    with caplog.at_level(logging.INFO, logger='absl'):
        assert list(progress(items, 'Reading', size=len, unit='letters', **settings)) == items
    return [record.getMessage() for record in caplog.records]


def test_plain_lines_in_a_log(caplog, monkeypatch):
    monkeypatch.setattr(progress_module, '_SECONDS_BETWEEN_LINES', 0)
    start, middle, end = lines(caplog, ['ab', 'c', ''])
    assert start == 'Reading: 0/3 letters, compiling the first batch ...'
    assert middle.startswith('Reading: 2/3 letters, ') and middle.endswith(' s left')
    assert end.startswith('Reading: 3/3 letters, ') and 'done in' in end


@pytest.mark.parametrize('compiles', [True, False])
def test_a_bar_on_a_terminal(capsys, monkeypatch, compiles):
    monkeypatch.setattr('sys.stderr.isatty', lambda: True, raising=False)
    shown = progress([[1], [2]], 'Reading', size=len, compiles=compiles)
    assert next(shown) == [1]
    before = capsys.readouterr().err
    assert '0/2' in before and ('compiling the first batch' in before) == compiles
    assert list(shown) == [[2]]
    last = capsys.readouterr().err.rstrip().rsplit('\r', 1)[-1]
    assert '2/2' in last and 'compiling' not in last


def test_lines_of_a_script_that_has_set_up_no_log(capsys):
    absl.logging.set_verbosity(absl.logging.WARNING)
    assert list(progress(['ab'], 'Fine-tuning', size=len)) == ['ab']
    assert 'Fine-tuning: 0/2 examples' in capsys.readouterr().err
    absl.logging.set_verbosity(absl.logging.ERROR)
    assert list(progress(['ab'], 'Fine-tuning', size=len)) == ['ab']
    absl.logging.set_verbosity(absl.logging.WARNING)
    assert not capsys.readouterr().err


def test_a_bar_in_a_notebook_needs_no_widgets(monkeypatch, recwarn):
    kernel = type('OutStream', (io.StringIO,), {'__module__': 'ipykernel.iostream'})()
    monkeypatch.setattr('sys.stderr', kernel)
    assert list(progress([[1], [2]], 'Reading', size=len)) == [[1], [2]]
    assert 'Reading:' in kernel.getvalue() and not recwarn.list
