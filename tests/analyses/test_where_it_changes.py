"""Where attention changes, in worlds of which the cause is known, and in a tiny model."""

import dataclasses

import jax
import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.verdicts import DOES_NOT_HOLD, HOLDS, TOO_FEW, UNDECIDED
from bert_secrets_jax.analyses.where_it_changes import (
    WhereItChanges,
    agreement,
    change_by_layer,
    labelled,
    moved_in,
)
from bert_secrets_jax.finetune.outcome import Finetuned

DECAYS = (0.65, 1.0, 1.5)


def world(cause, *, seeds=5, layers=6, seed=0):
    """Weights move as far as the rates say, and maps as far as the cause says, with some noise."""
    rng = np.random.default_rng(seed)
    changes, tuned = {}, {}
    for decay in DECAYS:
        rates = decay ** np.arange(layers)[::-1]
        rates /= rates.max()
        profile = rates if cause == 'rates' else np.array([0.3, 0.3, 0.3, 0.3, 0.9, 1.0])
        runs = {}
        for run in range(seeds):
            change = 0.4 * profile[:, None] + rng.normal(0, 0.004, (layers, 1)) + np.zeros(2)
            runs[str(run)] = {'cosine': bs.HeadTable(1 - change, np.full((layers, 2), 1e-4), 200.0)}
        name = f'decay {decay:g}'
        changes[name] = runs
        noise = 1 + rng.normal(0, 0.01, (seeds, layers, 4))
        # The embeddings and the head are no layers.
        movement = np.pad((rates[:, None] * noise)[:, None], [(0, 0), (0, 0), (1, 1), (0, 0)])
        tuned[name] = with_p_values(Finetuned(
            start='pretrained', seeds=tuple(range(seeds)), metrics=('accuracy',),
            label_names=('no', 'yes'), train_examples=200, dev_examples=200, larger_class=0.5,
            history=[], movement=movement,
        ), np.full(seeds, 1e-4))  # fmt: skip
    return labelled(WhereItChanges(changes, tuned, np.tri(layers).T[None] * 0.1, 1.0))


def made(result, **changes):
    """The result with these fields, and with the tables of them."""
    return labelled(dataclasses.replace(result, labelled={}, **changes))


def with_p_values(tuned, p_values):
    """The fine-tunings with an accuracy of .8, and these p-values."""
    rows = zip(tuned.seeds, p_values, strict=True)
    dev = {'split': 'dev', 'step': 9, 'epoch': 1, 'loss': 0.5, 'accuracy': 0.8}
    history = [{**dev, 'seed': seed, 'p_learnt': p_value} for seed, p_value in rows]
    return dataclasses.replace(tuned, history=history)


def number(result, start):
    (found,) = [each for each in result.findings() if each.name.startswith(start)]
    return found


@pytest.mark.parametrize('seed', range(3))
def test_the_cause_is_found(seed):
    causes = {'rates': (DOES_NOT_HOLD, 1, 'decides it'), 'task': (HOLDS, 3, 'does not decide it')}
    for cause, (outcome, held, words) in causes.items():
        found = world(cause, seed=seed)
        assert found.verdicts()[0].verdict == outcome
        first = number(found, 'schedules under which')
        assert first.estimate == held and f'the schedule {words}' in first.sentence
        explained = found.frames()['explained'].set_index(['schedule', 'measure'])
        low = explained.loc[('decay 1.5', 'distance')].r_squared_low
        assert (low > 0.95) == (cause == 'rates')
        few = world(cause, seeds=4, seed=seed)
        assert few.verdicts()[0].verdict == TOO_FEW
        assert '4 fine-tunings are too few; a test needs 5.' in few.verdicts()[0].evidence
        said = 'under 0 of 3 schedules and not under 0: the schedule may decide it.'
        assert few.findings()[0].sentence.endswith(said)


def test_profiles_agree_as_by_scipy_and_frozen_layers_have_no_distance():
    one, other = np.random.default_rng(0).normal(size=(2, 3, 6))
    ranks, straight = agreement(one, other)
    for row in range(3):
        rank = scipy.stats.spearmanr(one[row], other[row]).statistic
        assert ranks[row] == pytest.approx(rank)
        line = scipy.stats.linregress(one[row], other[row])
        assert straight[row] == pytest.approx(line.rvalue**2)
    assert np.isnan(agreement(np.ones((1, 6)), other[:1])).all()
    result = world('task')
    for each in result.tuned.values():
        each.movement[:, :, 1] = 0
    frame = labelled(result).frames()['layers']
    assert frame.change_per_distance.isna().equals(frame.layer == 1)


def test_a_schedule_that_taught_nothing_is_told_and_left_out():
    """Rates of decay 1.5 alone refute the claim; without this schedule it is as at other rates."""
    given = world('task')
    high, noise = 'decay 1.5', world('rates').changes['decay 1.5']
    given = dataclasses.replace(given, changes={**given.changes, high: noise})
    assert given.verdicts()[0].verdict == DOES_NOT_HOLD
    for failed, told in ((2, False), (3, True), (5, True)):
        p_values = np.where(np.arange(5) < failed, 0.6, 1e-4)
        own = with_p_values(given.tuned[high], p_values)
        result = made(given, tuned={**given.tuned, high: own})
        warned = [each for each in result.findings() if each.warning]
        assert [high in each.sentence for each in warned] == [True] * told
        assert all(each.sentence.endswith('this schedule is left out.') for each in warned)
        assert result.verdicts()[0].verdict == (HOLDS if told else DOES_NOT_HOLD)
        assert number(result, 'schedules under which').sample == 3 - told
        row = result.frames()['schedules'].set_index('schedule').loc[high]
        assert row.seeds_that_learnt == 5 - failed and row.score == pytest.approx(80)
    failed = {name: with_p_values(each, np.full(5, 0.6)) for name, each in given.tuned.items()}
    nothing = dataclasses.replace(given, tuned=failed)
    assert all(each.warning for each in nothing.findings()) and len(nothing.findings()) == 3
    assert nothing.verdicts()[0].verdict == UNDECIDED


def test_steps_have_the_change_of_each_layer():
    base, name = world('task'), 'decay 1'
    row = {'split': 'maps', 'epoch': 0}
    row |= {f'similarity_L{layer}': 1 - 0.1 * (layer == 1) for layer in range(1, 7)}
    rows = [{**row, 'seed': seed, 'step': step} for seed in range(5) for step in (10, 20)]
    own = dataclasses.replace(base.tuned[name], history=base.tuned[name].history + rows)
    result = made(base, tuned={**base.tuned, name: own})
    frame = result.frames()['steps'].set_index(['step', 'layer'])
    assert frame.loc[(10, 1)].change == pytest.approx(0.1) and len(frame) == 12
    assert 'steps' not in base.frames()


def test_a_random_step_is_of_one_layer_and_its_length(model, tuned, texts):
    """The maps below a layer that moves stay as they are; the length is that of fine-tuning."""
    given, compute = {'usual': tuned, 'again': tuned}, bs.Compute(max_length=32)
    found = bs.analyses.where_it_changes(model, given, texts, draws=1, compute=compute)
    assert (found.random[0][np.tri(3, k=-1, dtype=bool)] == 0).all()
    assert (np.diagonal(found.random[0]) > 0).all()
    start, after = ({'layers': each.params['layers']} for each in (model, tuned.models[1]))
    for layer in range(3):
        own = [
            np.sum((np.float64(a[layer]) - b[layer]) ** 2)
            for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(after), strict=True)
        ]
        distance = moved_in(found.tuned['usual'])[1, layer, 2]
        np.testing.assert_allclose(distance, np.sqrt(sum(own)), rtol=1e-4)
    settings = bs.analyses.TextSettings(max_length=32)
    again = bs.analyses.attention_change(model, tuned, texts, statistics=(), settings=settings)
    change = again.grids['paper'].mean(axis=1)
    frame = found.frames()['layers'].set_index(['schedule', 'layer'])
    np.testing.assert_allclose(frame.loc['usual'].change, 1 - change, rtol=1e-4)


def test_no_schedule_decides_alone_and_maps_that_stay_are_told_and_left_out():
    given = world('task')
    one, kept = 'decay 1', given.changes['decay 0.65']
    alone = dataclasses.replace(given, changes={one: given.changes[one]})
    assert 'may decide it' in number(alone, 'schedules under which').sentence
    same = {
        seed: {'cosine': dataclasses.replace(each['cosine'], mean=np.ones((6, 2)))}
        for seed, each in kept.items()
    }
    result = dataclasses.replace(given, changes={**given.changes, one: same})
    (warned,) = [each for each in result.findings() if each.warning]
    assert warned.sentence.startswith('Under decay 1, no map changed')
    assert number(result, 'schedules under which').sample == 2
    assert result.verdicts()[0].verdict == HOLDS
    nothing = dataclasses.replace(given, changes={one: same})
    assert nothing.verdicts()[0].verdict == UNDECIDED and len(nothing.findings()) == 1


def test_layers_that_start_at_random_change_from_there_on(model, texts):
    given = {'epochs': 1, 'batch_size': 4, 'micro_batch': 4, 'max_length': 16, 'reinit': 1}
    given |= {'seeds': (7,), 'learning_rate': 1e-20, 'maps_every': 1}
    still = bs.finetune(model, texts, texts, **given)
    found = bs.analyses.where_it_changes(model, {'still': still}, texts, draws=1)
    assert np.abs(change_by_layer(found.changes['still'])).max() < 1e-5
    assert min(each.min() for each in still.similarity.values()) > 1 - 1e-5
    leaves = (jax.tree.leaves(each.params['layers']) for each in (still.models[0], model))
    assert max(np.abs(one[-1] - other[-1]).max() for one, other in zip(*leaves, strict=True)) > 0.01


def test_random_steps_are_as_long_as_layers_moved_where_the_task_was_learnt(model, tuned, texts):
    learnt, noise = (with_p_values(tuned, [p_value] * 2) for p_value in (1e-4, 0.9))
    wild = dataclasses.replace(noise, movement=9 * tuned.movement)
    far = [dataclasses.replace(each, params=_further(model, each)) for each in tuned.models]
    wild = dataclasses.replace(wild, folder=None, in_memory=tuple(far))
    alone = bs.analyses.where_it_changes(model, {'a': learnt}, texts, draws=1)
    beside = bs.analyses.where_it_changes(model, {'a': learnt, 'b': wild}, texts, draws=1)
    assert alone.length == beside.length > 0
    np.testing.assert_array_equal(alone.random, beside.random)


def _further(start, after):
    own, to = (
        {name: each.params[name] for name in ('embeddings', 'layers')} for each in (start, after)
    )
    return after.params | jax.tree.map(lambda s, t: s + 9 * (t - s), own, to)


def test_what_has_no_movement_is_refused(model, tuned, texts):
    former, one = dataclasses.replace(tuned, movement=None), {'a': tuned.first(1), 'b': tuned}
    other = dataclasses.replace(tuned, movement=2 * tuned.movement)
    fresh = bs.finetune(model, texts, texts, start='random', epochs=1, max_length=16)
    for given, message in (
        ({}, 'There are no schedules'),
        ({'other': other}, "tuned.'other'. began from other weights"),
        ({'fresh': fresh}, "tuned.'fresh'. began from other weights"),
        ({'old': former}, "tuned.'old'. has no"),
        (one, 'other seeds or dev examples'),
        (
            {'a': tuned, 'b': dataclasses.replace(tuned, dev_examples=3)},
            'other seeds or dev examples',
        ),
    ):
        with pytest.raises(ValueError, match=message):
            bs.analyses.where_it_changes(model, given, texts)
