"""Gradients with respect to attention: beside finite differences, by type, of each text's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.masking import mask_words
from bert_secrets_jax.measure.gradients import absolute_gradients, by_type, masked_lm_loss
from tests.conftest import PAIRS, forward


@pytest.mark.parametrize('model_type', ['bert', 'modernbert'])
def test_gradients_are_slopes(masked_lm_of, model_type):
    model = masked_lm_of(model_type)
    (batch,) = mask_words(model.tokenizer, PAIRS, max_length=24, buckets=()).batches

    @jax.jit
    def losses(change):
        output = forward(model.bert, model.params, batch.inputs, map_change=change)
        return masked_lm_loss(output, batch)

    found = absolute_gradients(masked_lm_loss)(model.bert, model.params, batch)
    shape = found.shape
    rng = np.random.default_rng(0)
    length = batch.lengths.min()
    for layer in range(3):
        place = (layer, rng.integers(4), rng.integers(length), rng.integers(length))
        step = np.zeros(shape, np.float32)
        # The same place of each text: its loss changes by its own map alone.
        step[(slice(None), *place)] = 1e-2
        slopes = (losses(step) - losses(-step)) / 2e-2
        np.testing.assert_allclose(
            found[(slice(None), *place)], np.abs(slopes), rtol=3e-2, atol=3e-4
        )
    assert (np.asarray(found).max(axis=(-1, -2)) > 0).all()


def test_the_loss_of_a_masked_lm(masked_lm):
    masked = mask_words(masked_lm.tokenizer, PAIRS, max_length=24)
    (batch,) = masked.batches
    output = forward(masked_lm.bert, masked_lm.params, batch.inputs)
    logits = np.asarray(output.logits, np.float64)
    likely = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    for row, found in enumerate(masked_lm_loss(output, batch)):
        pairs = zip(batch.places[row], batch.words[row], strict=True)
        expected = [-likely[row, place, word] for place, word in pairs if word >= 0]
        assert found == pytest.approx(np.mean(expected), rel=1e-5)
        assert len(expected) == masked.hidden[batch.example[row]]


def test_means_by_type_are_those_of_loops():
    rng = np.random.default_rng(1)
    values = np.abs(rng.normal(size=(2, 3, 6, 6))).astype(np.float32)
    token = np.array([1, 1, 1, 1, 1, 0], bool)
    marks = {
        'token': token,
        'cls': np.array([1, 0, 0, 0, 0, 0], bool),
        'sep': np.array([0, 0, 1, 0, 1, 0], bool),
        'period_comma': np.zeros(6, bool),
    }
    means, weights = by_type(jnp.asarray(values), jax.tree.map(jnp.asarray, marks))
    rest = token & ~marks['cls'] & ~marks['sep']
    for index, of_type in enumerate((marks['cls'], marks['sep'], marks['period_comma'], rest)):
        pairs = [values[:, :, t, s] for t in range(5) for s in range(5) if of_type[s]]
        assert weights[index] == bool(pairs)
        if pairs:
            np.testing.assert_allclose(means[:, :, index], np.mean(pairs, axis=0), rtol=1e-6)
    assert np.isfinite(means).all()


def test_the_same_loss_is_compiled_once():
    assert absolute_gradients(bs.task_loss) is absolute_gradients(bs.task_loss)
