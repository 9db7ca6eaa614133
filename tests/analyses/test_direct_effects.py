"""Direct effects of heads over texts, and the first layer that answers as well as the last."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masked_lm import masked_lm_losses

COMPUTE = bs.Compute(max_length=32)
FIRST = 'first layer that is not clearly worse than the last'


@pytest.fixture(scope='module')
def result(tuned, texts):
    return bs.analyses.direct_effects(tuned, texts, compute=COMPUTE)


def named(result):
    return {each.name: each for each in result.findings()}


def test_parts_sum_to_the_margin_over_texts(tuned, texts, result):
    ones = np.ones((1, 3, 4))
    logits = bs.sweep_examples(tuned.models[0], texts, ones, compute=COMPUTE).logits[0]
    labels = np.array([each.label for each in texts])
    right = logits[np.arange(len(texts)), labels]
    margins = right - logits[np.arange(len(texts)), 1 - labels]
    total = sum(result.parts.values())
    np.testing.assert_allclose(total, margins, atol=2e-5)
    assert result.heads.intact == pytest.approx(margins.mean(), abs=2e-5)
    heads = result.parts['heads'].mean()
    assert -result.heads.difference.sum() == pytest.approx(heads, abs=2e-5)
    np.testing.assert_array_equal(result.lens[-1], logits.argmax(axis=1) == labels)
    frames, found = result.frames(), named(result)
    assert found['direct part of heads'].estimate == pytest.approx(heads)
    assert frames['layers']['accuracy'].iloc[-1] == pytest.approx(result.lens[-1].mean())
    assert len(frames['heads']) == 12 and len(frames['layers']) == 3
    # One text alone, and batches of another size, are the same.
    few = bs.analyses.direct_effects(
        tuned, texts[:2], compute=bs.Compute(max_length=32, tokens_per_batch=32)
    )
    np.testing.assert_allclose(few.parts['embeddings'], result.parts['embeddings'][:2], atol=1e-5)


def test_a_masked_lm_is_asked_for_all_hidden_wordpieces(masked_lm, texts):
    given = {'masking': bs.Masking(share=0.3), 'compute': COMPUTE}
    found = bs.analyses.direct_effects(masked_lm, texts[:6], **given)
    losses = masked_lm_losses(masked_lm, texts[:6], np.ones((1, 3, 4)), **given)
    assert found.heads.sample_of == 'texts'
    answers = found.lens * losses.hidden
    np.testing.assert_allclose(answers, np.round(answers), atol=1e-9)


def test_what_has_no_right_answer_is_refused(model, tuned, texts):
    regression = bs.with_classifier(model, ('value',), seed=0)
    for given, said in (
        ((regression, texts), 'no right answer'),
        ((model, texts), 'no classifier'),
        ((tuned, [dataclasses.replace(each, label=None) for each in texts[:2]]), 'label'),
        ((tuned, texts[:1]), 'at least 2'),
    ):
        with pytest.raises(ValueError, match=said):
            bs.analyses.direct_effects(*given, compute=COMPUTE)


def test_the_first_layer_that_answers_as_well_as_the_last(result):
    """Layer 2 of 4 answers as well as the last, layer 1 worse by 20 points of 90."""
    late = early = 0
    parts = {'heads': np.zeros(200)}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        # Layers answer mostly alike.
        same = rng.random(200) < 0.9
        lens = np.where(rng.random((4, 200)) < 0.1, rng.random((4, 200)) < 0.9, same)
        lens[0] &= rng.random(200) > 0.2
        world = dataclasses.replace(result, lens=lens.astype(float), parts=parts)
        first = named(world)[FIRST].estimate
        late, early = late + (first > 2), early + (first < 2)
    # One side of a 95 % interval errs in 2.5 %, which is 7.5 of 300; 14 are rarely exceeded.
    assert late <= 14 and early <= 3
