"""Heads of two models are matched by their maps."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.stats.agreement import pairs_of
from tests.analyses.conftest import with_attention
from tests.conftest import random_params


def test_permuted_heads_are_matched_exactly(model, texts, settings):
    order = np.random.default_rng(0).permutation(4)

    def permute(attention):
        for name in ('query', 'key', 'value'):
            attention[name] = {
                part: leaf[:, :, order] if leaf.ndim == 4 else leaf[:, order]
                for part, leaf in attention[name].items()
            }
        attention['output'] = attention['output'] | {
            'kernel': attention['output']['kernel'][:, order]
        }

    found = bs.analyses.matching(model, with_attention(model, permute), texts, settings=settings)
    np.testing.assert_array_equal(found.first[:, 0], found.second[:, 0])
    np.testing.assert_array_equal(order[found.second[:, 1]], found.first[:, 1])
    assert found.matched.max() < 1e-5 < found.same_place


def test_models_of_other_shapes_and_unrelated_ones(model, byte_tokenizer, texts, settings):
    shallow = bs.Bert(dataclasses.replace(model.config, num_hidden_layers=2))
    other = dataclasses.replace(model, bert=shallow, params=random_params(shallow, seed=9))
    found = bs.analyses.matching(model, other, texts, settings=settings)
    pairs = found.frames()['pairs']
    assert len(pairs) == 8 and len(set(zip(pairs.layer_a, pairs.head_a, strict=True))) == 8
    assert len(found.findings()) == 1
    # The other way round, the same pairs.
    back = bs.analyses.matching(other, model, texts, settings=settings)
    np.testing.assert_allclose(back.matched.sum(), found.matched.sum(), rtol=1e-5)
    again = dataclasses.replace(model, params=random_params(model.bert, seed=9))
    unrelated = bs.analyses.matching(model, again, texts, settings=settings)
    assert unrelated.findings()[1].p > 0.01
    with pytest.raises(ValueError, match='other wordpieces'):
        bytewise = dataclasses.replace(other, tokenizer=byte_tokenizer)
        bs.analyses.matching(model, bytewise, texts, settings=settings)


def test_what_matches_by_luck_does_not_on_held_out_texts():
    rng = np.random.default_rng(0)
    held_out, same = [], []
    for seed in range(20):
        one, other = rng.uniform(size=(2, 2, 4, 2, 4))
        for values, choosing in ((held_out, one), (same, other)):
            first, second, by_chance = pairs_of(choosing, other, seed)
            values.append((by_chance <= other[*first.T, *second.T].mean()).mean())
    assert max(same) < 0.01 and 0.25 < np.mean(held_out) < 0.75
