"""How far heads do alike in several models or corpora, and how far fine-tunings agree.

Axes: S seeds (each is one fine-tuned model) or samples, M masks, P parts of a sample (examples), H
heads, R resamples, C covariates. Grids of heads have L layers of N heads, or K of M.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.stats.correlations import RankAgreement, jackknifed, spearman

_HALVES = 50
# A correlation is not corrected for less reliability: what is left would be noise.
_LEAST = 0.3
_ROUNDS = 9999  # random pairings

OfSeeds = Float[np.ndarray, 'S M']


@dataclasses.dataclass(frozen=True)
class Agreement:
    """How well two fine-tunings agree on what the masks do, on the same examples.

    Intervals are 95 % over seeds (jackknife on Fisher's scale). NaN with too few seeds or masks.

    Attributes:
      rank: Spearman's rank correlation of the effects of two seeds, mean over pairs of seeds.
      icc1: ICC(1) of Shrout and Fleiss (1979): the share of the variance that lies between masks.
      icc3: ICC(3,1): the same, but the mean effect of a seed over all masks does not count.
      reliability: The rank correlation of one seed's effects with those on other examples.
      beyond_noise: How far the fine-tunings themselves agree, without the noise of examples, also
        without that which they share: from different examples (`agreement`). At most 1, and NaN
        where reliability is below 0.3.
      of_heads, of_finetunings, of_examples: The shares of the variance of one fine-tuning's effects
        that belong to the mask, to the fine-tuning, and to the examples (noise).
    """

    rank: float
    rank_low: float
    rank_high: float
    icc1: float
    icc1_low: float
    icc1_high: float
    icc3: float
    icc3_low: float
    icc3_high: float
    reliability: float = np.nan
    beyond_noise: float = np.nan
    of_heads: float = np.nan
    of_finetunings: float = np.nan
    of_examples: float = np.nan


def agreement(effects: OfSeeds, values: Float[np.ndarray, 'S M P'] | None = None) -> Agreement:
    """Return how well two seeds agree on the effects of masks; one with a NaN is left out.

    `values` are, for each seed, those of every example of which its effects are means; without
    them, nothing is said about noise.
    """
    known = np.isfinite(effects).all(axis=0)
    effects = effects[:, known]
    seeds, masks = effects.shape
    if seeds < 2 or masks < 3:
        return Agreement(*[np.nan] * 9)
    numbers = []
    for each in (_rank_correlation, _icc1, _icc3):
        # Without one of two seeds there is no correlation.
        found = jackknifed(
            lambda left, each=each: each(np.delete(effects, left, axis=0)),
            seeds if seeds > 2 else 1,
        )
        numbers += dataclasses.astuple(found)
    if values is None:
        return Agreement(*numbers)
    values = values[:, known]
    between = _between_halves(values, seed=0)
    own = between.diagonal()
    reliable = float(np.mean([_of_whole(each) for each in own]))
    # Seeds that answer the same examples share noise, which would look like agreement.
    across = (between.sum() - own.sum()) / (seeds - 1) / own.sum()
    beyond = float(np.clip(across, -1, 1)) if reliable >= _LEAST else np.nan
    return Agreement(*numbers, *[reliable, beyond, *_shares(effects, values)])


def _between_halves(values: Float[np.ndarray, 'S M P'], *, seed: int) -> Float[np.ndarray, 'S S']:
    """Return the rank correlations of each seed on one half of the parts with each on the other.

    They are means over random halves; NaN for fewer than four parts.
    """
    seeds, _, count = values.shape
    if count < 4:
        return np.full((seeds, seeds), np.nan)
    rng, found = np.random.default_rng(seed), np.zeros((seeds, seeds))
    for _ in range(_HALVES):
        halves = np.array_split(rng.permutation(count), 2)
        ranks = (scipy.stats.rankdata(values[..., each].mean(axis=2), axis=1) for each in halves)
        with np.errstate(invalid='ignore'):
            found += np.corrcoef(*ranks)[:seeds, seeds:] / _HALVES
    return found


def _of_whole(half: float) -> float:
    """Return the reliability of a sample from that of its half (Spearman and Brown)."""
    return 2 * half / (1 + half) if half > 0 else half


def without_noise(correlation: float, *reliabilities: float) -> float:
    """Return a correlation of two measurements without their noise, between -1 and 1.

    It is divided by the geometric mean of their reliabilities, or by the one that both have
    (Spearman 1904). NaN where one is below 0.3.
    """
    if not all(each >= _LEAST for each in reliabilities):
        return np.nan
    reliable = np.prod(reliabilities) ** (1 / len(reliabilities))
    return float(np.clip(correlation / reliable, -1, 1))


def _shares(effects: OfSeeds, values: Float[np.ndarray, 'S M P']) -> tuple[float, float, float]:
    """Return the shares of masks, of fine-tunings and of examples in the variance of one seed.

    The variances by examples are those of one seed's effect and of the mean of all seeds, of which
    follows how much the seeds share. Each part is estimated from mean squares, and at least 0.
    """
    seeds = len(effects)
    # Only differences between masks count.
    effects, values = (each - each.mean(axis=1, keepdims=True) for each in (effects, values))
    noise, of_mean = (
        float(each.var(axis=-1, ddof=1).mean()) / values.shape[2]
        for each in (values, values.mean(axis=0))
    )
    own = (noise - of_mean) * seeds / (seeds - 1)
    within = effects.var(axis=0, ddof=1).mean()
    of_masks = max(effects.mean(axis=0).var(ddof=1) - within / seeds - (noise - own), 0.0)
    parts = np.array([of_masks, max(within - own, 0.0), noise])
    heads, finetunings, examples = parts / (parts.sum() or np.nan)
    return float(heads), float(finetunings), float(examples)


def _rank_correlation(effects: np.ndarray) -> float:
    """Spearman's correlation of two seeds, mean over pairs in which both have different effects."""
    ranks = scipy.stats.rankdata(effects, axis=1)
    ranks = ranks[np.ptp(ranks, axis=1) > 0]
    if len(ranks) < 2:
        return np.nan
    return float(np.corrcoef(ranks)[np.triu_indices(len(ranks), 1)].mean())


def _icc1(effects: np.ndarray) -> float:
    return _intraclass(effects, effects.var(axis=0, ddof=1).mean())


def _icc3(effects: np.ndarray) -> float:
    masks = effects.shape[1]
    # Without the means of the seeds, S - 1 further degrees of freedom are gone.
    rest = effects - effects.mean(axis=1, keepdims=True)
    return _intraclass(effects, rest.var(axis=0, ddof=1).mean() * masks / (masks - 1))


def _intraclass(effects: np.ndarray, within: float) -> float:
    seeds, between = len(effects), len(effects) * effects.mean(axis=0).var(ddof=1)
    whole = between + (seeds - 1) * within
    return float((between - within) / whole) if whole > 0 else np.nan


def reliability(parts: Float[np.ndarray, 'P *H'], *, seed: int = 0) -> float:
    """Return the rank correlation that a second sample of this size would have with this one.

    It is estimated from random halves by the formula of Spearman and Brown; no other ranking can be
    expected to agree better. NaN for fewer than four parts.
    """
    values = parts.reshape(len(parts), -1).T
    values = values[np.isfinite(values).all(axis=1)]
    return float(_of_whole(_between_halves(values[None], seed=seed)[0, 0]))


def across_halves(
    samples: Sequence[Float[np.ndarray, '_ H']], *, paired: bool, resamples: int = 0, seed: int = 0
) -> Float[np.ndarray, 'R S S']:
    """Return rank correlations over heads of a half of each sample with the other half of each.

    So no common part makes samples alike, and the diagonal is the most to be expected. The first
    matrix is of the samples, others of parts drawn again, the same of `paired` samples.
    """
    rng, halves, weights = np.random.default_rng(seed), ([], []), []
    for values in samples:
        if not (paired and weights):
            sizes = [len(values[half::2]) for half in (0, 1)]
            drawn = [rng.multinomial(n, np.full(n, 1 / n), resamples) for n in sizes]
            weights = [np.vstack([np.ones((1, each.shape[1])), each]) for each in drawn]
        for half, ranks in enumerate(halves):
            part, known = values[half::2], np.isfinite(values[half::2])
            with np.errstate(invalid='ignore'):
                means = weights[half] @ np.where(known, part, 0) / (weights[half] @ known)
                places = scipy.stats.rankdata(means, axis=1)
                places -= places.mean(axis=1, keepdims=True)
                ranks.append(places / np.linalg.norm(places, axis=1, keepdims=True))
    found = np.einsum('SRH,URH->RSU', *map(np.stack, halves))
    return (found + np.swapaxes(found, 1, 2)) / 2


def ranks_with_errors(
    halves: Sequence[Float[np.ndarray, '_ H']],
    errors: Sequence[Float[np.ndarray, '_ H']],
    *,
    resamples: int,
    seed: int = 0,
) -> Float[np.ndarray, 'R S S']:
    """Return the same where each half has one value with a normal error: resamples are drawn."""
    rng, both = np.random.default_rng(seed), [*zip(halves, errors, strict=True)]
    drawn = [[a + e * rng.normal(size=e.shape) for a, e in both] for _ in range(resamples)]
    found = [across_halves(each, paired=True) for each in (list(halves), *drawn)]
    return np.concatenate(found)


def explained(
    samples: Sequence[Float[np.ndarray, '_ H']], covariates: Sequence[Float[np.ndarray, '_ C']]
) -> float:
    """Return the share of the variance between samples that covariates explain, over all heads.

    Slopes are those within samples (analysis of covariance). Below 0, samples with the same
    covariates would differ more.
    """
    both = [np.hstack([*each]) for each in zip(samples, covariates, strict=True)]
    both = [each[np.isfinite(each).all(axis=1)] for each in both]
    means, heads = np.stack([each.mean(axis=0) for each in both]), samples[0].shape[1]
    rest = [(a - m) / np.sqrt(len(a)) for a, m in zip(both, means, strict=True)]
    within, whole = np.concatenate(rest), means[:, :heads].var(axis=0).sum()
    slopes, *_ = np.linalg.lstsq(within[:, heads:], within[:, :heads], rcond=None)
    adjusted = means[:, :heads] - means[:, heads:] @ slopes
    return float(1 - adjusted.var(axis=0).sum() / whole) if whole > 0 else np.nan


def of_grids(one: Float[np.ndarray, 'L N'], other: Float[np.ndarray, 'L N']) -> RankAgreement:
    """Return the rank correlation of two grids of heads, with an interval over layers.

    The interval is that of the jackknife over layers, since heads of one layer may be alike. A head
    of unknown value is NaN in both grids.
    """
    # A layer of which nothing is known is no part of the sample.
    known = ~np.isnan(one).all(axis=1)
    both = one[known], other[known]
    return jackknifed(
        lambda left: spearman(*(np.delete(each, left, axis=0) for each in both)), int(known.sum())
    )


def by_depth(grid: Float[np.ndarray, 'L N']) -> tuple[np.ndarray, np.ndarray]:
    """Return the relative depth (0 to 1) of each layer and its mean; NaN where no head is known."""
    import pandas

    return np.linspace(0, 1, len(grid)), pandas.DataFrame(grid).mean(axis=1).to_numpy()


def alike(one: Float[np.ndarray, 'L N'], other: Float[np.ndarray, 'K M']) -> dict[str, Any]:
    """Return how far two grids of heads agree, which may be of models of other shapes.

    Returns:
      heads: The number of heads that both know; 0 if none has a counterpart in the other.
      rank_correlation, low, high: Their rank correlation (`of_grids`); NaN without counterparts.
      within_layers, within_layers_low, within_layers_high: The same without the mean of each layer,
        so that two grids do not agree only because both depend on depth.
      depth_profile: The rank correlation of the means of layers at the same relative depth.
    """
    heads, overall, within = 0, *[RankAgreement(np.nan, np.nan, np.nan)] * 2
    if one.shape == other.shape:
        either = np.isnan(one) | np.isnan(other)
        both = [np.where(either, np.nan, each) for each in (one, other)]
        heads, overall = int((~either).sum()), of_grids(*both)
        within = of_grids(*(each - by_depth(each)[1][:, None] for each in both))
    profiles = by_depth(one), by_depth(other)
    # At the depths of the model with fewer layers.
    depth, _ = min(profiles, key=lambda each: len(each[0]))
    return {
        'heads': heads,
        'rank_correlation': overall.rank,
        'low': overall.low,
        'high': overall.high,
        'within_layers': within.rank,
        'within_layers_low': within.low,
        'within_layers_high': within.high,
        'depth_profile': spearman(*(np.interp(depth, *each) for each in profiles)),
    }


def pairs_of(
    choosing: Float[np.ndarray, 'L N K M'], divergences: Float[np.ndarray, 'L N K M'], seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the closest pairs by one half's divergences, and random pairs' mean in the other."""
    shapes = choosing.shape[:2], choosing.shape[2:]
    sizes = [math.prod(shape) for shape in shapes]
    flat = divergences.reshape(sizes)
    pairs = scipy.optimize.linear_sum_assignment(choosing.reshape(sizes))
    rng = np.random.default_rng(seed)
    drawn = [[rng.permutation(size)[: min(sizes)] for size in sizes] for _ in range(_ROUNDS)]
    by_chance = np.array([flat[*each].mean() for each in drawn])
    first, second = (np.stack(each, 1) for each in map(np.unravel_index, pairs, shapes))
    return first, second, by_chance
