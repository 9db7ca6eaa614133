"""Ablation over fine-tunings: one is a plain ablation, and few are told apart."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.verdicts.disabling import on_average
from bert_secrets_jax.runs import verdict as populations
from tests.conftest import random_params

COMPUTE = bs.Compute(max_length=32)
HOW = {'compute': COMPUTE, 'subject': bs.analyses.Subject('tiny', 'own texts', 'mrpc')}


@pytest.fixture(scope='module')
def models(bert, tokenizer):
    """Six models whose classifiers differ, of one shape: what they answer is all but random."""
    model = bs.Bert(dataclasses.replace(bert.config, label_names=('no', 'yes')))
    params = [random_params(model, seed=seed) for seed in range(6)]
    return [bs.Pretrained(model, each, tokenizer) for each in params]


def over_seeds(models, texts, **changes):
    return bs.analyses.ablation_over_seeds(models, texts, **HOW | changes)


def test_one_model_is_a_plain_ablation(models, texts):
    alone = bs.analyses.ablation(models[0], texts, masks=('heads', 'layers'), seed=3, **HOW)
    result = over_seeds(models[:1], texts, masks=('heads', 'layers'), seed=3)
    assert result.population == populations.THIS_MODEL
    for name, found in result.sets.items():
        for metric, assessed in alone.sets[name].assessed.items():
            ours = found.assessed[metric]
            for field in ('difference', 'low', 'high', 'p_value', 'corrected'):
                np.testing.assert_array_equal(getattr(ours, field), getattr(assessed, field))
            np.testing.assert_array_equal(ours.seeds.intact, [assessed.intact])
    assert populations.ANY_FINETUNING not in str(result)
    assert [figure for figure in result.figures().values()]


def test_effects_are_those_of_each_model(models, texts):
    result = over_seeds(models[:3], texts)
    found = result.sets['heads'].found
    for place, model in enumerate(models[:3]):
        alone = bs.analyses.ablation(model, texts, **HOW).sets['heads']
        for name, each in alone.every.items():
            ours = result.sets['heads'].every[name]
            np.testing.assert_allclose(ours.seeds.difference[place], each.difference, atol=1e-12)
    np.testing.assert_allclose(found.difference, found.seeds.difference.mean(axis=0))
    heads, means = result.sets['heads'], found.seeds.difference.mean(axis=1)
    assert [each.difference for each in heads.averages] == pytest.approx(means)
    mean, _, high = on_average(heads.averages).interval(0)
    assert mean == pytest.approx(100 * means.mean())
    # No narrower than seeds alone make it.
    spread = 100 * means.std(ddof=1) / np.sqrt(3)
    assert high - mean > 1.96 * spread > 0
    frame = result.frames()['heads_by_seed'].query('outcome == "f1" and seed == 1')
    np.testing.assert_allclose(frame['change'], 100 * found.seeds.difference[1])


def test_too_few_seeds_are_told(models, texts):
    five, six = over_seeds(models[:5], texts), over_seeds(models, texts)
    assert five.population == six.population == populations.ANY_FINETUNING
    told = 'With so few fine-tunings, no change of any size could be significant.'
    assert told in str(five) and told not in str(six)
    assert five.sets['heads'].found.significant() == (0, 0)


def test_what_cannot_be_compared_is_refused(models, texts, bert, tokenizer):
    three = bs.Bert(dataclasses.replace(bert.config, label_names=('no', 'yes', 'maybe')))
    other = bs.Pretrained(three, random_params(three), tokenizer)
    with pytest.raises(ValueError, match='give fine-tunings of one recipe'):
        over_seeds([models[0], other], texts)


def test_claims_are_about_any_finetuning_where_seeds_suffice(models, texts):
    """Six seeds can show something, three cannot: then the claims are about the first model."""
    alone = bs.analyses.ablation(models[0], texts, baseline='zero', **HOW)
    for count, population in ((6, populations.MOST_FINETUNINGS), (3, populations.THIS_MODEL)):
        over = over_seeds(models[:count], texts, baseline='zero')
        found = bs.analyses.claims(alone, over).verdicts()
        (verdict,) = [each for each in found if each.claim == bs.claims.HEAD_HELPS]
        assert verdict.population == population
        assert 'A disabled head attends to nothing' in verdict.evidence
        lead = (over if count == 6 else alone).sets['heads'].lead
        better = (lead.verdict == 'better').sum()
        said = f' For {better} of them, losing it improves telling texts apart by over 0.01 nats'
        assert said in verdict.evidence
        # One that is corrected for nothing takes five, and has an interval over three.
        (random,) = [each for each in found if each.claim == bs.claims.RANDOM_HEAD_HELPS]
        enough = populations.MOST_FINETUNINGS, populations.THESE_MODELS
        assert random.population == enough[count < 5]
        # It has the number of the section where it is about these models, or else the median.
        heads = over.sets['heads']
        median = np.median([100 * each.difference for each in heads.averages])
        average = on_average(heads.averages).interval(0)
        assert random.estimate == pytest.approx(median if count == 6 else average[0])
        assert count == 6 or (random.low, random.high) == average[1:]
        if count == 6:
            assert (verdict.sample, verdict.sample_of) == (6, 'runs')
            medians = np.median(heads.found.seeds.difference, axis=0)
            assert f'Disabling {heads.found.names[np.argmax(medians)]} ' in verdict.evidence
            assert verdict.estimate == pytest.approx(100 * medians.max())
