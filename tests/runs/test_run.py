"""Results that were computed once are kept under what they depend on."""

import dataclasses
import json
import logging
import multiprocessing
import os
import re
import threading
import time

import numpy as np
import pytest

from bert_secrets_jax.runs.run import Run


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers:
    values: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Texts:
    values: str


def kept(run, value, *, calls=None, name='a', **depends_on):
    """Keep a number that is noted in the calls when it is computed."""

    def compute():
        if calls is not None:
            calls.append(value)
        return Numbers(np.array([value]))

    return run.keep(name, Numbers, depends_on, compute).values.tolist()


def test_other_settings_are_computed_and_the_former_found_again(tmp_path):
    calls = []
    for seed in (0, 1, 0, 1):
        # Another object, as in another process.
        assert kept(Run(tmp_path), seed, calls=calls, seed=seed, tuple=(1, 2)) == [seed]
    assert calls == [0, 1]
    # Another name and another class are something else; the order of settings is nothing.
    run = Run(tmp_path)
    kept(run, 2, calls=calls, name='b', seed=0, tuple=(1, 2))
    run.keep('a', Texts, {'seed': 0, 'tuple': (1, 2)}, lambda: Texts('x'))
    kept(run, 3, calls=calls, tuple=[1, 2], seed=0)
    assert calls == [0, 1, 2]


def test_only_what_is_missing_is_computed_together(tmp_path):
    asked = []

    def compute(names):
        asked.append(list(names))
        return {name: Numbers(np.array([len(name)])) for name in names}

    run = Run(tmp_path)
    key = lambda *names: {name: {'statistic': name} for name in names}
    run.keep_each(Numbers, key('a', 'bb'), compute)
    found = run.keep_each(Numbers, key('a', 'bb', 'ccc'), compute, wanted=['a'])
    # All that is wanted was there.
    assert list(found) == ['a'] and asked == [['a', 'bb']]
    found = Run(tmp_path).keep_each(Numbers, key('a', 'bb', 'ccc', 'dddd'), compute, wanted=['ccc'])
    assert list(found) == ['ccc'] and asked[1:] == [['ccc', 'dddd']]


def _hold(folder, ready):
    with Run(folder).alone(folder / 'kept' / 'a.npz'):
        ready.set()
        time.sleep(60)


def test_the_second_of_two_runs_learns_who_has_the_lock(tmp_path, caplog):
    logging.getLogger('absl').propagate = True
    caplog.set_level(logging.INFO)
    spawn = multiprocessing.get_context('spawn')
    ready = spawn.Event()
    first = spawn.Process(target=_hold, args=(tmp_path, ready))
    first.start()
    assert ready.wait(60)
    threading.Timer(1, first.kill).start()
    # The lock of a process that was killed is free.
    with Run(tmp_path).alone(tmp_path / 'kept' / 'a.npz'):
        pass
    first.join()
    assert re.search(
        rf'Process {first.pid} on \S+, since 0:\d\d:\d\d, computes a: waiting', caplog.text
    )


def test_what_a_killed_process_has_left_in_a_lock_stops_nobody(tmp_path):
    lock = tmp_path / 'kept' / 'a.lock'
    lock.parent.mkdir()
    for content in ('', '{"process": 1, "host": "here"}', '\x00\xff', '[' * 10_000):
        lock.write_text(content)
        with Run(tmp_path).alone(tmp_path / 'kept' / 'a.npz'):
            assert json.loads(lock.read_text())['process'] == os.getpid()


def test_a_failure_keeps_nothing(tmp_path):
    def fail():
        raise FloatingPointError('not finite')

    run = Run(tmp_path)
    with pytest.raises(FloatingPointError):
        run.keep('a', Numbers, {}, fail)
    assert not list((tmp_path / 'kept').glob('*.npz'))
    assert kept(run, 1) == [1]
    with pytest.raises(TypeError):
        kept(Run(tmp_path), 1, mesh=object())


def test_a_run_that_is_only_read_stays_as_it_is(tmp_path, caplog):
    reading = lambda: Run(tmp_path, writable=False)
    assert reading().kept('a', Numbers, {}) is None
    assert kept(reading(), 1) == [1] and not list(tmp_path.iterdir())
    kept(Run(tmp_path), 1)
    assert reading().kept('a', Numbers, {}).values.tolist() == [1]
    # A damaged file stays where it is.
    (file,) = (tmp_path / 'kept').glob('*.npz')
    file.write_bytes(b'of another version')
    assert reading().kept('a', Numbers, {}) is None
    assert file.read_bytes() == b'of another version'
    # Another one sets it aside, and asks for nothing.
    kept(Run(tmp_path), 1)
    assert 'Computing again; set aside as' in caplog.text and 'delete' not in caplog.text


def _compute_slowly(folder, calls):
    def compute():
        with calls.open('a') as file:
            file.write(f'{os.getpid()}\n')
        time.sleep(0.5)
        return Numbers(np.arange(3))

    found = Run(folder).keep('a', Numbers, {}, compute)
    assert found.values.tolist() == [0, 1, 2]


def test_two_processes_compute_it_once(tmp_path):
    calls = tmp_path / 'calls'
    spawn = multiprocessing.get_context('spawn')
    arguments = tmp_path / 'run', calls
    processes = [spawn.Process(target=_compute_slowly, args=arguments) for _ in range(2)]
    for step in (spawn.Process.start, spawn.Process.join):
        list(map(step, processes))
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(calls.read_text().splitlines()) == 1
    assert not list((tmp_path / 'run').rglob('*.partial'))
