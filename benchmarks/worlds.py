"""Simulated worlds in which the answer is known, for each question that statistics answer.

Changes are normal, skewed, or sparse: one text in so many carries all of a change. The truth is at
the border: no effect, or one that just matters. `benchmarks.errors` counts what comes out.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bert_secrets_jax.ablation.embeddings import assess_retrieval
from bert_secrets_jax.ablation.masked_lm import assess_losses
from bert_secrets_jax.ablation.outcomes import assess_outcomes
from bert_secrets_jax.stats import influence, over_runs, seeds, selection, sequential, student
from bert_secrets_jax.stats.correlations import rank_agreement
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.influence import mean_effect
from bert_secrets_jax.stats.means import assess_means
from bert_secrets_jax.stats.resampling import sign_flip_test
from bert_secrets_jax.stats.significance import MARGIN, assess, selected_gain
from bert_secrets_jax.stats.student import wilson

MASKS = 10
LOSS = Outcome('loss', 'nats', 1.0, more_is_better=False)
SHARES = {'sparse, 3 %': 0.03, 'sparse, 2 %': 0.02, 'sparse, 1 %': 0.01, 'sparse, .5 %': 0.005}
# What came out once: whether there was a false 'error' among all tests, whether a claim of no
# matter was wrong at the other 'border', whether one that something is 'beyond' it was, the share
# of intervals that have 'covered' the truth, and whether an effect that is called detectable was
# 'found'.
Drawn = Mapping[str, Any]


def changes(rng, world: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return changes with a mean of 0 and about a variance of 1."""
    if world == 'normal':
        return rng.normal(size=shape)
    if world == 'skewed':
        return rng.exponential(size=shape) - 1
    if world == 'heavy':
        return rng.standard_t(3, size=shape) / np.sqrt(3)
    if world == 'lognormal':
        return (np.exp(rng.normal(size=shape)) - np.exp(0.5)) / np.sqrt(np.e**2 - np.e)
    if world == 'masks are alike':
        # Skewed, and mostly of all masks.
        shared, own = rng.exponential(size=shape[-1]) - 1, rng.exponential(size=shape) - 1
        return 0.9 * shared + 0.4 * own
    if world == 'six are sparse':
        return np.concatenate(
            [changes(rng, 'sparse, 2 %', (6, *shape[1:])), rng.normal(size=shape)[6:]]
        )
    share = SHARES[world]
    carried = (rng.random(shape) < share) * (1 + rng.exponential(size=shape)) - 2 * share
    return carried / np.sqrt(5 * share - 4 * share**2) + 0.05 * rng.normal(size=shape)


def holds(low, high, truth=0.0) -> float:
    """Return the share of intervals that hold the truth."""
    return float(np.mean((low <= truth) & (truth <= high)))


def of_values(values: np.ndarray, **options) -> Effects:
    """Return the effects of masks on a mean, from the change of each text [M, E]."""
    mean = values.mean(axis=1)
    about = {'names': [''] * len(values), 'outcome': LOSS, 'intact': 1.0}
    return assess_means(mean, values - mean[:, None], **about | options)


def any_of(p_values: np.ndarray | None) -> bool:
    """Return whether some test finds something."""
    assert p_values is not None
    return bool((p_values <= student.LEVEL).any())


def a_mean(rng, world, size):
    """What just matters is a fifth of a spread, in either direction."""
    values = changes(rng, world, (MASKS, size))
    nothing = of_values(values)
    outcome = dataclasses.replace(LOSS, margin=0.2)
    just = of_values(0.5 * values + 0.2 * rng.choice([-1, 1], (MASKS, 1)), outcome=outcome)
    values[0] += nothing.detectable[0] * rng.choice([-1, 1])
    return {
        'error': any_of(nothing.corrected),
        'border': any_of(just.equivalent),
        'beyond': any_of(just.beyond),
        'covered': holds(nothing.low, nothing.high),
        'found': of_values(values).corrected[0] <= student.LEVEL,
    }


def pairs_of_heads(rng, world, size):
    """What pairs of twelve heads do beyond the sum of two: means of as many tests."""
    found = of_values(changes(rng, world, (66, size)))
    return {'error': any_of(found.corrected), 'covered': holds(found.low, found.high)}


def counts(rng, world, size):
    """Where no head of twenty has an effect, and where five have; of these, no more are counted."""
    values = changes(rng, world, (20, size))
    none = of_values(values)
    values[:5] -= 0.4
    some = of_values(values)
    assert none.fewest and some.fewest
    return {'error': sum(none.fewest) > 0, 'border': some.fewest[0] > 5 or some.fewest[1] > 0}


def a_masked_lm(rng, world, size):
    """Texts are long and short, and some change under all masks."""
    hidden = rng.integers(1, 25, size)
    intact = rng.gamma(2.0, 1.0, size) * hidden
    noise = changes(rng, world, (MASKS, size)) + 0.5 * rng.normal(size=size)
    losses = intact + 0.3 * np.sqrt(hidden) * noise
    nothing = assess_losses(losses, intact, hidden)
    losses[0] += hidden * nothing.detectable[0]
    return {
        'error': any_of(nothing.corrected),
        'covered': holds(nothing.low, nothing.high),
        'found': assess_losses(losses, intact, hidden).corrected[0] <= student.LEVEL,
    }


def documents(rng, world, size):
    """Heads change ranks at random; or a tenth of queries gain, and one in fifty loses as much."""
    if world == 'normal':
        noise = rng.normal(-0.5, 1.2, size) + rng.normal(0, 0.4, (MASKS + 1, size))
        scores = 1 / (1 + np.floor(np.exp(noise)))
    else:
        share = rng.random((MASKS, size))
        changed = np.where(share < 0.1, 0.05, np.where(share > 0.98, -0.25, 0))
        scores = 0.5 + np.concatenate([np.zeros((1, size)), changed])
    found = assess_retrieval(scores, name='MRR', names=[''] * MASKS)
    return {'error': any_of(found.corrected), 'covered': holds(found.low, found.high)}


def outcomes_of_logits(rng, world, size, name='discrimination'):
    """Models know the same and err on other texts; half are too sure, which a fit takes away."""
    labels = (rng.random(size) < 0.67).astype(int)
    margin = 1.2 * (2 * labels - 1) * rng.random(size) + 0.8 * rng.normal(size=size)
    margin = 1.6 * (margin + 0.3 * changes(rng, world, (MASKS + 1, size)))
    margin[MASKS // 2 :] = 1.4 * margin[MASKS // 2 :] + 0.5
    logits = np.stack([-margin / 2, margin / 2], axis=-1)
    found = assess_outcomes([logits], labels, names=['L1-H1'] * MASKS)[name]
    return {'error': any_of(found.corrected), 'covered': holds(found.low, found.high)}


def classified(
    rng, world, size, masks=MASKS
) -> tuple[Callable[..., np.ndarray], np.ndarray, np.ndarray]:
    """Return a function that draws answers of masks which lose so much, intact ones, and labels.

    Every tenth answer flips to and fro, or as few as the world says. In the skewed one, all flips
    are in a few fragile texts.
    """
    labels = (rng.random(size) < 0.65).astype(int)
    intact = np.where(rng.random(size) < 0.75, labels, 1 - labels)
    rate = SHARES.get(world, 0.1) / 2 / np.where(intact == labels, 0.75, 0.25)
    if world == 'skewed':
        rate = rate * (rng.random(size) < 0.3) / 0.3

    def masked(lost=0.0):
        """Lose a share of right answers; below 0, mend a share of wrong ones."""
        lost = np.broadcast_to(lost, (masks, 1))
        more = np.where(intact == labels, np.maximum(lost, 0) / 0.75, np.maximum(-lost, 0) / 0.25)
        flips = rng.random((masks, size)) < rate + more
        return np.where(flips, 1 - intact, intact)

    return masked, intact, labels


def score_of(metric: str, right: Any) -> Any:
    """Return a score where so many answers are right, as many of either class (`classified`)."""
    one, other = (2 * each * right / (2 * each * right + 1 - right) for each in (0.65, 0.35))
    called = 0.65 * right + 0.35 * (1 - right)
    matthews = 0.65 * 0.35 * (2 * right - 1) / np.sqrt(0.65 * 0.35 * called * (1 - called))
    scores = {'accuracy': right, 'f1': one, 'f1_macro': (one + other) / 2, 'matthews': matthews}
    return scores[metric]


def lost_answers(metric: str, change: float) -> float:
    """Return the share of answers which, lost, lower a score by so much."""
    lost = np.linspace(0, 0.25, 501)
    return float(np.interp(change, score_of(metric, 0.75) - score_of(metric, 0.75 - lost), lost))


def a_score(rng, world, size, metric='accuracy'):
    masked, *given = classified(rng, world, size)
    nothing = assess(metric, masked(), *given, rounds=2000)
    just = assess(metric, masked(lost_answers(metric, MARGIN)), *given, rounds=2000)
    detected = lost_answers(metric, float(nothing.detectable[0]))
    some = assess(metric, masked(detected), *given, rounds=2000)
    return {
        'error': any_of(nothing.corrected),
        'border': any_of(just.equivalent),
        'beyond': any_of(just.beyond),
        'covered': holds(nothing.low, nothing.high),
        'found': np.mean(some.corrected <= student.LEVEL),
    }


def a_correlation(rng, world, size):
    """Masks add noise of their own, which is normal, or large in few texts, and so they lose.

    Those that lose nothing have other noise in place of a part of the intact model's.
    """

    def models(loss, kept=0.45, by=world):
        labels, shared, own = rng.normal(size=(3, size))
        variance = 1 + 0.4**2 + 0.45**2
        added = (variance**-0.5 - loss) ** -2 - variance + 0.45**2 - kept**2
        noise = np.sqrt(added) * changes(rng, by, (MASKS, size))
        known = labels + 0.4 * shared
        return known + kept * own + noise, known + 0.45 * own, labels

    just = assess('pearson', *models(MARGIN))
    nothing = assess('pearson', *models(0.0, kept=0.36))
    seen = assess('pearson', *models(MARGIN, by='normal'))
    some = assess('pearson', *models(float(seen.detectable.mean()), by='normal'))
    return {
        'error': any_of(nothing.corrected),
        'border': any_of(just.equivalent),
        'beyond': any_of(just.beyond),
        'covered': holds(just.low, just.high, -MARGIN),
        'found': np.mean(some.corrected <= student.LEVEL),
    }


def of_seeds(rng, world, shape) -> tuple[np.ndarray, float]:
    """Return effects of masks in fine-tunings [S, M] with a mean of 0, and their median.

    They are normal or skewed, or one fine-tuning in five fails and loses a head, or half do.
    """
    if world == 'only texts differ':
        return np.zeros(shape), 0.0
    if world == 'one in five fails':
        return np.where(rng.random(shape) < 0.2, -0.8, 0.2), 0.2
    if world == 'half fail':
        return np.where(rng.random(shape) < 0.5, -0.5, 0.5), 0.0
    median = 0.3 * (np.log(2) - 1) if world == 'skewed' else 0.0
    return 0.3 * changes(rng, 'skewed' if world == 'skewed' else 'normal', shape), median


def over_seeds(values: np.ndarray, alone: Callable[..., Effects]) -> Effects:
    """Return effects over fine-tunings, of the changes [S, M, E] and the tests of each alone."""
    each = [alone(of_seed) for of_seed in values]
    return seeds.assess_means_over_seeds(each, values - values.mean(axis=2, keepdims=True))


def untested(values: np.ndarray) -> Effects:
    """Return effects in one fine-tuning, which by itself shows nothing."""
    none = np.ones(len(values))
    numbers = {'low': none, 'high': none, 'p_value': none, 'corrected': none, 'sample': 1}
    return Effects(names=[''] * len(none), difference=values.mean(axis=1), intact=1.0, **numbers)


def finetunings(rng, world, size):
    """A hundred texts: significance is claimed on average or in most, and intervals of the mean."""
    effects, median = of_seeds(rng, world, (size, MASKS))
    shape = (*effects.shape, 100)
    values = effects[..., None] + 0.5 * rng.normal(size=shape[1:]) + rng.normal(size=shape)
    found = over_seeds(values, untested)
    # Where most are on one side, that side is true.
    wrong = (found.corrected <= student.LEVEL) & (np.sign(found.difference) != np.sign(median))
    values[:, 0] -= found.detectable[0]
    some = over_seeds(values, untested)
    return {
        'error': wrong.any(),
        'covered': holds(found.low, found.high),
        'found': some.corrected[0] <= student.LEVEL,
    }


# Spreads, on the scale of margins between answers: of a mask's effect over fine-tunings, over texts
# that all share, and of the remainder.
SPREADS = {
    'normal': (0.1, 0.1, 0.1),
    'fine-tunings differ': (0.15, 0.05, 0.05),
    'by 6 points': (0.5, 0.05, 0.05),
    'texts differ': (0.05, 0.2, 0.2),
    'each differs': (0.05, 0.02, 0.2),
    'sparse': (0.005, 0.005, 0.005),
}


CORRELATIONS = 'pearson', 'spearman'


def tuned_scores(rng, metric, world, size, *, masks=8, texts=300) -> np.ndarray:
    """Return the changes of scores, as the parts of texts in them [S, M, E].

    In the sparse world, five answers in a thousand change. Otherwise some in a hundred do.
    """
    seed, text, rest = SPREADS[world]
    correlates = metric in CORRELATIONS
    labels = rng.normal(size=texts) if correlates else (rng.random(texts) < 0.55).astype(int)
    noise = np.sqrt(0.7) * rng.normal(size=texts) + np.sqrt(0.3) * rng.normal(size=(size, texts))
    own, lost = 0.1 * rng.normal(size=(size, 1)), 0.005 if world == 'sparse' else 0.1
    moved = seed * rng.normal(size=(size, masks, 1)) - lost
    blurred = text * rng.normal(size=(masks, texts)) + rest * rng.normal(size=(size, masks, texts))
    if correlates:
        intact = noise + (1.2 + own) * labels
        masked = intact[:, None] + moved / 2 * labels + blurred
    else:
        intact = noise + 1 + own
        margins = intact[:, None] + moved + blurred, intact
        masked, intact = (np.where(each > 0, labels, 1 - labels) for each in margins)
    parts = seeds.per_example(metric, masked, labels)
    return parts - seeds.per_example(metric, intact, labels)[:, None]


@functools.cache
def _tuned_truth(metric: str, world: str) -> float:
    """Return the effect over all fine-tunings and texts, from many of both."""
    many = tuned_scores(np.random.default_rng(9), metric, world, 1000, masks=1, texts=5000)
    return float(many.mean())


def tuned_intervals(rng, world, size, metric='accuracy'):
    values = tuned_scores(rng, metric, world, size)
    half = seeds.crossed_variance(values, counts=metric not in CORRELATIONS).half_width
    mean = values.mean(axis=(0, 2))
    return {'covered': holds(mean - half, mean + half, _tuned_truth(metric, world))}


def most_finetunings(rng, world, size):
    """The claim that most are above a threshold, at which the median is."""
    effects, median = of_seeds(rng, world, (size, 1))
    error = 0.6 if world == 'few texts' else 0.1
    each = effects[:, 0] - median + error * rng.normal()
    found = over_runs.contrasts([([one], [error]) for one in each], 100)
    p_values = over_runs.all_above(found)
    _, low, high = found.typical(0)
    return {'error': min(p_values) <= student.LEVEL / 2, 'covered': holds(low, high)}


def some_finetunings(rng, world, size):
    """One fine-tuning may need a head by chance; that half need the first is to be found."""
    effects, shared = np.zeros((size, MASKS)), 3.0 if world == 'errors are alike' else 0.5
    effects[::2, 0] = 0.7 * np.sqrt((1 + shared**2) / 1.25)
    shape = (*effects.shape, 100)
    values = effects[..., None] + shared * rng.normal(size=shape[1:]) + rng.normal(size=shape)
    found = over_seeds(values, of_values).seeds
    assert found is not None
    return {'error': any_of(found.needed_p[1:]), 'found': found.needed_p[0] <= student.LEVEL}


LEADS = {'one is best': [1.0], 'several are nearly best': np.linspace(0.8, 1, 8)}


def of_the_best(world: str, greatest: float) -> np.ndarray:
    """Return by how much each of forty masks is above the others [40]."""
    lead = LEADS.get(world, [])
    return greatest * np.pad(lead, (0, 40 - len(lead)))


def the_best(rng, world, size):
    """The interval of the mask with the highest score of forty, all alike, or but few."""
    labels, shared, own = rng.normal(size=(3, size))
    intact = labels + 0.4 * shared + 0.45 * own
    added = 0.3 - of_the_best(world, 0.25)[:, None]
    masked = intact + added * changes(rng, 'normal' if world in LEADS else world, (40, size))
    below, above = selection.tails(40)
    given = 'pearson', masked, intact, labels
    low, high = influence.interval(*given, below=below, above=above, chosen=True)
    best = np.argmax([np.corrcoef(each, labels)[0, 1] for each in masked])
    truth = (1.3625 + added[best, 0] ** 2) ** -0.5 - 1.3625**-0.5
    return {'covered': holds(low[best], high[best], truth)}


def the_best_answers(rng, world, size, metric='accuracy'):
    """The same of answers, where all are as good as the intact model, or but few."""
    masked, *given = classified(rng, 'normal' if world in LEADS else world, size, masks=40)
    gains = of_the_best(world, 0.1)
    found = selected_gain(metric, masked(-gains[:, None]), *given, repeats=1)
    truth = score_of(metric, 0.75 + gains[found.best]) - score_of(metric, 0.75)
    return {'covered': holds(found.low, found.high, truth)}


def a_random_head(rng, world, size):
    """The mean effect of masks, in accuracy."""
    masked, *given = classified(rng, world, size)
    found = mean_effect('accuracy', masked(), *given)
    return {'error': not found.low <= 0 <= found.high, 'covered': holds(found.low, found.high)}


def a_share(rng, world, size):
    """The share of links that a head follows; a text has five, which are alike in part."""
    truth = SHARES.get(world, 0.3)
    of_text = rng.random(size) < truth
    alike = rng.random((size, 5)) < 0.3
    hits = np.where(alike, of_text[:, None], rng.random((size, 5)) < truth)
    each = hits.mean(axis=1)
    error = each.std(ddof=1) / np.sqrt(size)
    low, high = wilson(*(np.array([one]) for one in (each.mean(), error, 5 * size, size)))
    return {'covered': holds(low, high, truth)}


def links(rng, world, size):
    """Heads attend to links as they do to other places, and excesses are more or less skewed."""
    left = world == 'skewed to the left'
    values = -changes(rng, 'skewed', (72, size)) if left else changes(rng, world, (72, size))
    return {'error': any_of(sign_flip_test(values, alternative='greater')[1])}


def statistics_of_models(rng, world, size):
    """A statistic of attention over fine-tunings, of which means over a hundred texts are kept."""
    of_models = 0.1 if world == 'texts differ' else 0.5
    values = rng.normal(size=(size, 100, 6)) + rng.normal(size=(100, 6))
    values += of_models * rng.normal(size=(size, 1, 6))
    errors = values.std(axis=1, ddof=1) / 10
    mean = values.mean(axis=1)
    half = seeds.means_variance(mean, errors, 100).half_width
    mean = mean.mean(axis=0)
    return {'covered': holds(mean - half, mean + half)}


def agreement_of_finetunings(rng, world, size):
    """Effects of 144 heads, which fine-tunings share by half."""
    effects = changes(rng, world, (144,))
    truth = effects.var(ddof=1) / (effects.var(ddof=1) + 1)
    shown = effects + rng.normal(size=(size, 144)) + rng.normal(size=(size, 1))
    found = seeds.agreement(shown)
    return {'covered': holds(found.icc3_low, found.icc3_high, truth)}


def rankings(rng, world, size):
    """Two samples rank forty heads; the truth is what samples of this size agree by."""
    truth, paired = np.linspace(-1, 1, 40), world == 'the same texts'
    noise = [4 * changes(rng, 'normal' if paired else world, (size, 40)) for _ in range(2)]
    if paired:
        noise = [np.sqrt(0.5) * (each + 4 * rng.normal(size=(size, 1))) for each in noise]
    found = rank_agreement(*(truth + each for each in noise), paired=paired)
    return {'rank': found.rank, 'low': found.low, 'high': found.high}


def until_decided(rng, world, size, masks=72):
    """No interval of any mask misses its mean after any block of 32 texts."""
    values, extreme, missed = changes(rng, world, (masks, size)), (0.0, 0.0), False
    for read in range(32, size + 1, 32):
        level = student.LEVEL / masks
        mean, half, extreme = sequential.intervals(values[:, :read], extreme, level=level)
        missed |= bool((np.abs(mean) > half).any())
    return {'error': missed}


def a_ratio(rng, world, size):
    """The ratio of two means of the same texts (Fieller)."""
    above, below = 1 + changes(rng, world, (2, size))
    (of_above, both), (_, of_below) = np.cov(above, below) / size
    means = float(above.mean()), float(below.mean())
    low, high = student.ratio_interval(*means, (of_above, of_below), both, size - 1)
    return {'covered': holds(low, high, 1.0)}


DRAWS: dict[str, Callable[[np.random.Generator, str, int], Drawn]] = {
    'mean': a_mean,
    'fit': outcomes_of_logits,
    'area': functools.partial(outcomes_of_logits, name='auc'),
    'pairs': pairs_of_heads,
    'counts': counts,
    'masked LM': a_masked_lm,
    'documents': documents,
    'accuracy': a_score,
    'F1': functools.partial(a_score, metric='f1'),
    'macro F1': functools.partial(a_score, metric='f1_macro'),
    "Matthews' r": functools.partial(a_score, metric='matthews'),
    'correlation': a_correlation,
    'random head': a_random_head,
    'best': the_best,
    'best answers': the_best_answers,
    'best F1': functools.partial(the_best_answers, metric='f1'),
    'decided': until_decided,
    'few decided': functools.partial(until_decided, masks=10),
    'finetunings': finetunings,
    'tuned accuracy': tuned_intervals,
    'tuned F1': functools.partial(tuned_intervals, metric='f1'),
    'tuned macro F1': functools.partial(tuned_intervals, metric='f1_macro'),
    "tuned Matthews' r": functools.partial(tuned_intervals, metric='matthews'),
    'tuned correlation': functools.partial(tuned_intervals, metric='pearson'),
    'tuned ranks': functools.partial(tuned_intervals, metric='spearman'),
    'some': some_finetunings,
    'most': most_finetunings,
    'statistics': statistics_of_models,
    'agreement': agreement_of_finetunings,
    'links': links,
    'share': a_share,
    'rankings': rankings,
    'ratio': a_ratio,
}
