"""Checkpoints that are broken or hostile: nothing of them runs, and each fault is named."""

import contextlib

import numpy as np
import pytest

from bert_secrets_jax.files import sha256
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.weights import fingerprint, from_pretrained
from tests.conftest import relative
from tests.model.conftest import rewrite

QUERY = 'bert.encoder.layer.1.attention.self.query.weight'


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
    ],
)
def test_weights_of_what_is_no_number_are_named(directory, change, named):
    rewrite(directory, lambda tensors: tensors | {QUERY: change(tensors[QUERY])})
    tensor = rf'layer\.1\.attention\.self\.query\.weight {named}'
    with pytest.raises(ValueError, match=rf'model\.safetensors.*{tensor}'):
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


def test_errors_name_the_keys_of_other_model_types(config):
    for model_type, key in (('roberta', 'hidden_size'), ('distilbert', 'dim')):
        values = write_config(relative(config, model_type)) | {key: '24'}
        with pytest.raises(ValueError, match=rf"\b{key}='24' must be a whole number"):
            read_config(values)


@pytest.mark.parametrize(
    ('change', 'refused', 'told'),
    [
        (lambda words: [], 'lacks|was not loaded', None),
        (lambda words: words[:2], r'lacks .*\[CLS\]|lacks .*\[SEP\]', None),
        (lambda words: [word for word in words if word != '[SEP]'], r'lacks \[SEP\]', None),
        (lambda words: [*words, *(['the'] * 40)], 'wordpieces, the model 60', None),
        (lambda words: [*words[:10], *words[:10], *words[10:]], 'wordpieces, the model', None),
        (lambda words: words[:30], None, 'has 30 wordpieces, the model 60: words of a vocabulary'),
        (lambda words: [*words[:-1], 'cat'], None, "1 wordpieces twice, such as 'cat'"),
    ],
    ids=lambda _: '',
)
def test_vocabularies_that_do_not_fit(directory, tokenizer, caplog, change, refused, told):
    (directory / 'tokenizer.json').unlink()
    (directory / 'tokenizer_config.json').write_text('{"tokenizer_class": "BertTokenizer"}')
    vocabulary = tokenizer.get_vocab()
    words = change(sorted(vocabulary, key=vocabulary.get))
    (directory / 'vocab.txt').write_text('\n'.join(words) + '\n')
    with pytest.raises(ValueError, match=refused) if refused else contextlib.nullcontext():
        from_pretrained(directory)
    assert refused or told in caplog.text
