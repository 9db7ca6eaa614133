"""Savings by removal: every way in its turn, sizes of weights by hand, intervals that hold."""

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from benchmarks import removed_heads
from benchmarks.removed_heads import RemovalTimes, time_removal
from bert_secrets_jax.pruning.removal import cut

MASK = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])


def times(seconds):
    seconds = np.asarray(seconds, float)
    sizes = seconds.shape[1]
    return RemovalTimes(
        MASK, tuple(range(1, sizes + 1)), 8, seconds, np.ones(4, int), np.ones((4, sizes), int)
    )


def test_a_model_is_measured_in_four_ways(pretrained):
    found = time_removal(pretrained, MASK, batch_sizes=[2], length=8, rounds=2)
    assert found.seconds.shape == (4, 1, 2) and (found.seconds > 0).all()
    assert (found.batch_sizes, found.length) == ((2,), 8)
    # Six of twelve heads, each of 3 * (D * H + H) + H * D numbers of four bytes.
    before, masked, apart, after = found.weight_bytes
    assert before == masked == apart == 4 * sum(
        leaf.size for leaf in jax.tree.leaves(pretrained.params)
    )  # fmt: skip
    assert before - after == 4 * 6 * (3 * (24 * 6 + 6) + 6 * 24)
    assert found.temporary_bytes.shape == (4, 1)
    assert 'seconds=float64[4, 1, 2]' in repr(found)


def test_what_is_gone_takes_no_memory(pretrained, optimized):
    """The maps of removed heads, which the output has as zeros, are not made."""
    ids = removed_heads._wordpieces(pretrained, (8, 32), 0)
    (_, before), (_, after) = (
        removed_heads._compiled(model, ids, None)
        for model in (
            cut(pretrained, np.ones((3, 4), bool)),
            bs.remove_heads(pretrained, np.zeros((3, 4))),
        )
    )
    # At least the maps of one layer, in float32.
    assert before - after > 4 * 8 * 4 * 32 * 32


def test_gains_are_medians_of_ratios_in_one_round():
    rng = np.random.default_rng(0)
    load = rng.lognormal(size=(1, 2, 9))  # other work of the machine in a round
    seconds = np.array([3.0, 3.0, 2.0, 1.5])[:, None, None] * load
    found = times(seconds)
    np.testing.assert_allclose(found.gains(), 1.0)
    np.testing.assert_allclose(found.gains(over='apart'), 1 / 3)
    np.testing.assert_allclose(found.gains('masked'), 0, atol=1e-12)
    assert np.isnan(times(np.ones((4, 1, 3))).gains()[:, 1:]).all()


def test_a_cut_model_is_no_start(pretrained):
    cut_before = bs.remove_heads(pretrained, MASK)
    with pytest.raises(ValueError, match='ask the whole model'):
        time_removal(cut_before, MASK, batch_sizes=(1,), length=8, rounds=1)


def test_what_is_printed(pretrained, tmp_path, monkeypatch, capsys):
    bs.save_pretrained(pretrained, tmp_path / 'model')
    arguments = [str(tmp_path / 'model'), '--heads=L1-H2,L3-H4', '--batch_sizes=1,2', '--length=8']
    monkeypatch.setattr('sys.argv', ['removed_heads', *arguments])
    removed_heads.main()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith('1 at once: ') and first.endswith('%) in all; published: 1.9%')
    assert second.startswith('2 at once: ') and second.endswith('%) in all')
