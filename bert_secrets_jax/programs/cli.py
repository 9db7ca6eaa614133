"""The command `bert-secrets`, which runs the programs without a clone of the repository."""

import argparse
import pathlib
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from ml_collections import ConfigDict

from bert_secrets_jax.brief import check_name, meant, shortened, without_endless
from bert_secrets_jax.configs import base, declared
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs import launch
from bert_secrets_jax.programs.settings import assign, matching, set_texts, settings_text
from bert_secrets_jax.runs.folder import run_folders

CONFIGS = {'base': base.get_config, 'paper': base.paper, 'quickstart': base.quickstart}
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
    with launch.mistakes_in_one_line():
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
    given = {name: getattr(arguments, name) for name in ('distributed', *launch.OF_PROCESSES)}
    processes = {name: value for name, value in given.items() if value is not None}
    launch.run(arguments.out, config, sections, **processes)


def _converse(name: str, *given: Any) -> None:
    with launch.interruptible():
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
    for name, kind in launch.OF_PROCESSES.items():
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


if __name__ == '__main__':
    main(sys.argv[1:])
