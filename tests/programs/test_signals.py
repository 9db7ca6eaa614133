"""Signals, and terminals that lack characters: a program ends with one line and a known status."""

import os
import signal
import subprocess
import sys
import time

import pytest

BODY = """
import pathlib, signal, sys, time
# A shell without job control leaves it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.programs.cli import interruptible
with interruptible():
    try:
        print('started', flush=True)
        {body}
    finally:
        pathlib.Path('cleaned').touch()
"""


def start(folder, body, **environment):
    return subprocess.Popen(
        [sys.executable, '-c', BODY.format(body=body)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {'PYTHONPATH': os.getcwd()} | environment,
    )


def stopped(process, which=signal.SIGTERM):
    """Send a signal, check the status that it ends with, and return what is said."""
    process.send_signal(which)
    _, said = process.communicate(timeout=20)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[which]
    return said.strip()


SAID = 'stopped; the same command continues'


@pytest.mark.parametrize('which', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_program_in_one_line(tmp_path, which):
    process = start(tmp_path, 'time.sleep(60)')
    assert process.stdout.readline() == 'started\n'
    assert stopped(process, which) == SAID
    assert (tmp_path / 'cleaned').exists()


def test_a_second_signal_does_not_disturb_the_ending(tmp_path):
    body = """
        try:
            print('at work', flush=True)
            time.sleep(60)
        finally:
            time.sleep(0.4)
            pathlib.Path('slowly').touch()
    """
    process = start(tmp_path, body.strip())
    assert process.stdout.readline() + process.stdout.readline() == 'started\nat work\n'
    for _ in range(19):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert 'Traceback' not in stopped(process)
    assert (tmp_path / 'slowly').exists()


def test_nothing_half_written_is_left(tmp_path):
    body = 'while True: write_atomically(pathlib.Path("a"), bytes(3_000_000))'
    process = start(tmp_path, body)
    process.stdout.readline()
    time.sleep(0.5)
    stopped(process)
    assert {path.name for path in tmp_path.iterdir()} <= {'a', 'cleaned'}
    assert (tmp_path / 'a').stat().st_size == 3_000_000


def test_a_terminal_without_the_character_shows_its_code(tmp_path):
    process = start(tmp_path, r'print("\u4e2d \udc80")', PYTHONIOENCODING='ascii:strict')
    said, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert '\\u4e2d \\udc80' in said


@pytest.mark.slow
def test_a_signal_that_python_drops_comes_again(tmp_path):
    """An error that is raised while an object is destroyed is lost."""
    body = (
        'Slow = type("Slow", (), {"__del__": lambda self: time.sleep(3)}); Slow(); time.sleep(60)'
    )
    for which in (signal.SIGINT, signal.SIGTERM):
        process = start(tmp_path, body)
        assert process.stdout.readline() == 'started\n'
        time.sleep(0.5)
        assert stopped(process, which) == SAID
