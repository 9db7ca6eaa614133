"""The embedded corpus is what its docstring says."""

import itertools

import pytest

from bert_secrets_jax.data.corpus import LABELS, read_corpus


@pytest.mark.parametrize(('split', 'count'), [('train', 320), ('dev', 140)])
def test_sizes_and_labels(split, count):
    examples = read_corpus(split)
    assert len(examples) == count and examples[0].id == f'paraphrases/{split}/0'
    share = sum(example.label for example in examples) / count
    assert {example.label for example in examples} == set(range(len(LABELS)))
    assert 0.45 < share < 0.55


def test_nothing_occurs_twice():
    examples = read_corpus('train') + read_corpus('dev')
    texts = list(itertools.chain.from_iterable((e.text_a, e.text_b) for e in examples))
    assert len(texts) == len(set(texts)) == 920
    assert all(text[-1] in '.?!"' and text == text.strip() for text in texts)


def test_word_overlap_does_not_give_the_label_away():
    """The best threshold on shared words is right on less than two thirds of the pairs."""
    examples = read_corpus('train') + read_corpus('dev')
    words = lambda text: set(text.lower().strip('.?!"').split())
    overlap = [
        len(words(e.text_a) & words(e.text_b)) / len(words(e.text_a) | words(e.text_b))
        for e in examples
    ]
    best = max(
        max(hits, len(examples) - hits)
        for threshold in set(overlap)
        for hits in [
            sum((o >= threshold) == e.label for o, e in zip(overlap, examples, strict=True))
        ]
    )
    assert best / len(examples) < 2 / 3


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="not 'test'"):
        read_corpus('test')
