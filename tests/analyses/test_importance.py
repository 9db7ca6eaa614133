"""Which heads matter: effects beside forward passes one by one, scores, and what is refused."""

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.finetune.losses import loss_per_example
from bert_secrets_jax.pruning.scores import HeadScores, head_scores
from bert_secrets_jax.stats.agreement import reliability
from bert_secrets_jax.stats.correlations import rank_agreement
from tests.analyses.conftest import with_attention
from tests.conftest import forward


def importance(*given, **options):
    return bs.analyses.importance(*given, compute=bs.Compute(max_length=32), **options)


def naive_losses(model, texts, mask):
    """The loss of each text in the order of the texts, by a pass of its own."""
    losses = []
    for example in texts:
        (batch,) = bs.encode(model.tokenizer, [example], max_length=32)
        output = forward(model.bert, model.params, batch.inputs, head_mask=mask, baseline='zero')
        losses.append(float(loss_per_example(output.logits, np.array([example.label]))[0]))
    return np.array(losses)


def test_effects_are_those_of_forward_passes(tuned, texts):
    """Also where a head puts out nothing."""

    def silence(attention):
        attention['output']['kernel'][1, 2] = 0

    planted = with_attention(tuned.models[0], silence)
    found = importance(planted, texts)
    whole = naive_losses(planted, texts, np.ones((3, 4)))
    for layer, head in [(0, 0), (1, 2), (2, 3)]:
        mask = np.ones((3, 4))
        mask[layer, head] = 0
        expected = naive_losses(planted, texts, mask) - whole
        increase = found.increase[:, layer, head]
        np.testing.assert_allclose(increase, expected, rtol=2e-3, atol=3e-6)
    heads = found.frames()['heads'].set_index(['layer', 'head'])
    row = heads.loc[2, 3]
    assert row['loss_difference'] == pytest.approx(0, abs=1e-6)
    # Neither is it needed by scores that ask what its output does.
    assert row['gradient'] == pytest.approx(0, abs=1e-6)
    assert row['relevance'] == pytest.approx(0, abs=1e-6)
    assert 0 < row['confidence'] < 1


def test_other_examples_have_scores_of_their_own(tuned, texts):
    model, few = tuned.models[0], texts[:10]
    found = importance(tuned, texts[10:], measured_on=few)
    again = reliability(found.increase, seed=0)
    assert list(found.agreement) == ['gradient', 'confidence', 'relevance', 'removal']
    assert 'on 10 other examples' in found.frames()['heads'].attrs['caption']
    assert (found.frames()['agreement']['of_a_second_sample'] == again).all()
    assert 'Losing one of two heads that stand in for each other may change nothing' in str(
        found.notes()
    )
    same = importance(model, few)
    assert list(same.agreement) == ['gradient', 'confidence', 'relevance']
    increase = same.increase.mean(axis=0)
    np.testing.assert_allclose(found.scores.of['removal'], increase, atol=1e-6)
    np.testing.assert_allclose(found.scores.of['gradient'], same.scores.of['gradient'], atol=1e-6)


def test_scores_that_are_comparable_between_layers():
    rng = np.random.default_rng(0)
    parts = {name: rng.normal(size=(5, 2, 3)) for name in ('gradient', 'relevance', 'removal')}
    scores = HeadScores(parts, 'layer', 5).of
    np.testing.assert_allclose((scores['gradient'] ** 2).sum(axis=1), 1)
    np.testing.assert_allclose(np.abs(scores['relevance']).sum(axis=1), 1)
    np.testing.assert_allclose(scores['removal'], parts['removal'].mean(axis=0))


@pytest.mark.slow
def test_permutations_are_no_examples(tuned, texts):
    """Not even where there are as many pairs of them: they are not left out together."""
    few = texts[:10]
    found = importance(tuned, few, methods=['gradient'], permutations=20)
    parts = found.scores.parts['shapley']
    assert len(parts) == len(found.increase)
    assert found.agreement['shapley'] == rank_agreement(parts, found.increase, paired=False)
    assert 'not for the examples' in found.notes()[-2]
    assert 'have no sign' in found.notes()[-3]


def test_what_is_refused(tuned, texts):
    model = tuned.models[0]
    for options, message in (
        ({'methods': ['entropy']}, "methods='entropy' must be 'gradient', "),
        ({'methods': ['shapley']}, 'permutations=20 asks for them'),
        ({'methods': 'gradient'}, "methods='gradient' must be a list of"),
        ({'head_mask': np.ones((3, 4))}, "head mask is for methods=.'gradient',. alone"),
    ):
        with pytest.raises(ValueError, match=message):
            head_scores(model, texts, **options)


def test_a_head_that_matters_is_found_by_all(tuned, texts):
    """Where the loss hangs on a single head, each score but confidence ranks it first."""

    def plant(attention):
        kernel = attention['output']['kernel']
        kernel *= 1e-3
        kernel[1, 1] *= 4e3

    planted = with_attention(tuned.models[0], plant)
    found = importance(planted, texts, norm='all', permutations=20)
    effects = np.abs(found.increase.mean(axis=0))
    assert np.unravel_index(effects.argmax(), (3, 4)) == (1, 1)
    for method in ('gradient', 'relevance', 'shapley'):
        grid = np.abs(found.scores.of[method])
        assert np.unravel_index(grid.argmax(), (3, 4)) == (1, 1), method
