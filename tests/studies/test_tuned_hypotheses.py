"""Hypotheses about fine-tunings: their numbers, and how often verdicts on them are wrong."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from studies import hypotheses, tuned_hypotheses
from studies.tuned_hypotheses import MORE_LABELS, PREDICTED, STAY_BROAD, Measured, measured

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
    return {each['hypothesis']: each for each in tuned_hypotheses.decided(found)}


def test_numbers_are_those_of_the_means():
    found = world(np.random.default_rng(0))
    given, verdicts = found.given.mean(axis=0), verdicts_of(found)
    effects = {labels: each.mean(axis=-1) for labels, each in found.moved.items()}

    def rank(one, other):
        return scipy.stats.spearmanr(one, other)[0]

    def agreement(rows):
        return np.mean([rank(*pair) for pair in itertools.combinations(rows, 2)])

    predicted = np.mean([rank(each, given) for each in effects[100]])
    assert verdicts[PREDICTED.text]['number'] == pytest.approx(predicted)
    stay = [rank(found.before.mean(axis=0), each.mean(axis=0)) for each in found.after]
    assert verdicts[STAY_BROAD.text]['number'] == pytest.approx(np.mean(stay))
    more = agreement(effects[100]) - agreement(effects[10])
    assert verdicts[MORE_LABELS.text]['number'] == pytest.approx(more)
    alone = verdicts_of(found._replace(moved={100: found.moved[100]}))
    assert alone == {each.text: verdicts[each.text] for each in (PREDICTED, STAY_BROAD)}


def test_clear_worlds_are_decided():
    rng = np.random.default_rng(1)
    true = verdicts_of(world(rng, seeds=6, known=2.0, alike=(0.2, 3.0), own=0.5))
    assert {each['verdict'] for each in true.values()} == {'holds'}
    false = verdicts_of(world(rng, seeds=6, known=-2.0, alike=(3.0, 0.2), own=3.0))
    assert {each['verdict'] for each in false.values()} == {'does not hold'}
    close = verdicts_of(world(rng, own=0.1))[STAY_BROAD.text]
    assert close['low'] < close['number'] < close['high'] <= 1


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
            at = getattr(tuned_hypotheses, name)._replace(threshold=truth)
            monkeypatch.setattr(tuned_hypotheses, name, at)
        found = [[row['verdict'] for row in tuned_hypotheses.decided(each)] for each in drawn]
        for each in zip(*found, strict=True):
            assert each.count(wrong) / worlds <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / worlds)


TEXTS = [
    bs.Example(f'the {noun} {verb} .', None, number % 2, f'{number}')
    for number, (noun, verb) in enumerate(itertools.product(
        ('cat', 'dog', 'bird', 'house', 'man', 'woman'), ('ran', 'saw', 'liked', 'slept')
    ))
]  # fmt: skip


@pytest.fixture(scope='module')
def tuned(model):
    """Three seeds, which learn nothing in two steps."""
    how = {'epochs': 1, 'batch_size': 8, 'learning_rate': 1e-3, 'max_length': 32}
    return bs.finetune(model, TEXTS, TEXTS, seeds=3, **how)


def test_fine_tunings_that_do_not_fit_are_refused(model, tuned):
    two = dataclasses.replace(tuned, seeds=(0, 1), in_memory=tuned.models[:2])
    with pytest.raises(ValueError, match=r'tuned\[8\] needs 3 seeds or more of this model'):
        measured(model, {8: two}, TEXTS)
    with pytest.raises(ValueError, match='need the same seeds'):
        measured(model, {8: two, 9: tuned}, TEXTS)
    same = dataclasses.replace(
        tuned.models[0], params=jax.tree.map(np.zeros_like, tuned.models[0].params)
    )
    with pytest.raises(ValueError, match='it has learnt nothing'):
        tuned_hypotheses.answers_moved(same, TEXTS)


def test_fine_tunings_are_measured_with_every_head_disabled(model, tuned):
    """The numbers are made of sweeps over these models, and of what the first one moves."""
    predicted, broad = verdicts_of(measured(model, {8: tuned}, TEXTS)).values()
    masks = bs.masks.with_intact(bs.masks.single_heads(model.config))
    effects = []
    for each in tuned.models:
        logits = bs.sweep_examples(each, TEXTS, masks).logits.astype(float)
        margins = logits[..., 1] - logits[..., 0]
        effects.append(np.abs(margins[1:] - margins[0]).mean(axis=1))
    name = '[CLS] and all [SEP]'
    batches = bs.encode(model.tokenizer, TEXTS)
    moved = bs.collect(model, batches, [name], maps_of=bs.shares_of_norms)[name]
    ranks = [scipy.stats.spearmanr(moved.mean.ravel(), each)[0] for each in effects]
    assert predicted['number'] == pytest.approx(np.mean(ranks), abs=0.02)
    assert 0 < broad['number'] <= 1


def test_both_run_from_their_commands(model, tuned, monkeypatch, capsys):
    for name, value in {
        'from_pretrained': model, 'read_glue': TEXTS, 'read_corpus': TEXTS, 'finetune': tuned,
    }.items():  # fmt: skip
        monkeypatch.setattr(bs, name, lambda *_, value=value, **how: value)
    tuned_hypotheses.main('tiny', 'GLUE', '1e-3', '16', '24')
    assert capsys.readouterr().out.count('rank correlation') == 2
    hypotheses.main('tiny')
    assert 'Layer 1 is broader' in capsys.readouterr().out
