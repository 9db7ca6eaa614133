"""Heads cut out of the weights: the same logits, smaller files, and the way to and from PyTorch."""

import dataclasses
import json
import re
import textwrap

import jax
import numpy as np
import pytest
import safetensors.numpy

import bert_secrets_jax as bs
from bert_secrets_jax.model.bert import Bert, all_layers, init_params, own_layers
from bert_secrets_jax.model.config_json import read_config, write_config
from bert_secrets_jax.model.weights import without_head
from bert_secrets_jax.pruning import removal
from tests.conftest import (
    PAIRS,
    RELATIVES,
    as_torch,
    forward,
    random_inputs,
    random_params,
    relative,
)
from tests.model.test_weights import assert_equal

# Layers of four, two and no heads, in which different heads are left, and of one ALBERT's layer
# twice the same.
RAGGED = np.array([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
SHARED = np.array([[1, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 1]])


def run(model, inputs, **options):
    return jax.tree.map(np.asarray, forward(model.bert, model.params, inputs, **options))


@pytest.fixture(scope='module', params=RELATIVES)
def of_type(request, config, tokenizer_of):
    """A model of each model type, far from uniform attention, and inputs for it."""
    config = relative(config, request.param)
    bert = Bert(config)
    params = random_params(bert)
    # Fresh biases are 0, and would not show what becomes of them.
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + 0.1 if path[-1].key == 'bias' else leaf, params
    )
    inputs = random_inputs(config, lengths=(9, 4, 6), length=9, seed=1)
    return bs.Pretrained(bert, params, tokenizer_of(request.param)), inputs


@pytest.mark.parametrize('mask', [RAGGED, SHARED], ids=['ragged', 'shared'])
def test_it_computes_what_the_masked_model_does(of_type, mask):
    model, inputs = of_type
    cut = bs.remove_heads(model, mask)
    masked = run(model, inputs, head_mask=mask, baseline='zero')
    found = run(cut, inputs)
    assert np.abs(masked.logits - run(model, inputs).logits).max() > 1e-3
    for name in ('logits', 'pooled', 'hidden_states'):
        np.testing.assert_allclose(
            getattr(found, name), getattr(masked, name), atol=5e-6, err_msg=name
        )
    left = mask[None, :, :, None, None]
    assert found.attentions.shape == masked.attentions.shape
    np.testing.assert_allclose(found.attentions, masked.attentions * left, atol=2e-6)
    # A mask makes contexts 0 as well.
    np.testing.assert_allclose(found.contexts, masked.contexts, atol=5e-6)
    assert not found.attentions[:, mask == 0].any()


def test_layers_apart_are_the_same_model(of_type):
    """A whole model whose layers are not stacked, by which benchmarks judge removal."""
    model, inputs = of_type
    apart = removal.cut(model, np.ones((3, 4), bool))
    assert apart.config.pruned_heads == ((), (), ())
    np.testing.assert_allclose(run(apart, inputs).logits, run(model, inputs).logits, atol=2e-6)
    assert_equal(bs.restore_heads(apart).params, model.params)
    assert 'pruned' not in str(write_config(apart.config)) and 'removed' not in repr(apart)


def test_more_heads_can_be_removed(of_type):
    model, _ = of_type
    once = bs.remove_heads(model, RAGGED * SHARED)
    twice = bs.remove_heads(bs.remove_heads(model, RAGGED), RAGGED * SHARED)
    assert twice.config == once.config
    assert_equal(twice.params, once.params)


def test_nothing_to_remove_or_to_restore(pretrained):
    assert bs.remove_heads(pretrained, np.ones((3, 4))) is pretrained
    assert bs.restore_heads(pretrained) is pretrained
    cut = bs.remove_heads(pretrained, RAGGED)
    assert bs.remove_heads(cut, RAGGED.astype(bool)) is cut


def test_restored_heads_are_zeros(of_type):
    model, inputs = of_type
    cut = bs.remove_heads(model, RAGGED)
    restored = bs.restore_heads(cut)
    np.testing.assert_allclose(run(restored, inputs).logits, run(cut, inputs).logits, atol=5e-6)
    attention = restored.params['layers']['attention']
    for name in ('query', 'key', 'value'):
        kernel = np.asarray(attention[name]['kernel'])
        assert not kernel.transpose(0, 2, 1, 3)[RAGGED == 0].any()
    output = np.asarray(attention['output']['kernel'])
    np.testing.assert_array_equal(output.any(axis=(2, 3)), RAGGED == 1)
    assert restored.config.pruned_heads == ()


def test_layers_that_are_one_layer(config, tmp_path):
    """ALBERT's layers 1 and 2 are one: they remain so if they lose the same heads."""
    config = relative(config, 'albert')
    model = bs.Pretrained(Bert(config), init_params(Bert(config), 0), None)
    same, different = bs.remove_heads(model, SHARED), bs.remove_heads(model, RAGGED)
    assert [each.config.num_hidden_groups for each in (model, same, different)] == [2, 2, 3]
    own = own_layers(same.config, same.params)
    assert sorted(own['layers']) == ['0', '2']
    assert_equal(all_layers(same.config, own), same.params)
    assert_equal(all_layers(different.config, different.params), different.params)
    with pytest.raises(ValueError, match='differ between layers that are one layer'):
        dataclasses.replace(different.config, num_hidden_groups=2)
    for each, count in ((same, 2), (different, 3)):
        bs.save_pretrained(each, tmp_path)
        assert len(list(tensors_of(tmp_path, 'attention.query.weight'))) == count
    fresh = init_params(same.bert, 0)
    assert_equal(fresh['layers']['0'], fresh['layers']['1'])


def test_contacts_are_those_without_the_heads(config):
    config = dataclasses.replace(
        relative(config, 'esm'), label_names=(), add_pooler=False, add_contact_head=True
    )
    model = bs.Pretrained(Bert(config), random_params(Bert(config)), None)
    inputs = random_inputs(config, lengths=(9, 4, 6), length=9, seed=1)
    cut = bs.remove_heads(model, RAGGED)
    found = run(cut, inputs).contacts
    np.testing.assert_allclose(run(bs.restore_heads(cut), inputs).contacts, found, atol=5e-6)
    # Under a mask they are read from the maps of masked heads as well.
    masked = run(model, inputs, head_mask=RAGGED, baseline='zero').contacts
    assert np.abs(masked - found).max() > 1e-4


def tensors_of(directory, ending):
    tensors = safetensors.numpy.load_file(directory / 'model.safetensors')
    return {name: each for name, each in tensors.items() if name.endswith(ending)}


@pytest.mark.parametrize('mask', [RAGGED, SHARED], ids=['ragged', 'shared'])
def test_files_go_there_and_back(of_type, tmp_path, mask):
    model, _ = of_type
    cut = bs.remove_heads(model, mask)
    bs.save_pretrained(cut, tmp_path / 'cut')
    loaded = bs.from_pretrained(tmp_path / 'cut')
    assert loaded.config == cut.config
    assert_equal(loaded.params, cut.params)
    bs.save_pretrained(loaded, tmp_path / 'again')
    for file in ('config.json', 'model.safetensors'):
        assert (tmp_path / 'cut' / file).read_bytes() == (tmp_path / 'again' / file).read_bytes()


EACH = {'0': [1, 2], '1': [1, 2], '2': [0]}
OURS = 'bert_secrets_jax_pruned_heads'


@pytest.mark.parametrize(
    ('model_type', 'key', 'lost'),
    [
        ('roberta', 'pruned_heads', EACH),
        # The layers of the file are fewer.
        ('albert', 'pruned_heads', {'0': [1, 2], '1': [0]}),
        # Those that `transformers` could not remove heads from.
        ('mpnet', OURS, EACH),
        ('deberta-v2', OURS, EACH),
        ('modernbert', OURS, EACH),
        ('eurobert', OURS, EACH),
    ],
)
def test_config_json_names_removed_heads(config, model_type, key, lost):
    config = dataclasses.replace(relative(config, model_type), pruned_heads=((1, 2), (1, 2), (0,)))
    values = write_config(config)
    assert {name: values[name] for name in values if 'pruned' in name} == {key: lost}
    # Written by others: numbers as they come, and layers that have lost nothing.
    other = {int(layer): [*reversed(heads), heads[0]] for layer, heads in lost.items()}
    for written in (lost, other):
        assert read_config(values | {key: written})['pruned_heads'] == config.pruned_heads
    for nothing in ({}, None, {'0': []}):
        assert not read_config(values | {key: nothing}).get('pruned_heads')
    if key == OURS:
        # The key of others means nothing there.
        with pytest.raises(ValueError, match='pruned_heads=.*is not implemented'):
            read_config(values | {'pruned_heads': {'0': [1]}})


@pytest.mark.parametrize(
    ('value', 'named'),
    [
        ([1], r'pruned_heads=\[1\] must be an object'),
        ({'0': 1}, 'must be an object of layers'),
        ({'0': [True]}, 'must be an object of layers'),
        ({'3': [0]}, 'must name layers from 0 to 2 alone'),
        ({'0': [4]}, r'pruned_heads=\(\(4,\), .* ascending numbers from 0 to 3'),
        # The file holds all heads.
        ({'0': [1]}, r'query.weight \[24, 24\], expected \[18, 24\]'),
    ],
)
def test_removed_heads_that_do_not_fit_are_named(pretrained, tmp_path, value, named):
    bs.save_pretrained(pretrained, tmp_path)
    file = tmp_path / 'config.json'
    file.write_text(json.dumps(json.loads(file.read_text()) | {'pruned_heads': value}))
    with pytest.raises(ValueError, match=named):
        bs.from_pretrained(tmp_path)
    if 'expected' not in named:
        ignored = bs.from_pretrained(tmp_path, ignore_config=('pruned_heads',))
        assert_equal(ignored.params, pretrained.params)


@pytest.mark.parametrize(
    ('pruned', 'named'),
    [
        (((0,),), 'from each of the 3 layers'),
        (([0], (), ()), 'must be a tuple'),
        (((1, 0), (), ()), r'pruned_heads=\(\(1, 0\), .* ascending numbers'),
    ],
)
def test_a_config_refuses_what_layers_do_not_have(config, untyped, pruned, named):
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(config, pruned_heads=pruned)


@pytest.mark.filterwarnings('ignore:Initializing zero-element tensors')
@pytest.mark.parametrize('mask', [RAGGED, SHARED], ids=['ragged', 'shared'])
def test_pytorch_computes_the_same_with_modules_that_are_cut(pretrained, inputs, tmp_path, mask):
    """The documented lines run, with what we save."""
    torch = pytest.importorskip('torch')
    cut = bs.remove_heads(pretrained, mask)
    bs.save_pretrained(cut, tmp_path)
    lines = re.findall(r'^(?: {4}.*|)$', removal.__doc__, flags=re.M)
    names = {'directory': str(tmp_path)}
    exec(textwrap.dedent('\n'.join(lines)), names)
    with torch.no_grad():
        expected = names['model'](**as_torch(cut.config, inputs)).logits.numpy()
    np.testing.assert_allclose(run(cut, inputs).logits, expected, atol=5e-6)
    count = sum(each.numel() for each in names['model'].parameters())
    assert count == sum(leaf.size for leaf in jax.tree.leaves(cut.params))


def test_other_heads_stand_on_it(pretrained, config):
    cut = bs.remove_heads(pretrained, RAGGED)
    fresh = bs.with_classifier(cut, ('a', 'b'))
    assert fresh.config.pruned_heads == cut.config.pruned_heads
    assert_equal(fresh.params['layers'], cut.params['layers'])
    assert without_head(cut).config.pruned_heads == cut.config.pruned_heads
    lm = Bert(dataclasses.replace(config, head='masked_lm', label_names=()))
    masked_lm = bs.Pretrained(lm, init_params(lm, 0), None)
    both = bs.with_masked_lm(cut, bs.remove_heads(masked_lm, RAGGED))
    assert_equal(both.params['layers'], cut.params['layers'])
    for other in (masked_lm, bs.remove_heads(masked_lm, RAGGED[:, ::-1])):
        with pytest.raises(ValueError, match='does not fit'):
            bs.with_masked_lm(cut, other)


ASKED = {
    'head_mask': lambda model, inputs, _: run(model, inputs, head_mask=np.ones((3, 4))),
    'replacement': lambda model, inputs, _: run(
        model, inputs, baseline='mean', replacement=np.zeros((3, 4, 6), np.float32)
    ),
    'map_change': lambda model, inputs, _: run(
        model, inputs, map_change=np.zeros((3, 3, 4, 9, 9), np.float32)
    ),
    'sweep': lambda model, _, batches: bs.sweep(model, batches, np.ones((1, 3, 4))),
    'collect': lambda model, _, batches: bs.collect(model, batches, ['[SEP]']),
    'compare': lambda model, _, batches: bs.compare(
        bs.restore_heads(model), model, batches, ['cosine']
    ),
    'mean_contexts': lambda model, _, batches: bs.mean_contexts(model, batches),
    'attention_maps': lambda model, *_: bs.attention_maps(model, ['the cat saw the dog']),
}


@pytest.mark.parametrize('asked', ASKED)
def test_single_heads_cannot_be_asked_about(pretrained, inputs, asked):
    cut = bs.remove_heads(pretrained, RAGGED)
    batches = bs.encode(pretrained.tokenizer, PAIRS)
    ASKED[asked](pretrained, inputs, batches)
    with pytest.raises(
        ValueError, match=r"\(bert, 3 layers, 4 heads, width 24, 6 of 12 heads.*baseline='zero'"
    ):
        ASKED[asked](cut, inputs, batches)


@pytest.mark.parametrize(
    ('mask', 'named'),
    [
        (np.ones((4, 3)), r'\[layers, heads\] = \[3, 4\], got \[4, 3\]'),
        (np.ones(4), r'got \[4\]'),
        (np.full((3, 4), 0.5), 'no other number, such as 0.5'),
        (np.ones((3, 4)), 'keeps L2-H1, which this model has lost'),
    ],
)
def test_masks_that_cannot_be_cut(pretrained, untyped, mask, named):
    with pytest.raises(ValueError, match=named):
        bs.remove_heads(bs.remove_heads(pretrained, RAGGED), mask)
    for change in (lambda model: bs.remove_heads(model, RAGGED), bs.restore_heads):
        with pytest.raises(TypeError, match=r'pretrained=Bert\(.* must be a bs.Pretrained'):
            change(pretrained.bert)
