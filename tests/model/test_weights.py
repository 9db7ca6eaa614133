"""Checkpoints: what is read, what is refused, and that nothing is lost on the way back."""

import contextlib
import dataclasses
import functools
import json
import math
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
from bert_secrets_jax.model.config import MASKED_LM, QUESTIONS, TOKENS, BertConfig
from bert_secrets_jax.model.config_json import read_config
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.weights import (
    Pretrained,
    fingerprint,
    from_pretrained,
    save_pretrained,
    with_classifier,
    without_head,
)
from tests.conftest import RELATIVES, forward, fresh_params, relative
from tests.model.conftest import rewrite, set_json, without_tensors


def assert_equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(params=RELATIVES)
def of_type(request, tmp_path, config, tokenizer_of):
    """A model of each model type, and where it is saved."""
    bert = Bert(relative(config, request.param))
    model = Pretrained(bert, fresh_params(bert, 1), tokenizer_of(request.param))
    save_pretrained(model, tmp_path / 'model')
    return model, tmp_path / 'model'


@pytest.mark.parametrize('with_classifier', [True, False])
def test_every_model_type_goes_there_and_back(of_type, tmp_path, with_classifier):
    """And `transformers` reads it without a tensor too few or too many."""
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
    if model.config.family.code:
        assert '"jinaai/jina-bert-implementation--' in (directory / 'config.json').read_text()
        return
    pytest.importorskip('torch')
    name = 'AutoModelForSequenceClassification' if with_classifier else 'AutoModel'
    kind = getattr(pytest.importorskip('transformers'), name)
    theirs, report = kind.from_pretrained(directory, output_loading_info=True)
    # RobertaModel has a pooler that no classifier stands on.
    missing = {name for name in report['missing_keys'] if not name.startswith('pooler.')}
    # Nor has every model of proteins a head for contacts, though transformers always makes one.
    missing = {name for name in missing if 'contact_head' not in name}
    assert not (missing or report['unexpected_keys'] or report['mismatched_keys'])
    assert theirs.config.model_type == model.config.model_type
    if with_classifier:
        assert theirs.config.id2label == {0: 'no', 1: 'yes', 2: 'perhaps'}


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
        return tensors

    rewrite(directory, damage)
    with pytest.raises(ValueError) as error:
        from_pretrained(directory)
    for line in (
        'missing: encoder.layer.1.attention.self.query.weight [24, 24]',
        'misshapen: encoder.layer.0.output.dense.bias [7], expected [24]',
        'unexpected: encoder.layer.3.output.dense.bias [24]',
    ):
        assert line in str(error.value).splitlines()
    summary, *listing = str(error.value).splitlines()
    assert '1 tensors missing (encoder.layer.1' in summary and len(listing) == 3


WRONG = [
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
    *(
        {key: value}
        for key in ('vocab_size', 'num_attention_heads', 'layer_norm_eps')
        for value in (None, '12', True, -1, math.nan, 10**400)
    ),
    *({key: 24.0} for key in ('vocab_size', 'num_attention_heads')),
]
# Far larger than the weights: no model of that size is tried.
LARGE = [
    {'num_hidden_layers': 900},
    {'vocab_size': 9_000_000},
    {'max_position_embeddings': 9_000_000},
    {'hidden_size': 96_000, 'intermediate_size': 900_000},
]


@pytest.mark.parametrize(
    ('values', 'named'),
    [
        *((values, rf'config\.json: .*{next(iter(values))}=') for values in WRONG),
        *((values, r'config\.json is of a model of .* numbers or more') for values in LARGE),
        ({'position_embedding_type': 'relative_key'}, "position_embedding_type='relative_key'"),
        (
            {'model_type': 'funnel'},
            f"model_type='funnel' is not implemented; these are: {', '.join(map(repr, FAMILIES))}",
        ),
        *(
            (
                {'model_type': name},
                f"'{name}' is not implemented: it is a decoder, or has one; these",
            )
            for name in ('gpt2', 'llama', 'modernbert-decoder', 't5', 'bart')
        ),
        ({'sinusoidal_pos_embds': True}, 'sinusoidal_pos_embds=True is not implemented'),
        ({'embedding_size': 12}, 'unknown: embedding_size=12'),
        ({'is_decoder': True}, 'is_decoder=True'),
        ({'hidden_act': 'mish'}, "hidden_act='mish'"),
        ({'pruned_heads': {'3': [1]}}, 'pruned_heads'),
        (
            {'rope_theta': 1e4, 'novelty': 3},
            r'unknown: novelty=3, rope_theta=10000.0.*ignore_config',
        ),
        ({'num_attention_heads': 5}, 'num_attention_heads=5 must divide'),
    ],
)
def test_settings_that_we_do_not_implement_are_named(directory, values, named):
    set_json(directory / 'config.json', **values)
    with pytest.raises(ValueError, match=named):
        from_pretrained(directory)


def test_bookkeeping_of_real_checkpoints_is_accepted(directory, params):
    """As in config.json of bert-base-multilingual-cased, MiniLM and fine-tuned models."""
    set_json(
        directory / 'config.json',
        directionality='bidi', pooler_type='first_token_transform', use_cache=True,
        gradient_checkpointing=False, finetuning_task='mrpc', transformers_version='4.8.2',
        _name_or_path='somewhere', torch_dtype='float16', problem_type=None,
    )  # fmt: skip
    assert_equal(from_pretrained(directory).params, params)
    set_json(directory / 'config.json', novelty=3)
    assert_equal(from_pretrained(directory, ignore_config=('novelty',)).params, params)


BERT_BASE = {
    'attention_probs_dropout_prob': 0.1, 'hidden_act': 'gelu', 'hidden_dropout_prob': 0.1,
    'hidden_size': 768, 'initializer_range': 0.02, 'intermediate_size': 3072,
    'layer_norm_eps': 1e-12, 'max_position_embeddings': 512, 'num_attention_heads': 12,
    'num_hidden_layers': 12, 'type_vocab_size': 2, 'vocab_size': 30522,
}  # fmt: skip
ROBERTA_BASE = BERT_BASE | {
    'bos_token_id': 0, 'eos_token_id': 2, 'layer_norm_eps': 1e-5, 'max_position_embeddings': 514,
    'model_type': 'roberta', 'pad_token_id': 1, 'type_vocab_size': 1, 'vocab_size': 50265,
}  # fmt: skip
DISTILBERT = {
    'activation': 'gelu', 'attention_dropout': 0.1, 'dim': 768, 'dropout': 0.1, 'hidden_dim': 3072,
    'initializer_range': 0.02, 'max_position_embeddings': 512, 'model_type': 'distilbert',
    'n_heads': 12, 'n_layers': 6, 'pad_token_id': 0, 'qa_dropout': 0.1, 'seq_classif_dropout': 0.2,
    'sinusoidal_pos_embds': False, 'tie_weights_': True, 'vocab_size': 30522,
}  # fmt: skip


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        (BERT_BASE | {'vocab_size': 28996}, {'vocab_size': 28996, 'max_length': 512}),
        (
            BERT_BASE | {'hidden_size': 1024, 'num_attention_heads': 16, 'num_hidden_layers': 24},
            {'num_heads': 384, 'head_size': 64},
        ),
        (
            # A multilingual BERT with XLM-R's tokenizer.
            BERT_BASE | {'hidden_size': 384, 'vocab_size': 250037, 'model_type': 'bert',
                         'tokenizer_class': 'XLMRobertaTokenizer'},
            {'head_size': 32, 'type_vocab_size': 2},
        ),
        (ROBERTA_BASE, {'max_length': 512, 'type_vocab_size': 1, 'layer_norm_eps': 1e-5}),
        (
            {key: value for key, value in ROBERTA_BASE.items() if key != 'pad_token_id'}
            | {'model_type': 'xlm-roberta', 'vocab_size': 250002, 'output_past': True},
            {'max_length': 512, 'pad_token_id': 1},
        ),
        (
            DISTILBERT | {'finetuning_task': 'sst-2', 'output_past': True},
            {'num_heads': 72, 'type_vocab_size': 0, 'classifier_dropout': 0.2,
             'hidden_dropout_prob': 0.1, 'intermediate_size': 3072, 'layer_norm_eps': 1e-12},
        ),
        (
            BERT_BASE | {'model_type': 'electra', 'embedding_size': 128, 'hidden_size': 256,
                         'num_attention_heads': 4, 'summary_activation': 'gelu',
                         'summary_last_dropout': 0.1, 'summary_type': 'first',
                         'summary_use_proj': True},
            {'embedding_size': 128, 'head_size': 64},
        ),
    ],
    ids=['cased', 'large', 'multilingual', 'roberta', 'xlm-roberta', 'distilbert', 'electra'],
)  # fmt: skip
def test_settings_of_published_models(values, expected):
    """Keys of config.json on the hub, by model type."""
    config = BertConfig(**read_config(values), add_pooler=False)
    assert {name: getattr(config, name) for name in expected} == expected


IMPOSSIBLE = [
    ('distilbert', {'layer_norm_eps': 1e-5}, r'layer_norm_eps=1e-05: .* always 1e-12'),
    ('distilbert', {'type_vocab_size': 2}, r'type_vocab_size=2: .* always 0'),
    ('roberta', {'embedding_size': 12}, r'embedding_size=12: .* always None'),
    ('electra', {'embedding_size': None}, "embedding_size must be given .*'electra'"),
    ('electra', {'label_names': ()}, 'the pooler is part of the classifier'),
    ('roberta', {'model_type': 'gpt2'}, "model_type='gpt2' is not implemented: it is a decoder"),
    ('albert', {'num_hidden_groups': 4}, 'num_hidden_groups=4 is more than the 3 layers'),
    ('albert', {'num_hidden_groups': None}, 'num_hidden_groups must be given'),
    ('esm', {'mask_token_id': None}, 'token_dropout=True needs mask_token_id'),
    ('esm', {'rope_theta': None}, 'rope_theta must be given'),
    ('bert', {'rope_theta': 1e4}, 'always None'),
    ('modernbert', {'local_attention': None}, 'Local layers need local_attention'),
    ('bert', {'head': 'tagger'}, "head='tagger' must be 'sequence_classification'"),
    ('bert', {'head': MASKED_LM}, 'takes no label_names'),
    ('bert', {'head': TOKENS, 'label_names': ()}, 'needs label_names'),
    ('bert', {'head': QUESTIONS}, r"has label_names=\('start', 'end'\)"),
    ('bert', {'head': TOKENS, 'multi_label': True}, 'multi_label=True needs'),
    ('bert', {'hidden_dropout_prob': 1.5}, 'hidden_dropout_prob=1.5 must be a number from 0 to'),
    ('bert', {'layer_norm_eps': math.nan}, 'layer_norm_eps=nan'),
]


def test_settings_that_a_model_type_cannot_have(config):
    for model_type, settings, named in IMPOSSIBLE:
        with pytest.raises(ValueError, match=named):
            dataclasses.replace(relative(config, model_type), **settings)


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
