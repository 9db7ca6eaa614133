"""Optimal constants: known minima, a BERT in NumPy, and what must change nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import encode, with_labels
from bert_secrets_jax.pruning.constants import SETTLED, optimal_constants
from bert_secrets_jax.pruning.shapley import negative_loss
from tests.model import numpy_bert
from tests.pruning.conftest import LABELS, PAIRS


def distance(output, batch):
    """From logits that are the labels."""
    return ((output.logits - batch.labels) ** 2).sum(axis=-1)


def distance_of_outputs(output, batch):
    """From outputs of the heads of the last layer at [CLS] that are the labels."""
    return ((output.contexts[:, -1, 0] - batch.labels) ** 2).sum(axis=(-2, -1))


def batches_of(model, labels=LABELS, **options):
    encoded = encode(model.tokenizer, PAIRS, **({'max_length': 24, 'buckets': ()} | options))
    return [with_labels(batch, labels) for batch in encoded]


def logits_in_numpy(model, outputs):
    """The logits of each pair with `outputs[layer, head]` [H] at every token, in float64."""
    found = np.zeros((len(PAIRS), 3))
    for batch in batches_of(model):
        for row, example in enumerate(batch.example):
            length = int(batch.attention_mask[row].sum())
            replaced = {head: np.tile(constant, (length, 1)) for head, constant in outputs.items()}
            found[example] = numpy_bert.forward(
                model.config,
                model.params,
                *(array[row, :length] for array in batch.inputs.values()),
                outputs=replaced,
            )[2]
    return found


def test_the_minimum_of_squares_is_the_mean(model):
    """The mean is over all examples, though each step sees one batch, and these differ in size."""
    targets = np.random.default_rng(0).normal(size=(5, 2, 12)).astype(np.float32)
    batches = batches_of(model, targets, tokens_per_batch=60)
    assert [batch.size for batch in batches] == [2, 2, 1]
    masks = bs.masks.single_heads(model.config)[2:]
    found = optimal_constants(model, batches, distance_of_outputs, masks=masks, passes=150)
    np.testing.assert_allclose(found.outputs[0, 1, 0], targets[:, 0].mean(axis=0), atol=0.03)
    np.testing.assert_allclose(found.outputs[1, 1, 1], targets[:, 1].mean(axis=0), atol=0.03)
    np.testing.assert_allclose(found.of_heads()[1], targets.mean(axis=0), atol=0.03)
    spread = targets.var(axis=0).sum(axis=-1)
    # The other head of the layer is intact, and adds the same all along.
    gain = found.start - found.end
    means = bs.mean_contexts(model, batches)[1]
    np.testing.assert_allclose(gain, ((means - targets.mean(axis=0)) ** 2).sum(axis=-1), rtol=1e-2)
    assert (found.end > spread).all() and (found.slope_left < 0.05).all()


@pytest.mark.parametrize('heads', [[(0, 1)], [(0, 0), (1, 1)]])
def test_constants_that_make_the_labels_are_found(model, heads):
    """The labels are the logits with constants of our own: nothing is better than a loss of 0."""
    batches = batches_of(model)
    means = bs.mean_contexts(model, batches)
    rng = np.random.default_rng(1)
    planted = {head: means[head] + rng.normal(scale=0.7, size=12) for head in heads}
    labels = logits_in_numpy(model, planted).astype(np.float32)
    masks = bs.masks.disable(model.config, [heads])
    found = optimal_constants(model, batches_of(model, labels), distance, masks=masks, passes=300)

    def loss(outputs):
        return ((logits_in_numpy(model, outputs) - labels) ** 2).sum(axis=1).mean()

    start = loss({head: means[head] for head in heads})
    end = loss({head: found.outputs[0][head] for head in heads})
    np.testing.assert_allclose(found.start, start, rtol=1e-3)
    np.testing.assert_allclose(found.end, end, rtol=1e-2, atol=1e-5)
    assert start > 1e-2 and end < 0.01 * start
    assert found.slope_left[0] < 0.1
    assert found.curve.shape == (300, 1) and found.curve[-1] < found.curve[0]
    np.testing.assert_allclose(found.curve[0], found.start, rtol=1e-5)
    # Heads that are kept have their mean output.
    kept = masks[0] == 1
    np.testing.assert_array_equal(found.outputs[0][kept], means[kept])


@pytest.fixture(scope='module')
def found(model):
    return optimal_constants(model, batches_of(model), bs.task_loss, passes=20)


def test_one_array_serves_the_masks_of_single_heads(model, found):
    """The sweep has the losses that were found, mask by mask and all at once."""
    batches = batches_of(model)
    masks = bs.masks.single_heads(model.config)
    np.testing.assert_array_equal(found.masks, masks)
    swept = bs.sweep(model, batches, masks, baseline='mean', replacement=found.of_heads())
    np.testing.assert_allclose(
        -negative_loss(swept.logits, LABELS).mean(axis=1), found.end, atol=2e-5
    )
    for number, mask in enumerate(masks):
        alone = bs.sweep(
            model, batches, mask[None], baseline='mean', replacement=found.outputs[number]
        )
        np.testing.assert_allclose(alone.logits[0], swept.logits[number], atol=2e-5)
    means = bs.sweep(model, batches, masks, baseline='mean')
    np.testing.assert_allclose(
        -negative_loss(means.logits, LABELS).mean(axis=1), found.start, atol=2e-5
    )
    assert (found.start - found.end > 1e-2).all()


@pytest.mark.parametrize('learning_rate', [0.1, 1e4])
def test_never_worse_than_the_mean(model, learning_rate):
    """Not even if the steps are absurd: then the means are kept, and it is told."""
    found = optimal_constants(
        model, batches_of(model), bs.task_loss, passes=2, learning_rate=learning_rate
    )
    assert (found.end <= found.start).all()
    kept = found.end == found.start
    means = bs.mean_contexts(model, batches_of(model))
    assert kept.any() == (learning_rate > 1)
    np.testing.assert_array_equal(found.outputs[kept], np.tile(means, (kept.sum(), 1, 1, 1)))
    np.testing.assert_array_equal(found.slope_left[kept], 1)


def test_never_worse_than_nothing(model):
    """Labels are the logits without heads: a constant of 0 is found, however short the training."""
    batches = batches_of(model)
    masks = bs.masks.single_heads(model.config)
    zero = bs.sweep(model, batches, masks[1:2], baseline='zero').logits[0]
    found = optimal_constants(
        model, batches_of(model, zero), distance, masks=masks[1:2], passes=1, learning_rate=1e-6
    )
    np.testing.assert_allclose(found.end, 0, atol=1e-9)
    np.testing.assert_array_equal(found.outputs[0, 0, 1], 0)


def test_training_goes_on_until_little_of_the_gradient_is_left(model):
    """Only masks that need it are trained again, and as often as they may."""
    batches = batches_of(model)
    short, long = (
        optimal_constants(model, batches, bs.task_loss, passes=4, restarts=restarts)
        for restarts in (0, 6)
    )
    assert (short.slope_left > SETTLED).any() and len(short.curve) == 4
    assert 4 < len(long.curve) <= 28
    needy = short.slope_left > SETTLED
    assert (long.end[needy] < short.end[needy]).all()
    np.testing.assert_allclose(long.outputs[~needy], short.outputs[~needy], atol=1e-5)
    assert ((long.slope_left <= SETTLED) | (len(long.curve) == 28)).all()


def test_heads_have_nothing_to_do_with_one_another(model, found):
    given = model, batches_of(model), bs.task_loss
    alone = optimal_constants(*given, masks=found.masks[2:3], passes=20)
    np.testing.assert_allclose(alone.outputs[0], found.outputs[2], atol=2e-3)
    np.testing.assert_allclose(alone.end, found.end[2], atol=1e-4)
    by_one = optimal_constants(*given, passes=20, chunk_tokens=1)
    np.testing.assert_allclose(by_one.outputs, found.outputs, atol=2e-3)
    moved = np.abs(found.outputs - bs.mean_contexts(model, batches_of(model))[None])
    assert moved.max() > 0.1


@pytest.mark.slow
def test_padding_and_devices_are_no_matter(model, found):
    mesh = jax.make_mesh((4,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))
    for options, on in (({'max_length': 31}, None), ({'batch_multiple': 8}, mesh)):
        other = optimal_constants(
            model, batches_of(model, **options), bs.task_loss, passes=20, mesh=on
        )
        np.testing.assert_allclose(other.outputs, found.outputs, atol=2e-3)
        np.testing.assert_allclose(other.curve, found.curve, atol=1e-4)
        np.testing.assert_allclose(other.slope_left, found.slope_left, atol=1e-2)


def test_errors_say_what_is_wrong(model, untyped):
    batches = batches_of(model)
    twice = bs.masks.disable(model.config, [[(0, 1)], [(0, 1), (1, 0)]])
    found = optimal_constants(model, batches, bs.task_loss, masks=twice, passes=1)
    with pytest.raises(ValueError, match=r'1 heads, such as L1-H2, have a constant'):
        found.of_heads()
    shape = r'\[M, 2, 2\] with at least one mask, got \[1, 3, 4\]'
    for given, options, message in (
        (batches, {'passes': 0}, 'must be above 0'),
        (batches, {'learning_rate': np.inf}, 'must be above 0'),
        (batches, {'masks': np.ones((1, 3, 4))}, shape),
        ([], {}, 'There are no examples'),
    ):
        with pytest.raises(ValueError, match=message):
            optimal_constants(model, given, bs.task_loss, **options)
    broken = lambda output, batch: jnp.log(batch.labels - 1.0)
    with pytest.raises(FloatingPointError, match='loss is NaN or infinite'):
        optimal_constants(model, batches, broken, passes=1)
