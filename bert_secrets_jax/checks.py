"""Checks of what functions are given, and the words of errors, which are one line each.

Numbers that an argument may be stand on it (`arguments`), those of settings in tables (`ranges`).
"""

import collections
import dataclasses
import difflib
import html
import re
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np


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


def check_shape(name: str, array: Any, mend: str = '', /, **axes: int | None) -> None:
    """Raise ValueError for an array that has other axes than those named; None is any length.

    >>> check_shape('mask', np.ones(3), layers=2, heads=None)
    Traceback (most recent call last):
    ValueError: mask must be [layers, heads] = [2, any], got [3].
    """
    shape, sizes = np.shape(array), tuple(axes.values())
    # An axis of any length is as long as it is.
    known = [real if size is None else size for real, size in zip(shape, sizes, strict=False)]
    if len(shape) != len(sizes) or known != [*shape]:
        expected = ', '.join('any' if each is None else str(each) for each in sizes)
        known = f' = [{expected}]' * any(each is not None for each in sizes)
        named = ', '.join(axes).replace('_', ' ')
        raise ValueError(f'{name} must be [{named}]{known}, got {list(shape)}{mend}.')


def check_enough(what: str, given: Sized, least: int = 1, mend: str = '') -> None:
    """Raise ValueError if there are fewer of something than are needed.

    >>> check_enough('texts to match', [], 2)
    Traceback (most recent call last):
    ValueError: There are no texts to match: 0 given, at least 2 needed.
    """
    if (count := len(given)) < least:
        few = 'too few' if count else 'no'
        needed = f'{count} given, at least {least} needed{mend}'
        raise ValueError(f'There are {few} {what}: {needed}.')


def check_numbers(name: str, *arrays: Any, mend: str = '') -> None:
    """Raise ValueError if any number of some arrays is NaN or infinite.

    >>> check_numbers('scores', [1.0, np.nan])
    Traceback (most recent call last):
    ValueError: scores must be finite numbers, and some are NaN or infinite.
    """
    if not all(np.isfinite(each).all() for each in arrays):
        raise ValueError(f'{name} must be finite numbers, and some are NaN or infinite{mend}.')


def check_different(name: str, values: Iterable[Any], mend: str = 'give each once') -> None:
    """Raise ValueError for values of which one occurs twice.

    >>> check_different('heads', [(0, 1), (0, 1)])
    Traceback (most recent call last):
    ValueError: heads has (0, 1) twice: give each once.
    """
    counts = collections.Counter(values)
    if twice := [each for each, count in counts.items() if count > 1]:
        raise ValueError(f'{name} has {shortened(twice[0])} twice: {mend}.')


def check_names(setting: str, names: Sequence[Any], known: Iterable[Any]) -> None:
    """Raise ValueError for anything but a list of known names, at least one, and each once.

    >>> check_names('metrics', ['f1', 'f1'], ['f1', 'accuracy'])
    Traceback (most recent call last):
    ValueError: metrics has 'f1' twice: give each once.
    """
    known = tuple(known)
    if isinstance(names, str) or not names:
        raise ValueError(f'{setting}={shortened(names)} must be a list of {either(known)}.')
    for name in names:
        check_name(setting, name, known)
    check_different(setting, names)


def check_rules(*rules: tuple[Any, str]) -> None:
    """Raise ValueError with what belongs to the first thing that is wrong.

    >>> check_rules((False, 'It is large.'), (3 > 2, 'It is odd.'))
    Traceback (most recent call last):
    ValueError: It is odd.
    """
    for is_wrong, message in rules:
        if is_wrong:
            raise ValueError(message)


def check_lengths(mend: str = 'give one for each', /, **given: Sized) -> None:
    """Raise ValueError if there are more of one thing than of another.

    >>> check_lengths(labels=[1], texts=['a', 'b'])
    Traceback (most recent call last):
    ValueError: There are 1 labels and 2 texts: give one for each.
    """
    counts = [len(each) for each in given.values()]
    if len(set(counts)) > 1:
        listed = ' and '.join(f'{count} {name}' for name, count in zip(given, counts, strict=True))
        raise ValueError(f'There are {listed}: {mend}.'.replace('_', ' '))
