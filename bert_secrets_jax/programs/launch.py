"""Programs launched by absl, with settings from a file and flags.

What takes seconds to load is loaded once the command is known to be right.
"""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from absl import app, flags
from ml_collections import config_flags

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM), as a scheduler does; handled like Ctrl-C."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the process with one line and the usual exit status when it is asked to stop.

    The status is 130 for Ctrl-C (SIGINT) and 143 for SIGTERM. What is being written is removed,
    and all that was computed and kept stays.
    """
    _set_up_streams()
    # Only the main thread may say what a signal does.
    is_main = threading.current_thread() is threading.main_thread()
    former = signal.signal(signal.SIGTERM, _terminate) if is_main else None
    try:
        yield
    except KeyboardInterrupt as error:
        # A second signal would interrupt the ending.
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        print('\nstopped; the same command continues', file=sys.stderr)
        sys.stdout.flush()
        # What is under way on devices and in threads is not waited for.
        which = signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT
        os._exit(128 + which)
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, former)


def _terminate(*_) -> None:
    raise Terminated


def _set_up_streams() -> None:
    """Let a terminal that lacks a character show its code, where Python would end the program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')


def launch_section(name: str) -> None:
    """Launch a program that answers one section, and prints its findings and the path of the page.

    Args:
      name: The name of the section.
    """
    _launch(lambda studies: _answer(studies, [name]))


def launch_report() -> None:
    """Launch the program that answers all sections, or those of `--sections`."""
    flags.DEFINE_list('sections', None, 'Sections of the page, such as maps,claims; default: all.')
    _launch(lambda studies: _answer(studies, flags.FLAGS.sections))


def launch_study(main: Callable[['Study'], object]) -> None:
    """Launch a program that is run for each task.

    Args:
      main: A function of the study of a task.
    """
    _launch(lambda studies: [main(study) for study in studies])


def _launch(main: Callable[[Sequence['Study']], object]) -> None:
    config = config_flags.DEFINE_config_file(
        'config', None, 'Settings, such as configs/quickstart.py.', lock_config=True
    )
    workdir = flags.DEFINE_string('workdir', None, 'Folder of the results; the same one resumes.')

    def run(_) -> None:
        with interruptible():
            from bert_secrets_jax.programs import conversation

            conversation.set_up_logging()
            conversation.run_in(workdir.value, config.value, main)

    app.run(run, flags_parser=lambda argv: _parse_flags(argv, config, workdir))


def _answer(studies: Sequence['Study'], chosen: Sequence[str] | None) -> None:
    from bert_secrets_jax.programs import conversation

    conversation.answer(studies, chosen)


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
    except (flags.Error, OSError) as error:
        # An error of a config file comes with its traceback, of which the last line says it.
        raise SystemExit(f'error: {str(error).strip().splitlines()[-1].strip()}') from None
    if len(arguments) > 1:
        # A space behind a comma, for one: what stands behind it would not be done.
        raise SystemExit(f'error: These words belong to no flag: {" ".join(arguments[1:])}')
    return arguments
