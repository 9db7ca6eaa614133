"""Effects on a score, on a score over seeds and on a loss: laws that hold of all of them."""

import dataclasses

import numpy as np
import pytest

from bert_secrets_jax.ablation import masked_lm
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.stats import confusion, scores, seeds, significance
from bert_secrets_jax.stats.effects import Effects, Outcome

SCORES = [('score', metric) for metric in significance.METRICS]
OVER_SEEDS = [('seeds', metric) for metric in ('accuracy', 'f1', 'pearson', 'spearman')]
KINDS = [*SCORES, *OVER_SEEDS, ('loss', '')]
# Correlations are undefined where all predictions are the same.
CORRELATIONS = [each for each in KINDS if each[1] in ('pearson', 'spearman')]
NUMBERS = ('difference', 'low', 'high', 'p_value', 'corrected')


def drawn(kind, seed, *, masks=4, examples=100, runs=6, changed=0.1):
    """Answers or losses [..., M, E], the intact model's, and labels: they differ by chance."""
    rng = np.random.default_rng(seed)
    what, metric = kind
    if what == 'loss':
        hidden = rng.integers(1, 25, examples)
        intact = rng.gamma(2.0, 1.0, examples) * hidden
        noise = rng.normal(size=(masks, examples)) * (rng.random((masks, examples)) < 2 * changed)
        return intact + 0.3 * np.sqrt(hidden) * noise, intact, hidden
    several = (runs,) if what == 'seeds' else ()
    if metric in confusion.METRICS:
        labels = rng.integers(0, 2, examples)
        shared = np.where(rng.random((*several, 1, examples)) < 0.2, 1 - labels, labels)
        shared = np.repeat(shared, 1 + masks, axis=-2)
        models = np.where(rng.random(shared.shape) < changed, 1 - shared, shared)
    else:
        labels = rng.integers(0, 11, examples) / 2
        shared = labels + rng.normal(size=(*several, 1, examples))
        models = shared + 3 * changed * rng.normal(size=(*several, 1 + masks, examples))
    return models[..., 1:, :], models[..., 0, :], labels


def assessed(kind, masked, intact, last, **options):
    what, metric = kind
    names = [f'L1-H{mask + 1}' for mask in range(masked.shape[-2])]
    if what == 'loss':
        return masked_lm.assess_losses(masked, intact, last, names=names)
    if what == 'seeds':
        alone = [
            assessed(('score', metric), *of_seed, last, rounds=99)
            for of_seed in zip(masked, intact, strict=True)
        ]
        return seeds.assess_seeds(alone, masked, intact, last)
    return significance.assess(
        metric, masked, intact, last, names=names, **{'rounds': 5000} | options
    )


@pytest.mark.parametrize('kind', KINDS)
def test_the_order_of_masks_examples_and_seeds_does_not_matter(kind):
    """Unless numbers are drawn: there are few enough examples here for all swaps."""
    masked, intact, last = drawn(kind, 8, examples=10)
    masks, examples = [2, 0, 3, 1], np.random.default_rng(0).permutation(10)
    found = assessed(kind, masked, intact, last)
    assert np.ptp(found.difference) > 0
    # Nor do other masks for one, but where those of a loss say how far texts can change.
    alone = assessed(kind, masked[..., :1, :], intact, last)
    corrected = assessed(kind, masked[..., masks, :], intact, last).corrected
    np.testing.assert_allclose(corrected, found.corrected[masks], atol=1e-12)
    other = masked[..., masks, :][..., examples], intact[..., examples], last[examples]
    if kind[0] == 'seeds':
        other = other[0][::-1], other[1][::-1], other[2]
    other = assessed(kind, *other)
    for name in NUMBERS[:-1]:
        expected = getattr(found, name)
        own = expected if kind[0] == 'loss' else getattr(alone, name)
        np.testing.assert_allclose(own[0], expected[0], atol=1e-12, err_msg=name)
        np.testing.assert_allclose(getattr(other, name), expected[masks], atol=1e-12, err_msg=name)
    if kind[0] == 'seeds':
        expected = found.seeds.difference[::-1, masks]
        np.testing.assert_allclose(other.seeds.difference, expected, atol=1e-12)
        # Two numbers are estimated from random halves of the examples.
        drawn_anew = {'reliability': 0.0, 'beyond_noise': 0.0}
        both = (
            dataclasses.astuple(dataclasses.replace(each.seeds.agreement, **drawn_anew))
            for each in (other, found)
        )
        np.testing.assert_allclose(*both, atol=1e-12)


@pytest.mark.parametrize('kind', KINDS)
def test_a_mask_that_changes_nothing(kind):
    masked, intact, last = drawn(kind, 6, masks=2, changed=0)
    found = assessed(kind, masked, intact, last)
    for values, expected in (
        (found.difference, 0), (found.p_value, 1), (found.corrected, 1), (found.value, found.intact)
    ):  # fmt: skip
        np.testing.assert_allclose(values, expected, atol=1e-12)
    assert (found.low <= 0).all() and (found.high >= 0).all() and found.significant() == (0, 0)


@pytest.mark.parametrize('kind', KINDS)
def test_blocks_change_nothing(kind, monkeypatch):
    sample = drawn(kind, 1, masks=12, examples=8, changed=0.3)
    whole = assessed(kind, *sample, rounds=256)
    monkeypatch.setattr(scores, '_BLOCK', 100)
    parts = assessed(kind, *sample, rounds=256)
    for name in NUMBERS:
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-12)


@pytest.mark.parametrize('kind', KINDS)
def test_large_effects_are_found_in_their_direction(kind):
    masked, intact, last = drawn(kind, 20)
    what, metric = kind
    if what == 'loss':
        masked[0], masked[1] = 0.3 * intact, 3 * intact
    else:
        masked[..., 0, :], masked[..., 1, :] = last, last.max() - last
    found = assessed(kind, masked, intact, last)
    better, worse = (0, 1) if what != 'loss' else (1, 0)
    assert found.low[better] > 0 > found.high[worse] and found.significant() == (1, 1)
    assert (found.best, found.worst) == (0, 1)
    assert {found.names[index] for index in found.extremes(1)} == {'L1-H1', 'L1-H2'}
    assert (found.low <= found.high).all() and (found.p_value <= found.corrected).all()
    if what != 'loss':
        score = metrics.METRICS[metric]
        expected = np.mean([score(each, last) for each in np.atleast_2d(intact)])
        assert found.intact == pytest.approx(expected)
        assert found.value[0] == pytest.approx(1)
    if what == 'seeds':
        assert np.flatnonzero(np.abs(found.difference) >= found.critical).tolist() == [0, 1]
        assert found.seeds.significant_share[:2].tolist() == [1, 1]
        for p_values in (found.seeds.holm, found.seeds.max_t):
            assert np.flatnonzero(p_values <= 0.05).tolist() == [0, 1]


@pytest.mark.parametrize('kind', CORRELATIONS)
def test_undefined_differences_stay_undefined(kind):
    masked, intact, last = drawn(kind, 20, masks=2, examples=20)
    # In one of the seeds is enough.
    masked[(2, 0) if kind[0] == 'seeds' else 0] = 1
    found = assessed(kind, masked, intact, last, rounds=20)
    for name in NUMBERS:
        assert np.isnan(getattr(found, name)).tolist() == [True, False], name
    assert found.best == found.worst == 1 and found.extremes(3) == [1]
    assert sum(found.significant()) <= 1
    intact[..., :] = 1
    nothing = assessed(kind, masked, intact, last, rounds=20)
    assert np.isnan(nothing.difference).all() and nothing.extremes(3) == []


def test_significant_masks_are_counted_by_sign():
    difference = np.array([-0.1, 0.1, 0.1, 0.1])
    p_value = np.full(4, 0.01)
    found = Effects(
        names=(), difference=difference, low=difference, high=difference, sample=9,
        p_value=p_value, corrected=p_value * [1, 1, 10, 10],
        benjamini_hochberg=p_value * [1, 1, 1, 10],
    )  # fmt: skip
    assert found.significant() == (1, 1)
    assert found.significant(correction='benjamini_hochberg') == (1, 2)
    assert found.significant(correction='none') == (1, 3)
    assert found.significant(level=0.005, correction='none') == (0, 0)


ONE_SEED = {'masked': np.zeros((1, 3, 6)), 'intact': np.zeros((1, 6))}
ONE_TEXT = {'masked': np.ones((2, 1)), 'intact': np.ones(1), 'last': np.ones(1)}


@pytest.mark.parametrize(
    ('kind', 'change', 'message'),
    [
        (('seeds', 'bleu'), {}, "metric='bleu' must be 'accuracy', .* 'spearman'"),
        (('seeds', 'f1'), ONE_SEED, 'two seeds and two'),
        (('loss', ''), {'masked': np.full((2, 6), np.nan)}, 'NaN or infinity'),
        (('loss', ''), ONE_TEXT, 'at least 2, and there are 1'),
    ],
)
def test_what_does_not_fit_is_named(kind, change, message, untyped):
    several = (4,) if kind[0] == 'seeds' else ()
    given = {
        'masked': np.zeros((*several, 2, 6)), 'intact': np.zeros((*several, 6)), 'last': np.ones(6)
    } | change  # fmt: skip
    with pytest.raises((ValueError, FloatingPointError), match=message):
        if several:
            ones = np.ones(2)
            alone = Effects(
                names='ab', difference=ones, low=ones, high=ones, p_value=ones, corrected=ones,
                sample=6, outcome=Outcome(kind[1]),
            )  # fmt: skip
            seeds.assess_seeds([alone] * 4, *given.values())
        assessed(kind, **given)


@pytest.mark.parametrize(
    ('changes', 'red'),
    [
        # The head that varies most is no sign of what is worst, even if it changes most.
        ({'detectable': np.array([0.012, 0.057])}, 0.057),
        ({'detectable': np.array([0.012, np.inf]), 'corrected': np.array([0.04, 1.0])}, 0.012),
        ({'detectable': np.array([0.001, 0.002]), 'corrected': np.array([1.0, 0.01])}, 0.026),
        # Half a width is what one test detects, a whole one what one of many does.
        ({}, 0.08),
        ({'low': np.full(2, np.nan)}, 1.0),
    ],
)
def test_full_red_is_what_texts_can_show_and_never_noise(changes, red):
    known = {'low': np.array([-0.001, -0.014]), 'high': np.array([0.002, 0.066])}
    known |= {'corrected': np.array([1.0, 0.94]), 'p_value': np.array([0.5, 0.2])}
    about = {'names': ['L1-H1', 'L1-H2'], 'difference': np.array([0.001, 0.026]), 'sample': 160}
    for more_is_better, sign in ((False, 1), (True, -1)):
        outcome = Outcome('it', more_is_better=more_is_better)
        assert Effects(**about, **known | changes, outcome=outcome).red == pytest.approx(sign * red)
