"""How large an effect must be for a test to find it, after correction for all tests.

Two numbers tell: the smallest difference that it calls significant, and the one that it finds with
a given probability (the minimal detectable effect).

Axes: M masks, C classes.
"""

import functools

import numpy as np

from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.intervals import Counted
from bert_secrets_jax.stats.scores import PerMask, bisected
from bert_secrets_jax.stats.shares import p_even
from bert_secrets_jax.stats.student import reach

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


def smallest_effects(counted: Counted, *, level: float, power: float) -> tuple[PerMask, PerMask]:
    """Return the losses [M] of a score that a paired test calls significant, and that it finds.

    The loss is that of a mask which changes as many predictions to and fro as the one in question,
    and makes some right predictions wrong, those of every class alike. The test compares the sum of
    all effects, taken as normal, with its spread if each change may as well be the other way round.
    The first loss is expected to reach the level, the second is found with the probability `power`.
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
    code = np.ravel_multi_index((labels, intact, masked), (counted.classes,) * 3)
    swapped = np.ravel_multi_index((labels, masked, intact), (counted.classes,) * 3)
    there = np.minimum(counted.counts, counted.counts[:, np.searchsorted(code, swapped)])
    to_and_fro = np.where(intact < masked, there, 0) / examples[:, None]
    moved = influence[:, labels, intact] - influence[:, labels, masked]

    def sums(share, order):
        """Return the expected sums of the losses to a power, with the signs of odd powers."""
        both = (1 + (-1) ** order) * (to_and_fro * np.abs(moved) ** order).sum(axis=1)
        return examples * (share * (turned * lost**order).sum(axis=(1, 2)) + both)

    def ahead(share, wanted):
        """Return whether a share of lost right predictions is found as often as wanted."""
        one, two, three, four = (sums(share, order) for order in (1, 2, 3, 4))
        two = np.where(two > 0, two, 1)
        variance = two - one**2 / examples
        with_two = three - one * two / examples
        of_two = four - two**2 / examples
        # The ratio one / sqrt(two) by the delta method.
        spread = (variance - one * with_two / two + (one / two) ** 2 * of_two / 4) / two
        reached = one / np.sqrt(two) - reach(tail=level / 2)
        return reached >= reach(tail=1 - wanted) * np.sqrt(np.maximum(spread, 0))

    losses = []
    for wanted in (0.5, power):
        reached = functools.partial(ahead, wanted=wanted)
        low, high = np.zeros(len(whole)), np.ones(len(whole))
        possible = reached(high)
        _, high = bisected(reached, low, high, _HALVINGS)
        away = high[:, None, None] * turned
        after = whole + away - away.sum(axis=2)[..., None] * ~wrong
        losses.append(np.where(possible, score - confusion.score(counted.metric, after), np.nan))
    return losses[0], losses[1]


def smallest_effects_on_correlation(
    errors: PerMask, score: float, examples: int, *, level: float, power: float
) -> tuple[PerMask, PerMask]:
    """Return the same for a correlation; NaN where that of the intact model is too small.

    A mask with these errors adds noise of its own to the predictions. If that lowers the
    correlation from S to S - d, it adds (1 - ((S - d) / S)^2) (1 - (S - d)^2) / E to the variance
    of the difference.
    """
    most = np.full(len(errors), max(score, 0.0))

    def ahead(loss, needed):
        left = most - loss
        share = np.divide(left, most, out=np.zeros_like(left), where=most > 0)
        added = (1 - share**2) * (1 - left**2) / examples
        return loss >= needed * np.sqrt(errors**2 + added)

    losses = []
    for wanted in (0.5, power):
        needed = reach(tail=level / 2) + reach(tail=1 - wanted)
        reached = functools.partial(ahead, needed=needed)
        _, high = bisected(reached, np.zeros(len(errors)), most, _HALVINGS)
        losses.append(np.where(reached(most) & (most > 0), high, np.nan))
    return losses[0], losses[1]
