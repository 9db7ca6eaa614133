"""Outcomes of masks that see more than a score, against other code and in simulated worlds."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.metrics

from bert_secrets_jax.ablation import outcomes
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.stats.effects import MATTERS, NO_MATTER, WORSE, Effects
from bert_secrets_jax.stats.seeds import assess_means_over_seeds

NAMES = [f'L1-H{head}' for head in range(1, 5)]


def logits_of(rng, examples=60, classes=2, models=5):
    """Draw labels, and logits of models that differ in what they know and how sure they are."""
    labels = rng.integers(classes, size=examples) if classes > 1 else rng.normal(size=examples)
    known = np.eye(classes)[labels] if classes > 1 else labels[:, None]
    scale = np.linspace(0.6, 1.6, models)[:, None, None]
    return scale * known + rng.normal(size=(models, examples, classes)), labels


def margins(values):
    """Return logits of two classes with these margins."""
    return np.stack([-values / 2, values / 2], axis=-1)


@pytest.mark.parametrize('classes', [2, 3])
def test_areas_equal_those_of_scikit_learn(classes):
    logits, labels = logits_of(np.random.default_rng(0), classes=classes)
    logits[1] = logits[1].round()  # ties
    probable = np.round(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True), 10)
    expected = [
        sklearn.metrics.roc_auc_score(
            labels, each[:, 1] if classes == 2 else each, multi_class='ovr'
        )
        for each in probable
    ]
    effects = assess_outcomes([logits], labels, names=NAMES)['auc']
    np.testing.assert_allclose(effects.intact, expected[0], atol=1e-12)
    np.testing.assert_allclose(effects.value, expected[1:], atol=1e-12)


@pytest.mark.parametrize('classes', [1, 2, 3])
def test_fits_are_the_best_on_other_examples(classes):
    logits, labels = logits_of(np.random.default_rng(1), examples=41, classes=classes)
    folds = outcomes.folds_of(labels, seed=3, alike=classes > 1)
    fitted = outcomes.refitted(logits, labels, seed=3)
    assert set(np.bincount(folds)) == {4, 5}
    for model, fold in ((0, 0), (2, 9)):
        values, others = logits[model], folds != fold

        def loss(parameters, values=values, others=others):
            pull = np.r_[(values**2).mean(), np.ones(classes)]
            near = parameters[0] * values[others] + parameters[1:]
            off = parameters - np.r_[1.0, np.zeros(classes)]
            return losses(near, labels[others]).sum() + pull @ off**2

        best = scipy.optimize.minimize(loss, np.r_[1.0, np.zeros(classes)], tol=1e-10).x
        expected = best[0] * values[~others] + best[1:]
        np.testing.assert_allclose(fitted[model, ~others], expected, atol=2e-3)


def losses(logits, labels):
    if logits.shape[-1] == 1:
        return (logits[:, 0] - labels) ** 2
    return np.log(np.exp(logits).sum(axis=-1)) - logits[np.arange(len(labels)), labels]


def test_scale_and_offset_are_calibration_alone():
    logits, labels = logits_of(np.random.default_rng(2), examples=300)
    logits = np.stack([logits[0], 2.5 * logits[0] + [0.4, -0.3], logits[0]])
    found = assess_outcomes([logits], labels, names=NAMES[:2])
    whole = losses(logits[1], labels).mean() - losses(logits[0], labels).mean()
    assert whole > 0.05
    assert abs(found['discrimination'].difference[0]) < 0.01 * whole
    parts = found['discrimination'].difference + found['calibration'].difference
    np.testing.assert_allclose(parts, [whole, 0], atol=1e-6)
    np.testing.assert_allclose(found['auc'].difference, 0, atol=1e-12)
    for effects in found.values():
        assert effects.difference[1] == 0 and effects.corrected[1] == 1


def test_how_far_answers_move():
    rng = np.random.default_rng(3)
    margin = rng.normal(size=(3, 200))
    labels = rng.integers(2, size=200)
    found = assess_outcomes([margins(margin)], labels, names=NAMES[:2])['answers']
    expected = np.abs(margin[1:] - margin[0]).mean(axis=1) / margin[0].std()
    np.testing.assert_allclose(found.difference, expected)
    regression = assess_outcomes([margin[..., None]], margin[0], names=NAMES[:2])['answers']
    np.testing.assert_allclose(regression.difference, expected)
    # A change counts from 5 % of the spread, and not from 0.
    near = np.stack([margin[0], margin[0] + 0.03 * np.abs(margin[1]), margin[0] + 0.3 * margin[1]])
    found = assess_outcomes([margins(near)], labels, names=NAMES[:2])['answers']
    assert found.low[0] > 0.01 and found.corrected[0] == 1 and found.corrected[1] < 0.001
    alike = np.zeros((2, 20, 2))
    assert 'answers' not in assess_outcomes([alike], labels[:20], names=NAMES[:1])
    assert 'auc' not in assess_outcomes([margins(near)], np.zeros(200, int), names=NAMES[:2])


@pytest.mark.parametrize('name', ['areas', 'answer_changes'])
def test_the_part_of_an_example_is_that_of_the_jackknife(name):
    logits, labels = logits_of(np.random.default_rng(4), examples=150, classes=3)
    labels[:3] = 0, 1, 2

    def value(kept):
        given = (logits[:, kept],) if name == 'answer_changes' else (logits[:, kept], labels[kept])
        return getattr(outcomes, name)(*given)

    whole, linear = value(np.arange(150))
    np.testing.assert_allclose(linear.mean(axis=1), 0, atol=1e-12)
    for example in (0, 40, 149):
        without = value(np.delete(np.arange(150), example))[0]
        np.testing.assert_allclose(149 * (whole - without), linear[:, example], atol=0.1)


def test_a_head_that_tells_classes_apart_is_found():
    """Losing it flips few predictions: a score does not see it, and the logits do."""
    rng = np.random.default_rng(5)
    labels = rng.integers(2, size=400)
    margin = 3.0 * (2 * labels - 1) + 2.5 * rng.normal(size=400)
    weaker = margin - 0.5 * (2 * labels - 1) * rng.random(400)
    found = assess_outcomes([margins(np.stack([margin, weaker]))], labels, names=NAMES[:1])
    flipped = ((margin > 0) != (weaker > 0)).sum()
    assert flipped < 15
    assert found['discrimination'].corrected[0] < 0.001 and found['auc'].corrected[0] < 0.001


def test_what_does_not_matter_is_shown_not_to():
    """Heads that do nothing, add noise of their own, and lose what the model knows."""
    rng = np.random.default_rng(8)
    labels = rng.integers(2, size=1500)
    margin = 1.5 * (2 * labels - 1) + 1.5 * rng.normal(size=1500)
    models = [margin, margin, margin + 0.05 * rng.normal(size=1500), margin - 1.6 * labels]
    found = assess_outcomes([margins(np.stack(models))], labels, names=NAMES[:3])
    lead = found['discrimination']
    assert lead.outcome.margin == 0.01
    assert (lead.equivalent <= 0.05).tolist() == [True, True, False]
    assert lead.verdict.tolist() == [NO_MATTER, NO_MATTER, WORSE]
    assert found['auc'].verdict[-1] == WORSE and found['answers'].verdict[-1] == MATTERS
    assert all(each.verdict[0] == NO_MATTER for each in found.values())
    of_values = margin + 0.3 * rng.normal(size=1500)
    regression = assess_outcomes([np.stack(models)[..., None]], of_values, names=NAMES[:3])
    lead = regression['discrimination']
    assert lead.outcome.margin == pytest.approx(0.01 * of_values.var())
    assert lead.equivalent[0] <= 0.05 < lead.equivalent[2]


def test_bad_logits_are_refused():
    logits, labels = logits_of(np.random.default_rng(6))
    logits[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match='logits and labels must be finite'):
        assess_outcomes([logits], labels, names=NAMES)
    logits, labels = logits_of(np.random.default_rng(6))
    with pytest.raises(ValueError, match='intact model first'):
        assess_outcomes([logits], labels, names=NAMES[1:])
    with pytest.raises(ValueError, match='classes from 0 to 1'):
        assess_outcomes([logits], labels + 1, names=NAMES)
    with pytest.raises(ValueError, match='needs at least 2'):
        assess_outcomes([np.zeros((2, 1, 2))], np.zeros(1, int), names=NAMES[:1])


def over_seeds(values):
    """Return effects over seeds of outcomes [S, M, E], of which each seed alone shows nothing."""
    each = values.mean(axis=2)
    names, none = [f'L1-H{mask}' for mask in range(1, values.shape[1] + 1)], np.ones(each.shape[1])
    about = {'low': none, 'high': none, 'p_value': none, 'corrected': none, 'sample': 1}
    alone = [Effects(names=names, difference=one, intact=0.5, **about) for one in each]
    return assess_means_over_seeds(alone, values - each[..., None])


def test_a_model_without_an_answer_does_not_spoil_the_others():
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    margin = (2.0 * labels - 1 + rng.normal(size=200)) * np.ones((4, 1))
    margin = margin + 0.1 * rng.normal(size=(4, 200))
    logits = np.stack([-margin, margin], axis=-1)
    logits[1] = 0
    found = assess_outcomes([logits], labels, names=['a', 'b', 'c'])['discrimination']
    assert found.difference[0] > 0.05 and found.corrected[0] < 0.01
    assert (found.corrected[1:] > 0.05).all() and found.fewest == (0, 1)


def test_agreement_without_noise_is_that_of_the_fine_tunings():
    """Examples are so few that two seeds seem to agree by half of what they do."""
    rng, found = np.random.default_rng(7), []
    for _ in range(20):
        effects = rng.normal(size=60) + 0.5 * rng.normal(size=(6, 60))
        noise = 10 * rng.normal(size=(6, 60, 80))
        found.append(over_seeds(effects[..., None] + noise).seeds.agreement)
    rank, beyond = (
        np.mean([getattr(each, name) for each in found]) for name in ('rank', 'beyond_noise')
    )
    assert rank < 0.5 and beyond == pytest.approx(0.8, abs=0.08)
    names = ('of_heads', 'of_finetunings', 'of_examples')
    shares = [np.mean([getattr(each, name) for each in found]) for name in names]
    # Variances of 1, .25 and 100 / 80.
    np.testing.assert_allclose(shares, [0.4, 0.1, 0.5], atol=0.04)
    # Noise that all seeds share looks like the heads' own, and is not.
    noise = 10 * rng.normal(size=(60, 80)) + np.zeros((6, 60, 80))
    found = over_seeds(0.5 * rng.normal(size=(6, 60, 1)) + noise).seeds.agreement
    assert found.of_heads < 0.1 and found.of_examples == pytest.approx(1.25 / 1.5, abs=0.1)
    noise = 4 * rng.normal(size=(60, 80)) + np.zeros((6, 60, 80))
    found = over_seeds(0.5 * rng.normal(size=(6, 60, 1)) + noise).seeds.agreement
    assert found.rank > 0.3 and found.reliability > 0.3 and abs(found.beyond_noise) < 0.25
