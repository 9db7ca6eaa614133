"""Claims in worlds where each is just true, just false, and clearly so; and their sentences."""

import dataclasses
import itertools
import json
import math
import re
import string

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from bert_secrets_jax import paper
from bert_secrets_jax.analyses import verdicts as claims
from bert_secrets_jax.analyses.verdicts import (
    DOES_NOT_HOLD,
    HOLDS,
    MOST_FINETUNINGS,
    NOT_MEASURED,
    THESE_MODELS,
    THIS_MODEL,
    TOO_FEW,
    UNDECIDED,
    verdict,
)
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.programs.report import SECTIONS
from bert_secrets_jax.stats import significance
from bert_secrets_jax.stats.influence import MeanEffect
from tests.analyses import worlds
from tests.analyses.worlds import WORLDS, effects_of, link_test, null, of_layers, table
from tests.words import longest_sentence


def by_layer(means, *, examples=200, scatter=0.05, heads=4, seed=0) -> HeadTable:
    """Return a table of layers with these means; heads of an example vary together."""
    rng = np.random.default_rng(seed)
    return of_layers(rng, means, heads=heads, scatter=1.4 * scatter, examples=examples)


def everywhere(mean, **settings) -> HeadTable:
    return by_layer(np.full(3, mean), **settings)


def read(means, error, shape=(12, 12)) -> HeadTable:
    """Return published means as a table, with the error of a number that was read."""
    return HeadTable(np.broadcast_to(means, shape), np.full(shape, 1000 * error**2), 1000.0)


SINGLE = HeadTable(np.eye(4), np.full((4, 4), np.nan), 1.0)


@pytest.mark.parametrize('task', paper.TASKS)
def test_the_published_figures_bear_the_paper_out(task):
    """Figure 5 for all tasks but QQP, as the paper says, Figures 2 and 6 for all, and Figure 7 for
    all but three; a random head of MRPC and RTE, and of no other."""
    # Figures 5 and 6 are read as exactly.
    error = paper.digitisation_error(5).mean
    found = claims.last_layers_change_most(read(paper.attention_change(task), error))
    assert found.verdict == (DOES_NOT_HOLD if task == 'QQP' else HOLDS)
    grids = paper.special_token_attention(task)
    found = claims.attention_moves_from_cls_to_sep(*(read(each, error) for each in grids.values()))
    assert found.verdict == HOLDS
    shares, error = paper.pattern_shares(task), paper.digitisation_error(2).most
    classes = {name: read(shares[name], error) for name in ('block', 'heterogeneous')}
    found = claims.few_are_heterogeneous(classes)
    assert found.verdict == HOLDS
    assert found.estimate == pytest.approx(shares['block'] + shares['heterogeneous'])
    types, error = paper.cls_tokens(task), paper.digitisation_error(7).most
    tables = {name: read(mean, error / 2, (1, 12)) for name, mean in types.items()}
    found = claims.cls_attends_most_to_sep(tables)
    assert found.verdict == (DOES_NOT_HOLD if task in ('STS-B', 'RTE', 'QNLI') else HOLDS)
    error = paper.digitisation_error(8, task).mean
    mean = float(paper.disable_one_head(task).differences.mean())
    average = MeanEffect(mean, error, mean - 2 * error, mean + 2 * error, 1000, 1000)
    found = claims.a_random_head_helps(average, heads=144)
    assert found.verdict == (HOLDS if task in ('MRPC', 'RTE') else DOES_NOT_HOLD)


def test_the_published_effects_bear_the_paper_out():
    """STS-B and RTE need the same two heads; two other tasks do not."""

    def task_effects(task):
        error = paper.digitisation_error(8, task).mean
        difference = paper.disable_one_head(task).differences.ravel()
        return effects_of(difference, difference - 2 * error, difference + 2 * error)

    found = claims.same_heads_are_needed({each: task_effects(each) for each in ('STS-B', 'RTE')})
    assert found.verdict == HOLDS and found.numbers['shared'] == 2
    assert {found.numbers['first_1'], found.numbers['second_1']} == {'L2-H12', 'L4-H1'}
    others = {each: task_effects(each) for each in ('STS-B', 'QNLI')}
    assert claims.same_heads_are_needed(others).verdict != HOLDS


def test_what_clark_et_al_published_bears_them_out():
    published = paper.what_bert_looks_at()
    to_sep, sep_to_sep = (published.layers[f'{of} [SEP]'][:, None] for of in ('all', '[SEP] to'))
    assert claims.heads_look_at_sep(read(to_sep, 0.001)).verdict == HOLDS
    # Their means of [SEP] are read as 0.9 up to layer 9, which is no more than claimed.
    assert claims.sep_looks_at_sep(read(sep_to_sep, 0.001)).verdict == UNDECIDED
    cls, even = read(published.entropy_of_last_cls, 0.03), read(np.log(128), 0.0)
    assert claims.cls_looks_broadly(cls, even).numbers['share'] == pytest.approx(0.80, abs=0.005)


@pytest.mark.parametrize(
    ('layers', 'middle', 'later'),
    [(12, (5, 10), (4, 12)), (6, (2, 5), (2, 6)), (24, (10, 20), (8, 24)), (1, (0, 1), (0, 1))],
)
def test_layers_at_the_same_depth(layers, middle, later):
    assert claims.layers_between(6, 10, layers) == slice(*middle)
    assert claims.layers_between(5, 12, layers) == slice(*later)


def test_the_published_gains_bear_the_paper_out():
    gains = {}
    for task, examples in zip(paper.TASKS, (408, 1500, 872, 40430, 277, 5463, 9815), strict=True):
        row = paper.finetuning(task)
        metric = list(row.finetuned_from_pretrained)[-1]
        scores = row.pretrained_no_finetuning[metric], row.finetuned_from_pretrained[metric]
        gains[task] = claims.Gain(
            *([each] for each in scores), examples, task == 'STS-B', claims.published_gain(task)
        )
    found = claims.finetuning_gains(gains)
    assert found.verdict == HOLDS and found.population == THESE_MODELS
    assert found.numbers['ours'] == pytest.approx(35.9, abs=0.05)
    assert found.estimate == pytest.approx(0)


def last_layers(*means, examples=200, scatter=0.05):
    return claims.last_layers_change_most(by_layer(means, examples=examples, scatter=scatter))


def from_cls_to_sep(cls, sep):
    return claims.attention_moves_from_cls_to_sep(
        *(by_layer(means, scatter=0.02) for means in (cls, sep))
    )


def vertical(*high):
    """Twelve vertical heads have these means, in turn."""
    shares = np.array([[0.9, 0.1, 0.8, 0.2, 0.7]] * 4)
    means = np.full(shares.shape, 0.05)
    means[shares > 0.5] = np.resize(high, 12)
    values = means + 0.02 * np.random.default_rng(0).normal(size=(50, *means.shape))
    return claims.vertical_patterns_are_special(shares, table(values))


def frames(moved, other=0.07, p=0.01):
    """One head attends 0.2 along links, and so much at places of two kinds."""
    score = by_layer((0.1, 0.2, 0.1), scatter=0.01)
    real, of_moved = np.full((2, 3, 4), 0.5)
    real[1, 2], of_moved[1, 2] = 0.01, p
    nulls = {'moved': null(score, moved, of_moved), 'positions': null(score, other, real)}
    return claims.heads_follow_links(link_test(score, **nulls))


def mistaken(*corrected):
    shares = {'block': everywhere(0.1), 'heterogeneous': everywhere(0.2)}
    return claims.few_are_heterogeneous(shares, corrected=corrected or None)


def last_cls(sep):
    """The first layer says the opposite."""
    noun = by_layer((0.1, 0.2), scatter=0.01)
    ours = by_layer((0.6 - sep, sep), scatter=0.01, seed=1)
    return claims.cls_attends_most_to_sep({'noun': noun, '[SEP]': ours})


HIGH, LOW = (0.9, 0.88, 0.91, 0.89, 0.9), (0.8, 0.79, 0.82, 0.81, 0.8)
BY_HAND = [
    (last_cls(0.2), UNDECIDED, None),
    # One of the last two is enough to the contrary, and so is a middle layer.
    (last_layers(0.9, 0.8, 0.9, 0.5, 0.85), DOES_NOT_HOLD, None),
    (last_layers(0.9, 0.4, 0.9, 0.5, 0.6), DOES_NOT_HOLD, None),
    (last_layers(0.9, 0.8, 0.9, 0.775, 0.6, examples=25), UNDECIDED, None),
    # Clear, in too few examples.
    (last_layers(0.9, 0.8, 0.9, 0.1, 0.1, examples=19), TOO_FEW, None),
    (last_layers(0.9, 0.8, 0.9, 0.5, 0.78), UNDECIDED, None),
    # A real difference that is too small to count.
    (last_layers(0.9, 0.8, 0.9, 0.5, 0.797, examples=2000), DOES_NOT_HOLD, None),
    (last_layers(0.9, 0.5), UNDECIDED, None),
    (claims.last_layers_change_most(SINGLE), TOO_FEW, None),
    # Attention that stays the same changes least everywhere.
    (last_layers(1.0, 1.0, 1 - 2e-7, 1 - 2e-7, scatter=1e-9), DOES_NOT_HOLD, None),
    # The smallest of three changes, as they are equally exact here.
    (from_cls_to_sep((0.3, 0.4, 0.2, 0.1, 0), (0, 0.1, 0.7, 0.3, 0.5)), HOLDS, 0.3),
    (from_cls_to_sep((0.3, 0.4, 0.2, 0.03, 0.03), (0.1, 0.1, 0.1, 0.12, 0.12)), UNDECIDED, 0.02),
    # [CLS] loses and [SEP] gains, and yet [CLS] is far ahead to the end.
    (from_cls_to_sep((0.7, 0.6, 0.5, 0.4, 0.4), (0, 0, 0.1, 0.1, 0.1)), DOES_NOT_HOLD, -0.3),
    (from_cls_to_sep((0.7, 0.6, 0.5, 0.3, 0.3), (0, 0, 0.1, 0.32, 0.32)), UNDECIDED, 0.02),
    (claims.attention_moves_from_cls_to_sep(SINGLE, SINGLE), TOO_FEW, None),
    (vertical(0.5), UNDECIDED, None),
    # One of twelve may be another kind of head, and no more; the mean would not tell.
    (vertical(*[0.8] * 11, 0.1), HOLDS, None),
    (vertical(*[0.8] * 10, 0.1, 0.1), DOES_NOT_HOLD, None),
    (vertical(*[0.8] * 10, 0.5, 0.1), UNDECIDED, None),
    (frames(0.1), HOLDS, 0.1),
    # Significantly above all kinds, by too little to count.
    (frames(0.17, 0.17), DOES_NOT_HOLD, None),
    # Above all kinds but one; and far above all, which is not significant.
    (frames(0.1, p=0.5), UNDECIDED, None),
    (frames(0.19, p=0.5), DOES_NOT_HOLD, None),
    # Nothing is known of a kind that no link has places of.
    (frames(np.nan, p=0.5), UNDECIDED, None),
    (mistaken(), HOLDS, 0.3),
    (mistaken(0.4, 0.2, 0.65), HOLDS, 0.4),
    (mistaken(0.5, 0.3, 0.67), UNDECIDED, 0.5),
    (mistaken(0.8, 0.67, 0.9), DOES_NOT_HOLD, 0.8),
    (mistaken(0.7, 0.65, 0.9), UNDECIDED, 0.7),
    (claims.pretraining_helps(HIGH, LOW), HOLDS, 9),
    (claims.pretraining_helps(HIGH, (0.9, 0.88, 0.87, 0.89, 0.9)), UNDECIDED, 0),
    # Two in seven have failed: most pairs are higher, and their mean is lower.
    (claims.pretraining_helps((*HIGH, 0.5, 0.3), LOW, unlearnt=2), UNDECIDED, 9),
    (claims.pretraining_helps(HIGH[:4], LOW), TOO_FEW, 9),
    # Two runs that collapse alike have the same score to the digit.
    (claims.pretraining_helps((0.55, 0.55), (0.45, 0.45)), TOO_FEW, 10),
    (claims.pretraining_helps((0.9,), (0.5,)), TOO_FEW, 40),
    # A run that never leaves the majority class has no scatter.
    (claims.pretraining_helps((0.9,) * 5, (0.8,) * 5), HOLDS, 10),
    (claims.pretraining_helps((0.8,) * 5, (0.8,) * 5), UNDECIDED, 0),
]


@pytest.mark.parametrize(('found', 'verdict', 'estimate'), BY_HAND)
def test_verdicts_by_hand(found, verdict, estimate):
    assert found.verdict == verdict and 'nan' not in found.evidence
    if estimate is not None:
        assert found.estimate == pytest.approx(estimate, abs=0.02)


def test_layers_are_named_from_one():
    found = claims.last_layers_change_most(by_layer((0.9, 0.7, 0.9, 0.5, 0.6), scatter=1e-4))
    assert found.what == 'similarity of layer 2 minus that of layer 5'
    assert found.estimate == pytest.approx(0.1, abs=1e-4)
    assert 'attention of L2-H3 along the links' in frames(0.1).what
    with pytest.raises(ValueError, match=r'\[2, 5\], and the model has \[3, 4\]'):
        claims.vertical_patterns_are_special(np.ones((2, 5)), everywhere(0.8))


@hypothesis.settings(max_examples=50)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), weight=st.floats(0, 1))
def test_bounds_are_never_below_what_pairing_gives(seed, weight):
    """Whatever heads, layers and examples have to do with each other."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(9, 1, 1)) * rng.choice([-1, 1], (1, 4, 3))
    values = weight * shared + (1 - weight) * rng.normal(size=(9, 4, 3)) ** 2
    weights = rng.normal(size=(5, 4))
    ((difference, bound),) = verdict.sums_of_layers(weights[:, None], table(values))
    paired = values.mean(axis=2) @ weights.T
    np.testing.assert_allclose(difference, paired.mean(axis=0), atol=1e-6)
    assert (bound >= scipy.stats.sem(paired)).all()


def test_what_is_too_rare_is_left_out_and_named():
    rare = everywhere(0.3, examples=3)
    features = {'noun': everywhere(0.04), 'negation': rare}
    found = claims.features_are_negligible(everywhere(0.2), everywhere(0.2, seed=1), features)
    assert found.verdict == HOLDS
    assert found.sample == 200 and 'too rare: negation (3)' in found.evidence
    from_cls = {'[SEP]': everywhere(0.4), 'noun': everywhere(0.2), 'negation': rare}
    assert claims.cls_attends_most_to_sep(from_cls).verdict == HOLDS
    # Nothing would be left.
    alone = claims.features_are_negligible(everywhere(0.2), everywhere(0.2), {'negation': rare})
    assert alone.verdict == TOO_FEW
    assert alone.evidence.endswith(' 3 examples are too few; a test needs 20.')


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    mean=st.floats(0.0, 0.3), scatter=st.floats(0.001, 0.5), seed=st.integers(0, 2**32 - 1)
)
@hypothesis.example(mean=0.0, scatter=0.5, seed=556)
def test_the_interval_of_the_ratio_agrees_with_its_test(mean, scatter, seed):
    """One feature, which is not corrected for: two sides of 2.5 % against one of 5 %."""
    feature = everywhere(mean, scatter=scatter, examples=30, seed=seed)
    special = [everywhere(0.2, examples=30, seed=1), everywhere(0.2, examples=30, seed=2)]
    found = claims.features_are_negligible(*special, {'noun': feature})
    assert found.low <= max(found.estimate, 0) <= found.high
    if found.high < found.threshold:
        assert found.verdict == HOLDS
    elif found.low > found.threshold:
        assert found.verdict == DOES_NOT_HOLD


def test_the_interval_of_the_ratio_holds_the_ratio():
    """In 95 % of corpora, at least; nothing is known of it where the whole may be 0."""
    rng, held, runs = np.random.default_rng(0), 0, 1000
    for _ in range(runs):
        # All heads as one; feature and special tokens turn opposite ways: the bound is met.
        draws = 0.05 * rng.normal(size=(30, 1, 1))
        cls, sep, noun = table(0.2 + draws), table(0.2 + draws), table(0.1 - draws)
        found = claims.features_are_negligible(cls, sep, {'noun': noun})
        held += found.low <= 0.25 <= found.high
    assert 0.93 < held / runs < 0.975
    wide = by_layer((0.1,), scatter=1.0, examples=30)
    found = claims.features_are_negligible(wide, wide, {'noun': by_layer((0.1,), examples=30)})
    assert math.isinf(found.high) and ' or more). ' in found.evidence


def test_a_head_that_follows_links_is_hardly_ever_denied():
    """A head as far above both kinds as counts: "does not hold" in 5 % at most (11 when the kind
    that it is less above is tested as if it had been chosen beforehand)."""
    rng = np.random.default_rng(0)
    score = by_layer((0.3,), scatter=0.1, examples=60, heads=1)
    denied, runs = 0, 1000
    for _ in range(runs):
        nulls = {}
        for kind in ('moved', 'elsewhere'):
            values = claims.FRAMES.threshold + 0.1 * rng.normal(size=(60, 1, 1))
            nulls[kind] = null(score, p=1.0, excess=table(values))
        denied += claims.heads_follow_links(link_test(score, **nulls)).verdict == DOES_NOT_HOLD
    assert denied / runs <= most(runs)


def positions(score, moved, other=0.0):
    return link_test(score, moved=null(score, moved, 1.0), positions=null(score, other, 1.0))


@pytest.mark.parametrize(
    ('elsewhere', 'examples', 'verdict'),
    [(0.3, 400, HOLDS), (0.1, 400, DOES_NOT_HOLD), (0.27, 25, UNDECIDED), (0.25, 400, UNDECIDED)],
)
def test_position(elsewhere, examples, verdict):
    score = by_layer((0.1, 0.3, 0.1), scatter=0.05, examples=examples)
    beyond = score.mean.max() - elsewhere
    explained, unknown = positions(score, score.mean), positions(score, np.nan, np.nan)
    undecided = DOES_NOT_HOLD if verdict == DOES_NOT_HOLD else UNDECIDED
    for one, other, expected, estimate in (
        (explained, positions(score, elsewhere), verdict, max(beyond, 0)),
        # The same positions of other inputs are as good as the same distances elsewhere.
        (explained, positions(score, 0.0, elsewhere), verdict, max(beyond, 0)),
        # Links without a place tell nothing.
        (unknown, positions(score, 0.0, elsewhere), undecided, beyond),
    ):
        links = {'noun to verb': one, 'verb to noun': other}
        found = claims.position_explains(claims.VERB_SUBJECT, links)
        assert found.verdict == expected
        assert found.estimate == pytest.approx(estimate, abs=1e-6)


def test_pretraining_is_welchs_test_and_that_of_signs():
    scores = np.random.default_rng(0).normal((0.8, 0.83), (0.02, 0.05), (6, 2)).T.tolist()
    expected = scipy.stats.ttest_ind(*scores, equal_var=False)
    found, pairs = claims.pretraining_helps(*scores), 100 * np.subtract(*scores)
    signs = scipy.stats.binomtest(int((pairs < 0).sum()), 6, alternative='greater').pvalue
    assert found.p_if_true == pytest.approx(max(expected.pvalue / 2, signs), rel=1e-6)
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (np.median(pairs), pairs.min(), pairs.max())
    )
    assert found.numbers['mean'] == pytest.approx(100 * (np.mean(scores[0]) - np.mean(scores[1])))


def test_several_runs():
    """Together they are about any fine-tuning, and each is counted alone."""
    one, other = last_cls(0.4), last_cls(0.1)
    alone = claims.in_all_runs(one, {'seed 0': one})
    assert alone.evidence == f'{one.evidence} Model: seed 0.'
    found = claims.in_all_runs(one, {'seed 0': one, 'seed 1': other, 'seed 2': one})
    assert found.verdict == HOLDS
    assert found.evidence.startswith(one.evidence) and found.numbers['alone'] == 3
    assert found.evidence.endswith('holds in 2 and does not hold in 1 of 3 runs.')


@pytest.mark.parametrize(
    ('runs', 'population', 'sample'),
    [
        (1, THIS_MODEL, (200, 'examples')),
        (2, THESE_MODELS, (200, 'examples')),
        # Three have an interval over seeds, but a verdict takes five.
        (3, THESE_MODELS, (200, 'examples')),
        (5, MOST_FINETUNINGS, (5, 'runs')),
    ],
)
def test_for_what_a_verdict_is(runs, population, sample):
    """Most fine-tunings only if five agree, and the interval is wider if they differ."""
    rng = np.random.default_rng(0)

    def alike(mean, spread):
        return [everywhere(mean + spread * rng.normal(), seed=seed) for seed in range(runs)]

    layers = [by_layer((0.9, 0.8, 0.5 + 0.02 * rng.normal(), 0.5)) for _ in range(runs)]
    found = [
        claims.last_layers_change_most(layers),
        claims.attention_moves_from_cls_to_sep(layers, layers),
        claims.features_are_negligible(alike(0.2, 0), alike(0.2, 0), {'noun': alike(0.04, 0.01)}),
        claims.cls_attends_most_to_sep({'[SEP]': alike(0.4, 0.1), 'noun': alike(0.2, 0.1)}),
        claims.few_are_heterogeneous({'block': alike(0.1, 0), 'heterogeneous': alike(0.2, 0.01)}),
        claims.vertical_patterns_are_special([np.ones((3, 4))] * runs, alike(0.8, 0.05)),
        claims.a_random_head_helps(
            [MeanEffect(0.01 * rng.normal(), 0.01, -0.01, 0.03, 50, 200) for _ in range(runs)],
            heads=144,
        ),
    ]
    for each in found:
        assert each.population == population and (each.sample, each.sample_of) == sample
        assert each.low < each.estimate < each.high
        assert (each.verdict == TOO_FEW) == (population == THESE_MODELS)
        assert ('a test needs 5.' in each.evidence) == (population == THESE_MODELS)
        assert (f'the median of {runs} runs' in each.evidence) == (runs == 5)
    # A curve of several fine-tunings has an interval over seeds, and of examples.
    kept = {'kept': 6, 'heads': 10, 'examples': 400}
    pruned = claims.heads_can_go((0.0, -0.1, 0.1), np.zeros(runs), **kept)
    assert pruned.population == population and pruned.sample_of == 'examples'
    close, far = (
        claims.few_are_heterogeneous({'block': alike(0.3, spread)}) for spread in (0.0, 0.3)
    )
    if population == MOST_FINETUNINGS:
        assert far.high - far.low > 2 * (close.high - close.low)


def test_predictions_that_never_change_prove_little_in_few_examples():
    """None of a hundred changes, and yet a few in a hundred may; 769 examples are enough."""
    labels, right = np.arange(100) % 2, np.random.default_rng(0).random(100) < 0.8
    baseline = np.where(right, labels, 1 - labels)
    unseen = claims.unseen_change('accuracy', baseline, labels)
    squared = scipy.stats.norm.isf(0.025) ** 2
    assert unseen == pytest.approx(squared / (100 + squared))
    for examples, expected in (
        (100, (TOO_FEW, TOO_FEW)),
        (755, (TOO_FEW, TOO_FEW)),
        (775, (DOES_NOT_HOLD, HOLDS)),
    ):
        given = np.resize(baseline, examples), np.resize(labels, examples)
        effects = significance.assess('accuracy', given[0][None], *given, names=['L1-H1'])
        found = claims.some_mask_helps(claims.HEAD_HELPS, effects)
        assert (found.verdict, claims.heads_are_not_needed(effects, [0]).verdict) == expected
        if examples == 100:
            assert effects.unseen == unseen and found.numbers['enough'] == 769
            assert (found.low, found.high) == pytest.approx((-100 * unseen, 100 * unseen))
    # F1 changes by more than accuracy: right answers of class 0 do not count.
    assert claims.unseen_change('f1', baseline, labels) > unseen
    assert 0.037 < claims.unseen_change('pearson', baseline, labels) < 0.074
    assert claims.unseen_change('pearson', baseline[:49], labels[:49]) == np.inf


def test_undefined_scores_decide_nothing():
    """Constant predictions have no correlation."""
    rng = np.random.default_rng(0)
    labels = rng.normal(size=2000)
    predictions, baseline = np.stack([labels + 0.1, np.zeros(2000)]), labels + rng.normal(size=2000)
    known = {'rounds': 200, 'names': ['L1-H1', 'L1-H2']}
    found = significance.assess('pearson', predictions, baseline, labels, **known)
    assert np.isnan(found.difference[1])
    verdict = claims.heads_are_not_needed(found, [0, 1])
    assert verdict.verdict == UNDECIDED and math.isnan(verdict.estimate)
    assert re.search('L1-H2 .*undefined', verdict.evidence)
    undefined = significance.assess('pearson', 0 * predictions, baseline, labels, **known)
    verdict = claims.some_mask_helps(claims.HEAD_HELPS, undefined)
    assert verdict.verdict == UNDECIDED and 'nan' not in verdict.evidence


def test_the_evidence_is_a_head_that_helps():
    """And not one that gains more by chance."""
    effects = effects_of((0.03, 0.01), (-0.01, 0.008), (0.07, 0.012), (0.3, 1e-4), (0.3, 2e-4))
    verdict = claims.some_mask_helps(claims.HEAD_HELPS, effects)
    assert verdict.verdict == HOLDS
    assert verdict.numbers == {'masks': 2, 'helpful': 1, 'name': 'L1-H2'}
    assert 'For 1 of 2 heads,' in verdict.evidence
    assert (verdict.estimate, verdict.low, verdict.high) == pytest.approx((1.0, 0.8, 1.2))
    layers = claims.some_mask_helps(claims.LAYER_HELPS, effects)
    assert 'For 1 of 2 layers,' in layers.evidence


@pytest.mark.parametrize(('high', 'verdict'), [(-0.0018, UNDECIDED), (-0.006, DOES_NOT_HOLD)])
def test_a_real_loss_may_still_be_a_small_one(high, verdict):
    effects = effects_of((high - 0.003, 0), (high - 0.006, 0), (high, 0), (1e-4, 1), (2e-4, 1))
    decided = claims.heads_are_not_needed(effects, [0, 1])
    assert decided.verdict == verdict and decided.what.startswith('score without L1-H1')
    assert decided.evidence.startswith('Disabling L1-H1 ')


def every_verdict():
    """Every sentence that there is, with its variants: of worlds, and of what these lack."""
    rng = np.random.default_rng(0)
    for world in WORLDS.values():
        for margin in (world.clear, 0.0, -world.clear):
            yield world.draw(rng, margin)
    rare, clear = everywhere(0.3, examples=3), everywhere(0.2, scatter=0.01)
    vague = everywhere(0.2, scatter=1.0, examples=25)
    features = {'noun': clear, 'negation': rare, 'verb': vague, 'object': rare}
    yield claims.not_measured(claims.FRAMES, 'an analysis of frames')
    yield claims.attention_moves_from_cls_to_sep(by_layer((0.9,)), by_layer((0.9,)))
    yield claims.vertical_patterns_are_special(np.zeros((3, 4)), clear)
    for special, types in ((clear, features), (vague, features), (vague, {'noun': rare})):
        yield claims.features_are_negligible(special, special, types)
    yield claims.cls_attends_most_to_sep({'[SEP]': clear, **features})
    nowhere = positions(clear, np.nan, np.nan)
    yield claims.position_explains(claims.NOUN_PRONOUN, {'noun to verb': nowhere})
    yield claims.cls_looks_broadly([clear] * 3, [clear] * 3)
    yield claims.sep_moves_little(clear, clear)
    for unseen, difference in itertools.product(
        (0.0, 0.001, math.inf), (0.02, 0.0, -0.02, math.nan)
    ):
        p_value = math.nan if math.isnan(difference) else 1e-6 if difference else 1.0
        middle = np.array([difference, 0.001])
        effects = effects_of(
            middle, middle - 0.001, middle + 0.001, (p_value, 1.0), unseen=unseen, examples=300
        )
        for claim in (claims.HEAD_HELPS, claims.LAYER_HELPS):
            yield claims.some_mask_helps(claim, effects)
        yield claims.heads_are_not_needed(effects, [1, 0])
    nothing = effects_of(*([np.nan] * 2 for _ in range(4)), examples=9)
    yield claims.some_mask_helps(claims.HEAD_HELPS, nothing)
    for difference, changed in ((0.0, 3), (math.nan, 0)):
        average = MeanEffect(difference, 0.005, difference - 0.01, difference + 0.01, changed, 100)
        yield claims.a_random_head_helps(average, heads=144)
    yield claims.relations_have_heads({'det': (0.4, 0.3, 9)})


@pytest.fixture(scope='module')
def verdicts() -> list[claims.Verdict]:
    """The same, those by hand, and as of several runs."""
    single = [*every_verdict(), *(found for found, *_ in BY_HAND)]
    together = [
        claims.in_all_runs(one, runs)
        for one, other in itertools.pairwise(single)
        for runs in ({'seed 0': one}, {'seed 0': one, 'seed 1': other})
    ]
    return single + together


NUMBER = re.compile(r'(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?')


def test_there_are_verdicts_of_every_kind(verdicts):
    outcomes = {HOLDS, DOES_NOT_HOLD, UNDECIDED, TOO_FEW, NOT_MEASURED}
    assert {found.verdict for found in verdicts} == outcomes
    found = [value for value in vars(claims).values() if isinstance(value, claims.Claim)]
    assert len(found) == 28
    # The worlds come first, and every claim has its own, or one whose test is the same.
    of_worlds = {each.claim for each in verdicts[: 3 * len(WORLDS)]}
    assert of_worlds | {claims.LAYER_HELPS, claims.NOUN_PRONOUN} == set(found)
    for claim in found:
        assert re.match(r'[A-Z]\w+ et al\. \d{4}, \w', claim.source)
        assert set(claim.section.split(',')) <= SECTIONS.keys()
        assert len(claim.short.split()) <= 12
        for sentence in (claim.text, claim.bound, claim.limits):
            assert sentence.endswith('.') and longest_sentence(sentence) <= 25


def test_numbers_agree_with_the_verdict(verdicts):
    for found in verdicts:
        if not math.isnan(found.low):
            assert found.low <= found.estimate <= found.high
            assert found.what and found.unit and found.sample
            assert not math.isnan(found.threshold)
        assert math.isnan(found.p_if_false) or 0 <= found.p_if_false <= 1
        assert math.isnan(found.p_if_true) or 0 <= found.p_if_true <= 1
        if found.verdict == NOT_MEASURED:
            assert math.isnan(found.p) and not found.population
        else:
            assert (found.verdict == HOLDS) == (found.p_if_false <= claims.LEVEL)
            if found.verdict != HOLDS:
                assert (found.verdict == DOES_NOT_HOLD) == (found.p_if_true <= claims.LEVEL)


def test_the_numbers_of_a_sentence_are_those_of_its_fields(verdicts):
    """All of them in order, each as near as it is written, and no other."""
    for found in verdicts:
        shown = [
            (found.fields[name], spec)
            for _, name, spec, _ in string.Formatter().parse(found.template)
            # A word that agrees with a number is no number.
            if name is not None and not spec.startswith('|')
        ]
        written = NUMBER.findall(found.evidence)
        for value, spec in shown:
            if isinstance(value, str):
                expected = NUMBER.findall(value)
                assert [written.pop(0) for _ in expected] == expected
                continue
            assert math.isfinite(value), found.evidence
            number = written.pop(0)
            digits = re.search(r'\.(\d+)', number.split('e')[0])
            half = 0.5 * 10.0 ** -(len(digits[1]) if digits else 0)
            half *= 10 ** float(number.split('e')[1]) if 'e' in number else 1
            assert abs(float(number) - value) <= half * (1 + 1e-9), (number, value, spec)
        assert not written, found.evidence


def test_sentences_are_whole(verdicts):
    for found in verdicts:
        assert found.evidence.endswith('.') and '  ' not in found.evidence
        assert not re.search(
            r'\b(nan|inf)\b|[{}]|\.\.|\( |\b1 (examples|heads|layers|runs)\b', found.evidence
        )
        assert longest_sentence(found.evidence) <= 25, found.evidence
        assert ' p = ' not in found.evidence
        # No field is hidden by one of the verdict's own.
        assert len(found.fields) == len(found.numbers) + 8


def test_a_verdict_can_be_stored(verdicts):
    for found in verdicts:
        for field in dataclasses.fields(found):
            value = getattr(found, field.name)
            if field.name == 'numbers':
                assert type(value) is dict
                assert {type(each) for each in value.values()} <= {float, int, str}
            elif field.name != 'claim':
                assert type(value).__name__ == field.type.__name__
        stored = json.loads(json.dumps(dataclasses.asdict(found)))
        stored['claim'] = claims.Claim(**stored['claim'])
        # NaN is not itself.
        assert repr(claims.Verdict(**stored)) == repr(found)


def most(draws) -> float:
    """How often a wrong verdict may come out, beyond 5 % by the error of the simulation."""
    return 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)


@pytest.mark.slow
@pytest.mark.parametrize('world', WORLDS.values(), ids=WORLDS)
def test_just_true_and_just_false(world):
    """The wrong verdict comes out in one of twenty draws at most."""
    assert world.rate(DOES_NOT_HOLD, 0.01 * world.clear, world.draws) <= most(world.draws)
    assert world.rate(HOLDS, -0.01 * world.clear, world.draws) <= most(world.draws)


@pytest.mark.parametrize('world', WORLDS.values(), ids=WORLDS)
def test_clearly_true_and_clearly_false(world):
    """Either verdict can come out."""
    assert world.rate(HOLDS, world.clear, 30) >= 0.9
    assert world.rate(DOES_NOT_HOLD, -world.clear, 30) >= 0.9


@pytest.mark.parametrize('world', WORLDS.values(), ids=WORLDS)
@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32 - 1), share=st.floats(-1, 1))
def test_a_claim_and_its_contrary_exclude_each_other(world, seed, share):
    """Whatever the data, one of the two p-values at most is small."""
    excludes(world.draw(np.random.default_rng(seed), share * world.clear))


@hypothesis.given(
    masks=st.lists(
        st.tuples(*[st.floats(-0.02, 0.02)] + 2 * [st.floats(0, 0.02)] + [st.floats(0, 1)]),
        min_size=2,
        max_size=5,
    )
)
def test_effects_and_their_absence_exclude_each_other(masks):
    difference, below, above, p = np.transpose(masks)
    effects = effects_of(difference, difference - below, difference + above, p)
    excludes(claims.some_mask_helps(claims.HEAD_HELPS, effects))
    excludes(claims.heads_are_not_needed(effects, [0, 1]))


def excludes(found):
    assert not (found.p_if_false <= claims.LEVEL and found.p_if_true <= claims.LEVEL)


def test_gains_that_are_negligible_do_not_help():
    """Gains of .2 and .3 points are real, and the page calls less than half a point negligible."""
    effects = effects_of((0.002, 0.003), (0.001, 0.002), (0.003, 0.004), (1e-4, 1e-5))
    found = claims.some_mask_helps(claims.HEAD_HELPS, effects)
    assert found.verdict == DOES_NOT_HOLD and found.p_if_false == 1
    assert found.numbers['helpful'] == 0


@pytest.mark.slow
def test_outliers_that_are_like_others_are_not_needed():
    """Once in twenty times, drawn as random sets are; many are above the threshold."""
    rng, holds, large = np.random.default_rng(0), 0, 0
    for _ in range(200):
        own, *random = rng.exponential(size=40)
        found = worlds.outlier_losses(rng, own, random)
        holds += found.verdict == HOLDS
        large += found.estimate > claims.OUTLIERS_NEEDED.threshold
    assert holds / 200 <= most(200)
    assert large > 200 / 4


@pytest.mark.parametrize('seeds', [1, 3])
def test_an_order_that_is_like_random_ones_tells_nothing(seeds):
    """Drawn as random orders are, it is above or below their mean, and mostly neither verdict."""
    rng, found = np.random.default_rng(0), []
    for _ in range(200):
        right, _ = worlds.of_seeds(rng, seeds)
        loss = 0.05 + 0.02 * rng.normal()
        found.append(worlds.order_among_random(rng, right, loss).verdict)
    assert max(found.count(HOLDS), found.count(DOES_NOT_HOLD)) / 200 <= most(200)


# How runs differ, and on which sides of 0 most of them are not.
RUNS = {
    'normal': (lambda rng, shape: rng.normal(size=shape), (HOLDS, DOES_NOT_HOLD)),
    'skewed, the median at 0': (
        lambda rng, shape: rng.exponential(size=shape) - np.log(2),
        (HOLDS, DOES_NOT_HOLD),
    ),
    'skewed': (lambda rng, shape: rng.exponential(size=shape) - 1, (HOLDS,)),
    'one in five fails': (
        lambda rng, shape: np.where(rng.random(shape) < 0.2, -2.0, 0.5),
        (DOES_NOT_HOLD,),
    ),
    'half fail': (
        lambda rng, shape: np.where(rng.random(shape) < 0.5, -1.0, 1.0),
        (HOLDS, DOES_NOT_HOLD),
    ),
}


def of_runs(claim, rng, own):
    """Return a verdict on runs whose parts of a claim are above its threshold by `own` [R]."""
    runs = len(own)
    if claim == 'pre-training':
        scores = 0.7 + 0.005 * rng.normal(size=(2, runs)) + [0.05 * own, 0 * own]
        return claims.pretraining_helps(*scores.tolist())
    if claim == 'last layers':
        lead = claims.LAST_LAYERS.threshold + 0.05 * own
        return claims.last_layers_change_most(
            [of_layers(rng, [0.9, 0.8, 0.8 - each, 0.4]) for each in lead]
        )
    effects = 0.03 * own + 0.005 * rng.normal(size=runs) + 0.005 * rng.normal()
    return claims.a_random_head_helps(
        [MeanEffect(each, 0.008, each - 0.016, each + 0.016, 50, 400) for each in effects], heads=72
    )


@pytest.mark.parametrize('runs', [5, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize('world', RUNS)
@pytest.mark.parametrize('claim', ['pre-training', 'last layers', 'random head'])
def test_runs_that_differ_or_fail(claim, world, runs):
    """On a side where most runs are not, a verdict is rare."""
    rng, (make, wrong), draws = np.random.default_rng(0), RUNS[world], 200
    found = [of_runs(claim, rng, make(rng, runs)).verdict for _ in range(draws)]
    assert max(found.count(each) for each in wrong) / draws <= most(draws)


@pytest.mark.slow
@pytest.mark.parametrize('seeds', [6, 10])
@pytest.mark.parametrize('world', RUNS)
def test_heads_of_several_runs(world, seeds):
    """Some head of twelve helps most fine-tunings, or one of two is needed: at the border, rare."""
    make, wrong = RUNS[world]
    found = {claims.HEAD_HELPS: [], claims.FRAME_HEADS: []}
    for number in range(100):
        rng = np.random.default_rng(number)
        values = 0.01 * make(rng, (seeds, 12))[..., None] + 0.03 * rng.normal(size=(12, 100))
        values += 0.03 * rng.normal(size=(seeds, 12, 100))
        gains, losses = (worlds.over_seeds(values + each) for each in (0.005, -0.005))
        found[claims.HEAD_HELPS].append(claims.some_mask_helps(claims.HEAD_HELPS, gains).verdict)
        found[claims.FRAME_HEADS].append(claims.heads_are_not_needed(losses, [0, 1]).verdict)
    for verdicts in found.values():
        assert max(verdicts.count(each) for each in wrong) <= 7


@pytest.mark.parametrize('claim', ['pre-training', 'last layers', 'random head'])
def test_runs_that_agree_decide(claim):
    """Most of five runs are far on one side, and all are on it."""
    rng = np.random.default_rng(1)
    for side, expected in ((1, HOLDS), (-1, DOES_NOT_HOLD)):
        found = [of_runs(claim, rng, side * (4 + rng.normal(size=5))).verdict for _ in range(30)]
        assert found.count(expected) >= 27
