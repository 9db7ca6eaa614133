"""Maps of words: by definition, rows sum to 1, and words are those of the tokenizer."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax import catalogue
from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.measure.catalogue import named, relation


def by_hand(maps, words):
    """To a word the sum over its wordpieces, from it their mean."""
    count = max(words) + 1
    to_words = np.stack(
        [maps[..., [t for t, each in enumerate(words) if each == w]].sum(-1) for w in range(count)],
        axis=-1,
    )
    return np.stack(
        [
            to_words[..., [t for t, each in enumerate(words) if each == w], :].mean(-2)
            for w in range(count)
        ],
        axis=-2,
    )


@hypothesis.settings(max_examples=30)
@hypothesis.given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6), seed=st.integers(0, 99)
)
def test_maps_of_words_are_those_by_hand(sizes, seed):
    rng = np.random.default_rng(seed)
    words = np.repeat(np.arange(len(sizes)), sizes)
    maps = rng.dirichlet(np.ones(len(words)), (2, 3, len(words))).astype(np.float32)
    found = np.asarray(bs.word_maps(maps, words))
    np.testing.assert_allclose(found, by_hand(maps, words.tolist()), atol=1e-6)
    # Padding changes nothing.
    wider = np.pad(maps, [(0, 0), (0, 0), (0, 2), (0, 2)])
    padded = jax.jit(bs.word_maps, static_argnames='count')(
        wider, np.pad(words, (0, 2), constant_values=-1), count=len(sizes)
    )
    np.testing.assert_allclose(padded, found, atol=1e-6)


def test_words_are_those_of_the_tokenizer(tokenizer):
    texts = [('unlikely cats ran .', 'she liked it'), ('the dog', "don't")]
    encoded = bs.tokenize(tokenizer, texts)
    numbers = encoded.marks['word']
    for row, pair in enumerate(texts):
        given = tokenizer(*pair)
        theirs, last, count = [], None, -1
        for place, word in enumerate(given.word_ids()):
            key = (given.sequence_ids()[place], word)
            count += word is None or key != last
            theirs.append(count)
            last = key
        np.testing.assert_array_equal(numbers[row, : len(theirs)], theirs)
        assert (numbers[row, len(theirs) :] == -1).all()
    assert bs.named_words(encoded, 0, texts[0]) == [
        '[CLS]', 'unlikely', 'cats', 'ran', '.', '[SEP]', 'she', 'liked', 'it', '[SEP]',
    ]  # fmt: skip


def test_a_word_without_wordpieces_has_no_letters(tokenizer, tmp_path):
    path = tmp_path / 'some.conllu'
    path.write_text(
        '1-2\tdog\t_\t_\t_\t_\t_\t_\t_\t_\n'
        '1\tdo\tdo\tADP\t_\t_\t3\tcase\t_\t_\n'
        '2\tge\tge\tDET\t_\t_\t3\tdet\t_\t_\n'
        '3\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_\n',
        encoding='utf-8',
    )
    parses = bs.read_treebank(path)
    encoded = bs.encode_parses(tokenizer, parses)
    assert bs.named_words(encoded, 0, (parses[0].example.text_a, None)) == ['dog', '', 'cat']


TEXTS = ['unlikely cats ran .', 'she liked it']


def test_what_does_not_fit_is_named_and_names_say_that_words_are_meant(untyped):
    with pytest.raises(ValueError, match=r'Maps must be \[\.\.\., 3, 3\].*got \[2, 4, 4\]'):
        bs.word_maps(np.zeros((2, 4, 4)), np.arange(3))
    described = named('entropy (nats) (words)')
    assert described.title == 'entropy of attention, between words'
    assert named('noun (words)').features == ('noun',)
    with pytest.raises(ValueError, match="no statistic 'nuon'"):
        named('nuon (words)')


def test_statistics_can_be_of_words(pretrained):
    """Links, features and neighbours, too, can be of the maps between words."""
    annotations = [
        Annotation({'noun': (Span(0, 8),)}, {'pair': (Link((Span(0, 8),), (Span(9, 12),)),)})
        for _ in TEXTS
    ]
    batches = bs.encode(pretrained.tokenizer, TEXTS, annotations=annotations, fewest=9)
    described = [named('previous token'), named('noun'), relation('pair')]
    found = bs.collect(pretrained, batches, [catalogue.of_words(each) for each in described])
    assert list(found) == [
        f'{name} (words)' for name in ('previous token', 'noun', 'pair to target')
    ]
    total = np.zeros((3, 3, 4))
    # The words that the spans are of, after [CLS].
    for text, nouns, target in zip(TEXTS, ([1], [1, 2]), (2, 3), strict=True):
        (maps,) = bs.attention_maps(pretrained, [text])
        whole, size = maps.of_words().attentions, len(maps.words)
        total += [
            np.diagonal(whole, -1, 2, 3).sum(axis=-1) / size,
            whole.mean(axis=2)[:, :, nouns].max(axis=-1),
            whole[:, :, nouns, target].max(axis=-1),
        ]
    for table, expected in zip(found.values(), total, strict=True):
        np.testing.assert_allclose(table.mean, expected / len(TEXTS), atol=1e-5)
