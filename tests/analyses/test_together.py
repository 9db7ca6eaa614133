"""Claims of several tasks and models together: the correction for how many tests there are."""

import math

import numpy as np
import pytest
import scipy.stats

import bert_secrets_jax as bs
from bert_secrets_jax.analyses import verdicts as claims
from bert_secrets_jax.analyses.claims import side_by_side
from bert_secrets_jax.analyses.verdicts import DOES_NOT_HOLD, HOLDS, UNDECIDED
from bert_secrets_jax.stats.influence import mean_effect

CLAIMS, TASKS = 12, 4


def test_an_example_by_hand():
    """Three claims: two tests of 'a', two of 'b', of which one is not known, and one of 'c'."""
    found = claims.corrected(list('aabbc'), [0.001, 0.2, 0.03, math.nan, 0.5])
    # Doubled, and within claims: .004, .8; .06; 1. Claims are selected from .012, .09 and 1 on. 'a'
    # has .004 * 3 = .012 with a single claim selected, and 'b' has .06 * 3 / 2 = .09 with two.
    assert found == pytest.approx([0.012, 1.0, 0.09, math.nan, 1.0], nan_ok=True)
    assert np.isnan(claims.corrected(['a'], [math.nan])).all()
    assert claims.corrected(['a'], [0.02]) == pytest.approx([0.04])


@pytest.mark.parametrize('shared', [0.0, 0.6])
@pytest.mark.parametrize('real', [0, 6])
def test_how_often_a_selected_claim_has_a_wrong_verdict(shared, real):
    """In one of twenty at most: of the others, almost every verdict is right by chance."""
    rng, runs, found = np.random.default_rng(0), 400, 0
    wrong = {'corrected': 0.0, 'alone': 0.0}
    names = list(np.repeat(np.arange(CLAIMS), TASKS))
    for _ in range(runs):
        side = rng.choice([-1, 1], (CLAIMS, TASKS))
        size = np.where(np.arange(CLAIMS)[:, None] < real, 4.5, 1e-6)
        noise = np.sqrt(shared) * rng.normal(size=TASKS)
        z = side * size + noise + np.sqrt(1 - shared) * rng.normal(size=(CLAIMS, TASKS))
        alone = scipy.stats.norm.sf(np.abs(z))
        adjusted = claims.corrected(names, list(alone.ravel())).reshape(z.shape)
        for which, values in (('corrected', adjusted), ('alone', alone)):
            decided = values <= claims.LEVEL
            mistaken = (decided & (np.sign(z) != side)).any(axis=1)
            wrong[which] += mistaken.sum() / max(decided.any(axis=1).sum(), 1) / runs
        found += (adjusted[:real] <= claims.LEVEL).sum()
    assert wrong['corrected'] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
    # It is needed, and what is clear is found.
    assert wrong['alone'] > 0.07
    assert found >= 0.8 * runs * real * TASKS


def verdict(claim, p_if_false, p_if_true) -> claims.Verdict:
    outcome = HOLDS if p_if_false <= 0.05 else DOES_NOT_HOLD if p_if_true <= 0.05 else UNDECIDED
    return claims.Verdict(
        claim=claim, verdict=outcome, template='It is so.', population=claims.THIS_MODEL,
        p_if_false=p_if_false, p_if_true=p_if_true,
    )  # fmt: skip


def test_the_table_of_tasks():
    """Raw p-values stand beside corrected ones, and what does not survive is undecided."""
    strong, weak = claims.LAST_LAYERS, claims.FEATURES
    none = claims.not_measured(claims.FRAMES, 'x')
    verdicts = {
        task: (verdict(strong, 1e-6, 1.0), verdict(weak, 1.0, p), none)
        for task, p in (('MRPC', 0.04), ('RTE', 0.6))
    }
    over = {'tiny': (claims.not_measured(claims.SAME_HEADS, 'two tasks'),)}
    frames = side_by_side(bs.analyses.Comparison({}, verdicts, over, {}, {})).frames()
    wide, every = frames['claims'].set_index('claim'), frames['claims_corrected']
    assert list(wide.loc[strong.text, ['MRPC', 'RTE']]) == ['holds (p = 1e-06; 8e-06)'] * 2
    assert wide.loc[weak.text, 'MRPC'] == 'undecided (p = 0.04; 0.16)'
    row = every[(every['claim'] == weak.text) & (every['run'] == 'MRPC')].iloc[0]
    assert (row['verdict'], row['verdict_corrected']) == (DOES_NOT_HOLD, UNDECIDED)
    assert (row['p'], row['p_corrected']) == pytest.approx((0.04, 0.16))
    assert list(frames['claims_over_tasks']['model']) == ['tiny']


@pytest.mark.parametrize('metric', ['accuracy', 'f1', 'pearson'])
def test_the_mean_effect_is_that_of_the_masks(metric):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200).astype(float)
    noisy = labels + 0.8 * rng.normal(size=(5, 200))
    predictions = noisy if metric == 'pearson' else (noisy > 0.5).astype(float)
    found = mean_effect(metric, predictions[1:], predictions[0], labels)
    each = bs.significance.assess(metric, predictions[1:], predictions[0], labels)
    assert found.difference == pytest.approx(each.difference.mean())
    assert found.low < found.difference < found.high and found.examples == 200
    assert found.error == pytest.approx((found.high - found.low) / 3.92, rel=0.15)
    assert found.changed == np.any(predictions[1:] != predictions[0], axis=0).sum()
    same = mean_effect(metric, predictions[:1], predictions[0], labels)
    assert (same.difference, same.changed, same.examples) == (0, 0, 200)
    # A correlation reckons with texts that the sample lacks.
    assert (same.low < 0 < same.high) == (metric == 'pearson')
    assert claims.a_random_head_helps(same, heads=1).verdict == UNDECIDED


def test_correlations_with_heavy_tails_are_found_to_differ_too_often():
    """Two equally good models, the errors of one of which have Student's t of three degrees."""
    rng, found, runs = np.random.default_rng(0), 0, 200
    for _ in range(runs):
        labels, normal = rng.normal(size=(2, 500))
        heavy = rng.standard_t(3, 500) / np.sqrt(3)
        data = (labels + 0.5 * heavy)[None], labels + 0.5 * normal, labels
        found += bs.significance.assess('pearson', *data).p_value[0] <= 0.05
    assert found / runs > 0.07
    assert 'one case of ten or more' in claims.HEAD_HELPS.limits
