"""Texts whose words have tags, such as parts of speech or names: from CoNLL-U and JSON lines."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int32

from bert_secrets_jax.checks import check_lengths, check_name, shortened
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.rows import AnyPath, good_rows
from bert_secrets_jax.data.tasks import Example, Placed
from bert_secrets_jax.data.treebank import in_column, sentences_of, words_of
from bert_secrets_jax.files import of_kind

COLUMNS = ('upos', 'xpos', 'deprel')  # the columns of CoNLL-U that hold one tag of each word
_LISTS = ('feats', 'misc')


@dataclasses.dataclass(frozen=True)
class Tagged(Placed):
    """The words of a text, each with its tag.

    Attributes:
      words: The words.
      tags: The tag of each word: for names of things 'B-PER', 'I-PER', 'O' and so on (IOB2).
      id, where: As in `Example`.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    id: str = ''
    where: str = dataclasses.field(default='', repr=False, compare=False)

    def __post_init__(self):
        for name in ('words', 'tags'):
            values = getattr(self, name)
            if isinstance(values, str) or not all(isinstance(each, str) for each in values):
                raise TypeError(f'{name}={shortened(values)} must be a sequence of texts.')
            object.__setattr__(self, name, tuple(values))
        check_lengths(words=self.words, tags=self.tags)
        if not self.words or not all(each.strip() for each in (*self.words, *self.tags)):
            raise ValueError('There are no words, or a word or a tag is empty.')
        for each in self.tags:
            if each != each.strip():
                raise ValueError(
                    f'the tag {shortened(each)} has a space at its ends: leave it out.'
                )
        # Half of a surrogate pair, which JSON can escape, raises here.
        ' '.join(self.words + self.tags).encode()

    @property
    def text(self) -> str:
        """The words with spaces between them, as a model reads them."""
        return ' '.join(self.words)

    @property
    def example(self) -> Example:
        """The text without its tags."""
        return Example(self.text, id=self.id, where=self.where)


def read_conllu(path: AnyPath, *, column: str = 'upos', bad_rows: str = 'error') -> list[Tagged]:
    """Read the words of a CoNLL-U file with one of its columns as tags.

    Words are those with a number of their own: of a contraction ("1-2 du") its parts are read, and
    words that are not written ("8.1") are left out.

    Args:
      path, bad_rows: As in `read_table`. A sentence is bad in which a word has no tag, is missing,
        is there twice or is out of order.
      column: 'upos', 'xpos' or 'deprel', or an item of another column such as 'feats.Number' or
        'misc.NER'. A word without that item has the tag 'O'.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The column is unknown, a sentence is bad, or the file is no CoNLL-U.
    """
    field, _, item = column.partition('.')
    if field not in _LISTS or not item:
        # The items of a list have any names, such as the last two.
        check_name('column', column, (*COLUMNS, 'feats.Number', 'misc.NER'))

    def read(lines: str, identity: str, where: str) -> Tagged:
        _, words = words_of(lines)
        tags = [_in_column(word, field, item) for word in words]
        return Tagged(tuple(word['form'] for word in words), tuple(tags), identity, where)

    return list(good_rows(path, sentences_of(path), read, bad_rows))


def _in_column(word: Mapping[str, Any], field: str, item: str) -> str:
    if not item:
        return str(in_column(word, field))
    tag = (word.get(field) or {}).get(item, 'O')
    if not tag:
        raise ValueError(f'{word["form"]!r} has {field}.{item} without a value')
    return str(tag)


def read_tagged(
    path: AnyPath,
    *,
    words: str = 'tokens',
    tags: str = 'tags',
    names: Sequence[str] | None = None,
    bad_rows: str = 'error',
) -> list[Tagged]:
    """Read JSON lines, each with a list of words and a list of their tags.

    Args:
      path, bad_rows: As in `read_table`.
      words, tags: The names of the two lists.
      names: The names of all tags, by their numbers from 0; None if they are texts.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: A row is bad, such as one whose tag has a space at an end, or there is none.
    """

    def read(row: dict[str, Any], identity: str, where: str) -> Tagged:
        found, of_words = (of_kind(row[name], list, f'{name!r}: ') for name in (words, tags))
        return Tagged(tuple(found), tuple(_named(tag, names) for tag in of_words), identity, where)

    return list(good_rows(path, None, read, bad_rows))


def _named(tag: Any, names: Sequence[str] | None) -> str:
    if isinstance(tag, str):
        if names is not None:
            check_name('tag', tag, names)
        return tag
    if names is None:
        raise ValueError(f'the tag {tag!r} is no text: give names for numbers')
    if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag < len(names):
        raise ValueError(f'the tag {tag!r} is no number from 0 to {len(names) - 1}')
    return names[tag]


def first_pieces(encoded: Encoded, texts: Sequence[Tagged]) -> Int32[np.ndarray, 'E T']:
    """Return, for each wordpiece that is the first of a word, the number of the word; else -1."""
    found = np.full(encoded.input_ids.shape, -1, np.int32)
    for row, text in enumerate(texts):
        ends = np.cumsum([len(word) + 1 for word in text.words])
        places = np.flatnonzero(
            (encoded.text[row] == 0) & (np.ptp(encoded.offsets[row], axis=1) > 0)
        )
        words = np.searchsorted(ends, encoded.offsets[row, places, 0], side='right')
        words, first = np.unique(words, return_index=True)
        found[row, places[first]] = words
    return found
