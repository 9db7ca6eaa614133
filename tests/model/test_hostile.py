"""Checkpoints that are broken or hostile: nothing of them runs, and each fault is named."""

import base64
import json

import numpy as np
import pytest

from bert_secrets_jax.files import sha256
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.weights import Pretrained, fingerprint, from_pretrained, save_pretrained
from tests.conftest import fresh_params, relative
from tests.model.conftest import rewrite, set_json

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


def test_weights_that_no_training_gives_are_told(directory, caplog):
    for value, told in ((1e38, True), (2e6, True), (9e5, False)):
        change = with_value(value)
        rewrite(directory, lambda tensors, change=change: tensors | {QUERY: change(tensors[QUERY])})
        caplog.clear()
        from_pretrained(directory)
        assert (f'query.weight has a weight of {value:.2g}. No trained' in caplog.text) == told


def test_damaged_weights_are_refused_with_their_file(directory):
    file = directory / 'model.safetensors'
    whole = file.read_bytes()
    for data in (b'', whole[:-1], whole + b'more', (2**62).to_bytes(8, 'little') + whole[8:]):
        file.write_bytes(data)
        with pytest.raises(
            ValueError, match=r'model\.safetensors is not a complete safetensors fi'
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


def test_errors_name_the_keys_of_other_model_types(tmp_path, config):
    bert = Bert(relative(config, 'distilbert'))
    save_pretrained(Pretrained(bert, fresh_params(bert, 1), None), tmp_path)
    set_json(tmp_path / 'config.json', dim='24')
    with pytest.raises(ValueError, match=r"config\.json: .*\bdim='24' must be a whole number"):
        from_pretrained(tmp_path)


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
def test_vocabularies_that_hardly_fit_are_told(directory, with_vocabulary, caplog, change, told):
    write_vocabulary(directory, change(with_vocabulary))
    from_pretrained(directory)
    assert told in caplog.text


@pytest.mark.parametrize(
    ('part', 'value', 'named'),
    [
        ('normalizer', b'\0\4\0\0' + b'\0\1\2\3' * 256 + b'abc\0', 'precompiled_charsmap'),
        ('normalizer', b'\0\4\0\0' + b'\xff' * 1024 + b'abc\0', 'precompiled_charsmap'),
        ('normalizer', b'nonsense', 'precompiled_charsmap'),
        ('model', {'type': 'WordLevel', 'vocab': {}, 'unk_token': '[UNK]'}, 'vocabulary is empty'),
        ('model', {'type': 'Unigram', 'vocab': [], 'unk_id': None}, 'vocabulary'),
    ],
)  # fmt: skip
def test_tokenizers_that_would_end_the_process_are_refused(directory, part, value, named):
    if isinstance(value, bytes):
        table = {'type': 'Precompiled', 'precompiled_charsmap': base64.b64encode(value).decode()}
        value = {'type': 'Sequence', 'normalizers': [table]}
    values = json.loads((directory / 'tokenizer.json').read_text()) | {part: value}
    (directory / 'tokenizer.json').write_text(json.dumps(values))
    # Other classes have a normalizer of their own.
    about = {'tokenizer_class': 'PreTrainedTokenizerFast'} | {
        f'{name}_token': f'[{name.upper()}]' for name in ('cls', 'sep', 'pad', 'unk', 'mask')
    }
    (directory / 'tokenizer_config.json').write_text(json.dumps(about))
    with pytest.raises(ValueError, match=f'The tokenizer in .*{named}'):
        from_pretrained(directory)


def test_weights_of_no_disk_are_refused(directory):
    (directory / 'model.safetensors').unlink()
    (directory / 'model.safetensors').symlink_to('/proc/self/status')
    with pytest.raises(ValueError, match=r'model\.safetensors is no'):
        from_pretrained(directory)
