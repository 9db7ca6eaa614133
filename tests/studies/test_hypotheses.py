"""Hypotheses: their numbers, and how often verdicts on them are wrong."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from studies import hypotheses as study
from studies.hypotheses import HYPOTHESES, decided, hypotheses

NAMES = tuple(dict.fromkeys(name for each in HYPOTHESES for name in each.names))
DOES_NOT_HOLD = 'does not hold'
NEIGHBOURS = 'Early layers look at neighbours, late ones less'
BROADEST = 'The broadest head is in layer 1 (nats)'
STOPS = 'Heads for full stops come after the first third'


def values_of(rng, grids, examples=60, spread=0.1):
    """Values [E, L, N] with these means [L, N]; heads of a text have noise in common."""
    shared = spread * rng.normal(size=(examples, 1, 1))
    return {
        name: grid + shared + spread * rng.normal(size=(examples, *grid.shape))
        for name, grid in grids.items()
    }


def verdicts_of(values):
    return {each.text: decided(each, values) for each in HYPOTHESES}


def shares_of(rng, worlds, short, grids, examples=60):
    """The shares of worlds in which a hypothesis holds, and does not hold."""
    (one,) = (each for each in HYPOTHESES if each.text == short)
    counts, grids = np.zeros(2), {name: grids[name] for name in one.names}
    for _ in range(worlds):
        found = decided(one, values_of(rng, grids, examples))
        counts += [found['verdict'] == each for each in ('holds', DOES_NOT_HOLD)]
        # The interval says the same.
        assert (found['low'] > one.threshold) == (found['p_if_false'] <= 0.025)
        assert (found['high'] < one.threshold) == (found['p_if_true'] <= 0.025)
        assert found['low'] <= found['number'] <= found['high']
    return counts / worlds


def test_numbers_are_those_of_the_means():
    rng = np.random.default_rng(0)
    grids = {name: rng.uniform(0.1, 1, (6, 4)) for name in NAMES}
    values = values_of(rng, grids, spread=1e-4)
    # A text without a full stop counts for the other statistics.
    values['period or comma'][3] = np.nan
    found = verdicts_of(values)
    assert len(found) == 10 and found.pop(STOPS)['sample'] == 59
    assert all(each['sample'] == 60 for each in found.values())
    found = verdicts_of(values)
    before, special = grids['previous token'], grids['[CLS] and all [SEP]']
    expected = {
        'Layer 1 has a head for the previous token': before[0].max(),
        'Middle layers look at special tokens, layer 1 less': special[2:4].mean()
        - special[0].mean(),
        'Special tokens give little: moved / attention': grids[study.MOVED].mean() / special.mean(),
        BROADEST: grids['entropy (nats)'][0].max() - grids['entropy (nats)'][1:].max(),
    }
    for short, number in expected.items():
        each, (side, threshold) = found[short], found[short]['needs'].split()
        assert each['number'] == pytest.approx(number, abs=1e-3)
        above = (number > float(threshold)) == (side == '>')
        assert each['verdict'] == ('holds' if above else DOES_NOT_HOLD)


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


@WORLDS
@pytest.mark.parametrize('examples', [20, 60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize(('in_first', 'in_others'), [(0, 59), (11, 0)])
def test_heads_that_nearly_tie_make_no_verdict_wrong(worlds, examples, in_first, in_others):
    """The greatest heads of both sides are alike, and others of one side are nearly as great."""
    rng = np.random.default_rng(1)
    for gap in (0, 0.03):
        grid = np.full((6, 12), 0.2)
        grid[0, 0] = grid[1, 0] = 0.5
        grid[0, 1 : 1 + in_first] = grid.flat[13 : 13 + in_others] = 0.5 - gap
        shares = shares_of(rng, worlds, BROADEST, {'entropy (nats)': grid}, examples)
        assert shares.max() <= allowed(worlds), (gap, shares)
        # A clear lead is seen all the same.
        grid[0, 0] += 1 / np.sqrt(examples)
        assert shares_of(rng, 20, BROADEST, {'entropy (nats)': grid}, examples)[0] >= 0.9


def test_too_few_texts_and_layers(pretrained):
    # Texts without full stops are none of those that a test of these needs.
    values = values_of(np.random.default_rng(0), {name: np.full((6, 4), 0.2) for name in NAMES})
    for known in (8, 1, 0):
        values['period or comma'][known:] = np.nan
        each = verdicts_of(values)[STOPS]
        assert each['sample'] == known and each['verdict'] == 'too few' and np.isnan(each['number'])
    few = pretrained, [bs.Example('the cat ran .', None, None, str(each)) for each in range(10)]
    assert set(hypotheses(*few)['verdict']) == {'too few'}
    cut = bs.BertConfig(**{**vars(pretrained.config), 'num_hidden_layers': 2})
    with pytest.raises(ValueError, match='at least 3 layers'):
        hypotheses(bs.Pretrained(bs.Bert(cut), pretrained.params, pretrained.tokenizer), few[1])


def test_values_are_those_of_statistics(pretrained):
    """What special tokens move is measured by norms, and all the rest by attention."""
    texts = [bs.Example('the cat saw a dog .', 'it ran .', None, str(each)) for each in range(24)]
    found = hypotheses(pretrained, texts).set_index('hypothesis')['number']
    batches = bs.encode(pretrained.tokenizer, texts)
    plain = bs.collect(pretrained, batches, [study.SPECIAL, study.ENTROPY])
    moved = bs.collect(pretrained, batches, [study.SPECIAL], maps_of=bs.shares_of_norms)
    share = moved[study.SPECIAL].mean.mean() / plain[study.SPECIAL].mean.mean()
    assert found['Special tokens give little: moved / attention'] == pytest.approx(share, abs=1e-5)
    nats = plain[study.ENTROPY].mean.mean(axis=1)
    expected = pytest.approx(nats[0] - nats[1], abs=1e-5)
    assert found['Layer 1 is broader than layer 2 (nats)'] == expected
