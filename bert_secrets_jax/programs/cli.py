"""The command `bert-secrets`, which runs the programs without a clone of the repository."""

import argparse
import ast
import difflib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ml_collections import ConfigDict

from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.programs import launch

if TYPE_CHECKING:
    from bert_secrets_jax.programs.study import Study

# Talks to a browser.
_ALONE = ('serve',)
CONFIGS = {'base': base, 'paper': paper, 'quickstart': quickstart}
# Sections that a report has only if asked, with the time that each took for the quickstart on two
# cores: `python -m benchmarks.report --only='all sections'`.
_PRICES = {
    'look_at': '10 s', 'cluster': '5 s', 'syntax_heads': '15 s', 'probe': '10 s', 'masked_lm': '',
    'outliers': '30 s', 'ablate_seeds': '', 'interactions': 'by name only', 'importance': '1 min',
    'prune': '2 min', 'replacements': 'by name only', 'subnetworks': 'by name only',
    'gates': 'by name only', 'contributions': '15 s', 'attribution': '20 s', 'roles': '5 s',
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Run a program.

    Raises:
      SystemExit: With one line of what is wrong, or after a help text.
    """
    arguments = _parser().parse_args(argv)
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
    with launch.interruptible():
        # What takes seconds to load is loaded once the command is known to be right.
        from bert_secrets_jax.processes import together
        from bert_secrets_jax.programs import conversation

        conversation.set_up_logging()
        with together(**_of_processes(arguments)):
            conversation.run_in(arguments.out, config, _program(arguments))


def _of_processes(arguments: argparse.Namespace) -> dict[str, object]:
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


def _program(arguments: argparse.Namespace) -> Callable[[Sequence['Study']], object]:
    """Return what a program does with the studies."""
    from bert_secrets_jax.programs import conversation, serving

    match arguments.program:
        case 'report':
            chosen = arguments.sections.split(',') if arguments.sections else None
            return lambda studies: conversation.answer(studies, chosen)
        case 'serve':
            return lambda studies: [serving.serve_maps(studies[0], port=arguments.port)]
        case section:
            return lambda studies: conversation.answer(studies, [section])


def programs() -> dict[str, str]:
    """Return a description of each program, by its name."""
    # The sections' titles, without loading what they are made of.
    return {
        'report': 'all sections, on one HTML page',
        'special_tokens': 'attention to [CLS], [SEP], neighbours, its entropy, your own statistics',
        'patterns': 'the five patterns of attention and their shares',
        'relations': 'verb and subject, noun and pronoun, and what distance alone explains',
        'frames': 'frame elements and their target, or links of your own',
        'finetune': 'fine-tuning pre-trained and random weights, several seeds',
        'attention_change': 'what fine-tuning changes in attention',
        'features': 'attention to nouns, verbs, negation, before and after fine-tuning',
        'cls_tokens': 'what [CLS] attends to in the last layer',
        'look_at': 'attention to [SEP], neighbours and punctuation, entropies, gradients',
        'cluster': 'which heads do alike, and whether those of one layer do',
        'syntax_heads': 'heads that find dependency relations, on a treebank',
        'probe': 'dependency heads from attention alone, by a trained probe',
        'masked_lm': 'which heads a masked LM needs as it is, without fine-tuning',
        'outliers': 'dimensions whose LayerNorm stands out, and the model without them',
        'ablate': 'disabling heads and layers, and what of it is real',
        'ablate_seeds': 'the same in several fine-tunings: what holds for any of them',
        'interactions': 'pairs of heads: the effect beyond the sum of two',
        'importance': 'which heads matter, by several scores, and which of the scores tell',
        'prune': 'how many heads can go, in which order, and what that saves',
        'contributions': 'what heads move beside what they look at, and inactive heads',
        'attribution': 'which tokens a prediction comes from, and which method explains it best',
        'roles': 'positional, syntactic and rare-token heads, and whether they stay',
        'replacements': 'what replaces a head: nothing, a mean, the best constant',
        'subnetworks': 'heads that survive pruning, trained again, beside others',
        'gates': 'gates that learn to close: how many heads are needed at which price',
        'maps': 'maps of example sentences, and an explorer of all heads',
        'claims': 'which claims of the paper hold, from what the others found',
        'compare': 'finished runs side by side: models or tasks (compare RUN RUN... --out=FOLDER)',
        'serve': 'type sentences on a local page and see the maps of all heads',
        'settings': 'list all settings with their defaults',
    }


def _parser() -> argparse.ArgumentParser:
    listing = '\n'.join(f'  {name:<17} {what}{_price(name)}' for name, what in programs().items())
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
    parser.add_argument('program', choices=list(programs()), metavar='program')
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


def _price(name: str) -> str:
    """Return the mark of a section that a report has only if asked."""
    if name not in _PRICES:
        return ''
    return f' (* {_PRICES[name]})' if _PRICES[name] else ' (*)'


def _config(arguments: argparse.Namespace) -> ConfigDict:
    name, _, variant = (
        arguments.config or ('base' if arguments.texts else 'quickstart')
    ).partition(':')
    if name not in CONFIGS:
        raise ValueError(f'--config is one of {", ".join(CONFIGS)}, not {name!r}.')
    module = CONFIGS[name]
    config = module.get_config(variant) if variant else module.get_config()
    if arguments.runs:
        raise ValueError(f'Folders of runs are for compare, not for {arguments.program}.')
    if arguments.program in _ALONE and any(_of_processes(arguments).values()):
        raise ValueError(f'{arguments.program} runs in one process.')
    owners = {'sections': 'report', 'port': 'serve'}
    for flag, whose in owners.items():
        if getattr(arguments, flag) and arguments.program != whose:
            raise ValueError(f'--{flag} is for {whose}, not for {arguments.program}.')
    if arguments.model:
        config.model.name = arguments.model
    for name in ('train', 'text_a', 'text_b', 'label', 'labels'):
        if getattr(arguments, name) and not arguments.texts:
            raise ValueError(f'--{name.replace("_", "-")} is about your own table: give --texts.')
    if arguments.texts:
        set_texts(
            config,
            arguments.texts,
            train=arguments.train,
            text_a=arguments.text_a,
            text_b=arguments.text_b,
            label=arguments.label,
            labels=tuple(arguments.labels.split(',')) if arguments.labels else (),
        )
    for assignment in arguments.set:
        setting, equals, value = assignment.partition('=')
        if not equals:
            raise ValueError(f'--set takes NAME=VALUE, not {assignment!r}.')
        assign(config, setting, value)
    return config


def set_texts(
    config: ConfigDict,
    texts: str,
    *,
    train: str | None = None,
    text_a: str | None = None,
    text_b: str | None = None,
    label: str | None = None,
    labels: Sequence[str] = (),
) -> None:
    """Make a table of one's own the texts of a config.

    Args:
      config: The config, which is changed.
      texts: The path of the table.
      train: The path of the table to fine-tune on; None if there is none.
      text_a: The column of the first or only text; None leaves the setting as it is.
      text_b: The column of the second text; None if there is only one.
      label: The column of the label; None if there are no labels.
      labels: The names of the classes in the order of their ids; empty if the labels are numbers or
        there are none.
    """
    config.data.source = 'file'
    config.data.file = texts
    config.data.train_file = train
    if text_a:
        config.data.text_a = text_a
    config.data.text_b = text_b
    config.data.label = label
    config.data.labels = tuple(labels)


def assign(config: ConfigDict, name: str, value: object) -> None:
    """Change a setting of a config.

    Args:
      config: The config.
      name: The dotted name of the setting, such as 'train.epochs'.
      value: The new value. A text is read as a Python literal unless the default is a text or None.

    Raises:
      ValueError: There is no such setting, or the value is of another type.
    """
    known = list(_flat(config.to_dict()))
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        raise ValueError(
            f'No such setting: {name!r}.'
            + (
                f' Did you mean {" or ".join(close)}?'
                if close
                else ' `bert-secrets settings` lists them.'
            )
        )
    *path, last = name.split('.')
    part = config
    for each in path:
        part = part[each]
    default = part[last]
    if isinstance(value, str) and not isinstance(default, str | None):
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise ValueError(f'{name}={value} is not of the type of {default!r}.') from None
    try:
        # To Python, True is 1.
        if isinstance(value, bool) and not isinstance(default, bool | None):
            raise TypeError
        part[last] = value
    except (TypeError, OverflowError):
        raise ValueError(f'{name}={value!r} is not of the type of {default!r}.') from None


def _flat(tree: dict, prefix: str = '') -> dict[str, object]:
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f'{prefix}{key}.')
        else:
            flat[prefix + key] = value
    return flat


def settings_text() -> str:
    """Return all settings with their defaults and their comments."""
    defaults = _flat(base.get_config().to_dict())
    lines = []
    for name, comment in comments().items():
        for row in textwrap.wrap(comment, 88):
            lines.append(f'# {row}')
        if name in defaults:
            value = defaults[name]
            lines.append(f'{name}={value!r}' if value is not None else f'{name}=')
    return '\n'.join(lines)


def comments() -> dict[str, str]:
    """Return the comment above each setting and each group of settings, by dotted name."""
    found, above, path = {}, [], []
    for line in inspect.getsource(base.get_config).splitlines():
        comment = re.match(r'\s*# (.*)', line)
        if comment:
            above.append(comment[1])
            continue
        entries = re.findall(r"'(\w+)': ?(\{)?", line)
        indent = len(line) - len(line.lstrip())
        for key, opens in entries:
            while path and path[-1][0] >= indent and not (path[-1][2] and path[-1][0] == indent):
                path.pop()
            name = '.'.join([*(each for _, each, _ in path), key])
            found[name] = ' '.join(above)
            above = []
            if opens:
                # A group that closes on the line that opens it has its settings there.
                path.append((indent, key, '}' in line))
        if entries and '}' in line:
            path = [each for each in path if not each[2]]
    return found


if __name__ == '__main__':
    main(sys.argv[1:])
