"""A sweep in two precisions decides as float32 does, and repeats only what is close."""

import dataclasses

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import precisions
from tests.conftest import WORDS

COUNT = 120


@pytest.fixture(scope='module')
def examples():
    rng = np.random.default_rng(0)
    words = [word for word in WORDS if not word.startswith('##')]
    return [' '.join(rng.choice(words, 5)) for _ in range(COUNT)]


@pytest.fixture(scope='module')
def pretrained(bert, params, tokenizer):
    # Maps of random weights are uniform: sharper ones are rounded more, and masks matter.
    sharper = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf * 4 if 'query' in str(path) else leaf, params
    )
    return bs.Pretrained(bert, sharper, tokenizer)


@pytest.fixture(scope='module')
def balanced(pretrained, examples):
    """A model whose decisions are close: without a head, half of the examples are of a class."""
    logits = swept(pretrained, examples).logits
    margin = np.median(logits[..., 1] - logits[..., 0])
    classifier = dict(pretrained.params['classifier'])
    classifier['bias'] = classifier['bias'] + np.array([margin, 0, -100], np.float32)
    return with_classifier(pretrained, classifier)


def with_classifier(pretrained, classifier):
    params = pretrained.params | {'classifier': classifier}
    return dataclasses.replace(pretrained, params=params)


def swept(pretrained, examples):
    return bs.sweep_examples(pretrained, examples, bs.masks.single_heads(pretrained.config))


def twice(pretrained, examples, **settings):
    masks = bs.masks.single_heads(pretrained.config)
    return bs.sweep_in_two_precisions(pretrained, examples, masks, sample=20, **settings)


def test_predictions_are_those_of_float32(balanced, examples):
    expected = swept(balanced, examples)
    rounded = bs.Bert(dataclasses.replace(balanced.config, dtype='bfloat16'))
    rough = swept(dataclasses.replace(balanced, bert=rounded), examples)
    # Else the test could not fail.
    assert (rough.predictions != expected.predictions).any()
    found = twice(balanced, examples)
    np.testing.assert_array_equal(found.predictions, expected.predictions)
    np.testing.assert_allclose(
        found.logits[:, found.exact], expected.logits[:, found.exact], atol=1e-5
    )
    np.testing.assert_array_equal(found.logits[:, ~found.exact], rough.logits[:, ~found.exact])
    assert 20 < found.exact.sum() < COUNT
    errors = np.ptp(expected.logits - rough.logits, axis=-1)[:, found.exact]
    assert found.error == pytest.approx(errors.max(), rel=1e-3)
    assert found.bound == 2 * found.error


def test_what_is_far_from_a_decision_is_not_repeated(pretrained, examples):
    classifier = dict(pretrained.params['classifier'])
    classifier['bias'] = np.array([50, 0, -50], np.float32)
    assert twice(with_classifier(pretrained, classifier), examples).exact.sum() == 20


def test_the_order_of_a_regression_is_that_of_float32(pretrained, examples):
    bert = bs.Bert(dataclasses.replace(pretrained.config, label_names=('score',)))
    classifier = {name: leaf[..., :1] for name, leaf in pretrained.params['classifier'].items()}
    regression = with_classifier(dataclasses.replace(pretrained, bert=bert), classifier)
    found, expected = twice(regression, examples), swept(regression, examples)
    np.testing.assert_array_equal(
        found.logits[..., 0].argsort(axis=1), expected.logits[..., 0].argsort(axis=1)
    )


def test_an_error_that_is_found_later_repeats_more(monkeypatch, pretrained):
    """Rounding of 0.01 in the sample, and of 0.3 in an example that is close."""
    exact = np.array([[[0.0, 5], [0, 0.31], [0, 0.5], [0, 0.65], [0, 4]]])
    error = np.array([0.01, 0.3, 0.01, 0.01, 0.01])
    calls = []

    def sweep(model, texts, masks, **_):
        which = [int(text) for text in texts]
        calls.append(which)
        rough = model.config.dtype == 'bfloat16'
        logits = exact[:, which] + rough * np.stack([error[which], 0 * error[which]], axis=-1)
        return bs.Swept(masks=masks, logits=logits.astype(np.float32))

    monkeypatch.setattr(precisions, 'sweep_examples', sweep)
    # The first that is drawn.
    seed = next(s for s in range(99) if np.random.default_rng(s).permutation(5)[0] == 0)
    found = bs.sweep_in_two_precisions(
        pretrained, list('01234'), bs.masks.none(pretrained.config), sample=1, seed=seed
    )
    assert calls == [[0, 1, 2, 3, 4], [0], [1], [2]]
    assert found.exact.tolist() == [True, True, True, False, False]
    assert found.error == pytest.approx(0.3)


@pytest.mark.parametrize(
    ('change', 'settings', 'told'),
    [
        ({}, {'sample': 0}, 'sample=0 must be a whole number from 1'),
        ({}, {'safety': 0.5}, 'safety=0.5 must be at least 1'),
        ({}, {'baseline': 'resample'}, 'in one precision'),
        ({}, {'baseline': 'mean'}, 'bs.mean_contexts'),
        # One example shows no error of an order.
        ({'label_names': ('score',)}, {'sample': 1}, 'sample=1 must be at least 2'),
        ({'dtype': 'bfloat16'}, {}, 'dtype="float32"'),
        ({'head': 'token_classification'}, {}, 'decides more than once'),
    ],
)
def test_what_cannot_be_done_is_refused(pretrained, examples, change, settings, told):
    config = dataclasses.replace(pretrained.config, **change)
    other = dataclasses.replace(pretrained, bert=bs.Bert(config))
    with pytest.raises(ValueError, match=told):
        bs.sweep_in_two_precisions(other, examples, bs.masks.none(config), **settings)
