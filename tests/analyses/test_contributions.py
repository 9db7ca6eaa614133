"""Vectors that heads move: the numbers beside plain NumPy's, inactive heads, and lost heads."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.contributions import BY_NORMS, BY_OUTPUT, BY_WEIGHTS, KINDS, labelled
from bert_secrets_jax.contributions.norms import (
    MIXING,
    mixing_ratios,
    output_norms,
    shares_of_norms,
)
from bert_secrets_jax.measure.tables import HeadTable


@pytest.fixture(scope='module')
def found(results):
    return results['contributions']


def table(values, count=24.0) -> HeadTable:
    values = np.asarray(values, np.float64)
    return HeadTable(values, np.full(values.shape, 1e-4), count)


def made(found, **changes):
    """The result with other tables of [CLS], [SEP] and full stops, or of outputs."""
    tables = {by: each | changes.get(by, {}) for by, each in found.tables.items()}
    outputs = changes.get('outputs', found.outputs)
    return labelled(dataclasses.replace(found, tables=tables, outputs=outputs))


def test_tables_are_means_over_texts(found, model, texts):
    """Of what tests/contributions has beside NumPy's; a text counts for its number of tokens."""
    batches = bs.encode(model.tokenizer, texts, max_length=32)
    for by, maps_of in (('weights', {}), ('norms', {'maps_of': shares_of_norms})):
        for name, expected in bs.collect(model, batches, list(KINDS), **maps_of).items():
            np.testing.assert_allclose(
                found.tables[by][name].mean, expected.mean, rtol=1e-4, atol=1e-6
            )
    of_tokens = {'mixing': [], 'outputs': []}
    for batch in batches:
        for row in np.flatnonzero(batch.example >= 0):
            real = slice(int(batch.lengths[row]))
            for name, measured in (('mixing', mixing_ratios), ('outputs', output_norms)):
                each = np.asarray(measured(model.bert, model.params, batch)[row])[..., real, 0]
                of_tokens[name].append(each.mean(axis=-1))
    outputs = [each / each.mean(axis=-1, keepdims=True) for each in of_tokens['outputs']]
    np.testing.assert_allclose(found.outputs.mean, np.mean(outputs, axis=0), atol=2e-5)
    mixing = np.mean(of_tokens['mixing'], axis=0)
    np.testing.assert_allclose(found.mixing.mean, mixing, atol=2e-5)


def test_findings_are_means_of_the_frames(found):
    """The kind is the one for which attention and output differ most."""
    kinds = found.frames()['kinds'].groupby('kind')[['weights', 'norms']].mean()
    kind = (kinds['norms'] - kinds['weights']).abs().idxmax()
    moved = found.findings()[0]
    assert moved.name == f'moved from {kind}'
    assert moved.estimate == pytest.approx(kinds.loc[kind, 'norms'])
    assert moved.numbers['weights'] == pytest.approx(kinds.loc[kind, 'weights'])
    mixing = found.frames()['mixing'].set_index('way')
    last = mixing.loc[MIXING[-1]]
    assert last['low'] < last['percent'] < last['high']
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
    # All four heads.
    assert mine.findings()[1].sentence.startswith('4 of 12 heads may do nothing')
    activity = mine.frames()['activity'].query('layer == 2 and head == 1').iloc[0]
    assert activity['most_by_norms'] == 'period or comma' and activity['share_of_norms'] == 0.9


def test_what_losing_them_does(found, results, model, texts):
    lost, ablated = found.lost, results['ablation'].sets['heads'].found
    np.testing.assert_array_equal(lost.difference, ablated.difference)
    # L1-H2 does not matter, L3-H4 does.
    within, beyond = (np.where(np.arange(12) == place, 0.01, 0.9) for place in (1, 11))
    weights = np.where(np.arange(12).reshape(3, 4) % 5 == 1, 0.8, 0.1)  # L1-H2, L2-H3, L3-H4
    lost = dataclasses.replace(lost, equivalent=within, beyond=beyond)
    mine = made(dataclasses.replace(found, lost=lost), weights={'all [SEP]': table(weights)})
    frame = mine.frames()['inactive'].set_index('inactive')
    counts = frame.loc[BY_WEIGHTS, ['heads', 'do_not_matter', 'matter']].tolist()
    assert counts == [3, 1, 1]
    # A head is in one of them, and the table says in which.
    assert (
        'A change below half a point does not matter, significant or not.'
        in (frame.attrs['caption'])
    )
    without = labelled(dataclasses.replace(mine, lost=None, meaning=''))
    assert any('was not measured' in note for note in without.notes())
    assert 'points_without_it' not in without.frames()['activity']
    other = dataclasses.replace(results['ablation'].sets['heads'], masks=np.ones((15, 3, 5)))
    ablation = dataclasses.replace(results['ablation'], sets={'heads': other})
    with pytest.raises(ValueError, match=r'= \[3, 4\], got \[3, 5\]: give the ablation of'):
        bs.analyses.contributions(model, texts, ablation=ablation)


def test_texts_without_full_stops(model):
    plain = bs.analyses.contributions(model, [('the cat ran', 'he saw it')] * 2)
    assert 'period or comma' not in plain.kinds and 'period or comma' not in str(plain.figures())
    assert not any('full stops and commas 0' in each.sentence for each in plain.findings())
    assert 'nan' not in str(plain) and plain.figures()['weights_and_norms'].caption
