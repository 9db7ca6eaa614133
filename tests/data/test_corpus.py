"""The embedded corpus is what its docstring says."""

import functools
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bert_secrets_jax.data.corpus import KINDS, LABELS, read_corpus, similarity_sample


@functools.cache
def words(text):
    return frozenset(re.findall(r"[\w'-]+", text.lower()))


def overlap(one, other):
    """Return the share of the words of two sentences that both have."""
    return len(words(one) & words(other)) / len(words(one) | words(other))


@pytest.mark.parametrize(('split', 'count'), [('train', 380), ('dev', 160)])
def test_sizes_and_labels(split, count):
    examples = read_corpus(split)
    assert len(examples) == count and examples[0].id == f'comments/{split}/0'
    assert np.bincount([example.label for example in examples]).tolist() == [count / 2] * 2
    assert len(LABELS) == 2 and examples[-1].classes == LABELS


def check_texts(examples, count, fewest, most):
    """All texts are different sentences of so many words."""
    texts = [text for example in examples for text in example.texts]
    assert len(texts) == len(set(texts)) == count
    assert all(text[-1] in '.?!"' and text == ' '.join(text.split()) for text in texts)
    assert all(fewest <= len(text.split()) <= most for text in texts)


def test_nothing_occurs_twice():
    check_texts(read_corpus('train') + read_corpus('dev'), 1080, 8, 30)


def test_neither_shared_words_nor_lists_of_words_give_the_label_away():
    train, dev = read_corpus('train'), read_corpus('dev')
    labels, expected = ([example.label for example in split] for split in (train, dev))
    shared, shared_dev = ([[overlap(e.text_a, e.text_b)] for e in split] for split in (train, dev))
    regression = LogisticRegression(C=100).fit(shared, labels)
    assert regression.score(shared_dev, expected) < 0.6
    vectorizer = CountVectorizer(binary=True)
    for read in (lambda e: e.text_a, lambda e: e.text_b, lambda e: f'{e.text_a} {e.text_b}'):
        known = vectorizer.fit_transform(map(read, train))
        regression = LogisticRegression().fit(known, labels)
        assert regression.score(vectorizer.transform(map(read, dev)), expected) < 0.75


def test_pairs_of_three_kinds():
    """Sentences are different ones; of a sentence and its negation, one has a word that negates."""
    pairs = similarity_sample()
    kinds = [pair.classes[pair.label] for pair in pairs]
    assert kinds == [kind for kind in KINDS for _ in range(60)]
    check_texts(pairs, 360, 4, 20)
    negating = re.compile(
        r"\b(not|never|no|nobody|nothing|none|without|neither|cannot)\b|n't\b", re.I
    )
    shared = {kind: [] for kind in KINDS}
    for pair, kind in zip(pairs, kinds, strict=True):
        negated = sum(bool(negating.search(text)) for text in pair.texts)
        assert negated == 1 or kind != 'negation', pair
        shared[kind].append(overlap(*pair.texts))
    shares = {kind: np.mean(each) for kind, each in shared.items()}
    assert shares['negation'] > 0.6 and max(shares['paraphrase'], shares['same topic']) < 0.2
