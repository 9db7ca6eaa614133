"""The conditional logit of linked words: by hand, its error rates and its power."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax.data.annotation import fill_up
from bert_secrets_jax.data.encoding import WORD
from bert_secrets_jax.data.treebank import treebank_sample
from bert_secrets_jax.measure.choices import Preference, choices_of
from tests.measure import worlds
from tests.measure.worlds import compared, head, texts_of_trees, texts_with_links

# Preferences of heads that follow no link.
BLIND = {
    'distance': (worlds.relative,),
    'position': (worlds.absolute,),
    'class': (worlds.word_class,),
    'distance, position and class': (worlds.relative, worlds.absolute, worlds.word_class),
    'rare words': (worlds.rare,),
    'punctuation': (worlds.punctuation,),
    'last verb': (worlds.last_verb,),
    'nearest noun': (worlds.nearest_noun,),
    'nearest noun up to punctuation': (worlds.unbroken,),
    'nearest noun or one word back': (worlds.either,),
}


@pytest.fixture(scope='module')
def trees():
    return texts_of_trees(treebank_sample('train') + treebank_sample('dev'))


def heads_of(rng, encoded, preferences, count, **planted):
    return np.stack([head(rng, encoded, *preferences, **planted) for _ in range(count)], axis=1)


def test_words_to_choose_from_by_hand():
    encoded, _ = texts_with_links(np.random.default_rng(0), 2, 9, 9)
    text = np.array([[-1, 0, 0, 0, -1, 1, 1, 1, -1]] * 2, np.int8)
    word = np.array([[-1, 0, 1, 1, -1, 2, 3, 4, -1]] * 2)
    encoded = dataclasses.replace(encoded, text=text, marks={WORD: word})
    # A word of two pieces is linked by one of them; the closest pair of a link has its query.
    links = np.array([[(1, 3, 0), (7, 3, 1), (6, 3, 1)], [(5, 6, 4), (0, 0, -1), (0, 0, -1)]])
    chosen = choices_of(links, encoded, reverse=False)
    assert chosen.example.tolist() == [0, 0, 1] and chosen.links == 3
    # The query itself is a word of the text, and the other text has no key.
    assert chosen.pairs[0].tolist() == [
        [1, 1, 0], [1, 2, 1], [1, 3, 1], [6, 1, 2], [6, 2, 3], [6, 3, 3],
    ]  # fmt: skip
    assert chosen.choice.tolist() == [0, 0, 1, 1, 2, 2, 2] and chosen.first.tolist() == [0, 4, 7]
    assert chosen.linked.tolist() == [0, 1, 0, 1, 0, 1, 0]
    back = choices_of(links[..., [1, 0, 2]], encoded, reverse=True)
    assert back.pairs[0].tolist() == [[key, query, n] for query, key, n in chosen.pairs[0].tolist()]
    np.testing.assert_array_equal(back.features.toarray(), chosen.features.toarray())


def test_the_preference_is_that_of_least_squares_with_a_constant_for_each_query(trees):
    encoded, links = trees
    rng = np.random.default_rng(0)
    maps = heads_of(rng, encoded, (worlds.relative,), 2, links=links, strength=1.0)
    chosen = choices_of(links, encoded, reverse=False)
    found = compared(chosen, maps, 0)
    example, row = np.nonzero(chosen.pairs[..., 2] >= 0)
    query, key, _ = chosen.pairs[example, row].T
    attention = maps[example, :, query, key].astype(np.float64)
    constants = np.eye(len(chosen.example))[chosen.choice]
    design = np.hstack([constants, chosen.features.toarray(), chosen.linked[:, None]])
    weights, *_ = np.linalg.lstsq(design, np.log(attention), rcond=None)
    np.testing.assert_allclose(found.preference.mean[0], weights[-1], rtol=1e-5)
    # The error is that of the sum over examples of residuals (a sandwich, with texts as clusters),
    # each as it is when the fit is to the other texts.
    left = np.log(attention) - design @ weights
    rest = design[:, :-1]
    of_link = chosen.linked - rest @ np.linalg.lstsq(rest, chosen.linked, rcond=None)[0]
    by_text = np.zeros((len(links), 2))
    np.add.at(by_text, example, left * of_link[:, None])
    fitted, *_ = np.linalg.svd(design, full_matrices=False)
    fitted = fitted[:, : np.linalg.matrix_rank(design)]
    for text in np.unique(example):
        x, own = of_link[example == text], fitted[example == text]
        by_text[text] /= 1 - np.sum((x @ own) ** 2) / (x @ x)
    by_text = by_text[np.unique(example)] / (of_link @ of_link)
    count = len(by_text)
    error = np.sqrt(count) * by_text.std(axis=0, ddof=1)
    np.testing.assert_allclose(found.preference.standard_error[0], error, rtol=1e-5)
    # Without the preference, linked words have fewer of the odds.
    mine = attention * chosen.linked[:, None]
    own = np.array([mine[chosen.choice == each].sum(axis=0) for each in range(len(constants[0]))])
    odds = own / (1 - own) * np.exp(-weights[-1])
    means = [own, odds / (1 + odds)]
    for expected, name in zip(means, ('score', 'mean'), strict=True):
        by_text = [expected[chosen.example == each].mean(axis=0) for each in np.unique(example)]
        np.testing.assert_allclose(getattr(found, name)[0], np.mean(by_text, axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.excess.mean, found.score - found.mean, atol=1e-6)
    assert found.excess.count == count and np.isnan(found.percentile_99).all()


def test_links_that_class_and_position_decide_are_not_compared():
    encoded, _ = texts_with_links(np.random.default_rng(0), 60, 12, 20)
    rows = [
        [
            (key + 1, key, key)
            for key in np.flatnonzero(classes == worlds.NOUN).tolist()
            if key + 2 < length
        ]
        for classes, length in zip(encoded.classes, encoded.lengths, strict=True)
    ]
    links = fill_up(rows)
    found = compared(choices_of(links, encoded, reverse=False), heads_of(
        np.random.default_rng(1), encoded, (), 3, links=links, strength=3.0
    ), 0)  # fmt: skip
    assert np.isnan(found.familywise).all() and not found.above.any() and found.links == 0
    nothing = choices_of(np.full_like(links, -1), encoded, reverse=False)
    assert nothing.of(np.arange(60))[0].size == 0 and Preference(nothing)


def test_a_head_of_one_offset_has_no_preference(trees):
    encoded, links = trees
    maps = worlds.offset_and_links(encoded, links)
    found = compared(choices_of(links, encoded, reverse=False), maps, 0)
    assert found.above[0].tolist() == [False, True] and found.familywise[0, 0] == 1
    assert abs(found.preference.mean[0, 0]) < 1e-5 < 5 < found.preference.mean[0, 1]


@pytest.mark.parametrize('name', BLIND)
def test_heads_that_follow_no_link_have_p_values_as_they_should(trees, name):
    encoded, links = trees
    rng = np.random.default_rng(5)
    maps = heads_of(rng, encoded, BLIND[name], 120)
    for title, ends in (('verb to subject', [0, 1, 2]), ('subject to verb', [1, 0, 2])):
        chosen = choices_of(links[..., ends], encoded, reverse=False)
        low = int((compared(chosen, maps, 0).p <= 0.05).sum())
        assert scipy.stats.binomtest(low, 120, 0.05, alternative='greater').pvalue > 0.01, title


@pytest.mark.slow
def test_family_wise_errors(trees):
    """Of 72 heads that follow no link, one is above by chance in 5 % of the samples of texts."""
    encoded, links = trees
    wrong = {name: 0 for name in BLIND}
    samples = 60
    for seed in range(samples):
        rng = np.random.default_rng(seed)
        texts = rng.permutation(len(links))[:120]
        chosen = choices_of(links[texts], encoded.take(texts), reverse=False)
        for name, preferences in BLIND.items():
            maps = heads_of(rng, encoded.take(texts), preferences, 72)
            wrong[name] += compared(chosen, maps, seed).above.any()
    rates = {name: count / samples for name, count in wrong.items()}
    print(rates)
    assert np.mean(list(rates.values())) <= 0.06
    assert max(rates.values()) <= scipy.stats.binom.ppf(0.999, samples, 0.05) / samples, rates


def test_planted_preferences_are_found(trees):
    """One logit is found where 72 heads are tested; and as often as is said."""
    encoded, links = trees
    chosen = choices_of(links, encoded, reverse=False)
    rng = np.random.default_rng(2)
    others = heads_of(rng, encoded, (worlds.relative, worlds.absolute), 71)
    found = {0.0: 0, 0.5: 0, 1.0: 0}
    for strength in found:
        for _ in range(10):
            planted = heads_of(rng, encoded, (worlds.relative, worlds.absolute), 1, links=links,
                               strength=strength)  # fmt: skip
            test = compared(chosen, np.concatenate([planted, others], axis=1), 0)
            found[strength] += bool(test.above[0, 0])
    assert found[0.0] <= 1 and found[1.0] >= 9, found
    # What is detectable: most of the power of a head whose excess is as large.
    excess, error = test.excess.mean[0, 0], test.excess.standard_error[0, 0]
    assert test.detectable[0, 0] == pytest.approx(
        (scipy.stats.t.ppf(1 - 0.05 / 72, test.excess.count - 1) + 0.8416) * error, rel=1e-3
    )
    assert excess > test.detectable[0, 0]
