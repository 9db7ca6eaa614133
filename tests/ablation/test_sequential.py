"""A sweep that stops paying for decided masks: equal to the whole one, and seldom wrong."""

import dataclasses

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.ablation import sequential
from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.stats.effects import BETTER, NO_MATTER, OPEN, VERDICTS, WORSE, loss_in
from tests.conftest import PAIRS, killed_after_a_part


def models_of(rng, examples, noises):
    """Draw labels, and logits of models that know them through noise of their own."""
    labels = rng.integers(2, size=examples)
    margin = 2.0 * labels - 1 + np.stack([s * rng.normal(size=examples) for s in noises])
    return np.stack([-margin / 2, margin / 2], axis=-1), labels


@pytest.mark.parametrize('count', [4, pytest.param(200, marks=pytest.mark.slow)])
def test_verdicts_are_seldom_wrong(count):
    """Each mask knows as much as the intact model, and scales and offsets differ."""
    wrong = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        logits, labels = models_of(rng, 250, np.ones(8))
        logits = rng.uniform(0.5, 2, size=(8, 1, 1)) * logits + rng.normal(size=(8, 1, 2))
        found = bs.replay_until_decided(logits, labels, names=list('abcdefg'), seed=seed)
        wrong += found.counts[WORSE] + found.counts[BETTER] > 0
    assert wrong <= 0.05 * count + 2 * np.sqrt(0.05 * count)


@pytest.fixture(scope='module')
def known():
    """Logits of masks that lose much, gain much, change nothing, hardly anything, or a little.

    Most masks change hardly anything, as heads do.
    """
    rng = np.random.default_rng(3)
    logits, labels = models_of(rng, 600, [1.5, 5.0, 0.5])
    little = logits[0] + 0.02 * rng.normal(size=logits[0].shape)
    some = logits[0] + 0.8 * rng.normal(size=logits[0].shape)
    idle = logits[0] + 0.02 * rng.normal(size=(4, *logits[0].shape))
    return np.stack([*logits, 1.3 * logits[0] - 0.2, little, some, *idle]), labels


NAMES = [f'L1-H{head}' for head in range(1, 10)]


def test_verdicts(known):
    found = bs.replay_until_decided(*known, names=NAMES)
    assert found.verdict.tolist()[:4] == [WORSE, BETTER, NO_MATTER, NO_MATTER]
    assert found.verdict[4] in (WORSE, OPEN)
    assert sum(found.counts[each] for each in VERDICTS) == 9
    assert (found.examples[:4] <= 300).all() and found.margin == 0.01
    # Passes of the intact model last as long as those of any mask.
    assert found.passes == found.examples.sum() + found.examples.max()
    assert found.whole == 10 * 600 and found.saved == 1 - found.passes / 6000
    frame = found.frame()
    assert [*frame] == ['disabled', 'verdict', 'examples', 'estimate', 'low', 'high']
    assert frame['disabled'].tolist() == NAMES and (frame['low'] < frame['high']).all()
    # The fixed sweep of all texts says the same.
    whole = assess_outcomes([known[0]], known[1], names=NAMES)['discrimination']
    assert (found.low < whole.difference).all() and (whole.difference < found.high).all()


def test_a_fit_knows_earlier_texts_alone(known):
    """What comes later changes neither verdicts that stand nor what was read off until then."""
    logits, labels = known
    order = np.random.default_rng(0).permutation(len(labels))
    found = bs.replay_until_decided(logits, labels, names=NAMES)
    changed, labels = logits.copy(), labels.copy()
    last = found.examples[:4].max()
    assert last < len(labels)
    changed[:, order[last:]] *= -3
    labels[order[last:]] = 1 - labels[order[last:]]
    again = bs.replay_until_decided(changed, labels, names=NAMES)
    for name in ('verdict', 'examples', 'estimate', 'low', 'high'):
        np.testing.assert_array_equal(getattr(again, name)[:4], getattr(found, name)[:4])
    assert again.estimate[4] != found.estimate[4]


def test_a_regression_has_a_margin_of_its_own():
    rng = np.random.default_rng(0)
    labels = 3 * rng.normal(size=400)
    values = labels + np.array([1.0, 1.0, 4.0])[:, None] * rng.normal(size=(3, 400))
    values[1] = 2 * values[0] - 1
    found = bs.replay_until_decided(values[..., None], labels, names=NAMES[:2])
    assert found.verdict.tolist() == [NO_MATTER, WORSE]
    assert found.margin == pytest.approx(0.01 * labels.var())
    assert found.outcome.unit == 'squared error'


TEXTS = [
    bs.Example(a, b, label=(row + column) % 2)
    for row, (a, _) in enumerate(PAIRS)
    for column, (_, b) in enumerate(PAIRS)
] * 12
SETTINGS = {'block': 30, 'seed': 1}


@pytest.fixture
def tuned(model):
    return bs.with_classifier(model, ['no', 'yes'], seed=2)


def compared(tuned, folder=None, **changes):
    compute = bs.Compute(max_length=24, folder=folder)
    return bs.sweep_until_decided(tuned, TEXTS, compute=compute, **SETTINGS | changes)


def replayed(tuned, baseline='uniform', **changes):
    masks = bs.masks.single_heads(tuned.config)
    swept = bs.sweep_examples(
        tuned,
        TEXTS,
        bs.masks.with_intact(masks),
        baseline=baseline,
        compute=bs.Compute(max_length=24),
    )
    labels = np.array([each.label for each in TEXTS])
    names = [bs.masks.describe(mask) for mask in masks]
    return bs.replay_until_decided(swept.logits, labels, names=names, **SETTINGS | changes)


@pytest.mark.parametrize('baseline', ['uniform', 'resample'])
def test_equals_the_whole_sweep_where_nothing_is_dropped(tuned, baseline):
    found = compared(tuned, margin=1e-9, baseline=baseline)
    expected = replayed(tuned, margin=1e-9, baseline=baseline)
    assert found.passes == found.whole == 13 * len(TEXTS)
    assert np.ptp(expected.estimate) > 1e-3
    for name in ('estimate', 'low', 'high'):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=1e-4, rtol=1e-3
        )


def test_decided_masks_are_not_computed(tuned, monkeypatch):
    """As many as are counted, and verdicts are those of the whole sweep."""
    computed = []
    steps = sequential.Descent.steps

    def counted(self, batch, members):
        computed.append(batch.size * len(members))
        return steps(self, batch, members)

    monkeypatch.setattr(sequential.Descent, 'steps', counted)
    found = compared(tuned, margin=0.05)
    assert sum(computed) == found.passes < found.whole
    expected = replayed(tuned, margin=0.05)
    np.testing.assert_array_equal(found.verdict, expected.verdict)
    np.testing.assert_array_equal(found.examples, expected.examples)
    assert found.passes == expected.passes


def test_goes_on_where_it_was_killed(tuned, tmp_path, monkeypatch):
    expected = compared(tuned, margin=0.05)
    with killed_after_a_part(monkeypatch):
        compared(tuned, tmp_path, margin=0.05)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert kept
    found = compared(tuned, tmp_path, margin=0.05)
    for field in dataclasses.fields(found):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        ({'margin': 0.0}, 'margin=0.0 must be a number from 0'),
        ({'margin': np.nan}, 'margin=nan must be'),
        ({'level': 0.7}, 'level=0.7 must be a number from 0 to 0.5, but not 0'),
        ({'block': 3}, 'block=3 must be a whole number from 10'),
        (
            {'block': 600},
            'The first 600 texts are only fitted to, and there are 600: give at least two',
        ),
        (
            {'names': NAMES[:2]},
            r'logits must be \[intact and masks, examples, classes\] = \[3, 600, any\]',
        ),
    ],
)
def test_wrong_arguments_are_named(known, wrong, message):
    with pytest.raises(ValueError, match=message):
        bs.replay_until_decided(*known, **{'names': NAMES} | wrong)


def test_broken_logits_and_missing_labels_are_named(known, tuned):
    logits, labels = known
    with pytest.raises(FloatingPointError):
        bs.replay_until_decided(np.where(logits > 3, np.nan, logits), labels, names=NAMES)
    for wrong in (labels - 1, labels + 0.5, np.zeros(len(labels)), np.where(labels, np.nan, 0)):
        with pytest.raises(ValueError, match='classes from 0 to 1|all the same'):
            bs.replay_until_decided(logits, wrong, names=NAMES)
    with pytest.raises(ValueError, match='text/1 has no label'):
        bs.sweep_until_decided(tuned, [TEXTS[0], bs.Example('the cat', 'ran')] * 10)


def means_of(changes):
    """Return the effects of masks that change the loss of examples so [M, E]."""
    names = [f'L1-H{mask}' for mask in range(1, len(changes) + 1)]
    return assess_losses(changes, 0 * changes[0], names=names, outcome=loss_in('nats'))


def test_so_many_examples_are_enough():
    """From a first block of 100: what is there is then found in about 80 % of worlds."""
    rng = np.random.default_rng(0)
    spread = np.array([0.1, 0.2, 0.4])
    first = means_of(spread[:, None] * rng.normal(size=(3, 100)))
    needed = first.examples_for(0.04)
    assert needed[0] < needed[1] < needed[2]
    np.testing.assert_allclose(first.examples_for(0.02), 4 * needed)
    np.testing.assert_allclose(first.examples_for(first.detectable[1])[1], 100)
    found = [
        means_of(
            [[0], [0.04], [0]] + spread[:, None] * np.random.default_rng(seed).normal(size=(3, n))
        ).corrected[1]
        <= 0.05
        for seed in range(40)
        for n in [int(needed[1])]
    ]
    # Two standard errors, and that of the first block.
    assert 0.66 <= np.mean(found) <= 0.94


def test_unknown_numbers_of_examples_are_refused():
    effects = means_of(np.random.default_rng(0).normal(size=(3, 50)))
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match='must be a number above 0'):
            effects.examples_for(wrong)
    answers = np.random.default_rng(0).integers(2, size=(3, 50))
    scored = bs.significance.assess('accuracy', answers[1:], answers[0], answers[0])
    with pytest.raises(ValueError, match='accuracy takes is not known: ask for a mean'):
        scored.examples_for(0.01)
