"""Some hundreds of mutants of everything that the package reads, and the instrument itself."""

import dataclasses
import logging
import pathlib
import pickle
import random
import sys
import time

import pytest

from tests.conftest import rarely
from tests.fuzz import catalogue, mutate, pickles, pool
from tests.fuzz.__main__ import listing
from tests.fuzz.target import MARKER, Target, Unchecked, canonical
from tests.fuzz.texts import split_csv
from tests.fuzz.worker import Verdict, judge


@pytest.mark.parametrize('count', rarely([150, 400], often=[150]))
def test_nothing_fails(count):
    """Failures are listed with what repeats them: `python -m tests.fuzz --repeat=CLASS:SEED`."""
    jobs = catalogue.schedule(list(catalogue.TARGETS), count, seed=0)
    # Sorted, so that one worker makes the sample of most classes. A busy machine may take long.
    verdicts = list(pool.run(sorted(jobs), workers=2, limit=30))
    assert len(verdicts) == count
    failures = listing(verdicts)
    assert not failures, f'\n{failures}'


def fails(error):
    def read(_):
        raise error

    return read


def is_slow(_):
    time.sleep(5)


@pytest.mark.parametrize(
    ('outcome', 'read'),
    [
        ('refused', fails(ValueError('mutant/a.txt is damaged.'))),
        ('refused', fails(FileNotFoundError(2, 'No such file', 'mutant/a.txt'))),
        ('unclear', fails(ValueError('not a number'))),
        ('unclear', fails(OSError())),
        ('traceback', fails(KeyError('a.txt'))),
        ('traceback', fails(RecursionError('a.txt'))),
        ('traceback', fails(SystemExit('a.txt'))),
        ('memory', fails(MemoryError())),
        ('hang', is_slow),
        ('unchecked', fails(Unchecked())),
        ('identical', lambda _: 'pristine'),
        ('as_written', lambda _: 'other'),
        ('silent', lambda _: 'wrong'),
    ],
)
def test_judge(tmp_path, monkeypatch, outcome, read):
    monkeypatch.setattr(sys, 'stdin', None)
    folder = tmp_path / 'mutant'
    folder.mkdir()
    (folder / 'a.txt').write_text('other')
    target = Target('a', None, None, read, lambda folder: (folder / 'a.txt').read_text())
    assert judge(target, folder, canonical('pristine'), 0.2)[0] == outcome


def test_a_told_difference(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, 'stdin', None)

    def read(_):
        logging.getLogger('absl').warning('a.txt is short')
        return 'wrong'

    (tmp_path / 'a.txt').touch()
    target = Target('a', None, None, read)
    assert judge(target, tmp_path, 'pristine', 1)[0] == 'silent'
    assert judge(dataclasses.replace(target, told=True), tmp_path, 'pristine', 1)[0] == 'told'


def test_failures_are_listed_with_what_repeats_them():
    verdict = Verdict('csv', 7, 'pipe: texts.csv', 'hang', 'Hang: over 1 s', 'data/tables.py:1 f')
    assert 'hang: --repeat=csv:7 (2 times)\n    pipe: texts.csv' in listing([verdict] * 2)
    assert not listing([Verdict('csv', 7, 'empty: texts.csv', 'refused')])


@pytest.mark.parametrize('name', ['safetensors', 'config', 'csv', 'annotations', 'vocab'])
def test_a_mutant_is_a_function_of_class_and_seed(name, tmp_path):
    target = catalogue.TARGETS[name]
    for number, variant in enumerate(('one', 'other', 'two')):
        target.make(tmp_path / variant, number % 2)
    contents = []
    for variant in ('one', 'two'):
        told = target.mutate(random.Random(f'{name}:3'), tmp_path / variant)
        files = sorted((tmp_path / variant).rglob('*'))
        contents.append([told, *(file.read_bytes() for file in files)])
    assert contents[0] == contents[1]


def test_the_payloads_do_run_where_they_are_allowed_to(tmp_path, monkeypatch):
    """Otherwise their marker would prove nothing."""
    monkeypatch.chdir(tmp_path)
    for name in ('os.system', 'eval', 'INST', 'OBJ'):
        pickle.loads(b'\x80\x04' + pickles.HOSTILE[name] + b'.')
        pathlib.Path(MARKER).unlink()


def test_mutants_differ_from_their_sample():
    data = bytes(range(200))
    rng = random.Random(0)
    mutants = [mutate.damage(rng, data)[0] for _ in range(300)]
    assert len(set(mutants)) > 200 and sum(mutant == data for mutant in mutants) < 30


def test_a_bomb_is_small():
    assert len(mutate.bomb(2**30)) < 2**21


def test_split_csv():
    text = 'a,b\r\n"x ""y"", z","two\nlines"\n\n,""\nlast,'
    assert split_csv(text) == [['a', 'b'], ['x "y", z', 'two\nlines'], ['', ''], ['last', '']]
    for wrong in ('a,"b', 'a,"b"c', 'a\rb'):
        with pytest.raises(ValueError):
            split_csv(wrong)


def test_equal_values_are_equal():
    assert canonical({'a': float('nan'), 'b': (1, 2)}) == canonical(
        {'b': [1, 2], 'a': float('nan')}
    )
    assert canonical(1) != canonical(1.0) != canonical(True)
