"""Tables of several runs, and what they say together."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.common.tables import interval_of, mean_over_runs, significant_changes
from bert_secrets_jax.measure.catalogue import limits_of
from bert_secrets_jax.stats.student import mean_interval


def test_heads_that_seem_to_change_in_few_examples_are_chance():
    """Nothing changes, three examples: heads are called significant in about 5 % of corpora."""
    rng = np.random.default_rng(0)
    errors = 0
    for _ in range(300):
        values = rng.normal(size=(3, 6, 12))
        changed = bs.HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 3.0)
        errors += any(significant_changes([changed]))
    assert errors <= 30
    one = bs.HeadTable(values[0], values[0], 1.0)
    assert np.isnan(significant_changes([one])).all()


def drawn(rng, *, models, examples, of_models, of_examples):
    """Return the tables of models that read the same examples; the true means are zero."""
    values = rng.normal(size=(models, examples, 2, 3))
    values = values + of_examples * rng.normal(size=(examples, 2, 3))
    values = values + of_models * rng.normal(size=(models, 1, 2, 3))
    return [
        {'it': bs.HeadTable(each.mean(axis=0), each.var(axis=0, ddof=1), float(examples))}
        for each in values
    ]


def test_one_model_has_the_interval_over_examples():
    rng = np.random.default_rng(3)
    values = rng.normal(size=(40, 2, 3))
    table = bs.HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 40.0)
    found = mean_over_runs([{'it': table}], ['it'], (1, 2))
    expected = scipy.stats.ttest_1samp(values[:, 1, 2], 0).confidence_interval()
    np.testing.assert_allclose([found.low, found.high], expected)
    two = mean_over_runs([{'it': table}] * 2, ['it'], (1, 2))
    assert (found.sample_of, two.sample_of) == ('examples', 'examples, in 2 models')
    # A single example has no interval.
    alone = bs.HeadTable(values[0], np.full((2, 3), np.nan), 1.0)
    assert np.isnan(mean_over_runs([{'it': alone}], ['it']).interval[1:]).all()


def test_intervals_stay_within_what_a_statistic_can_be():
    values = np.array([0.01, 0.6, 0.99]).reshape(3, 1, 1)
    table = bs.HeadTable(values.mean(axis=0), values.var(axis=0, ddof=1), 3.0)
    names = '[SEP]', 'entropy (nats)', '[SEP] (words)', 'change of [SEP]', 'mine:own'
    ends = {name: mean_over_runs([{name: table}], [name]).interval[1:] for name in names}
    low, high = ends['mine:own']
    assert low < -0.5 and high > 1.5
    assert ends['[SEP]'] == ends['[SEP] (words)'] == (0, 1)
    assert ends['entropy (nats)'] == (0, high)
    assert ends['change of [SEP]'] == (low, 1)
    assert interval_of(table, (0, 0), limits_of('[SEP]'))[1:] == (0, 1)
    # What is computed from the length of an interval takes the whole of it.
    assert mean_over_runs([{'[SEP]': table}], ['[SEP]']).half == pytest.approx((high - low) / 2)
    assert mean_interval(values.ravel(), (0.0, 1.0))[1:] == (0, 1)


def test_of_few_texts_the_number_is_said(results):
    said = results['special_tokens'].all_notes()
    assert said[0] == 'Measured on 24 examples only: intervals of so few are rough.'
    many = dataclasses.replace(
        results['special_tokens'],
        tables={
            name: dataclasses.replace(each, count=30.0)
            for name, each in results['special_tokens'].tables.items()
        },
    )
    assert many.all_notes() == many.notes()


def test_statistics_are_added_and_heads_averaged():
    rng = np.random.default_rng(4)
    one, other = drawn(rng, models=2, examples=9, of_models=1.0, of_examples=0.0)
    runs = [{'a': each['it'], 'b': each['it']} for each in (one, other)]
    both, single = mean_over_runs(runs, ['a', 'b'], 1), mean_over_runs(runs, ['a'], 1)
    mean = np.mean([one['it'].mean[1], other['it'].mean[1]])
    assert single.mean == pytest.approx(mean) and both.mean == pytest.approx(2 * mean)
    assert both.high - both.low == pytest.approx(2 * (single.high - single.low))
