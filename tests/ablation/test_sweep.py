"""The sweep equals the naive loop of one forward pass per mask."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import layers
from bert_secrets_jax.model.bert import init_params
from tests.conftest import random_inputs, random_params, relative


def batch_of(inputs) -> bs.Batch:
    count = len(inputs['input_ids'])
    return bs.Batch(**inputs, marks={}, example=np.arange(count, dtype=np.int32))


def naive(bert, params, inputs, masks, baseline):
    """Return [M, B, C] of one forward pass of the model per mask."""
    forward = jax.jit(
        lambda mask: bert.apply({'params': params}, **inputs, head_mask=mask, baseline=baseline)
    )
    return np.stack([forward(mask).logits for mask in masks])


def sweep(bert, params, batches, masks, **settings) -> np.ndarray:
    """Return the logits [M, E, C]; the sweep does not use the tokenizer."""
    return bs.sweep(bs.Pretrained(bert, params, None), batches, masks, **settings).logits


def all_kinds(config) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = (9, config.num_hidden_layers, config.num_attention_heads)
    single = bs.masks.single_heads(config)
    return {
        'none': bs.masks.none(config),
        'all heads': np.zeros((1, *shape[1:]), np.float32),
        'single heads': single,
        'one twice': single[[3, 3]],
        'single layers': bs.masks.single_layers(config),
        'one head left': bs.masks.one_head_left(config),
        'pairs': bs.masks.pairs(config),
        'random sets': bs.masks.random_sets(config, size=5, count=8, seed=1),
        'fractions': rng.uniform(0, 1, shape).astype(np.float32),
        'any': (rng.uniform(0, 1, shape) < 0.7).astype(np.float32),
    }


@pytest.mark.parametrize(
    ('baseline', 'chunk_tokens'), [('uniform', 1), ('zero', 20), ('uniform', 10_000)]
)
def test_equals_the_naive_loop(bert, params, inputs, config, baseline, chunk_tokens):
    """For every kind of mask, in whatever chunks: pieces of a batch, or several masks at once."""
    masks = np.concatenate(list(all_kinds(config).values()))
    expected = naive(bert, params, inputs, masks, baseline)
    # Masks must matter, or the comparison proves nothing.
    assert np.ptp(expected, axis=0).max() > 1e-2
    found = sweep(
        bert, params, [batch_of(inputs)], masks, baseline=baseline, chunk_tokens=chunk_tokens
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize('kind', ['single heads', 'one head left', 'pairs', 'fractions'])
def test_each_kind_on_its_own(bert, params, inputs, config, kind):
    """Without the intact model, and so without a path that no head leaves."""
    masks = all_kinds(config)[kind]
    found = sweep(bert, params, [batch_of(inputs)], masks)
    np.testing.assert_allclose(found, naive(bert, params, inputs, masks, 'uniform'), atol=1e-5)


@pytest.mark.parametrize('model_type', ['roberta', 'distilbert', 'electra'])
def test_other_model_types(config, model_type):
    """Their embeddings and what stands on [CLS] are their own."""
    bert = bs.Bert(relative(config, model_type))
    params = random_params(bert)
    inputs = random_inputs(bert.config, lengths=(9, 4, 6), length=9, seed=1)
    masks = np.concatenate([all_kinds(config)[kind] for kind in ('none', 'single heads', 'any')])
    expected = naive(bert, params, inputs, masks, 'uniform')
    assert np.ptp(expected, axis=0).max() > 1e-2
    found = sweep(bert, params, [batch_of(inputs)], masks)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_model_of_one_layer(config, inputs):
    bert = bs.Bert(dataclasses.replace(config, num_hidden_layers=1))
    params = jax.tree.map(lambda leaf: leaf * 10, init_params(bert, seed=0))
    masks = bs.masks.single_heads(bert.config)
    found = sweep(bert, params, [batch_of(inputs)], masks)
    np.testing.assert_allclose(found, naive(bert, params, inputs, masks, 'uniform'), atol=1e-5)


def test_batches_of_any_shape_and_order(bert, params, config):
    """Examples come back in their own order, fillers do not come back."""
    inputs = random_inputs(config, lengths=(3, 9, 5, 8, 4, 7, 6), length=9, seed=5)
    whole = batch_of(inputs)
    take = lambda rows: jax.tree.map(lambda array: array[rows], whole)
    filled = dataclasses.replace(take([4, 2, 0, 0]), example=np.array([4, 2, 0, -1], np.int32))
    masks = bs.masks.single_heads(config)
    together = sweep(bert, params, [whole], masks)
    apart = sweep(bert, params, [take([6, 1, 5, 3]), filled], masks)
    assert apart.shape == (len(masks), 7, 3)
    np.testing.assert_allclose(apart, together, atol=1e-5)


def test_devices_share_the_examples(bert, params, config):
    inputs = random_inputs(config, lengths=(3, 9, 5, 8), length=9, seed=5)
    batch, masks = batch_of(inputs), bs.masks.single_heads(config)
    mesh = jax.make_mesh((4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))
    np.testing.assert_allclose(
        sweep(bert, params, [batch], masks, mesh=mesh),
        sweep(bert, params, [batch], masks),
        atol=1e-5,
    )
    three = jax.tree.map(lambda array: array[:3], batch)
    with pytest.raises(ValueError, match='does not split over 4 devices'):
        sweep(bert, params, [three], masks, mesh=mesh)


def test_one_compilation_serves_all_layers_and_batches(bert, params, inputs, config):
    pieces = (layers.open_layer, layers.close_layer, layers.run_layer, layers.last_layer)
    batch, masks = batch_of(inputs), bs.masks.single_heads(config)
    jax.clear_caches()
    sweep(bert, params, [batch], masks)
    # The last layer is met twice: by the masks of its own heads, and at the end of all others.
    assert [piece._cache_size() for piece in pieces] == [1, 1, 1, 2]
    list(bs.sweep_batches(bs.Pretrained(bert, params, None), [batch, batch], masks))
    assert [piece._cache_size() for piece in pieces] == [1, 1, 1, 2]


def test_bfloat16(config, params, inputs):
    """In the precision of the model, that is about three digits."""
    bert = bs.Bert(dataclasses.replace(config, dtype='bfloat16'))
    masks = bs.masks.single_heads(config)
    found = sweep(bert, params, [batch_of(inputs)], masks)
    expected = naive(bert, params, inputs, masks, 'uniform')
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < 0.05 * scale


def test_result_holds_the_masks_and_the_predictions(bert, params, inputs, config):
    masks = bs.masks.single_heads(config)[[3, 0, 3]]
    swept = bs.sweep(bs.Pretrained(bert, params, None), [batch_of(inputs)], masks)
    np.testing.assert_array_equal(swept.masks, masks)
    np.testing.assert_array_equal(swept.predictions, swept.logits.argmax(axis=-1))
    assert swept.predictions.shape == (3, 3)
    np.testing.assert_array_equal(swept.logits[0], swept.logits[2])


def test_regression_predicts_values():
    swept = bs.Swept(np.ones((2, 1, 1), np.float32), np.array([[[0.5], [2.0]]] * 2))
    assert swept.predictions.tolist() == [[0.5, 2.0]] * 2


def test_masks_of_any_kind_of_number(bert, params, inputs, config):
    masks = bs.masks.single_layers(config)
    expected = sweep(bert, params, [batch_of(inputs)], masks)
    for kind in (bool, int, np.float64):
        found = sweep(bert, params, [batch_of(inputs)], masks.astype(kind))
        np.testing.assert_array_equal(found, expected)


def test_errors_say_what_is_wrong(bert, params, inputs, config, untyped):
    batches, masks = [batch_of(inputs)], bs.masks.single_heads(config)
    with pytest.raises(ValueError, match=r'\[M, 3, 4\] with at least one mask, got \[12, 4, 3\]'):
        sweep(bert, params, batches, masks.transpose(0, 2, 1))
    with pytest.raises(ValueError, match=r'at least one mask, got \[3, 4\]'):
        sweep(bert, params, batches, masks[0])
    with pytest.raises(ValueError, match='at least one mask'):
        sweep(bert, params, batches, masks[:0])
    with pytest.raises(ValueError, match="baseline='mean' is unknown"):
        sweep(bert, params, batches, masks, baseline='mean')
    with pytest.raises(ValueError, match='no batches'):
        sweep(bert, params, [], masks)
    bare = bs.Bert(dataclasses.replace(config, label_names=()))
    with pytest.raises(ValueError, match='no classifier'):
        sweep(bare, params, batches, masks)
    with pytest.raises(TypeError, match='Batches are several'):
        sweep(bert, params, batches[0], masks)


@pytest.mark.parametrize('function', [bs.sweep, bs.sweep_batches])
def test_only_a_pretrained_is_taken(bert, inputs, config, untyped, function):
    """At once, not when the first batch is asked for."""
    masks = bs.masks.single_heads(config)
    with pytest.raises(TypeError, match='^Bert is not a model with weights.*bs.from_pretrained'):
        function(bert, [batch_of(inputs)], masks)


def test_shapes_are_executed(bert, params, inputs, config):
    masks = bs.masks.single_heads(config)
    with pytest.raises(TypeError, match='masks'):
        sweep(bert, params, [batch_of(inputs)], masks[0])
    with pytest.raises(TypeError, match='logits'):
        bs.Swept(masks, np.zeros((3, 2, 1)))
