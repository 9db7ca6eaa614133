"""The sweep equals the naive loop of one forward pass per mask."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import layers
from bert_secrets_jax.ablation.contexts import draw_donors
from bert_secrets_jax.model import attention
from tests.conftest import RELATIVES, forward, random_inputs, random_params, rarely, relative


def batch_of(inputs) -> bs.Batch:
    count = len(inputs['input_ids'])
    return bs.Batch(**inputs, marks={}, example=np.arange(count, dtype=np.int32))


def naive(bert, params, inputs, masks, baseline):
    """Return [M, B, C] of one forward pass of the model per mask."""
    replacement = replacement_of(bert, params, inputs, baseline)
    given = {'baseline': baseline, 'replacement': replacement}
    return np.stack(
        [forward(bert, params, inputs, head_mask=mask, **given).logits for mask in masks]
    )


def replacement_of(bert, params, inputs, baseline):
    """Return what the model needs for 'mean' and 'resample', token by token."""
    if baseline in ('uniform', 'zero'):
        return None
    contexts = np.asarray(forward(bert, params, inputs).contexts)
    real = inputs['attention_mask'].astype(bool)
    if baseline == 'mean':
        return contexts.swapaxes(1, 2)[real].mean(axis=0)
    lengths = real.sum(axis=1)
    result = np.full_like(contexts, 1e6)  # The contexts of padding reach no logits.
    for example, donor in enumerate(draw_donors(lengths, seed=0)):
        last, donor_last = lengths[example] - 1, lengths[donor] - 1
        result[example, :, 0] = contexts[donor, :, 0]
        for token in range(1, last):
            result[example, :, token] = contexts[donor, :, 1 + (token - 1) % (donor_last - 1)]
        result[example, :, last] = contexts[donor, :, donor_last]
    return result


def sweep(bert, params, batches, masks, **settings) -> np.ndarray:
    """Return the logits [M, E, C]; the sweep does not use the tokenizer."""
    return bs.sweep(bs.Pretrained(bert, params, None), batches, masks, **settings).logits


def assert_as_naive(bert, params, inputs, masks, baseline, real=np.s_[:], **settings):
    """The sweep has the logits of the naive loop, in which masks matter: else it proves nothing."""
    expected = naive(bert, params, inputs, masks, baseline)[:, real]
    assert np.ptp(expected, axis=0).max() > 1e-2
    found = sweep(bert, params, [batch_of(inputs)], masks, baseline=baseline, **settings)
    np.testing.assert_allclose(found[:, real], expected, atol=1e-5)


def model_of(config, model_type='bert', **changes):
    """Return a random model of a type, its parameters, and inputs of three lengths."""
    bert = bs.Bert(dataclasses.replace(relative(config, model_type), **changes))
    inputs = random_inputs(bert.config, lengths=(9, 4, 6), length=9, seed=1)
    return bert, random_params(bert), inputs


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
        'pairs': bs.masks.pairs(config)[::4],
        'random sets': bs.masks.random_sets(config, size=5, count=8, seed=1),
        'fractions': rng.uniform(0, 1, shape).astype(np.float32),
        'any': (rng.uniform(0, 1, shape) < 0.7).astype(np.float32),
    }


def some_kinds(config) -> np.ndarray:
    return np.concatenate([all_kinds(config)[kind] for kind in ('none', 'single heads', 'any')])


@pytest.mark.parametrize(
    ('baseline', 'chunk_tokens'),
    [(each, tokens) for each in ('uniform', 'resample') for tokens in (1, 10_000)]
    + [('zero', 20), ('mean', 20)],
)
def test_equals_the_naive_loop(bert, params, inputs, config, baseline, chunk_tokens):
    """For every kind of mask, in whatever chunks: pieces of a batch, or several masks at once."""
    masks = np.concatenate(list(all_kinds(config).values()))
    assert_as_naive(bert, params, inputs, masks, baseline, chunk_tokens=chunk_tokens)


@pytest.mark.parametrize('baseline', ['uniform', 'mean', 'resample'])
@pytest.mark.parametrize('kind', ['single heads', 'one head left', 'pairs', 'fractions'])
def test_each_kind_on_its_own(bert, params, inputs, config, kind, baseline):
    """Without the intact model, and so without a path that no head leaves."""
    assert_as_naive(bert, params, inputs, all_kinds(config)[kind], baseline)


def test_the_last_layer_alone(bert, params, inputs):
    """All its heads, and one: nothing before it is opened for the mean, all for the donors."""
    masks = np.ones((2, 3, 4), np.float32)
    masks[0, -1], masks[1, -1, 2] = 0, 0.3
    for baseline in ('mean', 'resample'):
        assert_as_naive(bert, params, inputs, masks, baseline)


def test_a_mean_over_other_texts(bert, params, inputs, config):
    pretrained, masks = bs.Pretrained(bert, params, None), bs.masks.single_layers(config)
    corpus = random_inputs(config, lengths=(9, 4, 6, 5), length=9, seed=7)
    means = bs.mean_contexts(pretrained, [batch_of(corpus)])
    np.testing.assert_allclose(means, replacement_of(bert, params, corpus, 'mean'), atol=5e-6)
    found = sweep(bert, params, [batch_of(inputs)], masks, baseline='mean', replacement=means)
    expected = [
        forward(bert, params, inputs, head_mask=mask, baseline='mean', replacement=means).logits
        for mask in masks
    ]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    of_its_own = sweep(bert, params, [batch_of(inputs)], masks, baseline='mean')
    assert np.abs(found - of_its_own).max() > 1e-3


ALL_UNIFORM = sorted(RELATIVES.keys() - {'bert', 'xlm-roberta', 'camembert'})
OTHERS = [('jina_bert', 'mean'), ('electra', 'mean'), ('esm', 'mean'), ('modernbert', 'zero')]
OTHERS += [('roformer', 'mean'), ('eurobert', 'resample')]
OFTEN = [('electra', 'mean'), ('esm', 'uniform'), ('modernbert', 'resample')]


@pytest.mark.parametrize(
    ('model_type', 'baseline'),
    rarely([*((each, 'uniform') for each in ALL_UNIFORM), *OTHERS, OFTEN[-1]], often=OFTEN),
)
def test_other_model_types(config, model_type, baseline):
    """Their embeddings, the order of their layers and what stands on [CLS] are their own."""
    changes = {'conv_kernel_size': 3} if model_type == 'deberta-v2' else {}
    assert_as_naive(*model_of(config, model_type, **changes), some_kinds(config), baseline)


@pytest.mark.parametrize('changes', [{}, {'conv_kernel_size': 3}])
def test_a_model_of_one_layer(config, changes):
    model_type = 'deberta-v2' if changes else 'bert'
    bert, *rest = model_of(config, model_type, num_hidden_layers=1, **changes)
    for baseline in attention.BASELINES[: 1 if changes else 4]:
        assert_as_naive(bert, *rest, bs.masks.single_heads(bert.config), baseline)


@pytest.mark.parametrize('baseline', attention.BASELINES)
def test_batches_of_any_shape_and_order(bert, params, config, baseline):
    """Examples come back in their own order, fillers do not come back. Padding is no matter."""
    inputs = random_inputs(config, lengths=(3, 9, 5, 8, 4, 7, 6), length=9, seed=5)
    whole = batch_of(inputs)
    take = lambda rows: jax.tree.map(lambda array: array[rows], whole)
    filled = dataclasses.replace(take([4, 2, 0, 0]), example=np.array([4, 2, 0, -1], np.int32))
    masks = bs.masks.single_heads(config)
    short = dataclasses.replace(
        filled, **{name: array[:, :6] for name, array in filled.inputs.items()}
    )
    together = sweep(bert, params, [whole], masks, baseline=baseline)
    for parts in ([take([6, 1, 5, 3]), filled], [short, take([3, 6, 5, 1])]):
        apart = sweep(bert, params, parts, masks, baseline=baseline)
        assert apart.shape == (len(masks), 7, 3)
        np.testing.assert_allclose(apart, together, atol=1e-5)


@pytest.mark.parametrize('baseline', rarely(list(attention.BASELINES), often=['uniform']))
def test_logits_of_the_mean_of_all_tokens(config, baseline):
    """No row of the last layer is without effect on them."""
    bert, *rest = model_of(
        config, 'modernbert', classifier_pooling='mean', num_hidden_layers=4,
        layer_types=('sliding_attention', 'full_attention') * 2,
    )  # fmt: skip
    assert_as_naive(bert, *rest, some_kinds(bert.config), baseline, chunk_tokens=10)


@pytest.mark.parametrize(
    ('model_type', 'baseline'),
    [('bert', 'uniform'), ('bert', 'resample'), ('mpnet', 'zero'), ('modernbert', 'mean')],
)
def test_logits_of_single_tokens(config, model_type, baseline):
    bert, params, inputs = model_of(
        config, model_type, head='token_classification', label_names=('O', 'B', 'I', 'E', 'S'),
        add_pooler=relative(config, model_type).family.pools_tokens,
    )  # fmt: skip
    real = inputs['attention_mask'].astype(bool)
    assert_as_naive(bert, params, inputs, some_kinds(config), baseline, real, chunk_tokens=10)


def test_logits_of_tokens_of_batches_of_different_lengths(config):
    """They are filled up with 0, and predictions have an axis of tokens."""
    bert, params, _ = model_of(
        config, head='token_classification', label_names=('O', 'B'), add_pooler=False
    )
    masks = bs.masks.single_layers(config)
    short, long = (
        random_inputs(config, lengths=(length, 3), length=length, seed=1) for length in (5, 9)
    )
    batches = [batch_of(short), dataclasses.replace(batch_of(long), example=np.array([2, 3]))]
    swept = bs.sweep(bs.Pretrained(bert, params, None), batches, masks)
    assert swept.logits.shape == (3, 4, 9, 2) and swept.predictions.shape == (3, 4, 9)
    assert not swept.logits[:, :2, 5:].any()
    for number, batch in enumerate(batches):
        alone = sweep(bert, params, [dataclasses.replace(batch, example=np.arange(2))], masks)
        rows = slice(2 * number, 2 * number + 2)
        np.testing.assert_allclose(swept.logits[:, rows, : alone.shape[2]], alone, atol=1e-6)


@pytest.mark.parametrize(
    ('model_type', 'baseline'), [('bert', 'mean'), ('bert', 'resample'), ('modernbert', 'uniform')]
)
def test_devices_share_the_examples(config, model_type, baseline):
    bert, params, _ = model_of(config, model_type)
    batch = batch_of(random_inputs(bert.config, lengths=(3, 9, 5, 8), length=9, seed=5))
    masks = bs.masks.single_heads(config)
    mesh = jax.make_mesh((4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))
    found, alone = (
        sweep(bert, params, [batch], masks, baseline=baseline, mesh=on) for on in (mesh, None)
    )
    np.testing.assert_allclose(found, alone, atol=1e-5)
    three = jax.tree.map(lambda array: array[:3], batch)
    with pytest.raises(ValueError, match='does not split over 4 devices'):
        sweep(bert, params, [three], masks, baseline=baseline, mesh=mesh)


def test_one_compilation_serves_all_layers_and_batches(bert, params, inputs, config):
    pieces = (layers.open_layer, layers.close_layer, layers.run_layer, layers.last_layer)
    batch, masks = batch_of(inputs), bs.masks.single_heads(config)
    for piece in pieces:
        piece.clear_cache()
    sweep(bert, params, [batch], masks)
    # The last layer is met twice: by the masks of its own heads, and at the end of all others.
    assert [piece._cache_size() for piece in pieces] == [1, 1, 1, 2]
    list(bs.sweep_batches(bs.Pretrained(bert, params, None), [batch, batch], masks))
    assert [piece._cache_size() for piece in pieces] == [1, 1, 1, 2]
    sweep(bert, params, [batch], masks, baseline='resample')
    assert [piece._cache_size() for piece in pieces] == [2, 2, 2, 4]


@pytest.mark.parametrize('baseline', ['uniform', 'mean', 'resample'])
def test_bfloat16(config, params, inputs, baseline):
    """In the precision of the model, that is about three digits."""
    bert = bs.Bert(dataclasses.replace(config, dtype='bfloat16'))
    masks = bs.masks.single_heads(config)
    found = sweep(bert, params, [batch_of(inputs)], masks, baseline=baseline)
    expected = naive(bert, params, inputs, masks, baseline)
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() < 0.05 * scale


def test_predictions_are_the_greatest_logits_or_values():
    logits = np.random.default_rng(0).normal(size=(2, 4, 3))
    swept = bs.Swept(np.ones((2, 1, 1), np.float32), logits)
    np.testing.assert_array_equal(swept.predictions, logits.argmax(axis=-1))
    swept = bs.Swept(np.ones((2, 1, 1), np.float32), np.array([[[0.5], [2.0]]] * 2))
    assert swept.predictions.tolist() == [[0.5, 2.0]] * 2


SINGLE = np.ones((1, 3, 4), np.float32)
WIDE = np.zeros((3, 4, 6))


@pytest.mark.parametrize(
    ('masks', 'settings', 'message'),
    [
        (np.ones((12, 4, 3)), {}, r'= \[any, 3, 4\], got \[12, 4, 3\]'),
        (SINGLE, {'baseline': 'median'}, "baseline='median' must be 'uniform', 'zero'"),
        (SINGLE, {'baseline': 'resample', 'replacement': WIDE}, "goes with baseline='mean', not"),
        (
            SINGLE,
            {'baseline': 'mean', 'replacement': WIDE[..., 1:]},
            r'width\] = \[3, 4, 6\].*\[3, 4, 5\]',
        ),
        (np.full((1, 3, 4), np.nan), {}, 'A mask of heads has nan: 1 keeps a head'),
        (5 * SINGLE, {}, 'A mask of heads has 5'),
        (SINGLE - 2, {}, 'A mask of heads has -1'),
        (SINGLE, {'batches': []}, 'no batches'),
        (SINGLE, {'label_names': ()}, 'no classifier'),
    ],
)
def test_what_does_not_fit_is_named(params, inputs, config, untyped, masks, settings, message):
    settings = dict(settings)
    names = settings.pop('label_names', config.label_names)
    bert = bs.Bert(dataclasses.replace(config, label_names=names))
    batches = settings.pop('batches', [batch_of(inputs)])
    with pytest.raises((ValueError, TypeError), match=message):
        sweep(bert, params, batches, masks, **settings)


def test_shapes_are_executed(bert, params, inputs, config):
    masks = bs.masks.single_heads(config)
    with pytest.raises(TypeError, match='masks'):
        sweep(bert, params, [batch_of(inputs)], masks[0])
    with pytest.raises(TypeError, match='logits'):
        bs.Swept(masks, np.zeros((3, 2, 1)))
