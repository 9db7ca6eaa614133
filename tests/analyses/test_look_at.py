"""Attention of heads: the numbers beside plain NumPy's, the loss of gradients, and errors."""

import dataclasses
import re

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.look_at import (
    CLASSES,
    COUNTED,
    HIDDEN,
    REGRESSION,
    STATISTICS,
    gradients_of,
    heads_over_half,
    labelled,
)
from bert_secrets_jax.data.tasks import as_examples
from bert_secrets_jax.measure.gradients import TYPES
from bert_secrets_jax.measure.tables import HeadTable


@pytest.fixture(scope='module')
def looked(results):
    return results['look_at']


def test_the_numbers_are_those_of_the_tables(looked):
    """tests/measure/test_statistics.py has each statistic by hand."""
    means = {name: looked.tables[name].mean for name in STATISTICS}
    heads = looked.frames()['heads'].set_index('statistic')
    counts = looked.frames()['counts'].set_index('attention to')
    for name, mean in means.items():
        np.testing.assert_allclose(heads.loc[name, 'mean'], mean.ravel())
        np.testing.assert_allclose(looked.frames()['layers'][name], mean.mean(axis=1))
    assert [counts.loc[name, 'heads'] for name in COUNTED] == [
        (means[name] > 0.5).sum() for name in COUNTED
    ]
    findings = {finding.name: finding for finding in looked.findings()}
    # The second of three layers is at the depth of layers 6 to 10 of 12.
    middle = means['all [SEP]'][1].mean()
    assert findings['attention to [SEP]'].estimate == pytest.approx(middle)


def test_gradients_are_of_the_masked_lm_where_there_is_one(looked):
    assert looked.gradients.loss == HIDDEN and tuple(looked.gradients.tables) == TYPES
    rows = looked.frames()['gradients']
    assert len(rows) == 12 and (rows['mean'] > 0).all() and set(rows['examples']) == {24.0}
    assert set(rows['unit']) == {'nats per unit of attention'}
    assert 'the gradient of the loss of the masked LM' in str(looked)
    assert 'gradients' in looked.figures()


@pytest.mark.parametrize(('names', 'loss'), [(('no', 'yes'), CLASSES), (('score',), REGRESSION)])
def test_otherwise_they_are_of_the_task(model, texts, settings, names, loss):
    found = gradients_of(bs.with_classifier(model, names), texts, settings=settings)
    assert found.loss == loss and found.unit.endswith('per unit of attention')
    assert all((table.mean > 0).all() and table.count == 24 for table in found.tables.values())
    # A loss of other labels has other gradients.
    others = [dataclasses.replace(example, label=1 - example.label) for example in texts]
    other = gradients_of(bs.with_classifier(model, names), others, settings=settings)
    assert np.abs(other.tables['[SEP]'].mean / found.tables['[SEP]'].mean - 1).max() > 0.01


def test_without_a_loss_the_result_says_why(model, masked_lm, texts):
    """Or, where gradients are asked for, an error."""
    without = [(example.text_a, example.text_b) for example in texts[:4]]
    classifier = bs.with_classifier(model, ('no', 'yes'))
    hidden = 'has no wordpiece that can be hidden'
    for given, found_in, message in (
        (model, texts[:4], 'has no loss to take gradients of: give a masked LM'),
        (masked_lm, [*texts[:2], bs.Example('猫', '猫')], hidden),
        (classifier, as_examples(without), 'has no label'),
    ):
        with pytest.raises(ValueError, match=message):
            bs.analyses.look_at(given, found_in, gradients=True)
        if given is not classifier:
            plain = bs.analyses.look_at(given, found_in)
            assert plain.gradients is None and plain.tables['[CLS]'].count == len(found_in)
            assert any(message in note for note in plain.notes())
            assert 'gradients' not in plain.frames() and 'gradients' not in plain.figures()


def test_gradients_need_not_be_measured(masked_lm, texts):
    found = bs.analyses.look_at(masked_lm, texts[:1], gradients=False)
    assert found.gradients is None and 'They were not asked for.' in found.notes()[1]
    # A single text has no intervals.
    assert not re.search(r'\bnan\b', str(found))
    counts = found.frames()['counts']
    assert (counts['at least'] == 0).all() and (counts['at most'] == 12).all()


def test_numbers_of_bert_base_stand_beside_models_as_deep(looked):
    assert not [name for name in looked.frames()['layers'] if name.startswith('Clark')]
    deep = {
        name: HeadTable(
            *(np.repeat(getattr(table, field), 4, axis=0) for field in ('mean', 'variance')),
            table.count,
        )
        for name, table in looked.tables.items()
    }
    layers = labelled(dataclasses.replace(looked, tables=deep, gradients=None)).frames()['layers']
    assert layers['Clark et al.: all [SEP]'].tolist()[4:7] == [0.48, 0.54, 0.53]
    assert 'read from figures' in layers.attrs['caption']


def test_what_no_text_has_is_left_out(looked):
    """A vocabulary of proteins may have neither a full stop nor a comma."""

    def without(tables):
        nothing = HeadTable(np.full((3, 4), np.nan), np.full((3, 4), np.nan), 0.0)
        return {**tables, 'period or comma': nothing}

    gradients = dataclasses.replace(looked.gradients, tables=without(looked.gradients.tables))
    found = dataclasses.replace(looked, tables=without(looked.tables), gradients=gradients)
    found = labelled(found)
    assert 'period or comma' not in set(found.frames()['counts']['attention to'])
    assert 'period or comma' not in set(found.frames()['gradients']['type'])
    assert 'nan' not in str(found)


def test_the_number_of_heads_over_half_is_in_its_interval():
    """Twenty heads just above half and twenty just below it, in skewed examples."""
    rng = np.random.default_rng(0)
    means = np.repeat([0.51, 0.49], 20).reshape(4, 10)
    wrong = 0
    for _ in range(200):
        values = rng.gamma(4, means / 4, (40, 4, 10))
        table = HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 40.0)
        _, low, high = heads_over_half(table)
        wrong += not low <= 20 <= high
    assert wrong <= 0.05 * 200 + 3 * np.sqrt(200 * 0.05 * 0.95)
