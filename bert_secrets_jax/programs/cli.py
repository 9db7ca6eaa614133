"""The command `bert-secrets`, from what is typed to its end or a signal that stops it.

It runs the programs without a clone of the repository. What takes seconds to load is loaded once
the command is known to be right.
"""

import _thread
import argparse
import contextlib
import functools
import io
import os
import pathlib
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ml_collections import ConfigDict

from bert_secrets_jax.checks import MENDABLE, check_name, meant, shortened, summary, without_endless
from bert_secrets_jax.configs import base, declared
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs.settings import as_flags, assign, matching, set_texts, settings_text
from bert_secrets_jax.runs.folder import run_folders

if TYPE_CHECKING:
    from bert_secrets_jax.programs.given import Study

CONFIGS = {'base': base.get_config, 'paper': base.paper, 'quickstart': base.quickstart}
# The arguments of `processes.together` that have values, and their types.
OF_PROCESSES = {
    'coordinator_address': str, 'num_processes': int, 'process_id': int, 'heartbeat_seconds': int,
}  # fmt: skip
_COLUMNS = ('train', 'text_a', 'text_b', 'label', 'labels')
_EXAMPLES = {
    'across': "across --model=MODEL --set \"across.files=('en.conllu', 'tr.conllu')\"",
    'compare': 'compare results/mrpc results/rte --out=results/compared',
    'serve': 'serve --model=all-MiniLM-L6-v2 --port=8000',
    'settings': 'settings train',
}
_OWN_TABLE = (
    '--model=all-MiniLM-L6-v2 --texts=dev.csv --train=train.csv \\\n'
    '      --text-a=COLUMN --label=COLUMN --out=results/mine'
)


class _Parser(argparse.ArgumentParser):
    """A mistake is one line."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(f'error: {without_endless(message)}')


def main(argv: Sequence[str] | None = None) -> None:
    """Run a program; a SystemExit has one line of what is wrong, or follows a help text."""
    arguments = _parse(argv)
    program, sections = arguments.program, None
    with mistakes_in_one_line():
        if program == 'settings':
            print(settings_text(matching(arguments.runs)))
            return
        if program == 'compare':
            # Before anything is loaded.
            run_folders(arguments.runs)
            _converse('compare', arguments.runs, arguments.out)
            return
        config = _config(arguments)
        if program == 'serve':
            _converse('serve', config, arguments.port)
            return
    if any(':' in str(name) for name in config.statistics or ()):
        # A statistic of one's own is found in the folder that one stands in. Otherwise nothing is
        # imported from there, and never before what is installed: it may be a stranger's.
        sys.path.append('')
    if program not in declared.COMMANDS:
        sections = [program]
    elif arguments.sections is not None:
        sections = [name.strip() for name in arguments.sections.split(',') if name.strip()]
    given = {name: getattr(arguments, name) for name in ('distributed', *OF_PROCESSES)}
    processes = {name: value for name, value in given.items() if value is not None}
    run(arguments.out, config, sections, **processes)


def _converse(name: str, *given: Any) -> None:
    with interruptible():
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        getattr(conversation, name)(*given)


def _flag(name: str) -> str:
    return f'--{name.replace("_", "-")}'


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; a mistake is one line, and help is printed."""
    given = sys.argv[1:] if argv is None else list(argv)
    named = next((word for word in given if not word.startswith('-')), None)
    known = declared.programs()
    asks = not given or bool({'-h', '--help', '--helpfull'} & set(given))
    if named not in known and not (asks and named is None):
        raise _unknown('program', named or '', known)
    if asks:
        print(_help_of(named) if named else _overview(whole='--helpfull' in given))
        raise SystemExit
    parser = _parser(named)
    arguments, others = parser.parse_known_intermixed_args(given)
    for word in others:
        flag = word.partition('=')[0]
        raise _unknown(f'argument of {named}', flag, parser._option_string_actions)
    return arguments


def _unknown(kind: str, word: str, known: Collection[str]) -> SystemExit:
    near = meant(word, known) or 'bert-secrets --help lists them.'
    return SystemExit(f'error: unknown {kind} {shortened(word)}. {near}')


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog='bert-secrets', add_help=False, allow_abbrev=False)
    parser.add_argument('program', metavar='PROGRAM')
    if program in ('compare', 'settings'):
        parser.add_argument('runs', nargs='*')
    if program != 'settings':
        parser.add_argument('--out', default='results')
    if program in ('compare', 'settings'):
        return parser
    for name in ('model', 'texts', *_COLUMNS, 'config'):
        parser.add_argument(_flag(name))
    parser.add_argument('--set', action='append', default=[], metavar='NAME=VALUE')
    if program == 'serve':
        parser.add_argument('--port', type=int, default=0)
        return parser
    if program == 'report':
        parser.add_argument('--sections')
    parser.add_argument('--distributed', action='store_true')
    for name, kind in OF_PROCESSES.items():
        parser.add_argument(_flag(name), type=kind)
    return parser


def _overview(*, whole: bool) -> str:
    """Return the help on one screen; as a `whole` with the flags of several processes."""
    rows = []
    prices = {
        name: f' ({each.price})' * bool(each.price) for name, each in declared.sections().items()
    }
    for group, programs in declared.groups().items():
        # A price stays on the line of its section.
        names = ', '.join(f'{name}{prices[name]}'.replace(' ', '\0') for name in programs)
        indents = {'initial_indent': f'  {group:<22} ', 'subsequent_indent': ' ' * 25}
        rows.append(textwrap.fill(names, 95, **indents))
    text = pathlib.Path(__file__).with_name('help.txt').read_text('utf-8')
    sections = '\n'.join(rows).replace('\0', ' ')
    text = text.format(**declared.COMMANDS, sections=sections, own_table=_OWN_TABLE)
    return text if whole else text.partition('\nseveral processes')[0]


def _help_of(program: str) -> str:
    """Return the help of one program: its purpose, an example and its settings."""
    purposes, section = declared.programs(), declared.sections().get(program)
    own = (section.reads if section else ()) or (f'{program}.',)
    example = _EXAMPLES.get(program, f'{program} {_OWN_TABLE}')
    parts = [f'{program}: {purposes[program]}', f'example:\n  bert-secrets {example}']
    if program == 'report':
        sections = [f'  {n:<17} {purposes[n]}' for n in purposes if n not in declared.COMMANDS]
        parts.append('\n'.join(['sections:', *sections]))
    if settings := [each for each in SETTINGS.values() if each.name.startswith(own)]:
        listed = textwrap.indent(settings_text(settings), '  ')
        parts.append(f'settings of its own (--set=NAME=VALUE):\n{listed}')
    parts.append('bert-secrets --help lists the flags, bert-secrets settings all settings.')
    return '\n\n'.join(parts)


def _config(arguments: argparse.Namespace) -> ConfigDict:
    usual = 'base' if arguments.texts else 'quickstart'
    name, _, variant = (arguments.config or usual).partition(':')
    check_name('--config', name, CONFIGS)
    config = CONFIGS[name](*[variant] * bool(variant))
    for name in ('model', 'texts', 'out', 'config', *_COLUMNS):
        if getattr(arguments, name) == '':
            raise ValueError(f'{_flag(name)} has no value: give one, or leave it out.')
    if arguments.model:
        config.model.name = arguments.model
    given = {name: value for name in _COLUMNS if (value := getattr(arguments, name))}
    if arguments.texts:
        labels = given.pop('labels', '')
        set_texts(config, arguments.texts, **given, labels=labels.split(',') if labels else ())
    elif given:
        raise ValueError(f'{_flag(next(iter(given)))} is about your own table: give --texts.')
    for assignment in arguments.set:
        setting, equals, value = assignment.partition('=')
        if not equals:
            raise ValueError(f'--set takes NAME=VALUE, not {assignment!r}.')
        assign(config, setting, value)
    return config


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


if __name__ == '__main__':
    main(sys.argv[1:])
