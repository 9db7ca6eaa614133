"""How often each method of statistics errs, by simulated worlds in which the answer is known.

    python -m benchmarks.errors --worlds=1000 --only=mean,score

A row is a method in a world. There, changes are normal, skewed, or sparse: one text in so many
carries all of a change. The truth is at the border: no effect, or one that just matters.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bert_secrets_jax.stats import influence, over_runs, selection, sequential, student
from bert_secrets_jax.stats.average import mean_effect
from bert_secrets_jax.stats.correlations import rank_agreement
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.means import assess_means
from bert_secrets_jax.stats.seeds import assess_means_over_seeds
from bert_secrets_jax.stats.shares import wilson
from bert_secrets_jax.stats.significance import MARGIN, assess

MASKS = 10
SHARES = {'sparse, 3 %': 0.03, 'sparse, 1 %': 0.01}
Draw = Callable[[np.random.Generator, str, int], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, the method that answers it, and the worlds in which the method is tried.

    Attributes:
      draw: A function of a generator, a world and the size of the sample. It returns what came out
        once: whether there was a false 'error' among all tests, whether what just matters was
        called 'small', the share of intervals that have 'covered' the truth, and whether an effect
        that is called detectable was 'found'.
      worlds: The worlds with the size of the sample.
    """

    question: str
    method: str
    correction: str
    population: str
    draw: Draw
    worlds: tuple[tuple[str, int], ...]


def changes(rng, world: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return changes with a mean of 0 and about a variance of 1."""
    if world == 'normal':
        return rng.normal(size=shape)
    if world == 'skewed':
        return rng.exponential(size=shape) - 1
    share = SHARES[world]
    carried = (rng.random(shape) < share) * (1 + rng.exponential(size=shape)) - 2 * share
    return carried / np.sqrt(5 * share - 4 * share**2) + 0.05 * rng.normal(size=shape)


def holds(low, high, truth=0.0) -> float:
    """Return the share of intervals that hold the truth."""
    return float(np.mean((low <= truth) & (truth <= high)))


def of_values(values: np.ndarray, **options) -> Effects:
    """Return the effects of masks on a mean, from the change of each text [M, E]."""
    mean = values.mean(axis=1)
    outcome = Outcome('loss', 'nats', 1.0, more_is_better=False)
    about = {'names': [''] * len(values), 'outcome': outcome, 'intact': 1.0}
    return assess_means(mean, values - mean[:, None], **about | options)


def a_mean(rng, world, size):
    values = changes(rng, world, (MASKS, size))
    nothing = of_values(values, margin=(0.2, np.zeros(size)))
    just = of_values(values + 0.2 * rng.choice([-1, 1], (MASKS, 1)), margin=(0.2, np.zeros(size)))
    values[0] += nothing.detectable[0] * rng.choice([-1, 1])
    return {
        'error': (nothing.corrected <= student.LEVEL).any(),
        'small': (just.equivalent <= student.LEVEL).any(),
        'covered': holds(nothing.low, nothing.high),
        'found': of_values(values).corrected[0] <= student.LEVEL,
    }


def classified(rng, world, size) -> tuple[Callable[..., np.ndarray], np.ndarray, np.ndarray]:
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
        more = lost / 0.75 * (intact == labels)
        flips = rng.random((MASKS, size)) < rate + more
        return np.where(flips, 1 - intact, intact)

    return masked, intact, labels


def a_score(rng, world, size, metric='accuracy'):
    masked, *given = classified(rng, world, size)
    nothing = assess(metric, masked(), *given, rounds=2000)
    just = assess(metric, masked(MARGIN), *given, rounds=2000)
    some = assess(metric, masked(float(nothing.detectable[0])), *given, rounds=2000)
    return {
        'error': (nothing.corrected <= student.LEVEL).any(),
        'small': (just.equivalent <= student.LEVEL).any(),
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
        'error': (nothing.corrected <= student.LEVEL).any(),
        'small': (just.equivalent <= student.LEVEL).any(),
        'covered': holds(just.low, just.high, -MARGIN),
        'found': np.mean(some.corrected <= student.LEVEL),
    }


def of_seeds(rng, world, shape) -> tuple[np.ndarray, float, float]:
    """Return effects of masks in fine-tunings [S, M], with their mean and their median.

    They are normal or skewed, or one fine-tuning in five fails and loses a head.
    """
    if world == 'one in five fails':
        return np.where(rng.random(shape) < 0.2, -0.8, 0.2), 0.0, 0.2
    median = {'normal': 0.0, 'skewed': 0.3 * (np.log(2) - 1)}[world]
    return 0.3 * changes(rng, world, shape), 0.0, median


def finetunings(rng, world, size):
    """A hundred texts: significance is claimed on average or in most, and intervals of the mean."""
    effects, _, median = of_seeds(rng, world, (size, MASKS))
    found = over_seeds(rng, effects)
    # Where most are on one side, that side is true.
    wrong = (found.corrected <= student.LEVEL) & (np.sign(found.difference) != np.sign(median))
    return {'error': wrong.any(), 'covered': holds(found.low, found.high)}


def over_seeds(rng, effects: np.ndarray) -> Effects:
    shape = (*effects.shape, 100)
    values = effects[..., None] + 0.5 * rng.normal(size=shape[1:]) + rng.normal(size=shape)
    alone = [of_values(each) for each in values]
    return assess_means_over_seeds(alone, values - values.mean(axis=2, keepdims=True))


def most_finetunings(rng, world, size):
    """The claim that most are above a threshold, at which the median is."""
    effects, _, median = of_seeds(rng, world, (size, 1))
    error = 0.1
    each = effects[:, 0] - median + error * rng.normal()
    found = over_runs.contrasts([([one], [error]) for one in each], 100)
    p_values = over_runs.all_above(found)
    _, low, high = found.typical(0)
    return {'error': min(p_values) <= student.LEVEL / 2, 'covered': holds(low, high)}


def some_finetunings(rng, world, size):
    """One fine-tuning may need a head by chance; that half need it is to be found."""
    nothing = over_seeds(rng, np.zeros((size, MASKS)))
    half = np.zeros((size, MASKS))
    half[::2, 0] = 0.7
    assert nothing.seeds is not None
    found = over_seeds(rng, half).seeds
    assert found is not None
    return {
        'error': (nothing.seeds.needed_p <= student.LEVEL).any(),
        'found': found.needed_p[0] <= student.LEVEL,
    }


def the_best(rng, world, size):
    """The interval of the mask with the highest score of forty, which all lose alike."""
    labels, shared, own = rng.normal(size=(3, size))
    intact = labels + 0.4 * shared + 0.45 * own
    masked = intact + 0.3 * changes(rng, world, (40, size))
    truth = (1.3625 + 0.09) ** -0.5 - 1.3625**-0.5
    below, above = selection.tails(40)
    given = 'pearson', masked, intact, labels
    low, high = influence.interval(*given, below=below, above=above, chosen=True)
    best = np.argmax([np.corrcoef(each, labels)[0, 1] for each in masked])
    return {'covered': holds(low[best], high[best], truth)}


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
    low, high = wilson(*map(np.array, (each.mean(), error, 5 * size, size)))
    return {'covered': holds(low, high, truth)}


def rankings(rng, world, size):
    """Two samples rank forty heads; the truth is what samples of this size agree by."""
    truth = np.linspace(-1, 1, 40)
    noise = [4 * changes(rng, world, (size, 40)) for _ in range(2)]
    found = rank_agreement(*(truth + each for each in noise), paired=False)
    return {'rank': found.rank, 'low': found.low, 'high': found.high}


def until_decided(rng, world, size):
    """No interval of any mask misses its mean after any block of 32 texts."""
    values, extreme, missed = changes(rng, world, (MASKS, size)), (0.0, 0.0), False
    for read in range(32, size + 1, 32):
        level = student.LEVEL / MASKS
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


_TEXTS = tuple((world, 300) for world in ('normal', 'skewed', *SHARES))
_FEW = (*_TEXTS, ('normal', 100), ('sparse, 3 %', 100), ('sparse, 1 %', 100))
_SEEDS = tuple((world, 10) for world in ('normal', 'skewed', 'one in five fails'))
_ONE = 'this model, other texts'
_ANY = 'any fine-tuning, other texts'
QUESTIONS = {
    'mean': Question(
        'Does losing a head change a loss, or how well texts are told apart?',
        "Student's t by a bootstrap of texts; intervals allow for skew and unseen texts",
        'max-T', _ONE, a_mean, _FEW,
    ),
    'score': Question(
        'Does it change accuracy, or F1?',
        'exact McNemar (accuracy), swaps of answers (F1); score intervals',
        'Holm', _ONE, a_score, _TEXTS,
    ),
    'correlation': Question(
        "Does it change Pearson's r, or Spearman's?",
        'parts of texts; intervals allow for skew and unseen texts',
        'Holm', _ONE, a_correlation, _FEW,
    ),
    'finetunings': Question(
        'Does it in any fine-tuning, on average or in most?',
        'seeds and texts as samples, and flips of seeds: both',
        'Holm and max-T', _ANY, finetunings, _SEEDS,
    ),
    'some': Question(
        'Do some fine-tunings need the head?',
        'partial conjunction of the tests of fine-tunings',
        'Bonferroni', _ANY, some_finetunings, (('normal', 10),),
    ),
    'most': Question(
        'Does a claim hold in most fine-tunings?',
        'sign test, widened by the texts',
        'none: a claim is one test', _ANY, most_finetunings, _SEEDS,
    ),
    'best': Question(
        'How much does the best of forty heads gain?',
        'its interval, corrected for the choice',
        'Bonferroni, one side', _ONE, the_best, _TEXTS,
    ),
    'random head': Question(
        'What does losing a random head do to the score?',
        'parts of texts, mean over heads', 'none: one test', _ONE, a_random_head, _TEXTS,
    ),
    'share': Question(
        'How often does a head follow a link?',
        "Wilson's interval, for links that come in texts",
        'none: an interval', _ONE, a_share, (('normal', 300), ('sparse, 3 %', 300)),
    ),
    'rankings': Question(
        'Do two samples rank heads alike?',
        "jackknife on Fisher's scale", 'none: an interval', _ONE, rankings, _TEXTS[:3],
    ),
    'decided': Question(
        'Can the sweep stop early?',
        'intervals that hold at all times', 'Bonferroni', _ONE, until_decided, _TEXTS,
    ),
    'ratio': Question(
        'What share of an effect is another?',
        'Fieller', 'none: an interval', _ONE, a_ratio, _TEXTS[:3],
    ),
}  # fmt: skip
COLUMNS = {
    'error': 'false finding',
    'small': 'wrongly small',
    'covered': 'interval holds',
    'found': 'detectable is found',
}


def measured(name: str, worlds: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield the rates of a question in each of its worlds, with the size of the sample."""
    question = QUESTIONS[name]
    for world, size in question.worlds:
        rng = np.random.default_rng(size)
        drawn = [question.draw(rng, world, size) for _ in range(worlds)]
        each = {key: np.array([float(one[key]) for one in drawn]) for key in drawn[0]}
        if 'rank' in each:
            each = {'covered': holds(each['low'], each['high'], each['rank'].mean())}
        yield world, size, {key: round(float(np.mean(value)), 3) for key, value in each.items()}


def main() -> None:
    """Print what came out, a line for each question, world and size of the sample."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument('--worlds', type=int, default=1000)
    parser.add_argument('--only', default=','.join(QUESTIONS))
    given = parser.parse_args()
    for name in given.only.split(','):
        print(f'{QUESTIONS[name].question} ({QUESTIONS[name].method})')
        for world, size, rates in measured(name, given.worlds):
            said = ', '.join(f'{COLUMNS[key]} {rate:.3f}' for key, rate in rates.items())
            print(f'  {world}, {size}: {said}', flush=True)


if __name__ == '__main__':
    main()
