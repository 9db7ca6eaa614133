"""The embedded corpus is what its docstring says."""

import functools
import itertools
import re

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from bert_secrets_jax.data.corpus import LABELS, read_corpus

NEGATION = r"\b(?:no|not|never|nobody|nothing|nor|neither|none|nowhere|without|cannot)\b|n't\b"


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
    assert len(LABELS) == 2


def test_nothing_occurs_twice():
    examples = read_corpus('train') + read_corpus('dev')
    texts = list(itertools.chain.from_iterable((e.text_a, e.text_b) for e in examples))
    assert len(texts) == len(set(texts)) == 1080
    assert all(text[-1] in '.?!"' and text == ' '.join(text.split()) for text in texts)
    assert all(8 <= len(text.split()) <= 30 for text in texts)


def test_no_sentence_of_dev_is_nearly_one_of_train():
    train, dev = (
        [text for e in read_corpus(split) for text in (e.text_a, e.text_b)]
        for split in ('train', 'dev')
    )
    assert max(overlap(one, other) for one, other in itertools.product(dev, train)) < 0.5


@pytest.mark.parametrize('split', ['train', 'dev'])
def test_all_news_have_a_glad_and_an_unhappy_comment(split):
    """In two rows, one after the other, whose first sentences say the same."""
    examples = read_corpus(split)
    first, second = examples[::2], examples[1::2]
    labels = {(e.label, other.label) for e, other in zip(first, second, strict=True)}
    assert labels == {(0, 1), (1, 0)}
    shared = [overlap(e.text_a, other.text_a) for e, other in zip(first, second, strict=True)]
    by_chance = [overlap(e.text_a, other.text_a) for e, other in itertools.pairwise(first)]
    assert min(shared) > 0.1 and np.mean(shared) > 5 * np.mean(by_chance)


@pytest.mark.parametrize('split', ['train', 'dev'])
def test_negation_is_about_as_frequent_in_both_classes(split):
    unwelcome, welcome = (
        np.mean([
            bool(re.search(NEGATION, example.text_b, re.IGNORECASE))
            for example in read_corpus(split)
            if example.label == label
        ])
        for label in (0, 1)
    )  # fmt: skip
    assert min(unwelcome, welcome) > 0.2 and abs(unwelcome - welcome) < 0.1


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


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="not 'test'"):
        read_corpus('test')
