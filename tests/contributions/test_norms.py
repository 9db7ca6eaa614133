"""Norms and mixing ratios beside NumPy in float64 with the vectors of all pairs written out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.contributions import norms
from bert_secrets_jax.contributions.norms import Attended, each_layer
from bert_secrets_jax.measure import stream
from tests.conftest import PAIRS, forward, relative
from tests.contributions.reference import Reference, batch_of, random_model

# One of each kind of attention: LayerNorm after and before, no biases, shared layers, rotations,
# biases of distances.
KINDS = ('bert', 'modernbert', 'albert', 'esm', 'mpnet', 'deberta-v2', 'eurobert', 'roformer')


def expected_of(model, output, example, length):
    """Yield the measurements of one example, layer by layer, from the vectors of all pairs."""
    reference, before = Reference(model, output, example, length), model.config.family.norm_first
    for layer in range(model.config.num_hidden_layers):
        maps, vectors = reference.maps[layer], reference.vectors(layer)
        summed = vectors.sum(axis=0)
        with_own = summed + np.eye(length)[:, :, None] * reference.states[layer][None]
        normed = with_own
        if not before:
            scale = reference.layer(layer)['attention_norm']['scale']
            normed = (with_own - with_own.mean(axis=-1, keepdims=True)) * scale
        weights = 1 - np.diagonal(maps, axis1=1, axis2=2).mean(axis=0)
        ratios = [weights, ratio(summed), weights / 2, ratio(with_own), ratio(normed)]
        yield {
            'norms': np.linalg.norm(vectors, axis=-1),
            'outputs': np.linalg.norm(vectors.sum(axis=2), axis=-1),
            'pairs': np.linalg.norm(summed, axis=-1),
            'pairs with residual': np.linalg.norm(with_own, axis=-1),
            'pairs with all': np.linalg.norm(normed, axis=-1),
            'ratios': np.stack(ratios),
        }


def ratio(vectors):
    own = np.diagonal(vectors, axis1=0, axis2=1).T
    context = np.linalg.norm(vectors.sum(axis=1) - own, axis=-1)
    return context / (context + np.linalg.norm(own, axis=-1))


@pytest.mark.parametrize(
    ('model_type', 'scale'),
    [*((kind, 0.2) for kind in KINDS), ('bert', 0.02), ('modernbert', 0.02)],
)
def test_all_are_those_of_vectors_written_out(config, tokenizer, model_type, scale):
    model = random_model(relative(config, model_type), tokenizer, scale)
    bert, batch = model.bert, batch_of(model)

    def pairs(of_params, attended):
        norm = norms.norm_map(of_params['attention_norm'])
        linear = None if bert.config.family.norm_first else norm
        return {
            'pairs': norms.pair_norms(attended),
            'pairs with residual': norms.pair_norms(attended, residual=True),
            'pairs with all': norms.pair_norms(attended, linear, residual=True),
        }

    @jax.jit
    def measured(params):
        output = forward(bert, params, batch.inputs)
        found = each_layer(pairs, bert, params, output)
        found |= {
            'norms': norms.norms_of_heads(bert, params, batch),
            'outputs': norms.output_norms(bert, params, batch)[..., 0],
            'ratios': norms.mixing_ratios(bert, params, batch)[..., 0],
        }
        return output, found, norms.shares_of_norms(bert, params, batch)

    output, found, shares = measured(model.params)
    for row, length in enumerate(np.asarray(batch.lengths)[: len(PAIRS)]):
        for layer, expected in enumerate(expected_of(model, output, row, length)):
            for name, each in expected.items():
                # Axes of tokens come last.
                real = tuple(slice(size) for size in each.shape)
                np.testing.assert_allclose(
                    found[name][row, layer][real], each, atol=3e-4 * each.max(), err_msg=name
                )
            mine = np.asarray(shares[row, layer, :, :length])
            each = expected['norms']
            np.testing.assert_allclose(
                mine[..., :length], each / each.sum(axis=-1, keepdims=True), atol=1e-5
            )
            np.testing.assert_allclose(mine.sum(axis=-1), 1, rtol=1e-5)
            assert not mine[..., length:].any() and mine.std() > 1e-3
    assert np.std(found['ratios'][0, :, :, :4], axis=(1, 2)).min() > 1e-3


@pytest.mark.parametrize('maps_of', [norms.norms_of_heads, norms.mixing_ratios, norms.output_norms])
def test_norms_of_disabled_heads_are_refused(config, tokenizer, maps_of):
    model = random_model(config, tokenizer)
    mask = jnp.ones((config.num_hidden_layers, config.num_attention_heads))
    with pytest.raises(ValueError, match='leave head_mask out'):
        maps_of(model.bert, model.params, batch_of(model), head_mask=mask, baseline='zero')
    with pytest.raises(ValueError, match='leave head_mask out'):
        statistic = {'entropy': bs.statistics.entropy}
        given = {'head_mask': mask, 'maps_of': bs.shares_of_norms}
        bs.collect(model, [batch_of(model)], statistic, **given)


def test_removed_heads_are_refused(config, params, untyped):
    pruned = bs.Bert(dataclasses.replace(config, pruned_heads=((1,), (), ())))
    with pytest.raises(ValueError, match='Heads were removed'):
        each_layer(lambda *parts: parts, pruned, params, None)


def test_heads_that_cancel_leave_nothing_and_no_nan():
    rng = np.random.default_rng(0)
    maps = np.repeat(rng.dirichlet(np.ones(6), (1, 1, 6)), 2, axis=1).astype(np.float32)
    moved = rng.normal(0, 1, (1, 6, 1, 8)).astype(np.float32)
    moved = np.concatenate([moved, -moved], axis=2)
    given = jnp.einsum('BNTS,BSND->BTND', maps, moved)
    both = Attended(
        entered=jnp.zeros((1, 6, 8)), maps=jnp.asarray(maps), moved=jnp.asarray(moved), given=given,
        residual=given.sum(axis=2),
    )  # fmt: skip
    found = norms.pair_norms(both)
    assert np.isfinite(found).all() and np.max(found / norms.head_norms(both)[:, 0]) < 3e-3


def test_a_head_that_moves_nothing_has_no_shares(config, tokenizer):
    model = random_model(config, tokenizer)
    layers = model.params['layers']
    value = jax.tree.map(lambda leaf: leaf.at[1, ..., 2, :].set(0), layers['attention']['value'])
    params = model.params | {
        'layers': layers | {'attention': layers['attention'] | {'value': value}}
    }
    shares = norms.shares_of_norms(model.bert, params, batch_of(model))
    assert not shares[:, 1, 2].any()
    np.testing.assert_allclose(np.asarray(shares).sum(axis=-1)[:3, 1, 1], 1, rtol=1e-5)


def test_statistics_of_norms_are_compiled_once(config, tokenizer):
    model = random_model(config, tokenizer)
    batch, statistics = batch_of(model), {'[SEP]': bs.statistics.to_sep}

    def run(maps_of):
        return stream.stream((model,), [batch], statistics, maps_of=maps_of)['[SEP]'].mean

    weights, first = run(stream.learned_maps), run(norms.shares_of_norms)
    before = stream._measured._cache_size()
    np.testing.assert_array_equal(first, run(norms.shares_of_norms))
    assert stream._measured._cache_size() == before
    shares = norms.shares_of_norms(model.bert, model.params, batch)
    expected, _ = jax.vmap(bs.statistics.to_sep)(shares, batch.marks)
    np.testing.assert_allclose(first, expected[batch.example >= 0].mean(axis=0), rtol=1e-5)
    assert np.abs(first - weights).max() > 0.01
