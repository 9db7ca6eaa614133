"""The result of probing: its numbers beside plain ones, intervals that cover, what is told."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.probing import RANDOM_ATTENTION, RANDOM_WORDS, Probing, probing
from bert_secrets_jax.analyses.verdicts import (
    HOLDS,
    NOT_MEASURED,
    PROBE_BEYOND_WORDS,
    uas_contrasts,
)
from bert_secrets_jax.probes.evaluation import RIGHT_BRANCHING
from bert_secrets_jax.probes.sentences import Asked
from tests.probes.conftest import parse_of, random_parses, vectors  # noqa: F401


@pytest.fixture(scope='module')
def result(model, vectors):  # noqa: F811
    return probing(
        model, random_parses(0, 30), random_parses(1, 24), vectors=vectors, max_length=32,
        subject=bs.analyses.Subject('tiny', 'own sentences'),
    )  # fmt: skip


def made(right, words=None, **fields) -> Probing:
    """Return a result of given counts [R, E] by name; five words in each sentence."""
    sentences = next(iter(right.values())).shape[1]
    words = np.full(sentences, 5, np.float32) if words is None else words
    right = {name: each.astype(np.float32) for name, each in right.items()}
    runs = max(len(each) for each in right.values())
    asked = Asked(int(words.sum()), 0, 0, 0)
    return Probing(
        subject=bs.analyses.Subject(), seeds=tuple(range(runs)), words=words, right=right,
        asked=asked, learnt=asked, steps=10,
        weights=np.zeros((runs, 2, 3, 4)), curves={}, seen=np.arange(1),
        unknown=0.0, reading='paper', **fields,
    )  # fmt: skip


def test_all_probes_and_baselines(result):
    assert result.names[0] == RIGHT_BRANCHING and result.names[-1] == 'attention and words'
    assert len(result.names) == len(result.right) == 6
    frame = result.frames()['uas'].set_index('probe')
    for name in result.names:
        expected = 100 * (result.right[name].sum(axis=1) / result.words.sum()).mean()
        assert frame.loc[name, 'uas_percent'] == pytest.approx(expected)
        assert frame.loc[name, 'low'] <= expected <= frame.loc[name, 'high']
    assert frame.loc['attention and words', 'published_bert_base'] == 77
    assert frame.loc[RIGHT_BRANCHING, 'seeds'] == 0 and frame.loc['attention', 'seeds'] == 3
    words = result.frames()['words'].set_index('sentences')
    assert (words.counted + words.punctuation == words.words).all()
    assert words.loc['dev', 'counted'] == result.words.sum()
    weights = result.frames()['weights']
    assert len(weights) == 12
    assert weights.word_to_governor[5] == pytest.approx(result.weights[:, 0, 1, 1].mean())
    assert len(result.frames()['seeds']) == 3 * 5
    assert {19, 31} < set(result.frames()['differences']['published_difference_points'])
    # Nothing is learnt from random trees, which is said before everything else.
    first = result.findings()[0]
    assert first.warning and first.estimate == len(result.unlearnt) > 0


def test_what_is_learnt_is_not_warned_of():
    rng = np.random.default_rng(0)
    right = {
        RIGHT_BRANCHING: rng.binomial(5, 0.3, (1, 200)),
        'attention': rng.binomial(5, 0.6, (3, 200)),
        RANDOM_ATTENTION: rng.binomial(5, 0.3, (3, 200)),
    }
    found = made(right)
    assert not found.unlearnt and not any(each.warning for each in found.findings())
    assert '"random weights: attention" finds 29 %' in found.findings()[-1].sentence
    # Without words, neither claim of the paper can be tested.
    assert {each.verdict for each in found.verdicts()} == {NOT_MEASURED}


def test_a_finding_beside_the_papers_numbers():
    rng = np.random.default_rng(0)
    chances = {
        'distances and words': 0.5, RANDOM_WORDS: 0.3, 'attention': 0.6, 'attention and words': 0.8,
    }  # fmt: skip
    right = {name: rng.binomial(5, chance, (3, 400)) for name, chance in chances.items()}
    right[RIGHT_BRANCHING] = rng.binomial(5, 0.3, (1, 400))
    found = made(right)
    assert '(BERT-base: 61 %)' in str(found)
    assert {each.verdict for each in found.verdicts()} == {HOLDS}
    judged = {each.claim: each for each in bs.analyses.claims(found).verdicts()}
    # Three probes are too few for any other one.
    assert judged[PROBE_BEYOND_WORDS].sample == 400
    assert all(judged[each.claim] == each for each in found.verdicts())


def test_without_vectors_and_random_weights(model):
    found = probing(
        model, random_parses(0, 10), random_parses(1, 10), seeds=1, random_weights=False,
        max_length=32,
    )  # fmt: skip
    assert found.names == [RIGHT_BRANCHING, 'attention'] and np.isnan(found.unknown)
    assert any('Without word vectors' in note for note in found.notes())
    assert found.weights.shape == (1, 2, 3, 4)
    # One seed has no deviation.
    assert found.frames()['weights'].deviation_over_seeds.isna().all()


def test_sentences_without_words_that_count_do_not_count(model):
    marks = parse_of(['.', '.'], [-1, 0], ['PUNCT', 'PUNCT'])
    settings = {'seeds': 1, 'random_weights': False, 'max_length': 32}
    dev = random_parses(1, 6)
    found = probing(model, random_parses(0, 10), [marks, *dev], **settings)
    plain = probing(model, random_parses(0, 10), dev, **settings)
    np.testing.assert_array_equal(found.words, plain.words)
    assert found.uas('attention').interval(0) == plain.uas('attention').interval(0)
    with pytest.raises(ValueError, match='too few dev sentences with words that count'):
        probing(model, random_parses(0, 10), [marks, dev[0]], **settings)


@pytest.mark.parametrize('paired', [False, True])
def test_intervals_cover_over_sentences_and_seeds(paired):
    """Words of a sentence go together, seeds differ, and two probes fail on the same sentences."""
    rng = np.random.default_rng(0)
    inside, rounds = 0, 400
    for _ in range(rounds):
        words = rng.integers(1, 15, 100)
        easy = 0.15 * rng.normal(size=100)
        seeds = 0.03 * rng.normal(size=(2, 4, 1))
        chance = np.clip(np.array([0.6, 0.5])[:, None, None] + easy + seeds, 0, 1)
        right, other = rng.binomial(words, chance).astype(np.float32)
        found = uas_contrasts(words.astype(np.float32), right, other if paired else None)
        _, low, high = found.interval(0)
        inside += low <= (10 if paired else 60) <= high
    assert 0.92 <= inside / rounds <= 0.99
