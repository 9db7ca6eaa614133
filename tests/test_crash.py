"""Crash consistency: what is killed at any write goes on to the same bits."""

import dataclasses
import os

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import resumable
from bert_secrets_jax.finetune.train import finetune
from bert_secrets_jax.runs.run import Run
from tests.faults import kill_at
from tests.finetune.test_train import DEV, SETTINGS, TRAIN

FEW = SETTINGS | {'seeds': 1, 'epochs': 1, 'checkpoint_every': 2}
NEVER = 10**9


def every_write(tmp_path, call, *, step=1):
    """Call something undisturbed; then kill it at each write, call it again, and compare.

    `call` takes a folder and returns arrays. Returns how many writes there were.
    """
    expected = []
    names = kill_at(NEVER, lambda: expected.append(call(tmp_path / 'whole')))
    for number in range(0, len(names), step):
        folder = tmp_path / f'killed{number}'
        assert len(kill_at(number, lambda folder=folder: call(folder))) == number
        found = call(folder)
        jax.tree.map(np.testing.assert_array_equal, found, expected[0])
        assert not list(folder.rglob('*.partial'))
    return names


# Every write of a fine-tuning takes minutes: BERT_SECRETS_EVERY_WRITE=1 tries them all.
STEP = 1 if 'BERT_SECRETS_EVERY_WRITE' in os.environ else 9


@pytest.mark.slow
def test_a_fine_tuning_that_is_killed_at_a_write(tmp_path, model):
    def call(folder):
        tuned = finetune(model, TRAIN, DEV, folder=folder, **FEW)
        curve = [row['loss'] for row in tuned.history]
        return [tuned.models[0].params, curve, (folder / 'curve.csv').read_text()]

    names = every_write(tmp_path, call, step=STEP)
    assert {'inputs.json', 'model.safetensors', 'checkpoint', 'outcome.json'} <= set(names)


def test_a_sweep_that_is_killed_at_a_write(tmp_path, config, pretrained):
    texts = ['the cat ran', 'a dog', 'the old friend saw the small house', 'a bird'] * 3
    masks = bs.masks.single_layers(config)

    def call(folder):
        return resumable.sweep_examples(
            pretrained,
            texts,
            masks,
            compute=bs.Compute(max_length=24, tokens_per_batch=64, folder=folder),
        ).logits

    assert len(every_write(tmp_path, call)) >= 3


@dataclasses.dataclass(frozen=True)
class Kept:
    """A result that `Run` keeps."""

    table: np.ndarray


def test_measured_tables_that_are_killed_at_a_write(tmp_path, pretrained):
    batches = bs.encode(pretrained.tokenizer, ['the cat ran', 'a dog saw the house'], max_length=16)

    def call(folder):
        run, found = Run(folder), []
        for name in ('[SEP]', 'self', 'entropy (nats)'):

            def compute(name=name):
                return Kept(bs.collect(pretrained, batches, [name])[name].mean)

            found.append(run.keep(name, Kept, {'statistic': name}, compute).table)
        return found

    assert len(every_write(tmp_path, call)) == 3
