"""Minimal pairs of a good and a bad text, and searches: pairs of a query and what answers it."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from bert_secrets_jax.checks import shortened
from bert_secrets_jax.data.rows import AnyPath, Lines, check_texts, good_rows
from bert_secrets_jax.data.tables import table_rows


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """Two texts that differ in little, of which the first should be preferred.

    Attributes:
      good, bad: The texts, such as an acceptable sentence and an unacceptable one.
      phenomenon: The name of what they differ in, such as 'reflexive pronouns'.
      anchor: A third text, such as a query, that an embedding of the good one should be closer to.
      id, where: As in `Example`.
    """

    good: str
    bad: str
    phenomenon: str
    id: str = ''
    where: str = dataclasses.field(default='', repr=False, compare=False)
    anchor: str = ''

    def __post_init__(self):
        check_texts(self, 'good', 'bad', 'phenomenon')
        if self.good == self.bad:
            raise ValueError(f'Both texts are {shortened(self.good)}: neither can be better.')


def read_pairs(
    path: AnyPath,
    *,
    good: str = 'good',
    bad: str = 'bad',
    phenomenon: str = 'phenomenon',
    anchor: str | None = None,
    bad_rows: str = 'error',
) -> list[MinimalPair]:
    """Read minimal pairs from a table, such as JSON lines (see `read_table`).

    The file of BLiMP (Warstadt et al. 2020) is read with `good='sentence_good'`,
    `bad='sentence_bad'` and `phenomenon='UID'`, or 'linguistics_term' for coarser ones.

    Args:
      path: The file.
      good, bad, phenomenon, anchor: The names of these columns; None if there is no anchor.
      bad_rows: As in `read_table`.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: Some rows are bad, or the file is something else.
    """

    def read(values: Sequence[str], identity: str, where: str) -> MinimalPair:
        # The anchor may be missing.
        texts = dict(zip(('good', 'bad', 'phenomenon', 'anchor'), values, strict=False))
        return MinimalPair(**texts, id=identity, where=where)

    columns = [each for each in (good, bad, phenomenon, anchor) if each is not None]
    return list(good_rows(path, table_rows(Lines(path), columns), read, bad_rows))


def pairs_sample() -> list[MinimalPair]:
    """Read the embedded minimal pairs: 60 English ones in four phenomena, written for this project.

    They are agreement with a distant subject, reflexive pronouns, number after a determiner, and
    words such as 'ever' that need a negation. Apache-2.0, like the rest of the project.
    """
    return read_pairs(pathlib.Path(__file__).parent / 'pairs' / 'pairs.jsonl')


def read_search(
    *files: AnyPath,
    columns: Sequence[str] = ('_id', 'text', 'query-id', 'corpus-id', 'score'),
    bad_rows: str = 'error',
) -> tuple[dict[str, str], dict[str, str], list[tuple[Any, ...]]]:
    """Read queries and documents by their names, and which document answers which query.

    Args:
      files: Three tables (see `read_table`): queries, documents, and the pairs of both.
      columns: The columns of names and texts in the first two, then those of both names and of the
        grade in the third, as in BEIR (Thakur et al. 2021). The last one may be left out.
      bad_rows: As in `read_table`, whose errors are those here. A pair is bad that has a name which
        no query or no document has.
    """
    if len(files) != 3 or len(columns) not in (4, 5):
        raise ValueError(
            'Give three files: queries, documents, relevant; and four columns or five.'
        )

    def rows(file: AnyPath, wanted: Sequence[str], known: Sequence[Any] = ()) -> list[Any]:
        def read(values: Sequence[str], *_: str) -> tuple[Any, ...]:
            for value, names, of in zip(values, known, files, strict=False):
                if value not in names:
                    raise ValueError(f'{shortened(value)} is in no row of {of}')
            return (*values[:2], *map(float, values[2:]))

        return list(good_rows(file, table_rows(Lines(file), wanted), read, bad_rows))

    texts = []
    for file in files[:2]:
        found = rows(file, columns[:2])
        texts.append(dict(found))
        if len(texts[-1]) < len(found):
            raise ValueError(f'{file} has a {columns[0]} twice: names of texts must differ.')
    return *texts, rows(files[2], columns[2:], known=texts)
