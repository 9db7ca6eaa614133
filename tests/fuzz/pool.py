"""Worker processes, of which each serves one mutant after the other and may die of any."""

import collections
import multiprocessing
import os
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from typing import Any

from tests.fuzz.target import MARKER
from tests.fuzz.worker import Verdict, serve

# Seconds in which a worker must have started.
_START = 120
# Seconds in which a mutant must be made; the worker itself gives up sooner.
_MAKE = 260
# Seconds beyond the limit until a worker that does not answer is killed.
_GRACE = 3
_ENVIRONMENT = {
    'JAX_PLATFORMS': 'cpu',
    'HF_HUB_OFFLINE': '1',
    'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
}


class _Worker:
    """A worker process, which is started again when it has died."""

    def __init__(self, limit: float, keep: str | None, keep_good: bool):
        self.limit, self._keep = limit, (keep, keep_good)
        self.start()

    def start(self) -> None:
        self.home = tempfile.mkdtemp(prefix='fuzz-')
        # Never forked: JAX has threads.
        context = multiprocessing.get_context('spawn')
        self.connection, other = context.Pipe()
        self.process = context.Process(
            target=serve, args=(other, self.home, self.limit, *self._keep), daemon=True
        )
        self.process.start()
        other.close()
        self.job: tuple[str, int] | None = None
        self.damage = ''
        self.ready = False
        self.deadline = time.monotonic() + _START

    def give(self, job: tuple[str, int]) -> None:
        self.job, self.damage = job, 'not made'
        self.deadline = time.monotonic() + _MAKE
        self.connection.send(job)

    def bury(self) -> Verdict | None:
        """Kill the process and remove its folder; return the verdict on what it was reading."""
        late = time.monotonic() >= self.deadline
        self.process.kill()
        self.process.join()
        last = (pathlib.Path(self.home) / 'stderr').read_text(errors='replace')[-250:].strip()
        if self.job is None:
            # Before it had read any mutant: nothing that another start would mend.
            raise RuntimeError(f'A worker did not start:\n{last}')
        name, seed = self.job
        executed = (pathlib.Path(self.home) / name.rpartition('/')[2] / MARKER).exists()
        killed = self.process.exitcode == -signal.SIGKILL
        full = 'memory allocation' in last or 'bad_alloc' in last or 'MemoryError' in last
        outcome = (
            'executed' if executed
            else 'instrument' if self.damage == 'not made'
            else 'hang' if late
            else 'memory' if full or killed
            else 'crash'
        )  # fmt: skip
        detail = 'killed after the time limit' if late else f'exit {self.process.exitcode}: {last}'
        return Verdict(name, seed, self.damage, outcome, detail[:300])

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
        shutil.rmtree(self.home, ignore_errors=True)


def run(
    jobs: Sequence[tuple[str, int]],
    *,
    workers: int = 1,
    limit: float = 10,
    keep: str | None = None,
    keep_good: bool = False,
) -> Iterator[Verdict]:
    """Yield the verdict on each job (class, seed), in the order in which they are done.

    Args:
      jobs: The classes and seeds.
      workers: The number of processes.
      limit: The seconds that reading one mutant may take.
      keep: A folder for the files of mutants that fail; None keeps none.
      keep_good: Whether to keep those that do not fail, too.

    Raises:
      RuntimeError: A worker did not start, or read another copy of the package than this one.
    """
    waiting = collections.deque(jobs)
    before = {name: os.environ.get(name) for name in (*_ENVIRONMENT, 'HF_HOME')}
    with tempfile.TemporaryDirectory(prefix='fuzz-hub-') as hub:
        # Read when libraries are imported, so before the processes start.
        os.environ.update(_ENVIRONMENT, HF_HOME=hub)
        pool = [_Worker(limit, keep, keep_good) for _ in range(min(workers, len(jobs)))]
        try:
            yield from _serve(pool, waiting, len(jobs))
        finally:
            for worker in pool:
                worker.stop()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _serve(pool: Sequence[_Worker], waiting: Any, count: int) -> Iterator[Verdict]:
    done = 0
    while done < count:
        soonest = min(worker.deadline for worker in pool)
        wait([worker.connection for worker in pool], max(0, soonest - time.monotonic()))
        for worker in pool:
            verdict = _hear(worker)
            if verdict is not None:
                done += 1
                yield verdict
            if worker.ready and worker.job is None:
                if waiting:
                    worker.give(waiting.popleft())
                else:
                    worker.deadline = float('inf')


def _hear(worker: _Worker) -> Verdict | None:
    """Take what a worker says; bury one that died or is late, and start another in its place."""
    verdict = None
    try:
        if worker.connection.poll():
            kind, said = worker.connection.recv()
            if kind == 'ready':
                _check_package(said)
                worker.ready = True
            elif kind == 'made':
                worker.damage = said
                worker.deadline = time.monotonic() + worker.limit + _GRACE
            else:
                verdict, worker.job = said, None
            return verdict
        if time.monotonic() < worker.deadline:
            return None
    except (EOFError, ConnectionError):
        worker.process.join(5)
    verdict = worker.bury()
    worker.stop()
    worker.start()
    return verdict


def _check_package(file: str) -> None:
    import bert_secrets_jax

    if file != bert_secrets_jax.__file__:
        raise RuntimeError(f'Workers read {file}, and this is {bert_secrets_jax.__file__}.')
