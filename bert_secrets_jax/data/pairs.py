"""Minimal pairs: two texts that differ in little, one of which is good and the other one bad."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

from bert_secrets_jax.data.rows import Lines, good_rows
from bert_secrets_jax.data.tables import table_rows


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two texts that differ in little, of which the first should be preferred.

    Attributes:
      good, bad: The texts, such as an acceptable sentence and an unacceptable one.
      phenomenon: The name of what they differ in, such as 'reflexive pronouns'.
      id, where: As in `Example`.
    """

    good: str
    bad: str
    phenomenon: str
    id: str = ''
    where: str = dataclasses.field(default='', repr=False, compare=False)

    def __post_init__(self):
        for name in ('good', 'bad', 'phenomenon'):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ValueError(f'{name}={value!r} must be a text that is not empty.')
        if self.good == self.bad:
            raise ValueError(f'Both texts are {self.good!r}: neither can be better.')


def read_pairs(
    path: str | os.PathLike[str],
    *,
    good: str = 'good',
    bad: str = 'bad',
    phenomenon: str = 'phenomenon',
    bad_rows: str = 'error',
) -> list[MinimalPair]:
    """Read minimal pairs from a table, such as JSON lines (see `read_table`).

    The file of BLiMP (Warstadt et al. 2020) is read with `good='sentence_good'`,
    `bad='sentence_bad'` and `phenomenon='UID'`, or 'linguistics_term' for coarser ones.

    Args:
      path: The file.
      good, bad, phenomenon: The names of these columns. Others are ignored.
      bad_rows: As in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some rows are bad, or the file is something else.
    """

    def read(values: Sequence[str], identity: str, where: str) -> MinimalPair:
        return MinimalPair(*values, identity, where)

    path = pathlib.Path(path)
    rows = table_rows(Lines(path), (good, bad, phenomenon))
    return list(good_rows(path, rows, read, bad_rows))


def pairs_sample() -> list[MinimalPair]:
    """Read the embedded minimal pairs: 60 English ones in four phenomena, written for this project.

    They are agreement with a distant subject, reflexive pronouns, number after a determiner, and
    words such as 'ever' that need a negation. Apache-2.0, like the rest of the project.
    """
    return read_pairs(pathlib.Path(__file__).parent / 'pairs' / 'pairs.jsonl')
