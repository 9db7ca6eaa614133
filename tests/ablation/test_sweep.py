"""The sweep equals the naive loop of one forward pass per mask."""

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs


def batch_of(inputs) -> bs.Batch:
    count = len(inputs['input_ids'])
    return bs.Batch(**inputs, marks={}, example=np.arange(count, dtype=np.int32))


@pytest.fixture(scope='module')
def naive(bert, params):
    """One forward pass of the model per mask: [K, B, C]."""

    @jax.jit(static_argnames='baseline')
    def forward(inputs, mask, baseline):
        output = bert.apply({'params': params}, **inputs, head_mask=mask, baseline=baseline)
        return output.logits

    return lambda inputs, masks, baseline: np.stack(
        [forward(inputs, mask, baseline) for mask in masks]
    )


def mask_sets(config):
    rng = np.random.default_rng(0)
    shape = (9, config.num_hidden_layers, config.num_attention_heads)
    single = bs.masks.single_heads(config)
    return {
        'single heads': single,
        'single layers': bs.masks.single_layers(config),
        'one head left': bs.masks.one_head_left(config),
        'pairs': bs.masks.pairs(config),
        'random sets': bs.masks.random_sets(config, size=5, count=8, seed=1),
        'fractions': rng.uniform(0, 1, shape).astype(np.float32),
        'any': (rng.uniform(0, 1, shape) < 0.7).astype(np.float32),
        'all heads, none, one twice': np.concatenate(
            [np.zeros((1, *shape[1:])), bs.masks.none(config), single[[3, 3]]]
        ),
    }


SETS = (
    'single heads', 'single layers', 'one head left', 'pairs', 'random sets', 'fractions', 'any',
    'all heads, none, one twice',
)  # fmt: skip


@pytest.mark.parametrize('baseline', ['uniform', 'zero'])
@pytest.mark.parametrize('name', SETS)
def test_equals_the_naive_loop(bert, params, inputs, config, naive, name, baseline):
    masks = mask_sets(config)[name]
    expected = naive(inputs, masks, baseline)
    # Masks must matter, or the comparison proves nothing.
    assert np.ptp(expected, axis=0).max() > 1e-2
    for chunk_tokens in (1, 20, 10_000):
        found = bs.sweep(
            bert, params, [batch_of(inputs)], masks, baseline=baseline, chunk_tokens=chunk_tokens
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)
