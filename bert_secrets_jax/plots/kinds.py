"""The kinds of heads: the one colour, pattern and letter that each has on every page and figure.

`kinds.json` lists the known ones, each with the schematic map of its legend. Black can be read on
all fills, and people with colour blindness can tell them apart together with the letters.
"""

import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

TABLE: dict[str, Any] = json.loads(pathlib.Path(__file__).with_suffix('.json').read_text('utf-8'))
for _name, _letter in TABLE['relations'].values():
    TABLE['kinds'][_name] = [TABLE['relation'], '', _letter, 'links']


class Look(NamedTuple):
    """How a kind of head is drawn and explained; `shape` is its schematic map.

    An unknown kind has neither shape nor gloss.
    """

    fill: str
    pattern: str
    letter: str
    shape: str = ''
    gloss: str = ''


def plain_relation(name: str) -> str:
    """Return a relation of Universal Dependencies in words, a subtype as its parent.

    >>> plain_relation('nsubj:pass'), plain_relation('my own')
    ('subject', 'my own')
    """
    return TABLE['relations'].get(name.partition(':')[0], (name,))[0]


def in_words(name: str) -> str:
    """Return the name of a column, or of some of its rows, in whole words.

    >>> in_words('p_holm'), in_words('seed 0, f1')
    ('p corrected (Holm)', 'seed 0, F1')
    """
    parts = str(name).split(', ')
    spelt = [
        re.sub('[^_ ]+', lambda word: TABLE['words'].get(word[0], word[0]), each) for each in parts
    ]
    plain = [each.replace('_', ' ') for each in spelt]
    return ', '.join(map(TABLE['columns'].get, parts, plain))


def look(kind: str) -> Look:
    """Return how a kind is drawn; an unknown one gets a pattern, fill and letters from its name."""
    if kind in TABLE['kinds']:
        return Look(*TABLE['kinds'][kind])
    fills, patterns = TABLE['fills'], TABLE['patterns']
    number = sum(place * ord(letter) for place, letter in enumerate(kind, 1))
    words = kind.split() or ['?']
    letters = words[0][0] + (words[1][0] if len(words) > 1 else words[0][1:2])
    pattern = patterns[number // len(fills) % len(patterns)]
    return Look(fills[number % len(fills)], pattern, letters.lower())


def looks(kinds: Iterable[str]) -> dict[str, Look]:
    """Return how each kind is drawn; where two have the same letters, the second adds a digit."""
    found: dict[str, Look] = {}
    for kind in sorted(set(kinds)):
        each, taken = look(kind), {other.letter for other in found.values()}
        tries = [each.letter, *(f'{each.letter}{number}' for number in range(2, len(taken) + 3))]
        found[kind] = each._replace(letter=next(one for one in tries if one not in taken))
    return found
