"""Programs launched by absl, with settings from a file and flags: `python -m experiments.X`."""

import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from absl import app, flags
from ml_collections import config_flags

from bert_secrets_jax.checks import meant
from bert_secrets_jax.configs import declared
from bert_secrets_jax.programs.cli import OF_PROCESSES, run

if TYPE_CHECKING:
    from bert_secrets_jax.programs.given import Study

_OF_PROCESSES = {
    'coordinator_address': 'HOST:PORT at which the first of several processes is reached',
    'num_processes': 'number of processes that compute the run together',
    'process_id': 'number of this process, from 0',
    'heartbeat_seconds': 'a process that is not heard of for so long is lost; default: 100',
}


def launch_section(name: str = '') -> None:
    """Launch a program that answers one section, and prints its findings and where the page is.

    Without a name, a word of the command names the section, and `--help` lists all sections.
    """
    if name:
        _launch(lambda _: [name])
        return
    program = sys.modules['__main__']
    for group, questions in declared.groups().items():
        listed = [f'  {name:<17} {question}\n' for name, question in questions.items()]
        program.__doc__ = ''.join([f'{program.__doc__}\n{group}:\n', *listed])
    _launch(lambda words: words, most_words=1)


def launch_report() -> None:
    """Launch the program that answers all sections, or those of `--sections`."""
    flags.DEFINE_list(
        'sections',
        None,
        "Sections of the page, such as maps,claims, or 'all'; default: the paper's.",
    )
    _launch(lambda _: flags.FLAGS.sections)


def launch_study(main: Callable[['Study'], object]) -> None:
    """Launch a program that is run for the study of each task."""
    _launch(main=lambda studies: [main(study) for study in studies])


def _launch(
    sections: Callable[[list[str]], Sequence[str] | None] = lambda _: None,
    main: Callable[[Sequence['Study']], object] | None = None,
    most_words: int = 0,
) -> None:
    """Launch a program: `sections` are told the words of the command that are no flags."""
    config = config_flags.DEFINE_config_file(
        'config',
        None,
        'Settings, such as configs/quickstart.py; `bert-secrets settings` prints all of them.',
        lock_config=True,
    )
    workdir = flags.DEFINE_string('workdir', None, 'Folder of the results; the same one resumes.')
    several = [
        (flags.DEFINE_integer if kind is int else flags.DEFINE_string)(
            name, None, _OF_PROCESSES[name]
        )
        for name, kind in OF_PROCESSES.items()
    ]
    distributed = flags.DEFINE_bool(
        'distributed', False, 'one of several processes, as a TPU pod or Slurm tells'
    )

    def start(arguments: list[str]) -> None:
        given = {flag.name: flag.value for flag in several if flag.value is not None}
        chosen = sections(arguments[1:])
        run(workdir.value, config.value, chosen, main, distributed=distributed.value, **given)

    # `--help` shows those of the program, which are defined here for all programs.
    for flag in flags.FLAGS.get_flags_for_module(__name__):
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    app.run(start, flags_parser=lambda argv: _parse_flags(argv, config, workdir, most_words))


def _parse_flags(argv: list[str], config, workdir, most_words: int) -> list[str]:
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
        words = str(error).strip().splitlines()[-1].strip()
        if missing := re.search("No such file or directory: '(.*)'$", words):
            path = pathlib.Path(missing[1])
            near = meant(path.name, [each.name for each in path.parent.glob('*.py')])
            words = f'There is no file {path}. {near}'.rstrip()
        raise SystemExit(f'error: {words}') from None
    if left := arguments[1 + most_words :]:
        # A space behind a comma, for one: what stands behind it would not be done.
        raise SystemExit(f'error: These words belong to no flag: {" ".join(left)}')
    return arguments
