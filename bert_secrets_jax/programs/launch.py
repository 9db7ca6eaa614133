"""Programs launched by absl, with settings from a file and flags.

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

from absl import app, flags
from ml_collections import ConfigDict, config_flags

from bert_secrets_jax.brief import MENDABLE, summary
from bert_secrets_jax.programs import titles
from bert_secrets_jax.programs.settings import as_flags

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study


# The flags of `processes.together`, each with its type and what it is.
OF_PROCESSES = {
    'coordinator_address': (str, 'HOST:PORT at which the first of several processes is reached'),
    'num_processes': (int, 'number of processes that compute the run together'),
    'process_id': (int, 'number of this process, from 0'),
    'heartbeat_seconds': (int, 'a process that is not heard of for so long is lost; default: 100'),
}
DISTRIBUTED = 'one of several processes, as a TPU pod or Slurm tells'


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
        sys.unraisablehook = _without_interrupts
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
            _thread.interrupt_main(which)
        time.sleep(_PATIENCE)
        _end(which)

    if which not in _asked:
        _asked.add(which)
        threading.Thread(target=again, daemon=True).start()
    raise Terminated if which == signal.SIGTERM else KeyboardInterrupt


_asked: set[int] = set()


def _end(which: int) -> NoReturn:
    """End the process with one line, without waiting for devices and threads."""
    if threading.current_thread() is threading.main_thread():
        # A second signal would interrupt the ending.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
    print('\nstopped; the same command continues', file=sys.stderr)
    sys.stdout.flush()
    os._exit(128 + which)


def _without_interrupts(unraisable: Any) -> None:
    """Say nothing of interrupts that Python drops: they come again."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


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
            _check(out, config, sections)
        from bert_secrets_jax.processes import together
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        with together(**processes):
            answer = functools.partial(conversation.answer, chosen=sections)
            conversation.run_in(out, config, main or answer)


def _check(out: str, config: ConfigDict, sections: Sequence[str] | None) -> None:
    from bert_secrets_jax.programs import inputs

    try:
        if sections is not None and list(sections) != ['all']:
            declared = () if set(sections) <= set(titles.SECTIONS) else titles.declared()
            titles.refuse_unknown(sections, [*titles.SECTIONS, *declared])
        inputs.check(config, pathlib.Path(out))
    except MENDABLE as error:
        raise SystemExit(as_flags(f'error: {summary(error)}')) from None


def launch_section(name: str) -> None:
    """Launch a program that answers one section, and prints its findings and where the page is."""
    _launch(lambda: [name])


def launch_report() -> None:
    """Launch the program that answers all sections, or those of `--sections`."""
    flags.DEFINE_list(
        'sections',
        None,
        "Sections of the page, such as maps,claims, or 'all'; default: the paper's.",
    )
    _launch(lambda: flags.FLAGS.sections)


def launch_study(main: Callable[['Study'], object]) -> None:
    """Launch a program that is run for the study of each task."""
    _launch(main=lambda studies: [main(study) for study in studies])


def _launch(
    sections: Callable[[], Sequence[str] | None] = lambda: None,
    main: Callable[[Sequence['Study']], object] | None = None,
) -> None:
    config = config_flags.DEFINE_config_file(
        'config',
        None,
        'Settings, such as configs/quickstart.py; `bert-secrets settings` prints all of them.',
        lock_config=True,
    )
    workdir = flags.DEFINE_string('workdir', None, 'Folder of the results; the same one resumes.')
    several = [
        (flags.DEFINE_integer if kind is int else flags.DEFINE_string)(name, None, what)
        for name, (kind, what) in OF_PROCESSES.items()
    ]
    distributed = flags.DEFINE_bool('distributed', False, DISTRIBUTED)

    def start(_) -> None:
        given = {flag.name: flag.value for flag in several if flag.value is not None}
        run(workdir.value, config.value, sections(), main, distributed=distributed.value, **given)

    # `--help` shows those of the program, which are defined here for all programs.
    for flag in flags.FLAGS.get_flags_for_module(__name__):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.run(start, flags_parser=lambda argv: _parse_flags(argv, config, workdir))


def _parse_flags(argv: list[str], config, workdir) -> list[str]:
    """Parse the command line; a mistake in it is one line."""
    try:
        arguments = flags.FLAGS(argv)
        if not (config.value and workdir.value):
            raise SystemExit(
                'error: Name settings and a folder for the results: '
                '--config=configs/quickstart.py --workdir=results/quickstart, for one.'
            )
        # A config file that is missing is an error only when it is looked at.
        config.value.to_dict()
    except (AttributeError, KeyError) as error:
        # ml_collections on settings that do not exist, with what may have been meant.
        while isinstance(error.args[0], Exception):
            error = error.args[0]
        words = '. '.join(error.args[0].splitlines())
        raise SystemExit(f'error: No such setting: {words}') from None
    except ValueError as error:
        # ml_collections on names that Python could not write with dots, such as `gates.lambda`.
        words = str(error).split(': SyntaxError')[0]
        raise SystemExit(f'error: No such setting: {words}') from None
    except (flags.Error, OSError) as error:
        # An error of a config file comes with its traceback, of which the last line says it.
        raise SystemExit(f'error: {str(error).strip().splitlines()[-1].strip()}') from None
    if len(arguments) > 1:
        # A space behind a comma, for one: what stands behind it would not be done.
        raise SystemExit(f'error: These words belong to no flag: {" ".join(arguments[1:])}')
    return arguments
