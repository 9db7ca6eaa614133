"""Each behaviour of a disabled head is taken, computed and said."""

import dataclasses
import sys

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.masks import with_intact
from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.analyses.interactions import single_and_pair_masks


def ablation(tuned, texts, masks='layers', **settings):
    how = {'masks': masks, 'compute': bs.Compute(max_length=32)}
    return bs.analyses.ablation(tuned, texts, **how, **settings)


def learnt(result, p_value):
    """The same of models that have learnt their task with this p-value."""
    sets = dict(result.sets)
    for name, each in sets.items():
        tests = tuple((*test[:-1], p_value) for test in each.learnt)
        sets[name] = dataclasses.replace(each, learnt=tests)
    return sys.modules[type(result).__module__].labelled(dataclasses.replace(result, sets=sets))


@pytest.fixture
def computed(monkeypatch):
    """The logits that analyses sweep, as a list that grows."""
    found = []

    def noted(*given, **settings):
        found.append(sweep_examples(*given, **settings).logits)
        return bs.Swept(np.asarray(given[2], np.float32), found[-1])

    for name in ('common.disabling', 'interactions'):
        # The name of the module is that of its function, which hides it.
        module = sys.modules[f'bert_secrets_jax.analyses.{name}']
        monkeypatch.setattr(module, 'sweep_examples', noted)
    return found


@pytest.mark.parametrize('baseline', ['mean', 'resample'])
def test_what_is_computed_is_the_sweep(tuned, texts, baseline, computed):
    """With the seed of the analysis, whatever the batches are."""
    model, heads = tuned.models[0], [(0, 0), (1, 2)]
    batches = bs.encode(model.tokenizer, texts, max_length=32, tokens_per_batch=96)
    layers = bs.masks.single_layers(model.config)
    pairs = single_and_pair_masks(model.config, heads)
    ablation(tuned, texts, baseline=baseline, seed=5)
    how = {'heads': heads, 'baseline': baseline, 'compute': bs.Compute(max_length=32)}
    bs.analyses.interactions(tuned, texts, seed=5, **how)
    for logits, masks in zip(computed, (layers, pairs), strict=True):
        settings = {'baseline': baseline, 'donor_seed': 5}
        expected = bs.sweep(model, batches, with_intact(masks), **settings).logits
        assert np.abs(expected[1:] - expected[:1]).max() > 1e-3
        np.testing.assert_allclose(logits, expected, atol=1e-5)
    if baseline == 'resample':
        ablation(tuned, texts, baseline=baseline, seed=6)
        assert np.abs(computed[-1] - computed[0]).max() > 1e-3


def test_the_mean_is_that_over_a_corpus(tuned, texts, computed):
    """The texts themselves, unless others are given, which need no labels."""
    model, words = tuned.models[0], [('the cat saw a dog', 'a bird'), ('the dog', 'it ran .')]
    unlabelled = [dataclasses.replace(example, label=None) for example in texts]
    corpora = (None, unlabelled, words)
    found = [ablation(tuned, texts, baseline='mean', corpus=each) for each in corpora]
    np.testing.assert_array_equal(computed[0], computed[1])
    means = bs.mean_contexts(model, bs.encode(model.tokenizer, words, max_length=32))
    masks = with_intact(bs.masks.single_layers(model.config))
    batches = bs.encode(model.tokenizer, texts, max_length=32)
    expected = bs.sweep(model, batches, masks, baseline='mean', replacement=means).logits
    np.testing.assert_allclose(computed[2], expected, atol=1e-5)
    assert np.abs(computed[2] - computed[0]).max() > 1e-3
    assert 'mean output over these texts' in found[0].notes()[0]
    assert 'mean output over a corpus of its own' in found[2].notes()[0]


def test_the_best_is_chosen_on_other_texts(tuned, texts, computed):
    """The best mask there is measured here; sets in which nothing is chosen do without."""
    scored = [dataclasses.replace(each, label=float(place % 5)) for place, each in enumerate(texts)]
    # A second sentence of its own, or a text might be one of the others.
    here = scored[:12]
    there = [dataclasses.replace(each, text_b='the bird ran .') for each in scored[12:]]
    # A correlation, which each layer changes a little.
    tuned = bs.with_classifier(tuned.models[0], ('score',), seed=3)
    masks = {
        'layers': bs.masks.single_layers(tuned.config),
        'one_head_left': bs.masks.one_head_left(tuned.config)[:2],
        'alone': bs.masks.disable(tuned.config, [[(0, 0)]]),
    }
    found = ablation(tuned, here, masks, choose_on=there)
    assert [logits.shape[:2] for logits in computed] == [(4, 12), (4, 12), (3, 12), (2, 12)]
    assert found.sets['one_head_left'].elsewhere is None and found.sets['alone'].elsewhere is None
    taught = learnt(found, 0.01)
    (chosen,) = (each for each in taught.findings() if 'chosen on other examples' in each.name)
    expected = [ablation(tuned, each).sets['layers'].found for each in (there, here)]
    best = int(np.argmax(expected[0].difference))
    elsewhere = found.sets['layers'].elsewhere
    assert elsewhere.best == best and elsewhere.choosing == 12
    assert elsewhere.where_chosen == pytest.approx(expected[0].difference[best])
    assert elsewhere.gain == pytest.approx(expected[1].difference[best])
    assert chosen.estimate == pytest.approx(100 * elsewhere.gain)
    assert len(set(expected[0].difference)) > 1
    assert chosen.where == f'L{best + 1}' and f'Losing L{best + 1} ' in chosen.sentence


def test_texts_for_choosing_are_others(tuned, texts):
    message = "'twin' is among the examples and in choose_on"
    twin = dataclasses.replace(texts[3], id='twin')
    with pytest.raises(ValueError, match=message):
        ablation(tuned, texts[:4], choose_on=[*texts[4:], twin])


def test_of_a_model_that_learnt_nothing_no_head_is_best(tuned, texts):
    """Neither with one model nor over several; who reads a table knows it, too."""
    about = {'subject': bs.analyses.Subject(task='mrpc'), 'compute': bs.Compute(max_length=32)}
    sets = ['heads', 'layers', 'one_head_left']
    alone = bs.analyses.ablation(tuned, texts, masks=sets, **about)
    several = bs.analyses.ablation_over_seeds(tuned, texts, masks=sets, **about)
    for result in (alone, several):
        for p_value in (0.01, 0.5):
            found, taught = learnt(result, p_value), p_value < 0.05
            frames = found.frames()
            said = ' '.join([str(found), *(each.attrs['caption'] for each in frames.values())])
            assert any(word in said for word in (' best ', ' worst ')) == taught
            assert ('Not learnt' in said) == (not taught)
            assert {each['learnt'].all() for each in frames.values()} == {taught}
            assert {each['learnt'].any() for each in frames.values()} == {taught}
