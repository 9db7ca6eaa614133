"""Outcomes of masks that see more than a score, against other code and in simulated worlds."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import sklearn.metrics

from bert_secrets_jax.ablation import outcomes
from bert_secrets_jax.ablation.outcomes import assess_changes, assess_outcomes
from bert_secrets_jax.stats.effects import Effects, Outcome, loss_in
from bert_secrets_jax.stats.seeds import assess_means_over_seeds
from bert_secrets_jax.stats.shrinkage import shrink
from tests.stats.rates import holds_zero

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


@pytest.mark.slow
@pytest.mark.parametrize('noise', ['normal', 'rare', 'heavy'])
def test_errors_in_worlds_without_an_effect(noise):
    """Models know the same and are wrong on other examples; half are too sure of themselves."""
    makers = {
        'normal': lambda rng, shape: 0.3 * rng.normal(size=shape),
        'rare': lambda rng, shape: (rng.random(shape) < 0.08) * rng.exponential(1.5, shape),
        'heavy': lambda rng, shape: 0.15 * rng.standard_t(2.5, shape),
    }
    wrong, covered = [], []
    for number in range(150):
        rng = np.random.default_rng(number)
        labels = (rng.random(200) < 0.67).astype(int)
        margin = 1.2 * (2 * labels - 1) * rng.random(200) + 0.8 * rng.normal(size=200)
        margin = margin + makers[noise](rng, (9, 200))
        margin[5:] = 1.4 * margin[5:] + 0.3
        found = assess_outcomes([margins(1.6 * margin)], labels, names=['L1-H1'] * 8, seed=number)
        tested = [found[name] for name in ('discrimination', 'auc')]
        wrong.append([(each.corrected <= 0.05).any() for each in tested])
        covered.append([holds_zero(each).mean() for each in tested])
    # Three standard errors above 5 %.
    assert np.max(np.mean(wrong, axis=0)) <= 0.103
    assert np.min(np.mean(covered, axis=0)) >= 0.93


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
    known = np.log(2) - lead.intact
    assert lead.margin == pytest.approx(0.05 * known, rel=0.01)
    assert (lead.equivalent <= 0.05).tolist() == [True, True, False]
    assert found['calibration'].equivalent is found['auc'].equivalent is None
    # Who knows frequencies knows all where all are of one class, and there is no margin.
    alike = assess_outcomes([margins(np.stack(models[:2]))], np.ones(1500, int), names=NAMES[:1])
    assert alike['discrimination'].margin == 0 and alike['discrimination'].equivalent[0] > 0.05
    of_values = margin + 0.3 * rng.normal(size=1500)
    regression = assess_outcomes([np.stack(models)[..., None]], of_values, names=NAMES[:3])
    lead = regression['discrimination']
    assert lead.margin == pytest.approx(0.05 * (of_values.var() - lead.intact))
    assert lead.equivalent[0] <= 0.05 < lead.equivalent[2]


def skewed(rng, noise, shape):
    """Return values [M, E] with a mean of 0, most of them on one side."""
    if noise == 'normal':
        return rng.normal(size=shape)
    if noise == 'rare':
        return (rng.random(shape) < 0.08) * rng.exponential(1.5, shape) - 0.12
    # Of all masks alike, for the most part.
    shared, own = rng.exponential(size=shape[1]), rng.exponential(size=shape)
    return 0.9 * (shared - 1) + 0.4 * (own - 1)


def of_values(values, seed, **options):
    names = [f'L1-H{mask + 1}' for mask in range(len(values))]
    about = {'names': names, 'outcome': loss_in('nats'), 'intact': 1.0, 'seed': seed}
    return assess_changes(values, **about, **options)


@pytest.mark.slow
@pytest.mark.parametrize('carrying', [12, 4, 2, 1])
def test_intervals_where_few_texts_carry_a_change(carrying):
    """By Student's t, 92 to 85 % cover where 12 to 4 of 200 texts do, and few where one does."""
    covered, wrong = [], []
    for number in range(80):
        rng = np.random.default_rng(number)
        rare = rng.random((20, 200)) < carrying / 200
        values = rare * (1 + rng.exponential(size=rare.shape)) - carrying / 100
        found = of_values(values + 0.05 * rng.normal(size=rare.shape), number)
        covered.append(holds_zero(found).mean())
        wrong.append((found.corrected <= 0.05).any())
    assert np.mean(covered) >= 0.94
    # Two standard errors above 5 %.
    assert np.mean(wrong) <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize('noise', ['normal', 'rare', 'shared'])
def test_at_the_margin_nothing_is_shown_not_to_matter(noise):
    """The margin is measured, too, and its truth is what all masks do."""
    wrong = []
    for number in range(200):
        rng = np.random.default_rng(number)
        known = rng.exponential(4, 200)
        margin = 0.05 * known.mean(), 0.05 * (known - known.mean())
        values = 0.2 + 0.5 * skewed(rng, noise, (20, 200))
        wrong.append((of_values(values, number, margin=margin).equivalent <= 0.05).any())
    # Three standard errors above 5 %.
    assert np.mean(wrong) <= 0.096


@pytest.mark.slow
@pytest.mark.parametrize('noise', ['normal', 'rare', 'shared'])
def test_so_many_masks_lower_and_raise_an_outcome_at_least(noise):
    """Either is seldom claimed of too many, where none has an effect and where a few have."""
    wrong, found = [], []
    for number in range(200):
        rng = np.random.default_rng(number)
        values = skewed(rng, noise, (20, 200))
        none = of_values(values, number)
        wrong.append([sum(none.fewest) > 0, none.shrunken.at_least > 0])
        values[:5] -= 0.4 * values.std()
        some = of_values(values, number)
        wrong.append([some.fewest[0] > 5 or some.fewest[1] > 0, some.shrunken.at_least > 5])
        found.append(some.fewest[0])
    assert np.max(np.mean(wrong[::2], axis=0)) <= 0.096
    assert np.max(np.mean(wrong[1::2], axis=0)) <= 0.096
    assert np.mean(found) > 1 or noise == 'rare'


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
    about['shrunken'] = shrink(none, none)
    alone = [Effects(names=names, difference=one, intact=0.5, **about) for one in each]
    return assess_means_over_seeds(alone, values - each[..., None])


@pytest.mark.parametrize(('count', 'parts'), [(6, (0.02, 0.3, 0.3)), (10, (0.1, 0.1, 0.1))])
def test_over_seeds_effects_are_found_as_often_as_they_say(count, parts):
    """The parts are those of seeds, of examples and of the remainder."""
    rng = np.random.default_rng(8)
    masks, examples = 20, 100

    def sample(effect):
        of_seeds, shared, rest = (
            spread * rng.normal(size=shape)
            for spread, shape in zip(
                parts, [(count, masks, 1), (masks, examples), (count, masks, examples)], strict=True
            )
        )
        effects = np.where(np.arange(masks) == 0, effect, 0)
        return over_seeds(of_seeds + shared + rest + effects[:, None])

    effect = np.median([sample(0.0).detectable for _ in range(5)])
    found = [sample(effect).corrected[0] <= 0.05 for _ in range(60)]
    # Binomial: two standard deviations around .7 to .87.
    assert 0.58 <= np.mean(found) <= 0.95
    assert np.isnan(over_seeds(rng.normal(size=(5, 3, 9))).detectable).all()


@pytest.mark.slow
@pytest.mark.parametrize('world', ['none', 'normal', 'exponential', 'two in ten'])
def test_over_seeds_errors_are_rare(world):
    """Significant: on average or in most fine-tunings. Of skewed effects, one side is true."""
    makers = {
        'none': lambda rng, shape: np.zeros(shape),
        'normal': lambda rng, shape: 0.3 * rng.normal(size=shape),
        'exponential': lambda rng, shape: 0.3 * (rng.exponential(size=shape) - 1),
        'two in ten': lambda rng, shape: np.where(rng.random(shape) < 0.2, -0.8, 0.2),
    }
    # The side on which most fine-tunings are, and the least coverage with ten and with six.
    side = {'exponential': -1, 'two in ten': 1}.get(world, 0)
    least = {'exponential': (0.91, 0.9), 'two in ten': (0.87, 0.72)}.get(world, (0.93, 0.92))
    for count, lowest in zip((10, 6), least, strict=True):
        wrong, covered = [], []
        for number in range(150):
            rng = np.random.default_rng(number)
            of_seeds, shared = makers[world](rng, (count, 20)), 0.5 * rng.normal(size=(20, 100))
            noise = rng.normal(size=(count, 20, 100))
            found = over_seeds(of_seeds[..., None] + shared + noise)
            true = (found.corrected <= 0.05) & (np.sign(found.difference) != side)
            wrong.append(true.any())
            covered.append(holds_zero(found).mean())
        assert np.mean(wrong) <= 0.103
        assert lowest <= np.mean(covered) <= 0.99


@pytest.mark.parametrize('together', [0, 0.5, 0.9])
def test_a_head_that_half_of_the_fine_tunings_need_is_found(together):
    """Where errors of fine-tunings are of their own, and where they share them; and no other."""
    rng, count, masks, runs = np.random.default_rng(9), 10, 20, 100
    needed, average = [], []
    for _ in range(runs):
        shared, own = rng.normal(size=masks), rng.normal(size=(count, masks))
        z = together**0.5 * shared + (1 - together) ** 0.5 * own
        z[:, 0] += 5 * (rng.random(count) < 0.5)
        p_value = 2 * scipy.stats.norm.sf(np.abs(z))
        alone = [
            Effects(
                names=[''] * masks, difference=one, low=one, high=one, p_value=p, sample=100,
                corrected=np.minimum(masks * p, 1), outcome=Outcome('loss', more_is_better=False),
            )
            for one, p in zip(z, p_value, strict=True)
        ]  # fmt: skip
        found = assess_means_over_seeds(alone, rng.normal(size=(count, masks, 30)))
        needed.append(found.seeds.needed_p <= 0.05)
        average.append(found.corrected[0] <= 0.05)
    assert np.mean([each[1:].any() for each in needed]) <= 0.05
    assert np.mean([each[0] for each in needed]) > 0.85 and np.mean(average) < 0.3


def test_few_seeds_make_no_effect_seem_large():
    """The greatest of forty that are 0; by normal errors, half of it would be left."""
    left, counted = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=(6, 40, 1)) + 0.5 * rng.normal(size=(6, 40, 60))
        found = over_seeds(values)
        left.append(np.abs(found.shrunken.mean).max() / np.abs(found.difference).max())
        counted.append(found.fewest or found.shrunken.at_least)
    assert np.mean(left) <= 0.3 and not any(counted)


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
