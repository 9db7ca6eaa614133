"""How far two rankings of heads agree, where both are means over samples.

Shapes: P parts of a sample (examples, mostly), H whatever is ranked (heads), of any shape.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.paper import spearman
from bert_secrets_jax.stats.agreement import jackknife_interval

# Parts are left out in so many groups: each costs a ranking, and more give the same interval.
_GROUPS = 20


@dataclasses.dataclass(frozen=True)
class RankAgreement:
    """Spearman's rank correlation with its 95 % interval; NaN where there is none."""

    rank: float
    low: float
    high: float


def rank_agreement(
    first: Float[np.ndarray, 'P *H'],
    second: Float[np.ndarray, 'Q *H'],
    *,
    paired: bool,
    score: Callable[[np.ndarray], np.ndarray] = lambda means: means,
) -> RankAgreement:
    """Return the rank correlation of two rankings, with an interval over both samples.

    It is that of the jackknife over groups of parts. Where effects are small against their errors,
    larger samples would show a greater correlation. Paired samples are of the same parts, which are
    left out together. `score` makes of the mean of the first what is ranked.
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


def jackknifed(estimate: float, samples: Sequence[Sequence[float] | np.ndarray]) -> RankAgreement:
    """Return a rank correlation with its interval, from those without each group of each sample."""
    return RankAgreement(estimate, *jackknife_interval(estimate, samples))


def _without_each_group(parts: np.ndarray) -> list[np.ndarray]:
    total, count = parts.sum(axis=0), len(parts)
    if count < 2:
        return []
    # Neighbours may be alike: each group has parts of the whole sample.
    groups = min(_GROUPS, count)
    return [
        (total - parts[start::groups].sum(axis=0)) / (count - len(parts[start::groups]))
        for start in range(groups)
    ]
