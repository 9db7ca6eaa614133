"""Segments of running text, [CLS] A [SEP] B [SEP] (Clark et al. 2019, section 3); W words."""

import bisect
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging
from jaxtyping import Int

from bert_secrets_jax.data.encoding import check_tokenizer
from bert_secrets_jax.data.tasks import Example, draw
from bert_secrets_jax.files import read_text

_LONGEST_WORD = 2**17  # far longer than any sentence of a script without spaces
COUNT = 1000  # as many as were published, and as long
_PACKAGED = pathlib.Path(__file__).parent / 'prose' / 'prose.txt'
_BETWEEN = re.compile(r'\s*|\s*(= )+\S.*( =)+\s*')  # documents: blank lines and headings
_SPLIT_WORD = re.compile(r' @([-,.])@ ')
# A word ends at a space. Scripts without spaces have words as long as sentences.
_WORD = re.compile(r'[^\s。！？]*[。！？]+|[^\s。！？]+')
_ENDS_SENTENCE = re.compile(r""".*[.!?。！？]["'”’»)\]]*""", re.DOTALL)


def read_segments(
    path: str | pathlib.Path | None,
    tokenizer,
    *,
    max_length: int = 128,
    count: int = COUNT,
    seed: int = 0,
) -> list[Example]:
    """Read running text as pairs of texts that follow each other, each pair as long as may be.

    Lines of text are one document until a blank line or a heading of WikiText (` = Title = `). Of
    each document, a segment takes whole sentences as long as [CLS] A [SEP] B [SEP] has at most
    `max_length` tokens. It is divided into A and B at the end of a sentence near its middle; if it
    has no such end inside, between two words. A sentence that is too long to leave room for another
    one is cut between words, and the next segment goes on where it was cut. What remains of a
    document and is less than two sentences long is left out, and a log line says how much that was.
    No segment is truncated when it is encoded with the same tokenizer and `max_length`.

    A sentence ends with a word that ends in a full stop, a question mark or an exclamation mark,
    unless the next word begins with a small letter: abbreviations before names ('Mr. Smith') end
    one, too. WikiText's ' @-@ ', ' @,@ ' and ' @.@ ' are undone ('red @-@ tipped' becomes
    'red-tipped'). Its spaces before punctuation and around quotation marks are kept, so that a mark
    that closes a sentence begins the next one, and tokenizers other than BERT's read them.

    Args:
      path: A file of plain text in UTF-8. None reads the text that comes with the package: sixteen
        short pieces of prose, 5,000 words in all.
      tokenizer, max_length: As in `encode`.
      count, seed: The number of segments to draw at random, of which the paper took 1000; 0 takes
        all. They stay in the order of the text; `Example.where` has the line where each begins.

    Raises:
      FileNotFoundError: There is no such file.
      TypeError: The tokenizer is something else.
      ValueError: The file is not UTF-8, has an endless word or no segment of two parts, the
        tokenizer lacks special tokens, or `max_length` or `count` is too small.
    """
    check_tokenizer(tokenizer, max_length)
    path = _PACKAGED if path is None else pathlib.Path(path)
    segments, words, kept = [], 0, 0
    for document in _documents(read_text(path)):
        for number, (start, end) in enumerate(document.words):
            if end - start > _LONGEST_WORD:
                raise ValueError(
                    f'{path}, line {document.line(number)}: a word has {end - start:,} characters: '
                    'is this a text? Leave that word out.'
                )
        words += len(document.words)
        for start, middle, end in _cut(document, tokenizer, max_length):
            kept += end - start
            texts = document.between(start, middle), document.between(middle, end)
            where = f'{path}, line {document.line(start)}'
            segments.append(Example(*texts, id=f'{path.stem}/{len(segments)}', where=where))
    if not segments:
        raise ValueError(
            f'{path} has no segment of two parts: it needs documents of at least two sentences, '
            'with a blank line between documents and a full stop at the end of each sentence.'
        )
    if kept < words:
        logging.info(
            '%d segments of %s. Left out: %d of %d words, at the ends of documents that have no '
            'other sentence there.', len(segments), path, words - kept, words,
        )  # fmt: skip
    return draw(segments, count, seed, setting='count')


@dataclasses.dataclass(frozen=True)
class _Document:
    """Running text, whose lines are joined by spaces."""

    text: str
    words: Sequence[tuple[int, int]]  # the first character of each, and the one after its last
    lines: Sequence[tuple[int, int]]  # the number of each, and its first character in the text

    def between(self, first: int, last: int) -> str:
        """Return the text from a word up to the one before another."""
        return self.text[self.words[first][0] : self.words[last - 1][1]]

    def line(self, word: int) -> int:
        """Return the number of the line of a word, from 1."""
        place = bisect.bisect_right(self.lines, self.words[word][0], key=lambda line: line[1])
        return self.lines[place - 1][0]


def _documents(text: str) -> Iterator[_Document]:
    numbered = enumerate(text.split('\n'), start=1)
    for blank, lines in itertools.groupby(
        numbered, key=lambda line: bool(_BETWEEN.fullmatch(line[1]))
    ):
        if blank:
            continue
        text, places = '', []
        for number, line in lines:
            places.append((number, len(text)))
            text += _SPLIT_WORD.sub(r'\1', line.strip()) + ' '
        text = text.removesuffix(' ')
        yield _Document(text, [word.span() for word in _WORD.finditer(text)], places)


def _cut(document: _Document, tokenizer, max_length: int) -> Iterator[tuple[int, int, int]]:
    """Yield the segments of a document: their first word, that of B, and the one after the last."""
    words = [document.text[start:end] for start, end in document.words]
    followed = itertools.zip_longest(words, words[1:], fillvalue='')
    # The numbers of the words before which a sentence ends.
    ends = [
        number
        for number, (word, after) in enumerate(followed, start=1)
        if _ENDS_SENTENCE.fullmatch(word) and not after[:1].islower()
    ]
    before = np.concatenate([[0], np.cumsum(_tokens(document, tokenizer))])
    room = max_length - tokenizer.num_special_tokens_to_add(pair=True)
    start, count = 0, len(document.words)
    while start < count:
        fitting = int(np.searchsorted(before, before[start] + room, side='right')) - 1
        segment = _divided(before, ends, start, fitting, count)
        while segment is not None:
            texts = [document.between(*part) for part in itertools.pairwise(segment)]
            # A word may have more tokens at the beginning of a text than it has within one.
            if len(tokenizer(*texts, truncation=False, verbose=False)['input_ids']) <= max_length:
                break
            fitting -= 1
            segment = _divided(before, ends, start, fitting, count)
        if segment is not None:
            yield segment
            start = segment[2]
        elif fitting == count:
            return
        else:
            # A word that is too long, such as an address, is left out with the one before it.
            start = fitting + 1


def _divided(
    before: Int[np.ndarray, ' W1'], ends: Sequence[int], start: int, fitting: int, count: int
) -> tuple[int, int, int] | None:
    """Return the segment from a word on whose words fit up to another; None if there is none."""
    inside = ends[bisect.bisect_right(ends, start) : bisect.bisect_right(ends, fitting)]
    last = inside[-1] if len(inside) > 1 else fitting
    places = [end for end in inside if end < last]
    if not places:
        if fitting == count or last < start + 2:
            return None
        places = range(start + 1, last)
    middle = (before[start] + before[last]) / 2
    return start, min(places, key=lambda place: abs(before[place] - middle)), last


def _tokens(document: _Document, tokenizer) -> Int[np.ndarray, ' W']:
    encoded = tokenizer(
        document.text,
        add_special_tokens=False,
        truncation=False,
        return_offsets_mapping=True,
        verbose=False,
    )
    # By their last characters: the first one may be the space before the word.
    lasts = np.array([end for _, end in encoded['offset_mapping']], int) - 1
    starts = [start for start, _ in document.words]
    word = np.searchsorted(starts, lasts, side='right') - 1
    return np.bincount(np.maximum(word, 0), minlength=len(starts))
