"""Subnetworks, trained again: beside fine-tuning by hand."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.subnetworks import surviving_heads
from bert_secrets_jax.pruning.removal import subnetwork_masks, without_heads


@pytest.fixture
def found(results):
    return results['subnetworks']


def test_each_seed_is_trained_again(found, model, tuned, texts):
    assert found.seeds == (0, 1) and found.metric == tuned.metrics[0]
    compute = bs.Compute(max_length=32)
    good = surviving_heads(tuned.models[1], texts[:12], found.metric, share=0.9, compute=compute)
    masks = subnetwork_masks(good, seed=1)
    for kind, mask in masks.items():
        np.testing.assert_array_equal(found.masks[kind][1], mask)
    again = bs.finetune(
        without_heads(model, masks['random']), texts, texts, seeds=(1,), max_length=32,
        metrics=tuned.metrics, epochs=1, batch_size=8, learning_rate=1e-3,
    )  # fmt: skip
    assert found.retrained['random'][1] == pytest.approx(again.scores[0][found.metric])
    assert found.pruned['full model'][1] == pytest.approx(tuned.scores[1][found.metric])


def test_equal_seeds_have_no_interval(found):
    frame = found.frames()['scores'].set_index('subnetwork')
    assert list(frame.index) == ['full model', 'good', 'random', 'bad']
    assert frame.loc['full model', 'difference_points'] == 0
    lead = 100 * (found.retrained['good'] - found.retrained['random']).mean()
    same = {kind: np.full(2, 0.5) for kind in found.retrained}
    equal = dataclasses.replace(found, retrained=same)
    ours, even = (
        next(each for each in result.findings() if each.name.startswith('good less random'))
        for result in (found, equal)
    )
    assert ours.estimate == pytest.approx(lead)
    assert even.estimate == 0 and np.isnan([even.p, even.low, even.high]).all()


def test_survivors_keep_the_share_of_the_score(tuned, texts):
    given, compute = (tuned.models[0], texts, 'accuracy'), bs.Compute(max_length=32)
    few, most = (surviving_heads(*given, share=share, compute=compute) for share in (0.5, 0.999))
    assert few.sum() <= most.sum() and ((few == 0) | (most == 1)).all()


@pytest.mark.parametrize('share', [0.0, 1.0, 1.5])
def test_a_share_is_refused_before_anything_is_pruned(model, tuned, texts, share):
    with pytest.raises(ValueError, match='share=.* must be a number from 1e-06 to 0.999999'):
        bs.analyses.subnetworks(model, tuned, texts, texts, share=share)
