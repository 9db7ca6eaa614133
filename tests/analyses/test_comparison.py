"""Runs side by side: whether their heads do alike, beyond what depth alone explains."""

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.runs.result import Result
from bert_secrets_jax.stats.agreement import alike, of_grids


class Measured(Result):
    """One statistic of heads, as a new analysis would have it."""

    grid: np.ndarray
    name: str = 'self'

    def frames(self):
        table = bs.HeadTable(self.grid, np.ones(self.grid.shape), 9.0)
        return {'heads': bs.to_frame({self.name: table})}


def world(rng, layers=12, heads=12, *, shared=0.0, depth=0.0):
    """Two grids whose heads share as much within layers, with the same effect of depth."""
    one, other = rng.normal(size=(2, layers, heads))
    other = shared * one + np.sqrt(1 - shared**2) * other
    return one + depth * np.arange(layers)[:, None], other + depth * np.arange(layers)[:, None]


def test_the_rank_correlation_is_that_of_scipy_with_ties_and_gaps():
    rng = np.random.default_rng(0)
    one, other = (np.round(each, 1) for each in world(rng, 4, 6, shared=0.5))
    found = of_grids(one, other)
    assert found.rank == pytest.approx(scipy.stats.spearmanr(one.ravel(), other.ravel()).statistic)
    one[0, 2] = other[0, 2] = np.nan
    some = ~np.isnan(one)
    found = of_grids(one, other)
    assert found.rank == pytest.approx(scipy.stats.spearmanr(one[some], other[some]).statistic)
    assert found.low < found.rank < found.high
    # Nothing is ranked where all are equal.
    assert np.isnan(of_grids(np.ones((4, 6)), other).rank)


@pytest.mark.parametrize('layers', [6, 12])
@pytest.mark.parametrize('shared', [0.0, 0.7])
def test_the_interval_holds_the_agreement_of_heads_like_these(layers, shared):
    """In 95 % of worlds; the rank correlation of normal numbers is 6/pi asin(r/2)."""
    rng, held, runs = np.random.default_rng(0), 0, 400
    truth = 6 / np.pi * np.arcsin(shared / 2)
    for _ in range(runs):
        grids = (
            each - each.mean(axis=1, keepdims=True) for each in world(rng, layers, shared=shared)
        )
        found = of_grids(*grids)
        held += found.low <= truth <= found.high
    assert abs(held / runs - 0.95) <= 3 * np.sqrt(0.05 * 0.95 / runs)


def test_depth_alone_is_no_agreement_within_layers():
    one, other = world(np.random.default_rng(0), depth=1.0)
    found = alike(one, other)
    assert found['rank_correlation'] > 0.8 and found['low'] > 0.5
    assert abs(found['within_layers']) < 0.2
    assert found['within_layers_low'] < 0 < found['within_layers_high']
    assert found['depth_profile'] > 0.9 and found['heads'] == 144


def test_models_of_other_shapes_are_compared_by_depth():
    """Twice as many layers say the same at the same depth."""
    rng = np.random.default_rng(0)
    few = np.linspace(0, 1, 3)[:, None] + rng.normal(size=(3, 8)) * 0.01
    many = np.linspace(0, 1, 5)[:, None] + rng.normal(size=(5, 4)) * 0.01
    compared = bs.analyses.comparison({'a': [Measured(few)], 'b': [Measured(many)]})
    (found,) = compared.agreements.values()
    assert found['heads'] == 0 and np.isnan(found['low']) and found['depth_profile'] == 1
    (finding,) = compared.findings()
    assert finding.sentence.startswith('Layers of a and b agree by a rank correlation of 1.00')
    assert list(compared.figures()) == ['profiles']
    profiles = compared.frames()['profiles']
    assert profiles.query('run == "b"')['relative_depth'].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert profiles.query('run == "a"')['mean'].tolist() == pytest.approx(few.mean(axis=1))


def test_the_pairs_that_agree_most_and_least_are_told():
    rng = np.random.default_rng(0)
    near, apart = world(rng, shared=0.95), world(rng)
    # Each name of an analysis stands once; equal numbers were measured twice, and say nothing.
    runs = {
        name: [Measured(one, 'alike'), Measured(other, 'apart'), Measured(near[0], 'same')]
        for name, one, other in zip('ab', near, apart, strict=True)
    }
    compared = bs.analyses.comparison(runs, missing={'a': ['prune']})
    frame = compared.frames()['agreement'].set_index('statistic')
    assert list(frame.index) == ['Measured, heads: alike', 'Measured, heads: apart']
    (told,) = compared.findings()
    assert told.estimate == np.median(frame['within_layers'])
    assert told.sentence.startswith('Heads of a and b agree by a rank correlation of ')
    assert 'prune of a' in compared.notes()[-1] and list(compared.figures()) == ['agreement']
    runs['c'] = [Measured(rng.normal(size=(12, 12)), 'alike')]
    runs['d'] = [Measured(near[0] + 0.01, 'alike')]
    compared = bs.analyses.comparison(runs)
    frame = compared.frames()['agreement'].query('statistic == "Measured, heads: alike"')
    most, least = compared.findings()
    assert most.name == 'heads: a, d' and most.estimate == pytest.approx(1) and len(frame) == 6
    assert 'c' in least.name and least.estimate == frame['within_layers'].min()


def test_a_single_run_has_nothing_to_agree_with():
    compared = bs.analyses.comparison({'a': [Measured(np.eye(3))]})
    assert not compared.agreements and 'agreement' not in compared.frames()
    with pytest.raises(ValueError, match='There are no runs'):
        bs.analyses.comparison({})
