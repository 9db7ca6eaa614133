"""Subnetworks: heads that are gone stay gone in training, and what good and bad ones are."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.pruning.removal import subnetwork_masks, without_heads
from tests.conftest import forward, random_params, rarely, relative
from tests.model.test_weights import assert_equal

MASK = np.ones((3, 4), np.float32)
MASK[0, 1] = MASK[2, 3] = MASK[2, 0] = 0
PAIRS = [('the cat saw a dog .', 'she ran'), ('he ran', 'the old teacher never slept')]


def model_of(config, tokenizer, family):
    mine = dataclasses.replace(relative(config, family), label_names=('no', 'yes'))
    bert = bs.Bert(mine)
    return bs.Pretrained(bert, random_params(bert), tokenizer)


@pytest.mark.parametrize('family', ['bert', 'modernbert', 'mpnet', 'esm', 'deberta-v2', 'roformer'])
def test_they_put_out_nothing(config, tokenizer, family):
    model = model_of(config, tokenizer, family)
    (batch,) = bs.encode(tokenizer, PAIRS, max_length=24, buckets=())
    masked = forward(model.bert, model.params, batch.inputs, head_mask=MASK, baseline='zero')
    gone = without_heads(model, MASK)
    output = forward(model.bert, gone.params, batch.inputs)
    np.testing.assert_allclose(output.logits, masked.logits, atol=2e-6)
    assert not np.asarray(output.contexts)[:, 2, :, 3].any()
    assert jax.tree.map(np.shape, gone.params) == jax.tree.map(np.shape, model.params)


@pytest.mark.parametrize('optimizer', rarely(['adamw', 'bert_adam'], often=['adamw']))
def test_they_never_learn(config, tokenizer, optimizer):
    model = model_of(config, tokenizer, 'bert')
    examples = [
        bs.Example(*pair, place % 2, f'own/{place}') for place, pair in enumerate(PAIRS * 8)
    ]
    tuned = bs.finetune(
        without_heads(model, MASK), examples, examples, epochs=2, batch_size=8, max_length=24,
        learning_rate=1e-2, optimizer=optimizer,
    ).models[0]  # fmt: skip
    # To leave them out again changes nothing.
    assert_equal(without_heads(tuned, MASK).params, tuned.params)
    attention = tuned.params['layers']['attention']
    others = np.asarray(attention['output']['kernel'])[MASK == 1]
    before = np.asarray(model.params['layers']['attention']['output']['kernel'])[MASK == 1]
    assert (np.abs(others - before).max(axis=(1, 2)) > 1e-3).all()


@pytest.mark.parametrize(
    ('family', 'mask', 'message'),
    [
        ('albert', MASK, 'uses the same layer several times'),
        ('eurobert', MASK, 'one cannot be missing alone'),
        ('bert', np.ones((2, 4)), r'\[layers, heads\] = \[3, 4\], got \[2, 4\]'),
        ('bert', np.full((3, 4), 0.5), '1 for heads that stay and 0 .* such as 0.5'),
    ],
)
def test_what_is_refused(config, tokenizer, family, mask, message):
    model = model_of(config, tokenizer, family)
    with pytest.raises(ValueError, match=message):
        without_heads(model, mask)
    # Shared layers can lose the same heads, and heads that share values can go together.
    without_heads(model, np.tile([1, 1, 0, 0], (3, 1)))


@pytest.mark.parametrize('size', [3, 6, 9])
def test_good_random_and_bad_are_of_one_size(size):
    rng = np.random.default_rng(size)
    good = np.zeros(12)
    good[rng.permutation(12)[:size]] = 1
    masks = subnetwork_masks(good.reshape(3, 4), seed=1)
    assert [int(mask.sum()) for mask in masks.values()] == [size] * 3
    np.testing.assert_array_equal(masks['good'].ravel(), good)
    shared = int((masks['bad'].ravel() * good).sum())
    assert shared == max(0, 2 * size - 12)
    again = subnetwork_masks(good.reshape(3, 4), seed=1)
    assert all((again[kind] == masks[kind]).all() for kind in masks)
    draws = [subnetwork_masks(good.reshape(3, 4), seed=seed)['random'] for seed in range(400)]
    np.testing.assert_allclose(np.mean(draws, axis=0), size / 12, atol=0.1)
