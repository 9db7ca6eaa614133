"""Effects of masks over fine-tunings of one recipe, with the seeds as a sample.

Axes: S seeds (each is one fine-tuned model), M masks, E examples.

All models answer the same examples, so seeds and examples are crossed. The value of an example
under one mask and one model is the sum of a mean, an effect of the seed, an effect of the example
that all seeds share, and a remainder. The mean of all values has the variance seeds / S + examples
/ E + remainder / (S * E), where each name stands for the variance of that effect. Mean squares
estimate it (Searle, Casella and McCulloch 1992, chapter 4). For other metrics than accuracy, an
example counts as its influence on the score (the jackknife).

Simulated with 5 to 10 seeds and 277 to 1,500 examples, 93 to 97 % of the intervals hold the mean
effect; 92 % where the effects of seeds are strongly skewed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.special
from jaxtyping import Float, Real

from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.agreement import agreement
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.effects import ANY_FINETUNING, BySeed, Effects
from bert_secrets_jax.stats.influence import per_example as per_example
from bert_secrets_jax.stats.resampling import sign_flip_test
from bert_secrets_jax.stats.scores import METRICS as METRICS
from bert_secrets_jax.stats.scores import PerMask, bisected, quietly
from bert_secrets_jax.stats.student import LEVEL, POWER, exact_interval, reach

# Up to so many flips of the seeds' signs are all made, which is exact for up to 12 seeds.
FLIPS = 4096

# The smallest p-value that is looked for.
_LEAST = 1e-15
_HALVINGS = 50

OfSeeds = Float[np.ndarray, 'S M']


@dataclasses.dataclass(frozen=True)
class Variance:
    """The variance of means over seeds and examples, in two parts that add up.

    Attributes:
      of_seeds: [M] The part that was estimated from S seeds, at least what the remainder leads to.
      of_examples: [M] The part that was estimated from E examples.
      degrees: [M] The degrees of freedom of the sum (Satterthwaite 1946), at least S - 1.
    """

    of_seeds: PerMask
    of_examples: PerMask
    degrees: PerMask
    seeds: int
    examples: int

    @property
    def half_width(self) -> PerMask:
        """[M] Half of the 95 % interval of the mean."""
        return reach(self.degrees) * np.sqrt(self.of_seeds + self.of_examples)

    def least_significant(self, p_value: float | PerMask) -> PerMask:
        """Return the size of a mean [M] that has a two-sided p-value.

        Each part has Student's quantile with its own degrees of freedom. Satterthwaite's are
        estimated: of simulated families of 144 masks without any effect, 22 % instead of 5 % had a
        significant one.
        """
        seeds, examples = (
            reach(max(count - 1, 1), np.asarray(p_value) / 2) ** 2
            for count in (self.seeds, self.examples)
        )
        return np.sqrt(seeds * self.of_seeds + examples * self.of_examples)

    def detectable(self, masks: int) -> PerMask:
        """Return the means [M] that are found with a probability of POWER among so many masks.

        NaN for five seeds and fewer, of which flips of signs find nothing. Of 2^S flips so few may
        be as great that the level falls: to .016 with six seeds. Each part has the noncentrality of
        its own t. Simulated with 6 to 10 seeds, 70 to 87 % of such means were found.
        """
        least = least_p(self.seeds)
        if least > LEVEL:
            return np.full(self.of_seeds.shape, np.nan)
        # An observed mean has to be the k-th greatest of all flips: half a place is lost.
        level = min((np.floor(LEVEL / least) - 0.5) * least, LEVEL)
        sizes = []
        for count, share in ((self.seeds, level), (self.examples, LEVEL)):
            bar = reach(count - 1, share / masks / 2)
            sizes.append(scipy.special.nctdtrinc(count - 1, 1 - POWER, bar))
        of_seeds, of_examples = np.square(sizes)
        return np.sqrt(of_seeds * self.of_seeds + of_examples * self.of_examples)

    def p_values(self, mean: PerMask) -> PerMask:
        """Return the two-sided p-values [M] of the hypothesis that the means [M] are zero."""
        low, high = (np.full(mean.shape, np.log(end)) for end in (_LEAST, 1.0))
        _, high = bisected(
            lambda p: np.abs(mean) >= self.least_significant(np.exp(p)), low, high, _HALVINGS
        )
        return np.where(np.isnan(mean), np.nan, np.where(mean == 0, 1, np.exp(high)))


def assess_seeds(
    alone: Sequence[Effects],
    predictions: Real[np.ndarray, 'S M E'],
    intact: Real[np.ndarray, 'S E'],
    labels: Real[np.ndarray, ' E'],
) -> Effects:
    """Compare every mask with the intact model, over the fine-tunings of one recipe.

    `alone` are the effects in each seed's model by itself (`significance.assess`), on one of
    METRICS. Both corrections for all masks have to be significant: Holm's, since the examples are a
    sample, and that by flips of seeds, since it asks for no normal distribution. `critical` is for
    a mask that is the only one with an effect. Where a score is undefined in one seed, the mask has
    NaN.
    """
    metric = alone[0].outcome.name
    values = [
        per_example(metric, of_seed, labels) - per_example(metric, one, labels)
        for of_seed, one in zip(predictions, intact, strict=True)
    ]
    return _over_seeds(alone, np.stack(values), counts=metric in confusion.METRICS)


def assess_means_over_seeds(
    alone: Sequence[Effects], linear: Float[np.ndarray, 'S M E']
) -> Effects:
    """Do the same with `alone` and `linear` of `means.assess_means`, for each seed."""
    effects = np.stack([each.difference for each in alone])
    return _over_seeds(alone, effects[..., None] + linear, counts=False)


def _over_seeds(
    alone: Sequence[Effects], values: Float[np.ndarray, 'S M E'], *, counts: bool
) -> Effects:
    first, variance = alone[0], crossed_variance(values, counts=counts)
    effects = np.stack([each.difference for each in alone])
    mean, half = effects.mean(axis=0), variance.half_width
    p_value, by_flips = _p_within(first.outcome.counts_from, effects, variance)
    p_beyond, flips_beyond = _p_within(first.outcome.margin, effects, variance)
    critical = variance.least_significant(LEVEL / len(mean))
    found = first.outcome.counts_from + variance.detectable(len(mean))
    by_seed = _by_seed(alone, holm(p_value), by_flips, values)
    return Effects(
        names=first.names,
        difference=mean,
        low=mean - half,
        high=mean + half,
        p_value=p_value,
        corrected=np.maximum(by_seed.holm, by_seed.max_t),
        sample=len(effects),
        sample_of='fine-tunings',
        population=ANY_FINETUNING,
        outcome=first.outcome,
        intact=float(by_seed.intact.mean()),
        test='seeds and examples',
        correction='Holm and flips of seeds',
        critical=critical,
        detectable=found,
        beyond=np.maximum(holm(p_beyond), flips_beyond),
        seeds=by_seed,
    )


def _p_within(margin: float, effects: OfSeeds, variance: Variance) -> tuple[PerMask, PerMask]:
    """Return p-values [M] of means within the margin: by the variance, and by flips of signs.

    The flips are corrected for all masks.
    """
    mean = effects.mean(axis=0)
    ahead = effects - margin * np.sign(mean)
    within = np.abs(mean) < margin
    by_variance, by_flips = variance.p_values(ahead.mean(axis=0)), max_t(ahead)
    return np.where(within, 1.0, by_variance), np.where(within, 1.0, by_flips)


def as_one_seed(alone: Effects) -> Effects:
    """Return the effects on a single model (`significance.assess`) as those over one seed."""
    by_flips = np.where(np.isnan(alone.difference), np.nan, least_p(1))
    by_seed = _by_seed([alone], alone.corrected, by_flips)
    return dataclasses.replace(alone, sample=1, sample_of='fine-tunings', seeds=by_seed)


def _by_seed(
    alone: Sequence[Effects],
    by_holm: PerMask,
    by_flips: PerMask,
    values: Float[np.ndarray, 'S M E'] | None = None,
) -> BySeed:
    effects = np.stack([each.difference for each in alone])
    corrected = np.stack([each.corrected for each in alone])
    worse = np.stack([each.gain for each in alone]) < 0
    p_worse = np.where(worse, [each.p_beyond for each in alone], 1.0)
    second = np.sort(p_worse, axis=0)[min(1, len(alone) - 1)]
    needed = (p_worse <= LEVEL).sum(axis=0)
    needed_low, needed_high = exact_interval(needed, len(alone))
    return BySeed(
        intact=np.array([each.intact for each in alone]),
        difference=effects,
        spread=quietly(np.std, effects, axis=0, ddof=1),
        holm=by_holm,
        max_t=by_flips,
        least_p=least_p(len(alone)),
        significant_share=(corrected <= LEVEL).mean(axis=0),
        needed_share=needed / len(alone),
        needed_low=needed_low,
        needed_high=needed_high,
        needed_p=np.minimum(len(alone) * second, 1) if len(alone) > 1 else np.ones(len(second)),
        agreement=agreement(effects, values),
    )


def crossed_variance(values: Float[np.ndarray, 'S M E'], *, counts: bool) -> Variance:
    """Estimate the variance of the means of values [S, M, E] over seeds and examples.

    With `counts`, values count examples on which predictions changed. Where next to none changed,
    their variance is next to nothing by chance; so half a change is added.
    """
    seeds, _, examples = values.shape
    if seeds < 2 or examples < 2:
        raise ValueError(
            f'At least two seeds and two examples are needed, got {seeds} and {examples}.'
        )
    means = values.mean(axis=2)
    rest = values - means[..., None]
    # Sums of squares over all seeds and examples: what seeds share, and all.
    shared = seeds * np.einsum('ME,ME->M', *[rest.mean(axis=0)] * 2)
    every = np.einsum('SME,SME->M', rest, rest)
    of_seeds = examples * means.var(axis=0, ddof=1)
    of_examples = shared / (examples - 1)
    remainder = (every - shared) / ((seeds - 1) * (examples - 1))
    # The expected value of each of the others is not below that of the remainder.
    first, second = np.maximum(of_seeds, remainder), np.maximum(of_examples - remainder, 0)
    squares = (
        of_seeds**2 / (seeds - 1)
        + of_examples**2 / (examples - 1)
        + remainder**2 / ((seeds - 1) * (examples - 1))
    )
    none = squares == 0
    degrees = (first + second) ** 2 / np.where(none, 1, squares)
    further = 0.0
    if counts:
        alike = np.where(every > 0, seeds * shared / np.where(every > 0, every, 1), seeds)
        further = (0.5 * np.clip(alike, 1, seeds) / (seeds * examples)) ** 2
    of_seeds, of_examples = first / (seeds * examples), second / (seeds * examples) + further
    return Variance(of_seeds, of_examples, np.maximum(degrees, seeds - 1), seeds, examples)


def means_variance(means: OfSeeds, errors: OfSeeds, examples: int) -> Variance:
    """Estimate the variance of means [S, M] over seeds, of which only their errors are known.

    Seeds are assumed to share all effects of examples, so that intervals are rather too wide.
    """
    seeds = len(means)
    of_examples = np.square(errors).mean(axis=0)
    of_seeds = means.var(axis=0, ddof=1) / seeds if seeds > 1 else np.zeros_like(of_examples)
    squares = of_seeds**2 / max(seeds - 1, 1) + of_examples**2 / (examples - 1)
    whole = (of_seeds + of_examples) ** 2
    degrees = np.divide(whole, squares, out=np.zeros_like(whole), where=squares > 0)
    least = seeds - 1 if seeds > 1 else examples - 1
    return Variance(of_seeds, of_examples, np.maximum(degrees, least), seeds, examples)


def max_t(effects: OfSeeds) -> PerMask:
    """Return p-values [M] of zero means over seeds, adjusted for M tests by flipping signs.

    A mask without any effect on these examples is as likely to help a fine-tuning as to harm it, so
    the signs of whole seeds may be flipped: all 2^S ways for up to 12 seeds. The greatest |t| among
    all masks is compared. A mask with a NaN has a p-value of NaN.
    """
    known = np.isfinite(effects).all(axis=0)
    p_values = np.full(effects.shape[1], np.nan)
    if known.any():
        values = np.asarray(effects, np.float64).T[known]
        p_values[known] = sign_flip_test(values, rounds=FLIPS)[1]
    return p_values


def least_p(seeds: int) -> float:
    """Return the smallest p-value that `max_t` can have: two of all flips leave |t| as it is."""
    return 2 / 2**seeds if 2**seeds <= FLIPS else 1 / (1 + FLIPS)
