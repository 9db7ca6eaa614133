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
from tests.together import assert_same, measured, swept, tuned

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


def assert_found(folder, count, expected):
    for number in range(count):
        with np.load(folder / f'found{number}.npz') as found:
            assert_same(found, expected)


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
    assert_found(tmp_path, count, expected)


@pytest.mark.slow
def test_a_killed_process_ends_all_and_the_same_command_goes_on(
    checkpoint, tmp_path, start, expected
):
    command = worker(checkpoint, tmp_path, 'finetune', '--mesh=data:2,seeds:2', '--heartbeat=15')
    run = start(command, 2, of_each={1: ['--killed-at=3']})
    assert run[1].stdout.readline() == 'killed\n'
    since = time.monotonic()
    (status, said, errors), (killed, _, of_killed) = ended(run)
    assert time.monotonic() - since < 15 + 15
    assert killed < 0 < abs(status) and said == ''
    for number, line in enumerate((errors, of_killed)):
        assert line.startswith(f'process {number} of 2 stopped: it was killed, or it lost another ')
        assert 'the same command continues' in line and line.count('\n') == 1
    steps = [path.name for path in (tmp_path / 'tuned' / 'checkpoints').iterdir()]
    assert steps == ['3']
    for status, said, errors in ended(start(command, 2)):
        assert status == 0 and said == '', errors
    assert_found(tmp_path, 2, expected)


def test_flags_that_go_together(checkpoint, tmp_path):
    for given in ({'num_processes': 2}, {'process_id': 0, 'num_processes': 1}):
        context = processes.together(**given)
        with pytest.raises(SystemExit, match='error: --coordinator_address=HOST:PORT, --num_pro'):
            context.__enter__()


@pytest.mark.slow
def test_a_program_in_two_processes(checkpoint, glue_dir, tmp_path, start):
    """The first one alone writes and speaks; what goes wrong is said once."""

    def command(address, count, number, model=checkpoint):
        return (
            '-m', 'experiments.ablate',
            *settings(model, glue_dir, tmp_path / 'run', 'configs/paper.py:mrpc:smoke'),
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
    wrong = ended(start(lambda *given: command(*given, model='/nowhere'), 2))
    assert [status for status, *_ in wrong] == [1, 1]
    assert "error: '/nowhere' is no directory here" in wrong[0][2] and wrong[1][2] == ''
