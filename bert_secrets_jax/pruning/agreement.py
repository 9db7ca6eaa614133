"""How far two rankings of heads agree, where both are means over samples.

Shapes: P parts of a sample (examples, mostly), H whatever is ranked (heads), of any shape.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.paper import spearman

# Parts are left out in so many groups: each costs a ranking, and more give the same interval.
_GROUPS = 20
_HALVES = 50
# A correlation of 1 has no finite value on Fisher's scale.
_GREATEST = 1 - 1e-9


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation, with the 95 % interval for samples like these and as large.

    It is NaN where one of the two ranks nothing, the interval where a sample has a single part.
    """

    rank: float
    low: float
    high: float


def rank_agreement(
    first: Float[np.ndarray, 'P *H'],
    second: Float[np.ndarray, 'Q *H'],
    *,
    paired: bool,
    score: Callable[[np.ndarray], np.ndarray] = lambda means: means,
) -> Agreement:
    """Return the rank correlation of two rankings, with an interval over both samples.

    It is that of the jackknife over groups of parts, on Fisher's scale, with Student's t (Efron and
    Tibshirani 1993, chapter 11). Where effects are small against their errors, larger samples would
    show a greater correlation. Paired samples are of the same parts, which are left out together.
    `score` makes of the mean of the first what is ranked.
    """
    if paired and len(first) != len(second):
        raise ValueError(f'Paired samples are of one size, not {len(first)} and {len(second)}.')
    one, other = score(first.mean(axis=0)), second.mean(axis=0)
    ones, others = list(map(score, _without_each_group(first))), _without_each_group(second)
    if paired:
        samples = [list(map(spearman, ones, others))]
    else:
        samples = [
            [spearman(each, other) for each in ones],
            [spearman(one, each) for each in others],
        ]
    return jackknifed(spearman(one, other), samples)


def jackknifed(estimate: float, samples: Sequence[Sequence[float] | np.ndarray]) -> Agreement:
    """Return a rank correlation with its interval, from those without each group of a sample.

    `samples` has, for each independent sample, the correlations without each of its groups.
    """
    if min(map(len, samples)) < 2 or np.isnan(estimate):
        return Agreement(estimate, np.nan, np.nan)
    variance = 0.0
    for found in samples:
        z = np.arctanh(np.clip(found, -_GREATEST, _GREATEST))
        variance += (len(z) - 1) / len(z) * float(((z - z.mean()) ** 2).sum())
    reach = scipy.stats.t.ppf(0.975, min(map(len, samples)) - 1) * np.sqrt(variance)
    centre = np.arctanh(np.clip(estimate, -_GREATEST, _GREATEST))
    low, high = np.tanh(centre - reach), np.tanh(centre + reach)
    # A correlation of 1 is beyond the transformation, and within its interval all the same.
    return Agreement(estimate, float(min(low, estimate)), float(max(high, estimate)))


def reliability(parts: Float[np.ndarray, 'P *H'], *, seed: int = 0) -> float:
    """Return the rank correlation that a second sample of this size would have with this one.

    It is estimated from random halves by the formula of Spearman and Brown; no other ranking can be
    expected to agree better. NaN for fewer than four parts.
    """
    count = len(parts)
    if count < 4:
        return np.nan
    rng, found = np.random.default_rng(seed), []
    for _ in range(_HALVES):
        order = rng.permutation(count)
        halves = (parts[chosen].mean(axis=0) for chosen in np.array_split(order, 2))
        found.append(spearman(*halves))
    half = float(np.mean(found))
    return 2 * half / (1 + half) if half > 0 else half


def _without_each_group(parts: np.ndarray) -> list[np.ndarray]:
    """Return the means without each group of parts."""
    total, count = parts.sum(axis=0), len(parts)
    if count < 2:
        return []
    # Neighbours may be alike: each group has parts of the whole sample.
    groups = min(_GROUPS, count)
    return [
        (total - parts[start::groups].sum(axis=0)) / (count - len(parts[start::groups]))
        for start in range(groups)
    ]
