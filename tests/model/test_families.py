"""Features of single families: layers that see a window, rotated positions, protein contacts."""

import dataclasses
import functools
import json
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.norms import each_layer
from bert_secrets_jax.model import attention
from bert_secrets_jax.model.bert import all_layers, init_params, own_layers
from bert_secrets_jax.model.config import GLOBAL, LOCAL, MASKED_LM, QUESTIONS, TOKENS
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.weights import save_pretrained, tensors_from_params
from tests.conftest import RELATIVES, as_torch, forward, random_inputs, random_params, relative
from tests.fuzz.test_checkpoints import make_with_pieces, plain_pieces, read_tokens
from tests.model.conftest import (
    BARE,
    assert_equal,
    in_pytorch,
    of_real_tokens,
    rewrite,
    set_json,
    without_tensors,
)

BIASES = dict.fromkeys(('attention_bias', 'mlp_bias', 'norm_bias', 'classifier_bias'), True)
# Other settings than those of the tiny models of families.
VARIANTS = {
    'esm': [
        {'position_embedding_type': 'absolute', 'emb_layer_norm_before': True},
        {'token_dropout': False, 'mask_token_id': None},
    ],
    'modernbert': [
        BIASES,
        {'classifier_pooling': 'mean', 'layer_types': (LOCAL, LOCAL, GLOBAL)},
        # As in mmBERT.
        {'local_rope_theta': 160_000.0, 'classifier_pooling': 'mean'},
    ],
    # Twelve layers of numbers, of which the file holds one.
    'albert': [{'num_hidden_groups': 1, 'num_hidden_layers': 12}, {'embedding_size': 24}],
    'ernie': [{'use_task_id': False}],
    # Slopes of heads beyond a power of two.
    'jina_bert': [{'num_attention_heads': 6}],
    'jina_embeddings_v3': [{'max_position_embeddings': 302}],
    'mpnet': [{'max_position_embeddings': 302}],
    'deberta-v2': [
        {'share_att_key': False, 'position_biased_input': True, 'type_vocab_size': 2},
        {'max_position_embeddings': 302, 'position_buckets': 16, 'max_relative_positions': 40},
        # Fewer distances than buckets, and no buckets.
        {'position_buckets': 62},
        {'pos_att_type': ('p2c',), 'position_buckets': -1, 'norm_rel_ebd': 'none'}
        | {'share_att_key': False, 'max_relative_positions': 5},
        {'pos_att_type': ('c2p',), 'embedding_size': 16}
        | {'conv_kernel_size': 5, 'conv_groups': 2, 'conv_act': 'gelu'},
        # The scale still reckons with the parts that are not there.
        {'relative_attention': False, 'norm_rel_ebd': 'none', 'position_biased_input': True},
    ],
    'nomic_bert': [{'max_position_embeddings': 300}],
    'eurobert': [
        {'classifier_pooling': 'late', 'max_position_embeddings': 300, 'num_key_value_heads': 1},
        {'classifier_pooling': 'cls', 'attention_bias': True, 'mlp_bias': True},
    ],
    'roformer': [
        {'rotary_value': False, 'embedding_size': 24, 'max_position_embeddings': 300}
        | {'hidden_act': 'relu'}
    ],
}


@pytest.fixture
def random_model(config, tokenizer_of, tmp_path):
    """Return what saves a random PyTorch model of a family, and returns its config and itself."""

    def make(model_type, **settings):
        mine = relative(config, model_type)
        mine = dataclasses.replace(mine, **{'initializer_range': 0.3, **settings})
        return mine, in_pytorch(mine, tmp_path, tokenizer_of(model_type))

    return make


@pytest.mark.parametrize(
    ('model_type', 'settings'),
    [(name, settings) for name, several in VARIANTS.items() for settings in several],
    ids=str,
)
def test_variants_equal_pytorch(random_model, tmp_path, model_type, settings):
    config, model = random_model(model_type, **settings)
    length = min(config.max_length, 300)
    inputs = random_inputs(config, lengths=(length, 7, 1), length=length, seed=5)
    # In float64, PyTorch does not round by as much as the tolerance; ModernBERT's padding is NaN.
    model = model if model_type == 'modernbert' else model.double()
    ours = bs.from_pretrained(tmp_path)
    assert {name: getattr(ours.config, name) for name in settings} == settings
    assert_as_in_pytorch(ours, inputs, model(**as_torch(config, inputs)))


def assert_as_in_pytorch(ours, inputs, expected, atol=5e-6):
    """Logits, and maps where padding may mean nothing."""
    found = forward(ours.bert, ours.params, inputs)
    np.testing.assert_allclose(found.logits, expected.logits.detach(), atol=atol)
    maps = np.stack([maps.detach() for maps in expected.attentions], axis=1)
    both = of_real_tokens(ours.config, inputs, found.attentions, maps)
    np.testing.assert_allclose(*both, atol=atol)


@pytest.mark.parametrize('model_type', RELATIVES)
def test_default_configs_of_transformers_are_read(tmp_path, model_type):
    transformers = pytest.importorskip('transformers')
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip('transformers has no such models')
    # Without these two, it makes no ESM.
    given = {'vocab_size': 33, 'pad_token_id': 1} if model_type == 'esm' else {}
    theirs = transformers.CONFIG_MAPPING[model_type](**given)
    theirs.save_pretrained(tmp_path)
    read = read_config(json.loads((tmp_path / 'config.json').read_text()))
    ours = bs.BertConfig(**read, add_pooler=False)
    assert ours.hidden_size == theirs.hidden_size
    again = read_config(json.loads(json.dumps(write_config(ours))))
    assert bs.BertConfig(**again, add_pooler=False) == ours


@pytest.mark.parametrize('model_type', ['bert', 'deberta-v2'])
def test_no_classifier_reads_padding_on_the_left(config, model_type):
    bert = bs.Bert(relative(config, model_type))
    params = random_params(bert)
    right = random_inputs(bert.config, lengths=(9, 6, 0), length=9, seed=5)
    left = {name: np.roll(array, 3, axis=1) for name, array in right.items()}
    with pytest.raises(ValueError, match=r'row 1 begins with padding.*Pad on the right'):
        bert.apply({'params': params}, **left)
    batch = bs.Batch(**left, marks={'token': left['attention_mask'] > 0}, example=np.arange(3))
    model = bs.Pretrained(bert, params, None)
    for read in (
        lambda: bs.collect(model, [batch], {'self': bs.statistics.to_self}),
        lambda: bs.sweep(model, [batch], bs.masks.single_heads(bert.config)),
    ):
        with pytest.raises(ValueError, match='row 1 begins with padding'):
            read()
    # Compiled code does not see the values, and does not hide them.
    output = forward(bert, params, left)
    assert np.isnan(output.logits).any(axis=1).tolist() == [False, True, False]
    assert np.isfinite(output.attentions).all()
    # An empty row, as batches have them, is none of that.
    output = forward(bert, params, right)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(output))


def test_contacts_equal_pytorch(random_model, tmp_path):
    config, model = random_model('esm', **BARE)
    # As proteins are written: <cls>, residues, <eos>, padding.
    inputs, lengths = random_inputs(config, lengths=(11, 6, 4), length=11, seed=5), (11, 6, 4)
    ids = np.where(inputs['input_ids'] < 5, 7, inputs['input_ids'])
    ids[:, 0] = 0
    for row, length in enumerate(lengths):
        ids[row, length - 1 :] = [2, *[1] * (11 - length)]
    ours, inputs['input_ids'] = bs.from_pretrained(tmp_path), ids
    assert ours.config.add_contact_head
    found = np.asarray(forward(ours.bert, ours.params, inputs).contacts)
    given = as_torch(config, inputs)
    expected = model.predict_contacts(given['input_ids'], given['attention_mask']).detach().numpy()
    assert np.ptp(expected) > 1e-3
    for row, length in enumerate(lengths):
        # 0 where one of the two is no residue.
        whole = np.zeros((11, 11))
        whole[1 : length - 1, 1 : length - 1] = expected[row, : length - 2, : length - 2]
        np.testing.assert_allclose(found[row], whole, atol=5e-6)
    save_pretrained(ours, tmp_path / 'again')
    assert_equal(bs.from_pretrained(tmp_path / 'again').params, ours.params)


def test_frequencies_of_a_file_are_its_own(random_model, tmp_path):
    """Old checkpoints of ESM were rounded to 16 bits, which moves distant positions."""
    config, model = random_model('esm')
    rounded = model.esm.rotary_embeddings.inv_freq.bfloat16().float()
    model.esm.rotary_embeddings.inv_freq.copy_(rounded)
    model.save_pretrained(tmp_path)
    inputs = random_inputs(config, lengths=(29, 7), length=29, seed=5)
    ours = bs.from_pretrained(tmp_path)
    assert ours.config.rope_frequencies == tuple(rounded.tolist())
    assert_as_in_pytorch(ours, inputs, model(**as_torch(config, inputs)))
    # They are written again, and in each layer, as old files have them, they are as good.
    save_pretrained(ours, tmp_path)
    assert bs.from_pretrained(tmp_path).config == ours.config
    old = 'esm.encoder.layer.{}.attention.self.rotary_embeddings.inv_freq'

    def in_layers(tensors):
        frequencies = tensors.pop('esm.rotary_embeddings.inv_freq')
        return tensors | {old.format(layer): frequencies for layer in range(3)}

    rewrite(tmp_path, in_layers)
    assert bs.from_pretrained(tmp_path).config == ours.config
    rewrite(tmp_path, lambda tensors: tensors | {old.format(0): 2 * tensors[old.format(0)]})
    with pytest.raises(ValueError, match=r'inv_freq is not the same \[3\] everywhere'):
        bs.from_pretrained(tmp_path)


def test_local_layers_see_their_window(config):
    """Maps are 0 beyond it, and a disabled head is uniform within it."""
    bert = bs.Bert(relative(config, 'modernbert'))
    inputs = random_inputs(bert.config, lengths=(11, 6), length=11, seed=5)
    masks = np.ones((3, 4), np.float32)
    masks[1, 2] = 0
    maps = np.asarray(forward(bert, random_params(bert), inputs, head_mask=masks).attentions)
    real = inputs['attention_mask'].astype(bool)
    far = np.abs(np.arange(11)[:, None] - np.arange(11)) > 2
    row, query, key = np.nonzero(far & real[:, :, None] & real[:, None, :])
    assert maps[row, 0, :, query, key].min() > 0 and not maps[row, 1:, :, query, key].any()
    np.testing.assert_allclose(maps[:, 1:].sum(axis=-1), 1, atol=1e-6)
    scope = attention.Scope(attention.visible_keys(jnp.asarray(inputs['attention_mask']), 2))
    uniform = np.asarray(attention.uniform_probabilities(scope))[:, 0]
    assert sorted(set(np.round(uniform[0].max(axis=-1), 6))) == [0.2, 0.25, 0.333333]
    assert uniform[1, 4, 3:6].tolist() == [0.25] * 3


def test_layers_that_are_one_layer(config):
    config = relative(config, 'albert')
    assert config.groups == (0, 0, 1)
    params = init_params(bs.Bert(config), 0)
    kernel = params['layers']['intermediate']['kernel']
    np.testing.assert_array_equal(kernel[0], kernel[1])
    assert np.abs(kernel[1] - kernel[2]).max() > 1e-3
    own = own_layers(config, params)
    assert len(own['layers']['intermediate']['kernel']) == 2
    jax.tree.map(np.testing.assert_array_equal, all_layers(config, own), params)
    params['layers']['intermediate']['kernel'] = kernel.at[1].add(1)
    with pytest.raises(ValueError, match='differs between layers that are one layer'):
        tensors_from_params(config, params)


def test_a_masked_lm_of_modernbert_without_a_bias(random_model, tmp_path):
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    config, _ = random_model('modernbert', head=MASKED_LM, label_names=())
    rewrite(tmp_path, without_tensors('decoder.bias'))
    set_json(tmp_path / 'config.json', decoder_bias=False)
    ours = bs.from_pretrained(tmp_path)
    save_pretrained(ours, tmp_path / 'again')
    inputs = random_inputs(config, lengths=(11, 4), length=11, seed=5)
    for folder in (tmp_path, tmp_path / 'again'):
        theirs = transformers.ModernBertForMaskedLM.from_pretrained(
            folder, attn_implementation='eager', dtype=torch.float32
        )
        expected = theirs.eval()(**as_torch(config, inputs), output_attentions=True)
        assert_as_in_pytorch(ours, inputs, expected, atol=1e-5)


# What config.json says besides in the repository of jina-embeddings-v3.
JINA_V3 = {
    'model_type': 'xlm-roberta', 'position_embedding_type': 'rotary', 'use_flash_attn': True,
    'use_reg_tokens': False, 'load_trained_adapters': True, 'lora_adaptations': ['matching'],
    'lora_alpha': 1, 'lora_dropout_p': 0.0, 'lora_main_params_trainable': False, 'lora_rank': 4,
    'matryoshka_dimensions': [32], 'task_instructions': {},
}  # fmt: skip
_ROPE = {'rope_type': 'default', 'rope_theta': 10_000.0}
# Settings of files, `...` where they are left out, which are of the tiny model of a family, or of
# one with other fields.
SPELLINGS = [
    # As in bert-base-multilingual-cased, MiniLM and fine-tuned models.
    ('bert', {
        'directionality': 'bidi', 'pooler_type': 'first_token_transform', 'use_cache': True,
        'gradient_checkpointing': False, 'finetuning_task': 'mrpc', 'output_past': True,
        '_name_or_path': 'somewhere', 'torch_dtype': 'float16', 'problem_type': None,
        'model_type': ..., 'tokenizer_class': 'XLMRobertaTokenizer',
    }, {}),
    ('xlm-roberta', {'pad_token_id': ..., 'output_past': True}, {}),
    ('distilbert', {
        'qa_dropout': 0.1, 'seq_classif_dropout': ..., 'sinusoidal_pos_embds': False,
        'tie_weights_': True,
    }, {}),
    ('electra', {
        'summary_activation': 'gelu', 'summary_last_dropout': 0.1, 'summary_type': 'first',
        'summary_use_proj': True,
    }, {}),
    ('albert', {'embedding_size': ...}, {'embedding_size': 128}),
    # In `transformers` it is 1, whatever config.json says: with another one positions would differ.
    ('mpnet', {'pad_token_id': None}, {}),
    # `transformers` writes nulls itself, and takes them for false.
    ('esm', dict.fromkeys(('emb_layer_norm_before', 'token_dropout', 'mask_token_id')),
     {'token_dropout': False, 'mask_token_id': None}),
    ('mpnet', {'pad_token_id': ...}, {}),
    ('ernie', {'sent_type_vocab_size': 4, 'embedding_size': 24}, {}),
    # As the hub has ModernBERT-base, and as `transformers` writes it today; mmBERT.
    ('modernbert', {
        'layer_types': ..., 'global_attn_every_n_layers': 3, 'cls_token_id': 1,
        'classifier_activation': 'gelu', 'decoder_bias': True, 'deterministic_flash_attn': False,
        'embedding_dropout': 0.0, 'initializer_cutoff_factor': 2.0, 'layer_norm_eps': 1e-5,
        'mlp_dropout': 0.0, 'position_embedding_type': 'absolute',
    }, {}),
    ('modernbert', {
        'global_rope_theta': ..., 'local_rope_theta': ...,
        'rope_parameters': {GLOBAL: _ROPE | {'rope_theta': 160_000.0}, LOCAL: _ROPE},
    }, {}),
    ('modernbert', {'local_rope_theta': 160_000.0, 'position_embedding_type': 'sans_pos'},
     {'local_rope_theta': 160_000.0}),
    ('jina_bert', {'emb_pooler': 'mean', 'model_max_length': 8192, 'auto_map': {}}, {}),
    ('jina_embeddings_v3', JINA_V3 | {'rope_theta': ..., 'rotary_emb_base': 20_000.0}, {}),
    ('jina_embeddings_v3', {'rope_parameters': {'rope_theta': 5e3}}, {'rope_theta': 5e3}),
    # As the hub has DeBERTa-v3-base.
    ('deberta-v2', {
        'pos_att_type': 'p2c|c2p', 'attention_head_size': 6, 'pooler_dropout': 0,
        'pooler_hidden_act': 'gelu', 'pooler_hidden_size': 24,
    }, {}),
    ('deberta-v2', {'pos_att_type': None}, {'pos_att_type': ()}),
    ('nomic_bert', {
        'max_position_embeddings': ..., 'rotary_scaling_factor': 2, 'max_trained_positions': 48,
    }, {'max_position_embeddings': 48}),
]  # fmt: skip


@pytest.mark.parametrize(('model_type', 'values', 'changes'), SPELLINGS)
def test_spellings_of_the_same_settings(config, model_type, values, changes):
    mine = dataclasses.replace(relative(config, model_type), **BARE)
    whole = write_config(mine) | values
    given = {key: value for key, value in whole.items() if value is not ...}
    read = bs.BertConfig(**read_config(given), add_pooler=False)
    assert read == dataclasses.replace(mine, **changes)


def test_what_settings_mean(config):
    """Kinds of layers, distances and lengths, in a few families."""
    modern, deberta, alibi, roberta = (
        relative(config, name) for name in ('modernbert', 'deberta-v2', 'jina_bert', 'roberta')
    )
    assert [kind.reach for kind in modern.layer_kinds] == [None, 2, 2]
    assert [kind.rope_theta for kind in modern.layer_kinds] == [160_000.0, 10_000.0, 10_000.0]
    assert deberta.score_parts == ('c2c', 'c2p', 'p2c') and deberta.distances == (4, 4, 32)
    assert [each.has_positions for each in (deberta, alibi, roberta)] == [False, False, True]
    assert [each.max_length for each in (deberta, alibi, roberta)] == [32, 32, 30]


def test_adapters_are_left_out_and_this_is_said(config, tmp_path, caplog):
    mine = dataclasses.replace(relative(config, 'jina_embeddings_v3'), **BARE)
    model = bs.Pretrained(bs.Bert(mine), random_params(bs.Bert(mine)), None)
    save_pretrained(model, tmp_path)
    set_json(tmp_path / 'config.json', **JINA_V3)
    lora = 'encoder.layers.0.mlp.fc1.parametrizations.weight'

    def adapted(tensors):
        tensors[f'{lora}.original'] = tensors.pop('encoder.layers.0.mlp.fc1.weight')
        return tensors | {f'{lora}.0.lora_A': np.ones((2, 4), np.float32)}

    rewrite(tmp_path, adapted)
    with caplog.at_level(logging.WARNING):
        ours = bs.from_pretrained(tmp_path)
    assert f'left out 1 tensors of adapters, such as {lora}.0.lora_A' in caplog.text
    assert_equal(ours.params, model.params)


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
def test_files_of_deberta(config, tokenizer, tmp_path, dtype):
    """Its newer masked-LM head, half precision, a table of positions that nothing reads."""
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    bare = {'label_names': (), 'add_pooler': False}
    values = write_config(dataclasses.replace(relative(config, 'deberta-v2'), **bare))
    settings = transformers.AutoConfig.for_model(**values | {'legacy': False})
    torch.manual_seed(0)
    model = transformers.DebertaV2ForMaskedLM(settings).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((weight + 0.1 * torch.randn_like(weight)).to(getattr(torch, dtype)))
    state = {name: weight.to(getattr(torch, dtype)) for name, weight in model.state_dict().items()}
    state['deberta.embeddings.position_embeddings.weight'] = torch.zeros(32, 24)
    settings.architectures = ['DebertaV2ForMaskedLM']
    settings.save_pretrained(tmp_path)
    torch.save(state, tmp_path / 'pytorch_model.bin')
    ours = bs.from_pretrained(tmp_path)
    assert ours.config.head == 'masked_lm'
    inputs = random_inputs(ours.config, lengths=(11, 4, 1), length=11, seed=5)
    expected = model(**as_torch(ours.config, inputs)).logits.detach().numpy()
    found = np.asarray(forward(ours.bert, ours.params, inputs).logits)
    np.testing.assert_allclose(*of_real_tokens(ours.config, inputs, found, expected), atol=1e-5)
    # It is written as the older head, which computes the same.
    save_pretrained(ours, tmp_path / 'again')
    theirs = transformers.DebertaV2ForMaskedLM.from_pretrained(tmp_path / 'again').eval()
    again = theirs(**as_torch(ours.config, inputs)).logits.detach().numpy()
    np.testing.assert_allclose(again, expected, atol=1e-5)


@pytest.mark.slow
def test_gradients_of_deberta_equal_pytorch(random_model, tmp_path):
    torch = pytest.importorskip('torch')
    mine, model = random_model('deberta-v2', initializer_range=0.2, conv_kernel_size=3)
    inputs = random_inputs(mine, lengths=(11, 4, 1), length=11, seed=5)
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    (model(**as_torch(mine, inputs)).logits * torch.tensor(weights)).sum().backward()
    ours = bs.from_pretrained(tmp_path)
    loss = lambda params: (forward(ours.bert, params, inputs).logits * weights).sum()
    found = tensors_from_params(ours.config, jax.grad(loss)(ours.params))
    expected = {name: each.grad.numpy() for name, each in model.named_parameters()}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        atol = 2e-5 * max(np.abs(array).max(), 1)
        np.testing.assert_allclose(found[name], array, atol=atol, err_msg=name)


@pytest.mark.slow
def test_training_of_deberta_drops_distances_alike_in_all_batches(config):
    """Whatever else is in the batch, and however far it is padded."""
    bert = bs.Bert(dataclasses.replace(relative(config, 'deberta-v2'), conv_kernel_size=3))
    params, inputs = (
        random_params(bert),
        random_inputs(bert.config, lengths=(9, 6), length=9, seed=1),
    )

    train = functools.partial(bert.apply, {'params': params}, deterministic=False)
    keys = [{'dropout': jax.random.key(seed)} for seed in (0, 1)]
    both, other = (train(**inputs, rngs=key).logits for key in keys)
    padded = {name: np.pad(array[1:], ((0, 0), (0, 4))) for name, array in inputs.items()}
    alone = train(**padded, rngs=keys[0], example_ids=np.array([1])).logits
    np.testing.assert_allclose(alone, both[1:], atol=1e-6)
    assert np.abs(other - both).max() > 1e-2
    with pytest.raises(ValueError, match='adds a convolution over its embeddings'):
        each_layer(dict, bert, params, forward(bert, params, inputs))


def test_a_vocabulary_of_sentencepiece(tmp_path):
    """The hub has DeBERTa-v3 without tokenizer.json; its wordpieces are those of sentencepiece."""
    make_with_pieces(tmp_path)
    expected = plain_pieces(tmp_path)
    assert read_tokens(tmp_path) == expected
    save_pretrained(bs.from_pretrained(tmp_path), tmp_path / 'again')
    assert read_tokens(tmp_path / 'again') == expected
    (tmp_path / 'spm.model').write_bytes(b'no model')
    with pytest.raises(ValueError, match='The tokenizer in .* was not loaded'):
        bs.from_pretrained(tmp_path)


# As the repositories of nomic-ai name them: parts of names, and keys of config.json.
NOMIC_NAMES = {
    'nomic_bert.': '', 'embeddings.LayerNorm': 'emb_ln', 'layers.': 'encoder.layers.',
    'self_attn.o_proj': 'attn.out_proj', 'up_proj': 'fc11', 'gate_proj': 'fc12', 'down_proj': 'fc2',
    'post_attention_layernorm': 'norm1', 'post_mlp_layernorm': 'norm2',
}  # fmt: skip
NOMIC_KEYS = {
    'hidden_size': 'n_embd', 'num_hidden_layers': 'n_layer', 'num_attention_heads': 'n_head',
    'intermediate_size': 'n_inner', 'max_position_embeddings': 'n_positions',
    'attention_probs_dropout_prob': 'attn_pdrop', 'hidden_dropout_prob': 'resid_pdrop',
    'layer_norm_eps': 'layer_norm_epsilon', 'rope_theta': 'rotary_emb_base',
}  # fmt: skip
NOMIC = {
    'activation_function': 'swiglu', 'causal': False, 'embd_pdrop': 0.0, 'fused_bias_fc': True,
    'mlp_fc1_bias': False, 'mlp_fc2_bias': False, 'prenorm': False, 'qkv_proj_bias': False,
    'rotary_emb_fraction': 1.0, 'rotary_emb_interleaved': False, 'rotary_emb_scale_base': None,
    'rotary_scaling_factor': None, 'scale_attn_weights': True, 'use_rms_norm': False,
}  # fmt: skip


def test_older_files_of_nomic(random_model, tmp_path):
    """They are read as `transformers` reads them, and as what they are in today's names."""
    _, model = random_model('nomic_bert', **BARE)
    today = bs.from_pretrained(tmp_path)

    old, tensors = {}, tensors_from_params(today.config, today.params)
    for name, tensor in tensors.items():
        if 'q_proj' in name:
            rest = [tensors[name.replace('q_proj', each)] for each in ('k_proj', 'v_proj')]
            name = name.replace('self_attn.q_proj', 'attn.Wqkv')
            tensor = np.concatenate([tensor, *rest])
        for theirs, ours in NOMIC_NAMES.items():
            name = name.replace(theirs, ours)
        old |= {} if 'self_attn' in name else {name: tensor}
    rewrite(tmp_path, lambda _: old)
    theirs = type(model).from_pretrained(tmp_path).state_dict()
    assert all(theirs[name].equal(tensor) for name, tensor in model.state_dict().items())
    values = write_config(today.config)
    values = {NOMIC_KEYS.get(key, key): value for key, value in values.items()} | NOMIC
    (tmp_path / 'config.json').write_text(json.dumps(values))
    read = bs.from_pretrained(tmp_path)
    assert read.config == today.config
    assert_equal(read.params, today.params)


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
@pytest.mark.parametrize('model_type', ['nomic_bert', 'eurobert', 'roformer'])
def test_files_of_half_precision_equal_pytorch(random_model, tmp_path, model_type, dtype):
    """RoFormer's table of sinusoids is then rounded, too, and remains so."""
    torch = pytest.importorskip('torch')
    config, model = random_model(model_type)
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    inputs = random_inputs(config, lengths=(20, 7), length=20, seed=5)
    # Read again, since `to` rounds frequencies that no file has.
    model = type(model).from_pretrained(tmp_path, dtype=torch.float64, attn_implementation='eager')
    expected = model(**as_torch(config, inputs), output_attentions=True)
    for _ in range(2):
        ours = bs.from_pretrained(tmp_path)
        assert_as_in_pytorch(ours, inputs, expected)
        save_pretrained(ours, tmp_path)


def test_a_table_that_holds_no_sinusoids_is_refused(random_model, tmp_path):
    _, model = random_model('roformer', initializer_range=0.02)
    whole = bs.from_pretrained(tmp_path)
    model.roformer.encoder.embed_positions.weight.data[3, 2] += 0.01
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r'embed_positions.weight holds no sinusoids .*\[32, 6\]'):
        bs.from_pretrained(tmp_path)
    rewrite(tmp_path, without_tensors('embed_positions'))
    assert bs.from_pretrained(tmp_path).config == whole.config


_NO_NUMBERS = (None, '12', True, -1, math.nan, 10**400)
_LINEAR = {'rope_type': 'linear', 'factor': 2.0}
# Values of keys of config.json that are refused, and are named, in files of each family.
REFUSED = {
    'bert': {
        'model_type': [['bert'], None, 'funnel'],
        'vocab_size': [*_NO_NUMBERS, 24.0],
        'num_attention_heads': [*_NO_NUMBERS, 24.0, 5],
        'layer_norm_eps': [*_NO_NUMBERS, 0],
        'hidden_act': [None, {'a': [1]}, 'mish'],
        'classifier_dropout': ['none', 1.0],
        'id2label': [[1], {'0': None}, {'0': 'a', '1': 'a'}, {'0': ' '}, {'x': 'a'}],
        'architectures': ['BertForSequenceClassification', [1]],
        'problem_type': [3, 'ranking'],
        'pad_token_id': [60],
        'tokenizer_class': [['a']],
        'is_decoder': ['yes', True, 0, None],
        'position_embedding_type': ['relative_key'],
        'sinusoidal_pos_embds': [True],
        'embedding_size': [12],
        'pruned_heads': [{'3': [1]}],
        'novelty': [3, functools.reduce(lambda inner, _: [inner], range(90), 1)],
        'tie_word_embeddings': [0, None, 'x'],
        'max_position_embeddings': [1, 2],
    },
    'roberta': {'pad_token_id': [None, 31, 29]},
    'distilbert': {'dim': ['24']},
    'albert': {'num_hidden_groups': [None], 'inner_group_num': [2]},
    'mpnet': {'pad_token_id': [0]},
    'deberta-v2': {
        'pos_att_type': [0, {}, False, 'c2p|p2p'],
        'relative_attention': [0, 1, None],
        'attention_head_size': [[6]],
        'pooler_hidden_size': [8],
        'pooler_hidden_act': ['tanh'],
        'norm_rel_ebd': ['batch_norm'],
        'position_buckets': [1, {'max_relative_positions': 20, 'position_buckets': 61}],
        'conv_kernel_size': [2],
    },
    'esm': {'rope_theta': [None], 'position_embedding_type': ['alibi', None]},
    'modernbert': {
        'layer_types': [[GLOBAL], [GLOBAL, 'other', LOCAL], 3],
        'rope_parameters': [[], 0, '', False, [3], _LINEAR],
        'full_attention': [{'rope_parameters': {GLOBAL: 0}}],
        'rope_type': [{'rope_parameters': {LOCAL: _LINEAR}}],
        'rope_scaling': [{'factor': 2}],
        'mlp_dropout': [0.1],
        'classifier_pooling': ['max'],
        'norm_bias': ['yes'],
        'local_attention': [None, -1],
        'inner_group_num': [2],
        'global_attn_every_n_layers': [{'layer_types': None, 'global_attn_every_n_layers': 0}],
    },
    'nomic_bert': {
        'prenorm': [True],
        'num_experts': [8],
        'activation_function': ['gelu'],
        'factor': [{'rope_parameters': {'rope_type': 'default', 'factor': 8.0}}],
    },
    'eurobert': {
        'type': [{'rope_parameters': {'type': 'yarn', 'rope_theta': 5e2}}],
        'partial_rotary_factor': [{'rope_parameters': {'partial_rotary_factor': 2}}],
    },
    'jina_bert': {'feed_forward_type': ['reglu'], 'hidden_act': ['relu']},
    'jina_embeddings_v3': {
        'use_reg_tokens': [True],
        'rope_theta': [{'rope_parameters': {'rope_theta': None}}],
        'rotary_emb_base': [5.0, {'rope_theta': ..., 'rotary_emb_base': -1}],
    },
}


# A value with one of these keys is several settings.
SEVERAL = {'rope_parameters', 'layer_types', 'rope_theta', 'max_relative_positions'}


@pytest.mark.parametrize(
    ('model_type', 'key'), [(name, key) for name, keys in REFUSED.items() for key in keys]
)
def test_values_that_are_refused_are_named(config, model_type, key):
    whole = write_config(dataclasses.replace(relative(config, model_type), **BARE))
    for value in REFUSED[model_type][key]:
        several = isinstance(value, dict) and value.keys() & SEVERAL
        given = whole | (value if several else {key: value})
        given = {name: each for name, each in given.items() if each is not ...}
        with pytest.raises(ValueError, match=rf'\b{key}=') as error:
            bs.BertConfig(**read_config(given), add_pooler=False)
        assert '\n' not in str(error.value)


# Values of fields that a model of a family cannot have.
IMPOSSIBLE = {
    'bert': {
        'rope_theta': [1e4],
        'head': ['tagger', MASKED_LM, QUESTIONS],
        'label_names': [{'head': TOKENS, 'label_names': ()}],
        'multi_label': [{'head': TOKENS, 'multi_label': True}],
        'hidden_dropout_prob': [1.5],
        'layer_norm_eps': [math.nan],
    },
    'distilbert': {'layer_norm_eps': [1e-5], 'type_vocab_size': [2]},
    'roberta': {'embedding_size': [12], 'model_type': ['gpt2']},
    'electra': {'embedding_size': [None], 'label_names': [()]},
    'albert': {'num_hidden_groups': [4, None]},
    'esm': {'mask_token_id': [None], 'rope_theta': [None]},
    'modernbert': {'local_attention': [None], 'even width': [{'num_attention_heads': 8}]},
}


@pytest.mark.parametrize('model_type', IMPOSSIBLE)
def test_settings_that_a_model_type_cannot_have(config, model_type):
    for name, values in IMPOSSIBLE[model_type].items():
        for value in values:
            changes = value if isinstance(value, dict) else {name: value}
            with pytest.raises(ValueError, match=rf'\b{name}\b'):
                dataclasses.replace(relative(config, model_type), **changes)


def test_a_bert_that_is_called_a_roberta_is_told(config, tmp_path, caplog):
    bert = bs.Bert(dataclasses.replace(config, label_names=(), add_pooler=False))
    bs.save_pretrained(bs.Pretrained(bert, random_params(bert), None), tmp_path)
    values = json.loads((tmp_path / 'config.json').read_text()) | {'model_type': 'roberta'}
    for architectures in (['BertModel'], None):
        (tmp_path / 'config.json').write_text(json.dumps(values | {'architectures': architectures}))
        caplog.clear()
        bs.from_pretrained(tmp_path)
        assert "model_type='roberta' and" in caplog.text


@pytest.mark.parametrize('name', ['gpt2', 'llama', 'modernbert-decoder', 't5', 'bart'])
def test_a_decoder_is_called_one(name):
    known = ', '.join(map(repr, RELATIVES))
    with pytest.raises(ValueError, match=f"'{name}' .* a decoder, or has one; these are: {known}"):
        read_config({'model_type': name})
