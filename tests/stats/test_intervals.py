"""Intervals of differences of scores: by definition, and where few predictions change."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from bert_secrets_jax.finetune import metrics
from bert_secrets_jax.stats import confusion, intervals
from tests.stats.rates import chance

LABEL, INTACT, MASKED = np.indices((2, 2, 2)).reshape(3, 8)
DRAWS = 10_000
OF_TWO = ('accuracy', 'f1', 'f1_macro', 'matthews')
# Who changes what: right positives and right negatives that are lost, wrong ones that are mended.
MIXES = {
    'to and fro': {(1, 1): 0.25, (0, 0): 0.25, (1, 0): 0.25, (0, 1): 0.25},
    'mostly lost': {(1, 1): 0.4, (0, 0): 0.4, (1, 0): 0.1, (0, 1): 0.1},
    'only positives lost': {(1, 1): 1.0},
    'only negatives lost': {(0, 0): 1.0},
    'only mended': {(1, 0): 0.5, (0, 1): 0.5},
}


def world(mix, changed, *, positive=0.6, wrong=0.15):
    """The share of each kind of example (label, intact answer, masked answer)."""
    shares = np.where(LABEL == 1, positive, 1 - positive) * np.where(
        LABEL == INTACT, 1 - wrong, wrong
    )
    shares = np.where(INTACT == MASKED, shares, 0)
    for (label, intact), part in MIXES[mix].items():
        this = (label == LABEL) & (intact == INTACT)
        shares[this & (intact == MASKED)] -= changed * part
        shares[this & (intact != MASKED)] += changed * part
    assert shares.min() >= 0
    return shares


def counted(metric, counts):
    """Counts [M, 8] of the kinds of examples, as `intervals.count` returns them."""
    kinds = np.stack([LABEL, INTACT, MASKED], axis=1)
    if metric == 'accuracy':
        kinds = np.stack([np.ones(8, int), INTACT == LABEL, MASKED == LABEL], axis=1)
    return intervals.Counted(metric, counts.astype(float), kinds, 2)


def of_accuracy(examples, gained, lost):
    """Counts of a mask that gains and loses so many examples; 70 in 100 were right."""
    both = round(0.7 * examples) - lost
    counts = np.array([[examples - both - gained - lost, gained, lost, both]], float)
    kinds = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])
    return intervals.Counted('accuracy', counts, kinds, 2)


def differences(table):
    return np.diff(confusion.score(table.metric, table.confusions), axis=0)[0]


def drawn(metric, shares, examples, seed, draws=DRAWS):
    """Counts of several samples, and the true difference."""
    counts = np.random.default_rng(seed).multinomial(examples, shares, size=draws)
    return counted(metric, counts), float(differences(counted(metric, shares[None]))[0])


@pytest.mark.parametrize('classes', [2, 4])
@pytest.mark.parametrize('metric', confusion.METRICS)
def test_counts_have_the_scores_of_the_answers(metric, classes):
    rng = np.random.default_rng(0)
    labels, baseline = rng.integers(0, 2 if metric == 'f1' else classes, (2, 50))
    predictions = rng.integers(0, classes, (20, 50))
    found = intervals.count(metric, predictions, baseline, labels)
    score = metrics.METRICS[metric]
    expected = [score(row, labels) - score(baseline, labels) for row in predictions]
    np.testing.assert_allclose(differences(found), expected, atol=1e-12)
    statistics = intervals.score_statistics(found, differences(found))
    np.testing.assert_allclose(statistics, 0, atol=1e-8)


@pytest.mark.parametrize('gained, lost', [(0, 0), (3, 0), (0, 4), (2, 9), (30, 31)])
def test_statistic_of_accuracy_is_that_of_tango(gained, lost):
    """His closed form (1998): the share lost in truth solves a quadratic equation."""
    examples = 150
    table = of_accuracy(examples, gained, lost)
    for difference in (-0.2, -0.03, -0.005, 0.01, 0.1):
        b = -gained - lost + (2 * examples - gained + lost) * difference
        c = -lost * difference * (1 - difference)
        share = (np.sqrt(b * b - 8 * examples * c) - b) / (4 * examples)
        error = np.sqrt(examples * (2 * share + difference * (1 - difference)))
        expected = (gained - lost - examples * difference) / error
        found = intervals.score_statistics(table, np.array([difference]))
        assert found[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize('metric', OF_TWO)
def test_ends_are_where_the_test_turns(metric):
    table, _ = drawn(metric, world('mostly lost', 0.03), 400, seed=1, draws=40)
    low, high = intervals.score_limits(table, below=0.025, above=0.1)
    assert (low <= differences(table)).all() and (differences(table) <= high).all()
    at = lambda given: intervals.score_statistics(table, given)
    np.testing.assert_allclose(at(low), scipy.stats.norm.isf(0.025), atol=1e-5)
    np.testing.assert_allclose(at(high), -scipy.stats.norm.isf(0.1), atol=1e-5)
    # Nothing outside is accepted: the statistic falls with the hypothesis.
    values = np.stack([at(np.full(40, step)) for step in np.linspace(-0.3, 0.3, 61)])
    assert (np.diff(values, axis=0) <= 1e-9).all()


def test_no_change_still_leaves_a_doubt():
    """The interval is that of a share of which none was seen, in either direction."""
    square = scipy.stats.norm.isf(0.025) ** 2
    for examples in (277, 872):
        table = counted('accuracy', np.where(INTACT == MASKED, examples / 4, 0)[None])
        low, high = intervals.score_limits(table, below=0.025, above=0.025)
        expected = square / (examples + square)
        assert (-low[0], high[0]) == pytest.approx((expected, expected), abs=1e-6)
    of_f1 = counted('f1', 277 * world('to and fro', 0)[None])
    low, high = intervals.score_limits(of_f1, below=0.025, above=0.025)
    assert -0.025 < low[0] < -0.005 and 0.005 < high[0] < 0.025


@pytest.mark.parametrize('labels', [np.zeros(30, int), np.ones(30, int)])
@pytest.mark.parametrize('baseline', [np.zeros(30, int), np.ones(30, int)])
def test_nothing_of_class_one_leaves_everything_open(labels, baseline):
    table = intervals.count('f1', baseline[None], baseline, labels)
    low, high = intervals.score_limits(table, below=0.025, above=0.025)
    assert -1 <= low[0] <= 0 <= high[0] <= 1
    if not labels.any() and not baseline.any():
        assert (low[0], high[0]) == pytest.approx((-1, 1))


def covered(metric, mix, changed, examples, *, seed):
    """Return the share of intervals that hold the true difference."""
    table, truth = drawn(metric, world(mix, changed), examples, seed=seed)
    statistics = intervals.score_statistics(table, np.full(DRAWS, truth))
    return np.mean(np.abs(statistics) <= scipy.stats.norm.isf(0.025))


@pytest.mark.slow
@pytest.mark.parametrize('metric', OF_TWO)
@pytest.mark.parametrize('mix', MIXES)
@pytest.mark.parametrize('changed', [0.005, 0.01, 0.02, 0.05])
def test_coverage_where_few_predictions_change(metric, mix, changed):
    """At least .93 in every single world, however few and one-sided its changes are."""
    for examples in (277, 408, 872):
        share = covered(metric, mix, changed, examples, seed=examples)
        assert share >= 0.93, (examples, share)


def test_coverage_on_average_over_worlds():
    """Near .95 where some examples change; with two expected, counts are too coarse for that."""
    for metric in OF_TWO:
        means = {
            changed: np.mean([covered(metric, mix, changed, 408, seed=3) for mix in MIXES])
            for changed in (0.005, 0.01, 0.02, 0.05)
        }
        assert 0.95 <= means[0.005] <= 0.995 and 0.95 <= means[0.01] <= 0.985, means
        assert 0.94 <= means[0.02] <= 0.97 and 0.94 <= means[0.05] <= 0.96, means


def at_the_border(metric, mix, margin, sign):
    """Shares whose difference is the margin in one direction, beside changes of a mix."""
    lost = [(1, 1), (0, 0)] if sign < 0 else [(1, 0), (0, 1)]

    def moved(more):
        shares = world('to and fro', mix)
        for label, intact in lost:
            this = (label == LABEL) & (intact == INTACT)
            shares[this & (intact == MASKED)] -= more / 2
            shares[this & (intact != MASKED)] += more / 2
        return shares

    score = lambda more: abs(differences(counted(metric, moved(more)[None]))[0]) - margin
    # Just beyond the root.
    return moved(scipy.optimize.brentq(score, 0, 0.1) + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize('metric', OF_TWO)
@pytest.mark.parametrize('examples', [277, 560, 872, 1500, 4000])
def test_nothing_is_claimed_at_the_border(metric, examples):
    """Neither that a mask matters nor that it does not."""
    error = chance(DRAWS)
    for sign in (-1, 1):
        for changed in (0, 0.01, 0.04):
            shares = at_the_border(metric, changed, 0.005, sign)
            table, truth = drawn(metric, shares, examples, seed=6)
            assert abs(truth) == pytest.approx(0.005)
            rates = np.mean(np.array(intervals.against_margin(table, 0.005)) <= 0.05, axis=1)
            assert (rates <= 0.05 + error).all(), (sign, changed, rates)


def test_equivalence_is_found_where_there_is_none_to_fear():
    for examples, changed, least in ((872, 0, 1.0), (4000, 0.004, 0.9), (20_000, 0.02, 0.9)):
        table, _ = drawn('accuracy', world('to and fro', changed), examples, seed=7, draws=500)
        assert np.mean(intervals.against_margin(table, 0.005)[0] <= 0.05) >= least
