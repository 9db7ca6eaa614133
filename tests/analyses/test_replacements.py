"""Replacements of heads: beside sweeps of each kind, and worlds where the answer is known."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masks import single_heads
from bert_secrets_jax.analyses.common.effects import harm_explained
from bert_secrets_jax.finetune.losses import losses_of


@pytest.fixture
def found(results):
    return results['replacements']


@pytest.mark.parametrize('baseline', ['zero', 'uniform', 'resample'])
def test_effects_are_those_of_sweeps(found, tuned, texts, baseline):
    model, examples = tuned.models[0], texts[12:]
    masks = np.concatenate([np.ones((1, 3, 4)), single_heads(model.config)])
    swept = bs.sweep_examples(model, examples, masks, baseline=baseline)
    losses = losses_of(swept.logits, np.array([each.label for each in examples]))
    difference = (losses[1:] - losses[0]).mean(axis=1)
    np.testing.assert_allclose(found.effects[baseline].difference, difference, atol=1e-6)
    mean = found.means.difference[list(found.effects).index(baseline)]
    assert mean == pytest.approx(difference.mean(), abs=1e-6)


@pytest.mark.parametrize('baseline', ['zero', 'resample'])
def test_outcomes_are_those_of_an_ablation(found, tuned, texts, baseline):
    subject = found.subject
    heads = bs.analyses.ablation(tuned, texts[12:], baseline=baseline, subject=subject)
    heads = heads.sets['heads']
    for outcome in ('discrimination', 'answers', 'f1'):
        ours, theirs = found.outcomes[baseline, outcome], heads.every[outcome]
        np.testing.assert_allclose(ours.difference, theirs.difference, atol=1e-5)
        rows = found.frames()['outcomes'].query(f'replacement == "{baseline}"')
        rows = rows[rows['outcome'] == outcome]
        np.testing.assert_allclose(rows['difference'], ours.difference)


def test_what_stands_is_significant_whatever_replaces_a_head(found):
    """The first head is needed under all, the second under three; the third is better lost."""
    assert list(found.signs) == ['discrimination', 'answers', 'f1']
    outcomes = {}
    for place, (key, each) in enumerate(found.outcomes.items()):
        corrected, harm = np.ones(12), np.zeros(12)
        corrected[:3], harm[:3] = 0.01, (1, 1, -1)
        corrected[1] = 0.2 if place < 3 else 0.01
        difference = -harm if each.outcome.more_is_better else harm
        outcomes[key] = dataclasses.replace(each, corrected=corrected, difference=difference)
    given = dataclasses.replace(found, outcomes=outcomes)
    signs = given.signs['discrimination']
    assert signs[:4].tolist() == [[-1] * 4, [0, -1, -1, -1], [1] * 4, [0] * 4]
    assert '1 of 12 heads (L1-H1) is needed, by telling texts apart, under all four ways' in str(
        given
    )
    labels = given.figures()['replacements_outcomes'].axes[0].get_yticklabels()
    assert [each.get_text() for each in labels] == ['L1-H1', 'L1-H3', 'L1-H2']
    none = {key: dataclasses.replace(each, corrected=np.ones(12)) for key, each in outcomes.items()}
    assert 'No head is needed, by F1, under all four ways' in str(
        dataclasses.replace(found, outcomes=none)
    )


def test_constants_come_from_other_examples(found, tuned, texts):
    model = tuned.models[0]
    how = {'fit_on': texts[:12], 'passes': 2, 'compute': bs.Compute(max_length=32)}
    other = bs.analyses.replacements(tuned, texts[12:18], **how)
    np.testing.assert_allclose(other.constants, found.constants, atol=1e-6)
    assert found.constants.shape == (3, 4, model.config.head_size) and found.fitted_on == 12
    ranks = found.frames()['replacements']['rank_correlation_with_best_constant']
    assert ranks.iloc[-1] == pytest.approx(1)


def test_the_share_of_harm_has_the_interval_of_a_ratio():
    """As often as it says, where replacing does 40 % of the harm of removal."""
    rng, inside = np.random.default_rng(0), []
    for _ in range(400):
        shared = rng.exponential(size=80)
        found = harm_explained(shared + rng.normal(size=80), 0.4 * shared + rng.normal(size=80))
        inside.append(found[1] <= 0.6 <= found[2] and found[1] <= found[0] <= found[2])
    assert 0.92 <= np.mean(inside) <= 0.98
    # A ratio without errors is certain.
    assert harm_explained(shared, shared / 4) == pytest.approx((0.75,) * 3)


def test_without_harm_there_is_no_share(found):
    harmless = np.random.default_rng(1).normal(size=40)
    assert harm_explained(harmless - harmless.mean() + 0.01, harmless) is None
    nothing = dataclasses.replace(found, own_harm=None)
    assert 'does no significant harm on average' in str(nothing)
    worse = dataclasses.replace(found, own_harm=(-4.0, -9.0, -1.0))
    assert 'does no less harm here than removal' in str(worse) and '-400' not in str(worse)
    some = dataclasses.replace(found, shared=2)
    assert '12 examples, 2 of which are among those here' in some.notes()[0]
