"""Statements about gates that were learnt: counts, orders, and the sparsest model that is near."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.analyses.gates import SPARSEST, assess_gates
from bert_secrets_jax.pruning.gates import Gated

OPEN, SHUT, HALF = 4.0, -4.0, 0.5
SUBJECT = bs.analyses.Subject('a model', 'some texts')
EXAMPLES = 400
NO_ORDER = 'Each of 6 heads is open in {} of 2 runs (lambda from 0.001 to 1): raise'


def answers(count, labels):
    """Logits that answer so many examples wrongly."""
    right = np.arange(EXAMPLES) >= count
    return np.eye(2, dtype=np.float32)[np.where(right, labels, 1 - labels)]


def made(log_alpha, wrong=(), *, logits=None, intact=None, metric='accuracy', **changes):
    """Return a result of runs with these gates, of which each answers so many examples wrongly."""
    log_alpha = np.array(log_alpha, np.float32)
    runs = len(log_alpha)
    labels = changes.setdefault('labels', np.arange(EXAMPLES) % 2)
    if logits is None:
        logits, intact = np.stack([answers(each, labels) for each in wrong]), answers(20, labels)
    given = {
        'frozen': True, 'coefficients': np.geomspace(0.001, 1, runs), 'seeds': np.zeros(runs, int),
    }  # fmt: skip
    gated = Gated(
        log_alpha=log_alpha, steps=np.array([5, 10]), expected_open=np.ones((runs, 2), np.float32),
        losses=np.ones((runs, 2), np.float32), intact=intact, gated=logits, rounded=logits,
        **given | changes,
    )  # fmt: skip
    return dataclasses.replace(assess_gates(gated, (metric,), seed=0), subject=SUBJECT)


LOG_ALPHA = [
    [[OPEN, OPEN, OPEN], [OPEN, HALF, OPEN]],
    [[OPEN, -HALF, SHUT], [OPEN, SHUT, OPEN]],
    [[OPEN, SHUT, SHUT], [SHUT, SHUT, SHUT]],
]


@pytest.fixture(scope='module')
def result():
    """Three prices; the second model is within a point of the intact one, the third is not."""
    return made(LOG_ALPHA, (20, 23, 60))


def sentence(result, name):
    (found,) = [each for each in result.findings() if each.name == name]
    return found.sentence


def test_heads_are_counted(result):
    frame = result.frames()['runs']
    assert frame['heads_open'].tolist() == [6, 4, 1]
    # -0.5 is below one half, and 0.5 above it.
    assert frame['heads_kept'].tolist() == [6, 3, 1]
    assert frame['share_converged'].tolist() == pytest.approx([5 / 6, 5 / 6, 1])
    assert frame['score_intact_points'].tolist() == pytest.approx([95] * 3)
    assert frame['score_rounded_points'].tolist() == pytest.approx([95, 377 / 4, 85])
    assert frame['difference_gated_points'].tolist() == pytest.approx([0, -3 / 4, -10])
    assert 5 < -frame['high_rounded_points'][2] < 10 < -frame['low_rounded_points'][2]
    assert frame['p_value_rounded'][2] == pytest.approx(2 * 0.5**40)


def test_heads_have_an_order(result):
    heads = result.frames()['heads']
    # L1-H3, L2-H2 close at the second price; L1-H2, L2-H1, L2-H3 at the third; L1-H1 never.
    np.testing.assert_array_equal(heads['order'], [np.nan, 3, 1, 3, 1, 3])
    middle = np.sqrt(0.001)
    np.testing.assert_allclose(heads['closes_at_lambda'], [np.nan, 1, middle, 1, middle, 1])
    np.testing.assert_allclose(heads['share_of_runs_open'] * 3, [3, 2, 1, 2, 1, 2])
    assert heads['gate_at_lambda_1'].tolist() == [1, 0, 0, 0, 0, 0]
    last = sentence(result, 'heads that close last')
    assert last == 'L1-H1 closes last: open in 3 of 3 runs.'
    values = result.frames()['values']
    assert len(values) == 18 and (values['gate'] == 0).sum() == 7


def test_the_sparsest_model_near_the_full_one(result):
    assert sentence(result, SPARSEST) == (
        'With 3 of 6 heads, accuracy changes by -0.75 points; no sparser model is within 1 point '
        'of the full one.'
    )
    assert result.findings()[0].where == 'lambda = 0.0316228'
    # Where none is near, it is the nearest.
    none = made(LOG_ALPHA, (30, 40, 60)).findings()[0].sentence
    assert none.startswith('With 6 of 6 heads, accuracy changes by -2.50 points; no sparser model')
    # The better one of two models with as many heads counts.
    two = made([LOG_ALPHA[1], LOG_ALPHA[1]], (23, 21), coefficients=np.array([0.1, 0.2]))
    assert two.findings()[0].where == 'lambda = 0.2'


def test_seeds_are_averaged():
    result = made(
        [LOG_ALPHA[0], LOG_ALPHA[1], LOG_ALPHA[1], LOG_ALPHA[2]], (20, 21, 22, 60),
        coefficients=np.array([0.1, 0.1, 0.2, 0.2]), seeds=np.array([0, 1, 0, 1]),
    )  # fmt: skip
    # Closed in half of the seeds.
    closes = result.frames()['heads']['closes_at_lambda']
    np.testing.assert_allclose(closes, [np.nan, 0.2, 0.1, 0.2, 0.1, 0.2])


@pytest.mark.parametrize(
    ('levels', 'changes', 'beginning'),
    [
        ((OPEN, OPEN), {}, NO_ORDER.format(2)),
        ((SHUT, SHUT), {}, NO_ORDER.format(0)),
        # Heads that close in as many runs have no order.
        ((OPEN, SHUT), {}, NO_ORDER.format(1)),
        ((OPEN, HALF), {'labels': 1 * (np.arange(EXAMPLES) < 390)}, 'Not learnt: the intact model'),
    ],
)
def test_warnings_come_first(levels, changes, beginning):
    result = made([np.full((2, 3), level) for level in levels], (20, 20), **changes)
    first = result.findings()[0]
    assert first.warning and first.sentence.startswith(beginning)
    assert 'heads that close last' not in [each.name for each in result.findings()]
    assert all(figure for figure in result.figures().values())


def test_constant_predictions_of_a_regression_have_no_score():
    labels = np.arange(EXAMPLES, dtype=np.float64)
    logits = np.stack([labels[:, None], np.zeros((EXAMPLES, 1))]).astype(np.float32)
    result = made(
        LOG_ALPHA[1:], logits=logits, intact=logits[0], metric='pearson', labels=labels,
        frozen=False,
    )  # fmt: skip
    assert sentence(result, SPARSEST).startswith('With 3 of 6 heads, ')
    assert 'nan' not in str(result) and 'trained together' in result.notes()[0]
    assert np.isnan(result.frames()['runs']['score_rounded_points'][1])
