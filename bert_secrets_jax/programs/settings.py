"""Settings by their names: changed, listed, and with a table of one's own."""

import ast
import functools
import operator
import re
import sys
import textwrap
from collections.abc import Sequence

from ml_collections import ConfigDict

from bert_secrets_jax.checks import meant
from bert_secrets_jax.configs.schema import SETTINGS, Setting

# The flags of `bert-secrets` that are settings.
FLAGS = {
    'model.name': '--model', 'data.file': '--texts', 'data.train_file': '--train',
    'data.text_a': '--text-a', 'data.text_b': '--text-b', 'data.label': '--label',
    'data.labels': '--labels',
}  # fmt: skip
_SETTING = re.compile(r'(?:(?:[Tt]he )?settings? |(?<=and ))([a-z_]+\.[a-z_]+)')


def as_flags(message: str) -> str:
    """Return a message of a program with its flags in the place of settings.

    >>> as_flags('Name the column (setting data.label).')
    'Name the column (--label).'
    """

    # `python -m experiments.X` started this process, and not `bert-secrets`.
    spec = getattr(sys.modules['__main__'], '__spec__', None)
    in_clone = spec is not None and spec.name.startswith('experiments.')

    def flag(match: re.Match) -> str:
        name = match[1]
        if name not in SETTINGS:
            return match[0]
        return f'--config.{name}' if in_clone else FLAGS.get(name, f'--set={name}')

    return _SETTING.sub(flag, message.replace("bad_rows='skip'", 'setting data.bad_rows=skip'))


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
    """Make a table of one's own the texts of a config; the arguments are those of `api.report`."""
    config.data.source = 'file'
    config.data.file = texts
    config.data.train_file = train
    if text_a:
        config.data.text_a = text_a
    config.data.text_b = text_b
    config.data.label = label
    config.data.labels = tuple(labels)


def assign(config: ConfigDict, name: str, value: object) -> None:
    """Change a setting of a config; ValueError if there is none, or the value is of another type.

    A text is read as a Python literal unless the default is a text or None.
    """
    if name not in SETTINGS:
        listed = '`bert-secrets settings` lists them.'
        raise ValueError(f'No such setting: {name!r}. {meant(name, SETTINGS) or listed}')
    *path, last = name.split('.')
    part = functools.reduce(operator.getitem, path, config)
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
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f'{name}={value!r} is not of the type of {default!r}.') from None


def matching(words: Sequence[str]) -> list[Setting]:
    """Return the settings with all these words in name or help; a ValueError names near ones."""
    left = list(SETTINGS.values())
    for word in words:
        has = [each for each in left if word.lower() in f'{each.name} {each.help}'.lower()]
        if not has:
            parts = {part for name in SETTINGS for part in (name, *re.split('[._]', name))}
            hint = meant(word, sorted(parts)) or 'Leave it out to list all.'
            raise ValueError(f'No setting has {word!r} in its name or help. {hint}')
        left = has
    return left


def settings_text(settings: Sequence[Setting]) -> str:
    """Return settings with their defaults and what they are for."""
    lines = []
    for each in settings:
        lines += [f'# {row}' for row in textwrap.wrap(each.help, 88)]
        lines.append(f'{each.name}={"" if each.default is None else repr(each.default)}')
    return '\n'.join(lines)
