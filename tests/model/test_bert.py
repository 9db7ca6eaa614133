"""Laws 2 and 3: what must hold of maps and masks, whatever the weights are."""

import dataclasses
import json
import pathlib

import flax.errors
import flax.traverse_util
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_secrets_jax.model import attention, parts
from bert_secrets_jax.model.bert import Bert, init_params
from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.encoder import Layer, Scope
from bert_secrets_jax.model.intervention import Intervention
from bert_secrets_jax.model.weights import from_pretrained
from tests.conftest import forward, random_inputs, random_params, relative
from tests.model import numpy_bert

REPLACEMENTS = {'uniform': numpy_bert.uniform_map, 'zero': numpy_bert.zero_map}
HEADS = [[(0, 1)], [(2, 3)], [(0, 0), (0, 2), (1, 1), (2, 0)]]


ONES = np.ones((3, 4), np.float32)


def run(bert, params, inputs, **kwargs):
    return jax.tree.map(np.asarray, forward(bert, params, inputs, **kwargs))


def without(*heads):
    """The mask that disables these heads."""
    mask = ONES.copy()
    for head in heads:
        mask[head] = 0
    return mask


def assert_as_in_numpy(output, config, params, inputs, how=lambda row: {}):
    """Hidden states, learned maps and logits are those of each example alone in NumPy."""
    for row in range(3):
        given = (inputs[name][row] for name in inputs)
        expected = numpy_bert.forward(config, params, *given, **how(row))
        for name, values in zip(('hidden_states', 'attentions', 'logits'), expected, strict=True):
            found = getattr(output, name)[row]
            np.testing.assert_allclose(found, values, atol=5e-6, err_msg=name)


def assert_identical(output, other):
    for name in ('logits', 'pooled', 'hidden_states', 'attentions', 'contexts'):
        np.testing.assert_array_equal(getattr(output, name), getattr(other, name))


@hypothesis.given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=4), seed=st.integers(0, 10_000)
)
@hypothesis.settings(max_examples=15)
def test_rows_sum_to_one_and_padding_gets_nothing(config, bert, params, lengths, seed):
    inputs = random_inputs(config, lengths=lengths, length=7, seed=seed)
    maps = run(bert, params, inputs).attentions
    assert maps.shape == (len(lengths), 3, 4, 7, 7)
    real = inputs['attention_mask'].astype(bool)
    np.testing.assert_allclose(maps.sum(axis=-1), 1, atol=1e-6)
    padded_keys = np.broadcast_to(~real[:, None, None, None, :], maps.shape)
    assert (maps[padded_keys] == 0).all()


def test_more_padding_changes_nothing(bert, params, config, inputs):
    short = run(bert, params, inputs)
    padded = {name: np.pad(array, ((0, 0), (0, 5))) for name, array in inputs.items()}
    long = run(bert, params, padded)
    np.testing.assert_allclose(long.logits, short.logits, atol=2e-6)
    np.testing.assert_allclose(long.attentions[..., :9, :9], short.attentions, atol=2e-6)


@pytest.mark.parametrize('baseline', REPLACEMENTS)
@pytest.mark.parametrize('heads', HEADS)
def test_ablating_equals_replacing_the_map_by_hand(config, bert, params, inputs, baseline, heads):
    output = run(bert, params, inputs, head_mask=without(*heads), baseline=baseline)
    untouched = run(bert, params, inputs)
    assert np.abs(output.logits - untouched.logits).max() > 1e-3  # the mask does something
    replace = {'replace': dict.fromkeys(heads, REPLACEMENTS[baseline])}
    assert_as_in_numpy(output, config, params, inputs, lambda row: replace)


def others(shape=(3, 4, 6), seed=0):
    """Return random outputs of heads: the same for all tokens, or one for each."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize('shape', [(3, 4, 6), (3, 3, 9, 4, 6)])
@pytest.mark.parametrize('heads', HEADS)
def test_ablating_equals_replacing_the_output_by_hand(config, bert, params, inputs, shape, heads):
    mask, new = without(*heads), others(shape)
    output = run(bert, params, inputs, head_mask=mask, baseline='mean', replacement=new)
    again = run(bert, params, inputs, head_mask=mask, baseline='resample', replacement=new)
    np.testing.assert_array_equal(output.logits, again.logits)
    assert np.abs(output.logits - run(bert, params, inputs).logits).max() > 1e-3
    each = np.broadcast_to(new if new.ndim == 5 else new[:, None], (3, 3, 9, 4, 6))
    outputs = lambda row: {'outputs': {(at, head): each[row, at, :, head] for at, head in heads}}
    assert_as_in_numpy(output, config, params, inputs, outputs)
    for layer, head in heads:
        np.testing.assert_array_equal(output.contexts[:, layer, :, head], each[:, layer, :, head])


def test_a_fraction_mixes_both_outputs(bert, params, inputs):
    mask, new = without(), others()
    mask[0, 2] = 0.3
    plain = run(bert, params, inputs)
    mixed = run(bert, params, inputs, head_mask=mask, baseline='mean', replacement=new)
    expected = 0.3 * plain.contexts[:, 0, :, 2] + 0.7 * new[0, 2]
    np.testing.assert_allclose(mixed.contexts[:, 0, :, 2], expected, atol=1e-6)


def test_what_padding_gets_is_no_matter(bert, params, inputs):
    """Neither there, nor by more of it."""
    mask, new = np.zeros((3, 4), np.float32), others((3, 3, 9, 4, 6))
    settings = {'head_mask': mask, 'baseline': 'resample'}
    short = run(bert, params, inputs, replacement=new, **settings).logits
    real = inputs['attention_mask'].astype(bool)[:, None, :, None, None]
    elsewhere = np.where(real, new, 1e3)
    found = run(bert, params, inputs, replacement=elsewhere, **settings).logits
    np.testing.assert_allclose(found, short, atol=2e-6)
    padded = {name: np.pad(array, ((0, 0), (0, 5))) for name, array in inputs.items()}
    wider = np.pad(new, ((0, 0), (0, 0), (0, 5), (0, 0), (0, 0)))
    long = run(bert, params, padded, replacement=wider, **settings).logits
    np.testing.assert_allclose(long, short, atol=2e-6)


def loss_of(bert, params, inputs, baseline):
    """Return a function of a mask, and of a replacement, that goes through transformations."""

    def loss(mask, replacement=None):
        given = {'head_mask': mask, 'baseline': baseline, 'replacement': replacement}
        return bert.apply({'params': params}, **inputs, **given).logits[:, 0].sum()

    return jax.jit(loss)


def slope(loss, at, place):
    """The slope of a function along one number, by central differences."""
    step = np.zeros(at.shape, np.float32)
    step[place] = 1e-2
    return (loss(at + step) - loss(at - step)) / 2e-2


@pytest.mark.parametrize(
    'settings',
    [
        *({'head_mask': ONES, 'baseline': baseline} for baseline in attention.MAP_BASELINES),
        *(
            {'head_mask': ONES, 'baseline': baseline, 'replacement': others()}
            for baseline in attention.OUTPUT_BASELINES
        ),
        {'map_change': np.zeros((3, 3, 4, 9, 9), np.float32)},
        {'part_mask': np.ones((3, 1, 4), np.float32)},
    ],
    ids=lambda settings: '-'.join([*settings, settings.get('baseline', '')]),
)
def test_what_changes_nothing_is_the_identity(bert, params, inputs, settings):
    assert_identical(run(bert, params, inputs, **settings), run(bert, params, inputs))


def test_a_mask_per_example(bert, params, inputs):
    mask = np.stack([without(), without((0, 0)), without((2, 3))])
    together = run(bert, params, inputs, head_mask=mask).logits
    for index in range(3):
        alone = run(bert, params, inputs, head_mask=mask[index]).logits
        np.testing.assert_allclose(together[index], alone[index], atol=2e-6)


@pytest.mark.parametrize('baseline', ['uniform', 'zero', 'mean'])
def test_gradients_are_slopes(bert, params, inputs, baseline):
    """Those of a mask, and of what replaces an output."""
    loss, mask = loss_of(bert, params, inputs, baseline), np.full((3, 4), 0.7, np.float32)
    new = others() if baseline == 'mean' else None
    gradient = jax.grad(loss)(mask, new)
    for place in ((0, 1), (1, 3), (2, 0)):
        numeric = slope(lambda mask: loss(mask, new), mask, place)
        np.testing.assert_allclose(gradient[place], numeric, rtol=2e-2, atol=2e-3)
    assert (np.asarray(gradient) != 0).all()
    if baseline == 'mean':
        gradient = jax.grad(loss, argnums=1)(mask, new)
        numeric = slope(lambda new: loss(mask, new), new, (0, 2, 5))
        np.testing.assert_allclose(gradient[0, 2, 5], numeric, rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize('baseline', ['uniform', 'zero'])
def test_a_change_is_added_after_the_mask(bert, params, inputs, baseline):
    """A disabled head's map has nothing but its baseline and the change that is added."""
    mask = without((1, 2))
    disabled = run(bert, params, inputs, head_mask=mask, baseline=baseline)
    plain = run(bert, params, inputs)
    real = inputs['attention_mask'][:, None, :]
    uniform = real / real.sum(axis=-1, keepdims=True)
    change = np.zeros((3, 3, 4, 9, 9), np.float32)
    change[:, 1, 2] = plain.attentions[:, 1, 2] - (uniform if baseline == 'uniform' else 0)
    back = run(bert, params, inputs, head_mask=mask, baseline=baseline, map_change=change)
    assert np.abs(disabled.logits - plain.logits).max() > 1e-4
    np.testing.assert_allclose(back.logits, plain.logits, atol=2e-6)
    np.testing.assert_array_equal(back.attentions[:, :2], plain.attentions[:, :2])


def test_unused_maps_are_never_stored():
    """Asked for logits alone, the compiled program is smaller than all maps together."""
    config = BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=12, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=128, label_names=('a', 'b'),
    )  # fmt: skip
    bert = Bert(config)
    params = init_params(bert, 0)
    inputs = random_inputs(config, lengths=[128, 64], length=128, seed=0)
    all_maps = 2 * 12 * 4 * 128 * 128 * 4

    def memory(select):
        program = jax.jit(lambda p: select(bert.apply({'params': p}, **inputs))).lower(params)
        analysis = program.compile().memory_analysis()
        return analysis.temp_size_in_bytes + analysis.output_size_in_bytes

    assert memory(lambda output: output.logits) < all_maps / 2
    assert memory(lambda output: (output.logits, output.attentions)) > all_maps


def test_dropout_differs_between_layers_and_examples(config, inputs):
    """In layers built to be constant, only dropout can tell layers and examples apart."""
    bert = Bert(dataclasses.replace(config, hidden_dropout_prob=0.5))
    params = init_params(bert, 0)
    layers = jax.tree.map(jnp.zeros_like, params['layers'])
    # attention_norm yields 0 whatever comes in; the feed-forward adds one and the same vector.
    layers['output']['bias'] += jax.random.normal(jax.random.key(1), (1, config.hidden_size))
    layers['output_norm']['scale'] += 1
    constant = params | {'layers': layers}
    plain = run(bert, constant, inputs).hidden_states[:, 1:]
    np.testing.assert_array_equal(plain, np.broadcast_to(plain[:1, :1, :1], plain.shape))
    dropped = run(
        bert, constant, inputs, deterministic=False, rngs={'dropout': jax.random.key(0)}
    ).hidden_states[:, 1:]
    vectors = dropped.reshape(-1, config.hidden_size)
    assert len(np.unique(vectors, axis=0)) > 0.9 * len(vectors)


def test_dropout_does_not_depend_on_batching_or_padding(bert, params, inputs):
    """The same examples, padded further, in another order and in two batches."""

    def train(batch, ids, seed=0):
        found = run(
            bert, params, batch, deterministic=False, rngs={'dropout': jax.random.key(seed)},
            example_ids=np.array(ids),
        )  # fmt: skip
        # The output is the learned map, before dropout: still probabilities.
        np.testing.assert_allclose(found.attentions.sum(-1), 1, atol=1e-6)
        return found.logits

    together = train(inputs, [7, 3, 11])
    assert np.abs(train(inputs, [7, 3, 11], seed=1) - together).max() > 1e-3
    padded = {name: np.pad(array[::-1], ((0, 0), (0, 4))) for name, array in inputs.items()}
    np.testing.assert_allclose(train(padded, [11, 3, 7])[::-1], together, atol=5e-6)
    alone = {name: array[1:2] for name, array in inputs.items()}
    np.testing.assert_allclose(train(alone, [3]), together[1:2], atol=5e-6)
    assert np.abs(train(alone, [4]) - together[1:2]).max() > 1e-3


def test_dropout_drops_the_given_share():
    keys = jax.random.split(jax.random.key(0), 4)
    for mask in (
        parts.dropout_mask(keys, 0.1, (100, 50)),
        parts.attention_dropout_mask(keys, 0.1, (5, 30, 40)),
    ):
        rows = np.asarray(mask).reshape(4, -1)
        np.testing.assert_allclose(rows.mean(axis=1), 0.9, atol=0.015)
        correlation = np.corrcoef(rows)
        assert np.abs(correlation - np.eye(4)).max() < 0.05


@pytest.mark.parametrize(
    ('model_type', 'before_pooler'),
    [('bert', False), ('roberta', True), ('distilbert', False), ('electra', True)],
)
def test_dropout_of_the_classifier_is_where_the_model_type_has_it(
    config, model_type, before_pooler
):
    config = dataclasses.replace(
        relative(config, model_type), classifier_dropout=0.5, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    bert, rngs = Bert(config), {'dropout': jax.random.key(0)}
    params, inputs = random_params(bert), random_inputs(config, lengths=[9, 4], length=9, seed=1)
    train = run(bert, params, inputs, deterministic=False, rngs=rngs)
    evaluate = run(bert, params, inputs)
    np.testing.assert_allclose(train.hidden_states, evaluate.hidden_states, atol=1e-6)
    assert (np.abs(train.pooled - evaluate.pooled).max() > 1e-3) == before_pooler
    assert np.abs(train.logits - evaluate.logits).max() > 1e-3


@pytest.mark.parametrize('model_type', ['bert', 'distilbert'])
def test_dropout_on_the_output_of_attention(config, model_type):
    """DistilBERT has none. The feed-forward network adds nothing here, and has nothing to drop."""
    config = dataclasses.replace(
        relative(config, model_type), hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.0
    )
    layer = Layer(config, deterministic=False)
    hidden = jax.random.normal(jax.random.key(0), (2, 5, config.hidden_size))
    scopes = Scope(attention.visible_keys(jnp.ones((2, 5), bool))[None])
    rest = (0, Intervention(), scopes, jnp.arange(2))
    params = layer.init(jax.random.key(1), hidden, *rest)['params']
    params['output'] = jax.tree.map(jnp.zeros_like, params['output'])
    train, _ = layer.apply({'params': params}, hidden, *rest, rngs={'dropout': jax.random.key(2)})
    evaluate, _ = Layer(config).apply({'params': params}, hidden, *rest)
    assert (np.abs(train - evaluate).max() > 1e-3) == (model_type == 'bert')


def test_bfloat16_is_close_and_keeps_softmax_in_float32(config, inputs):
    params = init_params(Bert(config), 0)
    exact = run(Bert(config), params, inputs)
    half = run(Bert(dataclasses.replace(config, dtype='bfloat16')), params, inputs)
    assert half.attentions.dtype == np.float32 and half.logits.dtype == np.float32
    np.testing.assert_allclose(half.attentions.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(half.attentions, exact.attentions, atol=5e-3)
    np.testing.assert_allclose(half.logits, exact.logits, atol=2e-2)
    assert np.abs(half.logits - exact.logits).max() > 0  # it does compute in bfloat16


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != 'gpu', reason='a GPU is needed: JAX_PLATFORMS=cuda')
def test_three_products_of_tf32_are_close_to_float32(config, inputs):
    params = init_params(Bert(config), 0)
    exact, near, half = (
        run(Bert(dataclasses.replace(config, dtype=dtype)), params, inputs)
        for dtype in ('float32', 'tf32x3', 'bfloat16')
    )
    np.testing.assert_allclose(near.attentions, exact.attentions, atol=1e-6)
    np.testing.assert_allclose(near.logits, exact.logits, atol=1e-5)
    assert np.abs(half.logits - exact.logits).max() > 1e-4


@pytest.mark.skipif(jax.default_backend() == 'gpu', reason='this device has it')
def test_a_precision_that_the_device_lacks_is_refused():
    with pytest.raises(ValueError, match="'tf32x3' is for NVIDIA GPUs, and this device is a"):
        from_pretrained('all-MiniLM-L6-v2', dtype='tf32x3')


def test_without_classifier_and_pooler_they_are_none(config, inputs):
    bert = Bert(dataclasses.replace(config, label_names=(), add_pooler=False))
    output = run(bert, init_params(bert, 0), inputs)
    assert output.logits is None and output.pooled is None


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        *(
            ({'head_mask': np.ones(shape)}, r'head_mask must be \[layers, heads\] = \[3, 4\]')
            for shape in [(4, 3), (12,), (2, 3, 4), (1, 3, 3, 4)]
        ),
        *(
            ({'map_change': np.zeros(shape)}, r'map_change must be .* = \[3, 3, 4, 9, 9\], got')
            for shape in [(3, 4, 9, 9), (3, 3, 4, 8, 9), (1, 3, 4, 9, 9)]
        ),
        *(
            (
                {'head_mask': ONES, 'baseline': 'mean', 'replacement': np.zeros(shape)},
                r'= \[3, 4, 6\] or .* = \[3, 3, 9, 4, 6\], got',
            )
            for shape in [(3, 4, 5), (3, 3, 4, 6), (3, 3, 8, 4, 6), (1, 3, 9, 4, 6)]
        ),
        ({'baseline': 'zero', 'replacement': others()}, "='zero' takes no replacement"),
        ({'head_mask': ONES, 'baseline': 'resample'}, "='resample' needs a replacement"),
        (
            {'token_type_ids': np.zeros((3, 8), int)},
            'token_type_ids must be .* give the shape of inp',
        ),
    ],
)
def test_what_does_not_fit_is_named(bert, params, inputs, given, message):
    with pytest.raises(ValueError, match=message):
        bert.apply({'params': params}, **inputs | given)


def test_more_tokens_than_positions_are_named(config):
    for model_type, most in (('bert', 32), ('roberta', 30)):
        ids = np.ones((1, most + 1), np.int32)
        with pytest.raises(ValueError, match=f'{most + 1} tokens, but the model has {most} pos'):
            Bert(relative(config, model_type)).apply({'params': {}}, ids, ids, ids)


def test_parameter_names_and_shapes_are_stable(config, params):
    """Checkpoints, converters and weight decay masks rely on these."""
    golden = json.loads((pathlib.Path(__file__).parent / 'param_shapes.json').read_text())
    shapes = {
        path: list(leaf.shape)
        for path, leaf in flax.traverse_util.flatten_dict(params, sep='/').items()
    }
    assert shapes == golden


def test_initial_weights_follow_the_range(config):
    params = init_params(Bert(dataclasses.replace(config, initializer_range=0.05)), 0)
    for path, leaf in flax.traverse_util.flatten_dict(params, sep='/').items():
        if path.endswith(('kernel', 'embedding')):
            assert 0.03 < np.std(leaf) < 0.07, path
        else:
            np.testing.assert_array_equal(leaf, float(path.endswith('scale')))
