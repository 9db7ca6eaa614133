"""Cosines and ranks under masks: equal to plain loops, and what is told of them."""

import itertools

import jax
import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import embeddings
from bert_secrets_jax.ablation.embeddings import (
    assess_retrieval,
    assess_similarities,
    ranks_of_relevant,
    scores_of_queries,
)
from tests.conftest import PAIRS

TEXTS = list(dict.fromkeys(text for pair in PAIRS for text in pair))
MINE = list(itertools.combinations(TEXTS, 2))


@pytest.fixture(scope='module')
def masks(model):
    return np.concatenate([bs.masks.none(model.config), bs.masks.single_heads(model.config)])


@pytest.fixture(scope='module')
def embedder(model):
    return bs.with_pooling(model, 'mean')


@pytest.fixture(scope='module')
def by_hand(embedder, masks):
    """The embedding of each text under each mask, from one pass for each."""
    run = jax.jit(embedder.bert.apply)
    (batch,) = bs.encode(embedder.tokenizer, TEXTS)
    order = np.argsort(batch.example)[-len(TEXTS) :]
    found = [
        np.asarray(run({'params': embedder.params}, **batch.inputs, head_mask=mask).logits)[order]
        for mask in masks
    ]
    return {text: np.stack(found)[:, at] for at, text in enumerate(TEXTS)}


def cosine(one, other):
    return np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)


def test_cosines_are_those_of_a_plain_loop(embedder, masks, by_hand, monkeypatch):
    """In blocks of four pairs."""
    monkeypatch.setattr(embeddings, '_HELD', 10_752)
    found = {side: bs.similarities(embedder, MINE, masks, sides=side) for side in embeddings.SIDES}
    for pair, (a, b) in enumerate(MINE):
        one, two = by_hand[a], by_hand[b]
        every = [[cosine(x, y) for y in two] for x in one]
        np.testing.assert_allclose(found['every'][..., pair], every, atol=1e-5)
    every = found['every']
    np.testing.assert_allclose(found['both'], np.einsum('mme->me', every), atol=1e-5)
    np.testing.assert_allclose(found['first'], every[:, 0], atol=1e-5)
    np.testing.assert_allclose(found['second'], every[0], atol=1e-5)
    np.testing.assert_allclose(found['one'], (every[:, 0] + every[0]) / 2, atol=1e-5)


def test_blocks_do_not_change_the_mean_that_replaces_a_head(embedder, masks, monkeypatch):
    given = embedder, MINE, masks
    whole = bs.similarities(*given, baseline='mean')
    monkeypatch.setattr(embeddings, '_HELD', 10_752)
    np.testing.assert_allclose(bs.similarities(*given, baseline='mean'), whole, atol=1e-5)


def test_what_is_no_pair_is_refused(embedder, masks):
    for wrong in (TEXTS, []):
        with pytest.raises(TypeError, match='Cosines are of pairs'):
            bs.similarities(embedder, wrong, masks)
    with pytest.raises(ValueError, match="sides='neither' must be"):
        bs.similarities(embedder, MINE, masks, sides='neither')


@pytest.mark.parametrize('sides', ['both', 'queries'])
@pytest.mark.parametrize('held', [2**27, 5_000])
def test_ranks_are_those_of_a_plain_loop(embedder, masks, by_hand, sides, held, monkeypatch):
    monkeypatch.setattr(embeddings, '_HELD', held)
    queries, documents = TEXTS[:3], [*TEXTS[2:], *TEXTS]
    relevant = np.array([(0, 1), (0, 5), (1, 0), (2, 2), (2, 1)])
    found = ranks_of_relevant(embedder, queries, documents, relevant, masks, sides=sides)
    for mask in range(len(masks)):
        other = mask if sides == 'both' else 0
        for query in range(3):
            own = [document for at, document in relevant if at == query]
            cosines = [
                cosine(by_hand[queries[query]][mask], by_hand[text][other]) for text in documents
            ]
            # The worst order of equal ones.
            order = sorted(
                range(len(documents)),
                key=lambda n: (-cosines[n], n in own, own.index(n) if n in own else 0),
            )
            ranks = [order.index(document) + 1 for document in own]
            assert found[mask][relevant[:, 0] == query].tolist() == ranks


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, (30, 25)) * (rng.random((30, 25)) < 0.7)
    cosines = rng.normal(size=(30, 25))
    ranks = 1 + (cosines[:, None, :] > cosines[:, :, None]).sum(axis=2)
    query, document = np.nonzero(grades)
    found = scores_of_queries(ranks[query, document][None], query, grades[query, document])
    expected = [sklearn.metrics.ndcg_score(grades[[n]], cosines[[n]], k=10) for n in range(30)]
    np.testing.assert_allclose(found['nDCG@10'][0], expected)
    for n, (row, place) in enumerate(zip(grades, ranks, strict=True)):
        assert found['MRR'][0, n] == 1 / place[row > 0].min()
        assert found['recall@10'][0, n] == (place[row > 0] <= 10).mean()


def world(rng, effects, pairs=100):
    """Return gold scores, and cosines that follow them: heads add a mean and noise to them."""
    gold = rng.uniform(0, 5, pairs)
    intact = 0.15 * gold + rng.normal(0, 0.2, pairs)
    noise = rng.standard_t(5, (len(effects), pairs)) * 0.02
    return gold, np.concatenate([intact[None], intact + np.array(effects)[:, None] + noise])


def test_a_head_that_carries_similarity_and_one_that_holds_it_back():
    rng = np.random.default_rng(0)
    gold, cosines = world(rng, np.zeros(6), pairs=400)
    noise = cosines[0] - 0.15 * gold
    # Without the second, cosines say less about the scores; without the third, more.
    cosines[2] -= 0.1 * gold
    cosines[3] -= 0.5 * noise
    cosines[4] = cosines[0] + rng.normal(0, 1e-4, 400)
    found = assess_similarities(cosines, names=[''] * 6, gold=gold)
    assert list(found) == ['spearman', 'pearson', 'cosine', 'size']
    for name in embeddings.CORRELATIONS:
        assert found[name].significant() == (1, 1) and found[name].best == 2
        assert found[name].worst == 1
    np.testing.assert_allclose(
        found['spearman'].value[1], scipy.stats.spearmanr(cosines[2], gold).statistic
    )
    size = np.abs(cosines[1:] - cosines[0]).mean(axis=1) / cosines[0].std()
    np.testing.assert_allclose(found['size'].difference, size)
    assert (found['size'].equivalent <= 0.05)[3] and not (found['size'].equivalent <= 0.05)[
        :3
    ].any()
    assert (found['size'].corrected <= 0.05)[1:3].all()
    # It takes more pairs to show that losing a head does nothing.
    gold, cosines = world(rng, np.zeros(1), pairs=1600)
    cosines[1] = cosines[0] + rng.normal(0, 1e-4, 1600)
    found = assess_similarities(cosines, names=[''], gold=gold)
    assert all(found[name].equivalent[0] <= 0.05 for name in embeddings.CORRELATIONS)


def test_an_interval_of_what_was_not_seen_to_change():
    """Of 60 queries, none changes: a change of one in twenty would not be seen in 5 %."""
    scores = np.tile(np.linspace(0, 1, 60), (3, 1))
    scores[2] = np.minimum(scores[2], 0.5)
    found = assess_retrieval(scores, name='MRR', names=['L1-H1', 'L1-H2'])
    assert found.high[0] == pytest.approx(0.0596, abs=1e-4) == -found.low[0]
    assert found.corrected[0] == 1 and found.corrected[1] < 0.01 and found.high[1] < 0
    assert np.isinf(found.detectable[0]) and [*found.verdict] == ['open', 'worse']
    for queries, verdict in ((60, 'open'), (1000, 'does not matter')):
        same = np.tile(np.linspace(0, 1, queries), (3, 1))
        assert {*assess_retrieval(same, name='MRR', names=['a', 'b']).verdict} == {verdict}
