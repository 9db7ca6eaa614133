"""Simulated texts with links, and heads whose preferences are known: for error rates and power."""

import dataclasses

import numpy as np

from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.measure.links import NullTest, _Comparison
from bert_secrets_jax.measure.places import KINDS, Places, draw_places

NOUN, VERB, PRONOUN, OTHER, MARK = CLASSES = range(5)


@dataclasses.dataclass(frozen=True)
class _Tokenizer:
    pad_token_id: int = 0
    cls_token_id: int = 1
    sep_token_id: int = 2


def texts_with_links(rng, examples: int, shortest: int, longest: int) -> tuple[Encoded, np.ndarray]:
    """Random parts of speech; a verb is linked with a noun or pronoun up to four words before it.

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
                found.append((verb, verb - 1 - near[0], len(found)))
        rows.append(found)
    links = np.tile(np.array([0, 0, -1], np.int32), (examples, max(map(len, rows)), 1))
    for row, found in zip(links, rows, strict=True):
        row[: len(found)] = np.reshape(found, (-1, 3))
    shape = (examples, longest)
    encoded = Encoded(
        input_ids=np.ones(shape, np.int32),
        token_type_ids=np.zeros(shape, np.int32),
        special=~inside,
        lengths=lengths,
        offsets=np.zeros((*shape, 2), np.int32),
        text=np.where(inside, 0, -1).astype(np.int8),
        tokenizer=_Tokenizer(),
        marks={'verb-subject': links},
        classes=np.where(inside, classes, -1).astype(np.int8),
    )
    return encoded, links


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
    of_key = rng.normal(0, 1.5, len(CLASSES) + 1)[classes][:, None]
    both = rng.normal(0, 1, (len(CLASSES) + 1, len(CLASSES) + 1))
    return of_key + both[classes[:, :, None], classes[:, None]]


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


def places_of(encoded: Encoded, links: np.ndarray, *, draws: int, seed: int) -> dict[str, Places]:
    """Return the places of all kinds."""
    return {kind: draw_places(links, encoded, kind=kind, draws=draws, seed=seed) for kind in KINDS}


def compared(places: Places, maps: np.ndarray, seed: int) -> NullTest:
    """Compare links with places, given maps [E, N, T, T] in place of a model."""
    examples, heads = maps.shape[:2]
    example, row = np.nonzero(places.pairs[..., 2] >= 0)
    query, key, number = places.pairs[example, row].T
    values = np.zeros((examples, places.pairs.shape[1], heads), np.float32)
    np.maximum.at(values, (example, number), maps[example, :, query, key])
    comparison = _Comparison(places, seed)
    # In two parts, as two batches.
    for part in (np.arange(examples // 2), np.arange(examples // 2, examples)):
        rows, numbers = comparison.numbers(part)
        comparison.add(part, values[part[rows], numbers][:, None])
    return comparison.result()
