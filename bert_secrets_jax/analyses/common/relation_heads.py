"""Heads that find links between words: chosen on one part of texts, measured on another.

Axes: R relations, L layers, N heads, 2 ways along a link.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import cast

import numpy as np
from absl import logging
from jaxtyping import Float, Int

from bert_secrets_jax.analyses.common.inputs import TextSettings, encoded_of, in_both, with_progress
from bert_secrets_jax.data.annotation import Annotation
from bert_secrets_jax.data.encoding import Encoded, bucket
from bert_secrets_jax.data.tasks import Example, as_examples
from bert_secrets_jax.data.treebank import Parse, encode_parses
from bert_secrets_jax.measure.stream import stream
from bert_secrets_jax.measure.word_links import (
    ALL,
    WAYS,
    Found,
    WordLinks,
    best_offsets,
    finding,
    links_of_annotations,
    links_of_parses,
)
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs import store
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.student import interval, p_above, wilson

# Relations with fewer links in either part are not looked at alone: no interval would hold.
FEWEST = 20
# From which share of common texts on, two parts are not two.
_MOSTLY_SHARED = 0.5

Annotated = tuple[Sequence[Example], Sequence[Annotation]]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class RelationHeads:
    """How often the most attended word of a head is the one that a word is linked to.

    Attributes:
      relations: The R relations with enough links; the last one is 'all', of every link.
      train, dev: The links that each head finds in the part where heads are chosen, and in the
        other.
      offsets: [R] The best fixed offset of each relation, chosen on the first part.
    """

    relations: tuple[str, ...]
    train: Found
    dev: Found
    offsets: Int[np.ndarray, ' R']

    @property
    def places(self) -> tuple[np.ndarray, ...]:
        """The index in [R, L, N, 2] of the head and the way that find most links in training."""
        return chosen(self.train)

    @property
    def best(self) -> list[tuple[int, int, int]]:
        """The layer, the head and the way of the same, from 0."""
        return list(map(tuple, np.transpose(self.places[1:]).tolist()))

    @property
    def p_values(self) -> Float[np.ndarray, ' R']:
        """The one-sided p-value of the best head of each relation against the offset."""
        place = self.places
        with np.errstate(divide='ignore', invalid='ignore'):
            t = self.dev.gain[place] / self.dev.gain_error[place]
        return p_above(np.nan_to_num(t, posinf=np.inf), self.dev.sentences - 1)

    @property
    def corrected(self) -> Float[np.ndarray, ' R']:
        """The same, corrected for the number of relations (Holm); 'all' is not one of them."""
        *single, of_all = self.p_values
        return np.append(holm(np.array(single)), of_all)

    def gain_of(self, place: int) -> tuple[float, float, int]:
        """Return a relation's gain of the head over the offset, its error, and its texts."""
        index, dev = tuple(each[place] for each in self.places), self.dev
        return float(dev.gain[index]), float(dev.gain_error[index]), int(dev.sentences[place])

    @property
    def columns(self) -> dict[str, Sequence | np.ndarray]:
        """The columns [R] of a frame with the best head of each relation and the best offset."""
        dev, place = self.dev, self.places
        shares, freedom = shares_found(dev, place), np.maximum(dev.sentences - 1, 1)
        gains = interval(dev.gain[place], dev.gain_error[place], freedom)
        return {
            'relation': self.relations,
            'links': dev.links,
            'sentences': dev.sentences,
            'name': [head_name(layer, head) for layer, head, _ in self.best],
            'way': [WAYS[way] for *_, way in self.best],
            **dict(zip(('share_of_links', 'low', 'high'), shares, strict=True)),
            'offset': self.offsets,
            'share_at_offset': dev.baseline,
            **dict(zip(('gain', 'gain_low', 'gain_high'), gains, strict=True)),
            'p': self.p_values,
            'p_corrected': self.corrected,
        }


def chosen(found: Found) -> tuple[np.ndarray, ...]:
    """Return the index in [R, L, N, 2] of the head and the way that find most of each relation."""
    count, *shape = found.right.shape
    flat = np.nan_to_num(found.right, nan=-1).reshape(count, -1).argmax(axis=1)
    return (np.arange(count), *np.unravel_index(flat, shape))


def shares_found(found: Found, places: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the shares of links that heads find, as `chosen`, with 95 % intervals [3, R]."""
    share, error = found.right[places], found.error[places]
    return np.stack([share, *wilson(share, error, found.links, found.sentences)])


def search(
    pretrained: Pretrained,
    train: Sequence[Parse] | Annotated,
    dev: Sequence[Parse] | Annotated,
    settings: TextSettings,
) -> tuple[RelationHeads, list['Part'], list[str]]:
    """Choose heads and offsets on one part, and measure them on the other.

    Returns:
      heads: The links that each head finds.
      parts: Both parts, with the links of these relations.
      few: The relations that have too few links to be looked at alone.

    Raises:
      ValueError: There are no links, or no relation has links in both parts.
    """
    parts = [linked(pretrained, texts, settings) for texts in (train, dev)]
    counts = [dict(zip(each.links.names, each.links.counts, strict=True)) for each in parts]
    several = [name for name in counts[0] if min(each.get(name, 0) for each in counts) >= FEWEST]
    names = (*(name for name in several if name != ALL), ALL)
    few = sorted({*counts[0], *counts[1]} - set(names))
    parts = [dataclasses.replace(each, links=each.links.named(names)) for each in parts]
    offsets = best_offsets(parts[0].links)
    one, other = found_in(pretrained, parts, offsets, settings, 'Relations')
    return RelationHeads(names, one, other, offsets), parts, few


@dataclasses.dataclass(frozen=True)
class Part:
    """Texts, and the links between their words."""

    examples: Sequence[Example]
    annotations: Sequence[Annotation]
    encoded: Encoded
    links: WordLinks


def linked(
    pretrained: Pretrained, texts: Sequence[Parse] | Annotated, settings: TextSettings
) -> Part:
    """Return encoded texts with their links; ValueError for texts of another kind."""
    if isinstance(texts, tuple) and len(texts) == 2 and not isinstance(texts[0], Parse):
        examples, annotations = cast(Annotated, texts)
        settings = dataclasses.replace(settings, annotations=annotations)
        encoded = encoded_of(pretrained, examples, settings, annotated=True)
        links = links_of_annotations(encoded, annotations)
        return Part(as_examples(examples), list(annotations), encoded, links)
    parses = [each for each in texts if isinstance(each, Parse)]
    if not parses or len(parses) < len(texts):
        raise ValueError(
            'Sentences come from bs.read_treebank, annotated texts from bs.read_annotations.'
        )
    encoded = encode_parses(pretrained.tokenizer, parses, max_length=settings.max_length)
    names = sorted({name for each in parses for name in each.annotation.relations})
    # All have the same relations, empty where a text has none.
    annotations = [
        dataclasses.replace(
            each.annotation,
            relations={name: each.annotation.relations.get(name, ()) for name in names},
        )
        for each in parses
    ]
    links = links_of_parses(encoded, parses)
    return Part([each.example for each in parses], annotations, encoded, links)


def shared(train: Sequence[Example], dev: Sequence[Example]) -> float:
    """Return the share of the texts of one part that are in the other, too."""
    share = in_both(train, dev) / len(dev)
    if share > _MOSTLY_SHARED:
        logging.warning(
            '%.0f %% of the texts that heads are measured on are among those that they are chosen '
            'on: give others.',
            100 * share,
        )
    return share


def found_in(
    model: Pretrained, parts: Sequence[Part], offsets: np.ndarray, settings: TextSettings, what: str
) -> list[Found]:
    """Return the links that each head finds in both parts; passes are kept in a folder."""

    def compute(part: Part, called: str) -> Found:
        shown = with_progress(bucket(part.encoded, **settings.bucketing), f'{what}, {called}')
        statistics = {'found': finding(part.links, offsets)}
        return stream((model,), shown, statistics, mesh=settings.mesh)['found']

    found, config = [], repr(dataclasses.asdict(model.config))
    for part, called in zip(parts, ('train', 'dev'), strict=True):
        encoded = part.encoded
        texts = encoded.input_ids, encoded.token_type_ids, encoded.lengths, encoded.marks
        key = config, model.params, texts, part.links, offsets
        own = functools.partial(compute, part, called)
        found.append(store.kept(settings.folder, key, Found, own))
    return found
