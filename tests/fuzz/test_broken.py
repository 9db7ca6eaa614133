"""The instrument itself: how each outcome of reading is judged, and how files are damaged."""

import contextlib
import dataclasses
import logging
import math
import os
import time

import pytest

from tests.fuzz import broken
from tests.fuzz.broken import FOLDER, KINDS, Format, canonical


def make(folder):
    (folder / 'a.txt').write_text('pristine')


def text(_=None) -> str:
    return (FOLDER / 'a.txt').read_text()


def unless_pristine(act):
    """Return a reader that does something where the file is another one."""
    return lambda _: 'pristine' if text() == 'pristine' else act()


def fails(error):
    def act():
        raise error

    return unless_pristine(act)


is_slow = unless_pristine(lambda: time.sleep(5))
takes_much = unless_pristine(lambda: bytes(2**32))
executes = unless_pristine(lambda: os.system(f'touch {broken.MARKER}'))
is_told = unless_pristine(lambda: logging.getLogger('absl').warning('a.txt is short'))


@pytest.mark.parametrize(
    ('failure', 'read'),
    [
        (None, fails(ValueError('broken/a.txt is damaged.'))),
        (None, lambda _: 'pristine'),
        (None, text),
        ('it names nothing', fails(ValueError('not a number'))),
        ('neither read nor refused', fails(KeyError('a.txt'))),
        ('neither read nor refused', fails(SystemExit('a.txt'))),
        ('neither read nor refused: MemoryError', takes_much),
        ('neither read nor refused: Hang', is_slow),
        ('something was executed', executes),
        ('silently read wrong', lambda _: text().replace('other', 'wrong')),
        ('silently read wrong', is_told),
    ],
)
def test_outcomes(monkeypatch, failure, read):
    monkeypatch.setattr(broken, 'SECONDS', 0.2)
    kind = Format(make, read, text)
    fails = pytest.raises(AssertionError, match=failure) if failure else contextlib.nullcontext()
    with fails:
        kind.check({'a.txt': b'other'})
    if read is is_told:
        dataclasses.replace(kind, told=True).check({'a.txt': b'other'})


@pytest.mark.parametrize(
    'kind', sorted(KINDS.keys() - {'missing', 'folder', 'no permission', 'sparse'})
)
def test_what_is_no_file_must_be_refused(kind):
    """No plain reader excuses a value that is read of it."""

    def read(_):
        file = FOLDER / 'a.txt'
        return 'pristine' if file.is_file() and not file.is_symlink() else 'other'

    with pytest.raises(AssertionError, match='silently read: .*a.txt'):
        Format(make, read, read).check({'a.txt': kind})


def test_equal_values_are_equal():
    assert canonical({'a': math.nan, 'b': (1, 2)}) == canonical({'b': [1, 2], 'a': math.nan})
    assert canonical(1) != canonical(1.0) != canonical(True)
