"""Checkpoints that are broken or hostile: nothing of them runs, and each fault is named."""

import functools
import json
import math
import os
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from absl import logging

from bert_secrets_jax.files import sha256
from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import Pretrained, fingerprint, from_pretrained, save_pretrained
from tests.conftest import relative
from tests.model.conftest import rewrite, set_json

LOAD = """
import sys
from bert_secrets_jax.model.weights import from_pretrained
try:
    print('loaded', len(from_pretrained(sys.argv[1]).tokenizer))
except (ValueError, OSError) as error:
    print('refused', error)
"""
# Code of a checkpoint: what imports it leaves a file behind.
CODE = """
import pathlib
pathlib.Path(__file__).with_name('has_run').touch()
from transformers import BertConfig as OwnConfig, BertTokenizerFast as OwnTokenizer
pathlib.Path({marker!r}).touch()
"""
QUERY = 'bert.encoder.layer.1.attention.self.query.weight'


@pytest.fixture
def with_vocabulary(directory, tokenizer):
    """The model with vocab.txt in place of tokenizer.json; gives the lines of the file."""
    (directory / 'tokenizer.json').unlink()
    (directory / 'tokenizer_config.json').write_text('{"tokenizer_class": "BertTokenizer"}')
    vocabulary = tokenizer.get_vocab()
    lines = sorted(vocabulary, key=vocabulary.get)
    write_vocabulary(directory, lines)
    return lines


def write_vocabulary(directory, lines):
    (directory / 'vocab.txt').write_text('\n'.join(lines) + '\n')


@pytest.mark.parametrize('with_model_type', [True, False])
def test_no_code_of_a_checkpoint_is_offered_or_run(directory, tmp_path, with_model_type):
    (directory / 'own.py').write_text(CODE.format(marker=str(tmp_path / 'has_run')))
    auto_map = {
        'AutoConfig': 'own.OwnConfig',
        'AutoModel': 'own.OwnModel',
        'AutoTokenizer': ['own.OwnTokenizer', 'own.OwnTokenizer'],
    }
    set_json(directory / 'config.json', auto_map=auto_map)
    set_json(directory / 'tokenizer_config.json', auto_map=auto_map, tokenizer_class='OwnTokenizer')
    if not with_model_type:
        values = json.loads((directory / 'config.json').read_text())
        del values['model_type']
        (directory / 'config.json').write_text(json.dumps(values))
    run = subprocess.run(
        [sys.executable, '-c', LOAD, str(directory)],
        input='y\n' * 20, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert not list(tmp_path.rglob('has_run'))
    assert run.stdout.startswith(('loaded', 'refused'))
    assert 'trust_remote_code' not in run.stdout + run.stderr
    assert '[y/N]' not in run.stdout + run.stderr


def with_value(value):
    return lambda weight: np.where(np.arange(24) == 4, np.float32(value), weight)


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        *((with_value(value), 'has NaN or inf') for value in (np.nan, np.inf, -np.inf)),
        (lambda weight: weight.astype(np.float64) + 1e300, 'has NaN or infinity in 576 of 576'),
        *(
            (lambda weight, dtype=dtype: weight.astype(dtype), f'is of type {np.dtype(dtype)}')
            for dtype in (np.int64, np.int32, np.uint8, np.bool_)
        ),
        # The library of the file itself knows no complex numbers.
        (lambda weight: weight.astype(np.complex64), None),
    ],
)
def test_weights_of_what_is_no_number_are_named(directory, change, named):
    rewrite(directory, lambda tensors: tensors | {QUERY: change(tensors[QUERY])})
    tensor = named and rf'.*layer\.1\.attention\.self\.query\.weight {named}'
    with pytest.raises(ValueError, match=rf'model\.safetensors{tensor or ""}'):
        from_pretrained(directory)


@pytest.mark.parametrize('dtype', [np.float16, ml_dtypes.bfloat16, np.float64])
def test_weights_of_other_precisions_are_read(directory, params, dtype):
    rewrite(directory, lambda tensors: {name: t.astype(dtype) for name, t in tensors.items()})
    loaded = from_pretrained(directory).params
    rounded = jax.tree.map(lambda leaf: np.asarray(leaf).astype(dtype).astype(np.float32), params)
    jax.tree.map(np.testing.assert_array_equal, loaded, rounded)
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(loaded))


def test_damaged_weights_are_refused_with_their_file(directory):
    file = directory / 'model.safetensors'
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], 'little')
    header = json.loads(whole[8 : 8 + length])
    name = next(name for name in header if name != '__metadata__')
    longer = json.dumps(header | {name: header[name] | {'shape': [10**9, 10**9]}}).encode()
    for data in (
        b'',
        whole[:4],
        whole[: len(whole) // 2],
        whole[:-1],
        whole + b'more',
        (2**62).to_bytes(8, 'little') + whole[8:],
        len(longer).to_bytes(8, 'little') + longer + whole[8 + length :],
        (8).to_bytes(8, 'little') + b'[' * 8,
    ):
        file.write_bytes(data)
        with pytest.raises(
            ValueError, match=r'model\.safetensors is not a complete safetensors file'
        ):
            from_pretrained(directory)


def test_weights_in_the_cache_of_the_hub_are_compared_with_their_hash(directory, tmp_path):
    file = directory / 'model.safetensors'
    data = bytearray(file.read_bytes())
    blob = tmp_path / sha256(file)
    blob.write_bytes(data)
    file.unlink()
    file.symlink_to(blob)
    from_pretrained(directory)
    assert fingerprint(directory) == blob.name
    # The sign of the last number.
    data[-1] ^= 0x80
    blob.write_bytes(data)
    with pytest.raises(ValueError, match='is not the file that the hub has'):
        from_pretrained(directory)


NUMBERS = (
    'vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads', 'intermediate_size',
    'max_position_embeddings', 'type_vocab_size', 'hidden_dropout_prob', 'layer_norm_eps',
    'attention_probs_dropout_prob', 'initializer_range', 'pad_token_id',
)  # fmt: skip


@pytest.mark.parametrize('key', NUMBERS)
def test_numbers_of_config_json_are_checked(directory, key):
    wrong = [None, '12', True, [12], {'a': 1}, -1, math.nan, math.inf, 2**31 * 1000, 10**400]
    if key not in ('hidden_dropout_prob', 'attention_probs_dropout_prob', 'initializer_range',
                   'layer_norm_eps'):  # fmt: skip
        wrong += [24.0, 0.5]
    for value in wrong:
        set_json(directory / 'config.json', **{key: value})
        with pytest.raises(ValueError, match=rf'config\.json: .*{key}='):
            from_pretrained(directory)


@pytest.mark.parametrize(
    'values',
    [
        {'model_type': ['bert']},
        {'model_type': None},
        {'hidden_act': None},
        {'hidden_act': {'a': [1]}},
        {'classifier_dropout': 'none'},
        {'classifier_dropout': 1.0},
        {'layer_norm_eps': 0},
        {'id2label': [1, 2, 3]},
        {'id2label': {'0': None, '1': 'b', '2': 'c'}},
        {'architectures': 'BertForSequenceClassification'},
        {'architectures': [1]},
        {'problem_type': 3},
        {'pad_token_id': 60},
        {'tokenizer_class': ['a']},
        {'is_decoder': 'yes'},
        {'novelty': functools.reduce(lambda inner, _: [inner], range(90), 1)},
    ],
)
def test_other_values_of_config_json_are_checked(directory, values):
    set_json(directory / 'config.json', **values)
    (key,) = values
    with pytest.raises(ValueError, match=rf'config\.json: .*{key}='):
        from_pretrained(directory)


@pytest.mark.parametrize(
    'text',
    [
        '', '{', 'null', '[]', '"bert"', '\x00\x01', '[' * 100_000, '{"a":' * 5_000,
        '{"hidden_size": 24, "hidden_size": 48}', '9' * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_config_is_refused_with_its_file(directory, text):
    (directory / 'config.json').write_text(text)
    with pytest.raises(ValueError, match=r'config\.json'):
        from_pretrained(directory)


@pytest.mark.parametrize(
    'values',
    [
        {'num_hidden_layers': 900},
        {'vocab_size': 9_000_000},
        {'max_position_embeddings': 9_000_000},
        {'hidden_size': 96_000, 'intermediate_size': 900_000},
    ],
)
def test_a_config_far_larger_than_its_weights_is_not_tried(directory, values):
    set_json(directory / 'config.json', **values)
    for label_names in (None, ('a', 'b')):
        with pytest.raises(ValueError, match=r'config\.json is of a model of .* numbers or more'):
            from_pretrained(directory, label_names=label_names)


@pytest.mark.parametrize('model_type', ['roberta', 'distilbert', 'electra'])
def test_errors_name_the_keys_of_other_model_types(tmp_path, config, tokenizer_of, model_type):
    bert = Bert(relative(config, model_type))
    save_pretrained(
        Pretrained(bert, init_params(bert, seed=1), tokenizer_of(model_type)), tmp_path / 'model'
    )
    key = {'distilbert': 'dim'}.get(model_type, 'hidden_size')
    set_json(tmp_path / 'model' / 'config.json', **{key: '24'})
    with pytest.raises(ValueError, match=rf"config\.json: .*\b{key}='24' must be a whole number"):
        from_pretrained(tmp_path / 'model')


def test_a_config_made_in_python_is_checked():
    with pytest.raises(ValueError, match=r'hidden_dropout_prob=1.5 must be a number from 0 to 1'):
        BertConfig(hidden_dropout_prob=1.5)
    with pytest.raises(ValueError, match=r'layer_norm_eps=nan'):
        BertConfig(layer_norm_eps=math.nan)


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (lambda lines: [], 'lacks|was not loaded'),
        (lambda lines: lines[:2], r'lacks .*\[CLS\]|lacks .*\[SEP\]'),
        (lambda lines: [line for line in lines if line != '[SEP]'], r'lacks \[SEP\]'),
        (lambda lines: [*lines, *(['the'] * 40)], 'wordpieces, the model 60'),
        (lambda lines: [*lines[:10], *lines[:10], *lines[10:], *lines], 'wordpieces, the model'),
    ],
)
def test_vocabularies_that_do_not_fit_are_refused(directory, with_vocabulary, change, named):
    write_vocabulary(directory, change(with_vocabulary))
    with pytest.raises(ValueError, match=named):
        from_pretrained(directory)


@pytest.mark.parametrize(
    ('change', 'told'),
    [
        (
            lambda lines: lines[:30],
            'has 30 wordpieces, the model 60: words of a vocabulary that was cut off',
        ),
        (lambda lines: [*lines[:-1], 'cat'], "vocab.txt has 1 wordpieces twice, such as 'cat'"),
    ],
)
def test_vocabularies_that_hardly_fit_are_told(
    directory, with_vocabulary, monkeypatch, change, told
):
    write_vocabulary(directory, change(with_vocabulary))
    lines = []
    monkeypatch.setattr(logging, 'warning', lambda text, *values: lines.append(text % values))
    from_pretrained(directory)
    assert told in '\n'.join(lines)


@pytest.mark.parametrize('name', ['config.json', 'model.safetensors', 'tokenizer.json'])
def test_only_regular_files_are_opened(directory, name):
    file = directory / name
    file.unlink()
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to('/dev/zero')):
        make(file)
        with pytest.raises((ValueError, OSError), match=name.replace('.', r'\.')):
            from_pretrained(directory)
        file.rmdir() if file.is_dir() else file.unlink()
    file.symlink_to(file)
    with pytest.raises((ValueError, OSError), match='model'):
        from_pretrained(directory)
