"""Statements about pairs of tokens, in worlds where it is known what they do."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.token_pairs import TokenPairs, labelled
from bert_secrets_jax.contributions.token_pairs import PairedTokens
from tests.conftest import rarely

TOKENS = ('[CLS]', 'the', 'cat', 'saw', 'it', '[SEP]'), ('[CLS]', 'a', 'dog', 'saw', '[SEP]')
SPECIAL = tuple(np.array([each.startswith('[') for each in side]) for side in TOKENS)


def pair_of(rng, *, agreement=0.0, alike=0.0, error=0.0):
    """Random contributions, and deletion that agrees with them by so much."""
    contributions = rng.normal(0, 0.01, (6, 5))
    contributions[3, 3] += alike
    noise = rng.normal(0, 0.01, (6, 5))
    together = agreement * contributions + np.sqrt(1 - agreement**2) * noise
    first, second = (np.where(side, np.nan, 0.5) for side in SPECIAL)
    similarity = contributions.sum() - 0.2 - error
    both = together + first[:, None] + second[None] - similarity
    return PairedTokens(TOKENS, SPECIAL, similarity, -0.2, contributions, first, second, both)


def result_of(rng, *, count=12, **given):
    pairs = tuple(pair_of(rng, **given) for _ in range(count))
    return labelled(TokenPairs(pairs, 4, 'cosine'), 2)


def named(result):
    return {each.name: each for each in result.findings()}


AGREES = 'agreement with the interaction by deletion'
ALIKE = 'contribution of two tokens alike, less that of others'


@pytest.mark.parametrize('count', rarely([5, 30], often=[5]))
def test_intervals_err_as_rarely_as_they_say(count):
    """In worlds without agreement or preference, and with power where there is some."""
    worlds, wrong, seen = 200, np.zeros(2), np.zeros(2)
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        for counts, given in ((wrong, {}), (seen, {'agreement': 0.5, 'alike': 0.03})):
            found = named(result_of(rng, count=count, **given))
            counts += [found[name].low > 0 or found[name].high < 0 for name in (AGREES, ALIKE)]
    # 5 % of 200 are 10; fewer than 3 or more than 18 happen once in a hundred such tests.
    assert (wrong <= 18).all() and (wrong >= 3).all()
    assert (seen >= (0.8 if count == 5 else 0.99) * worlds).all()


def test_what_is_said_is_what_the_frames_hold():
    result = result_of(np.random.default_rng(0), agreement=0.9, alike=0.05)
    texts, tokens = (result.frames()[name] for name in ('texts', 'tokens'))
    found = named(result)
    assert len(texts) == 12 and len(tokens) == 2 * 30
    assert found[AGREES].estimate == pytest.approx(texts['agreement'].mean())
    assert found[AGREES].estimate > 0.7 and found[ALIKE].low > 0
    difference = texts['same_token'] - texts['other_tokens']
    assert found[ALIKE].estimate == pytest.approx(difference.mean())
    row = tokens.set_index(['pair', 'token_a', 'token_b']).loc[(1, 'saw', 'saw')]
    pair = result.pairs[0]
    assert row['contribution'] == pair.contributions[3, 3]
    assert row['interaction'] == pytest.approx(
        pair.similarity - pair.without_first[3] - pair.without_second[3] + pair.without_both[3, 3]
    )
    sums = texts['contributions'] + texts['reference'] - texts['similarity']
    np.testing.assert_allclose(texts['error'], sums, atol=1e-12)
    assert not any(each.warning for each in result.findings())


def test_contributions_that_do_not_sum_are_said_first():
    first, *_ = result_of(np.random.default_rng(0), error=0.05).findings()
    assert first.warning and first.sentence.startswith('Contributions miss a similarity by 0.05')
    assert 'a later layer than 4' in first.sentence


def test_texts_of_which_nothing_can_be_ranked():
    tokens = ('[CLS]', 'cat', '[SEP]'), ('[CLS]', 'dog', '[SEP]')
    special = (np.array([True, False, True]),) * 2
    alone = np.where(special[0], np.nan, 0.5)
    pair = PairedTokens(tokens, special, 0.5, 0.5, np.zeros((3, 3)), alone, alone, np.ones((3, 3)))
    result = TokenPairs((pair,), 4, 'cosine')
    assert not named(result)
    assert 'nan' not in str(result)


def test_it_is_asked_of_pairs(model, texts):
    found = bs.analyses.token_pairs(
        model, texts, steps=2, pooling='mean', max_examples=2, compute=bs.Compute(max_length=32)
    )
    assert len(found.pairs) == 2 and found.layer == 1
    with pytest.raises(ValueError, match='pairs of texts, such as'):
        bs.analyses.token_pairs(model, ['a cat'], pooling='mean')
    with pytest.raises(ValueError, match='shown=-1 must be a whole number from 0'):
        bs.analyses.token_pairs(model, texts, pooling='mean', shown=-1)
