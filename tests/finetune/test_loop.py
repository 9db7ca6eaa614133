"""Training learns, and nothing about how it is run changes what it learns."""

import csv
import dataclasses
import json

import jax
import numpy as np
import pytest

from bert_secrets_jax.data.encoding import encode, tokenize
from bert_secrets_jax.finetune import loop, seeds, steps
from bert_secrets_jax.finetune.checkpoints import Checkpoints
from bert_secrets_jax.finetune.config import FinetuneConfig
from bert_secrets_jax.finetune.seeds import train_runs
from bert_secrets_jax.finetune.steps import Data, rows_of_step
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import fixed
from bert_secrets_jax.model.weights import Pretrained, save_pretrained
from tests.conftest import RELATIVES, as_torch, fresh_params, killed_at, rarely, relative
from tests.faults import Killed
from tests.finetune.test_train import make_examples
from tests.model.conftest import as_jina

CONFIG = FinetuneConfig(
    epochs=2, batch_size=8, micro_batch=4, learning_rate=5e-3, max_length=24, buckets=(8, 16),
    log_every=2,
)  # fmt: skip
BOTH = dataclasses.replace(CONFIG, seeds=(3, 4))
COUNTS = 'epochs', 'batch_size', 'micro_batch', 'max_length', 'log_every', 'checkpoint_every'


@pytest.fixture(scope='module')
def model(config):
    return Bert(dataclasses.replace(config, label_names=('no', 'yes')))


def make_data(tokenizer):
    examples = make_examples(46, name='toy')
    labels = np.array([example.label for example in examples])
    return Data(
        train=tokenize(tokenizer, examples[:30], max_length=24),
        train_labels=labels[:30],
        train_ids=[example.id for example in examples[:30]],
        dev=encode(tokenizer, examples[30:], max_length=24),
        dev_labels=labels[30:],
        metrics=('f1', 'accuracy'),
    )


@pytest.fixture(scope='module')
def data(tokenizer):
    return make_data(tokenizer)


def run(model, data, directory, config, **kwargs):
    """Train and return the history and the last parameters by seed."""
    last = {}

    def save(seed, which, params):
        if which == 'last':
            last[seed] = jax.tree.map(np.asarray, params)

    params = [fresh_params(model, seed) for seed in config.seeds]
    history, _ = train_runs(model, params, data, config, directory, save=save, **kwargs)
    return history, last


def logits(model, params, data):
    stacked = jax.tree.map(lambda leaf: leaf[None], params)
    return steps.predict(model, {'params': stacked}, data.dev)[0]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('reference')


@pytest.fixture(scope='module')
def reference(model, data, folder):
    """Two seeds together."""
    return run(model, data, folder, BOTH)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ('changes', 'devices'),
    [
        ({'seeds': (4,)}, None),
        ({'micro_batch': 8, 'buckets': ()}, None),
        pytest.param({'micro_batch': 1}, None, marks=SLOW),
        pytest.param({}, 2, marks=SLOW, id='seeds apart'),
        pytest.param({}, 4, marks=SLOW, id='batches apart'),
    ],
    ids=str,
)
def test_how_it_is_computed_does_not_matter(model, data, reference, changes, devices):
    """Each seed alone, or with other micro-batches or devices: a step has the same gradient."""
    mesh = devices and jax.sharding.Mesh(jax.devices()[:devices], ('data',))
    _, found = run(model, data, None, dataclasses.replace(BOTH, **changes), mesh=mesh)
    for seed, params in found.items():
        np.testing.assert_allclose(
            logits(model, params, data), logits(model, reference[1][seed], data), atol=2e-4
        )


def test_devices_that_divide_nothing_are_named(model, data, tmp_path):
    mesh = jax.sharding.Mesh(jax.devices()[:3], ('data',))
    with pytest.raises(ValueError, match='Neither 1 seeds nor micro-batches of 4 split over 3'):
        run(model, data, tmp_path, CONFIG, mesh=mesh)


def test_every_example_is_seen_once_an_epoch_in_another_order():
    rows = lambda seed, epoch: np.concatenate(
        [rows_of_step(seed, epoch * 4 + step, 30, 8, 4) for step in range(4)]
    )
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        seen = rows(seed, epoch)
        assert len(seen) == 32 and (seen == -1).sum() == 2
        assert sorted(seen[seen >= 0]) == list(range(30))
    assert not np.array_equal(rows(0, 0), rows(0, 1))
    assert not np.array_equal(rows(0, 0), rows(1, 0))


def test_curves_are_files(reference, folder):
    history, _ = reference
    lines = (folder / 'curve.jsonl').read_text().splitlines()
    assert [json.loads(line) for line in lines] == history
    with (folder / 'curve.csv').open() as file:
        rows = list(csv.DictReader(file))
    train, dev = (
        {row['metric'] for row in rows if row['split'] == name} for name in ('train', 'dev')
    )
    assert train == {'loss', 'learning_rate'}
    assert dev == {'loss', 'f1', 'f1_low', 'f1_high', 'accuracy', 'score'}
    rows = {row['step'] for row in history if row['split'] == 'train' and row['seed'] == 4}
    assert rows == {2, 4, 6, 8}


def test_best_and_last_are_kept_and_nan_is_never_the_best(model, data, monkeypatch):
    """Whenever the score became better, and only then: those weights that had it."""
    scores = iter([0.9, np.nan, 0.5, np.nan, 0.6, 0.4])  # before training, then five epochs
    evaluated, kept = [], []

    def evaluate(metrics, of_dev, labels):
        evaluated.append(of_dev)
        return {'score': next(scores)}

    monkeypatch.setattr(seeds, 'evaluate', evaluate)
    history, _ = train_runs(
        model, [fresh_params(model, 0)], data, dataclasses.replace(CONFIG, epochs=5),
        save=lambda seed, which, weights: kept.append((which, logits(model, weights, data))),
    )  # fmt: skip
    # NaN for want of better, 0.5, 0.6, and the end.
    assert [which for which, _ in kept] == ['best', 'best', 'best', 'last']
    for (_, of_kept), epoch in zip(kept, (1, 2, 4, 5), strict=True):
        np.testing.assert_allclose(of_kept, evaluated[epoch], atol=1e-6)
    assert seeds.best_rows(history)[0]['score'] == 0.6


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(model, data, tmp_path):
    config = dataclasses.replace(CONFIG, checkpoint_every=1, buckets=())
    poisoned = dataclasses.replace(data, train_labels=data.train_labels.astype(np.float32))
    regression = Bert(dataclasses.replace(model.config, label_names=('score',)))
    poisoned.train_labels[int(rows_of_step(0, 2, 30, 8, 4)[0])] = np.inf
    poisoned = dataclasses.replace(poisoned, metrics=('pearson',))
    with pytest.raises(loop.NonFiniteLossError) as error:
        run(regression, poisoned, tmp_path / 'bad', config)
    message = str(error.value)
    assert 'The loss of seed 0 is inf at step 3 (learning rate ' in message
    for row in rows_of_step(0, 2, 30, 8, 4):
        assert f'toy/{row}' in message
    # The checkpoint of step 2 is there, and finite.
    with Checkpoints(tmp_path / 'bad') as checkpoints:
        assert checkpoints.latest_step == 2


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        *(({name: 0}, f'{name}=0 must be a whole number from 1 to') for name in COUNTS),
        ({'micro_batch': 5}, 'micro_batch=5 must divide batch_size=32'),
        ({'seeds': ()}, 'must have at least one, each a whole number'),
        ({'seeds': (-1,)}, r'seeds=\(-1,\) must have at least one, each a whole number from 0'),
        ({'learning_rate': 0.0}, 'learning_rate=0.0 must be a number from 0 .* but not 0'),
        ({'weight_decay': -0.1}, 'weight_decay=-0.1 must be a number from 0 to'),
        ({'warmup': 1.0}, 'warmup=1.0 must be a number from 0 to 1, but not 1'),
    ],
    ids=str,
)
def test_settings_out_of_range_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        FinetuneConfig(**settings)


@pytest.mark.parametrize('kill_at', rarely([1, 3, 4, 7], often=[4]))
def test_killed_and_resumed_it_is_the_same_to_the_bit(
    model, data, reference, tmp_path, monkeypatch, kill_at
):
    """With a checkpoint after every step, in the middle of rows of the curve too."""
    # Ctrl-C comes through as well.
    taken = killed_at(monkeypatch, kill_at, KeyboardInterrupt(), Killed())
    monkeypatch.setattr(loop, 'is_due', lambda *_: True)
    for error in (KeyboardInterrupt, Killed):
        with pytest.raises(error):
            run(model, data, tmp_path, BOTH)
    history, params = run(model, data, tmp_path, BOTH)
    assert taken == list(range(8))
    assert history == reference[0]
    jax.tree.map(np.testing.assert_array_equal, params, reference[1])


@pytest.mark.parametrize(('took', 'expected'), [(0, [0, 3, 4, 7, 8]), (15, [0, 3, 4, 8])])
def test_a_checkpoint_is_written_when_the_last_one_is_old(
    model, data, tmp_path, monkeypatch, took, expected
):
    """Two minutes after the last one, or 20 times what that took, or at the end of an epoch."""
    now, written = [0.0], []
    monkeypatch.setattr(loop.time, 'monotonic', lambda: now[0])
    take, write = steps.Steps.take, Checkpoints.save

    def step(*arguments):
        now[0] += 50
        return take(*arguments)

    def save(self, state, record):
        written.append(int(state.step))
        write(self, state, record)
        now[0] += took

    monkeypatch.setattr(steps.Steps, 'take', step)
    monkeypatch.setattr(Checkpoints, 'save', save)
    run(model, data, tmp_path, dataclasses.replace(CONFIG, log_every=100))
    assert written == expected


TYPES = sorted(RELATIVES.keys() - {'xlm-roberta', 'camembert'})


@pytest.mark.parametrize('model_type', rarely(TYPES, often=['bert', 'modernbert']))
def test_steps_equal_pytorch(config, tokenizer_of, tmp_path, model_type):
    """Eight steps of AdamW without dropout, as `transformers` and torch take them."""
    torch = pytest.importorskip('torch')
    transformers = pytest.importorskip('transformers')
    safetensors = pytest.importorskip('safetensors.torch')
    tokenizer, config = tokenizer_of(model_type), relative(config, model_type)
    off = {'hidden_dropout_prob', 'attention_probs_dropout_prob', 'classifier_dropout'}
    off = dict.fromkeys(off - set(fixed(config.family)), 0.0)
    names = ('no', 'yes')
    model = Bert(dataclasses.replace(config, label_names=names, initializer_range=0.05, **off))
    data, params = make_data(tokenizer), fresh_params(model, 0)
    save_pretrained(Pretrained(model, params, tokenizer), tmp_path / 'model')
    settings = dataclasses.replace(CONFIG, weight_decay=0.1, buckets=())
    _, last = run(model, data, tmp_path / 'ours', settings)

    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / 'model', attn_implementation='eager'
    )
    if config.family.code:
        as_jina(theirs, config)
        theirs.load_state_dict(safetensors.load_file(tmp_path / 'model/model.safetensors'))
    theirs.train()
    groups = [{'params': [], 'weight_decay': decay} for decay in (0.0, 0.1)]
    for name, weight in theirs.named_parameters():
        decays = not (name.endswith('bias') or 'norm' in name.lower())
        groups[decays]['params'].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=5e-3, betas=(0.9, 0.999), eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 1, 8)
    for step in range(8):
        rows = rows_of_step(0, step, 30, 8, 4)
        inputs = as_torch(config, data.train.batch(rows[rows >= 0], 24).inputs)
        labels = torch.tensor(data.train_labels[rows[rows >= 0]])
        theirs(**inputs, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    theirs.eval()
    expected = np.full((16, 2), np.nan, np.float32)
    with torch.no_grad():
        for batch in data.dev:
            real, given = batch.example >= 0, as_torch(config, batch.inputs)
            expected[batch.example[real]] = theirs(**given).logits.numpy()[real]
    moved = np.abs(expected - logits(model, params, data)).max()
    assert moved > 0.01
    np.testing.assert_allclose(logits(model, last[0], data), expected, atol=0.01 * moved)
