"""Minimal pairs: two texts that differ in little, one of which is good and the other one bad."""

import dataclasses
import os
import pathlib

from bert_secrets_jax.data.rows import Lines, good_rows, object_of


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
    """Read minimal pairs from JSON lines, which may be compressed (.gz, .xz).

    The file of BLiMP (Warstadt et al. 2020) is read with `good='sentence_good'`,
    `bad='sentence_bad'` and `phenomenon='UID'`, or 'linguistics_term' for coarser ones.

    Args:
      path: The file.
      good, bad, phenomenon: The names of these values in each line. Others are ignored.
      bad_rows: As in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some lines are bad, or the file is something else.
    """
    path = pathlib.Path(path)

    def read(line: str, identity: str, where: str) -> MinimalPair:
        row = object_of(line)
        return MinimalPair(row[good], row[bad], row[phenomenon], identity, where)

    return list(good_rows(path, Lines(path).rows, read, bad_rows))


def pairs_sample() -> list[MinimalPair]:
    """Read the embedded minimal pairs: 60 English ones in four phenomena, written for this project.

    They are agreement with a distant subject, reflexive pronouns, number after a determiner, and
    words such as 'ever' that need a negation. Apache-2.0, like the rest of the project.
    """
    return read_pairs(pathlib.Path(__file__).parent / 'pairs' / 'pairs.jsonl')
