"""A model without its outlier dimensions: the numbers, and what is told of them."""

import dataclasses
import math

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.verdicts import NOT_MEASURED
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.pruning.outliers import logits_without, losses_without
from bert_secrets_jax.stats.effects import Outcome
from tests.analyses.conftest import with_outliers


def outliers(*given, **options):
    how = {'draws': 19, 'compute': bs.Compute(max_length=32)}
    return bs.analyses.outliers(*given, **how | options)


@pytest.fixture(scope='module')
def planted(masked_lm):
    return with_outliers(masked_lm, [5, 20])


@pytest.fixture(scope='module')
def found(planted, texts, tuned):
    subject = bs.analyses.Subject('tiny', 'own texts', 'mrpc')
    return outliers(planted, texts, tuned=tuned, subject=subject)


def test_losses_and_scores_are_those_of_models_without_them(planted, texts, tuned, found):
    """How they are computed is tested in tests/pruning; here, which of them are in the frames."""
    sets = [[], [5, 20], [5], [20]]
    compute = bs.Compute(max_length=32)
    losses, hidden = losses_without(planted, texts, sets, masking=bs.Masking(), compute=compute)
    losses = losses.sum(axis=1) / hidden.sum()
    assert found.disabled == (5, 20)
    frame = found.frames()['loss']
    assert list(frame['disabled']) == ['all together', 'dimension 5', 'dimension 20']
    np.testing.assert_allclose(frame['loss'], losses[1:], atol=1e-5)
    np.testing.assert_allclose(frame['difference'], losses[1:] - losses[0], atol=1e-5)
    random = found.frames()['random']
    assert len(random) == 19 and not {'5', '20'} & set(' '.join(random['dimensions']).split())
    beyond = frame['difference'][0] - random['loss (nats)'].mean()
    assert found.loss.beyond.difference[0] == pytest.approx(beyond, abs=1e-5)
    as_much = (random['loss (nats)'] >= frame['difference'][0]).sum()
    assert frame['p_rank'][0] == pytest.approx((1 + as_much) / 20)
    labels = np.array([example.label for example in texts])
    logits = logits_without(tuned.models[0], texts, sets, compute=compute)
    scores = found.frames()['scores'].query('metric == "accuracy"')['score']
    expected = [metrics.evaluate(['accuracy'], each, labels)['accuracy'] for each in logits[1:]]
    assert set(found.scores) == {'f1', 'accuracy'} and scores.tolist() == pytest.approx(expected)


def test_a_model_without_any_head(texts, model):
    """The outliers are there, and what was not measured is said."""
    result = outliers(with_outliers(model, [7]), texts)
    assert result.disabled == (7,) and result.loss is None and not result.scores
    (verdict,) = result.verdicts()
    assert verdict.verdict == NOT_MEASURED and set(result.figures()) == {'parameters'}
    notes = ' '.join(result.notes())
    assert 'loss was not measured: the model has no masked-LM head' in notes
    assert 'score was not measured: there is no fine-tuned model' in notes


def test_no_outliers(masked_lm, texts):
    """Nothing is disabled, unless it is named."""
    result = outliers(masked_lm, texts)
    assert result.disabled == () and 'random' not in result.frames() and result.loss is None
    assert '0 of 24 dimensions have unusual' in str(result)
    assert 'No outlier, so nothing was disabled.' in result.notes()
    assert len(result.frames()['dimensions']) == 1
    named = outliers(masked_lm, texts, dimensions=[3])
    assert list(named.frames()['loss']['disabled']) == ['dimension 3']
    # Which is not about outliers.
    assert named.verdicts()[0].verdict == NOT_MEASURED


def test_published_dimensions_are_marked(found):
    assert 'published' not in found.frames()['dimensions']
    subject = bs.analyses.Subject('google-bert/bert-base-uncased', 'own texts')
    frame = dataclasses.replace(found, subject=subject).frames()['dimensions']
    assert not frame['published'].any()


def test_a_score_that_is_not_defined(found):
    """A correlation of predictions that are all alike."""
    unknown = dict.fromkeys(('difference', 'low', 'high'), np.full(3, np.nan))
    effects = found.scores['f1'].effects
    effects = dataclasses.replace(effects, outcome=Outcome('pearson'), **unknown)
    scores = {'pearson': dataclasses.replace(found.scores['f1'], effects=effects)}
    result = dataclasses.replace(found, scores=scores)
    assert math.isnan(result.scores['pearson'].p_value)
    assert 'score' not in result.figures() and 'score' not in str(result)
