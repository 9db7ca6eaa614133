"""Simulated texts with links, and heads whose preferences are known: for error rates and power."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_secrets_jax.data.annotation import fill_up
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.measure.choices import Choices, choices_of
from bert_secrets_jax.measure.links import NullTest, comparison_of
from bert_secrets_jax.measure.places import CLASSES as OF_CLASSES
from bert_secrets_jax.measure.places import KINDS, Places, draw_places

NOUN, VERB, PRONOUN, OTHER, MARK = CLASSES = range(5)


@dataclasses.dataclass(frozen=True)
class _Tokenizer:
    pad_token_id: int = 0
    cls_token_id: int = 1
    sep_token_id: int = 2


def texts_with_links(rng, examples: int, shortest: int, longest: int) -> tuple[Encoded, np.ndarray]:
    """Random parts of speech; a verb is linked with a noun or pronoun up to four words before it.

    One time in three it is the second one before it, so that position and class do not tell it.
    As in English, where the first verb has its subject near, links are more frequent early in a
    text. So texts of all lengths have about as many, and short texts more for their length.
    """
    lengths = rng.integers(shortest, longest + 1, examples).astype(np.int32)
    positions = np.arange(longest)
    inside = (positions > 0) & (positions < lengths[:, None] - 1)
    classes = rng.choice(CLASSES, (examples, longest), p=[0.3, 0.2, 0.15, 0.2, 0.15])
    rows = []
    for example in range(examples):
        found = []
        for verb in range(2, lengths[example] - 1):
            before = classes[example, max(1, verb - 4) : verb][::-1]
            chance = 0.9 * np.exp(-verb / 8)
            if classes[example, verb] != VERB or rng.random() > chance:
                continue
            near = np.flatnonzero(np.isin(before, (NOUN, PRONOUN)))
            if len(near):
                chosen = int(near[min(int(rng.random() < 1 / 3), len(near) - 1)])
                found.append((verb, verb - 1 - chosen, len(found)))
        rows.append(found)
    links = fill_up(rows)
    return _encoded(np.ones(classes.shape, np.int32), lengths, inside, classes, links), links


def texts_of_trees(parses: Sequence[Parse]) -> tuple[Encoded, np.ndarray]:
    """Sentences of a treebank, a wordpiece for each word; verbs are linked with their subjects."""
    lengths = np.array([len(parse.words) + 2 for parse in parses], np.int32)
    positions = np.arange(lengths.max())
    inside = (positions > 0) & (positions < lengths[:, None] - 1)
    names = ('NOUN', 'VERB', 'PRON', 'OTHER', 'PUNCT')
    others = sorted({name for parse in parses for name in parse.classes} - set(names))
    number = {name: index for index, name in enumerate((*names, *others))}
    forms = {form: index for index, form in enumerate({f: 0 for p in parses for f in p.forms})}
    classes, ids = np.zeros((2, *inside.shape), np.int32)
    classes[inside] = [number[name] for parse in parses for name in parse.classes]
    ids[inside] = [forms[form] for parse in parses for form in parse.forms]
    links = fill_up(
        [
            [
                (head + 1, word + 1, word)
                for word, (head, name) in enumerate(zip(parse.heads, parse.relations, strict=True))
                if name.startswith('nsubj') and parse.classes[head] == 'VERB'
            ]
            for parse in parses
        ]
    )
    return _encoded(ids, lengths, inside, classes, links), links


def _encoded(ids, lengths, inside, classes, links) -> Encoded:
    return Encoded(
        input_ids=ids,
        token_type_ids=np.zeros(inside.shape, np.int32),
        special=~inside,
        lengths=lengths,
        offsets=np.zeros((*inside.shape, 2), np.int32),
        text=np.where(inside, 0, -1).astype(np.int8),
        tokenizer=_Tokenizer(),
        marks={'verb-subject': links},
        classes=np.where(inside, classes, -1).astype(np.int8),
    )


def relative(rng, encoded: Encoded) -> np.ndarray:
    """A preference for some distances, up to four tokens away."""
    positions = np.arange(encoded.text.shape[1])
    distance = np.clip(positions[None] - positions[:, None], -4, 4)
    return rng.normal(0, 1.5, 9)[distance + 4][None]


def early(rng, encoded: Encoded) -> np.ndarray:
    """A mild preference for early tokens."""
    return -0.03 * np.arange(encoded.text.shape[1])[None, None]


def absolute(rng, encoded: Encoded) -> np.ndarray:
    """A preference for some positions, and a mild one for early tokens."""
    return early(rng, encoded) + rng.normal(0, 0.5, encoded.text.shape[1])


def word_class(rng, encoded: Encoded) -> np.ndarray:
    """A preference for some parts of speech, and for some pairs of them."""
    classes = encoded.classes
    count = classes.max() + 2
    of_key = rng.normal(0, 1.5, count)[classes][:, None]
    both = rng.normal(0, 1, (count, count))
    return of_key + both[classes[:, :, None], classes[:, None]]


def rare(rng, encoded: Encoded) -> np.ndarray:
    """A preference for rare words."""
    counts = np.bincount(encoded.input_ids.ravel())[encoded.input_ids]
    return -0.5 * np.log(counts)[:, None]


def punctuation(rng, encoded: Encoded) -> np.ndarray:
    """A preference for punctuation."""
    return 2.0 * (encoded.classes == MARK)[:, None]


def last_verb(rng, encoded: Encoded) -> np.ndarray:
    """A preference for the last verb."""
    verb = encoded.classes == VERB
    return 2.0 * (verb & (verb[:, ::-1].cumsum(axis=1)[:, ::-1] == 1))[:, None]


def nearest_noun(rng, encoded: Encoded) -> np.ndarray:
    """A preference for the nearest noun or pronoun to the left."""
    noun = np.isin(encoded.classes, (NOUN, PRONOUN))
    before = noun.cumsum(axis=1)
    # As many nouns up to the key as before the query, and the key is one.
    nearest = noun[:, None] & (before[:, None] == (before - noun)[:, :, None])
    return 2.5 * np.tril(nearest, k=-1)


def unbroken(rng, encoded: Encoded) -> np.ndarray:
    """A preference for the nearest noun or pronoun to the left, without punctuation between."""
    marks = (encoded.classes == MARK).cumsum(axis=1)
    return nearest_noun(rng, encoded) * (marks[:, None] == marks[:, :, None])


def either(rng, encoded: Encoded) -> np.ndarray:
    """A mixture: a part of the attention goes one word back, the other to nearest nouns."""
    length = encoded.text.shape[1]
    back = 3.0 * np.eye(length, k=-1)[None]
    return np.log(0.5 * np.exp(back) + 0.5 * np.exp(nearest_noun(rng, encoded)))


def head(rng, encoded: Encoded, *preferences, links=None, strength: float = 0) -> np.ndarray:
    """Return the maps [E, T, T] of a head with preferences, noise, and a liking for links."""
    examples, longest = encoded.text.shape
    logits = rng.normal(0, 1, (examples, longest, longest))
    # The texts differ in how much there is to see.
    logits *= rng.lognormal(0, 0.3, (examples, 1, 1))
    for preference in preferences:
        logits = logits + preference(rng, encoded)
    if links is not None:
        for logit, row in zip(logits, links, strict=True):
            query, key, _ = row[row[:, 2] >= 0].T
            logit[query, key] += strength
    real = np.arange(longest) < encoded.lengths[:, None]
    logits = np.where(real[:, None], logits, -np.inf)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def offset_and_links(encoded: Encoded, links: np.ndarray) -> np.ndarray:
    """Return the maps [E, 2, T, T] of a head that looks one token back, and of one of the links."""
    examples, length = encoded.text.shape
    maps = np.zeros((examples, 2, length, length), np.float32)
    maps[:, 0] = np.eye(length, k=-1)
    example, row = np.nonzero(links[..., 2] >= 0)
    maps[example, 1, links[example, row, 0], links[example, row, 1]] = 1
    return maps


def places_of(
    encoded: Encoded, links: np.ndarray, *, draws: int, seed: int
) -> dict[str, Places | Choices]:
    """Return the places of all kinds, and the words to choose from."""
    return {
        kind: choices_of(links, encoded, reverse=False)
        if kind == OF_CLASSES
        else draw_places(links, encoded, kind=kind, draws=draws, seed=seed)
        for kind in KINDS
    }


def compared(places: Places | Choices, maps: np.ndarray, seed: int) -> NullTest:
    """Compare links with places, given maps [E, N, T, T] in place of a model."""
    examples, heads = maps.shape[:2]
    example, row = np.nonzero(places.pairs[..., 2] >= 0)
    query, key, number = places.pairs[example, row].T
    values = np.zeros((examples, places.pairs.shape[1], heads), np.float32)
    np.maximum.at(values, (example, number), maps[example, :, query, key])
    comparison = comparison_of(places)
    # In two parts, as two batches.
    for part in (np.arange(examples // 2), np.arange(examples // 2, examples)):
        rows, numbers = places.of(part)
        host = part[rows]
        comparison.add(numbers, values[host, numbers - places.first[host]])
    return comparison.result((1, heads), seed)
