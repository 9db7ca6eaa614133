"""Vectors that heads move: the numbers beside plain NumPy's, inactive heads, and lost heads."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.contributions import BY_NORMS, BY_OUTPUT, BY_WEIGHTS, KINDS, lost_in
from bert_secrets_jax.contributions.norms import (
    MIXING,
    mixing_ratios,
    output_norms,
    shares_of_norms,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.stats.effects import NO_MATTER, OPEN, WORSE


@pytest.fixture(scope='module')
def found(results):
    return results['contributions']


def table(values, count=24.0) -> HeadTable:
    values = np.asarray(values, np.float64)
    return HeadTable(values, np.full(values.shape, 1e-4), count)


def made(found, **changes):
    """The result with other tables of [CLS], [SEP] and full stops, or of outputs."""
    moved = dataclasses.replace(
        found.moved,
        norms=found.moved.norms | changes.get('norms', {}),
        outputs=changes.get('outputs', found.moved.outputs),
    )
    weights = found.weights | changes.get('weights', {})
    return dataclasses.replace(found, weights=weights, moved=moved)


def test_tables_are_means_over_texts(found, model, texts):
    """Of what tests/contributions has beside NumPy's; a text counts for its number of tokens."""
    batches = bs.encode(model.tokenizer, texts, max_length=32)
    for tables, maps_of in ((found.weights, {}), (found.moved.norms, {'maps_of': shares_of_norms})):
        for name, expected in bs.collect(model, batches, list(KINDS), **maps_of).items():
            np.testing.assert_allclose(tables[name].mean, expected.mean, rtol=1e-4, atol=1e-6)
    of_tokens = {'mixing': [], 'outputs': []}
    for batch in batches:
        for row in np.flatnonzero(batch.example >= 0):
            real = slice(int(batch.lengths[row]))
            for name, measured in (('mixing', mixing_ratios), ('outputs', output_norms)):
                each = np.asarray(measured(model.bert, model.params, batch)[row])[..., real, 0]
                of_tokens[name].append(each.mean(axis=-1))
    outputs = [each / each.mean(axis=-1, keepdims=True) for each in of_tokens['outputs']]
    np.testing.assert_allclose(found.moved.outputs.mean, np.mean(outputs, axis=0), atol=2e-5)
    mixing = np.mean(of_tokens['mixing'], axis=0)
    np.testing.assert_allclose(found.moved.mixing.mean, mixing, atol=2e-5)


def test_findings_are_means_of_the_frames(found):
    findings = {each.name: each for each in found.findings()}
    kinds = found.frames()['kinds'].query('kind == "all [SEP]"')
    sep = findings['moved from all [SEP]']
    assert sep.estimate == pytest.approx(kinds['norms'].mean())
    assert findings['attention to all [SEP]'].estimate == pytest.approx(kinds['weights'].mean())
    mixing = found.frames()['mixing'].set_index('way')
    last = findings[f'how much of a token comes from others, by {MIXING[-1]}']
    assert last.estimate == pytest.approx(mixing.loc[MIXING[-1], 'percent'])
    assert last.low < last.estimate < last.high
    assert mixing.loc['weights', 'published: bert-base-uncased'] == pytest.approx(96.41)
    layers = found.frames()['mixing_layers'].query('way == "norms"')['percent']
    assert layers.mean() == pytest.approx(mixing.loc['norms', 'percent'])


def test_sinks_by_weights_and_by_norms(found):
    """A head is a sink from a half on, at whatever kind has most."""
    weights, norms, stops, outputs = (np.full((3, 4), each) for each in (0.1, 0.1, 0.2, 1.0))
    weights[0, 1], weights[2, 3], norms[2, 3] = 0.5, 0.7, 0.2
    stops[1, 0], outputs[1, 1] = 0.9, 0.05
    few = {'[CLS]': table(np.full((3, 4), 0.05))}
    mine = made(
        found,
        weights=few | {'all [SEP]': table(weights), 'period or comma': table(stops / 3)},
        norms=few | {'all [SEP]': table(norms), 'period or comma': table(stops)},
        outputs=table(outputs),
    )
    heads = {group: np.argwhere(where).tolist() for group, where in mine.inactive.items()}
    assert heads == {BY_WEIGHTS: [[0, 1], [2, 3]], BY_NORMS: [[1, 0]], BY_OUTPUT: [[1, 1]]}
    said = {each.name: each for each in mine.findings()}
    for count, group, kind in (
        (2, BY_WEIGHTS, 'all [SEP]'), (1, BY_NORMS, 'full stops and commas')
    ):  # fmt: skip
        assert said[group].estimate == said[f'{group}: {kind}'].estimate == count
    assert said[f'{BY_WEIGHTS}: what they move from there'].estimate == pytest.approx(0.15)
    least = said['least output of a head']
    assert least.where == 'L2-H2' and least.estimate == pytest.approx(0.05)
    activity = mine.frames()['activity'].query('layer == 2 and head == 1').iloc[0]
    assert activity['most_by_norms'] == 'period or comma' and activity['share_of_norms'] == 0.9
    assert mine.head_notes()['share of its output'][1, 0] == '0.90 from full stops and commas'


def test_what_losing_them_does(found, results):
    lost, ablated = found.lost, results['ablation'].sets['heads'].found
    np.testing.assert_array_equal(lost.difference.ravel(), ablated.difference)
    verdict = np.full((3, 4), OPEN, dtype='<U15')
    verdict[0, 1], verdict[2, 3] = NO_MATTER, WORSE
    weights = np.where(np.arange(12).reshape(3, 4) % 5 == 1, 0.8, 0.1)  # L1-H2, L2-H3, L3-H4
    points = np.where(weights > 0.5, -0.02, 0.01)
    lost = dataclasses.replace(lost, verdict=verdict, difference=points)
    mine = made(dataclasses.replace(found, lost=lost), weights={'all [SEP]': table(weights)})
    name = f'losing {BY_WEIGHTS}'
    said = {each.name.removeprefix(name): each for each in mine.findings()}
    outcomes = (' changes F1 by less than 0.5 points', ' changes it by more')
    assert [said[each].estimate for each in (*outcomes, ' cannot be told')] == [1, 1, 1]
    # A head is in one of them, and the table says in which.
    caption = mine.frames()['inactive'].attrs['caption']
    assert 'A change below half a point does not matter, significant or not.' in caption
    means = [said[f': mean change, {which}'].estimate for which in (BY_WEIGHTS, 'other heads')]
    assert means == pytest.approx([2, 1])
    without = dataclasses.replace(mine, lost=None)
    assert any('was not measured' in note for note in without.notes())
    assert 'points_without_it' not in without.frames()['activity']
    with pytest.raises(ValueError, match=r'= \[3, 5\], got \[3, 4\]: give the ablation of'):
        lost_in(results['ablation'], (3, 5))
    assert lost_in(None, (3, 4)) is None


def test_texts_without_full_stops(model):
    plain = bs.analyses.contributions(model, [('the cat ran', 'he saw it')] * 2)
    assert 'period or comma' not in plain.kinds and 'period or comma' not in str(plain.figures())
    assert not any('full stops and commas 0' in each.sentence for each in plain.findings())
    assert 'nan' not in str(plain) and plain.figures()['weights_and_norms'].caption
