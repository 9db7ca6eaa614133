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


def fails(error):
    def read(_):
        if text() != 'pristine':
            raise error
        return 'pristine'

    return read


def is_slow(_):
    if text() != 'pristine':
        time.sleep(5)
    return 'pristine'


def takes_much(_):
    if text() != 'pristine':
        bytes(2**32)
    return 'pristine'


def executes(_):
    if text() != 'pristine':
        os.system(f'touch {broken.MARKER}')
        raise ValueError('a.txt is damaged')
    return 'pristine'


def is_told(_):
    if text() != 'pristine':
        logging.getLogger('absl').warning('a.txt is short')
        return 'wrong'
    return 'pristine'


@pytest.mark.parametrize(
    ('failure', 'read'),
    [
        (None, fails(ValueError('broken/a.txt is damaged.'))),
        (None, fails(FileNotFoundError(2, 'No such file', 'broken/a.txt'))),
        (None, lambda _: 'pristine'),
        (None, text),
        ('it names nothing', fails(ValueError('not a number'))),
        ('it names nothing', fails(OSError())),
        ('neither read nor refused', fails(KeyError('a.txt'))),
        ('neither read nor refused', fails(RecursionError('a.txt'))),
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


@pytest.mark.parametrize('kind', sorted(KINDS.keys() - {'missing', 'folder', 'no permission'}))
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
