"""The same heads on several corpora: agreement in worlds where it is known, and word order."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.agreement import across_halves, agreement, around, explained
from tests.probes.conftest import LETTERS, parse_of


def chained(order, *, count=48, relation='obj'):
    """Sentences in which each word depends on the next one, or on the one before."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        length = int(rng.integers(4, 9))
        heads = np.arange(length) + order
        heads[heads == length] = -1
        parse = parse_of(rng.choice(LETTERS, length).tolist(), heads)
        relations = tuple('root' if head < 0 else relation for head in heads)
        found.append(dataclasses.replace(parse, relations=relations))
    return found


CORPORA = {'after': chained(1), 'before': chained(-1)}


@pytest.fixture(scope='module')
def found(model, settings):
    return bs.analyses.across(model, CORPORA, resamples=9, settings=settings)


def test_statistics_are_those_of_each_corpus_alone(found, model, settings):
    """And relations those of `syntax_heads`: heads of one half, measured on the other."""
    alone = dataclasses.replace(settings, annotations=None)
    for place, parses in enumerate(CORPORA.values()):
        texts = [each.example for each in parses]
        one = bs.analyses.special_tokens(model, texts, settings=alone)
        for name, table in one.tables.items():
            np.testing.assert_allclose(found.means[name][place], table.mean, atol=1e-6)
    frames = found.frames()
    every = bs.analyses.syntax_heads(
        model, CORPORA['after'][::2], CORPORA['after'][1::2], random_weights=False, draws=0,
        settings=settings,
    )  # fmt: skip
    (row,) = every.frames()['relations'].query('relation == "obj"').to_dict('records')
    rows = frames['relations'].query('relation == "obj"').set_index('corpus')
    ours = rows.loc['after']
    assert (ours['name'], ours['share_of_links']) == (row['name'], row['share_of_links'])
    assert ours['share_of_best_head_of_first_corpus'] == ours['share_of_links']
    # The relation goes to the next word, or to the one before.
    assert rows['offset'].to_dict() == {'after': 1, 'before': -1}
    told = next(each for each in found.findings() if each.name == 'obj: best head of after')
    assert told.estimate == rows.loc['before', 'share_of_best_head_of_first_corpus']
    # These texts are the same.
    spread = frames['heads'].query('statistic == "self"')['spread']
    np.testing.assert_allclose(spread, 0, atol=1e-7)
    assert list(frames['pieces']['corpus']) == list(CORPORA)


def test_plain_texts_and_corpora_of_other_sizes(model, settings):
    texts = {
        'few': ['the cat ran', 'a dog saw it', 'she liked it .', 'he ran'],
        'trees': chained(1),
    }
    alone = dataclasses.replace(settings, annotations=None)
    found = bs.analyses.across(model, texts, resamples=3, settings=alone)
    assert not found.relations and list(found.pieces) == ['trees']
    assert {'agreement', 'heads', 'pieces'} == set(found.frames())
    with pytest.raises(ValueError, match=r'not of \[3, 48\]'):
        bs.analyses.across(model, texts | {'few': texts['few'][:3]}, settings=alone)


def test_corpora_that_are_one_and_that_have_nothing_in_common():
    rng = np.random.default_rng(0)
    for agree in (0, 1):
        values = [rng.normal(size=(2000, 60)) for _ in range(3)]
        of_heads = rng.normal(size=(3, 60))
        means = [of_heads[0] if agree else each for each in of_heads]
        samples = [3 * mean + each for mean, each in zip(means, values, strict=True)]
        ranks = across_halves(samples, paired=True)[0]
        assert (np.diag(ranks) > 0.99).all()
        other = ranks[np.triu_indices(3, 1)]
        assert (other > 0.99).all() if agree else (np.abs(other) < 0.4).all()
        icc = agreement(np.stack([each.mean(axis=0) for each in samples])).icc1
        assert icc > 0.99 if agree else abs(icc) < 0.3


def test_correlations_are_of_the_halves_by_hand():
    """Without what is NaN; the first matrix is that of the samples, the others are of resamples."""
    rng = np.random.default_rng(0)
    samples = [rng.normal(size=(11, 9)), rng.normal(size=(8, 9))]
    samples[0][2] = np.nan
    found = across_halves(samples, paired=False, resamples=4)
    assert found.shape == (5, 2, 2) and len(np.unique(found[:, 0, 1])) == 5
    halves = [[np.nanmean(each[half::2], axis=0) for half in (0, 1)] for each in samples]
    for one, other in itertools.product((0, 1), repeat=2):
        both = [(halves[one][0], halves[other][1]), (halves[one][1], halves[other][0])]
        expected = np.mean([scipy.stats.spearmanr(*pair).statistic for pair in both])
        np.testing.assert_allclose(found[0, one, other], expected)


def test_the_intraclass_correlation_by_hand():
    """One-way analysis of variance of heads, each with one value for each corpus."""
    values = np.array([[1.0, 4.0, 2.0, 9.0], [2.0, 5.0, 2.5, 7.0], [0.0, 6.0, 4.0, 8.0]])
    between = 3 * sum((values[:, head].mean() - values.mean()) ** 2 for head in range(4)) / 3
    within = sum(((values[:, head] - values[:, head].mean()) ** 2).sum() for head in range(4)) / 8
    expected = (between - within) / (between + 2 * within)
    assert agreement(values).icc1 == pytest.approx(expected)


def test_what_lengths_explain():
    """All of it if each sentence's value follows from its length, and none if nothing does."""
    rng = np.random.default_rng(0)
    lengths = [rng.normal(mean, 1, (400, 1)) for mean in (0, 1, 3)]
    slopes, noise = rng.normal(size=(1, 12)), [rng.normal(size=(400, 12)) for _ in lengths]
    of_length = [each @ slopes for each in lengths]
    assert explained(of_length, lengths) == pytest.approx(1)
    of_corpus = [3 * rng.normal(size=12) + each for each in noise]
    assert abs(explained(of_corpus, lengths)) < 0.2
    one_missing = [np.where(np.arange(400)[:, None] == 7, np.nan, each) for each in of_length]
    assert explained(one_missing, lengths) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize('agree', [0.0, 0.6, 1.0])
def test_the_interval_has_the_agreement_of_other_sentences(agree):
    """Parallel sentences share noise. Nominally 95 % of intervals have the mean over samples."""
    rng, heads, corpora = np.random.default_rng(1), 72, 3
    common, own = rng.normal(size=heads), rng.normal(size=(corpora, heads))
    of_heads = np.sqrt(agree) * common + np.sqrt(1 - agree) * own
    above = np.triu_indices(corpora, 1)

    def drawn(resamples, seed=0):
        shared = rng.normal(size=(80, heads))
        noise = 0.7 * shared + 1.4 * rng.normal(size=(corpora, 80, heads))
        samples = list(of_heads[:, None] + noise)
        return across_halves(samples, paired=True, resamples=resamples, seed=seed)[:, *above].mean(
            1
        )

    truth = np.mean([drawn(0)[0] for _ in range(400)])
    ends = [around(drawn(100, seed)) for seed in range(300)]
    covered = np.mean([low <= truth <= high for _, low, high in ends])
    assert 0.9 <= covered <= 0.99
