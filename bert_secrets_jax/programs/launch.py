"""A run, from its checked command to its end or a signal that stops it.

What takes seconds to load is loaded once the command is known to be right.
"""

import _thread
import contextlib
import functools
import io
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ml_collections import ConfigDict

from bert_secrets_jax.brief import MENDABLE, summary
from bert_secrets_jax.configs import declared
from bert_secrets_jax.programs.settings import as_flags

if TYPE_CHECKING:
    from bert_secrets_jax.programs.given import Study


# The arguments of `processes.together` that have values, and their types.
OF_PROCESSES = {
    'coordinator_address': str, 'num_processes': int, 'process_id': int, 'heartbeat_seconds': int,
}  # fmt: skip


@contextlib.contextmanager
def mistakes_in_one_line() -> Iterator[None]:
    """End the program with the first line of an error that a user can mend."""
    try:
        yield
    except MENDABLE as error:
        raise SystemExit(as_flags(f'error: {summary(error)}')) from None


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM), as a scheduler does; handled like Ctrl-C."""


# Seconds until a signal is raised again, and how often before the process ends all the same.
_PATIENCE, _TIMES = 1.0, 8


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the process with one line and the usual status (130, 143) when it is asked to stop."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that a terminal lacks is shown as its code, and does not end the program.
            stream.reconfigure(errors='backslashreplace')
    # Only the main thread may say what a signal does.
    is_main = threading.current_thread() is threading.main_thread()
    former = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    hook = sys.unraisablehook
    if is_main:
        # Nothing is said of interrupts that Python drops: they come again.
        sys.unraisablehook = lambda dropped: (
            None
            if issubclass(dropped.exc_type, KeyboardInterrupt)
            else sys.__unraisablehook__(dropped)
        )
        for each in former:
            # A shell ignores Ctrl-C for what it runs in the background.
            if former[each] != signal.SIG_IGN:
                signal.signal(each, _interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        _end(signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)
    finally:
        if is_main:
            sys.unraisablehook = hook
            for each, handler in former.items():
                signal.signal(each, handler)


def _interrupt(which: int, _) -> None:
    """Raise what ends the program, again until it ends: Python drops it in collecting garbage."""

    def again():
        for _ in range(_TIMES):
            time.sleep(_PATIENCE)
            _due.set()
            _thread.interrupt_main(which)
        time.sleep(_PATIENCE)
        _end(which)

    if not _asked:
        _asked.add(which)
        threading.Thread(target=again, daemon=True).start()
        _due.set()
    # Another signal in the meantime would be raised in what ends the program.
    if _due.is_set():
        _due.clear()
        raise Terminated if which == signal.SIGTERM else KeyboardInterrupt


_asked: set[int] = set()
_due = threading.Event()


def _end(which: int) -> NoReturn:
    """End the process with one line, without waiting for devices and threads."""
    if threading.current_thread() is threading.main_thread():
        # A second signal would interrupt the ending.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
    print('\nstopped; the same command continues', file=sys.stderr)
    sys.stdout.flush()
    os._exit(128 + which)


def run(
    out: str,
    config: ConfigDict,
    sections: Sequence[str] | None = None,
    main: Callable[[Sequence['Study']], object] | None = None,
    **processes: Any,
) -> None:
    """Answer sections of a run, or call `main` with its studies, as one process or several.

    What is wrong with a command is said before anything is loaded; by several processes it is said
    later, when the first one speaks for all.
    """
    with interruptible():
        if not any(processes.values()):
            from bert_secrets_jax.programs import inputs

            with mistakes_in_one_line():
                if sections is not None and list(sections) != ['all']:
                    declared.refuse_unknown(sections, declared.sections())
                inputs.check(config, pathlib.Path(out))
        from bert_secrets_jax.processes import together
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        with together(**processes):
            answer = functools.partial(conversation.answer, chosen=sections)
            conversation.run_in(out, config, main or answer)
