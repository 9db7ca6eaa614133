"""Outlier dimensions: found where planted and not in noise, disabled as by hand."""

import dataclasses
import functools
import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bert_secrets_jax as bs
from bert_secrets_jax.pruning.outliers import (
    ends_with_norm,
    find_outliers,
    least_layers,
    logits_without,
    losses_without,
    output_norm,
    random_sets,
    rank_p,
    without_dimensions,
)
from tests.conftest import forward, random_params, relative

TEXTS = ['the cat saw a big red house', 'she ran', 'a bird chased the small cat , not it .']
COMPUTE = bs.Compute(max_length=24)
AFTER_NORM = ('bert', 'roberta', 'distilbert', 'electra', 'albert', 'mpnet')
AFTER_NORM += ('deberta-v2', 'jina_bert')


@pytest.fixture(scope='module')
def model_of(config, tokenizer_of):
    """Return a function that makes a random model of a type; its LayerNorms are noise."""

    @functools.cache
    def make(model_type='bert', **changes):
        mine = dataclasses.replace(relative(config, model_type), **changes)
        bert = bs.Bert(mine)
        return noisy(bs.Pretrained(bert, random_params(bert), tokenizer_of(model_type)))

    return make


def noisy(model):
    rng = np.random.default_rng(0)
    layers = dict(model.params['layers'])
    groups = model.config.groups if model.config.num_hidden_groups else range(3)
    for norm in ('attention_norm', 'output_norm'):
        layers[norm] = {
            name: leaf + 0.3 * rng.normal(size=leaf.shape).astype(np.float32)[list(groups)]
            for name, leaf in layers[norm].items()
        }
    return dataclasses.replace(model, params=model.params | {'layers': layers})


def drawn(rng, layers, width, *, heavy=False):
    """Return a model without anything but its output LayerNorm, which is noise."""
    config = bs.BertConfig(
        vocab_size=9, hidden_size=width, num_hidden_layers=layers, num_attention_heads=1,
        intermediate_size=4, max_position_embeddings=4,
    )  # fmt: skip
    draw = (lambda: rng.standard_t(3, (layers, width))) if heavy else (
        lambda: rng.normal(size=(layers, width))
    )  # fmt: skip
    norm = {'scale': 0.8 + 0.1 * draw(), 'bias': 0.05 * draw()}
    return bs.Pretrained(bs.Bert(config), {'layers': {'output_norm': norm}}, None)


@pytest.mark.parametrize('planted', ['scale', 'bias', 'either'])
def test_planted_outliers_are_found(planted):
    """In seven of twelve layers, in the one parameter or in both by turns; no other dimension."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        model = drawn(rng, 12, 384)
        norm = model.params['layers']['output_norm']
        for dimension in (17, 203):
            for layer in rng.choice(12, 7, replace=False):
                name = rng.choice(['scale', 'bias']) if planted == 'either' else planted
                norm[name][layer, dimension] = norm[name].mean() + rng.choice([-1, 1])
        found = find_outliers(model)
        assert sorted(found.dimensions.tolist()) == [17, 203] and found.at_least == 6
        assert (found.layers[[17, 203]] >= 7).all()


@pytest.mark.parametrize('heavy', [False, True])
@pytest.mark.parametrize('layers', [1, 2, 3, 6, 12])
def test_in_noise_there_are_no_outliers(layers, heavy):
    """In one of twenty models at most, though dimensions stand out in each layer."""
    rng = np.random.default_rng(1)
    models, found, stand_out = 150, 0, []
    for _ in range(models):
        outliers = find_outliers(drawn(rng, layers, 384, heavy=heavy))
        found += len(outliers.dimensions) > 0
        stand_out.append(outliers.layers.sum() / layers)
        assert outliers.by_chance <= 0.05
    assert found <= 0.05 * models
    # One layer alone would call some of them outliers.
    assert np.mean(stand_out) > 1


def test_what_chance_is_expected_to_do():
    """As counted over all combinations of layers."""
    rng = np.random.default_rng(2)
    stands_out = rng.random((4, 40)) < np.array([0.02, 0.1, 0.2, 0.3])[:, None]
    shares = stands_out.mean(axis=1)
    expected = {}
    for count in range(5):
        chance = sum(
            math.prod(share if layer in chosen else 1 - share for layer, share in enumerate(shares))
            for size in range(count, 5)
            for chosen in itertools.combinations(range(4), size)
        )
        expected[count] = 40 * chance
    at_least, by_chance = least_layers(stands_out)
    assert by_chance == pytest.approx(expected[at_least])
    assert by_chance <= 0.05 < expected[at_least - 1] and at_least > 2


def test_where_layers_are_too_few():
    stands_out = np.zeros((2, 10), bool)
    stands_out[:, :3] = True
    assert least_layers(stands_out) == (3, 0.0)
    # Nothing stands out, so that nothing would by chance.
    assert least_layers(np.zeros((5, 10), bool)) == (3, 0.0)


def test_shared_layers_count_once(model_of):
    """Nobody knows what is consistent in one layer that is used twelve times."""
    model = model_of('albert')
    assert output_norm(model)[0].shape == (2, 24)
    alone = model_of('albert', num_hidden_groups=1)
    layers = alone.params['layers']
    scale = np.array(layers['output_norm']['scale'])
    scale[:, 3] = 9
    planted = layers | {'output_norm': layers['output_norm'] | {'scale': scale}}
    found = find_outliers(dataclasses.replace(alone, params=alone.params | {'layers': planted}))
    assert found.layers[3] == 1 and found.at_least == 2 and not found.dimensions.size


@pytest.mark.parametrize('model_type', ['esm', 'modernbert'])
def test_layers_that_do_not_end_with_layer_norm_are_refused(config, model_type):
    config = relative(config, model_type)
    model = bs.Pretrained(bs.Bert(config), {}, None)
    assert not ends_with_norm(config)
    for use in (find_outliers, output_norm, lambda model: without_dimensions(model, [0])):
        with pytest.raises(ValueError, match=f'{model_type}.* do not end with a LayerNorm'):
            use(model)


def test_disabled_as_by_hand(model_of, inputs):
    """Both parameters are set to 0, so that the dimensions of all layers are."""
    model = model_of()
    disabled = without_dimensions(model, [3, 11])
    by_hand = jax.tree.map(lambda leaf: np.array(leaf), model.params)
    for name in ('scale', 'bias'):
        by_hand['layers']['output_norm'][name][:, [3, 11]] = 0
    jax.tree.map(np.testing.assert_array_equal, disabled.params, by_hand)
    states = np.asarray(forward(disabled.bert, disabled.params, inputs).hidden_states)
    assert (states[:, 1:, :, [3, 11]] == 0).all()
    # The model itself is as it was.
    assert np.asarray(model.params['layers']['output_norm']['scale'])[:, 3].all()


@pytest.mark.parametrize('model_type', AFTER_NORM)
def test_logits_of_all_sets(model_of, model_type):
    model = model_of(model_type)
    sets = [[], [3], [3, 11], [23], [0, 1, 2]]
    found = logits_without(
        model, TEXTS, sets, compute=bs.Compute(max_length=24, tokens_per_batch=32)
    )
    assert found.shape == (5, 3, 3)
    for dimensions, logits in zip(sets, found, strict=True):
        one = without_dimensions(model, dimensions)
        for batch in bs.encode(model.tokenizer, TEXTS, max_length=24):
            expected = forward(one.bert, one.params, batch.inputs).logits
            for row, example in enumerate(batch.example):
                if example >= 0:
                    np.testing.assert_allclose(logits[example], expected[row], atol=1e-5)
    assert np.abs(found[1:] - found[0]).max(axis=(1, 2)).min() > 1e-4


@pytest.mark.parametrize(
    'model_type', ['bert', 'roberta', 'albert', 'electra', 'mpnet', 'deberta-v2']
)
def test_losses_of_all_sets(model_of, model_type):
    """As the sweep of heads computes them in a model that lost the dimensions before."""
    model = model_of(model_type, head='masked_lm', label_names=(), add_pooler=False)
    masking = bs.Masking(share=0.3, seed=1)
    sets = [[], [3, 11], [7]]
    losses, hidden = losses_without(model, TEXTS, sets, masking=masking, compute=COMPUTE)
    for dimensions, found in zip(sets, losses, strict=True):
        expected = bs.masked_lm_losses(
            without_dimensions(model, dimensions), TEXTS, np.ones((1, 3, 4)), masking=masking,
            compute=COMPUTE,
        )  # fmt: skip
        np.testing.assert_allclose(found, expected.losses[0], rtol=2e-5)
        np.testing.assert_array_equal(hidden, expected.hidden)
    assert np.abs(losses[1:] - losses[0]).max() > 1e-3


def test_sets_and_texts_at_once_change_nothing(model_of):
    """All sets in one call, one by one, hidden wordpieces one by one, and eight devices."""
    model = model_of(head='masked_lm', label_names=(), add_pooler=False)
    sets = [[], [1], [2], [3], [4]]
    masking = bs.Masking(one_at_a_time=True)
    mesh = jax.make_mesh((8,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))
    found = [
        losses_without(
            model, TEXTS, sets, masking=masking, compute=bs.Compute(max_length=24, **given)
        )
        for given in ({'chunk_tokens': 1}, {'chunk_tokens': 10**6}, {'mesh': mesh})
    ]
    for losses, hidden in found:
        np.testing.assert_allclose(losses, found[0][0], rtol=1e-5)
        np.testing.assert_array_equal(hidden, found[0][1])


PLAIN = {'label_names': ()}


@pytest.mark.parametrize(
    ('call', 'changes', 'message'),
    [
        *(
            (
                lambda model, sigma=sigma: bs.find_outliers(model, sigma=sigma),
                {},
                'sigma=.*, but not 0',
            )
            for sigma in (0, -1.0, math.inf, math.nan)
        ),
        *(
            (lambda model, wrong=wrong: without_dimensions(model, wrong), {}, 'from 0 to 23')
            for wrong in ([24], [-1], [1.0], [True], [2, 2], ['1'])
        ),
        (lambda model: losses_without(model, TEXTS, [[]]), {}, 'no head of a masked LM'),
        (lambda model: logits_without(model, TEXTS, [[]]), PLAIN, 'no classifier of whole texts'),
        (lambda model: random_sets(5, [], draws=3), {}, 'there is no set of'),
        (lambda model: random_sets(5, [0, 1, 2], draws=3), {}, 'there is no set of'),
    ],
)
def test_what_does_not_fit_is_named(model_of, untyped, call, changes, message):
    with pytest.raises(ValueError, match=message):
        call(model_of(**changes))


@given(st.integers(2, 30), st.integers(1, 4), st.integers(1, 60), st.integers(0, 99))
def test_random_sets(width, count, draws, seed):
    """Different sets of other dimensions, each as large; all of them where there are few."""
    dimensions = list(range(0, 2 * count, 2))[:count]
    if width - count < count or max(dimensions) >= width:
        return
    sets = random_sets(width, dimensions, draws=draws, seed=seed)
    assert sets.shape == (min(draws, math.comb(width - count, count)), count)
    assert len({tuple(each) for each in sets.tolist()}) == len(sets)
    assert not set(sets.ravel().tolist()) & set(dimensions)
    assert (np.diff(sets, axis=1) > 0).all() and sets.min() >= 0 and sets.max() < width
    np.testing.assert_array_equal(sets, random_sets(width, dimensions, draws=draws, seed=seed))


def test_each_dimension_is_drawn_as_often_as_any_other():
    sets = np.concatenate([random_sets(10, [0, 1], draws=5, seed=seed) for seed in range(800)])
    counts = np.bincount(sets.ravel(), minlength=10)
    assert (counts[:2] == 0).all()
    # A thousand of each, with a standard deviation below 30.
    assert np.abs(counts[2:] - 1000).max() < 120


def test_the_rank_among_random_sets():
    random = np.array([0.1, 0.2, 0.3, np.nan])
    assert rank_p(0.4, random[:3]) == 0.25 and rank_p(0.2, random[:3]) == 0.75
    # One whose effect is not known might have done as much.
    assert rank_p(0.4, random) == 0.4 and math.isnan(rank_p(math.nan, random))


def test_a_cut_model_is_refused_by_name(model_of):
    whole = model_of(label_names=('no', 'yes'))
    cut = bs.remove_heads(whole, np.eye(3, 4))
    for use in (
        find_outliers, lambda model: without_dimensions(model, [0]),
        lambda model: logits_without(model, TEXTS, [[0]]),
        lambda model: losses_without(model, TEXTS, [[0]]),
        lambda model: bs.analyses.outliers(model, TEXTS),
        lambda model: bs.analyses.outliers(whole, TEXTS, tuned=model),
    ):  # fmt: skip
        with pytest.raises(ValueError, match='Heads were removed from this model'):
            use(cut)
