"""Which word each word attends to most, and how often that is the word it is linked to.

A head finds the links of a relation if, from one end of a link, the most attended other word is the
other end (Clark et al. 2019, section 4.2). Special tokens are no words.

Shapes: L layers, N heads, T positions, as many as words at most, W = 2 ways along a link, R
relations, X links, A words at the end of a link, C sentences with links of a relation.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import WORD, Encoded
from bert_secrets_jax.data.treebank import LEFT_OUT, Parse
from bert_secrets_jax.measure.links import OFFSETS
from bert_secrets_jax.measure.nulls import indicator
from bert_secrets_jax.measure.statistics import Maps, Marks, Result, Statistic
from bert_secrets_jax.measure.stream import Reduction
from bert_secrets_jax.measure.words import word_maps

ALL = 'all'  # the links of all relations together
# From a word to the one it attends to most, and from it to the one that attends to it most.
WAYS = ('from the word', 'to the word')


@dataclasses.dataclass(frozen=True)
class WordLinks:
    """Links between words of texts. Words, relations and texts count from 0."""

    names: tuple[str, ...]  # of the relations; the last one, 'all', has every link once more
    relation: Int[np.ndarray, ' X']
    example: Int[np.ndarray, ' X']
    source: Int[np.ndarray, ' X']  # the word that the link goes from, such as a dependent
    target: Int[np.ndarray, 'X A']  # those that it may go to, such as the head; -1 fills up
    left_out: int = 0  # links without wordpieces of their own at either end
    beyond: int = 0  # so many numbers of words a text has more than tokens, where words share some

    @property
    def counts(self) -> Int[np.ndarray, ' R']:
        return np.bincount(self.relation, minlength=len(self.names))

    def at_offset(self, offset: int | Int[np.ndarray, ' X']) -> np.ndarray:
        """Return whether each link [X] goes from its source to the word at its offset."""
        return (self.target == (self.source + offset)[:, None]).any(axis=1)

    def named(self, names: Sequence[str]) -> 'WordLinks':
        """Return the links of some relations, under their numbers in another list of names."""
        number = {name: place for place, name in enumerate(names)}
        numbers = np.array([number.get(name, -1) for name in self.names], int)[self.relation]
        kept = numbers >= 0
        arrays = {name: getattr(self, name)[kept] for name in ('example', 'source', 'target')}
        return dataclasses.replace(self, names=tuple(names), relation=numbers[kept], **arrays)


def links_of_parses(encoded: Encoded, parses: Sequence[Parse]) -> WordLinks:
    """Return a link from each word to its head, without roots and punctuation (`encode_parses`)."""
    links = [
        (relation, row, word, (head,))
        for row, parse in enumerate(parses)
        for word, (head, relation) in enumerate(zip(parse.heads, parse.relations, strict=True))
        if head >= 0 and relation not in LEFT_OUT
    ]
    return _collected(encoded, links)


def links_of_annotations(encoded: Encoded, annotations: Sequence[Annotation]) -> WordLinks:
    """Return the links of annotations in texts that have them as marks (`bs.mark`).

    The last word of a link's source is its source, and any word of its target is right: mark single
    words, such as the heads of mentions.
    """
    links = []
    words = encoded.marks[WORD]
    for name in annotations[0].relations if annotations else ():
        for row, rows in enumerate(encoded.marks[name]):
            for number in np.unique(rows[rows[:, 2] >= 0, 2]):
                pairs = rows[rows[:, 2] == number]
                source = words[row, pairs[:, 0].max()]
                targets = {int(word) for word in words[row, pairs[:, 1]]} - {int(source)}
                if targets:
                    links.append((name, row, int(source), tuple(sorted(targets))))
    return _collected(encoded, links)


def _collected(
    encoded: Encoded, links: Sequence[tuple[str, int, int, tuple[int, ...]]]
) -> WordLinks:
    written = [set(row.tolist()) for row in encoded.marks[WORD]]
    kept = []
    for relation, row, source, targets in links:
        here = tuple(word for word in targets if word in written[row])
        if here and source in written[row]:
            kept.append((relation, row, source, here))
    if not kept:
        raise ValueError('The texts have no link between two words: is there a relation in them?')
    relations, rows, sources, targets = zip(*kept, strict=True)
    names, numbers = np.unique(relations, return_inverse=True)
    if ALL in relations:
        raise ValueError(f'No relation can be called {ALL!r}, which stands for all of them.')
    # As columns, which are filled up.
    target = np.array([*itertools.zip_longest(*targets, fillvalue=-1)]).T
    return WordLinks(
        names=(*names.tolist(), ALL),
        relation=np.concatenate([numbers, np.full(len(kept), len(names))]),
        example=np.tile(rows, 2),
        source=np.tile(sources, 2),
        target=np.tile(target, (2, 1)),
        left_out=len(links) - len(kept),
        beyond=max(int((encoded.marks[WORD].max(axis=1) + 1 - encoded.lengths).max()), 0),
    )


def most_attended(attentions: Maps, marks: Marks, beyond: int = 0) -> Result:
    """Return for each word the number of the other word that it attends to most, and the reverse.

    The numbers [L, N, 2, T + beyond] mean nothing for numbers that no word has, and in texts of one
    word.
    """
    words = marks[WORD]
    length = len(words) + beyond
    # Special tokens may have numbers, too.
    inside = jnp.where(marks['cls'] | marks['sep'], -1, words)
    maps = word_maps(attentions, inside, count=length)
    numbers = jnp.arange(length)
    written = (inside[:, None] == numbers[None, :]).any(axis=0)
    possible = written[None, :] & (numbers[:, None] != numbers[None, :])
    both = jnp.stack([maps, jnp.swapaxes(maps, -1, -2)], axis=2)
    greatest = jnp.where(possible[None, None, None], both, -1).argmax(axis=-1)
    return greatest.astype(jnp.float32), jnp.float32(1)


@dataclasses.dataclass(frozen=True)
class Found:
    """How often each head finds the links of each relation; errors are standard ones over texts."""

    links: Int[np.ndarray, ' R']
    sentences: Int[np.ndarray, ' R']  # texts with such links
    right: Float[np.ndarray, 'R L N 2']  # the share of links that a head finds, either way
    error: Float[np.ndarray, 'R L N 2']
    baseline: Float[np.ndarray, ' R']  # the share that goes to the word at the relation's offset
    baseline_error: Float[np.ndarray, ' R']
    gain: Float[np.ndarray, 'R L N 2']  # the difference of `right` and `baseline`
    gain_error: Float[np.ndarray, 'R L N 2']


def best_offsets(links: WordLinks) -> Int[np.ndarray, ' R']:
    """Return the offset, from -5 to 5, at which most links of each relation (of training) go."""
    right = [
        np.bincount(links.relation, links.at_offset(offset), minlength=len(links.names))
        for offset in OFFSETS
    ]
    return np.array(OFFSETS)[np.argmax(right, axis=0)]


def finding(links: WordLinks, offsets: Int[np.ndarray, ' R']) -> Reduction:
    """Return what a pass makes of the most attended words: a `Found` for the links of its texts."""
    return Reduction(_most_attended(links.beyond), functools.partial(_Counter, links, offsets))


@functools.lru_cache
def _most_attended(beyond: int) -> Statistic:
    """Return the same function for the same number: jit knows it by its identity."""
    return functools.partial(most_attended, beyond=beyond)


class _Counter:
    """Adds up, text by text, how many links are found. Memory grows with relations alone."""

    def __init__(self, links: WordLinks, offsets: np.ndarray):
        self._links = links
        self._right_at_offset = links.at_offset(offsets[links.relation])
        self._sums: Any = 0, 0

    def add(self, examples: np.ndarray, values: Float[np.ndarray, 'B L N 2 T']) -> None:
        links, self._shape = self._links, values.shape[1:4]
        chosen = np.flatnonzero(np.isin(links.example, examples))
        order = np.argsort(examples)
        row = order[np.searchsorted(examples, links.example[chosen], sorter=order)]
        guessed = values[row, ..., links.source[chosen]].reshape(len(chosen), -1)
        right = (guessed[:, :, None] == links.target[chosen][:, None, :]).any(axis=2) * 1.0
        at_offset = self._right_at_offset[chosen][:, None] * 1.0
        # A cluster is what one text has of one relation.
        kinds = np.stack([links.relation[chosen], row])
        (relation, _), cluster = np.unique(kinds, axis=1, return_inverse=True)
        member = indicator(cluster.ravel(), len(relation))
        sizes = member.sum(axis=1)[:, None]
        found = member @ np.concatenate([right, at_offset, right - at_offset], axis=1)
        here = np.stack([sizes**0, sizes, sizes**2]), np.stack([found, found**2, found * sizes])
        self._sums = tuple(
            before + np.stack([indicator(relation, len(links.names)) @ each for each in of_cluster])
            for before, of_cluster in zip(self._sums, here, strict=True)
        )

    def result(self) -> Found:
        """Return means over links, and their linearised standard errors over texts."""
        if not np.any(self._sums[0]):
            raise ValueError('No text of this pass has a link.')
        (texts, links, links_squared), (total, squared, times) = self._sums
        some = np.where(links > 0, links, np.nan)
        mean = total / some
        scatter = squared - 2 * mean * times + mean**2 * links_squared
        # One text says nothing of the scatter over texts.
        few = np.where(texts > 1, texts / np.maximum(texts - 1, 1), np.nan)
        both = np.stack([mean, np.sqrt(np.maximum(scatter, 0) * few) / some])
        width = int(np.prod(self._shape))
        right, offset, gain = np.split(both, [width, width + 1], axis=2)
        right, gain = (each.reshape(*both.shape[:2], *self._shape) for each in (right, gain))
        counts = (each[:, 0].astype(int) for each in (links, texts))
        return Found(*counts, *right, *offset[..., 0], *gain)
