"""Checks of settings, each on its own, before anything is read or computed."""

import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.brief import either, meant, shortened
from bert_secrets_jax.checks import check_different
from bert_secrets_jax.configs.schema import SETTINGS, Setting
from bert_secrets_jax.ranges import Range

_NUMBER = re.compile(r'[0-9]+(\.[0-9]*)?(e-?[0-9]{1,2})?')
_LONGEST = 10_000  # words of a list, or characters
_AXIS = re.compile(r'(data|masks|seeds):([1-9][0-9]{0,5})')


def check(config: ConfigDict) -> None:
    """Check every setting on its own; a ValueError names all that are out of range."""
    faults = [
        fault
        for name, setting in SETTINGS.items()
        for fault in _faults(setting, operator.attrgetter(name)(config))
    ]
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
    check_different(repr(text), names)
    return {each[1]: int(each[2]) for each in found if each}


def _faults(setting: Setting, value: Any) -> Iterator[str]:
    """Yield what is wrong with the value of a setting."""
    allowed, listed = setting.allowed, isinstance(value, tuple | list)
    wrong, several = f'{setting.name}={shortened(value)}', isinstance(setting.default, tuple)
    is_long = (listed or isinstance(value, str)) and len(value) > _LONGEST
    if isinstance(allowed, Range) and not setting.joined:
        if value not in allowed:
            yield f'{wrong} must be {allowed}'
    elif isinstance(setting.default, bool):
        if not isinstance(value, bool):
            yield f'{wrong} must be True or False'
    elif allowed is not None and is_long:
        yield f'{wrong} is longer than any list of its values'
    elif allowed is not None and not setting.joined:
        if several and not listed:
            yield f'{wrong} must be a tuple of {either(allowed)}'
        else:
            yield from _faults_of_words(setting, value if listed else (value,))
    elif several and not (listed and all(isinstance(each, str) for each in value)):
        yield f'{wrong} must be a tuple of texts'
    else:
        if setting.joined:
            yield from _faults_of_joined(setting, value)
        for text in value if several else (value,):
            if not _is_text(text) and (text is not None or setting.default is not None):
                yield f'{setting.name}={shortened(text)} must be a text that a file can hold'


def _is_text(value: Any) -> bool:
    """Return whether a file can hold a value: half of a surrogate pair cannot be written."""
    is_text = isinstance(value, str) and '\0' not in value
    return is_text and value == value.encode('utf-8', 'ignore').decode()


def _faults_of_words(setting: Setting, words: Sequence[Any]) -> Iterator[str]:
    known = either(setting.allowed)
    if not words and setting.name != 'ablation.sets':
        yield f'{setting.name}=() must have at least one of {known}'
    for word in words:
        if word not in setting.allowed:
            near = f' ({near})' if (near := meant(word, setting.allowed)) else ''
            yield f'{setting.name} is {known}, not {shortened(word)}{near}'


def _faults_of_joined(setting: Setting, value: Any) -> Iterator[str]:
    """Yield what is wrong with the words or numbers of a text with commas between them."""
    name, allowed = setting.name, setting.allowed
    if isinstance(allowed, Range):
        try:
            found = numbers_in(value)
        except ValueError:
            found = ()
        is_well = found and len(set(found)) == len(found) and all(each in allowed for each in found)
        if not is_well and (value != '' or setting.needed):
            what = 'different numbers with commas between them, each'
            yield f'{name}={shortened(value)} must be {what} {allowed}'
        return
    words = [word.strip() for word in value.split(',')] if value and isinstance(value, str) else []
    if not value and setting.needed:
        yield f'{name} is empty: give at least one of {either(allowed)}'
    for word in dict.fromkeys(words):
        if words.count(word) > 1:
            yield f'{name} has {shortened(word)} twice'
        yield from _faults_of_words(setting, (word,))
