"""Progress yields every item and says where it stands."""

import logging

from bert_secrets_jax import progress as progress_module
from bert_secrets_jax.progress import progress


def test_plain_lines_in_a_log(caplog, monkeypatch):
    monkeypatch.setattr(progress_module, '_SECONDS_BETWEEN_LINES', 0)
    with caplog.at_level(logging.INFO, logger='absl'):
        assert list(progress(['ab', 'c'], 'Reading', size=len, unit='letters')) == [
            'ab',
            'c',
        ]
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith('Reading: 2/3 letters, ') and 's left' in first
    assert last.startswith('Reading: 3/3 letters, ') and last.endswith('0 s left')


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr('sys.stderr.isatty', lambda: True, raising=False)
    assert list(progress([[1], [2]], 'Reading', size=len)) == [[1], [2]]
    assert '2/2' in capsys.readouterr().err
