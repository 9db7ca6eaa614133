"""Checks that many functions make of what they are given, each of them in one wording.

Numbers that an argument may be stand on it (`arguments`), those of settings in tables (`ranges`).
"""

import collections
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import numpy as np

from bert_secrets_jax.brief import check_name, either, shortened


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
