"""Benchmarks run, and their sides compute the same (each program checks that itself)."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import bert_secrets_jax as bs
from benchmarks.timing import interleaved, print_table
from bert_secrets_jax.model.bert import Bert
from tests.conftest import ROOT, random_params

pytest.importorskip('torch')


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory, config, tokenizer):
    """A tiny BERT of two classes that takes 128 tokens."""
    bert = Bert(dataclasses.replace(config, max_position_embeddings=128, label_names=('no', 'yes')))
    directory = tmp_path_factory.mktemp('checkpoint')
    bs.save_pretrained(bs.Pretrained(bert, random_params(bert), tokenizer), directory)
    return directory


@pytest.mark.parametrize(
    ('program', 'settings', 'said'),
    [
        ('attention_statistics', ('--repeats=1',), 'equal to 1e-5'),
        ('norms', ('--repeats=1',), 'are equal to 2e-4'),
        ('patterns', ('--repeats=1',), 'of the classes differ'),
        ('finetuning', ('--steps=1',), 'PyTorch, padded to 128'),
        pytest.param(
            'sweep',
            ('--rounds=1', '--torch_heads=2', '--out=OUT'),
            'operations saved',
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_benchmark(program, settings, said, checkpoint, glue_dir, tmp_path):
    out = tmp_path / 'sweep.json'
    arguments = [
        f'--model={checkpoint}', f'--glue_dir={glue_dir}',
        *(setting.replace('OUT', str(out)) for setting in settings),
    ]  # fmt: skip
    if program != 'finetuning':
        arguments.append('--examples=4')
    result = subprocess.run(
        [sys.executable, '-m', f'benchmarks.{program}', *arguments],
        cwd=ROOT, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert said in result.stdout
    if program == 'sweep':
        ways = json.loads(out.read_text())['ways']
        assert all(len(way['rounds']) == 1 and way['seconds'] > 0 for way in ways.values())


def test_the_benchmark_of_removal(checkpoint, tmp_path):
    out = tmp_path / 'removal.json'
    result = subprocess.run(
        [
            sys.executable, '-m', 'benchmarks.removal', f'--model={checkpoint}', f'--out={out}',
            '--rounds=1', '--batch_sizes=1,3', '--length=8',
        ],
        cwd=ROOT, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    assert '+1.8 %' in result.stdout and 'half of all heads at random' in result.stdout
    for removed in json.loads(out.read_text())['removed'].values():
        assert sum(removed['heads_left']) == 6
        assert all(min(speeds) > 0 for speeds in removed['examples_per_second'].values())


def test_ways_take_turns(capsys):
    calls = []
    seconds = interleaved(
        {name: lambda name=name: calls.append(name) for name in 'ab'}, rounds=3, warm_up=1
    )
    assert calls == ['a', 'b'] * 4
    assert [len(rounds) for rounds in seconds.values()] == [3, 3]
    print_table({'ours': [9, 1, 2], 'theirs': [6, 5, 60]}, 10, 'examples')
    _, ours, theirs = capsys.readouterr().out.splitlines()
    assert ours.split() == ['ours', '2.00', '5.0']
    assert theirs.split() == ['theirs', '6.00', '1.7', '3.00x']
