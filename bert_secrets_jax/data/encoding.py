"""Turn texts into padded batches of few shapes, so that little is compiled and little is padding.

Shapes: B rows of a batch, E examples, T positions, P pairs of wordpieces.
"""

import collections
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from jaxtyping import Int, Shaped

from bert_secrets_jax.checks import brief, check_different, check_enough, check_lengths, tree
from bert_secrets_jax.data.annotation import (
    Annotation,
    align,
    align_classes,
    check_annotations,
    words_of_pieces,
)
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.model.attention import check_padding

# Far more than a wordpiece has, so that a beginning of as many has more tokens than are kept.
_CHARACTERS_PER_TOKEN = 100
# A beginning of more, with fewer tokens than are kept, is no text but one endless word.
_MOST_CHARACTERS = 2**19
_HALF = re.compile('[\ud800-\udfff]')
# The share of [UNK] from which on it is told, and from which on texts are refused.
_SOME_UNKNOWN = 0.01
_MOST_UNKNOWN = 0.5
# Characters of an unknown word that are shown, and how many different ones are counted at most.
_SHOWN = 20
_MOST_WRITTEN = 2**14
WORD = 'word'  # the mark that says to which word each wordpiece belongs
# A full stop and a comma, also the Chinese ones, as tokenizers spell them: a part of the
# word before or not (WordPiece), with or without the space before them (others).
_STOPS = tuple(f'{before}{stop}' for before in ('', '##', 'Ġ', '▁') for stop in '.,。、，')
# Lengths for texts whose own are not known before they come.
BUCKETS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
_LENGTH_STEP = 4  # lengths are multiples of this, which vectors of all devices take well
# The programs of one more length take as long to compile as one pass over so many tokens takes to
# run (measured with all statistics on two cores). A length never saves less than this share of all.
_TOKENS_OF_A_LENGTH = 8192
_SHARE_OF_A_LENGTH = 1 / 64


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Batch:
    """Encoded examples of one padded length, as NumPy arrays.

    Attributes:
      input_ids: [B, T] int32 The wordpieces, [CLS] A [SEP] or [CLS] A [SEP] B [SEP], and then
        [PAD]. The tokenizer decides what stands for these: RoBERTa has <s> A </s> </s> B </s>.
      token_type_ids: [B, T] int32 0 up to the first [SEP] and 1 after it; always 0 if the tokenizer
        has no token types.
      attention_mask: [B, T] int32 1 on real tokens, 0 on padding.
      marks: Arrays by name. 'token' (all real tokens), 'cls', 'sep' and 'period_comma' (wordpieces
        that are a full stop or a comma) are always there, [B, T] bool. 'word', [B, T] int32, is the
        number of the word that each wordpiece belongs to, -1 where there is none. Annotations add
        features [B, T] bool and relations [B, P, 3] int32, and under 'notebook' a dictionary of the
        same features and relations in the notebook's reading: see `annotation.align`.
      example: [B] int32 The number of the example in each row; -1 in a filler row.
    """

    input_ids: Any
    token_type_ids: Any
    attention_mask: Any
    marks: dict[str, Any]
    example: Any

    __repr__ = brief
    _repr_html_ = tree

    @property
    def inputs(self) -> dict[str, Any]:
        """The model's arguments by name."""
        names = ('input_ids', 'token_type_ids', 'attention_mask')
        return {name: getattr(self, name) for name in names}

    @property
    def lengths(self):
        """[B] The number of real tokens."""
        return self.attention_mask.sum(axis=-1)

    @property
    def size(self) -> int:
        """The number of examples, without filler rows."""
        return int((np.asarray(self.example) >= 0).sum())


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LabelledBatch(Batch):
    """A batch with the labels of its examples.

    Attributes:
      labels: [B, ...] The class ids, or the values of a regression; anything in a filler row.
    """

    labels: Any

    __repr__ = brief


def with_labels(batch: Batch, labels: Shaped[np.ndarray, 'E *more']) -> LabelledBatch:
    """Return a batch with the labels of its examples, from those [E, ...] of all examples."""
    return LabelledBatch(**vars(batch), labels=np.asarray(labels)[np.asarray(batch.example)])


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Tokenised examples, from which batches of any size and padded length are cut.

    Attributes:
      input_ids, token_type_ids: [E, T] int32 As in `Batch`, padded to the longest example.
      special: [E, T] bool The [CLS] and [SEP] that the tokenizer added, not those of a text.
      lengths: [E] The number of tokens of each example.
      offsets: [E, T, 2] int32 The first character of each wordpiece in its text, and the one after
        its last, without spaces around it; 0 on special tokens and padding.
      text: [E, T] int8 0 in the first text, 1 in the second, -1 on special tokens and padding.
      tokenizer: The tokenizer that made them.
      marks: 'word', what `mark` added, and the places [E, P, 3] of `links.with_random_links`.
      classes: [E, T] int8 The number of the part of speech of each wordpiece, -1 on those without;
        None if the annotations have none.
      cut: [E] bool Whether an example was longer, and is cut; None if that is not known.
      numbers: [E] The number of each example among all texts of a stream; None if they count on
        from 0.
    """

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    special: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray
    text: np.ndarray
    tokenizer: Any = dataclasses.field(repr=False)
    marks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    classes: np.ndarray | None = None
    cut: Any = None
    numbers: Any = None

    __repr__ = brief

    def take(self, examples: np.ndarray) -> 'Encoded':
        """Return some of the examples [F], in this order; each may come several times."""
        arrays = {name: each for name, each in vars(self).items() if name != 'tokenizer'}
        return dataclasses.replace(self, **jax.tree.map(lambda array: array[examples], arrays))

    def after(self, others: 'Encoded | None') -> 'Encoded':
        """Return these examples of a stream, without annotations, behind others if there are any.

        It is not known of the result what was cut.
        """
        if others is None:
            return self
        length = max(each.input_ids.shape[1] for each in (others, self))

        def joined(first: np.ndarray, second: np.ndarray, fill: int = 0) -> np.ndarray:
            return np.concatenate([_fit(each, length, fill) for each in (first, second)])

        names = ('input_ids', 'token_type_ids', 'special', 'offsets')
        return Encoded(
            **{name: joined(getattr(others, name), getattr(self, name)) for name in names},
            lengths=np.append(others.lengths, self.lengths),
            text=joined(others.text, self.text, fill=-1),
            tokenizer=self.tokenizer,
            marks={WORD: joined(others.marks[WORD], self.marks[WORD], fill=-1)},
            numbers=np.append(others.numbers, self.numbers),
        )

    def batch(self, examples: np.ndarray, length: int) -> Batch:
        """Return a batch of the examples [B], padded to a length; -1 makes an empty row."""
        examples = np.asarray(examples, np.int32)
        numbers = examples if self.numbers is None else self.numbers[examples]

        def cut(array):
            return _fit(array[examples], length)

        real = (np.arange(length) < self.lengths[examples, None]) & (examples >= 0)[:, None]
        input_ids = np.where(real, cut(self.input_ids), self.tokenizer.pad_token_id)
        special = cut(self.special) & real

        def take(mark):
            if mark.ndim == 2:
                # Features, or numbers of words.
                return np.where(real, cut(mark), mark.dtype.type(0 if mark.dtype == bool else -1))
            # Links, which an empty row has none of.
            filler = (examples < 0).reshape(-1, *[1] * (mark.ndim - 1))
            return np.where(filler, np.array([0, 0, -1], np.int32), mark[examples])

        return Batch(
            input_ids=input_ids.astype(np.int32),
            token_type_ids=np.where(real, cut(self.token_type_ids), 0).astype(np.int32),
            attention_mask=real.astype(np.int32),
            marks=jax.tree.map(take, dict(self.marks))
            | {
                'token': real,
                'cls': special & (input_ids == self.tokenizer.cls_token_id),
                'sep': special & (input_ids == self.tokenizer.sep_token_id),
                'period_comma': real & ~special & np.isin(input_ids, _stops(self.tokenizer)),
            },
            example=np.where(examples < 0, -1, numbers).astype(np.int32),
        )

    def in_rows(self, members: np.ndarray, rows: int, length: int) -> Iterator[Batch]:
        """Yield batches of as many rows, of some examples [F]; empty ones fill up the last."""
        filled = np.pad(members, (0, -len(members) % rows), constant_values=-1)
        for part in filled.reshape(-1, rows):
            yield self.batch(part, length)


@dataclasses.dataclass(frozen=True)
class Paired:
    """Tokenised pairs [E] of texts that are read apart, from which batches are cut likewise."""

    one: Encoded
    other: Encoded

    @property
    def lengths(self) -> np.ndarray:
        """[E] The number of tokens of the longer text."""
        return np.maximum(self.one.lengths, self.other.lengths)

    def batch(self, examples: np.ndarray, length: int) -> Batch:
        """Return a batch of 2 B rows, the first texts of the pairs [B] before the second ones."""
        sides = [each.batch(examples, length) for each in (self.one, self.other)]
        return jax.tree.map(lambda *arrays: np.concatenate(arrays), *sides)


def _stops(tokenizer) -> list[int]:
    """Return the ids of a full stop and a comma; none if the tokenizer has neither."""
    ids = tokenizer.convert_tokens_to_ids(list(_STOPS))
    return [each for each in ids if each not in (None, tokenizer.unk_token_id)]


def _fit(array: np.ndarray, length: int, fill: int = 0) -> np.ndarray:
    """Cut or pad the second axis."""
    array = array[:, :length]
    missing = [(0, 0)] * array.ndim
    missing[1] = (0, length - array.shape[1])
    return np.pad(array, missing, constant_values=fill)


def listed(batches: Iterable[Batch]) -> Iterable[Batch]:
    """Yield batches as they are; ValueError for one that is padded on the left, when it comes."""
    for batch in batches:
        check_padding(batch.attention_mask)
        yield batch


def check_tokenizer(tokenizer, max_length: int | None, *, pair: bool = True) -> None:
    """Refuse what is no tokenizer, lacks [CLS], [SEP] or [PAD], or has no room for texts."""
    if tokenizer is None:
        raise ValueError(
            'The model came without a tokenizer, and takes ids and no texts: copy the tokenizer '
            'files of the model it was fine-tuned from into its folder, or give '
            'bs.from_pretrained(..., tokenizer=...).'
        )
    if not hasattr(tokenizer, 'num_special_tokens_to_add'):
        raise TypeError(
            f'{type(tokenizer).__name__} is no tokenizer: what `from_pretrained` returns has one, '
            '.tokenizer.'
        )
    check_tokens(tokenizer, 'cls_token', 'sep_token', 'pad_token')
    least = tokenizer.num_special_tokens_to_add(pair=pair) + 1 + pair
    if max_length is not None and max_length < least:
        parts = '[CLS] A [SEP]' + ' B [SEP]' * pair
        raise ValueError(f'{max_length=} has no room for {parts}: give at least {least}.')


def check_tokens(tokenizer, *names: str) -> None:
    """Raise ValueError for a tokenizer that lacks special tokens."""
    for name in names:
        if getattr(tokenizer, name) is None:
            raise ValueError(f'The tokenizer has no {name}: name it in tokenizer_config.json.')


def tokens_read(tokenizer) -> int:
    """Return how many tokens the model reads, as `from_pretrained` notes it; else 16,384."""
    return getattr(tokenizer, 'reads', 2**14)


def tokenize(tokenizer, texts: Sequence[Text], *, max_length: int | None = None) -> Encoded:
    """Tokenise texts, which are cut to `max_length` tokens, as `encode` does.

    Raises:
      TypeError: The texts or the tokenizer are something else.
      ValueError: There are no texts, single sentences are mixed with pairs, or a text has more
        tokens than the model reads.
    """
    losses = Losses(tokenizer, max_length)
    encoded = tokenize_part(as_examples(texts), losses)
    losses.tell()
    return encoded


def tokenize_part(examples: Sequence[Example], losses: 'Losses') -> Encoded:
    """Tokenise a part of a corpus as `tokenize` does, and add what it loses to the losses."""
    tokenizer = losses.tokenizer
    check_enough('examples to encode', examples)
    singles = [example.id for example in examples if example.text_b is None]
    if 0 < len(singles) < len(examples):
        raise ValueError(
            f'{len(singles)} of {len(examples)} examples have one text and the others two '
            f'(the first such is {singles[0]}): encode them apart.'
        )
    check_tokenizer(tokenizer, losses.max_length, pair=not singles)
    # One more token shows that a text is longer.
    reads = tokens_read(tokenizer)
    max_length = losses.max_length or reads + 1

    for example in examples:
        half = _HALF.search(''.join(filter(None, example.texts)))
        if half is not None:
            raise ValueError(
                f'{example.place} has {half[0]!a}, half of a surrogate pair: '
                "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace') mends it."
            )
    texts = [
        [_beginning(tokenizer, example, name, max_length) for example in examples]
        for name in ('text_a', 'text_b')[: 1 if singles else 2]
    ]
    encoded = tokenizer(
        *texts,
        truncation='longest_first',
        max_length=max_length,
        return_attention_mask=False,
        return_special_tokens_mask=True,
    )
    encodings = encoded.encodings
    lengths = np.array([len(encoding) for encoding in encodings], np.int32)
    for row in np.flatnonzero(lengths > reads):
        raise ValueError(
            f'{examples[int(row)].place} has more than the {reads:,} tokens that the model reads: '
            f'give max_length={reads} to cut it there.'
        )
    cut = np.array([bool(encoding.overflowing) for encoding in encodings])
    real = np.arange(lengths.max()) < lengths[:, None]

    def stack(
        rows: Iterable[Iterable[Any]], dtype: type[np.integer] = np.int32, fill: int = 0
    ) -> np.ndarray:
        values = itertools.chain.from_iterable(rows)
        flat = np.array([fill if each is None else each for each in values], dtype)
        array = np.full(real.shape + flat.shape[1:], fill, dtype)
        array[real] = flat
        return array

    input_ids = stack(encoded['input_ids'])
    types = encoded.get('token_type_ids')
    # Not the token types: models without a second segment have tokenizers without them.
    of_text = stack((encoding.sequence_ids for encoding in encodings), np.int8, fill=-1)
    word = stack((encoding.word_ids for encoding in encodings), fill=-1)
    of_examples = zip(encodings, zip(*texts, strict=True), strict=True)
    found = Encoded(
        input_ids=input_ids,
        token_type_ids=np.zeros_like(input_ids) if types is None else stack(types),
        special=stack(encoded['special_tokens_mask']) == 1,
        lengths=lengths,
        offsets=stack(itertools.starmap(_places, of_examples)),
        text=of_text,
        tokenizer=tokenizer,
        marks={WORD: np.where(real, _words(of_text, word), -1)},
        cut=cut,
    )
    losses.add(examples, found)
    return found


def _places(encoding: Any, texts: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Yield the first character of each token in its text, and the one after its last.

    Spaces around it are left out.
    """
    for number, (start, end) in zip(encoding.sequence_ids, encoding.offsets, strict=True):
        text = '' if number is None else texts[int(number)]
        piece = text[start:end]
        start = end - len(piece.lstrip())
        yield start, start + len(piece.strip())


def _beginning(tokenizer, example: Example, name: str, max_length: int) -> str:
    """Return as much of a very long text as has more tokens than are kept: the rest takes long."""
    text = getattr(example, name)
    reach = _CHARACTERS_PER_TOKEN * max_length
    while reach < len(text):
        # Not within a word, which could have other wordpieces; a script without spaces is cut.
        end = max(text.rfind(' ', 0, reach), text.rfind('\n', 0, reach))
        start = text[: end if end > 0 else reach]
        tokens = tokenizer(start, add_special_tokens=False, truncation=False, verbose=False)
        if len(tokens['input_ids']) > max_length:
            return start
        if reach > _MOST_CHARACTERS:
            raise ValueError(
                f'{example.place}: the first {reach:,} characters of {name} have no {max_length} '
                'tokens: is this a text? Shorten it, or leave it out.'
            )
        reach *= 4
    return text


@dataclasses.dataclass
class Losses:
    """The losses of a corpus to a tokenizer, counted over its parts."""

    tokenizer: Any
    max_length: int | None
    examples: int = 0
    cut: int = 0  # to `max_length`
    # How many texts have nothing left, and where the first stands, by name and by what they have.
    lost: dict[tuple[str, str], tuple[int, str]] = dataclasses.field(default_factory=dict)
    wordpieces: int = 0  # without special tokens
    unknown: int = 0
    known_as_written: int = 0  # the unknown ones that are in the vocabulary as they are written
    written: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def add(self, examples: Sequence[Example], encoded: Encoded) -> None:
        """Count the losses of further examples."""
        self.examples += len(examples)
        self.cut += int(encoded.cut.sum())
        real = encoded.text >= 0
        # No token is None, as the unknown one may be.
        unknown = real & (encoded.input_ids == self.tokenizer.unk_token_id)
        self.wordpieces += int(real.sum())
        self.unknown += int(unknown.sum())
        for number, name in enumerate(('text_a', 'text_b')):
            if getattr(examples[0], name) is None:
                continue
            of_this = encoded.text == number
            empty = ~of_this.any(axis=1)
            lost = ~empty & ~(of_this & ~unknown).any(axis=1)
            for which, what in ((empty, 'no wordpiece'), (lost, 'no wordpiece but [UNK]')):
                for row in np.flatnonzero(which).tolist():
                    count, first = self.lost.get((name, what), (0, examples[row].place))
                    self.lost[name, what] = count + 1, first
        for row, column in zip(*np.nonzero(unknown), strict=True):
            start, end = encoded.offsets[row, column]
            word = examples[row].texts[encoded.text[row, column]][start:end]
            self.written[word[:_SHOWN]] += 1
            self.known_as_written += (
                self.tokenizer.convert_tokens_to_ids(word) != self.tokenizer.unk_token_id
            )
        if len(self.written) > _MOST_WRITTEN:
            self.written = collections.Counter(dict(self.written.most_common(_MOST_WRITTEN // 2)))

    def check(self, *, last: bool = False) -> None:
        """Refuse texts half of whose wordpieces or more are [UNK], unless somebody allowed it.

        With the last part, it is told if some are.
        """
        share = self.unknown / max(self.wordpieces, 1)
        if share < _SOME_UNKNOWN:
            return
        often = ', '.join(repr(word) for word, _ in self.written.most_common(3))
        about = (
            f'{100 * share:.0f} % of the wordpieces ({self.unknown:,} of {self.wordpieces:,}) are '
            f'{self.tokenizer.unk_token}, such as {often}.'
        )
        if self.known_as_written:
            about += (
                f' {self.known_as_written:,} of them are in the vocabulary as they are written, '
                'and become unknown because the tokenizer changes texts first, to lower case '
                'perhaps.'
            )
        if share >= _MOST_UNKNOWN and not self.tokenizer.init_kwargs.get('allow_unknown'):
            raise ValueError(
                f'{about} The tokenizer is not made for these texts: give another to '
                'bs.from_pretrained(tokenizer=...), or allow_unknown=True if this is meant.'
            )
        if last:
            logging.warning('%s Is the tokenizer made for these texts?', about)

    def tell(self) -> None:
        """Log what was lost, and refuse what `check` refuses."""
        if self.cut:
            counts = (self.cut, self.examples, self.max_length)
            logging.warning('%d of %d examples were cut to %d tokens.', *counts)
        for (name, what), (number, first) in self.lost.items():
            logging.warning(
                '%d of %d texts (%s) have %s, the first one in %s: is the tokenizer made for them?',
                number, self.examples, name, what, first,
            )  # fmt: skip
        self.check(last=True)


def knows_words(tokenizer: Any, texts: Sequence[str]) -> bool:
    """Return whether texts would be encoded: most of their wordpieces are not [UNK]."""
    encoded = tokenizer(list(texts), add_special_tokens=False)['input_ids']
    ids = list(itertools.chain.from_iterable(encoded))
    unknown = ids.count(tokenizer.unk_token_id)
    return bool(tokenizer.init_kwargs.get('allow_unknown')) or unknown < _MOST_UNKNOWN * len(ids)


def bytes_of_pieces(encoded: Encoded, examples: Sequence[Example]) -> float:
    """Return how many bytes of the first texts, in UTF-8, a wordpiece spells on average.

    Bytes, as a character of Chinese says more than a letter. Spaces and what was cut do not count,
    and the share of [UNK] is taken off.
    """
    pieces = encoded.input_ids[encoded.text == 0]
    ends = encoded.offsets.max(axis=(1, 2))
    kept = ''.join(each.text_a[:end] for each, end in zip(examples, ends, strict=True))
    spelt = len(''.join(kept.split()).encode(errors='replace'))
    return spelt / len(pieces) * float((pieces != encoded.tokenizer.unk_token_id).mean())


def _words(of_text: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Return the number [E, T] of the word of each token, from its text and its word there."""
    new = np.ones(word.shape, bool)
    new[:, 1:] = (word[:, 1:] < 0) | (np.diff(word) != 0) | (np.diff(of_text) != 0)
    return np.cumsum(new, axis=1, dtype=np.int32) - 1


def mark(encoded: Encoded, annotations: Sequence[Annotation]) -> Encoded:
    """Return the same examples with their annotations as marks, in place of others (`align`).

    Raises:
      ValueError: There are not as many annotations as examples, or their names differ.
    """
    marks, classes = align(annotations, encoded), align_classes(annotations, encoded)
    words = {name: found for name, found in encoded.marks.items() if name == WORD}
    if any(each.words for each in annotations):
        found, about = words_of_pieces([each.words for each in annotations], encoded)
        logging.info('%s', about)
        real = np.arange(found.shape[1]) < encoded.lengths[:, None]
        words = {WORD: np.where(real, _words(encoded.text, found), -1)}
    return dataclasses.replace(encoded, marks=marks | words, classes=classes)


def longest_padded(encoded: Encoded, max_length: int | None) -> int:
    """Return the greatest length that texts are padded to; None is what they and the model need."""
    if max_length is not None:
        return max_length
    rounded = -(-int(encoded.lengths.max()) // _LENGTH_STEP) * _LENGTH_STEP
    return min(rounded, tokens_read(encoded.tokenizer))


def padded_lengths(
    buckets: Sequence[int] | None,
    max_length: int,
    lengths: Int[np.ndarray, ' E'] | None = None,
    *,
    passes: float = 1.0,
) -> np.ndarray:
    """Return the lengths to which batches are padded, in ascending order, up to `max_length`.

    Without buckets they take the least time for as many passes over examples of these lengths: a
    further length must save more padding than its compilation costs.
    """
    if buckets is None:
        assert lengths is not None
        rounded = np.minimum(-(-lengths // _LENGTH_STEP) * _LENGTH_STEP, max_length)
        buckets = _fitted_lengths(rounded, passes)
    return np.array([*sorted(edge for edge in buckets if edge < max_length), max_length])


def _fitted_lengths(lengths: Int[np.ndarray, ' E'], passes: float) -> list[int]:
    """Return those of the lengths that take the least time, computing and compiling together."""
    edges, counts = np.unique(lengths, return_counts=True)
    # Costs of all examples up to each length, by the best choice of lengths (dynamic programming).
    until = np.concatenate([[0], np.cumsum(counts)])
    price = max(_TOKENS_OF_A_LENGTH / passes, _SHARE_OF_A_LENGTH * lengths.sum())
    costs, came_from = np.zeros(len(until)), np.zeros(len(until), int)
    for end in range(1, len(until)):
        ways = costs[:end] + (until[end] - until[:end]) * edges[end - 1] + price
        came_from[end] = ways.argmin()
        costs[end] = ways.min()
    chosen, end = [], len(edges)
    while end:
        chosen.append(int(edges[end - 1]))
        end = came_from[end]
    return chosen


def encode(
    tokenizer,
    texts: Sequence[Text],
    *,
    annotations: Sequence[Annotation] | None = None,
    labels: Sequence[Any] | np.ndarray | bool = False,
    max_length: int | None = None,
    tokens_per_batch: int = 2048,
    buckets: Sequence[int] | None = None,
    fewest: int = 32,
    batch_multiple: int = 1,
    passes: float = 1.0,
) -> list[Batch]:
    """Tokenise texts and group them into batches by length, the short ones first.

    All batches of one length have the same number of rows (the last one is filled up with empty
    rows), so a jitted function compiles once per length that occurs.

    Args:
      tokenizer: A fast tokenizer of `transformers`.
      texts: Strings, pairs of strings or `Example`s (`as_examples`), all single or all pairs.
      annotations: The annotations of the same texts in the same order; they become marks (`mark`).
      labels: The label of each text, in the same order, or True for those of the `Example`s. The
        batches are `LabelledBatch`es, as `bs.task_loss` takes them.
      max_length: The greatest number of tokens. Longer inputs are cut, the longer text first; a
        warning says how many were. None cuts nothing, and what the model cannot read is refused.
      tokens_per_batch: The greatest number of rows times padded length. On a CPU, small batches
        stay in its cache.
      buckets: The padded lengths, up to `max_length`. None chooses those that take the least time:
        each saves more padding than its compilation costs.
      fewest: The least number of examples for which one of the given lengths is compiled. Fewer
        are padded to the next length that occurs.
      batch_multiple: The number of rows is a multiple of this, such as the number of devices.
      passes: The number of passes that will be made over the batches, such as .4 for each mask of a
        sweep. Many passes are worth more lengths.

    Raises:
      TypeError: The texts or the tokenizer are something else.
      ValueError: There are no texts, single sentences are mixed with pairs, the annotations
        belong to other texts, or a text has no label or more tokens than the model reads.
    """
    examples = as_examples(texts)
    if labels is True:
        labels = [each.label for each in examples]
    if labels is not False:
        check_lengths(labels=labels, texts=examples)
        for label, example in zip(labels, examples, strict=True):
            if not np.issubdtype(np.asarray(label).dtype, np.number):
                raise ValueError(
                    f'{example.place} has the label {label!r}: labels are class ids, counted from '
                    '0, or values of a regression.'
                )
    encoded = tokenize(tokenizer, examples, max_length=max_length)
    if annotations is not None:
        encoded = mark(encoded, annotations)
        check_annotations(examples, annotations)
    batches = bucket(
        encoded,
        max_length=max_length,
        tokens_per_batch=tokens_per_batch,
        buckets=buckets,
        fewest=fewest,
        batch_multiple=batch_multiple,
        passes=passes,
    )
    if labels is False:
        return batches
    return [with_labels(batch, np.asarray(labels)) for batch in batches]


def bucket(
    encoded: Encoded,
    *,
    max_length: int | None = None,
    tokens_per_batch: int = 2048,
    buckets: Sequence[int] | None = None,
    fewest: int = 32,
    batch_multiple: int = 1,
    passes: float = 1.0,
) -> list[Batch]:
    """Group tokenised examples, cut to at most `max_length`, into batches as `encode` does."""
    most = longest_padded(encoded, max_length)
    edges = padded_lengths(buckets, most, encoded.lengths, passes=passes)
    padded = edges[np.searchsorted(edges, encoded.lengths)]
    if buckets is not None:
        for length, longer in itertools.pairwise(np.unique(padded)):
            if (padded == length).sum() < fewest:
                padded[padded == length] = longer
    batches = []
    for length in np.unique(padded).tolist():
        members = np.flatnonzero(padded == length)
        of_length = _trimmed(encoded, members)
        # As few batches as the limit allows, and all of one size: hardly a row is filler.
        most = max(tokens_per_batch // length // batch_multiple, 1) * batch_multiple
        rows = -(-len(members) // -(-len(members) // most))
        rows = -(-rows // batch_multiple) * batch_multiple
        batches += of_length.in_rows(members, rows, length)
    return batches


def _trimmed(encoded: Encoded, members: np.ndarray) -> Encoded:
    """Cut links [E, ..., P, 3] to the most that one of some examples has."""

    def trim(mark):
        if mark.ndim == 2:
            return mark
        used = (mark[members][..., 2] >= 0).reshape(-1, mark.shape[-2]).sum(axis=1).max()
        return mark[..., : max(int(used), 1), :]

    return dataclasses.replace(encoded, marks=jax.tree.map(trim, dict(encoded.marks)))


def in_order(
    examples: Sequence[np.ndarray], values: Sequence[np.ndarray], *, axis: int = 0
) -> np.ndarray:
    """Put the values that batches gave for each example, along an axis, into the examples' order.

    Filler rows (-1) are left out. An example that is missing before the last has NaN; one that
    occurs twice is a ValueError.
    """
    index = np.concatenate(examples)
    stacked = np.moveaxis(np.concatenate(values, axis=axis), axis, 0)
    real = index >= 0
    check_different('examples', index[real].tolist(), 'give the batches of one call of encode')
    result = np.full((index.max() + 1, *stacked.shape[1:]), np.nan, np.float32)
    result[index[real]] = stacked[real]
    return np.moveaxis(result, 0, axis)


def to_one_length(logits: Iterable[np.ndarray]) -> list[np.ndarray]:
    """Fill the logits [M, B, T, C] of tokens up with 0 to the longest batch; [M, B, C] stay."""
    found = list(logits)
    if found[0].ndim < 4:
        return found
    length = max(each.shape[2] for each in found)
    return [np.pad(each, ((0, 0), (0, 0), (0, length - each.shape[2]), (0, 0))) for each in found]
