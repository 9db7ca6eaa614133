"""Arguments of analyses are refused before anything is computed, or taken as they are."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.common.disabling import assess, assessed_metrics


def test_spearman_is_assessed_if_it_is_asked_for():
    of_task = bs.Example('A text.', label=1.0, metrics=('pearson', 'spearman'))
    assert assessed_metrics(1, []) == assessed_metrics(1, [of_task]) == ('pearson',)
    # Classes that somebody makes of scores are no longer that task.
    assert assessed_metrics(2, [of_task]) == ('f1', 'accuracy')
    rng = np.random.default_rng(0)
    labels = rng.normal(size=20).astype(np.float32)
    logits = (labels + rng.normal(size=(3, 20)))[..., None].astype(np.float32)
    masks = np.ones((3, 1, 2), np.float32)
    masks[1, 0, 0] = masks[2, 0, 1] = 0
    found = assess([Swept(masks, logits)], labels, ['spearman'], seed=0)
    expected = bs.significance.assess('spearman', logits[1:, :, 0], logits[0, :, 0], labels)
    np.testing.assert_allclose(found.found.difference, expected.difference)


def test_too_few_texts_are_refused_before_any_is_read(model, masked_lm, texts):
    """A sweep takes a minute for each head of a large model, and its intervals need two texts."""
    tuned = bs.with_classifier(model, ('no', 'yes'), seed=0)
    tuned, masked_lm, embedder = (
        dataclasses.replace(each, tokenizer=None)
        for each in (tuned, masked_lm, bs.with_pooling(model, 'mean'))
    )
    of, one = bs.analyses, texts[:1]
    calls = [
        lambda: of.ablation(tuned, one),
        lambda: of.ablation_over_seeds([tuned, tuned], one),
        lambda: of.direct_effects(tuned, one),
        lambda: of.direct_effects(masked_lm, one),
        lambda: of.importance(tuned, one),
        lambda: of.interactions(tuned, one),
        lambda: of.masked_lm_ablation(masked_lm, one),
        lambda: of.outliers(masked_lm, one, dimensions=[1]),
        lambda: of.outliers(masked_lm, one, tuned=tuned, dimensions=[1]),
        lambda: of.patching(tuned, one, one),
        lambda: of.pruning(tuned, one, measured_on=texts),
        lambda: of.retrieval(embedder, ['a dog'], ['the cat']),
        lambda: of.similarity(embedder, [texts[0].texts]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match='1 given, at least 2 needed for an interval'):
            call()
    made = bs.Finetuned(
        start='pretrained', seeds=(0,), metrics=('f1',), label_names=('no', 'yes'), history=[],
        train_examples=1, dev_examples=1, larger_class=1.0, in_memory=(tuned,),
    )  # fmt: skip
    with pytest.raises(TypeError, match='epoch'):
        of.subnetworks(model, made, texts, texts, training={'epoch': 1})
    with pytest.raises(ValueError, match="metric='bleu' must be"):
        of.outliers(masked_lm, texts, tuned=tuned, dimensions=[1], metrics=['bleu'])


def test_a_relation_of_ones_own_needs_no_marks_of_the_notebook(model, texts, settings):
    own = [
        dataclasses.replace(each, relations={'verb-subject': each.relations['verb-subject']})
        for each in settings.annotations
    ]
    found = bs.analyses.relations(
        model, texts, relations=['verb-subject'], draws=99,
        settings=dataclasses.replace(settings, annotations=own),
    )  # fmt: skip
    assert set(found.tests) == set(found.tables) == {'verb to subject', 'subject to verb'}
    none = [dataclasses.replace(each, relations={'verb-subject': ()}) for each in own]
    found = bs.analyses.relations(
        model, texts, relations=['verb-subject'], draws=9,
        settings=dataclasses.replace(settings, annotations=none),
    )  # fmt: skip
    assert [each.sentence for each in found.findings()] == ['No link was found in these texts.']


def test_a_sample_of_ones_own_is_not_called_the_embedded_one(model, texts, settings):
    found = bs.analyses.frames(model, (texts, settings.annotations), draws=99, shown=1)
    assert found.subject.texts == 'the sample'


def test_a_finetuning_that_learnt_nothing_is_told(model, tuned, texts, settings, caplog):
    assert not tuned.learnt
    bs.analyses.attention_change(model, tuned, texts, settings=settings, statistics=[])
    assert 'Not learnt: a fine-tuned model is not significantly above' in caplog.text
    caplog.clear()
    bs.analyses.attention_change(model, tuned.models, texts, settings=settings, statistics=[])
    assert 'Not learnt' not in caplog.text
