"""Checkpoints: what is read, what is refused, and that nothing is lost on the way back."""

import contextlib
import json
import os
import re
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.weights import (
    Pretrained,
    fingerprint,
    from_pretrained,
    save_pretrained,
    with_classifier,
    without_head,
)
from tests.conftest import RELATIVES, forward, fresh_params, relative
from tests.model.conftest import assert_equal, rewrite, set_json, without_tensors


@pytest.fixture(params=RELATIVES)
def of_type(request, tmp_path, config, tokenizer_of):
    """A model of each model type, and where it is saved."""
    bert = Bert(relative(config, request.param))
    model = Pretrained(bert, fresh_params(bert, 1), tokenizer_of(request.param))
    save_pretrained(model, tmp_path / 'model')
    return model, tmp_path / 'model'


@pytest.mark.parametrize('with_classifier', [True, False])
def test_every_model_type_goes_there_and_back(of_type, tmp_path, with_classifier):
    """`transformers` reads it, too: `tests/tools/test_family_check.py`."""
    model, directory = of_type
    if not with_classifier:
        model_with_it, model = model, from_pretrained(directory, label_names=())
        assert 'classifier' not in model.params
        assert_equal(without_head(model_with_it).params, model.params)
        assert without_head(model_with_it).config == model.config
        # The pooler of these is of the model, that of the others of the classifier.
        of_model = model.config.model_type in ('bert', 'albert', 'ernie', 'jina_bert')
        assert ('pooler' in model.params) == of_model
        save_pretrained(model, tmp_path / 'model')
    loaded = from_pretrained(directory)
    assert loaded.config == model.config
    assert_equal(loaded.params, model.params)
    assert loaded.tokenizer.get_vocab() == model.tokenizer.get_vocab()
    save_pretrained(loaded, tmp_path / 'again')
    for file in ('config.json', 'model.safetensors'):
        assert (directory / file).read_bytes() == (tmp_path / 'again' / file).read_bytes()
    assert not list((tmp_path / 'again').glob('*.partial'))
    named = '"jinaai/jina-bert-implementation--' in (directory / 'config.json').read_text()
    assert named == bool(model.config.family.code)


def test_weights_in_several_files(directory, pretrained):
    tensors = safetensors.numpy.load_file(directory / 'model.safetensors')
    (directory / 'model.safetensors').rename(directory / 'a.safetensors')
    index = directory / 'model.safetensors.index.json'
    places = {name: f'{"ab"[at % 2]}.safetensors' for at, name in enumerate(tensors)}
    index.write_text(json.dumps({'weight_map': places}))
    hashes = []
    for file, fault in (('b.safetensors', 'holds .*, as another file'), ('a.safetensors', None)):
        part = {name: tensors[name] for name in tensors if places[name] == file}
        safetensors.numpy.save_file(part, directory / file)
        hashes.append(fingerprint(directory))
        with pytest.raises(ValueError, match=fault) if fault else contextlib.nullcontext():
            assert_equal(from_pretrained(directory).params, pretrained.params)
    assert hashes[0] != hashes[1]
    for place in ('../model.safetensors', '/etc/passwd', 'weights.bin', 3):
        index.write_text(json.dumps({'weight_map': places | {'other': place}}))
        with pytest.raises(ValueError, match=r'index.json: weight_map must name files of this'):
            from_pretrained(directory)


@pytest.mark.parametrize('dtype', [ml_dtypes.bfloat16, np.float16])
def test_weights_stay_in_16_bits_where_that_is_asked(of_type, inputs, dtype):
    """And say the same, bit by bit, as those that are made float32 at once."""
    _, directory = of_type
    rewrite(directory, lambda tensors: {name: each.astype(dtype) for name, each in tensors.items()})
    kept, wide = from_pretrained(directory, keep_dtype=True), from_pretrained(directory)
    for model, kind in ((kept, dtype), (wide, np.float32)):
        assert {leaf.dtype for leaf in jax.tree.leaves(model.params)} == {np.dtype(kind)}
    found, expected = (forward(each.bert, each.params, inputs) for each in (kept, wide))
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    save_pretrained(kept, directory)
    assert_equal(from_pretrained(directory).params, wide.params)


_READS = """
import re, sys, jax, bert_secrets_jax as bs; jax.numpy.ones(3).block_until_ready()
now = lambda key: 1024 * int(re.search(key + ':\\s+([0-9]+)', open('/proc/self/status').read())[1])
before, model = now('VmRSS'), bs.from_pretrained(sys.argv[1])
print(now('VmHWM') - before, sum(leaf.nbytes for leaf in jax.tree.leaves(model.params)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists('/proc/self/status'), reason='needs what Linux tells')
def test_a_model_is_never_in_memory_twice(tmp_path):
    sizes = {'hidden_size': 512, 'num_hidden_layers': 12, 'num_attention_heads': 8}
    bert = Bert(BertConfig(vocab_size=30_000, intermediate_size=2048, add_pooler=False, **sizes))
    save_pretrained(Pretrained(bert, fresh_params(bert, 0), None), tmp_path)
    run = [sys.executable, '-c', _READS, str(tmp_path)]
    peak, size = map(int, subprocess.check_output(run).split())
    assert size > 2e8 and peak < 1.9 * size


OTHER_HEADS = {
    'bert': ['cls.predictions.bias', 'qa_outputs.weight', 'bert.embeddings.position_ids'],
    'roberta': ['lm_head.dense.weight', 'roberta.pooler.dense.weight', 'qa_outputs.bias'],
    'xlm-roberta': ['lm_head.bias', 'roberta.embeddings.position_ids'],
    'distilbert': ['vocab_transform.weight', 'vocab_layer_norm.bias', 'vocab_projector.bias'],
    'electra': ['discriminator_predictions.dense.weight', 'generator_lm_head.weight'],
    'camembert': ['lm_head.dense.weight', 'roberta.pooler.dense.weight'],
    'albert': ['predictions.dense.weight', 'sop_classifier.classifier.bias'],
    'mpnet': ['lm_head.layer_norm.weight', 'mpnet.pooler.dense.weight'],
    'deberta-v2': ['lm_predictions.lm_head.bias', 'mask_predictions.dense.weight'],
    'esm': ['lm_head.decoder.weight', 'esm.pooler.dense.bias', 'esm.embeddings.position_ids'],
    'modernbert': ['decoder.bias'],
    'nomic_bert': ['cls.predictions.transform.layer_norm.bias', 'cls.predictions.bias'],
    'eurobert': ['lm_head.weight'],
    'roformer': ['cls.predictions.bias', 'roformer.pooler.dense.weight', 'qa_outputs.bias'],
    'data2vec-text': ['lm_head.bias', 'data2vec_text.pooler.dense.bias'],
    'jina_embeddings_v3': ['lm_head.dense.weight', 'roberta.pooler.dense.weight'],
    'ernie': ['cls.predictions.bias'],
    'jina_bert': ['cls.predictions.bias'],
}


def test_heads_of_pretraining_are_left_out(of_type):
    model, directory = of_type
    heads = {name: np.zeros((3, 3), np.float32) for name in OTHER_HEADS[model.config.model_type]}
    rewrite(directory, lambda tensors: tensors | heads)
    assert_equal(from_pretrained(directory).params, model.params)


def test_a_fresh_classifier_of_every_model_type(of_type):
    """On the dense layer that is there; where there is none, both are fresh. In memory, too."""
    model, directory = of_type
    fresh = {'label_names': ('a', 'b'), 'seed': 5}
    loaded, made = from_pretrained(directory, **fresh), with_classifier(model, **fresh)
    assert loaded.params['classifier']['kernel'].shape == (24, 2)
    assert_equal(loaded.params['pooler'], model.params['pooler'])
    # The weights are shared, but for what is fresh.
    for part in ('layers', 'pooler'):
        assert made.params[part] is model.params[part]
    assert loaded.config == made.config
    assert_equal(loaded.params, made.params)
    rewrite(directory, without_tensors('classifier', 'pooler', 'head.'))
    # The dense layer of EuroBERT.
    rewrite(directory, lambda tensors: {x: tensors[x] for x in tensors if x[:6] != 'dense.'})
    loaded, bare = from_pretrained(directory, **fresh), from_pretrained(directory)
    assert_equal(loaded.params['layers'], model.params['layers'])
    for head in ('pooler', 'classifier'):
        assert 0.01 < np.std(loaded.params[head]['kernel']) < 0.03
        np.testing.assert_array_equal(loaded.params[head].get('bias', 0), 0)
    assert 'classifier' not in bare.params
    assert_equal(with_classifier(bare, **fresh).params, loaded.params)


def test_classifiers_of_unknown_classes_are_refused_or_left_out(of_type):
    _, directory = of_type
    set_json(directory / 'config.json', architectures=['OfTokens'])
    rewrite(directory, without_tensors('classifier'))
    rewrite(directory, lambda t: t | {'classifier.weight': np.zeros((9, 24), np.float32)})
    with pytest.raises(ValueError, match=r'a classifier of OfTokens, and these.*ForTokenClassif'):
        from_pretrained(directory)
    assert from_pretrained(directory, label_names=()).config.num_labels == 0
    fresh = from_pretrained(directory, label_names=('a', 'b'))
    assert fresh.params['classifier']['kernel'].shape == (24, 2)


@pytest.mark.parametrize(
    'spelled',
    [
        # As in the first checkpoints of BERT.
        lambda name: re.sub('LayerNorm.weight', 'LayerNorm.gamma', name),
        lambda name: re.sub('LayerNorm.bias', 'LayerNorm.beta', name),
        lambda name: name.removeprefix('bert.'),
        # Of data parallelism.
        lambda name: f'module.{name}',
    ],
)
def test_spellings_of_the_same_weights(directory, params, spelled):
    rewrite(directory, lambda tensors: {spelled(name): each for name, each in tensors.items()})
    assert_equal(from_pretrained(directory).params, params)


def test_pooler_and_classifier_follow_the_weights(directory):
    rewrite(directory, without_tensors('classifier'))
    loaded = from_pretrained(directory)
    assert loaded.config.label_names == () and 'pooler' in loaded.params
    rewrite(directory, without_tensors('pooler'))
    loaded = from_pretrained(directory)
    assert not loaded.config.add_pooler and set(loaded.params) == {'embeddings', 'layers'}


def test_a_classifier_without_its_pooler_is_refused_or_left_out(directory):
    rewrite(directory, without_tensors('pooler'))
    with pytest.raises(ValueError, match=r'a classifier without pooler\.dense.*label_names=\(\)'):
        from_pretrained(directory)
    assert from_pretrained(directory, label_names=()).config.num_labels == 0


def test_names_of_classes(directory):
    for names in ({}, None):
        set_json(directory / 'config.json', id2label=names)
        assert from_pretrained(directory).config.label_names == ('LABEL_0', 'LABEL_1', 'LABEL_2')
    for names in ({'0': 'a', '1': 'b'}, {str(i): str(i) for i in range(5)}):
        set_json(directory / 'config.json', id2label=names)
        with pytest.raises(ValueError, match='into 3 classes, and id2label'):
            from_pretrained(directory)


def test_missing_unexpected_and_misshapen_tensors_are_all_named(directory):
    def damage(tensors):
        del tensors['bert.encoder.layer.1.attention.self.query.weight']
        tensors['bert.encoder.layer.0.output.dense.bias'] = np.zeros(7, np.float32)
        tensors['bert.encoder.layer.3.output.dense.bias'] = np.zeros(24, np.float32)
        tensors['bert.encoder.layer.2.output.dense.bias'][:2] = np.nan
        return tensors

    rewrite(directory, damage)
    with pytest.raises(ValueError) as error:
        from_pretrained(directory)
    for line in (
        'missing: encoder.layer.1.attention.self.query.weight [24, 24]',
        'misshapen: encoder.layer.0.output.dense.bias [7], expected [24]',
        'unexpected: encoder.layer.3.output.dense.bias [24]',
        'unusable: encoder.layer.2.output.dense.bias has NaN or infinity in 2 of 24 numbers',
    ):
        assert line in str(error.value).splitlines()
    summary, *listing = str(error.value).splitlines()
    assert ' in 4 tensors, first ' in summary and len(listing) == 4


# Far larger than the weights: no model of that size is tried.
LARGE = [
    {'num_hidden_layers': 900},
    {'vocab_size': 9_000_000},
    {'max_position_embeddings': 9_000_000},
    {'hidden_size': 96_000, 'intermediate_size': 900_000},
]


@pytest.mark.parametrize('values', LARGE)
def test_settings_of_a_larger_model_than_the_file_has_are_refused(directory, values):
    set_json(directory / 'config.json', **values)
    with pytest.raises(ValueError, match=r'config\.json is of a model of .* numbers or more'):
        from_pretrained(directory)


def test_unknown_settings_can_be_ignored(directory, params):
    set_json(directory / 'config.json', novelty=3, rope_theta=1e4)
    with pytest.raises(ValueError, match=r'config\.json: unknown: novelty=3, rope_theta=10000.0'):
        from_pretrained(directory)
    ignored = from_pretrained(directory, ignore_config=('novelty', 'rope_theta'))
    assert_equal(ignored.params, params)


def test_files_that_are_not_there_or_damaged(directory):
    file = directory / 'model.safetensors'
    data = file.read_bytes()
    file.unlink()
    for read in (from_pretrained, fingerprint):
        with pytest.raises(FileNotFoundError, match=r'neither model.safetensors nor.*config.json'):
            read(directory)
    file.write_bytes(data)
    (directory / 'tokenizer.json').unlink()
    assert from_pretrained(directory).tokenizer is None
    (directory / 'tokenizer.json').write_text('{"version": ')
    with pytest.raises(ValueError, match=r'The tokenizer in .* was not loaded'):
        from_pretrained(directory)


def test_no_word_of_pytorch(directory):
    program = """
import importlib.util, os, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else find_spec(name, *rest)
import bert_secrets_jax as bs
bs.from_pretrained(sys.argv[1])
import transformers
assert not transformers.is_torch_available()
assert 'TRANSFORMERS_NO_ADVISORY_WARNINGS' not in os.environ
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith('TRANSFORMERS_')}
    result = subprocess.run(
        [sys.executable, '-c', program, str(directory)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, '')
