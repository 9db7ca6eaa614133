"""Features of single families: layers that see a window, rotated positions, protein contacts."""

import dataclasses
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import bert_secrets_jax as bs
from bert_secrets_jax.model import attention
from bert_secrets_jax.model.bert import all_layers, init_params, own_layers
from bert_secrets_jax.model.config import GLOBAL, LOCAL
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.weights import save_pretrained, tensors_from_params
from tests.conftest import as_torch, forward, random_inputs, random_params, relative
from tests.model.conftest import in_pytorch

VARIANTS = {
    'esm with embeddings of positions': (
        'esm',
        {'position_embedding_type': 'absolute', 'emb_layer_norm_before': True},
    ),
    'esm without token dropout': ('esm', {'token_dropout': False, 'mask_token_id': None}),
    'modernbert with biases': (
        'modernbert',
        dict.fromkeys(('attention_bias', 'mlp_bias', 'norm_bias', 'classifier_bias'), True),
    ),
    'modernbert over the mean': (
        'modernbert',
        {'classifier_pooling': 'mean', 'layer_types': (LOCAL, LOCAL, GLOBAL)},
    ),
    # Twelve layers of numbers, of which the file holds one.
    'albert of one layer': ('albert', {'num_hidden_groups': 1, 'num_hidden_layers': 12}),
    'albert of wide embeddings': ('albert', {'embedding_size': 24}),
    'ernie without tasks': ('ernie', {'use_task_id': False}),
    # Slopes of heads beyond a power of two.
    'jina_bert of six heads': ('jina_bert', {'num_attention_heads': 6}),
    'jina_embeddings_v3 of many tokens': ('jina_embeddings_v3', {'max_position_embeddings': 302}),
    'mmBERT': ('modernbert', {'local_rope_theta': 160_000.0, 'classifier_pooling': 'mean'}),
    'mpnet of many tokens': ('mpnet', {'max_position_embeddings': 302}),
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_variants_equal_pytorch(config, tokenizer_of, tmp_path, variant):
    model_type, settings = VARIANTS[variant]
    config = dataclasses.replace(relative(config, model_type), initializer_range=0.3, **settings)
    model = in_pytorch(config, tmp_path, tokenizer_of(model_type))
    length = min(config.max_length, 300)
    inputs = random_inputs(config, lengths=(length, 7, 1), length=length, seed=5)
    expected = model(**as_torch(config, inputs))
    ours = bs.from_pretrained(tmp_path)
    for name, value in settings.items():
        assert getattr(ours.config, name) == value
    found = forward(ours.bert, ours.params, inputs)
    np.testing.assert_allclose(found.logits, expected.logits.detach(), atol=5e-6)
    maps = np.stack([maps.detach() for maps in expected.attentions], axis=1)
    np.testing.assert_allclose(found.attentions, maps, atol=5e-6)


def test_contacts_equal_pytorch(config, tokenizer_of, tmp_path):
    config = dataclasses.replace(
        relative(config, 'esm'), initializer_range=0.3, label_names=(), add_pooler=False
    )
    model = in_pytorch(config, tmp_path, tokenizer_of('esm'))
    # As proteins are written: <cls>, residues, <eos>, padding.
    inputs = random_inputs(config, lengths=(11, 6, 4), length=11, seed=5)
    ids = np.where(inputs['input_ids'] < 5, 7, inputs['input_ids'])
    ids[:, 0] = 0
    for row, length in enumerate((11, 6, 4)):
        ids[row, length - 1 :] = [2, *[1] * (11 - length)]
    inputs['input_ids'] = ids
    ours = bs.from_pretrained(tmp_path)
    assert ours.config.add_contact_head
    found = np.asarray(forward(ours.bert, ours.params, inputs).contacts)
    given = as_torch(config, inputs)
    expected = model.predict_contacts(given['input_ids'], given['attention_mask']).detach().numpy()
    for row, length in enumerate((11, 6, 4)):
        residues = slice(1, length - 1)
        theirs_here = expected[row, : length - 2, : length - 2]
        assert np.ptp(theirs_here) > 1e-3
        np.testing.assert_allclose(found[row, residues, residues], theirs_here, atol=5e-6)
        rest = found[row].copy()
        rest[residues, residues] = 0
        assert not rest.any()
    save_pretrained(ours, tmp_path / 'again')
    again = bs.from_pretrained(tmp_path / 'again')
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)


def test_frequencies_of_a_file_are_its_own(config, tokenizer_of, tmp_path):
    """Old checkpoints of ESM were rounded to 16 bits, which moves distant positions."""
    torch = pytest.importorskip('torch')
    config = dataclasses.replace(relative(config, 'esm'), initializer_range=0.3)
    model = in_pytorch(config, tmp_path, tokenizer_of('esm'))
    rounded = model.esm.rotary_embeddings.inv_freq.bfloat16().float()
    model.esm.rotary_embeddings.inv_freq.copy_(rounded)
    model.save_pretrained(tmp_path)
    inputs = random_inputs(config, lengths=(29, 7), length=29, seed=5)
    with torch.no_grad():
        expected = model(**as_torch(config, inputs)).logits
    ours = bs.from_pretrained(tmp_path)
    assert ours.config.rope_frequencies == tuple(rounded.tolist())
    found = forward(ours.bert, ours.params, inputs).logits
    np.testing.assert_allclose(found, expected, atol=5e-6)
    exact = bs.Bert(dataclasses.replace(ours.config, rope_frequencies=None))
    moved = np.abs(exact.apply({'params': ours.params}, **inputs).logits - found).max()
    assert moved > 1e-4
    # They are written again, and in each layer, as old files have them, they are as good.
    save_pretrained(ours, tmp_path / 'again')
    assert bs.from_pretrained(tmp_path / 'again').config == ours.config
    file = tmp_path / 'again' / 'model.safetensors'
    tensors = safetensors.numpy.load_file(file)
    frequencies = tensors.pop('esm.rotary_embeddings.inv_freq')
    of_layers = {
        f'esm.encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq': frequencies
        for layer in range(3)
    }
    safetensors.numpy.save_file(tensors | of_layers, file)
    assert bs.from_pretrained(tmp_path / 'again').config == ours.config
    of_layers[min(of_layers)] = frequencies * 2
    safetensors.numpy.save_file(tensors | of_layers, file)
    with pytest.raises(ValueError, match=r'inv_freq is not the same \[3\] everywhere'):
        bs.from_pretrained(tmp_path / 'again')


def test_local_layers_see_their_window(config):
    """Maps are 0 beyond it, and a disabled head is uniform within it."""
    bert = bs.Bert(relative(config, 'modernbert'))
    params = random_params(bert)
    inputs = random_inputs(bert.config, lengths=(11, 6), length=11, seed=5)
    masks = np.ones((3, 4), np.float32)
    masks[1, 2] = 0
    found = forward(bert, params, inputs, head_mask=masks)
    maps = np.asarray(found.attentions)
    far = np.abs(np.arange(11)[:, None] - np.arange(11)) > 2
    real = inputs['attention_mask'].astype(bool)
    pairs = real[:, :, None] & real[:, None, :]
    assert maps[:, 0][np.broadcast_to((far & pairs)[:, None], maps[:, 0].shape)].min() > 0
    for layer in (1, 2):
        assert not maps[:, layer][np.broadcast_to((far & pairs)[:, None], maps[:, 0].shape)].any()
        np.testing.assert_allclose(maps[:, layer].sum(axis=-1), 1, atol=1e-6)
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


# As the hub has ModernBERT-base, but for its size.
MODERN = {
    'model_type': 'modernbert', 'architectures': ['ModernBertForMaskedLM'], 'vocab_size': 60,
    'hidden_size': 24, 'num_hidden_layers': 4, 'num_attention_heads': 4, 'intermediate_size': 40,
    'attention_bias': False, 'attention_dropout': 0.0, 'bos_token_id': 1, 'cls_token_id': 1,
    'classifier_activation': 'gelu', 'classifier_bias': False, 'classifier_dropout': 0.0,
    'classifier_pooling': 'mean', 'decoder_bias': True, 'deterministic_flash_attn': False,
    'embedding_dropout': 0.0, 'eos_token_id': 2, 'global_attn_every_n_layers': 3,
    'global_rope_theta': 160000.0, 'gradient_checkpointing': False, 'hidden_activation': 'gelu',
    'initializer_cutoff_factor': 2.0, 'initializer_range': 0.02, 'layer_norm_eps': 1e-05,
    'local_attention': 128, 'local_rope_theta': 10000.0, 'max_position_embeddings': 8192,
    'mlp_bias': False, 'mlp_dropout': 0.0, 'norm_bias': False, 'norm_eps': 1e-05,
    'pad_token_id': 0, 'position_embedding_type': 'absolute', 'sep_token_id': 2,
    'tie_word_embeddings': True, 'torch_dtype': 'float32', 'transformers_version': '4.47.0.dev0',
}  # fmt: skip


def test_settings_of_modernbert_old_and_new():
    old = bs.BertConfig(**read_config(MODERN), add_pooler=False)
    assert old.layer_types == (GLOBAL, LOCAL, LOCAL, GLOBAL)
    assert (old.rope_theta, old.local_rope_theta, old.local_attention) == (160_000, 10_000, 128)
    assert old.max_length == 8192 and not old.mlp_bias
    new = {key: value for key, value in MODERN.items() if 'rope' not in key and 'every' not in key}
    new |= {
        'layer_types': list(old.layer_types),
        'rope_parameters': {
            GLOBAL: {'rope_type': 'default', 'rope_theta': 160_000.0},
            LOCAL: {'rope_type': 'default', 'rope_theta': 10_000.0},
        },
    }
    assert bs.BertConfig(**read_config(new), add_pooler=False) == old
    json.dumps(write_config(old))


# What config.json says besides in jina-embeddings-v2 and v3.
MODERN_SIZES = {key: MODERN[key] for key in MODERN if 'size' in key or 'num_' in key}
JINA_V2 = {
    'model_type': 'bert', 'position_embedding_type': 'alibi', 'feed_forward_type': 'geglu',
    'emb_pooler': 'mean', 'model_max_length': 8192, 'max_position_embeddings': 8192, 'auto_map': {},
}  # fmt: skip
JINA_V3 = {
    'model_type': 'xlm-roberta', 'position_embedding_type': 'rotary', 'rotary_emb_base': 20000.0,
    'pad_token_id': 1, 'type_vocab_size': 1, 'use_flash_attn': True, 'use_reg_tokens': False,
    'load_trained_adapters': True, 'lora_adaptations': ['text-matching'], 'lora_alpha': 1,
    'lora_dropout_p': 0.0, 'lora_main_params_trainable': False, 'lora_rank': 4,
    'matryoshka_dimensions': [32], 'task_instructions': {}, 'max_position_embeddings': 8194,
}  # fmt: skip


def test_settings_of_other_repositories():
    mm = MODERN | {'local_rope_theta': 160_000.0, 'position_embedding_type': 'sans_pos'}
    v2, v3, mm = (
        bs.BertConfig(**read_config(values), add_pooler=False)
        for values in (MODERN_SIZES | JINA_V2, MODERN_SIZES | JINA_V3, mm)
    )
    assert (v2.model_type, v2.max_length, v2.has_positions) == ('jina_bert', 8192, False)
    assert (v3.model_type, v3.rope_theta, v3.max_length) == ('jina_embeddings_v3', 20_000, 8194)
    assert [kind.reach for kind in mm.layer_kinds] == [None, 64, 64, None]
    assert {kind.rope_theta for kind in mm.layer_kinds} == {160_000}
    other = write_config(v3) | {'rope_parameters': {'rope_theta': 5_000.0}}
    assert read_config(other)['rope_theta'] == 5_000


def test_adapters_are_left_out_and_this_is_said(config, tmp_path, caplog):
    bare = dataclasses.replace(config, label_names=(), add_pooler=False)
    bert = bs.Bert(relative(bare, 'jina_embeddings_v3'))
    params, lora = random_params(bert), 'encoder.layers.0.mlp.fc1.parametrizations.weight'
    tensors = tensors_from_params(bert.config, params)
    tensors[f'{lora}.original'] = tensors.pop('encoder.layers.0.mlp.fc1.weight')
    tensors[f'{lora}.0.lora_A'] = np.ones((2, 4), np.float32)
    safetensors.numpy.save_file(tensors, tmp_path / 'model.safetensors')
    values = MODERN_SIZES | JINA_V3 | {'vocab_size': 400, 'num_hidden_layers': 3}
    (tmp_path / 'config.json').write_text(json.dumps(values))
    with caplog.at_level(logging.WARNING):
        ours = bs.from_pretrained(tmp_path)
    assert f'left out 1 tensors of adapters, such as {lora}.0.lora_A' in caplog.text
    jax.tree.map(np.testing.assert_array_equal, ours.params, params)


@pytest.mark.parametrize(
    ('values', 'named'),
    [
        ({'layer_types': [GLOBAL] * 3}, 'for each of the 4 layers'),
        ({'layer_types': [GLOBAL, LOCAL, 'other', LOCAL]}, "must be one of 'full_attention' or"),
        ({'layer_types': 3}, 'layer_types=3 must be a list of texts'),
        ({'global_attn_every_n_layers': 0}, 'global_attn_every_n_layers=0 must be'),
        ({'rope_parameters': {GLOBAL: {'rope_type': 'yarn'}}}, 'rope_parameters=.*not implemented'),
        ({'rope_parameters': [3]}, 'rope_parameters=.*not implemented'),
        ({'rope_scaling': {'factor': 2}}, 'rope_scaling=.*not implemented'),
        ({'mlp_dropout': 0.1}, r'mlp_dropout=0.1 is not implemented \(only 0.0 is\)'),
        ({'classifier_pooling': 'max'}, "classifier_pooling='max' must be 'cls' or 'mean'"),
        ({'norm_bias': 'yes'}, "norm_bias='yes' must be False or True"),
        ({'local_attention': -1}, 'local_attention=-1 must be'),
        ({'num_attention_heads': 8}, 'heads of an even width, not of 3'),
        ({'inner_group_num': 2}, 'unknown: inner_group_num=2'),
        (JINA_V2 | {'feed_forward_type': 'reglu'}, "unknown: .*feed_forward_type='reglu'"),
        (JINA_V2 | {'hidden_act': 'relu'}, "hidden_act='relu' is not implemented"),
        (JINA_V3 | {'use_reg_tokens': True}, 'use_reg_tokens=True is not implemented'),
        (JINA_V3 | {'rope_parameters': {'rope_type': 'yarn'}}, 'rope_parameters=.*not implemented'),
        (JINA_V3 | {'rotary_emb_base': -1}, 'rope_theta=-1 must be'),
    ],
)
def test_settings_that_do_not_fit_are_named(values, named):
    with pytest.raises(ValueError, match=named):
        bs.BertConfig(**read_config(MODERN | values), add_pooler=False)


def test_settings_of_albert(config):
    plain = {
        key: value
        for key, value in write_config(relative(config, 'albert')).items()
        if key not in ('embedding_size', 'num_hidden_groups')
    }
    assert read_config(plain)['embedding_size'] == 128
    with pytest.raises(ValueError, match='inner_group_num=2 is not implemented'):
        read_config(plain | {'inner_group_num': 2})


def test_padding_of_mpnet_is_what_transformers_takes_for_it(config):
    """There it is 1, whatever config.json says: with another one positions would differ."""
    values = write_config(relative(config, 'mpnet'))
    assert read_config(values)['pad_token_id'] == 1
    assert read_config(values | {'pad_token_id': None})['pad_token_id'] == 1
    with pytest.raises(ValueError, match=r'pad_token_id=0 is not implemented \(only 1 is\)'):
        read_config(values | {'pad_token_id': 0})
