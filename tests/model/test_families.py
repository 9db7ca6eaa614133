"""Features of single families: layers that see a window, rotated positions, protein contacts."""

import dataclasses
import functools
import json
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import bert_secrets_jax as bs
from bert_secrets_jax.contributions.layers import each_layer
from bert_secrets_jax.model import attention
from bert_secrets_jax.model.bert import all_layers, init_params, own_layers
from bert_secrets_jax.model.config import GLOBAL, LOCAL
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.weights import save_pretrained, tensors_from_params
from tests.conftest import RELATIVES, as_torch, forward, random_inputs, random_params, relative
from tests.fuzz.test_checkpoints import make_with_pieces, plain_pieces, read_tokens
from tests.model.conftest import in_pytorch, of_real_tokens, rewrite, without_tensors

OWN = {
    'pos_att_type': ('p2c',), 'position_buckets': -1, 'norm_rel_ebd': 'none',
    'share_att_key': False,
}  # fmt: skip
VARIANTS = {
    'esm with embeddings of positions': (
        'esm',
        {'position_embedding_type': 'absolute', 'emb_layer_norm_before': True},
    ),
    'esm without token dropout': ('esm', {'token_dropout': False, 'mask_token_id': None}),
    # `transformers` writes them itself, and takes them for false.
    'esm with nulls': (
        'esm',
        {'position_embedding_type': 'absolute'},
        ('emb_layer_norm_before', 'token_dropout', 'mask_token_id'),
    ),
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
    'deberta-v2 with weights and positions of its own': (
        'deberta-v2',
        {'share_att_key': False, 'position_biased_input': True, 'type_vocab_size': 2},
    ),
    'deberta-v2 of many tokens': (
        'deberta-v2',
        {'max_position_embeddings': 302, 'position_buckets': 16, 'max_relative_positions': 40},
    ),
    'deberta-v2 of fewer distances than buckets': ('deberta-v2', {'position_buckets': 62}),
    'deberta-v2 without buckets': ('deberta-v2', OWN | {'max_relative_positions': 5}),
    'deberta-v2 with a convolution': (
        'deberta-v2',
        {'pos_att_type': ('c2p',), 'embedding_size': 16}
        | {'conv_kernel_size': 5, 'conv_groups': 2, 'conv_act': 'gelu'},
    ),
    # The scale still reckons with the parts that are not there.
    'deberta-v2 without distances': (
        'deberta-v2',
        {'relative_attention': False, 'norm_rel_ebd': 'none', 'position_biased_input': True},
    ),
    'nomic_bert of many tokens': ('nomic_bert', {'max_position_embeddings': 300}),
    'eurobert of late pooling': (
        'eurobert',
        {'classifier_pooling': 'late', 'max_position_embeddings': 300, 'num_key_value_heads': 1},
    ),
    'eurobert with biases': (
        'eurobert',
        {'classifier_pooling': 'cls', 'attention_bias': True, 'mlp_bias': True},
    ),
    'roformer of many tokens': (
        'roformer',
        {'rotary_value': False, 'embedding_size': 24, 'max_position_embeddings': 300}
        | {'hidden_act': 'relu'},
    ),
}


@pytest.mark.parametrize('variant', VARIANTS)
def test_variants_equal_pytorch(config, tokenizer_of, tmp_path, variant):
    model_type, settings, *nulls = VARIANTS[variant]
    config = dataclasses.replace(relative(config, model_type), initializer_range=0.3, **settings)
    nulls = dict.fromkeys(*nulls or [()])
    model = in_pytorch(config, tmp_path, tokenizer_of(model_type), **nulls)
    assert json.loads((tmp_path / 'config.json').read_text()).items() >= nulls.items()
    length = min(config.max_length, 300)
    inputs = random_inputs(config, lengths=(length, 7, 1), length=length, seed=5)
    # In float64, PyTorch does not round by as much as the tolerance; ModernBERT's padding is NaN.
    model = model if model_type == 'modernbert' else model.double()
    expected = model(**as_torch(config, inputs))
    ours = bs.from_pretrained(tmp_path)
    for name, value in settings.items():
        assert getattr(ours.config, name) == value
    assert_as_in_pytorch(ours, inputs, expected)


def assert_as_in_pytorch(ours, inputs, expected):
    """Logits, and maps where padding may mean nothing."""
    found = forward(ours.bert, ours.params, inputs)
    np.testing.assert_allclose(found.logits, expected.logits.detach(), atol=5e-6)
    maps = np.stack([maps.detach() for maps in expected.attentions], axis=1)
    both = of_real_tokens(ours.config, inputs, found.attentions, maps)
    np.testing.assert_allclose(*both, atol=5e-6)


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
def test_no_classifier_reads_padding_on_the_left(config, tokenizer, model_type):
    bert = bs.Bert(relative(config, model_type))
    model = bs.Pretrained(bert, random_params(bert), tokenizer)
    right = random_inputs(bert.config, lengths=(9, 6, 0), length=9, seed=5)
    left = {name: np.roll(array, 3, axis=1) for name, array in right.items()}
    with pytest.raises(ValueError, match=r'row 1 begins with padding.*Pad on the right'):
        bert.apply({'params': model.params}, **left)
    batch = bs.Batch(**left, marks={'token': left['attention_mask'] > 0}, example=np.arange(3))
    for read in (
        lambda: bs.collect(model, [batch], {'self': bs.statistics.to_self}),
        lambda: bs.sweep(model, [batch], bs.masks.single_heads(bert.config)),
    ):
        with pytest.raises(ValueError, match='row 1 begins with padding'):
            read()
    # Compiled code does not see the values, and does not hide them.
    output = forward(bert, model.params, left)
    assert np.isnan(output.logits).any(axis=1).tolist() == [False, True, False]
    assert np.isfinite(output.attentions).all()
    # An empty row, as batches have them, is none of that.
    output = forward(bert, model.params, right)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(output))


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


def test_a_masked_lm_of_modernbert_without_a_bias(config, tokenizer_of, tmp_path):
    torch, transformers = pytest.importorskip('torch'), pytest.importorskip('transformers')
    config = dataclasses.replace(
        relative(config, 'modernbert'), head='masked_lm', label_names=(), initializer_range=0.3
    )
    in_pytorch(config, tmp_path, tokenizer_of('modernbert'))
    rewrite(tmp_path, without_tensors('decoder.bias'))
    values = json.loads((tmp_path / 'config.json').read_text())
    (tmp_path / 'config.json').write_text(json.dumps(values | {'decoder_bias': False}))
    ours = bs.from_pretrained(tmp_path)
    save_pretrained(ours, tmp_path / 'again')
    inputs = random_inputs(config, lengths=(11, 4), length=11, seed=5)
    found = forward(ours.bert, ours.params, inputs).logits
    for folder in (tmp_path, tmp_path / 'again'):
        theirs = transformers.ModernBertForMaskedLM.from_pretrained(
            folder, attn_implementation='eager', dtype=torch.float32
        )
        expected = theirs.eval()(**as_torch(config, inputs)).logits.detach()
        np.testing.assert_allclose(found, expected, atol=1e-5)


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


def read_sizes(model_type, **more):
    return read_config(MODERN_SIZES | {'model_type': model_type} | more)


def test_settings_that_are_left_out_or_have_no_effect():
    ernie = read_sizes('ernie', type_vocab_size=4)
    assert (
        read_sizes('ernie', type_vocab_size=4, sent_type_vocab_size=4, embedding_size=24) == ernie
    )
    assert read_sizes('albert')['embedding_size'] == 128
    # In `transformers` it is 1, whatever config.json says: with another one positions would differ.
    for more in ({}, {'pad_token_id': None}):
        assert read_sizes('mpnet', **more)['pad_token_id'] == 1


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


# As the hub has DeBERTa-v3-base, but for its size.
DEBERTA = {
    'model_type': 'deberta-v2', 'attention_probs_dropout_prob': 0.1, 'hidden_act': 'gelu',
    'hidden_dropout_prob': 0.1, 'hidden_size': 24, 'initializer_range': 0.02,
    'intermediate_size': 40, 'max_position_embeddings': 32, 'relative_attention': True,
    'position_buckets': 16, 'norm_rel_ebd': 'layer_norm', 'share_att_key': True,
    'pos_att_type': 'p2c|c2p', 'layer_norm_eps': 1e-07, 'max_relative_positions': -1,
    'position_biased_input': False, 'num_attention_heads': 4, 'num_hidden_layers': 3,
    'type_vocab_size': 0, 'vocab_size': 60, 'attention_head_size': 6, 'pooler_dropout': 0,
    'pooler_hidden_act': 'gelu', 'pooler_hidden_size': 24,
}  # fmt: skip


def test_settings_of_deberta(config):
    read = bs.BertConfig(**read_config(DEBERTA), add_pooler=False)
    assert read.score_parts == ('c2c', 'c2p', 'p2c') and read.distances == (16, 16, 32)
    assert not read.has_positions and read.embedding_size is None and read.conv_kernel_size == 0
    assert read_config(DEBERTA | {'pos_att_type': None})['pos_att_type'] == ()


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
def test_gradients_of_deberta_equal_pytorch(config, tokenizer, tmp_path):
    torch = pytest.importorskip('torch')
    mine = relative(config, 'deberta-v2')
    mine = dataclasses.replace(mine, initializer_range=0.2, conv_kernel_size=3)
    model = in_pytorch(mine, tmp_path, tokenizer)
    inputs = random_inputs(mine, lengths=(11, 4, 1), length=11, seed=5)
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    logits = model(**as_torch(mine, inputs)).logits
    (logits * torch.tensor(weights)).sum().backward()
    ours = bs.from_pretrained(tmp_path)
    loss = lambda params: (forward(ours.bert, params, inputs).logits * weights).sum()
    found = tensors_from_params(ours.config, jax.grad(loss)(ours.params))
    expected = {name: each.grad.numpy() for name, each in model.named_parameters()}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        scale = np.abs(array).max()
        np.testing.assert_allclose(found[name], array, atol=2e-5 * max(scale, 1), err_msg=name)


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


# As the repositories of nomic-ai name them: parts of names, and keys with values in config.json.
NOMIC_NAMES = {
    'nomic_bert.': '', 'embeddings.LayerNorm': 'emb_ln', 'layers.': 'encoder.layers.',
    'self_attn.o_proj': 'attn.out_proj', 'up_proj': 'fc11', 'gate_proj': 'fc12', 'down_proj': 'fc2',
    'post_attention_layernorm': 'norm1', 'post_mlp_layernorm': 'norm2',
}  # fmt: skip
NOMIC = {
    'activation_function': 'swiglu', 'attn_pdrop': 0.0, 'causal': False, 'embd_pdrop': 0.0,
    'fused_bias_fc': True, 'layer_norm_epsilon': 1e-12, 'mlp_fc1_bias': False, 'n_embd': 24,
    'mlp_fc2_bias': False, 'model_type': 'nomic_bert', 'n_head': 4, 'n_inner': 40, 'n_layer': 3,
    'n_positions': 64, 'pad_token_id': 0, 'prenorm': False, 'qkv_proj_bias': False,
    'resid_pdrop': 0.0, 'rotary_emb_base': 1000.0, 'rotary_emb_fraction': 1.0,
    'rotary_emb_interleaved': False, 'rotary_emb_scale_base': None, 'rotary_scaling_factor': None,
    'scale_attn_weights': True, 'type_vocab_size': 2, 'use_rms_norm': False, 'vocab_size': 60,
}  # fmt: skip


# A key of config.json that is another one, in each kind of it.
REFUSED = [
    (
        MODERN,
        [
            ({'layer_types': [GLOBAL] * 3}, 'for each of the 4 layers'),
            (
                {'layer_types': [GLOBAL, LOCAL, 'other', LOCAL]},
                "must be one of 'full_attention' or",
            ),
            ({'layer_types': 3}, 'layer_types=3 must be a list of texts'),
            ({'global_attn_every_n_layers': 0}, 'global_attn_every_n_layers=0 must be'),
            (
                {'rope_parameters': {GLOBAL: {'rope_type': 'yarn'}}},
                "rope_type='yarn' is not implemented",
            ),
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
            (JINA_V3 | {'rope_parameters': {'type': 'linear'}}, "type='linear' is not implemented"),
            (JINA_V3 | {'rotary_emb_base': -1}, 'rotary_emb_base=-1 must be'),
            (JINA_V3 | {'rope_theta': 5.0}, 'rotary_emb_base=20000.0 and rope_theta=5.0'),
        ],
    ),
    (
        DEBERTA,
        [
            ({'pos_att_type': 'c2p|p2p'}, r"pos_att_type=\['c2p', 'p2p'\] must name some of"),
            ({'attention_head_size': [6]}, r'attention_head_size=\[6\] is not implemented'),
            ({'pooler_hidden_size': 8}, 'pooler_hidden_size=8 is not implemented'),
            ({'pooler_hidden_act': 'tanh'}, "pooler_hidden_act='tanh' is not implemented"),
            ({'norm_rel_ebd': 'batch_norm'}, "norm_rel_ebd='batch_norm' must be 'none' or"),
            (
                {'position_buckets': 61, 'max_relative_positions': 20},
                'must be from 2 to 37, or -1 here',
            ),
            ({'conv_kernel_size': 2}, 'conv_kernel_size=2 must be odd, or 0 here'),
        ],
    ),
    (
        NOMIC,
        [
            ({'prenorm': True}, 'prenorm=.* is not implemented'),
            ({'num_experts': 8}, 'num_experts=.* is not implemented'),
            ({'activation_function': 'gelu'}, 'activation_function=.* is not implemented'),
        ],
    ),
    (
        MODERN_SIZES,
        [
            (
                {'model_type': 'albert', 'inner_group_num': 2},
                'inner_group_num=2 is not implemented',
            ),
            ({'model_type': 'mpnet', 'pad_token_id': 0}, r'pad_token_id=0 is not .* \(only 1 is\)'),
        ],
    ),
]


@pytest.mark.parametrize(
    ('values', 'named'),
    [(base | values, named) for base, rows in REFUSED for values, named in rows],
)
def test_settings_that_do_not_fit_are_named(values, named):
    with pytest.raises(ValueError, match=named):
        bs.BertConfig(**read_config(values), add_pooler=False)


def test_older_files_of_nomic(config, tokenizer_of, tmp_path):
    """They are read as `transformers` reads them, and as what they are in today's names."""
    config = dataclasses.replace(
        relative(config, 'nomic_bert'), initializer_range=0.3, label_names=(), add_pooler=False
    )
    model = in_pytorch(config, tmp_path, tokenizer_of('nomic_bert'))
    today = bs.from_pretrained(tmp_path)
    old, tensors = {}, tensors_from_params(today.config, today.params)
    for name, tensor in tensors.items():
        if 'q_proj' in name:
            rest = [tensors[name.replace('q_proj', each)] for each in ('k_proj', 'v_proj')]
            name, tensor = (
                name.replace('self_attn.q_proj', 'attn.Wqkv'),
                np.concatenate([tensor, *rest]),
            )
        for theirs, ours in NOMIC_NAMES.items():
            name = name.replace(theirs, ours)
        if 'self_attn' not in name:
            old[name] = tensor
    safetensors.numpy.save_file(old, tmp_path / 'model.safetensors')
    theirs = type(model).from_pretrained(tmp_path).state_dict()
    assert all(theirs[name].equal(tensor) for name, tensor in model.state_dict().items())
    (tmp_path / 'config.json').write_text(json.dumps(NOMIC))
    read = bs.from_pretrained(tmp_path)
    assert read.config.max_length == 64
    jax.tree.map(np.testing.assert_array_equal, read.params, today.params)
    stretched = NOMIC | {'rotary_scaling_factor': 2, 'max_trained_positions': 48}
    assert read_config(stretched)['max_position_embeddings'] == 48


@pytest.mark.parametrize('dtype', ['float16', 'bfloat16'])
@pytest.mark.parametrize('model_type', ['nomic_bert', 'eurobert', 'roformer'])
def test_files_of_half_precision_equal_pytorch(config, tokenizer_of, tmp_path, model_type, dtype):
    """RoFormer's table of sinusoids is then rounded, too, and remains so."""
    torch = pytest.importorskip('torch')
    config = dataclasses.replace(relative(config, model_type), initializer_range=0.3)
    model = in_pytorch(config, tmp_path, tokenizer_of(model_type)).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path)
    inputs = random_inputs(config, lengths=(20, 7), length=20, seed=5)
    # Read again, since `to` rounds frequencies that no file has.
    model = type(model).from_pretrained(tmp_path, dtype=torch.float64, attn_implementation='eager')
    expected = model(**as_torch(config, inputs), output_attentions=True)
    for _ in range(2):
        ours = bs.from_pretrained(tmp_path)
        assert_as_in_pytorch(ours, inputs, expected)
        save_pretrained(ours, tmp_path)


def test_a_table_that_holds_no_sinusoids_is_refused(config, tokenizer_of, tmp_path):
    model = in_pytorch(relative(config, 'roformer'), tmp_path, tokenizer_of('roformer'))
    whole = bs.from_pretrained(tmp_path)
    table = model.roformer.encoder.embed_positions.weight.data
    table[3, 2] += 0.01
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r'embed_positions.weight holds no sinusoids .*\[32, 6\]'):
        bs.from_pretrained(tmp_path)
    rewrite(tmp_path, without_tensors('embed_positions'))
    assert bs.from_pretrained(tmp_path).config == whole.config


_LINEAR = {'rope_type': 'linear', 'factor': 2.0}


@pytest.mark.parametrize(
    ('model_type', 'key', 'values'),
    [
        ('modernbert', 'rope_parameters', [[], 0, '', False, _LINEAR]),
        ('modernbert', 'full_attention', [{'rope_parameters': {GLOBAL: 0}}]),
        ('modernbert', 'rope_type', [{'rope_parameters': {LOCAL: _LINEAR}}]),
        ('eurobert', 'type', [{'rope_parameters': {'type': 'yarn', 'rope_theta': 5e2}}]),
        ('nomic_bert', 'factor', [{'rope_parameters': {'rope_type': 'default', 'factor': 8.0}}]),
        ('eurobert', 'partial_rotary_factor', [{'rope_parameters': {'partial_rotary_factor': 2}}]),
        ('jina_embeddings_v3', 'rope_theta', [{'rope_parameters': {'rope_theta': None}}]),
        ('modernbert', 'local_attention', [None]),
        ('esm', 'rope_theta', [None]),
        ('esm', 'position_embedding_type', ['alibi', None]),
        ('albert', 'num_hidden_groups', [None]),
        ('roberta', 'pad_token_id', [None, 23, 21]),
        ('deberta-v2', 'pos_att_type', [0, {}, False]),
        ('deberta-v2', 'relative_attention', [0, 1, None]),
        ('bert', 'chunk_size_feed_forward', [None, -1, 0.5, True, '', 10**10]),
        ('bert', 'is_decoder', [0, None, 'x']),
        ('bert', 'tie_word_embeddings', [0, None, 'x']),
        ('bert', 'num_labels', [10**10, -1, 1.5, None, '2']),
        ('bert', 'id2label', [{'0': 'a', '1': 'a'}, {'0': ' '}, {'x': 'a'}, {'0': None}]),
        ('bert', 'problem_type', ['ranking', 1]),
        ('bert', 'max_position_embeddings', [1, 2]),
    ],
)  # fmt: skip
def test_values_that_transformers_refuses_or_applies(tmp_path, config, model_type, key, values):
    family = relative(dataclasses.replace(config, label_names=(), add_pooler=False), model_type)
    for value in values:
        given = value if isinstance(value, dict) and 'rope_parameters' in value else {key: value}
        whole = write_config(dataclasses.replace(family, max_position_embeddings=24)) | given
        (tmp_path / 'config.json').write_text(json.dumps(whole))
        # The weights are not looked at.
        with pytest.raises(ValueError, match=rf'config.json: .*\b{key}=') as error:
            bs.from_pretrained(tmp_path)
        assert '\n' not in str(error.value)


def test_a_bert_that_is_called_a_roberta_is_told(config, tmp_path, caplog):
    bert = bs.Bert(dataclasses.replace(config, label_names=(), add_pooler=False))
    bs.save_pretrained(bs.Pretrained(bert, random_params(bert), None), tmp_path)
    values = json.loads((tmp_path / 'config.json').read_text()) | {'model_type': 'roberta'}
    for architectures in (['BertModel'], None):
        (tmp_path / 'config.json').write_text(json.dumps(values | {'architectures': architectures}))
        caplog.clear()
        bs.from_pretrained(tmp_path)
        assert "model_type='roberta' and" in caplog.text
