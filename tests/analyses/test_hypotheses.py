"""Hypotheses: their numbers, and how often verdicts on them are wrong."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.hypotheses import _MEASURED, _MOVED, HYPOTHESES, _decided, decided

NAMES = (*_MEASURED, _MOVED)
DOES_NOT_HOLD = 'does not hold'
NEIGHBOURS, BROADEST = 'Early layers look at neighbours', 'The broadest head is in layer 1'
STOPS = 'Heads for full stops come after the first third'


def values_of(rng, grids, examples=60, spread=0.1):
    """Values [E, L, N] with these means [L, N]; heads of a text have noise in common."""
    shared = spread * rng.normal(size=(examples, 1, 1))
    return {
        name: grid + shared + spread * rng.normal(size=(examples, *grid.shape))
        for name, grid in grids.items()
    }


def verdicts_of(values):
    return {each.claim.short: each for each in decided(values)}


def shares_of(rng, worlds, short, grids, examples=60):
    """The shares of worlds in which a hypothesis holds, and does not hold."""
    (one,) = (each for each in HYPOTHESES if each.claim.short == short)
    counts, grids = np.zeros(2), {name: grids[name] for name in one.names}
    for _ in range(worlds):
        found = _decided(one, values_of(rng, grids, examples))
        counts += [found.verdict == each for each in ('holds', DOES_NOT_HOLD)]
        # The interval says the same.
        assert (found.low > one.claim.threshold) == (found.p_if_false <= 0.025)
        assert (found.high < one.claim.threshold) == (found.p_if_true <= 0.025)
        assert found.low <= found.estimate <= found.high
    return counts / worlds


def test_numbers_are_those_of_the_means():
    rng = np.random.default_rng(0)
    grids = {name: rng.uniform(0.1, 1, (6, 4)) for name in NAMES}
    values = values_of(rng, grids, spread=1e-4)
    # A text without a full stop counts for the other statistics.
    values['period or comma'][3] = np.nan
    found = verdicts_of(values)
    assert len(found) == 10 and found.pop(STOPS).sample == 59
    assert all(each.sample == 60 for each in found.values())
    found = verdicts_of(values)
    before, special = grids['previous token'], grids['[CLS] and all [SEP]']
    expected = {
        'Layer 1 has a head for the previous token': before[0].max(),
        'The first third has the head for the previous token': before[:2].max() - before[2:].max(),
        'Middle layers look at special tokens': special[2:4].mean() - special[0].mean(),
        'Special tokens get attention and give little': grids[NAMES[-1]].mean() / special.mean(),
        BROADEST: grids['entropy (nats)'][0].max() - grids['entropy (nats)'][1:].max(),
        STOPS: grids['period or comma'][:2].max() - grids['period or comma'][2:].max(),
    }
    for short, number in expected.items():
        each = found[short]
        assert each.estimate == pytest.approx(number, abs=1e-3)
        above = (number > each.threshold) == (each.claim.side == 'more')
        assert each.verdict == ('holds' if above else DOES_NOT_HOLD)


WORLDS = pytest.mark.parametrize('worlds', [300, pytest.param(1000, marks=pytest.mark.slow)])


def allowed(worlds):
    """At most so many verdicts are wrong, as 3 standard errors of simulations are allowed for."""
    return 0.05 + 3 * np.sqrt(0.05 * 0.95 / worlds)


@WORLDS
def test_verdicts_at_the_border_are_seldom_wrong(worlds):
    """At the threshold neither verdict is right."""
    rng, grid = np.random.default_rng(1), np.full((6, 12), 0.2)
    grids = {'previous token': grid - 0.05 * (np.arange(6) > 3)[:, None], 'next token': grid}
    assert shares_of(rng, worlds, NEIGHBOURS, grids).max() <= allowed(worlds)


@pytest.mark.slow
def test_skewed_values_in_few_texts_are_a_limit():
    """The rates of errors in docs/hypotheses.md, where all heads of a text share its noise."""
    rng, grid, rates = np.random.default_rng(1), np.full((6, 12), 0.2), []
    (one,) = (each for each in HYPOTHESES if each.claim.short == NEIGHBOURS)
    below = grid - 0.05 * (np.arange(6) > 3)[:, None]
    for examples in (20, 60):
        noise = (
            0.05 * (rng.exponential(size=(1000, examples, 1, 1)) - 1) * (np.arange(6) < 2)[:, None]
        )
        worlds = ({'previous token': below + each, 'next token': grid + 0 * each} for each in noise)
        found = [_decided(one, each).verdict == DOES_NOT_HOLD for each in worlds]
        rates.append(np.mean(found))
    assert rates == [pytest.approx(0.11, abs=0.03), pytest.approx(0.09, abs=0.03)]


@WORLDS
@pytest.mark.parametrize('examples', [20, 60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(('in_first', 'in_others'), [(0, 59), (11, 0)])
def test_heads_that_nearly_tie_make_no_verdict_wrong(worlds, examples, in_first, in_others):
    """The greatest heads of both sides are alike, and others of one side are nearly as great."""
    rng = np.random.default_rng(1)
    for gap in (0, 0.02, 0.03, 0.05):
        grid = np.full((6, 12), 0.2)
        grid[0, 0] = grid[1, 0] = 0.5
        grid[0, 1 : 1 + in_first] = grid.flat[13 : 13 + in_others] = 0.5 - gap
        grids = {'entropy (nats)': grid, 'previous token': grid}
        shorts = (BROADEST, 'Layer 1 has a head for the previous token')
        for short in shorts[: 1 + bool(in_first)]:
            shares = shares_of(rng, worlds, short, grids, examples)
            assert shares.max() <= allowed(worlds), (gap, short, shares)
        # A clear lead is seen all the same.
        grid[0, 0] += 1 / np.sqrt(examples)
        assert shares_of(rng, 20, BROADEST, grids, examples)[0] >= 0.9


def test_too_few_texts_and_layers(model, texts, config, tokenizer):
    found = bs.analyses.hypotheses(model, texts[:10])
    assert {each.verdict for each in found.decided} == {'not decidable with so small a sample'}
    assert found.decided[0].evidence.endswith('is known in 10 of 10 texts; a test needs 20.')
    assert found.findings()[0].estimate == 0
    # Texts without full stops are none of those that a test of these needs.
    values = values_of(np.random.default_rng(0), {name: np.full((6, 4), 0.2) for name in NAMES})
    for known in (8, 1, 0):
        values['period or comma'][known:] = np.nan
        each = verdicts_of(values)[STOPS]
        assert each.sample == known and each.verdict == 'not decidable with so small a sample'
        assert f'full stops and commas is known in {known} of 60 texts' in each.evidence
    cut = bs.BertConfig(**{**vars(model.config), 'num_hidden_layers': 2})
    small = bs.Pretrained(bs.Bert(cut), model.params, tokenizer)
    with pytest.raises(ValueError, match='thirds of at least 3 layers'):
        bs.analyses.hypotheses(small, texts)
