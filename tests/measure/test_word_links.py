"""Most attended words beside a loop by hand, counts and errors, and intervals that hold."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.data.annotation import Annotation, Link, Span
from bert_secrets_jax.measure.word_links import (
    ALL,
    OFFSETS,
    WordLinks,
    best_offsets,
    finding,
    links_of_annotations,
    most_attended,
)
from bert_secrets_jax.stats.student import wilson
from tests.measure.test_words import by_hand as of_words


def by_hand(maps, words, special):
    """The word that each word attends to most, and the one that attends to it most."""
    inside = np.flatnonzero(~special & (words >= 0))
    known, numbers = np.unique(words[inside], return_inverse=True)
    table = of_words(maps[np.ix_(inside, inside)], numbers.tolist())
    np.fill_diagonal(table, -1)
    return known, known[table.argmax(axis=1)], known[table.argmax(axis=0)]


@pytest.mark.parametrize('seed', range(5))
def test_the_most_attended_word_is_that_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    # [CLS], words of one to three pieces, [SEP], padding; a word of the treebank has no piece.
    sizes = rng.integers(1, 4, 5)
    words = np.array([0, *np.repeat([1, 2, 4, 5, 6], sizes), 7, -1, -1])
    special = np.isin(words, [0, 7])
    maps = rng.dirichlet(np.full(len(words), 0.3), (2, 3, len(words))).astype(np.float32)
    marks = {'word': words, 'cls': words == 0, 'sep': words == 7}
    found, weight = jax.jit(most_attended)(maps, {n: jnp.asarray(m) for n, m in marks.items()})
    assert weight == 1 and found.shape == (2, 3, 2, len(words))
    for place in np.ndindex(2, 3):
        here, to, back = by_hand(maps[place], words, special)
        assert here.tolist() == [1, 2, 4, 5, 6]
        np.testing.assert_array_equal(found[place][:, here], [to, back])


def test_words_may_be_more_than_wordpieces():
    """Some share their wordpiece with the word before, and have none of their own."""
    maps = jnp.asarray(np.random.default_rng(5).dirichlet(np.ones(5), (2, 3, 5)), jnp.float32)
    numbers = np.array([0, 4, 7])
    marks = {name: jnp.zeros(5, bool) for name in ('cls', 'sep')}
    dense = most_attended(maps, marks | {'word': jnp.array([-1, 0, 1, 2, -1])})[0]
    found = most_attended(maps, marks | {'word': jnp.array([-1, *numbers, -1])}, beyond=3)[0]
    assert found.shape == (2, 3, 2, 8)
    np.testing.assert_array_equal(
        np.asarray(found)[..., numbers], numbers[np.asarray(dense)[..., :3].astype(int)]
    )
    ends = np.array([7, 7])
    links = WordLinks(('a', ALL), np.arange(2), np.zeros(2, int), ends, ends[:, None] * 0, 0, 3)
    reducer = finding(links, np.zeros(2, int)).reducer()
    reducer.add(np.array([0]), np.asarray(found)[None])
    assert reducer.result().links.tolist() == [1, 1] and links.named(('a',)).beyond == 3


def random_links(rng, texts=30, words=8):
    """One to four links in each text to one word or two, of two relations and of both together."""
    rows = []
    for text in range(texts):
        for source in rng.choice(words, rng.integers(1, 5), replace=False):
            one, other = (source + rng.choice(np.arange(1, words), 2, replace=False)) % words
            rows.append((rng.integers(2), text, source, one, rng.choice([-1, other])))
    relation, example, source, *target = np.array(rows).T
    return WordLinks(
        ('a', 'b', ALL),
        np.concatenate([relation, np.full(len(rows), 2)]),
        np.tile(example, 2),
        np.tile(source, 2),
        np.tile(target, 2).T,
    )


def test_shares_and_errors_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    links = random_links(rng)
    guesses = rng.integers(0, 8, (30, 2, 2, 2, 8))
    offsets = best_offsets(links)
    reducer = finding(links, offsets).reducer()
    # In batches of any size and order.
    for part in np.split(rng.permutation(30), [7, 9]):
        reducer.add(part, guesses[part].astype(np.float32))
    found = reducer.result()
    for relation in range(3):
        mine = links.relation == relation
        at = {offset: links.at_offset(offset)[mine].mean() for offset in OFFSETS}
        assert at[offsets[relation]] == max(at.values()) == found.baseline[relation]
        assert found.links[relation] == mine.sum()
        texts = np.unique(links.example[mine])
        assert found.sentences[relation] == len(texts)
        example, source, target = links.example[mine], links.source[mine], links.target[mine]
        for place in np.ndindex(2, 2, 2):
            right = (guesses[example, *place, source][:, None] == target).any(axis=1)
            gain = right - links.at_offset(int(offsets[relation]))[mine].astype(float)
            for values, mean, error in (
                (right, found.right, found.error),
                (gain, found.gain, found.gain_error),
            ):
                np.testing.assert_allclose(mean[relation][place], values.mean(), atol=1e-12)
                residual = [(values - values.mean())[example == text].sum() for text in texts]
                many = len(texts)
                expected = np.sqrt(np.square(residual).sum() * many / (many - 1)) / mine.sum()
                np.testing.assert_allclose(error[relation][place], expected, atol=1e-12)


def test_links_of_annotations_are_those_between_words(tokenizer):
    text = 'unlikely cats ran and the cat liked it'
    link = Link((Span(35, 38),), (Span(0, 13), Span(26, 29)))
    annotation = Annotation({}, {'coreference': (link,)})
    assert text[35:38] == ' it'
    encoded = bs.mark(bs.tokenize(tokenizer, [text]), [annotation])
    found = links_of_annotations(encoded, [annotation])
    names = bs.named_words(encoded, 0, (text, None))
    assert found.names == ('coreference', ALL) and found.counts.tolist() == [1, 1]
    assert names[found.source[0]] == 'it'
    assert [names[word] for word in found.target[0]] == ['unlikely', 'cats', 'cat']


def test_texts_without_links_are_refused(tokenizer):
    annotation = Annotation({}, {'coreference': ()})
    encoded = bs.mark(bs.tokenize(tokenizer, ['the cat ran']), [annotation])
    with pytest.raises(ValueError, match='no link between two words'):
        links_of_annotations(encoded, [annotation])


def simulated(rng, texts, share, alike):
    """Links that are found with a chance that texts share; the offset finds as many."""
    size = rng.integers(1, 4, texts)
    strength = np.inf if alike == 0 else (1 - alike) / alike
    chance = np.full(texts, share)
    if np.isfinite(strength):
        chance = rng.beta(share * strength, (1 - share) * strength, texts)
    example = np.repeat(np.arange(texts), size)
    right = rng.random(len(example)) < chance[example]
    at_offset = rng.random(len(example)) < chance[example]
    source = np.concatenate([np.arange(count) for count in size])
    target = np.where(at_offset, source + 1, source + 9)
    links = WordLinks(('a',), np.zeros(len(example), int), example, source, target[:, None])
    guesses = np.zeros((texts, 1, 1, 2, 3), np.float32)
    guesses[example, 0, 0, :, source] = np.where(right, target, target + 20)[:, None]
    reducer = finding(links, np.array([1])).reducer()
    reducer.add(np.arange(texts), guesses)
    return reducer.result()


@pytest.mark.slow
@pytest.mark.parametrize('texts', [20, 100])
@pytest.mark.parametrize(('share', 'alike'), [(0.5, 0.3), (0.9, 0.0), (0.95, 0.3)])
def test_intervals_cover_and_the_test_of_the_gain_errs_as_often_as_it_says(texts, share, alike):
    rng = np.random.default_rng(texts)
    worlds = [simulated(rng, texts, share, alike) for _ in range(1000)]
    right, error, links, sentences = (
        np.array([getattr(world, name).flat[0] for world in worlds])
        for name in ('right', 'error', 'links', 'sentences')
    )
    low, high = wilson(right, error, links, sentences)
    assert np.mean((low <= share) & (share <= high)) >= 0.93
    gain, spread = (
        np.array([getattr(world, name).flat[0] for world in worlds])
        for name in ('gain', 'gain_error')
    )
    with np.errstate(divide='ignore', invalid='ignore'):
        t = np.where(spread > 0, gain / spread, np.sign(gain) * np.inf)
    rejected = scipy.stats.t.sf(np.nan_to_num(t), texts - 1) <= 0.05
    assert rejected.mean() <= 0.07
