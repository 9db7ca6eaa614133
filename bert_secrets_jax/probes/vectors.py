"""Word vectors in the text format of GloVe and word2vec.

Axes: U known words, V numbers of a vector.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
from absl import logging
from jaxtyping import Float32, Int32

from bert_secrets_jax.checks import brief, check_shape, shortened
from bert_secrets_jax.data.rows import Lines, Row, good_rows
from bert_secrets_jax.data.tables import NUMBER

# From this share of unknown words on, a warning says that the vectors are hardly made for them.
_MANY_UNKNOWN = 0.2


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Vectors:
    """The vectors of some words.

    Attributes:
      words: The U known words, in lower case where they were read for given words.
      table: The vectors. Row 0, all zeros, stands for unknown words.
    """

    words: Sequence[str]
    table: Float32[np.ndarray, '_ V']

    __repr__ = brief

    def __post_init__(self):
        mend = ': before the rows of words there is one of zeros'
        check_shape('table', self.table, mend, words_and_zeros=len(self.words) + 1, numbers=None)
        if self.table[0].any():
            raise ValueError('Row 0 of the table stands for unknown words and must be zeros.')

    @property
    def width(self) -> int:
        """The number V of numbers in a vector."""
        return self.table.shape[1]

    @functools.cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words, 1)}

    def rows(self, words: Sequence[str]) -> Int32[np.ndarray, ' W']:
        """Return the row of the table for each word, in lower case as in the published code.

        An unknown word has row 0.
        """
        return np.array([self._rows.get(word.lower(), 0) for word in words], np.int32)

    def unknown(self, words: Iterable[str]) -> float:
        """Return the share of the words, each as often as it occurs, that has no vector."""
        rows = self.rows(list(words))
        return float((rows == 0).mean()) if len(rows) else 0.0


def read_vectors(
    path: str | os.PathLike[str], words: Iterable[str] | None = None, *, bad_rows: str = 'error'
) -> Vectors:
    """Read word vectors: lines of a word and its numbers, with spaces between them.

    A first line with the number of words and that of numbers, as word2vec writes it, is allowed.

    Args:
      path: The file, plain or compressed (.gz, .xz).
      words: The words that are needed, each as often as it occurs, looked up in lower case as in
        the published code of Clark et al. 2019. None keeps all.
      bad_rows: 'error' refuses a file with lines that are no word with a vector, 'skip' leaves them
        out and warns.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some lines are bad, the compression is damaged, or none of the words has a vector.
    """
    path = pathlib.Path(path)
    asked = None if words is None else [word.lower() for word in words]
    wanted = None if asked is None else set(asked)
    first, width = _layout(path)
    rows = (
        Row(f'line {number}', line)
        for number, line in Lines(path).encoded()
        if number >= first and line.strip()
    )

    def read(line: bytes, identity: str, where: str) -> tuple[str, np.ndarray] | None:
        fields = line.decode().rstrip().split(' ')
        # Some words of GloVe have spaces in them.
        word = ' '.join(fields[:-width])
        if not word:
            raise ValueError(f'{shortened(fields[0])} has {len(fields) - 1} numbers, not {width}')
        numbers = ' '.join(fields[-width:])
        # Python also reads 1_0, and the digits of other scripts.
        if (
            '_' in numbers
            or not numbers.isascii()
            or (' ' in word and NUMBER.fullmatch(fields[-width - 1]))
        ):
            raise ValueError(
                f'{shortened(word)} has something else behind it than {width} numbers, as many as '
                'the first line has'
            )
        if wanted is not None and word not in wanted:
            return None
        vector = np.array(fields[-width:], np.float32)
        if not np.isfinite(vector).all():
            raise ValueError(f'the vector of {shortened(word)} is not finite')
        return word, vector

    by_word: dict[str, np.ndarray] = {}
    for each in good_rows(path, rows, read, bad_rows):
        if each is not None:
            by_word.setdefault(*each)
    if not by_word:
        raise ValueError(
            f'{path} has no word with a vector.'
            if wanted is None
            else f'{path} has no vector of any of the {len(wanted):,} words that are needed: are '
            'the vectors of another language?'
        )
    table = np.stack(list(by_word.values()))
    vectors = Vectors(tuple(by_word), np.concatenate([np.zeros_like(table[:1]), table]))
    if asked is not None:
        share = vectors.unknown(asked)
        log = logging.warning if share >= _MANY_UNKNOWN else logging.info
        log(
            '%.1f %% of %d words have no vector in %s, and get one of zeros.',
            100 * share, len(asked), path,
        )  # fmt: skip
    return vectors


def _layout(path: pathlib.Path) -> tuple[int, int]:
    """Return the number of the first line with a vector, and the number of its numbers."""
    number, line = next(((n, line) for n, line in Lines(path).encoded() if line.strip()), (1, b''))
    first, *others = line.decode(errors='replace').rstrip().split(' ')
    if len(others) == 1 and line.isascii() and first.isdecimal() and others[0].isdecimal():
        return number + 1, int(others[0])
    if line and not others:
        raise ValueError(
            f'{path}: line {number}: {shortened(first)} has no numbers behind spaces: is this a '
            'text of word vectors?'
        )
    return number, len(others)
