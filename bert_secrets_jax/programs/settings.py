"""Settings by their names: changed, listed, and with a table of one's own."""

import ast
import difflib
import functools
import operator
import textwrap
from collections.abc import Sequence

from ml_collections import ConfigDict

from bert_secrets_jax.configs.schema import SETTINGS


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
        close = difflib.get_close_matches(name, SETTINGS, n=3)
        meant = f'Did you mean {" or ".join(close)}?'
        listed = '`bert-secrets settings` lists them.'
        raise ValueError(f'No such setting: {name!r}. {meant if close else listed}')
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
    except (TypeError, OverflowError):
        raise ValueError(f'{name}={value!r} is not of the type of {default!r}.') from None


def settings_text() -> str:
    """Return all settings with their defaults and what they are for."""
    lines = []
    for each in SETTINGS.values():
        lines += [f'# {row}' for row in textwrap.wrap(each.help, 88)]
        lines.append(f'{each.name}={"" if each.default is None else repr(each.default)}')
    return '\n'.join(lines)
