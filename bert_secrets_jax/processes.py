"""Several processes that compute one run together: how they start, agree, and end.

All of them run the same program on the same inputs, and each computes its share of every array. The
first process alone writes. What is done depends on the files that it sees, so that the processes
never wait for each other in different places. The folder of the run is one that all of them see.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NoReturn, TextIO, TypeVar

import jax
import numpy as np
from absl import logging
from jax.experimental import multihost_utils

T = TypeVar('T')
HEARTBEAT_SECONDS = 100
# A file that one machine has written may take so long to be seen on another.
_SECONDS_UNTIL_SEEN = 60
_MESSAGE = 500
# A process that ends with an error waits so long for the others, which may have had the same error.
_SECONDS_OF_GRACE = 5
_LIBRARIES = ('Gloo', 'NCCL')


class FirstFailedError(OSError):
    """A failure of what the first process does alone, which all processes have as their error."""


def is_first() -> bool:
    """Return whether this is the process that writes and speaks: the only one, or the first."""
    return jax.process_index() == 0


def on_first(function: Callable[[], T]) -> T | None:
    """Call a function on the first process alone, while the others wait; only it has the result."""
    if jax.process_count() == 1:
        return function()
    result, failed, message = None, None, np.zeros(_MESSAGE, np.uint8)
    if is_first():
        try:
            result = function()
        except Exception as error:
            failed = error
            text = (str(error).strip() or type(error).__name__).encode()[:_MESSAGE]
            message[: len(text)] = list(text)
    message = bytes(multihost_utils.broadcast_one_to_all(message)).rstrip(b'\0')
    if message:
        raise FirstFailedError(message.decode(errors='ignore')) from failed
    return result


def exists(path: pathlib.Path) -> bool:
    """Return whether the first process sees a file; if so, wait until this one sees it, too."""
    if jax.process_count() == 1:
        return path.exists()
    found = bool(multihost_utils.broadcast_one_to_all(np.int32(path.exists())))
    start = time.monotonic()
    while found and not path.exists():
        if time.monotonic() - start > _SECONDS_UNTIL_SEEN:
            raise OSError(
                f'Process {jax.process_index()} does not see {path}, and process 0 does: all '
                'processes need the same folder for the results, on a disk that they share.'
            )
        time.sleep(0.1)
    return found


def is_loss(error: BaseException) -> bool:
    """Return whether an error says that another process cannot be reached."""
    return jax.process_count() > 1 and any(name in str(error) for name in _LIBRARIES)


def may_differ(error: BaseException) -> bool:
    """Return whether other processes may not have had an error, so that none of them can go on.

    A failure of the first one alone, such as a full disk, is an error of all.
    """
    if jax.process_count() == 1 or isinstance(error, FirstFailedError):
        return False
    return isinstance(error, OSError | MemoryError | jax.errors.JaxRuntimeError) or is_loss(error)


@contextlib.contextmanager
def together(
    *,
    distributed: bool = False,
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    heartbeat_seconds: int = HEARTBEAT_SECONDS,
) -> Iterator[None]:
    """Be one of several processes, if that is asked for; comes before anything is computed.

    A cluster (a TPU pod, Slurm, Open MPI) tells what is not given, if it is `distributed`. When
    another process ends, this one does, too: at once where the network tells, and within
    `heartbeat_seconds` at the latest. It says so in one line. If all processes have an error, the
    first one alone says so.
    """
    given = (coordinator_address, num_processes, process_id)
    if not distributed and given == (None, None, None):
        yield
        return
    _initialize(distributed, given, heartbeat_seconds)
    with _noted_end() as dismiss:
        if not is_first():
            logging.set_verbosity(logging.ERROR)
        try:
            yield
        except SystemExit as error:
            _leave(error, dismiss)
        except Exception as error:
            if is_loss(error):
                os._exit(1)
            traceback.print_exc()
            _leave(SystemExit(1), dismiss)
        else:
            jax.distributed.shutdown()


def _initialize(
    distributed: bool, given: tuple[str | None, int | None, int | None], heartbeat_seconds: int
) -> None:
    flags = '--coordinator_address=HOST:PORT, --num_processes and --process_id'
    if not distributed and None in given:
        raise SystemExit(
            f'error: {flags} go together; on a TPU pod or under Slurm, --distributed finds them.'
        )
    if given[0] is not None and not re.fullmatch(
        r'[\w.-]+:\d{1,5}|\[[\da-f:]+\]:\d{1,5}', given[0]
    ):
        raise SystemExit(f'error: coordinator_address={given[0]!r} must be HOST:PORT.')
    # Its handler of SIGTERM would take the place of ours.
    jax.config.update('jax_enable_preemption_service', False)
    address = given[0]
    is_local = address is not None and address.startswith(('127.0.0.1:', 'localhost:'))
    try:
        jax.distributed.initialize(
            *given,
            heartbeat_timeout_seconds=heartbeat_seconds,
            shutdown_timeout_seconds=heartbeat_seconds,
            coordinator_bind_address=address if is_local else None,
        )
    except ValueError as error:
        raise SystemExit(f'error: {error} If the cluster does not tell, give {flags}.') from None


def _leave(error: SystemExit, dismiss: Callable[[], None]) -> NoReturn:
    """End with an error, which the first process alone says where all of them have it."""

    def alone():
        if isinstance(error.code, str):
            print(f'process {jax.process_index()}: {error.code}', file=sys.stderr)
        dismiss()
        os._exit(1)

    timer = threading.Timer(_SECONDS_OF_GRACE, alone)
    timer.start()
    first = is_first()
    jax.distributed.shutdown()
    timer.cancel()
    raise error if first else SystemExit(1 if isinstance(error.code, str) else error.code)


@contextlib.contextmanager
def _noted_end() -> Iterator[Callable[[], None]]:
    """See to it that one line is said however the process ends, other than by leaving this context.

    Yields a function that forgoes the line, for a process that ends inside and has said why.

    JAX ends the process from within, with many lines, when the heartbeat of another one has
    stopped. So another program says the line, and what libraries write goes to a file.
    """
    name = f'process {jax.process_index()} of {jax.process_count()}'
    with tempfile.NamedTemporaryFile(prefix='bert-secrets-', suffix='.txt', delete=False) as file:
        sys.stdout, sys.stderr = (
            _apart(stream, file.fileno()) for stream in (sys.stdout, sys.stderr)
        )
    logging.get_absl_handler().python_handler.setStream(sys.stderr)
    line = (
        f'{name} stopped: it was killed, or it lost another process of this run; the same command '
        f'continues (what libraries say: {file.name})'
    )
    watcher = subprocess.Popen(
        ['/bin/sh', '-c', 'read -r ended || echo "$0" >&2', line],
        stdin=subprocess.PIPE,
        stderr=sys.stderr,
        # Ctrl-C is not for it.
        start_new_session=True,
    )

    def dismiss():
        watcher.communicate(b'well\n')
        pathlib.Path(file.name).unlink(missing_ok=True)

    try:
        yield dismiss
    finally:
        dismiss()


def _apart(stream: TextIO, file: int) -> TextIO:
    """Return a stream to where another one leads, whose descriptor from now on leads to a file."""
    stream.flush()
    copy = os.dup(stream.fileno())
    os.dup2(file, stream.fileno())
    return open(copy, 'w', buffering=1, encoding=stream.encoding, errors='backslashreplace')
