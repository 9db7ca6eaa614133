"""Learning rates by layer, frozen and fresh parts, and the records of how far each part moves."""

import csv
import dataclasses
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.finetune import loop, optimizers, outcome, steps
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.optimizers import make_optimizer, norms, recorded_steps
from bert_secrets_jax.finetune.train import Finetuned, finetune
from bert_secrets_jax.measure.catalogue import compare
from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.pruning.gates import GateConfig
from tests.conftest import killed_at, relative
from tests.faults import Killed
from tests.finetune.test_train import DEV, SETTINGS, TRAIN

PARTS = ('embeddings', '1', '2', '3', 'head')


def by_hand(tree):
    """The arrays of each part, one by one."""
    parts = {name: jax.tree.leaves(tree['embeddings']) for name in PARTS[:1]}
    for at, name in enumerate(PARTS[1:-1]):
        parts[name] = [np.asarray(leaf[at]) for leaf in jax.tree.leaves(tree['layers'])]
    others = {name: each for name, each in tree.items() if name not in ('embeddings', 'layers')}
    return parts | {'head': jax.tree.leaves(others)}


def norm(arrays):
    return np.sqrt(sum((np.asarray(each, np.float64) ** 2).sum() for each in arrays))


def tuned_with(pretrained, **settings):
    return finetune(pretrained, TRAIN, DEV, **SETTINGS | settings)


@pytest.mark.parametrize('decay', [0.65, 1.5])
@pytest.mark.parametrize('optimizer', ['adamw', 'bert_adam'])
def test_layer_decay_is_a_rate_of_each_part(pretrained, optimizer, decay):
    """Weight decay included; the gradients are clipped together, as without it."""
    start = init_params(Bert(dataclasses.replace(pretrained.config, label_names=('a', 'b'))), 0)
    rng = np.random.default_rng(0)
    gradients = jax.tree.map(lambda leaf: np.float32(rng.normal(size=leaf.shape)), start)
    plain, scaled = (
        make_optimizer(optimizer, lambda _: 0.01, weight_decay=0.1, clip=1.0, layer_decay=each)
        for each in (1.0, decay)
    )
    whole, found = (
        by_hand(each.update(gradients, each.init(start), start)[0]) for each in (plain, scaled)
    )
    for name, rate in zip(PARTS, [decay**3, decay**2, decay, 1, 1], strict=True):
        for expected, own in zip(whole[name], found[name], strict=True):
            np.testing.assert_allclose(own, rate * expected, rtol=1e-5)


@pytest.mark.parametrize('optimizer', ['adamw', 'bert_adam'])
def test_what_is_frozen_does_not_move_by_a_bit(pretrained, optimizer):
    """Two seeds, with weight decay; everything else moves."""
    settings = {'freeze': 'embeddings, 2', 'weight_decay': 0.5, 'optimizer': optimizer}
    found = tuned_with(pretrained, **settings)
    for model in found.models:
        before, after = by_hand(pretrained.params), by_hand(model.params)
        for name in PARTS[:-1]:
            same = [np.array_equal(a, b) for a, b in zip(before[name], after[name], strict=True)]
            assert all(same) if name in ('embeddings', '2') else not any(same)
    still = np.isin(PARTS, ['embeddings', '2'])
    assert (found.movement[..., still, 2] == 0).all()
    assert (found.movement[..., ~still, 2] > 0).all()
    # Their gradient is there, but does not count when all are clipped together.
    assert (found.movement[..., 0] > 0).all()
    own = make_optimizer('adamw', lambda _: 1.0, weight_decay=0.0, clip=1.0, freeze=('embeddings',))
    params = {'embeddings': jnp.full(2, 1e6), 'layers': {'kernel': jnp.full((1, 2), 0.1)}}
    _, state = own.update(params, own.init(params), params)
    (mean,) = [each.mu for each in state if hasattr(each, 'mu')]
    np.testing.assert_allclose(mean['layers']['kernel'], 0.01, rtol=1e-5)


def test_top_layers_start_at_random(pretrained):
    """What is frozen shows the start, which differs between seeds."""
    found = tuned_with(pretrained, reinit=2, freeze='embeddings,1,2,3', learning_rate=1e-20)
    for seed, model in zip(found.seeds, found.models, strict=True):
        fresh = by_hand(init_params(model.bert, seed))
        before, start = by_hand(pretrained.params), by_hand(model.params)
        for name in PARTS[:-1]:
            expected = fresh if name in ('2', '3') else before
            jax.tree.map(np.testing.assert_array_equal, start[name], expected[name])
        pooler = init_params(model.bert, seed)['pooler']['kernel']
        np.testing.assert_allclose(model.params['pooler']['kernel'], pooler, atol=1e-12)


def test_a_constant_rate_has_no_warmup(pretrained):
    rows = tuned_with(pretrained, schedule='constant').history
    found = [row['learning_rate'] for row in rows if row['split'] == 'train']
    np.testing.assert_allclose(found, SETTINGS['learning_rate'], rtol=1e-6)


# The fresh layer counts from where it started.
RECORDED = {'layer_decay': 0.65, 'reinit': 1, 'maps_every': 4}


@pytest.fixture(scope='module')
def recorded(pretrained):
    return tuned_with(pretrained, **RECORDED)


def test_records_are_the_norms_by_hand(pretrained, recorded, monkeypatch):
    """Of each seed, from the parameters and gradients that a step is given."""
    states, slopes = [], []
    update = steps._update

    def watched(optimizer, state, gradients, run, of_runs):
        slopes.append(jax.tree.map(np.array, gradients))
        states.append(jax.tree.map(np.array, state.params))
        return update(optimizer, state, gradients, run, of_runs)

    monkeypatch.setattr(steps, '_update', watched)
    again = tuned_with(pretrained, **RECORDED)
    np.testing.assert_array_equal(again.movement, recorded.movement)
    # Eight steps of both seeds in turn, each state before the step.
    assert [*recorded_steps(8)] == [4, 8] and len(states) == 16
    for seed in (0, 1):
        # The other seed has its step between this one and the next.
        given = [jax.tree.map(operator.itemgetter(seed), states[at]) for at in (6 + seed, 0, 8)]
        gradients, before, start, after = map(by_hand, (slopes[6 + seed], *given))
        for part, name in enumerate(PARTS):
            update, moved = (
                norm(map(np.subtract, after[name], each[name])) for each in (before, start)
            )
            expected = [norm(gradients[name]), update, moved, moved / norm(start[name])]
            found = recorded.movement[seed, 0, part]
            np.testing.assert_allclose(found, expected, rtol=2e-3)


def test_killed_and_resumed_records_and_maps_are_the_same(
    pretrained, recorded, tmp_path, monkeypatch
):
    killed_at(monkeypatch, 5, Killed())
    monkeypatch.setattr(loop, 'is_due', lambda *_: True)
    with pytest.raises(Killed):
        tuned_with(pretrained, folder=tmp_path, **RECORDED)
    found = tuned_with(pretrained, folder=tmp_path, **RECORDED)
    read = Finetuned.load(tmp_path)
    for each in (found, read):
        np.testing.assert_array_equal(each.movement, recorded.movement)
        for step, similarity in recorded.similarity.items():
            np.testing.assert_array_equal(each.similarity[step], similarity)
    first = read.first(1)
    assert first.movement.shape == (1, 2, 5, 4) and first.similarity[8].shape == (1, 3)
    assert 'maps,1,8,2,similarity_L3' in (tmp_path / 'curve.csv').read_text()
    with (tmp_path / 'movement.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == ['seed', 'step', 'layer', *optimizers.MEASURES]
    assert [row['layer'] for row in rows[:5]] == [*PARTS] and len(rows) == 2 * 2 * 5
    expected = recorded.movement[..., 3].ravel()
    np.testing.assert_allclose([float(row['relative_distance']) for row in rows], expected)


def test_maps_are_compared_after_chosen_steps(pretrained, recorded):
    """Those of the last step are those of the models."""
    found = recorded
    starts = tuned_with(pretrained, reinit=1, learning_rate=1e-20, epochs=1).models
    assert [*found.similarity] == [4, 8]
    for seed, (start, model) in enumerate(zip(starts, found.models, strict=True)):
        batches = encode(pretrained.tokenizer, DEV, max_length=SETTINGS['max_length'])
        table = compare(start, model, batches, ['cosine'])['cosine']
        np.testing.assert_allclose(found.similarity[8][seed], table.mean.mean(axis=1), atol=1e-6)
    assert not np.array_equal(found.similarity[4], found.similarity[8])
    assert not tuned_with(pretrained).similarity


def test_long_trainings_are_recorded_now_and_then():
    for total in (1, 3, 8, 345, 4001, 10**6):
        found = recorded_steps(total)
        assert found[0] >= 1 and found[-1] == total and len(found) <= 1000
    assert recorded_steps(345)[:2] == range(1, 9, 4)


def test_layers_apart_and_many_numbers_have_the_same_norms():
    stacked = np.random.default_rng(0).normal(size=(3, 300, 1000)).astype(np.float32)
    others = {'embeddings': jnp.ones(4), 'pooler': jnp.ones(9)}
    apart = {str(at): {'kernel': stacked[row]} for row, at in enumerate((2, 4, 10))}
    for layers in ({'kernel': stacked}, dict(sorted(apart.items()))):
        found = norms(others | {'layers': layers})
        np.testing.assert_allclose(found, [2, *map(norm, stacked[:, None]), 3], rtol=1e-5)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'layer_decay': 0.0}, 'layer_decay=0.0 must be a number from 0 to 10, but not 0'),
        ({'layer_decay': -1.0}, 'layer_decay=-1.0 must be'),
        ({'layer_decay': 10.0, 'learning_rate': 2e-3}, 'would learn at a rate of 2, and it must'),
        ({'reinit': 4}, 'reinit=4: the parts of the model are.* At most 3 layers'),
        ({'freeze': '4'}, "freeze='4', reinit=0: the parts of the model are"),
        ({'freeze': 'layer 1'}, "freeze='layer 1'.* layers 1 to 3 and 'head'"),
        ({'freeze': 'embeddings,1,2,3,head'}, 'and one has to learn'),
        ({'schedule': 'cosine'}, "schedule='cosine' must be 'linear' or 'constant'"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_a_folder_is_claimed(
    pretrained, tmp_path, settings, message
):
    with pytest.raises(ValueError, match=message):
        tuned_with(pretrained, folder=tmp_path, **settings)
    assert not [*tmp_path.iterdir()]


def test_shared_layers_are_one_and_gates_learn_alike(config):
    model = dataclasses.replace(relative(config, 'albert'), label_names=())
    FinetuneConfig(freeze='1', reinit=1).check_layers(model)
    with pytest.raises(ValueError, match='layers 1 to 2'):
        FinetuneConfig(freeze='3').check_layers(model)
    for settings in ({'layer_decay': 0.5}, {'freeze': '1'}, {'reinit': 1}, {'maps_every': 1}):
        with pytest.raises(ValueError, match='Gates are learnt without'):
            GateConfig(coefficients=(0.1,), **settings)


def test_damaged_records_are_refused(recorded, tmp_path):
    for change, known in (({}, True), ({'movement': recorded.movement[:1]}, False)):
        outcome.write_outcome(dataclasses.replace(recorded, folder=tmp_path, **change))
        with pytest.raises(ValueError, match='checksums' if known else 'damaged or of another'):
            Finetuned.load(tmp_path)
