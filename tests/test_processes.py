"""Several real processes on this machine give the numbers of one, and end together."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax import processes
from tests.conftest import ROOT
from tests.experiments.conftest import settings
from tests.together import assert_same, measured, pruned, swept, tuned

SECONDS = 600


@pytest.fixture
def start(tmp_path):
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
                    # Messages of libraries about a loss stay in files.
                    env=os.environ
                    | {'JAX_NUM_CPU_DEVICES': str(max(4 // count, 1)), 'TMPDIR': str(tmp_path)},
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


def worker(checkpoint, folder, *options):
    def command(address, count, number):
        return (
            '-m', 'tests.together', str(checkpoint), str(folder), f'--address={address}',
            f'--count={count}', f'--id={number}', *options,
        )  # fmt: skip

    return command


@pytest.fixture(scope='module')
def expected(checkpoint, tmp_path_factory):
    """Return what one process finds on one device."""
    model = bs.from_pretrained(checkpoint)
    folder = tmp_path_factory.mktemp('alone')
    return {
        **measured(model, None),
        **swept(model, None, None),
        **swept(model, None, None, 'resample'),
        **tuned(model, None, folder / 'tuned'),
        **pruned(model, None),
    }


def assert_found(folder, count, expected):
    for number in range(count):
        with np.load(folder / f'found{number}.npz') as found:
            assert_same(found, expected)


def assert_masks_are_spread(folder, count):
    """Each of four devices holds rows of its own, and computes few others."""
    for piece in ('close_layer', 'run_layer'):
        held = [np.load(folder / f'held{number}.npz') for number in range(count)]
        rows = np.concatenate([each[f'rows {piece}'] for each in held])
        assert len(rows) == 4 and rows[0, 0] == 0
        np.testing.assert_array_equal(rows[1:, 0], rows[:-1, 1])
        assert (np.diff(rows) == rows[0, 1]).all()
        assert all(0.24 < each[f'share {piece}'] < 0.33 for each in held)


def assert_stopped(number, count, status, said, errors):
    assert status != 0 and said in ('', 'killed\n')
    line = f'process {number} of {count} stopped: it was killed, or it lost another process '
    assert errors.startswith(line) and 'the same command continues' in errors
    assert errors.count('\n') == 1


@pytest.mark.slow
def test_two_processes_that_are_killed_in_turn_give_the_numbers_of_one(
    checkpoint, tmp_path, start, expected
):
    """Then one of them meets an error that the other does not have."""
    options = ('--masks=data:1,masks:4', '--seeds=data:2,seeds:2', '--heartbeat=15', '--prune=yes')
    command = worker(checkpoint, tmp_path, *options)
    for step, killed in ((2, 1), (3, 0)):
        run = start(command, 2, of_each={killed: [f'--killed-at={step}']})
        assert run[killed].stdout.readline() == 'killed\n'
        since = time.monotonic()
        for number, found in enumerate(ended(run)):
            assert_stopped(number, 2, *found)
        assert time.monotonic() - since < 15 + 15
        assert run[killed].returncode < 0
        kept = {path.name for path in (tmp_path / 'tuned' / 'checkpoints').iterdir()}
        assert f'{step}' in kept or f'{step - 1}' in kept
    command = worker(checkpoint, tmp_path, *options, '--fails=one')
    first, (status, said, errors) = ended(start(command, 2))
    assert_stopped(0, 2, *first)
    assert status == 1 and said == '' and errors == 'process 1: error: no such file\n'
    assert_found(tmp_path, 2, expected)
    assert_masks_are_spread(tmp_path, 2)


@pytest.mark.slow
def test_four_processes_give_the_numbers_of_one(checkpoint, tmp_path, start, expected):
    """Then all meet an error, which is said once."""
    command = worker(checkpoint, tmp_path, '--masks=data:2,masks:2', '--fails=all')
    (status, said, errors), *others = ended(start(command, 4))
    assert (status, said, errors) == (1, '', 'error: no such file\n')
    assert others == [(1, '', '')] * 3
    assert_found(tmp_path, 4, expected)
    assert_masks_are_spread(tmp_path, 4)


def test_flags_that_go_together(checkpoint, tmp_path):
    for given in ({'num_processes': 2}, {'process_id': 0, 'num_processes': 1}):
        context = processes.together(**given)
        with pytest.raises(SystemExit, match='error: --coordinator_address=HOST:PORT, --num_pro'):
            context.__enter__()


@pytest.mark.slow
def test_a_program_in_two_processes(checkpoint, glue_dir, tmp_path, start):
    """The first one alone writes and speaks."""

    def command(address, count, number):
        return (
            '-m', 'experiments.ablate',
            *settings(checkpoint, glue_dir, tmp_path / 'run', 'configs/paper.py:mrpc:smoke'),
            '--config.ablation.sets=(\'heads\',)', '--config.linguistics.pipeline=',
            f'--coordinator_address={address}', f'--num_processes={count}',
            f'--process_id={number}',
        )  # fmt: skip

    (first, said, log), (second, silent, errors) = ended(start(command, 2))
    assert first == second == 0, log + errors
    assert said.splitlines()[-1] == f'Report: {tmp_path / "run" / "report.html"}'
    assert silent == '' and errors == '' and 'Ablation' in log
    assert list((tmp_path / 'run' / 'kept').glob('*.npz'))
    assert not list((tmp_path / 'run').rglob('*.partial'))
    again = ended(start(command, 2))
    assert [status for status, *_ in again] == [0, 0] and 'Ablation' not in again[0][2]
