"""The lines of a page that make its results again: of Python, and for the shell."""

import dataclasses
import importlib.util
import shlex
from collections.abc import Collection, Mapping, Sequence

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.configs import base, paper, quickstart
from bert_secrets_jax.programs.given import Given
from bert_secrets_jax.programs.settings import in_clone, set_texts
from bert_secrets_jax.runs.call import plain
from bert_secrets_jax.runs.result import Result

# These say how something is computed, and change no result that a reader could tell.
OF_NO_MATTER = (
    'ablation.chunk_tokens', 'encoding.tokens_per_batch', 'probe.cache_mb',
    'train.checkpoint_every', 'train.log_every', 'train.micro_batch',
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """The lines that make a result again: a statement of Python and a command.

    `names` are the expressions that make the names in the statement, each of which needs only those
    before it.
    """

    python: str
    shell: str
    names: Mapping[str, str]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a language and a line, as a part of the page has them."""
        return ('Python', self.python), ('Shell', self.shell)


def lines_of(given: Given, section: str) -> Reproduction:
    """Return the lines that make the result of a section again, by names and settings alone."""
    python = f'{section} = {ANALYSES[section].call(given)!r}'
    sections = list(dict.fromkeys([*given.others, section]))
    read = given.read | {'model.name'}
    return Reproduction(python, command(given.study.config, sections, read), given.names)


@dataclasses.dataclass(frozen=True, eq=False)
class Names(Result):
    """The names that the lines of Python of a page need, as in `Reproduction`."""

    names: Mapping[str, str]

    @property
    def title(self) -> str:
        return 'To go on in Python'

    def notes(self) -> list[str]:
        return [
            'Run this line first, then the line of Python of a section. Some lines use the names '
            'of other sections: run the lines of these before.'
        ]

    @property
    def python(self) -> str:
        """The statements that make the names."""
        made = [f'{name} = {expression}' for name, expression in self.names.items()]
        return '; '.join(['import bert_secrets_jax as bs', *made])


def command(
    config: ConfigDict,
    sections: Sequence[str],
    read: Collection[str] | None = None,
    *,
    out: str = '',
) -> str:
    """Return the shortest command that answers sections; settings not read do not matter.

    In a run that `experiments` has started, it is one of these, otherwise of `bert-secrets`.
    """
    program = ['report', f'--sections={",".join(sections)}'] if len(sections) > 1 else sections
    own = flatten_dict(config.to_dict(), sep='.')
    commands = []
    for flags, start in _starts(config):
        usual = flatten_dict(start.to_dict(), sep='.')
        changed = [
            f'--set={name}={value}'
            for name, value in own.items()
            if (read is None or name in read) and name not in ('model.name', *OF_NO_MATTER)
            if plain(value) != plain(usual[name])
        ]
        commands.append([*program, f'--model={own["model.name"]}', *flags, *changed])
    words = min(commands, key=len) + [f'--out={out}'] * bool(out)
    return ' '.join(map(quoted, _in_clone(*words) if in_clone() else ['bert-secrets', *words]))


def _in_clone(program: str, *flags: str) -> list[str]:
    """Return a command with the names that the launchers of the clone have."""
    given = {'--sections': '', '--config': 'quickstart', '--out': 'results'}
    given |= dict(each.split('=', 1) for each in flags)
    name, colon, variant = given['--config'].partition(':')
    words = [f'--sections={given["--sections"]}'] * bool(given['--sections'])
    words += [f'--config=configs/{name}.py{colon}{variant}']
    words += [f'--config.model.name={given["--model"]}']
    words += [f'--config.{each[6:]}' for each in flags if each.startswith('--set=')]
    launcher = [f'experiments.{"reproduce" if program == "report" else program}']
    if not importlib.util.find_spec(launcher[0]):
        launcher = ['experiments.section', program]
    return ['python', '-m', *launcher, *words, f'--workdir={given["--out"]}']


def _starts(config: ConfigDict) -> list[tuple[list[str], ConfigDict]]:
    """Return the settings that a command can start from, each with the flags that ask for them."""
    data = config.data
    if data.source == 'file' and not in_clone():
        given = {'texts': data.file, 'train': data.train_file}
        given |= {name: data[name] for name in ('text_a', 'text_b', 'label')}
        # Names with commas are a setting, since the flag would divide them.
        labels = () if any(',' in name for name in data.labels) else data.labels
        start = base.get_config()
        set_texts(start, **given, labels=labels)
        given['labels'] = ','.join(labels)
        flags = [f'--{flag.replace("_", "-")}={value}' for flag, value in given.items() if value]
        return [(flags, start)]
    named = [(quickstart, 'quickstart', 'smoke'), (base, 'base', ''), (base, 'base', 'smoke')]
    if data.source == 'glue':
        named += [(paper, 'paper', data.task), (paper, 'paper', f'{data.task}:smoke')]
    return [([], quickstart.get_config())] + [
        ([f'--config={name}{":" * bool(variant)}{variant}'], config.get_config(variant))
        for config, name, variant in named
    ]


def quoted(word: str) -> str:
    """Return a word for a shell, in double quotes where it has single ones, as Python writes."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)
