"""Checks of settings, each on its own, before anything is read or computed."""

import operator
import re
from collections.abc import Iterator
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.brief import either, meant, shortened
from bert_secrets_jax.configs.schema import SETTINGS, Listed, ListedNumbers, Setting, Words
from bert_secrets_jax.ranges import Range

_NUMBER = re.compile(r'[0-9]+(\.[0-9]*)?(e-?[0-9]{1,2})?')
_LONGEST = 10_000  # words of a list, or characters
_AXIS = re.compile(r'(data|masks|seeds):([1-9][0-9]{0,5})')


def check(config: ConfigDict) -> None:
    """Check every setting on its own; a ValueError names all that are out of range."""
    faults = []
    for name, setting in SETTINGS.items():
        faults += _faults(name, setting, operator.attrgetter(name)(config))
    try:
        parse_axes(config.mesh)
    except (ValueError, TypeError) as error:
        faults.append(f'mesh={str(error).rstrip(".")}')
    labels = config.data.labels
    if isinstance(labels, tuple | list) and len(set(map(repr, labels))) < len(labels):
        faults.append(f'data.labels={shortened(labels)} has a name twice')
    if config.statistics in ((), []):
        faults.append('statistics=() must have at least one name')
    batch, micro = config.train.batch_size, config.train.micro_batch
    permutations = config.importance.permutations
    allowed = SETTINGS['importance.permutations'].allowed
    if permutations in allowed and (permutations % 2 or 0 < permutations < 20):
        faults.append(
            f'importance.permutations={permutations} must be even and at least 20 (each is drawn '
            'with its reverse), or 0 to leave Shapley values out'
        )
    if not faults and batch % micro:
        faults.append(f'train.micro_batch={micro} must divide train.batch_size={batch}')
    if faults:
        raise ValueError('; '.join(faults) + '.')


def numbers_in(text: str) -> tuple[float | int, ...]:
    """Return the numbers of a setting that has several; ValueError if a part of it is none.

    >>> numbers_in('0.01, 3e-2')
    (0.01, 0.03)
    """
    words = [word.strip() for word in text.split(',')] if isinstance(text, str) else ['']
    if not all(_NUMBER.fullmatch(word) for word in words):
        raise ValueError(f'{shortened(text)} must be numbers with commas between them.')
    return tuple(int(word) if word.isdigit() else float(word) for word in words)


def parse_axes(text: str) -> dict[str, int]:
    """Return how many devices lie along each axis, by its name; '' is all along 'data'.

    >>> parse_axes('data:4,masks:2')
    {'data': 4, 'masks': 2}
    """
    found = [_AXIS.fullmatch(part.strip()) for part in text.split(',')] if text else []
    names = [each[1] for each in found if each]
    if len(names) < len(found) or names[:1] not in ([], ['data']) or len(names) > 2:
        raise ValueError(
            f"{text!r} must be 'data:8' for one, or have a second axis as in 'data:4,masks:2' or "
            "'data:4,seeds:2'."
        )
    if len(set(names)) < len(names):
        raise ValueError(f'{text!r} has an axis twice.')
    return {each[1]: int(each[2]) for each in found if each}


def _faults(name: str, setting: Setting, value: Any) -> Iterator[str]:
    """Yield what is wrong with the value of a setting."""
    said, allowed, several = shortened(value), setting.allowed, isinstance(setting.default, tuple)
    listed = isinstance(value, tuple | list)
    has_words = isinstance(allowed, Words | ListedNumbers) and (listed or isinstance(value, str))
    if has_words and len(value) > _LONGEST:
        yield f'{name}={said} is longer than any list of its values'
        return
    match allowed:
        case Range():
            if value not in allowed:
                yield f'{name}={said} must be {allowed}'
            return
        case ListedNumbers():
            yield from _faults_of_numbers(name, allowed, value)
        case Listed():
            words = [word.strip() for word in value.split(',')] if isinstance(value, str) else []
            if not value and setting.default:
                yield f'{name} is empty: give at least one of {either(allowed.allowed)}'
            for word in dict.fromkeys(words) if value else ():
                if words.count(word) > 1:
                    yield f'{name} has {shortened(word)} twice'
                yield from _faults_of_word(name, allowed, word)
        case Words():
            if several and not listed:
                yield f'{name}={said} must be a tuple of {either(allowed.allowed)}'
                return
            if value in ((), []) and name != 'ablation.sets':
                yield f'{name}=() must have at least one of {either(allowed.allowed)}'
            for word in value if listed else (value,):
                yield from _faults_of_word(name, allowed, word)
            return
    if isinstance(setting.default, bool):
        if not isinstance(value, bool):
            yield f'{name}={said} must be True or False'
        return
    if several and not (listed and all(isinstance(each, str) for each in value)):
        yield f'{name}={said} must be a tuple of texts'
        return
    if value is None and setting.default is None:
        return
    for text in value if several else (value,):
        # Half of a surrogate pair cannot be written.
        if (
            not isinstance(text, str)
            or '\0' in text
            or text != text.encode('utf-8', 'ignore').decode()
        ):
            yield f'{name}={shortened(text)} must be a text that a file can hold'


def _faults_of_word(name: str, allowed: Words, word: Any) -> Iterator[str]:
    if word not in allowed.allowed:
        near = f' ({near})' if (near := meant(word, allowed.allowed)) else ''
        yield f'{name} is {either(allowed.allowed)}, not {shortened(word)}{near}'


def _faults_of_numbers(name: str, allowed: ListedNumbers, value: Any) -> Iterator[str]:
    if value == '' and not allowed.needed:
        return
    try:
        found = numbers_in(value)
    except ValueError:
        found = ()
    if not found or len(set(found)) < len(found) or not all(each in allowed.each for each in found):
        yield (
            f'{name}={shortened(value)} must be different numbers with commas between them, each '
            f'{allowed.each}'
        )
