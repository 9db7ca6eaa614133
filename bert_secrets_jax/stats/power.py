"""How large an effect must be for a test to find it, after correction for all tests.

Two numbers tell: the smallest difference that it calls significant, and the one that it finds with
a given probability (the minimal detectable effect).

Axes: M masks, C classes.
"""

import functools
from collections.abc import Callable

import numpy as np

from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.intervals import Counted
from bert_secrets_jax.stats.scores import PerMask, bisected
from bert_secrets_jax.stats.student import POWER, p_even, reach

_HALVINGS = 40


def critical_of_mcnemar(counted: Counted, *, level: float) -> PerMask:
    """Return the smallest changes of accuracy [M] that McNemar's exact test calls significant.

    The smaller number of gains and losses is kept, the other raised; NaN if none suffices.
    """
    examples = counted.counts.sum(axis=1)
    _, intact, masked = counted.kinds.T
    to_and_fro = [
        counted.counts[:, each].sum(axis=1) for each in (intact < masked, intact > masked)
    ]
    fewer, kept = np.unique(np.minimum(*to_and_fro), return_inverse=True)
    more = fewer.copy()
    for index, number in enumerate(fewer):
        while p_even(number, number + more[index]) > level:
            more[index] += 1
    least, most = fewer[kept], more[kept]
    return np.where(least + most <= examples, (most - least) / examples, np.nan)


def smallest_effects(counted: Counted, *, level: float) -> tuple[PerMask, PerMask]:
    """Return the losses [M] of a score that a paired test calls significant, and that it finds.

    The loss is that of a mask which changes as many predictions to and fro as the one in question,
    and makes some right predictions wrong, those of every class alike. The test compares the sum of
    all effects, taken as normal, with its spread if each change may as well be the other way round.
    The first loss is expected to reach the level, the second is found with the probability POWER.
    """
    examples = counted.counts.sum(axis=1)
    whole, _ = counted.confusions
    score = confusion.score(counted.metric, whole)
    influence = confusion.gradient(counted.metric, whole)
    # Every right answer may become any wrong one. Wrong answers of one class are alike.
    right = np.einsum('MCC->MC', whole)
    wrong = ~np.eye(counted.classes, dtype=bool)
    lost = np.einsum('MCC->MC', influence)[..., None] - influence
    turned = np.where(wrong & (lost > 0), right[..., None], 0) / max(counted.classes - 1, 1)
    # Changes to and fro: pairs of kinds that differ only in which model gives which answer.
    labels, intact, masked = counted.kinds.T
    code, swapped = (
        np.ravel_multi_index((labels, *answers), (counted.classes,) * 3)
        for answers in ((intact, masked), (masked, intact))
    )
    there = np.minimum(counted.counts, counted.counts[:, np.searchsorted(code, swapped)])
    to_and_fro = np.where(intact < masked, there, 0) / examples[:, None]
    moved = influence[:, labels, intact] - influence[:, labels, masked]

    def sums(share, order):
        """Return the expected sums of the losses to a power, with the signs of odd powers."""
        both = (1 + (-1) ** order) * (to_and_fro * np.abs(moved) ** order).sum(axis=1)
        return examples * (share * (turned * lost**order).sum(axis=(1, 2)) + both)

    def ahead(share, spare):
        """Return whether the test is ahead of its bar, if a share of right predictions is lost."""
        one, two, three, four = (sums(share, order) for order in (1, 2, 3, 4))
        two = np.where(two > 0, two, 1)
        variance = two - one**2 / examples
        with_two = three - one * two / examples
        of_two = four - two**2 / examples
        # The ratio one / sqrt(two) by the delta method.
        spread = (variance - one * with_two / two + (one / two) ** 2 * of_two / 4) / two
        reached = one / np.sqrt(two) - reach(tail=level / 2)
        return reached >= spare * np.sqrt(np.maximum(spread, 0))

    shares = np.array(_least(ahead, np.ones(len(whole))))
    away = shares[..., None, None] * turned
    after = whole + away - away.sum(axis=-1)[..., None] * ~wrong
    losses = np.where(np.isnan(shares), np.nan, score - confusion.score(counted.metric, after))
    return losses[0], losses[1]


def smallest_effects_on_correlation(
    errors: PerMask, score: float, examples: int, *, level: float
) -> tuple[PerMask, PerMask]:
    """Return the same for a correlation; NaN where that of the intact model is too small.

    A mask with these errors adds noise of its own to the predictions. If that lowers the
    correlation from S to S - d, it adds (1 - ((S - d) / S)^2) (1 - (S - d)^2) / E to the variance
    of the difference.
    """
    most = np.full(len(errors), max(score, 0.0))

    def ahead(loss, spare):
        left = most - loss
        share = np.divide(left, most, out=np.zeros_like(left), where=most > 0)
        added = (1 - share**2) * (1 - left**2) / examples
        return loss >= (reach(tail=level / 2) + spare) * np.sqrt(errors**2 + added)

    return _least(ahead, most)


def _least(ahead: Callable[..., np.ndarray], most: PerMask) -> tuple[PerMask, PerMask]:
    """Return the least numbers that are ahead in half of the cases, and as often as POWER.

    NaN where even `most` is not. `ahead` takes numbers, and by how many errors to be ahead.
    """
    found = []
    for often in (0.5, POWER):
        reached = functools.partial(ahead, spare=reach(tail=1 - often))
        _, high = bisected(reached, np.zeros(len(most)), most, _HALVINGS)
        found.append(np.where(reached(most), high, np.nan))
    return found[0], found[1]
