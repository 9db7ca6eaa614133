"""Effects of many masks that selection does not flatter, and how many masks have any effect.

The greatest of many measured effects is partly the luckiest. Empirical Bayes learns from all masks
how large effects are, and shrinks each accordingly (Stephens 2017, "False discovery rates: a new
deal"). The prior has its mode at 0, and falls on either side in its own way: it is a mixture of
half-normal distributions and of no effect at all.

Axes: M masks, K components of the prior, R resamples.
"""

import dataclasses

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from bert_secrets_jax.brief import brief
from bert_secrets_jax.stats.scores import PerMask
from bert_secrets_jax.stats.student import LEVEL

# So many masks without any effect are added to the data. With none, a world without any effect
# would seem to have small ones everywhere; with ten, as published, small effects seem rare.
_NONE_BEFORE = 1.0
_STEPS = 2000
_ENOUGH = 1e-9


@dataclasses.dataclass(frozen=True)
class Shrunken:
    """Effects given what all masks show.

    Attributes:
      mean, low, high: [M] The posterior means, and the ends of 95 % intervals.
      share: The share of masks with an effect, as the prior has it; cautious with few masks.
      at_least: The number of masks that have an effect, at least, with a certainty of 95 %; 0 over
        fine-tunings, for which no count is known that holds.
    """

    mean: PerMask
    low: PerMask
    high: PerMask
    share: float
    at_least: int

    __repr__ = brief


def shrink(difference: PerMask, error: PerMask, *, at_least: int = 0) -> Shrunken:
    """Return effects of which errors are about normal, given those of all other masks.

    A mask without an error, which changes nothing, has no effect and is not one of the data. Errors
    count as independent; effects that are measured on the same examples have errors in common, so
    that all of them may be a little too large or too small.

    Args:
      difference, error: The effects and their standard errors [M].
      at_least: As in `Shrunken`, by `calibrated_count`.
    """
    known = error > 0
    mean, low, high = (np.zeros(len(difference)) for _ in range(3))
    share = 0.0
    if known.any():
        found = _posterior(difference[known], error[known])
        mean[known], low[known], high[known] = found[:3]
        share = found[3] * known.mean()
    return Shrunken(mean, low, high, float(share), at_least)


def calibrated_count(
    p_values: PerMask, resampled: Float[np.ndarray, 'R M'], *, level: float = LEVEL
) -> int:
    """Return the number of masks that have an effect, at least, with a certainty of 1 - level.

    It says how many, and not which. `resampled` are p-values in which no mask has an effect. It
    holds however masks depend on each other, and for skewed data as far as resamples do. Simes'
    line is lowered until a share `level` of the resamples has a p-value below it (Blanchard,
    Neuvial and Roquain 2020, "Post hoc confidence bounds on false positives").
    """
    masks = len(p_values)
    ranks = np.arange(1, masks + 1)
    lowest = np.sort((np.sort(resampled, axis=1) * masks / ranks).min(axis=1))
    line = lowest[int(level * (len(lowest) + 1)) - 1] * ranks / masks
    # At most k - 1 masks without an effect are below the k-th value of the line.
    below = np.searchsorted(np.sort(p_values), line)
    return max(int((below - ranks + 1).max()), 0)


def _posterior(difference: np.ndarray, error: np.ndarray):
    """Return means and ends of intervals [M], and the share with an effect."""
    widths = _widths(difference, error)
    sign = np.r_[np.ones(len(widths)), -np.ones(len(widths))]
    width = np.r_[widths, widths]
    # Given a component, an effect is normal around `centre` and cut off at 0.
    variance = width**2 + error[:, None] ** 2  # [M, K]
    centre = difference[:, None] * width**2 / variance
    spread = width * error[:, None] / np.sqrt(variance)
    inside = scipy.special.log_ndtr(sign * centre / spread)
    likely = _log_normal(difference[:, None], np.sqrt(variance)) + np.log(2) + inside
    likely = np.c_[_log_normal(difference, error), likely]
    weights = _weights(likely)
    shares = likely + np.log(weights)
    shares = np.exp(shares - scipy.special.logsumexp(shares, axis=1, keepdims=True))
    none, shares = shares[:, 0], shares[:, 1:]
    # The mean of a normal distribution that is cut off at 0.
    ratio = np.exp(_log_normal(centre / spread, 1.0) - inside)
    mean = (shares * (centre + sign * spread * ratio)).sum(axis=1)

    # Where a component is all but cut off, it has no weight either.
    certain = np.exp(np.maximum(inside, -600))

    def upto(place):
        """Return the probability [M] of an effect of at most this [M]."""
        at = (place[:, None] - centre) / spread
        left = scipy.special.ndtr(-centre / spread)
        found = np.where(
            sign > 0,
            np.clip(scipy.special.ndtr(at) - left, 0, None) / certain,
            np.minimum(scipy.special.ndtr(at), left) / certain,
        )
        return (shares * np.minimum(found, 1)).sum(axis=1) + none * (place >= 0)

    reach = np.abs(difference) + 10 * error
    ends = []
    for wanted in (LEVEL / 2, 1 - LEVEL / 2):
        lower, upper = -reach, reach
        for _ in range(60):
            middle = (lower + upper) / 2
            enough = upto(middle) >= wanted
            lower, upper = np.where(enough, lower, middle), np.where(enough, middle, upper)
        ends.append(np.where(np.abs(upper) < 1e-12 * reach, 0.0, upper))
    return mean, *ends, 1 - weights[0]


def _widths(difference: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return the widths of the components: from a tenth of an error to all there is."""
    least = error.min() / 10
    most = 2 * np.sqrt(max((difference**2 - error**2).max(), (8 * least) ** 2))
    return np.geomspace(least, most, 1 + int(np.ceil(2 * np.log2(most / least))))


def _weights(likely: Float[np.ndarray, 'M K']) -> Float[np.ndarray, ' K']:
    """Return the weights of the components that fit best (EM), the first being no effect."""
    likely = np.exp(likely - likely.max(axis=1, keepdims=True))
    before = np.zeros(likely.shape[1])
    before[0] = _NONE_BEFORE
    weights = np.full(likely.shape[1], 1 / likely.shape[1])
    for _ in range(_STEPS):
        shares = likely * weights
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0) + before
        last, weights = weights, np.maximum(counts / counts.sum(), 1e-300)
        if np.abs(weights - last).max() < _ENOUGH:
            break
    return weights


def _log_normal(value, spread):
    return scipy.stats.norm.logpdf(value, scale=spread)
