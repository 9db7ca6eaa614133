"""Several real processes on this machine give the numbers of one, and end together."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import bert_secrets_jax as bs
from tests.conftest import ROOT
from tests.together import measured, swept, tuned

SECONDS = 240


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory, bert, params, tokenizer):
    directory = tmp_path_factory.mktemp('checkpoint')
    bs.save_pretrained(bs.Pretrained(bert, params, tokenizer), directory)
    return directory


@pytest.fixture
def start():
    """Return a function that starts several processes; none of them outlives the test."""
    started = []

    def start(command, count, *, of_each=None):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            address = f'127.0.0.1:{free.getsockname()[1]}'
        for number in range(count):
            own = (of_each or {}).get(number, ())
            started.append(
                subprocess.Popen(
                    [sys.executable, *command(address, count, number), *own],
                    cwd=ROOT,
                    env=os.environ | {'JAX_NUM_CPU_DEVICES': str(max(4 // count, 1))},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started[-count:]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(processes) -> list[tuple[int, str, str]]:
    """Return the status of each process, and what it said."""
    until = time.monotonic() + SECONDS
    said = [each.communicate(timeout=max(until - time.monotonic(), 1)) for each in processes]
    return [(each.returncode, *text) for each, text in zip(processes, said, strict=True)]


def worker(checkpoint, folder, work, *options):
    def command(address, count, number):
        return (
            '-m', 'tests.together', str(checkpoint), str(folder), work, f'--address={address}',
            f'--count={count}', f'--id={number}', *options,
        )  # fmt: skip

    return command


@pytest.fixture(scope='module')
def expected(checkpoint, tmp_path_factory):
    """What one process finds on one device."""
    model = bs.from_pretrained(checkpoint)
    folder = tmp_path_factory.mktemp('alone')
    return {
        **measured(model, None),
        **swept(model, None, None),
        **swept(model, None, None, 'resample'),
        **tuned(model, None, folder / 'tuned'),
    }


def assert_same(folder, count, expected):
    for number in range(count):
        with np.load(folder / f'found{number}.npz') as found:
            assert found.files and set(found.files) <= set(expected)
            for name in found.files:
                np.testing.assert_allclose(
                    found[name], expected[name], rtol=2e-4, atol=2e-5, err_msg=name
                )


@pytest.mark.parametrize(
    ('count', 'mesh'),
    [(2, ''), pytest.param(4, '', marks=pytest.mark.slow)],
)
def test_several_processes_give_the_numbers_of_one(
    checkpoint, tmp_path, start, expected, count, mesh
):
    command = worker(checkpoint, tmp_path, 'collect,sweep,finetune', f'--mesh={mesh}')
    for status, said, errors in ended(start(command, count)):
        assert status == 0 and said == '', errors
    assert_same(tmp_path, count, expected)
