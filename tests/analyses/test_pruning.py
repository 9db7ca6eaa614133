"""Pruning: scores beside forward passes, what is chosen where, speed, and what is refused."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.finetune.metrics import METRICS

SHARES = (0, 0.25, 0.5, 0.75)


@pytest.fixture(scope='module')
def found(tuned, texts):
    return bs.analyses.pruning(
        tuned, texts[12:], measured_on=texts[:12], shares=SHARES, draws=3, metric='accuracy',
        tolerance=0.2, max_length=32,
    )  # fmt: skip


def score(model, texts, mask):
    batches = bs.encode(model.tokenizer, texts, max_length=32)
    predictions = np.zeros(len(texts))
    for batch in batches:
        output = model.bert.apply(
            {'params': model.params}, **batch.inputs, head_mask=mask, baseline='zero'
        )
        real = batch.example >= 0
        predictions[batch.example[real]] = np.asarray(output.logits).argmax(axis=-1)[real]
    return METRICS['accuracy'](predictions, np.array([each.label for each in texts]))


def test_scores_are_those_of_the_masked_models(found, tuned, texts):
    assert found.kept.tolist() == [12, 9, 6, 3]
    for place, model in enumerate(tuned.models):
        assert found.intact[place] == pytest.approx(score(model, texts[12:], np.ones((3, 4))))
        for order, stays in found.stays.items():
            for step in range(len(SHARES)):
                mask = (stays[place] * len(SHARES) > step + 0.5).astype(np.float32)
                assert mask.sum() == found.kept[step]
                expected = score(model, texts[12:], mask) - found.intact[place]
                assert found.curves[order].draws[place, 0, step] == pytest.approx(expected)
    assert found.curves['random'].draws.shape == (2, 3, 4)
    assert (found.curves['gradient'].difference[0] == 0).all()


def test_the_sparsest_is_chosen_elsewhere(found, tuned, texts):
    for model, chosen in zip(tuned.models, found.chosen, strict=True):
        there = score(model, texts[:12], chosen.mask) - score(model, texts[:12], np.ones((3, 4)))
        assert chosen.where_chosen == pytest.approx(there) and there >= -0.2
        here = score(model, texts[12:], chosen.mask) - score(model, texts[12:], np.ones((3, 4)))
        assert chosen.difference == pytest.approx(here)
        assert chosen.low <= here <= chosen.high


def test_random_orders_follow_the_seed(tuned, texts):
    options = {'measured_on': texts[:8], 'shares': (0, 0.5), 'max_length': 32, 'anew': False}
    one, again, other = (
        bs.analyses.pruning(tuned.models[0], texts[:8], methods=['confidence'], seed=seed, draws=4,
                            **options)
        for seed in (0, 0, 1)
    )  # fmt: skip
    draws = [each.curves['random'].draws for each in (one, again, other)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert list(one.curves) == ['confidence', 'random'] and one.times is None
    assert 'gradient, anew' not in one.curves and len(one.frames()) == 3


def test_it_goes_on_where_it_was_killed(tuned, texts, tmp_path, monkeypatch):
    options = {
        'measured_on': texts[:8], 'shares': (0, 0.5), 'max_length': 32, 'anew': False,
        'methods': ['confidence'], 'draws': 1,
    }  # fmt: skip
    first = bs.analyses.pruning(tuned, texts[:8], folder=tmp_path, **options)
    assert list(tmp_path.rglob('*.npz'))
    again = bs.analyses.pruning(tuned, texts[:8], folder=tmp_path, **options)
    assert str(first) == str(again)


@pytest.mark.slow
def test_the_sparsest_model_is_timed(tuned, texts):
    found = bs.analyses.pruning(
        tuned.models[0], texts, measured_on=texts, shares=SHARES, draws=0, methods=['confidence'],
        anew=False, tolerance=0.9, batch_sizes=(1, 2), max_length=32,
    )  # fmt: skip
    assert found.chosen[0].kept == 3 and found.times is not None
    speed = found.frames()['speed']
    assert speed['examples_at_once'].tolist() == [1, 2]
    assert (speed[['full_per_second', 'cut_per_second']] > 0).all(axis=None)
    assert found.times.weight_bytes[3] < found.times.weight_bytes[0]
    assert any(each.name.startswith('speed, 2') for each in found.findings())


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'draws': -1}, 'draws=-1 must be at least 0'),
        ({'tolerance': 1.0}, 'tolerance=1.0 at least 0 and below 1'),
        ({'metric': 'pearson'}, "'pearson' is not for 2 classes"),
        ({'shares': (0.5, 0.2)}, 'must ascend'),
        ({'permutations': 2}, 'must be even and at least 4'),
    ],
)
def test_what_is_refused(tuned, texts, options, words):
    with pytest.raises(ValueError, match=words):
        bs.analyses.pruning(
            tuned,
            texts,
            **{'measured_on': texts, 'max_length': 32, 'methods': ['confidence']} | options,
        )
