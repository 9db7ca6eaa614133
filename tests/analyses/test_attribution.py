"""Statements about methods of attribution, in worlds where it is known which is the best."""

import dataclasses

import numpy as np
import pytest

from bert_secrets_jax.analyses.attribution import EFFECT, assemble
from bert_secrets_jax.contributions.faithfulness import SHARES, Faithfulness
from bert_secrets_jax.contributions.scores import SOURCES
from bert_secrets_jax.measure.token_maps import GLOSSES

METHODS = ('random', 'rollout', 'DecompX', 'gradient x input')
TEXTS = 60


def result_of(*, rank, tokens=20, learnt=('accuracy', 0.9, 0.5, 1e-6), classes=2, fall=0.1):
    """A result with these means of the rank correlations, and falls that are noise alone."""
    rng = np.random.default_rng(0)
    signed = np.full((len(METHODS), TEXTS), np.nan)
    signed[2:] = rng.normal(0.3, 0.1, (2, TEXTS))
    falls = rng.normal(2 * fall, fall, (2, len(METHODS), len(SHARES), TEXTS))
    ranks = np.array(rank)[:, None] + rng.normal(0, 0.1, (len(METHODS), TEXTS))
    if tokens < 3:
        ranks[:] = np.nan
    test = Faithfulness(
        methods=METHODS, shares=np.array(SHARES), tokens=np.full(TEXTS, tokens), rank=ranks,
        signed=signed, comprehensiveness=falls[0], sufficiency=falls[1],
        effects=(np.zeros(3),) * TEXTS,
    )  # fmt: skip
    scores = dict.fromkeys((*METHODS, EFFECT), np.array([0.1, 0.2, 0.3]))
    tokens = {'token': ['[CLS]', 'a', '[SEP]'], 'special': [True, False, True], **scores}
    places = {'text': [1, 1, 1], 'place': [1, 2, 3]}
    return assemble(test, classes, learnt, places | tokens, seed=0)


def finding(result, name):
    (found,) = [each for each in result.findings() if each.name == name]
    return found


def test_the_best_method_is_said_where_it_can_be_told():
    result = result_of(rank=(0.0, 0.2, 0.6, 0.1))
    assert set(GLOSSES) <= set(SOURCES)
    best = finding(result, 'best method: rank correlation')
    assert best.sentence.startswith('1 method shows best which tokens matter')
    assert best.where == 'DecompX' and best.low < 0.6 < best.high and best.sample == TEXTS
    close = finding(result_of(rank=(0.0, 0.6, 0.6, 0.1)), 'best method: rank correlation')
    assert '2 methods show best' in close.sentence
    assert best.sentence.endswith(' Better than random tokens: 3 of 3 others.')
    assert not any(each.warning for each in result.findings())


def test_frames_hold_paired_differences_and_signs():
    result = result_of(rank=(0.0, 0.2, 0.6, 0.1))
    frame = result.frames()['methods'].set_index(['measure', 'method'])
    row = frame.loc['rank correlation', 'DecompX']
    paired = result.test.rank[2] - result.test.rank[0]
    assert row['beyond_random'] == pytest.approx(paired.mean())
    half = 2.001 * paired.std(ddof=1) / np.sqrt(TEXTS)
    assert row['low_beyond_random'] == pytest.approx(paired.mean() - half, abs=1e-4)
    assert row['corrected_p_beyond_random'] < 0.01
    assert np.isnan(frame.loc['rank correlation', 'random']['beyond_random'])
    assert set(frame.loc['rank correlation with sign'].index) == {'DecompX', 'gradient x input'}
    tokens = result.frames()['tokens']
    assert tokens['special'].tolist() == [True, False, True] and EFFECT in tokens
    curves = result.frames()['curves']
    assert len(curves) == 2 * len(METHODS) * len(SHARES)


@pytest.mark.parametrize(
    ('changes', 'said'),
    [
        ({'tokens': 2}, 'have 2 tokens that can be deleted'),
        ({'learnt': ('accuracy', 0.5, 0.5, 0.6)}, 'Not learnt: the model has accuracy'),
        ({'fall': 0}, 'does not change (fall of the probability: at most 0)'),
    ],
)
def test_warnings_come_first(changes, said):
    result = result_of(rank=(0.0, 0.2, 0.6, 0.1), **changes)
    first, *_ = result.findings()
    assert first.warning and said in first.sentence
    assert ('rank correlation' in result.compared) == ('tokens' not in changes)


def test_a_text_without_tokens_counts_for_nothing():
    whole = result_of(rank=(0.0, 0.2, 0.6, 0.1))
    falls = whole.test.comprehensiveness.copy()
    falls[..., -1] = np.nan
    tokens = np.append(whole.test.tokens[:-1], 0)
    test = dataclasses.replace(whole.test, comprehensiveness=falls, tokens=tokens)
    empty = assemble(test, 2, whole.learnt, whole.labelled['tokens'].columns, seed=0)
    curves = empty.frames()['curves']
    assert curves['mean'].notna().all()
    expected = whole.test.comprehensiveness[0, 0, :-1].mean()
    assert curves['mean'][0] == pytest.approx(expected)
    assert empty.compared['comprehensiveness'].texts == TEXTS - 1


def test_values_of_a_regression_have_no_probability():
    value = result_of(rank=(0.0, 0.2, 0.6, 0.1), classes=1)
    assert 'change of the value' in value.frames()['curves'].attrs['caption']
    assert 'probability' not in str(value)
