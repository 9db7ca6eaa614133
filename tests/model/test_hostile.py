"""Checkpoints that are broken or hostile: nothing of them runs, and each fault is named."""

import base64
import json

import numpy as np
import pytest

from bert_secrets_jax.files import sha256
from bert_secrets_jax.model.weights import fingerprint, from_pretrained
from tests.model.conftest import rewrite

QUERY = 'bert.encoder.layer.1.attention.self.query.weight'


def test_weights_that_no_training_gives_are_told(directory, caplog):
    for value, told in ((1e38, True), (2e6, True), (9e5, False)):
        rewrite(
            directory,
            lambda tensors, value=value: tensors | {QUERY: np.full((24, 24), value, np.float32)},
        )
        caplog.clear()
        from_pretrained(directory)
        assert (f'query.weight has a weight of {value:.2g}. No trained' in caplog.text) == told


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
