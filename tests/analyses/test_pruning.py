"""Pruning: scores beside forward passes, what is chosen where, speed, and what is refused."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.pruning import assemble
from bert_secrets_jax.analyses.verdicts import HEADS_CAN_GO, ORDER_TELLS
from bert_secrets_jax.finetune.metrics import METRICS
from bert_secrets_jax.pruning.curves import PrunedModel
from tests.conftest import forward

SHARES = (0, 0.25, 0.5, 0.75)
COMPUTE = bs.Compute(max_length=32)


@pytest.fixture(scope='module')
def found(tuned, texts):
    return bs.analyses.pruning(
        tuned, texts[12:], measured_on=texts[:12], shares=SHARES, draws=3, metric='accuracy',
        tolerance=0.2, compute=COMPUTE,
    )  # fmt: skip


def score(model, texts, mask):
    batches = bs.encode(model.tokenizer, texts, max_length=32)
    predictions = np.zeros(len(texts))
    for batch in batches:
        output = forward(model.bert, model.params, batch.inputs, head_mask=mask, baseline='zero')
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
    """And the whole model comes first, also where its share is not asked for."""
    options = {
        'measured_on': texts[:8], 'shares': (0.5, 0.75), 'compute': COMPUTE,
        'anew': False, 'methods': ['confidence'], 'draws': 4,
    }  # fmt: skip
    one, again = (bs.analyses.pruning(tuned.models[0], texts[:8], **options) for _ in range(2))
    np.testing.assert_array_equal(one.curves['random'].draws, again.curves['random'].draws)
    assert list(one.curves) == ['confidence', 'random']
    assert one.kept.tolist() == [12, 6, 3] and one.heads == 12
    assert one.frames()['curves']['share_kept'].unique().tolist() == [1, 0.5, 0.25]
    assert len(one.frames()) == 3


def of_answers(right, random=(), *, shared=0, classes=2, seeds=1):
    """The result of models of ten heads with these shares [K] of right answers, in any order."""
    steps, labels = len(right), np.ones(400)
    masks = (np.arange(10) >= 2 * np.arange(steps)[:, None]).reshape(1, steps, 2, 5) * np.float32(1)

    def answers(shares):
        return (np.arange(400) < 400 * np.asarray(shares)[..., None]).astype(float)

    predictions = {'gradient': answers([right])}
    if len(random):
        predictions['random'] = answers(random)
    model = PrunedModel(
        masks={name: np.repeat(masks, len(each), 0) for name, each in predictions.items()},
        predictions=predictions, intact=answers(right)[0],
        choosing={'gradient': np.asarray(right, float)}, classes=classes,
    )  # fmt: skip
    return assemble(
        [model] * seeds, labels, 'accuracy', seeds=range(seeds), tolerance=0.05,
        others='40 other examples', shared=shared, subject=bs.analyses.Subject(),
    )  # fmt: skip


def verdict_on(claim, found):
    return next(each for each in found.verdicts() if each.claim == claim)


def test_ranks_among_random_orders():
    # A step that removes nothing is no part of a lead.
    lead = of_answers([1, 1, 1], [[1, 0, 0]] * 20)
    assert lead.lead[0] == 1 and verdict_on(ORDER_TELLS, lead).estimate == pytest.approx(100)
    few = of_answers([1, 0.9, 0.8], [[1, 0.5, 0.4]] * 18)
    assert few.notes()[-1].startswith('It takes 19 random orders to tell')
    assert verdict_on(ORDER_TELLS, few).evidence.endswith('in at least 19 random orders.')
    enough = verdict_on(ORDER_TELLS, of_answers([1, 0.9, 0.8], [[1, 0.5, 0.4]] * 20))
    assert (enough.estimate, enough.p_if_false) == (pytest.approx(40), pytest.approx(1 / 21))
    beaten = of_answers([1, 0.9, 0.8], [[1, 0.5, 0.4]] * 19 + [[1, 1, 1]])
    assert verdict_on(ORDER_TELLS, beaten).p_if_false == pytest.approx(2 / 21)


def test_a_missing_step_is_named():
    found = verdict_on(HEADS_CAN_GO, of_answers([1, 0.9]))
    assert found.evidence.endswith('about 60% of the heads left; the nearest one has 8 of 10.')
    assert verdict_on(HEADS_CAN_GO, of_answers([1, 0.9, 0.9])).estimate == pytest.approx(-10)


@pytest.mark.parametrize(
    ('options', 'words'),
    [
        ({'draws': -1}, 'draws=-1 must be a whole number from 0'),
        ({'tolerance': 1.0}, 'tolerance=1.0 must be a number from 0 to 1, but not 1'),
        ({'metric': 'pearson'}, "For 2 classes, metric='pearson'"),
        ({'classes': 5}, 'differ in their layers, heads or classes'),
        ({'classes': 1, 'measured_on': 1.5}, "of measured_on are 1.5 .*Pearson's r is undef"),
        ({'classes': 1, 'examples': 1.5}, "labels of examples are 1.5 .*Pearson's r is undef"),
    ],
)
def test_what_is_refused(tuned, texts, options, words):
    options = {'methods': ['confidence']} | options
    classes = options.pop('classes', None)
    models = tuned if classes is None else bs.with_classifier(tuned.models[0], [*'abcde'][:classes])
    if classes == 5:
        models = [tuned.models[1], models]
    labels = [options.pop(name, None) for name in ('examples', 'measured_on')]
    given = [
        texts if label is None else [dataclasses.replace(each, label=label) for each in texts]
        for label in labels
    ]
    with pytest.raises(ValueError, match=words):
        bs.analyses.pruning(models, given[0], measured_on=given[1], **options)
