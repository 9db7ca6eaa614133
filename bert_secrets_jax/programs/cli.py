"""The command `bert-secrets`, which runs the programs without a clone of the repository."""

import argparse
import pathlib
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import NoReturn

from ml_collections import ConfigDict

from bert_secrets_jax.brief import meant, shortened, summary, without_endless
from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.configs.schema import SETTINGS
from bert_secrets_jax.programs import launch, titles
from bert_secrets_jax.programs.settings import assign, matching, set_texts, settings_text
from bert_secrets_jax.runs.folder import run_folders

CONFIGS = {'base': base, 'paper': paper, 'quickstart': quickstart}
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
    if arguments.program == 'compare':
        _compare(arguments)
        return
    try:
        if arguments.program == 'settings':
            print(settings_text(matching(arguments.runs)))
            return
        config = _config(arguments)
    except (ValueError, OSError) as error:
        raise SystemExit(f'error: {summary(error)}') from None
    if any(':' in str(name) for name in config.statistics or ()):
        # A statistic of one's own is found in the folder that one stands in. Otherwise nothing is
        # imported from there, and never before what is installed: it may be a stranger's.
        sys.path.append('')
    sections = None
    if arguments.program not in titles.COMMANDS:
        sections = [arguments.program]
    elif arguments.sections is not None:
        sections = [name.strip() for name in arguments.sections.split(',') if name.strip()]
    if arguments.program == 'serve':
        _serve(config, arguments.port)
        return
    launch.run(arguments.out, config, sections, **_process_flags(arguments))


def _process_flags(arguments: argparse.Namespace) -> dict[str, object]:
    given = {name: getattr(arguments, name) for name in ('distributed', *launch.OF_PROCESSES)}
    return {name: value for name, value in given.items() if value is not None}


def _compare(arguments: argparse.Namespace) -> None:
    others = {'program', 'runs', 'out'}
    for name, value in vars(arguments).items():
        if name not in others and value:
            flag = name.replace('_', '-')
            raise SystemExit(f'error: --{flag} is not for compare, which reads runs as they are.')
    with launch.interruptible():
        try:
            run_folders(arguments.runs)
        except (ValueError, OSError) as error:
            raise SystemExit(f'error: {summary(error)}') from None
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        conversation.compare(arguments.runs, arguments.out)


def _serve(config: ConfigDict, port: int) -> None:
    with launch.interruptible():
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        conversation.serve(config, port)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; a mistake is one line, and help is printed."""
    given = sys.argv[1:] if argv is None else list(argv)
    named = next((word for word in given if not word.startswith('-')), None)
    known = titles.programs()
    asks = not given or bool({'-h', '--help', '--helpfull'} & set(given))
    if named not in known and not (asks and named is None):
        raise _unknown('program', named or '', known)
    if asks:
        print(_help_of(named) if named else _overview(whole='--helpfull' in given))
        raise SystemExit
    parser = _parser()
    arguments, others = parser.parse_known_intermixed_args(given)
    for word in others:
        raise _unknown('flag', word.partition('=')[0], parser._option_string_actions)
    return arguments


def _unknown(kind: str, word: str, known: Collection[str]) -> SystemExit:
    near = meant(word, known) or 'bert-secrets --help lists them.'
    return SystemExit(f'error: unknown {kind} {shortened(word)}. {near}')


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog='bert-secrets', add_help=False, allow_abbrev=False)
    parser.add_argument('program', metavar='PROGRAM')
    parser.add_argument('runs', nargs='*')
    for name in ('model', 'texts', *_COLUMNS, 'config', 'sections'):
        parser.add_argument(f'--{name.replace("_", "-")}')
    parser.add_argument('--out', default='results')
    parser.add_argument('--port', type=int, default=0)
    parser.add_argument('--set', action='append', default=[], metavar='NAME=VALUE')
    parser.add_argument('--distributed', action='store_true')
    for name, kind in launch.OF_PROCESSES.items():
        parser.add_argument(f'--{name.replace("_", "-")}', type=kind)
    return parser


def _overview(*, whole: bool) -> str:
    """Return the help on one screen; as a `whole` with the flags of several processes."""
    rows = []
    prices = {name: each.price for name, each in titles.sections().items() if each.price}
    for group, programs in titles.groups().items():
        # A price stays on the line of its section.
        names = (f'{n} ({prices[n]})'.replace(' ', '\0') if n in prices else n for n in programs)
        lines = textwrap.wrap(', '.join(names), 70)
        rows += [f'  {group:<22} {lines[0]}', *(f'{"":<25}{line}' for line in lines[1:])]
    text = (
        pathlib.Path(__file__)
        .with_name('help.txt')
        .read_text('utf-8')
        .format(
            **titles.COMMANDS, sections='\n'.join(rows).replace('\0', ' '), own_table=_OWN_TABLE
        )
    )
    return text if whole else text.partition('\nseveral processes')[0]


def _help_of(program: str) -> str:
    """Return the help of one program: its purpose, an example and its settings."""
    purposes, section = titles.programs(), titles.sections().get(program)
    own = (section.reads if section else ()) or (f'{program}.',)
    example = _EXAMPLES.get(program, f'{program} {_OWN_TABLE}')
    parts = [f'{program}: {purposes[program]}', f'example:\n  bert-secrets {example}']
    if program == 'report':
        sections = [f'  {n:<17} {purposes[n]}' for n in purposes if n not in titles.COMMANDS]
        parts.append('\n'.join(['sections:', *sections]))
    if settings := [each for each in SETTINGS.values() if each.name.startswith(own)]:
        listed = textwrap.indent(settings_text(settings), '  ')
        parts.append(f'settings of its own (--set=NAME=VALUE):\n{listed}')
    parts.append('bert-secrets --help lists the flags, bert-secrets settings all settings.')
    return '\n\n'.join(parts)


def _config(arguments: argparse.Namespace) -> ConfigDict:
    usual = 'base' if arguments.texts else 'quickstart'
    name, _, variant = (arguments.config or usual).partition(':')
    if name not in CONFIGS:
        known = f'--config is one of {", ".join(CONFIGS)}, not {name!r}.'
        raise ValueError(f'{known} {meant(name, CONFIGS)}'.rstrip())
    get_config = CONFIGS[name].get_config
    config = get_config(variant) if variant else get_config()
    if arguments.runs:
        raise ValueError(f'Folders of runs are for compare, not for {arguments.program}.')
    if arguments.program == 'serve' and any(_process_flags(arguments).values()):
        raise ValueError(f'{arguments.program} runs in one process.')
    for flag, whose in {'sections': 'report', 'port': 'serve'}.items():
        if getattr(arguments, flag) not in (None, 0) and arguments.program != whose:
            raise ValueError(f'--{flag} is for {whose}, not for {arguments.program}.')
    for name in ('model', 'texts', 'out', 'config', *_COLUMNS):
        if getattr(arguments, name) == '':
            raise ValueError(f'--{name.replace("_", "-")} has no value: give one, or leave it out.')
    if arguments.model:
        config.model.name = arguments.model
    given = {name: value for name in _COLUMNS if (value := getattr(arguments, name))}
    if arguments.texts:
        labels = given.pop('labels', '')
        set_texts(config, arguments.texts, **given, labels=labels.split(',') if labels else ())
    elif given:
        name = next(iter(given)).replace('_', '-')
        raise ValueError(f'--{name} is about your own table: give --texts.')
    for assignment in arguments.set:
        setting, equals, value = assignment.partition('=')
        if not equals:
            raise ValueError(f'--set takes NAME=VALUE, not {assignment!r}.')
        assign(config, setting, value)
    return config


if __name__ == '__main__':
    main(sys.argv[1:])
