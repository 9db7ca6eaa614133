"""The effects of patches over pairs: what they say where nothing tells the two texts apart."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.patching import BOTH, assess_changes, directions_of, pairs_of
from bert_secrets_jax.checks import TooFewTextsError
from bert_secrets_jax.model.heads import unit_length
from tests.conftest import WORDS

LEVEL = 0.05


@pytest.fixture(scope='module')
def bank(pretrained):
    """Patches of one class's logit in many pairs, of which no text differs from the other."""
    rng, words = np.random.default_rng(0), [word for word in WORDS if word.isalpha()]
    clean, corrupted = ([' '.join(rng.choice(words, 4)) for _ in range(100)] for _ in range(2))
    return bs.patch(pretrained, clean, corrupted, metric='logit', answers=[1] * 100)


def sample(bank, rng, *, pairs, swapped):
    """Return some of the pairs, some of them with the two texts swapped."""
    drawn = rng.choice(len(bank.clean), pairs)
    swap = swapped(bank.clean[drawn] - bank.corrupted[drawn])
    grid = swap[:, None, None]
    denoising, noising = bank.denoising[drawn], bank.noising[drawn]
    clean, corrupted = bank.clean[drawn], bank.corrupted[drawn]
    return dataclasses.replace(
        bank,
        clean=np.where(swap, corrupted, clean),
        corrupted=np.where(swap, clean, corrupted),
        denoising=np.where(grid, noising, denoising),
        noising=np.where(grid, denoising, noising),
    )


def found(bank, swapped, draws, name=BOTH, pairs=40):
    """Return how often some head is found, and the mean share of heads that are."""
    rng, shares = np.random.default_rng(0), []
    for draw in range(draws):
        changes = directions_of(sample(bank, rng, pairs=pairs, swapped=swapped))[name]
        effects = assess_changes(changes, metric='logit', seed=draw)
        shares.append((effects.corrected <= LEVEL).mean())
    return np.mean(np.array(shares) > 0), np.mean(shares)


@pytest.mark.parametrize('draws', [20, pytest.param(400, marks=pytest.mark.slow)])
def test_how_often_heads_are_found_where_no_text_differs(bank, draws):
    """In one of twenty samples at most in both directions together."""
    coins = np.random.default_rng(1)
    rate, _ = found(bank, lambda gap: coins.random(len(gap)) < 0.5, draws)
    assert rate <= LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / draws)
    # Where the clean text is the one with the greater logit, some head is found.
    rate, _ = found(bank, lambda gap: gap < 0, draws // 2)
    assert rate > 0.5


@pytest.mark.slow
def test_one_direction_alone_finds_what_a_mixture_does(bank):
    """A head of any other text changes the logit, whatever tells the two apart."""
    coins = np.random.default_rng(1)
    rate, _ = found(bank, lambda gap: coins.random(len(gap)) < 0.5, 200, 'noising', pairs=100)
    assert rate > 0.1


def test_shares_estimates_and_pairs_that_are_made(pretrained):
    """Shares are ratios of means; pairs have two classes and one length, each text once."""
    rng, words = np.random.default_rng(1), [word for word in WORDS if word.isalpha()]
    texts = [' '.join(rng.choice(words, 6)) for _ in range(80)]
    result = bs.analyses.patching(pretrained, texts, most=6, steps=1)
    how = {'most': 6, 'seed': 0, 'compute': bs.Compute()}
    clean, corrupted = pairs_of(pretrained, texts, **how)
    assert len(clean) == len(set(clean + corrupted)) / 2 == result.total.sample
    swept = bs.sweep(
        pretrained, bs.encode(pretrained.tokenizer, clean + corrupted),
        bs.masks.none(pretrained.config),
    )  # fmt: skip
    one, two = swept.predictions[0].reshape(2, -1)
    assert (one != two).all()
    exact = bs.patch(pretrained, clean, corrupted)
    gap = (exact.clean - exact.corrupted).mean()
    heads, estimates = (result.frames()[name] for name in ('heads', 'estimates'))
    noising = heads[heads['direction'] == 'noising']
    expected = exact.noising.mean(axis=0).ravel()
    np.testing.assert_allclose(noising['difference'], expected, atol=1e-6)
    np.testing.assert_allclose(noising['share'], -expected / gap, atol=1e-5)
    assert (noising['share_low'] <= noising['share']).all()
    guess = directions_of(bs.estimate_patches(pretrained, clean, corrupted))[BOTH].mean(axis=0)
    expected = heads[heads['direction'] == BOTH]['difference'].to_numpy()
    chosen = estimates[estimates['method'] == 'gradient']
    np.testing.assert_allclose(chosen['estimate'], guess.ravel(), atol=1e-6)
    np.testing.assert_allclose(chosen['error'], guess.ravel() - expected, atol=1e-6)
    with pytest.raises(TooFewTextsError, match='Of the 1 given, 0 make such pairs'):
        pairs_of(pretrained, texts[:1], **how)
    with pytest.raises(ValueError, match='most=1 must be a whole number from 0 to .* but not 1'):
        bs.analyses.patching(pretrained, texts, most=1)
    with pytest.raises(ValueError, match='steps=0'):
        bs.analyses.patching(pretrained, texts, steps=0)


def test_regressions_and_embeddings_have_metrics_of_their_own(pretrained, model):
    """A value falls from clean to corrupted texts, and a cosine is as that of `bs.embed`."""
    rng, words = np.random.default_rng(2), [word for word in WORDS if word.isalpha()]
    texts = [' '.join(rng.choice(words, 5)) for _ in range(24)]
    how = {'most': 0, 'seed': 0, 'compute': bs.Compute(max_length=16)}
    clean, corrupted = pairs_of(bs.with_classifier(model, ('score',)), texts, **how)
    values = bs.patch(bs.with_classifier(model, ('score',)), clean, corrupted)
    assert values.metric == 'logit' and (values.clean > values.corrupted).all()
    pooling = bs.Pooling(modes=('mean',), prompts=(('q', 'the '),), prompt='q')
    embedder = bs.with_pooling(model, pooling)
    clean, corrupted = pairs_of(embedder, texts, **how)
    assert len({*clean, *corrupted}) == 2 * len(clean) > 20
    found = bs.patch(embedder, clean, corrupted)
    vectors = (jnp.asarray(bs.embed(embedder, each)) for each in (clean, corrupted))
    one, two = (np.asarray(unit_length(each)) for each in vectors)
    expected = 1 - (one * two).sum(axis=-1)
    np.testing.assert_allclose(found.clean, expected, atol=1e-5)
    np.testing.assert_allclose(found.corrupted, -expected, atol=1e-5)
    towards = one[0] - two[0]
    closeness = lambda output: unit_length(output.logits) @ towards
    first = bs.patch(embedder, clean[:1], corrupted[:1], metric=closeness)
    np.testing.assert_allclose(found.denoising[0], first.denoising[0], atol=1e-5)
    assert np.abs(first.denoising).max() > 1e-3
    result = bs.analyses.patching(embedder, texts, most=4, steps=1)
    assert result.total.outcome.unit == 'cosine' and 'Closeness:' in ' '.join(result.notes())
    for wrong in (
        (embedder, 'margin', None),
        (pretrained, 'closeness', None),
        (embedder, None, [0]),
    ):
        few = None if wrong[2] is None else wrong[2] * len(clean)
        with pytest.raises(ValueError, match="'closeness' is for embeddings"):
            bs.patch(wrong[0], clean, corrupted, metric=wrong[1], answers=few)
