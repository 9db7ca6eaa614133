"""One line for what holds large arrays, and for errors."""

import dataclasses
import difflib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class TooFewTextsError(ValueError):
    """Texts hold too little for an analysis, whose section then says so: nothing has failed."""


# Errors that a user can mend.
MENDABLE = (ValueError, OSError, ImportError, FloatingPointError)
_NAMES = 5
_MOST_CHOICES = 50  # that are listed
_CHARACTERS = 60
_LONGEST_LINE = 1000  # characters of an error
# A word of more characters, of which an error repeats the first ones and the last ones.
_ENDLESS = re.compile(r'(\S{80})\S{200,}(\S{20})')
_MOST_NEAR = 1000  # names among which a near one is looked for


def brief(self: Any) -> str:
    """Return a short `repr` of a dataclass: arrays by type and shape, long values by their size.

    >>> import numpy as np
    >>> @dataclasses.dataclass(repr=False)
    ... class Measured:
    ...     mean: np.ndarray
    ...     count: float
    ...     __repr__ = brief
    >>> Measured(np.zeros((6, 12), np.float32), 7.0)
    Measured(mean=float32[6, 12], count=7.0)
    """
    fields = [field.name for field in dataclasses.fields(self) if field.repr]
    shown = ', '.join(f'{name}={_value(getattr(self, name))}' for name in fields)
    return f'{type(self).__name__}({shown})'


def tree(self: Any) -> str:
    """Return the `_repr_html_` of a dataclass: its fields, and dictionaries that unfold."""
    fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.repr}
    return _branch(html.escape(repr(self)), fields, 'open')


def _branch(title: str, items: Mapping, state: str = '') -> str:
    rows = ''.join(
        _branch(f'{name} {html.escape(_value(item))}', item)
        if isinstance(item, Mapping)
        else f'<div>{name} = <code>{html.escape(_value(item, nbytes=True))}</code></div>'
        for name, item in ((html.escape(str(name)), item) for name, item in items.items())
    )
    inside = f'<div style="margin-left: 1.5em">{rows}</div>'
    return f'<details {state}><summary>{title}</summary>{inside}</details>'


def shortened(value: Any) -> str:
    """Return the `repr` of a value that an error shows; only the beginning of a long one.

    >>> shortened('word'), len(shortened('word' * 99))
    ("'word'", 83)
    """
    text = repr(value)
    return text if len(text) <= 80 else f'{text[:80]}...'


def without_endless(value: Any) -> Any:
    """Return a text without the middle of its endless words, such as names of 5,000 letters.

    >>> len(without_endless('word' * 1000)), without_endless('a word')
    (103, 'a word')
    """
    return _ENDLESS.sub(r'\1...\2', value) if isinstance(value, str) else value


def summary(error: BaseException) -> str:
    """Return the first line of an error, and no end of it; its class, if it says nothing.

    >>> summary(ValueError(' The file is empty. ')), summary(AssertionError())
    ('The file is empty.', 'AssertionError')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = without_endless(lines[0]) if lines else type(error).__name__
    return line if len(line) <= _LONGEST_LINE else f'{line[:_LONGEST_LINE]}...'


def either(choices: Sequence[Any]) -> str:
    """Return choices as a person lists them.

    >>> either('abc'), either([True])
    ("'a', 'b' or 'c'", 'True')
    """
    if not choices:
        return 'nothing'
    if len(choices) > _MOST_CHOICES:
        return f'one of {len(choices):,}, such as {either(choices[:3])}'
    *most, last = map(repr, choices)
    return f'{", ".join(most)} or {last}' if most else last


def meant(word: Any, known: Iterable[Any]) -> str:
    """Ask which of the known names was meant; empty if none is close, or among very many.

    >>> meant('trian', ['train', 'texts'])
    'Did you mean train?'
    """
    spelt = {str(each).lower(): str(each) for each in known}
    if len(spelt) > _MOST_NEAR or len(str(word)) > _CHARACTERS:
        return ''
    close = [spelt[each] for each in difflib.get_close_matches(str(word).lower(), list(spelt), n=3)]
    return f'Did you mean {" or ".join(close)}?' if close else ''


def check_name(setting: str, name: Any, known: Iterable[Any]) -> None:
    """Raise ValueError for a name that is none of those known, and ask which one was meant.

    >>> check_name('split', 'trian', ['train', 'dev'])
    Traceback (most recent call last):
    ValueError: split='trian' must be 'train' or 'dev'. Did you mean train?
    """
    known = tuple(known)
    if name not in known:
        text = f'{setting}={shortened(name)} must be {either(known)}. {meant(name, known)}'
        raise ValueError(text.rstrip())


def _value(value: Any, *, nbytes: bool = False) -> str:
    if getattr(value, 'shape', ()):
        shown = f'{value.dtype}{list(value.shape)}'
        if not nbytes:
            return shown
        large = value.nbytes > 50_000
        return f'{shown}, {value.nbytes / 1e6:.1f} MB' if large else f'{shown}, {value.nbytes:,} B'
    if isinstance(value, Mapping):
        names = ', '.join(map(str, list(value)[:_NAMES]))
        more = f' and {len(value) - _NAMES} more' if len(value) > _NAMES else ''
        return f'{{{names}{more}}}'
    text = repr(value)
    if len(text) <= _CHARACTERS:
        return text
    if isinstance(value, list | tuple):
        return f'<{len(value)} items>'
    return f'<{type(value).__name__}>'
