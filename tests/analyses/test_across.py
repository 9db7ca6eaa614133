"""The same heads on several corpora: agreement in worlds where it is known, and word order."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.stats.agreement import across_halves, explained, ranks_with_errors
from bert_secrets_jax.stats.correlations import interval_of_resamples
from tests.probes.conftest import LETTERS, parse_of


def chained(order):
    """Sentences in which each word is the object of the next one, or of the one before."""
    rng, found = np.random.default_rng(0), []
    for length in rng.integers(4, 9, 48).tolist():
        heads = [head if head < length else -1 for head in np.arange(length) + order]
        parse = parse_of(rng.choice(LETTERS, length).tolist(), heads)
        relations = tuple('root' if head < 0 else 'obj' for head in heads)
        found.append(dataclasses.replace(parse, relations=relations))
    return found


CORPORA = {'after': chained(1), 'before': chained(-1)}


def test_several_corpora_are_each_measured_alone(model, settings):
    alone = dataclasses.replace(settings, annotations=None)
    found = bs.analyses.across(model, CORPORA, resamples=9, settings=alone)
    for place, parses in enumerate(CORPORA.values()):
        texts = [each.example for each in parses]
        one = bs.analyses.special_tokens(model, texts, settings=alone)
        for name, table in one.tables.items():
            np.testing.assert_allclose(found.means[name][place], table.mean, atol=1e-6)
    frames, parts = found.frames(), (CORPORA['after'][::2], CORPORA['after'][1::2])
    quick = {'random_weights': False, 'draws': 0, 'settings': alone}
    every = bs.analyses.syntax_heads(model, *parts, **quick).frames()['relations']
    rows = frames['relations'].query('relation == "obj"').set_index('corpus')
    for name, value in rows.loc['after'].drop('relation').items():
        assert name not in every or value == every.set_index('relation').loc['obj', name]
    # The relation goes to the next word, or to the one before.
    assert rows['offset'].to_dict() == {'after': 1, 'before': -1}
    shares = rows['share_of_best_head_of_first_corpus']
    assert shares['after'] == rows.loc['after', 'share_of_links'] > shares['before']
    # These texts are the same.
    assert frames['heads']['spread'].max() < 1e-6
    # A statistic with much noise correlates little, as do two halves of one corpus.
    alike = {
        name: each | {'rank': 0.9, 'rank_of_halves': 0.95} for name, each in found.alike.items()
    }
    alike['obj'] |= {'rank': 0.8, 'rank_of_halves': 0.98}
    alike['all'] |= {'rank': 0.75, 'rank_of_halves': 0.8}
    clear = dataclasses.replace(found, alike=alike).findings()
    assert any('differ most in "finds obj"' in each.sentence for each in clear)
    texts = {'few': ['the cat ran', 'a dog saw it', 'she liked it .', 'he ran'], **CORPORA}
    plain = bs.analyses.across(model, texts, resamples=3, settings=alone)
    assert not plain.relations and list(plain.frames()['pieces']['corpus']) == list(CORPORA)
    # So short are wordpieces in a language that the tokenizer was not made for.
    assert plain.spelt['few'] == 34 / 13
    assert plain.spelt['after'] == plain.frames()['pieces']['bytes of a wordpiece'][0] > 3.5
    said = (
        'A wordpiece spells only 2.6 bytes of "few": the tokenizer is hardly made for its language.'
    )
    assert [each.sentence for each in plain.findings() if each.warning] == [said]
    assert not any(each.warning for each in found.findings())
    with pytest.raises(ValueError, match="too few texts of 'few': 3 given, at least 4"):
        bs.analyses.across(model, texts | {'few': texts['few'][:3]}, settings=alone)


def test_several_models_read_the_same_texts_or_their_own(model, tuned, settings):
    alone, parses = dataclasses.replace(settings, annotations=None), CORPORA['after']
    models = {'before': model, 'tuned': tuned.models[0]}
    found = bs.analyses.across(models, parses, resamples=9, settings=alone)
    apart = bs.analyses.across(models, dict.fromkeys(models, parses), resamples=9, settings=alone)
    for place, each in enumerate(models.values()):
        one = bs.analyses.across(each, CORPORA, resamples=9, settings=alone)
        for name, means in one.means.items():
            np.testing.assert_array_equal(found.means[name][place], means[0])
            np.testing.assert_array_equal(apart.means[name][place], means[0])
    assert found.unit == 'models' and 'models' in str(found)
    assert found.frames()['agreement']['explained_by_lengths'].isna().all()
    with pytest.raises(ValueError, match='need the same names'):
        bs.analyses.across(models, CORPORA, settings=alone)
    with pytest.raises(ValueError, match='texts by the names of two corpora'):
        bs.analyses.across(model, parses, settings=alone)
    bare = [dataclasses.replace(each, relations=('punct',) * len(each.words)) for each in parses]
    for texts, fault in (
        ({'two kinds': [*parses, 'he ran']}, "'two kinds' has sentences with trees, and texts"),
        ({'half': [parses[0], bare[0]] * 2}, "One half of 'half' .* has no links"),
    ):
        with pytest.raises(ValueError, match=fault):
            bs.analyses.across(model, CORPORA | texts, settings=alone)
    with pytest.raises(ValueError, match='too few models by their names: 1 given'):
        bs.analyses.across({'tuned': model}, parses, settings=alone)
    with pytest.raises(ValueError, match='resamples=-1 must be a whole number from 0'):
        bs.analyses.across(model, CORPORA, resamples=-1, settings=alone)


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


def test_what_lengths_explain():
    rng = np.random.default_rng(0)
    lengths = [rng.normal(mean, 1, (400, 1)) for mean in (0, 1, 3)]
    of_length = [each @ np.arange(12.0)[None] for each in lengths]
    of_length[0][7] = np.nan
    assert explained(of_length, lengths) == pytest.approx(1)
    of_corpus = [3 * rng.normal(size=12) + rng.normal(size=(400, 12)) for _ in lengths]
    assert abs(explained(of_corpus, lengths)) < 0.2


def test_a_few_resamples_at_1_do_not_widen_an_interval():
    """A correlation of 1 is far out on Fisher's scale."""
    ranks = np.tanh(np.arctanh(0.95) + 0.1 * np.random.default_rng(0).normal(size=201))
    ranks[0], ranks[5:9] = 0.95, 1
    expected = 0.95, *np.tanh([np.arctanh(0.95) - 0.196, np.arctanh(0.95) + 0.196])
    np.testing.assert_allclose(interval_of_resamples(ranks), expected, atol=0.005)
    assert interval_of_resamples(np.ones(9)) == pytest.approx((1, 1, 1))


def covered(agree, ranks_of):
    """The share of nominal 95 % intervals with the mean agreement of other sentences."""
    rng, above = np.random.default_rng(1), np.triu_indices(3, 1)
    of_heads = np.sqrt(agree) * rng.normal(size=72) + np.sqrt(1 - agree) * rng.normal(size=(3, 72))

    def drawn(resamples, seed=0):
        ranks = ranks_of(rng, of_heads, resamples=resamples, seed=seed)
        return ranks[:, *above].mean(axis=1)

    truth = np.mean([drawn(0)[0] for _ in range(400)])
    ends = [interval_of_resamples(drawn(100, seed)) for seed in range(300)]
    return np.mean([low <= truth <= high for _, low, high in ends])


def of_parallel_sentences(rng, of_heads, **how):
    """Parallel sentences share noise."""
    noise = 0.7 * rng.normal(size=(80, 72)) + 1.4 * rng.normal(size=(3, 80, 72))
    return across_halves(list(of_heads[:, None] + noise), paired=True, **how)


def from_errors(rng, of_heads, **how):
    """Errors are those of shares of links; heads of a sentence err together."""
    noise = 0.7 * rng.normal(size=(3, 40, 2, 1)) + 1.4 * rng.normal(size=(3, 40, 2, 72))
    values = of_heads[:, None, None] + noise
    halves, errors = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(40)
    return ranks_with_errors([*halves], [*errors], **how)


@pytest.mark.slow
@pytest.mark.parametrize('agree', [0.0, 0.6, 1.0])
@pytest.mark.parametrize(('ranks_of', 'most'), [(of_parallel_sentences, 0.99), (from_errors, 1)])
def test_the_interval_has_the_agreement_of_other_sentences(agree, ranks_of, most):
    assert 0.9 <= covered(agree, ranks_of) <= most
