"""What a disabled head does instead: each kind is taken, computed and said."""

import dataclasses
import itertools

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation.sweep import sweep
from bert_secrets_jax.analyses.ablation import assess, with_intact
from bert_secrets_jax.model.attention import BASELINES

SAID = {
    'uniform': 'attends to all tokens alike',
    'zero': 'attends to nothing',
    'mean': 'puts out its mean output over these texts instead of its own.',
    'resample': 'puts out its output on another of these texts, of like length,',
}


def ablation(tuned, texts, **settings):
    return bs.analyses.ablation(tuned, texts, masks='layers', max_length=32, **settings)


@pytest.mark.parametrize('baseline', BASELINES)
def test_each_kind_says_what_it_is(tuned, texts, baseline, tmp_path):
    found = ablation(tuned, texts, baseline=baseline)
    assert f'A disabled head {SAID[baseline]}' in found.notes()[0]
    for caption in (found.frames()['layers'].attrs['caption'], found.figures()['layers'].caption):
        assert SAID[baseline] in caption
    sentence = found.findings()[-4 if found.learnt else 1].sentence
    assert ('instead (' in str(found)) == (baseline != 'uniform'), sentence
    found.save(tmp_path / 'result.npz')
    assert bs.analyses.Ablation.load(tmp_path / 'result.npz').notes() == found.notes()


@pytest.mark.parametrize('baseline', ['mean', 'resample'])
def test_scores_are_those_of_the_sweep(tuned, texts, baseline):
    """With the seed of the analysis, over examples in whatever batches."""
    model = tuned.models[0]
    masks = with_intact(bs.masks.single_layers(model.config))
    batches = bs.encode(model.tokenizer, texts, max_length=32, tokens_per_batch=96)
    swept = sweep(model, batches, masks, baseline=baseline, donor_seed=5)
    labels = np.array([example.label for example in texts])
    found = ablation(tuned, texts, baseline=baseline, seed=5).sets['layers']
    expected = assess(swept, labels, list(found.assessed), seed=5)
    np.testing.assert_allclose(found.found.score, expected.found.score)


def test_the_mean_is_that_over_a_corpus(tuned, texts):
    """The texts themselves, unless others are given, which need no labels."""
    words = [f'{text} .' for text in itertools.repeat('the cat saw a dog', 5)]
    unlabelled = [dataclasses.replace(example, label=None) for example in texts]
    of_texts = ablation(tuned, texts, baseline='mean')
    given = ablation(tuned, texts, baseline='mean', corpus=unlabelled)
    own = ablation(tuned, texts, baseline='mean', corpus=words)
    np.testing.assert_array_equal(
        of_texts.sets['layers'].found.score, given.sets['layers'].found.score
    )
    assert 'mean output over these texts' in of_texts.notes()[0]
    assert 'mean output over a corpus of its own' in own.notes()[0]


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'baseline': 'median'}, r"choose one of \('uniform', 'zero', 'mean', 'resample'\)"),
        ({'corpus': ['the cat']}, "corpus goes with baseline='mean', not with baseline='uniform'"),
        ({'baseline': 'resample', 'corpus': ['a']}, "not with baseline='resample'"),
    ],
)
def test_wrong_kinds_are_refused(tuned, texts, settings, message):
    with pytest.raises(ValueError, match=message):
        ablation(tuned, texts, **settings)
    if 'corpus' not in settings:
        with pytest.raises(ValueError, match=message):
            bs.analyses.interactions(tuned, texts, **settings)


def test_a_single_example_has_no_other(tuned, texts):
    with pytest.raises(ValueError, match='there are 1 in all: give at least two'):
        ablation(tuned, texts[:1], baseline='resample')


@pytest.mark.parametrize('baseline', ['mean', 'resample'])
def test_pairs_are_disabled_in_the_same_way(tuned, texts, baseline):
    heads = [(0, 0), (1, 2)]
    found = bs.analyses.interactions(
        tuned, texts, heads=heads, baseline=baseline, metric='accuracy', max_length=32
    )
    assert SAID[baseline].split(' instead')[0] in found.notes()[0]
    single = bs.masks.disable(tuned.models[0].config, [[head] for head in heads])
    alone = bs.analyses.ablation(
        tuned, texts, masks={'mine': single}, baseline=baseline, metrics=['accuracy'], max_length=32
    )
    np.testing.assert_allclose(found.effects, 100 * alone.sets['mine'].found.difference, atol=1e-6)
