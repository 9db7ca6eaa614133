"""Hypotheses about fine-tunings: their numbers, and how often verdicts on them are wrong."""

import dataclasses
import itertools

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masks import single_heads, with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses import tuned_hypotheses
from bert_secrets_jax.analyses.tuned_hypotheses import MORE_LABELS, PREDICTED, STAY_BROAD, Measured
from bert_secrets_jax.runs import verdict as populations

HEADS, FIRST = 24, 12


def world(rng, *, seeds=5, examples=60, known=1.0, alike=(1.0, 1.0), own=1.0):
    """Fine-tunings whose heads do what special tokens say, what all share, and what is their own.

    `alike` are the weights of what fine-tunings share, with few and with many labels.
    """
    heads = np.random.default_rng(7)
    given, shared, broad = heads.normal(size=HEADS), heads.normal(size=HEADS), heads.normal(size=12)
    moved = {}
    for labels, weight in zip((10, 100), alike, strict=True):
        size = known * given + weight * shared + own * rng.normal(size=(seeds, HEADS))
        of_texts = rng.gamma(2, 0.5, examples), rng.gamma(4, 0.25, (seeds, HEADS, examples))
        moved[labels] = np.exp(0.3 * size)[..., None] * of_texts[0] * of_texts[1]
    noise = rng.normal(size=(2, examples, 1)) * 0.3
    after = broad + own * rng.normal(size=(seeds, FIRST))
    shown = (each + noise[1] for each in (broad[None], after[:, None]))
    return Measured(moved, given + 3 + noise[0] + np.zeros(HEADS), *shown)


def verdicts_of(found):
    return {each.claim: each for each in tuned_hypotheses.decided(found)}


def test_numbers_are_those_of_the_means():
    found = world(np.random.default_rng(0))
    given, verdicts = found.given.mean(axis=0), verdicts_of(found)
    effects = {labels: each.mean(axis=-1) for labels, each in found.moved.items()}

    def rank(one, other):
        return scipy.stats.spearmanr(one, other)[0]

    def agreement(rows):
        return np.mean([rank(*pair) for pair in itertools.combinations(rows, 2)])

    predicted = np.mean([rank(each, given) for each in effects[100]])
    assert verdicts[PREDICTED].estimate == pytest.approx(predicted)
    stay = [rank(found.before.mean(axis=0), each.mean(axis=0)) for each in found.after]
    assert verdicts[STAY_BROAD].estimate == pytest.approx(np.mean(stay))
    more = agreement(effects[100]) - agreement(effects[10])
    assert verdicts[MORE_LABELS].estimate == pytest.approx(more)
    assert {each.population for each in verdicts.values()} == {populations.MOST_FINETUNINGS}
    alone = dataclasses.replace(found, moved={100: found.moved[100]})
    assert verdicts_of(alone)[PREDICTED] == verdicts[PREDICTED]
    assert MORE_LABELS not in verdicts_of(alone)


def test_clear_worlds_are_decided():
    rng = np.random.default_rng(1)
    true = verdicts_of(world(rng, seeds=6, known=2.0, alike=(0.2, 3.0), own=0.5))
    assert {each.verdict for each in true.values()} == {'holds'}
    false = verdicts_of(world(rng, seeds=6, known=-2.0, alike=(3.0, 0.2), own=3.0))
    assert {each.verdict for each in false.values()} == {'does not hold'}
    close = verdicts_of(world(rng, own=0.1))[STAY_BROAD]
    assert close.low < close.estimate < close.high <= 1


@pytest.mark.parametrize('worlds', [30, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.parametrize('seeds', [5, 10])
def test_verdicts_at_the_border_are_seldom_wrong(worlds, seeds, monkeypatch):
    """A verdict is wrong where neither the average nor most fine-tunings are on its side."""
    rng = np.random.default_rng(2)
    drawn = [world(rng, seeds=seeds) for _ in range(worlds)]
    ranks = [
        [scipy.stats.spearmanr(one, each)[0] for each in others]
        for found in drawn
        for one, others in (
            (found.given.mean(axis=0), found.moved[100].mean(axis=-1)),
            (found.before.mean(axis=0), found.after.mean(axis=1)),
        )
    ]
    for wrong, border in (('holds', max), ('does not hold', min)):
        for place, name in enumerate(('PREDICTED', 'STAY_BROAD')):
            truth = border(np.mean(ranks[place::2]), np.median(ranks[place::2]))
            at = dataclasses.replace(getattr(tuned_hypotheses, name), threshold=truth)
            monkeypatch.setattr(tuned_hypotheses, name, at)
        found = [[each.verdict for each in tuned_hypotheses.decided(each)] for each in drawn]
        for each in zip(*found, strict=True):
            assert each.count(wrong) / worlds <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / worlds)


def test_fine_tunings_that_do_not_fit_are_refused(model, tuned, texts):
    with pytest.raises(ValueError, match=r'tuned\[8\] has seeds'):
        bs.analyses.hypotheses(model, texts, tuned={8: tuned})


def test_fine_tunings_are_measured_with_every_head_disabled(model, tuned, texts, settings, caplog):
    """The numbers are made of sweeps over these models, and of what the first one moves."""
    models = (*tuned.models, dataclasses.replace(tuned.models[0], params=tuned.models[1].params))
    three = dataclasses.replace(tuned, seeds=(0, 1, 2), in_memory=models)
    found = bs.analyses.hypotheses(model, texts[:24], tuned={8: three}, settings=settings)
    assert 'Not learnt' in caplog.text
    predicted, broad = found.decided[10:]
    masks = with_intact(single_heads(model.config))
    effects = []
    for each in models:
        logits = sweep_examples(each, texts[:24], masks, compute=settings).logits.astype(float)
        margins = logits[..., 1] - logits[..., 0]
        effects.append(np.abs(margins[1:] - margins[0]).mean(axis=1) / margins[0].std())
    name = '[CLS] and all [SEP]'
    batches = bs.encode(model.tokenizer, texts[:24], max_length=settings.max_length)
    moved = bs.collect(model, batches, [name], maps_of=bs.shares_of_norms)[name]
    given = moved.mean.ravel()
    ranks = [scipy.stats.spearmanr(given, each)[0] for each in effects]
    assert predicted.estimate == pytest.approx(np.mean(ranks), abs=0.02)
    assert broad.claim.short == STAY_BROAD.short and 0 < broad.estimate <= 1
