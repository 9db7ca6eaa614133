"""Gates have the published distribution, and close where a head is not worth its price."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import scipy.integrate
import scipy.special

import bert_secrets_jax as bs
from bert_secrets_jax.finetune import loop
from bert_secrets_jax.finetune.loop import NonFiniteLossError
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.pruning.gates import (
    probability_open,
    sample_gates,
    settled_gates,
    train_gates,
)
from tests.conftest import killed_at, random_params
from tests.probes.conftest import LETTERS

LEVELS = (-4.0, -1.0, 0.0, 0.7, 3.0)
# The heads of the world that do anything, as (layer, head) counted from 0.
ALIVE = ((0, 1), (2, 3))
HOW = {
    'epochs': 4, 'batch_size': 16, 'micro_batch': 8, 'max_length': 16, 'gate_learning_rate': 0.5,
}  # fmt: skip


def at(*levels):
    """Return log alphas of a model of one layer [1, N]."""
    return np.array([levels], np.float32)


def density(s, log_alpha):
    """The binary Concrete density (Maddison et al. 2017, equation 26)."""
    beta, alpha = 0.33, np.exp(log_alpha)
    top = beta * alpha * s ** (-beta - 1) * (1 - s) ** (-beta - 1)
    return top / (alpha * s**-beta + (1 - s) ** -beta) ** 2


def integral(log_alpha, start, stop):
    return scipy.integrate.quad(density, start, stop, args=(log_alpha,), limit=500)[0]


@pytest.mark.parametrize('log_alpha', LEVELS)
def test_the_probability_of_being_open_is_the_integral_of_the_density(log_alpha):
    # g > 0 where 1.2 s > 0.1.
    closed = integral(log_alpha, 0, 0.1 / 1.2)
    assert float(probability_open(at(log_alpha))[0, 0]) == pytest.approx(1 - closed, abs=1e-5)


def test_draws_have_that_density():
    draws = 20_000
    log_alpha = np.broadcast_to(at(*LEVELS), (draws, 1, len(LEVELS)))
    found = np.asarray(sample_gates(jax.random.key(3), log_alpha))[:, 0]
    assert found.min() == 0 and found.max() == 1
    for column, level in zip(found.T, LEVELS, strict=True):
        error = 4 * 0.5 / np.sqrt(draws)
        assert (column > 0).mean() == pytest.approx(
            float(probability_open(at(level))[0, 0]), abs=error
        )
        for gate in (0.2, 0.5, 0.9):
            below = integral(level, 0, (gate + 0.1) / 1.2)
            assert (column < gate).mean() == pytest.approx(below, abs=error)


def test_settled_gates_are_those_of_the_published_code():
    levels = np.linspace(-5, 5, 41, dtype=np.float32)
    expected = np.clip(scipy.special.expit(levels) * 1.2 - 0.1, 0, 1)
    found = np.asarray(settled_gates(levels[None]))[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.fixture(scope='module')
def world(config, tokenizer):
    """A model in which all heads but two put out nothing, and texts labelled by that model."""
    bert = Bert(dataclasses.replace(config, label_names=('no', 'yes')))
    params = random_params(bert)
    output = np.zeros_like(params['layers']['attention']['output']['kernel'])
    for head in ALIVE:
        output[head] = 3 * params['layers']['attention']['output']['kernel'][head]
    params['layers']['attention']['output']['kernel'] = output
    rng = np.random.default_rng(0)
    texts = [bs.Example(' '.join(rng.choice(LETTERS, 6))) for _ in range(96)]
    model = bs.Pretrained(bert, params, tokenizer)
    batches = bs.encode(tokenizer, texts, max_length=16)
    logits = bs.sweep(model, batches, np.ones((1, 3, 4))).logits[0]
    gap = logits[:, 1] - logits[:, 0]
    # Both classes are equally frequent, and the model is sure of them.
    scale, middle = 12 / np.std(gap), np.median(gap)
    kernel, bias = (scale * np.asarray(params['classifier'][name]) for name in ('kernel', 'bias'))
    bias = bias + np.float32(scale * middle / 2) * np.array([1, -1], np.float32)
    params = params | {'classifier': {'kernel': kernel, 'bias': bias}}
    labelled = [
        dataclasses.replace(text, label=int(label), id=f'world/{row}')
        for row, (text, label) in enumerate(zip(texts, gap > middle, strict=True))
    ]
    return dataclasses.replace(model, params=params), labelled[:64], labelled[64:]


@pytest.fixture(scope='module')
def gated(world):
    return train_gates(*world, coefficients=(0.0, 0.02, 50.0), seeds=2, **HOW | {'epochs': 12})


def test_heads_that_matter_stay_open_and_the_others_close(gated):
    alive = np.zeros((3, 4), bool)
    alive[tuple(zip(*ALIVE, strict=True))] = True
    free, priced, dear = gated.gates.reshape(3, 2, 3, 4)
    # Nothing pulls at a gate that changes nothing and costs nothing.
    expected = float(settled_gates(at(2.0))[0, 0])
    np.testing.assert_allclose(free[:, ~alive], expected, atol=1e-6)
    assert (free[:, alive] > 0.5).all()
    assert (priced[:, ~alive] == 0).all() and (priced[:, alive] > 0.5).all()
    assert (dear == 0).all()
    np.testing.assert_array_equal(gated.masks.reshape(3, 2, 3, 4)[1, 0], alive)
    scores = gated.scores(('accuracy',))
    assert scores['intact'][0]['score'] == 1
    free, priced, dear = np.array([each['score'] for each in scores['rounded']]).reshape(3, 2)
    assert (free == 1).all() and (priced == 1).all() and (dear < 0.8).all()


def test_the_curves_are_of_what_was_trained(gated):
    assert gated.coefficients.tolist() == pytest.approx([0, 0, 0.02, 0.02, 50, 50])
    assert gated.seeds.tolist() == [0, 1] * 3 and gated.models == () and gated.frozen
    assert gated.steps.tolist() == [*range(5, 49, 5), 48]
    assert gated.expected_open.shape == gated.losses.shape == (6, 10)
    expected = scipy.special.expit(gated.log_alpha - 0.33 * np.log(0.1 / 1.1)).sum(axis=(1, 2))
    np.testing.assert_allclose(gated.expected_open[:, -1], expected, rtol=1e-5)
    assert (np.diff(gated.expected_open[4:]) < 0).all()
    assert gated.losses[4, -1] > gated.losses[0, -1] + 0.2


def test_what_gated_models_answer_is_a_sweep(world, gated):
    model, _, dev = world
    batches = bs.encode(model.tokenizer, dev, max_length=16)
    one = np.ones((1, 3, 4), np.float32)
    masks = np.concatenate([one, gated.gates, gated.masks])
    swept = bs.sweep(model, batches, masks, baseline='zero').logits
    ours = np.concatenate([gated.intact[None], gated.gated, gated.rounded])
    np.testing.assert_allclose(ours, swept, atol=2e-4 * np.abs(swept).max())


@pytest.mark.parametrize(
    ('changes', 'devices'),
    [
        ({'micro_batch': 16}, None),
        pytest.param({}, 2, marks=pytest.mark.slow, id='runs apart'),
        pytest.param({}, 4, marks=pytest.mark.slow, id='batches apart'),
        pytest.param({'frozen': False}, 2, marks=pytest.mark.slow, id='with weights'),
    ],
)
def test_how_it_is_computed_does_not_matter(world, changes, devices):
    mesh = devices and jax.sharding.Mesh(jax.devices()[:devices], ('data',))
    how = HOW | {'epochs': 1, 'coefficients': (0.0, 0.1), 'frozen': changes.get('frozen', True)}
    one, other = train_gates(*world, **how), train_gates(*world, mesh=mesh, **how | changes)
    np.testing.assert_allclose(one.log_alpha, other.log_alpha, atol=2e-3)
    np.testing.assert_allclose(one.gated, other.gated, atol=2e-3 * np.abs(one.gated).max())


@pytest.mark.slow
def test_weights_are_trained_with_the_gates_unless_they_are_frozen(world):
    model, train, dev = world
    how = HOW | {'frozen': False, 'learning_rate': 1e-3, 'coefficients': (0.0, 0.02)}
    found = train_gates(model, train, dev, **how)
    assert len(found.models) == 2 and not found.frozen
    batches = bs.encode(model.tokenizer, dev, max_length=16)
    for row, trained in enumerate(found.models):
        change = jax.tree.map(
            lambda a, b: np.abs(np.asarray(a) - b).max(), model.params, trained.params
        )
        assert 0 < max(jax.tree.leaves(change)) < 0.1
        swept = bs.sweep(trained, batches, found.gates[row : row + 1], baseline='zero').logits[0]
        np.testing.assert_allclose(found.gated[row], swept, atol=2e-4 * np.abs(swept).max())
    intact = bs.sweep(model, batches, np.ones((1, 3, 4))).logits[0]
    np.testing.assert_allclose(found.intact, intact, atol=2e-4 * np.abs(intact).max())


@pytest.mark.slow
@pytest.mark.parametrize('frozen', [True, False])
def test_a_folder_changes_nothing_and_killed_it_goes_on(world, tmp_path, monkeypatch, frozen):
    how = HOW | {'coefficients': (0.02, 0.2), 'epochs': 3, 'frozen': frozen}
    expected = train_gates(*world, **how)
    taken = killed_at(monkeypatch, 7)
    monkeypatch.setattr(loop, 'is_due', lambda *_: True)
    with pytest.raises(KeyboardInterrupt):
        train_gates(*world, folder=tmp_path, **how)
    # Once finished, it is read.
    for _ in range(2):
        found = train_gates(*world, folder=tmp_path, **how)
        assert taken == list(range(12))
        for field in dataclasses.fields(expected):
            if field.name != 'models':
                np.testing.assert_array_equal(
                    getattr(found, field.name), getattr(expected, field.name)
                )
    rows = [json.loads(line) for line in (tmp_path / 'curve.jsonl').read_text().splitlines()]
    assert [row['open_heads'] for row in rows[-2:]] == found.expected_open[:, -1].tolist()
    assert rows[-1]['split'] == 'train, lambda 0.2'


def test_a_folder_of_something_else_is_refused(world, tmp_path):
    model, train, dev = world
    how = HOW | {'epochs': 1, 'coefficients': (0.1,), 'folder': tmp_path}
    train_gates(*world, **how)
    for changes, message in (
        ({'coefficients': (0.2,)}, r'with coefficients=\[0.1\], not \[0.2\]: choose another'),
        ({'frozen': False}, 'with frozen=True, not False'),
    ):
        with pytest.raises(ValueError, match=message):
            train_gates(*world, **how | changes)
    classifier = jax.tree.map(lambda leaf: leaf + 1e-3, model.params['classifier'])
    other = dataclasses.replace(model, params=model.params | {'classifier': classifier})
    with pytest.raises(ValueError, match='another model'):
        train_gates(other, train, dev, **how)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'coefficients': ()}, 'must be different finite numbers, at least one'),
        ({'coefficients': (0.1, np.inf)}, 'must be different finite numbers'),
        ({'gate_learning_rate': 0.0}, 'gate_learning_rate=0.0 must be a number'),
    ],
)
def test_settings_out_of_range_are_named(world, changes, message):
    with pytest.raises(ValueError, match=message):
        train_gates(*world, **{'coefficients': (0.1,)} | changes)


def test_what_does_not_fit_is_named(world, config):
    model, train, dev = world
    plain = Bert(dataclasses.replace(config, label_names=()))
    with pytest.raises(ValueError, match='Each text has one label here, .* has no classifier'):
        train_gates(
            bs.Pretrained(plain, random_params(plain), model.tokenizer), train, dev,
            coefficients=(0.1,),
        )  # fmt: skip
    broken = jax.tree.map(lambda leaf: leaf * np.nan, model.params['classifier'])
    with pytest.raises(NonFiniteLossError, match='coefficient 0.1 and seed 0 is nan at step 1'):
        train_gates(
            dataclasses.replace(model, params=model.params | {'classifier': broken}), train, dev,
            coefficients=(0.1,), **HOW,
        )  # fmt: skip
