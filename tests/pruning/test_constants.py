"""Optimal constants: beside scipy's minimum of a BERT in NumPy, and what must change nothing."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import encode
from bert_secrets_jax.finetune.losses import loss_per_example
from bert_secrets_jax.measure.gradients import with_labels
from bert_secrets_jax.pruning.constants import optimal_constants
from tests.conftest import random_params
from tests.model import numpy_bert

PAIRS = [
    ('the cat saw a dog , and it ran .', 'she liked the small bird .'),
    ('he ran', 'the old teacher never slept'),
    ('a red house .', 'the bird saw it , and he ran , too .'),
    ('she never liked it', 'the dog chased the cat .'),
    ('the old tree', 'he saw it .'),
]
LABELS = np.array([1, 0, 2, 0, 1])
VALUES = np.array([0.3, -1.0, 0.5, 2.0, -0.2])


def task_loss(output, batch):
    return loss_per_example(output.logits, batch.labels)


def pretrained_of(config, tokenizer, **changes):
    bert = bs.Bert(dataclasses.replace(config, **changes))
    return bs.Pretrained(bert, random_params(bert), tokenizer)


@pytest.fixture(scope='module')
def model(config, tokenizer):
    return pretrained_of(config, tokenizer, num_hidden_layers=2, num_attention_heads=2)


@pytest.fixture(scope='module')
def regression(config, tokenizer):
    return pretrained_of(
        config, tokenizer, num_hidden_layers=2, num_attention_heads=2, label_names=('score',)
    )


def batches_of(model, labels=LABELS, **options):
    settings = {'max_length': 24, 'buckets': ()} | options
    return [
        with_labels(batch, labels)
        for batch in encode(model.tokenizer, PAIRS[: len(labels)], **settings)
    ]


def loss_in_numpy(model, batch, labels, heads):
    """The mean squared error with constants in the place of heads, in float64 without JAX."""

    def mean_loss(constants):
        constants = constants.reshape(len(heads), -1)
        total = 0.0
        for row, example in enumerate(np.asarray(batch.example)):
            length = int(batch.attention_mask[row].sum())
            inputs = {name: array[row, :length] for name, array in batch.inputs.items()}
            outputs = {
                head: np.tile(constant, (length, 1))
                for head, constant in zip(heads, constants, strict=True)
            }
            logits = numpy_bert.forward(model.config, model.params, **inputs, outputs=outputs)[2]
            total += (logits[0] - labels[example]) ** 2
        return total / len(labels)

    return mean_loss


@pytest.mark.parametrize('heads', [[(1, 1)], [(0, 1)], [(0, 0), (1, 1)]])
def test_no_constant_is_better(regression, heads):
    """Nor is any that scipy finds from there."""
    few = VALUES[:3]
    (batch,) = batches_of(regression, few)
    masks = bs.masks.disable(regression.config, [heads])
    found = optimal_constants(
        regression, [batch], task_loss, masks=masks, passes=150, learning_rate=0.2
    )
    mean_loss = loss_in_numpy(regression, batch, few, heads)
    places = tuple(np.transpose(heads))
    means = bs.mean_contexts(regression, [batch])[places]
    mine = found.outputs[0][places]
    np.testing.assert_allclose(mean_loss(means), found.start[0], rtol=1e-4)
    np.testing.assert_allclose(mean_loss(mine), found.end[0], rtol=1e-3, atol=1e-6)
    best = scipy.optimize.minimize(mean_loss, mine.ravel().astype(np.float64), method='BFGS')
    gain = found.start[0] - best.fun
    # The mean must be worse, or there was nothing to find.
    assert gain > 0.02 * found.start[0]
    assert found.end[0] - best.fun < 0.02 * gain
    assert found.slope_left[0] < 0.05
