"""The lines of a page that make its results again: of Python, and for the shell."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from flax.traverse_util import flatten_dict
from ml_collections import ConfigDict

from bert_secrets_jax.analyses.declaration import ANALYSES
from bert_secrets_jax.configs import base
from bert_secrets_jax.programs.given import Given
from bert_secrets_jax.programs.settings import set_texts
from bert_secrets_jax.runs.call import plain
from bert_secrets_jax.runs.result import Result

# These say how something is computed, and change no result that a reader could tell.
OF_NO_MATTER = (
    'ablation.chunk_tokens', 'encoding.tokens_per_batch', 'probe.cache_mb',
    'train.checkpoint_every', 'train.log_every', 'train.micro_batch',
)  # fmt: skip


class Reproduction(NamedTuple):
    """The lines that make a result again: a statement of Python and a command.

    `names` are the expressions that make the names in the statement, each of which needs only those
    before it.
    """

    python: str
    shell: str
    names: Mapping[str, str]


def lines_of(given: Given, section: str) -> Reproduction:
    """Return the lines that make the result of a section again, by names and settings alone."""
    python = f'{section} = {ANALYSES[section].call(given)!r}'
    sections = list(dict.fromkeys([*given.others, section]))
    read = given.read | {'model.name'}
    return Reproduction(python, command(given.study.config, sections, read), given.names)


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
    """Return a command that answers sections; settings that are not read do not matter."""
    program = ['report', f'--sections={",".join(sections)}'] if len(sections) > 1 else sections
    flags, start = _start(config)
    usual = flatten_dict(start.to_dict(), sep='.')
    changed = [
        f'--set={name}={value}'
        for name, value in flatten_dict(config.to_dict(), sep='.').items()
        if (read is None or name in read) and name not in ('model.name', *OF_NO_MATTER)
        if plain(value) != plain(usual[name])
    ]
    words = ['bert-secrets', *program, f'--model={config.model.name}', *flags, *changed]
    return ' '.join(map(quoted, [*words, f'--out={out}'] if out else words))


def _start(config: ConfigDict) -> tuple[list[str], ConfigDict]:
    """Return the flags with which a command says what its texts are, and their settings."""
    data = config.data
    if data.source == 'corpus':
        return [], base.quickstart()
    start = base.get_config()
    if data.source != 'file':
        return ['--config=base'], start
    given = {'texts': data.file, 'train': data.train_file}
    given |= {name: data[name] for name in ('text_a', 'text_b', 'label')}
    # Names with commas are a setting, since the flag would divide them.
    labels = () if any(',' in name for name in data.labels) else data.labels
    set_texts(start, **given, labels=labels)
    given['labels'] = ','.join(labels)
    flags = [f'--{flag.replace("_", "-")}={value}' for flag, value in given.items() if value]
    return flags, start


def quoted(word: str) -> str:
    """Return a word for a shell, in double quotes where it has single ones, as Python writes."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)
