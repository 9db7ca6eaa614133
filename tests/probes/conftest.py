"""Sentences of random words with random trees, and models whose maps are what a test wants."""

import numpy as np
import pytest

from bert_secrets_jax.data.annotation import Span
from bert_secrets_jax.data.tasks import Example
from bert_secrets_jax.data.treebank import Parse
from bert_secrets_jax.probes.vectors import Vectors
from tests.conftest import WORDS

LETTERS = tuple(word for word in WORDS if word.isalpha())


def parse_of(forms, heads, classes=None) -> Parse:
    """Return a sentence of words with spaces between them; heads count from 0, -1 is ROOT."""
    ends = np.cumsum([len(form) + 1 for form in forms]) - 1
    return Parse(
        example=Example(' '.join(forms), id='own'),
        words=tuple(
            Span(int(end) - len(form), int(end)) for form, end in zip(forms, ends, strict=True)
        ),
        forms=tuple(forms),
        heads=tuple(int(head) for head in heads),
        relations=tuple('root' if head < 0 else 'dep' for head in heads),
        classes=tuple(classes or ['NOUN'] * len(forms)),
    )


def random_parses(seed: int, count: int, *, longest: int = 12) -> list[Parse]:
    """Return sentences of random words in which any other word, or ROOT, is the head."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        length = int(rng.integers(2, longest))
        heads = rng.integers(-1, length - 1, length)
        # No word governs itself.
        heads = np.where(heads >= np.arange(length), heads + 1, heads)
        classes = rng.choice(['NOUN', 'VERB', 'PUNCT'], length, p=[0.5, 0.3, 0.2]).tolist()
        found.append(parse_of(rng.choice(LETTERS, length).tolist(), heads, classes))
    return found


@pytest.fixture(scope='package')
def vectors():
    """A vector of six numbers for most of the words."""
    known = sorted(set(LETTERS))[:-3]
    table = np.random.default_rng(5).normal(size=(len(known) + 1, 6)).astype(np.float32)
    table[0] = 0
    return Vectors(tuple(known), table)
