"""Names of heads and of a model's parts for readers, and how any text is made readable."""

import re
import string
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

# Formatting characters that spell a word (of Persian, or an emoji of several), and Arabic and other
# signs that Unicode calls formatting though they are drawn.
_SEEN = re.compile('[\u200c\u200d\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]')


def head_name(layer: int | np.integer, head: int | np.integer) -> str:
    """Return the name of a head, which counts from 1, for numbers that count from 0.

    >>> head_name(0, 1)
    'L1-H2'
    """
    return f'L{layer + 1}-H{head + 1}'


def filled(template: str, fields: Mapping[str, Any]) -> str:
    """Return a template with its fields filled in, as `str.format` does, and nouns that agree.

    A field with two words behind it counts them, and one with an empty word before them is only the
    word that agrees with it.

    >>> filled('{n:head|heads} {n:|is|are} idle', {'n': 1}), filled('{n:head|heads}', {'n': 1200})
    ('1 head is idle', '1,200 heads')
    """
    return _AGREEING.vformat(template, (), fields)


def counted(count: int | float | np.number, noun: str) -> str:
    """Return a count and its noun, as `filled` does.

    >>> counted(1, 'example'), counted(1200, 'text')
    ('1 example', '1,200 texts')
    """
    return filled(f'{{count:{noun}|{noun}s}}', {'count': count})


def readable(number: float | int | np.number) -> str:
    """Return a number as a sentence has it: a count in full, all else with three digits.

    >>> readable(1437), readable(0.34449), readable(-5.91)
    ('1,437', '0.344', '-5.91')
    """
    return f'{number:,.0f}' if abs(number) >= 1000 else f'{number:.3g}'


def two_digits(number: float | int | np.number) -> str:
    """Return a number as a page has it: a count in full, all else with two digits that matter.

    >>> two_digits(1437.2), two_digits(0.34449), two_digits(-5.91), two_digits(83.8)
    ('1,437', '0.34', '-5.9', '84')
    """
    return f'{number:z,.0f}' if abs(number) >= 10 or number == 0 else f'{number:.2g}'


class _Agreeing(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        match format_spec.split('|'):
            case [one, many]:
                return f'{value:,.12g} {one if value == 1 else many}'
            case ['', one, many]:
                return one if value == 1 else many
        return super().format_field(value, format_spec)


_AGREEING = _Agreeing()


def visible(text: str, *, keep: str = '') -> str:
    """Return a text in which nothing is hidden, and which UTF-8, XML and HTML can hold.

    Controls, halves of surrogate pairs (of file names that are no UTF-8, for one), characters that
    turn the direction of what follows, and other characters that nobody sees are spelt as their
    code points. All others stay, as do the two joiners, which are part of words, and those to keep.

    >>> visible('a\\x00b')
    'a⟨U+0000⟩b'
    """
    if text.isascii() and text.isprintable():
        return text
    hidden = filter(_is_hidden, set(text) - set(keep))
    return text.translate({ord(character): code_point(character) for character in hidden})


def code_point(character: str) -> str:
    """Return how a character is written where it cannot be shown.

    >>> code_point('中')
    '⟨U+4E2D⟩'
    """
    return f'⟨U+{ord(character):04X}⟩'


def _is_hidden(character: str) -> bool:
    code = ord(character)
    # The noncharacters of Unicode, some of which XML forbids.
    if code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return True
    hidden = unicodedata.category(character) in ('Cc', 'Cf', 'Cs', 'Zl', 'Zp')
    return hidden and not _SEEN.match(character)


def named_parts(count: int) -> tuple[str, ...]:
    """Return the names of so many parts of a model: 'embeddings', layers from '1', and 'head'."""
    return ('embeddings', *map(str, range(1, count - 1)), 'head')
