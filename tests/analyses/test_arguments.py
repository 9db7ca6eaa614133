"""Arguments of analyses are refused before anything is computed, or taken as they are."""

import dataclasses

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.analyses.ablation import assess, assessed_metrics


def test_spearman_is_assessed_if_it_is_asked_for():
    assert assessed_metrics(1) == assessed_metrics(1, 'sts-b') == ('pearson',)
    rng = np.random.default_rng(0)
    labels = rng.normal(size=20).astype(np.float32)
    logits = (labels + rng.normal(size=(3, 20)))[..., None].astype(np.float32)
    masks = np.ones((3, 1, 2), np.float32)
    masks[1, 0, 0] = masks[2, 0, 1] = 0
    found = assess([Swept(masks, logits)], labels, ['spearman'], seed=0)
    expected = bs.significance.assess('spearman', logits[1:, :, 0], logits[0, :, 0], labels)
    np.testing.assert_allclose(found.found.difference, expected.difference)


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
