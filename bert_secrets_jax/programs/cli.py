"""The command `bert-secrets`, which runs the programs without a clone of the repository."""

import argparse
import inspect
import pathlib
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.programs import launch
from bert_secrets_jax.programs.settings import assign, set_texts, settings_text
from bert_secrets_jax.programs.titles import PRICES, PROGRAMS

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study

_ANALYSES = pathlib.Path(__file__).parents[1] / 'analyses'
CONFIGS = {'base': base, 'paper': paper, 'quickstart': quickstart}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a program; a SystemExit has one line of what is wrong, or follows a help text."""
    arguments = _parse(argv)
    if arguments.program == 'settings':
        print(settings_text())
        return
    if arguments.program == 'compare':
        _compare(arguments)
        return
    try:
        config = _config(arguments)
    except (ValueError, OSError) as error:
        raise SystemExit(f'error: {str(error).splitlines()[0]}') from None
    if any(':' in str(name) for name in config.statistics or ()):
        # A statistic of one's own is found in the folder that one stands in. Otherwise nothing is
        # imported from there, and never before what is installed: it may be a stranger's.
        sys.path.append('')
    launch.run(
        arguments.out,
        config,
        lambda studies: _answer(arguments, studies),
        **_process_flags(arguments),
    )


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
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        conversation.compare(arguments.runs, arguments.out)


def _answer(arguments: argparse.Namespace, studies: Sequence['Study']) -> None:
    match arguments.program:
        case 'serve':
            from bert_secrets_jax.programs import serving

            serving.serve_maps(studies[0], port=arguments.port)
        case 'report':
            launch.answer(studies, arguments.sections.split(',') if arguments.sections else None)
        case section:
            launch.answer(studies, [section])


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; what analyses declare is loaded only where it is asked for."""
    given = sys.argv[1:] if argv is None else argv
    asked = bool({'-h', '--help'} & set(given))
    parser = _parser(PROGRAMS | (_declared() if asked else {}))
    arguments = parser.parse_args(argv)
    if arguments.program not in PROGRAMS and arguments.program not in _declared():
        known = ', '.join((*PROGRAMS, *_declared()))
        parser.error(f'unknown program {arguments.program!r}: programs are {known}')
    return arguments


def _declared() -> dict[str, str]:
    """Return the titles of the sections that analyses declare, by their names."""
    if not any(b'\nSECTION = ' in file.read_bytes() for file in _ANALYSES.glob('*.py')):
        # Loading the analyses takes seconds.
        return {}
    from bert_secrets_jax.programs.sections import declarations

    return {each.name: each.title for each in declarations()}


def _parser(programs: Mapping[str, str] = PROGRAMS) -> argparse.ArgumentParser:
    prices = {name: f' (* {price})' if price else ' (*)' for name, price in PRICES.items()}
    listing = '\n'.join(
        f'  {name:<17} {what}{prices.get(name, "")}' for name, what in programs.items()
    )
    configs = '\n'.join(
        f'  {name:<17} {inspect.getdoc(module).splitlines()[0]}' for name, module in CONFIGS.items()
    )
    parser = argparse.ArgumentParser(
        prog='bert-secrets',
        description='What the attention heads of a BERT do, and which of them matter.',
        epilog=(
            f'programs:\n{listing}\n  * not in a report by default: --sections=all, or its name; '
            'the time is that of the\n    quickstart on two cores. A run says first how long it '
            f'takes on your machine.\n\nconfigs (--config):\n{configs}\n\nsettings (--set '
            f'NAME=VALUE):\n{textwrap.indent(settings_text(), "  ")}\n\nexample:\n'
            '  bert-secrets report --model=all-MiniLM-L6-v2 --texts=mine.csv --text-a=sentence '
            '--out=results'
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument('program', metavar='program')
    parser.add_argument('runs', nargs='*', metavar='RUN', help='for compare: folders of runs')
    parser.add_argument('--model', help='a folder, a name on the Hugging Face hub, or '
                        'all-MiniLM-L6-v2')  # fmt: skip
    parser.add_argument('--texts', help='your own table (.csv, .tsv or .jsonl)')
    parser.add_argument('--train', help='the table to fine-tune on, with the same columns')
    parser.add_argument('--text-a', help='column of the first or only text')
    parser.add_argument('--text-b', help='column of the second text')
    parser.add_argument('--label', help='column of the label')
    parser.add_argument('--labels', help='names of the classes in the order of their ids, with '
                        'commas between them, if the labels are words')  # fmt: skip
    parser.add_argument('--out', default='results', help='folder of the results; the same one '
                        'continues (default: results)')  # fmt: skip
    parser.add_argument('--config', default=None, help="settings to begin with: 'quickstart', "
                        "'paper:mrpc,rte', 'base', with or without ':smoke'")  # fmt: skip
    parser.add_argument('--sections', help="for report: these, with commas between them, or 'all'; "
                        'default: what the paper asks, in minutes')  # fmt: skip
    parser.add_argument('--port', type=int, default=0, help='for serve: of the page')
    parser.add_argument('--distributed', action='store_true', help=launch.DISTRIBUTED)
    for name, (kind, what) in launch.OF_PROCESSES.items():
        parser.add_argument(f'--{name.replace("_", "-")}', type=kind, help=what)
    parser.add_argument('--set', action='append', default=[], metavar='NAME=VALUE',
                        help='any setting, such as train.epochs=2')  # fmt: skip
    return parser


def _config(arguments: argparse.Namespace) -> ConfigDict:
    usual = 'base' if arguments.texts else 'quickstart'
    name, _, variant = (arguments.config or usual).partition(':')
    if name not in CONFIGS:
        raise ValueError(f'--config is one of {", ".join(CONFIGS)}, not {name!r}.')
    get_config = CONFIGS[name].get_config
    config = get_config(variant) if variant else get_config()
    if arguments.runs:
        raise ValueError(f'Folders of runs are for compare, not for {arguments.program}.')
    if arguments.program == 'serve' and any(_process_flags(arguments).values()):
        raise ValueError(f'{arguments.program} runs in one process.')
    for flag, whose in {'sections': 'report', 'port': 'serve'}.items():
        if getattr(arguments, flag) and arguments.program != whose:
            raise ValueError(f'--{flag} is for {whose}, not for {arguments.program}.')
    if arguments.model:
        config.model.name = arguments.model
    columns = ('train', 'text_a', 'text_b', 'label', 'labels')
    given = {name: value for name in columns if (value := getattr(arguments, name))}
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
