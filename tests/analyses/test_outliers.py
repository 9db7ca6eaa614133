"""A model without its outlier dimensions: the numbers, and what is told of them."""

import dataclasses
import math

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.outliers import ScoreWithout
from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.pruning.outliers import OutlierDimensions
from tests.analyses.conftest import with_outliers


@pytest.fixture(scope='module')
def planted(masked_lm):
    return with_outliers(masked_lm, [5, 20])


@pytest.fixture(scope='module')
def found(planted, texts, tuned):
    subject = bs.analyses.Subject('tiny', 'own texts', 'mrpc')
    return bs.analyses.outliers(
        planted, texts, tuned=tuned, draws=19, compute=bs.Compute(max_length=32), subject=subject
    )


def test_losses_are_those_of_models_without_them(planted, texts, found):
    masks = np.ones((1, 3, 4))

    def loss(dimensions):
        model = bs.without_dimensions(planted, dimensions)
        losses = bs.masked_lm_losses(model, texts, masks, compute=bs.Compute(max_length=32))
        return losses.means[0]

    assert found.disabled == (5, 20) and found.names[0] == 'all together'
    frame = found.frames()['loss'].set_index('disabled')
    assert list(frame.index) == ['all together', 'dimension 5', 'dimension 20']
    intact = loss([])
    for name, dimensions in zip(frame.index, ([5, 20], [5], [20]), strict=True):
        assert frame.loc[name, 'difference'] == pytest.approx(loss(dimensions) - intact, abs=1e-5)
        assert frame.loc[name, 'loss'] == pytest.approx(loss(dimensions), abs=1e-5)
    random = found.frames()['random']
    assert len(random) == 19 and not {'5', '20'} & set(' '.join(random['dimensions']).split())
    expected = [
        loss([int(each) for each in row.split()]) - intact for row in random['dimensions'][:3]
    ]
    np.testing.assert_allclose(random['loss (nats)'][:3], expected, atol=1e-5)
    beyond = frame['difference'].iloc[0] - random['loss (nats)'].mean()
    assert found.loss.beyond.difference[0] == pytest.approx(beyond, abs=1e-5)
    as_much = (random['loss (nats)'] >= frame['difference'].iloc[0]).sum()
    assert frame['p_rank'].iloc[0] == pytest.approx((1 + as_much) / 20)


def test_scores_are_those_of_the_fine_tuned_model_without_them(texts, tuned, found):
    labels = np.array([example.label for example in texts])
    model = tuned.models[0]

    def score(dimensions):
        one = bs.without_dimensions(model, dimensions)
        masks = np.ones((1, 3, 4))
        logits = bs.sweep_examples(one, texts, masks, compute=bs.Compute(max_length=32)).logits[0]
        return metrics.evaluate(['f1', 'accuracy'], logits, labels)

    intact = score([])
    frame = found.frames()['scores'].set_index(['metric', 'disabled'])
    assert set(found.scores) == {'f1', 'accuracy'} and found.examples == 24
    for name, dimensions in zip(found.names, ([5, 20], [5], [20]), strict=True):
        for metric, value in score(dimensions).items():
            if metric != 'score':
                row = frame.loc[(metric, name)]
                assert row['score'] == pytest.approx(value)
                assert row['difference'] == pytest.approx(value - intact[metric])
    assert list(found.frames()['random'].columns) == ['dimensions', 'loss (nats)', 'f1', 'accuracy']


def test_what_is_told(found):
    text = str(found)
    assert 'Of 24 dimensions, 2 stand out' in text and 'of 3 layers: 5, 20. By chance, ' in text
    assert 'Without dimensions 5, 20, the loss of the masked LM changes by ' in text
    assert 'of 19 draws (p = ' in text and 'Without dimensions 5, 20, F1 of the ' in text
    assert set(found.figures()) == {'parameters', 'loss', 'score'}
    frame = found.frames()['dimensions']
    assert frame.query('outlier')['dimension'].tolist() == [5, 20]
    assert 'Dimensions count from zero' in found.notes()[0]
    assert found.verdict.evidence in str(
        bs.analyses.claims(found).frames()['claims']['evidence'][14]
    )


def test_a_model_without_any_head(planted, texts, model):
    """The outliers are there, and what was not measured is said."""
    bare = with_outliers(model, [7])
    result = bs.analyses.outliers(bare, texts, draws=19, compute=bs.Compute(max_length=32))
    assert result.disabled == (7,) and result.loss is None and not result.scores
    assert result.verdict is None and set(result.figures()) == {'parameters'}
    assert set(result.frames()) == {'dimensions'} and len(result.findings()) == 1
    notes = ' '.join(result.notes())
    assert 'loss was not measured: the model has no head' in notes
    assert 'score was not measured: there is no fine-tuned model' in notes
    (claim,) = [
        each for each in bs.analyses.claims(result).verdicts()
        if each.claim is bs.claims.OUTLIERS_NEEDED
    ]  # fmt: skip
    assert claim.verdict == bs.claims.NOT_MEASURED


def test_no_outliers(masked_lm, texts):
    """Nothing is disabled, unless it is named."""
    result = bs.analyses.outliers(masked_lm, texts)
    assert result.disabled == () and result.random is None and result.loss is None
    assert 'None of 24 dimensions is an outlier' in str(result)
    assert 'There is no outlier, so nothing was disabled.' in result.notes()
    assert len(result.frames()['dimensions']) == 1
    named = bs.analyses.outliers(
        masked_lm, texts, dimensions=[3], draws=19, compute=bs.Compute(max_length=32)
    )
    assert named.names == ['dimension 3'] and named.loss is not None
    # Which is not about outliers.
    assert named.verdict is None and 'Alone' not in str(named)
    few = bs.analyses.outliers(with_one_layer(masked_lm), texts)
    assert 'too few different layers' in ' '.join(few.notes()) and 'the one layer' in str(few)


def test_where_no_dimension_stands_out_none_is_named(masked_lm):
    flat = np.zeros((3, 24))
    found = OutlierDimensions(flat, flat, 3.0, 2, 0.0, np.zeros(0, int))
    said = str(bs.analyses.Outliers(bs.analyses.Subject(), found, ()))
    assert 'in enough of 3 layers.' in said and 'Dimension 0' not in said


def with_one_layer(model):
    """Return a model whose first layer serves for all."""
    config = dataclasses.replace(
        model.config,
        model_type='albert',
        embedding_size=24,
        num_hidden_groups=1,
        classifier_dropout=0.1,
    )
    norm = {name: np.asarray(each)[[0, 0, 0]].copy() for name, each in
            model.params['layers']['output_norm'].items()}  # fmt: skip
    norm['scale'][:, 4] = 9
    layers = model.params['layers'] | {'output_norm': norm}
    return bs.Pretrained(bs.Bert(config), model.params | {'layers': layers}, model.tokenizer)


def test_published_dimensions_stand_beside(found):
    subject = bs.analyses.Subject('google-bert/bert-base-uncased', 'own texts')
    (said,) = [
        each for each in dataclasses.replace(found, subject=subject).findings()
        if each.name == 'published outlier dimensions'
    ]  # fmt: skip
    assert (said.estimate, said.sample) == (0, 2) and '(308, 381)' in said.sentence
    assert 'published' not in str(found)


def test_a_score_that_is_not_defined(found):
    """A correlation of predictions that are all alike."""
    effects = dataclasses.replace(
        found.scores['f1'].effects, difference=np.full(3, np.nan), low=np.full(3, np.nan),
        high=np.full(3, np.nan),
    )  # fmt: skip
    scores = {'pearson': ScoreWithout(effects, found.scores['f1'].random)}
    result = dataclasses.replace(found, scores=scores)
    assert result.findings()[-1].sentence == (
        "Without dimensions 5, 20, Pearson's r is not defined: all predictions are the same."
    )
    assert math.isnan(result.scores['pearson'].p_value)
    assert result.figures()['score'].caption


def test_what_is_refused(planted, model, texts, untyped):
    with pytest.raises(ValueError, match='draws=18 must be at least 19'):
        bs.analyses.outliers(planted, texts, draws=18)
    for wrong in ([30], [1.5], [2, 2]):
        with pytest.raises(ValueError, match='different whole numbers from 0 to 23, not'):
            bs.analyses.outliers(model, texts, dimensions=wrong)
    with pytest.raises(ValueError, match='without dimension 1 cannot be measured: load it with'):
        bs.analyses.outliers(model, texts, dimensions=(1,))
    with pytest.raises(ValueError, match='The model has no classifier'):
        bs.analyses.outliers(with_outliers(model, [2]), texts, tuned=model)
    with pytest.raises(TypeError, match='bs.from_pretrained'):
        bs.analyses.outliers(planted.bert, texts)
