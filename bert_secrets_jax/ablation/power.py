"""How large an effect must be for a test to find it.

That a test finds nothing says little where it could hardly have found anything. Two numbers tell
how little: the smallest difference that it calls significant, and the one that it finds with a
given probability (the minimal detectable effect), both after correction for all tests.

Axes: M masks, C kinds of examples that a score can tell apart.
"""

import numpy as np
import scipy.stats

from bert_secrets_jax.ablation.intervals import Counted
from bert_secrets_jax.ablation.scores import PerMask

# Halvings of an interval of shares.
_HALVINGS = 40


def critical_of_mcnemar(counted: Counted, *, level: float) -> PerMask:
    """Return the smallest changes of accuracy [M] that McNemar's exact test calls significant.

    A mask gains some examples and loses some. The smaller of the two numbers is kept, and the other
    one raised until the test calls the difference significant.

    Args:
      counted: The counts for accuracy.
      level: The greatest p-value that counts as significant.

    Returns:
      The changes [M] as shares of all examples; NaN where the examples are too few for any.
    """
    examples = counted.counts.sum(axis=1)
    fewer, kept = np.unique(counted.counts[:, 1:3].min(axis=1), return_inverse=True)
    more = fewer.copy()
    for index, number in enumerate(fewer):
        while 2 * scipy.stats.binom.cdf(number, number + more[index], 0.5) > level:
            more[index] += 1
    least, most = fewer[kept], more[kept]
    return np.where(least + most <= examples, (most - least) / examples, np.nan)


def smallest_effects(counted: Counted, *, level: float, power: float) -> tuple[PerMask, PerMask]:
    """Return the losses of accuracy or F1 that a paired test calls significant, and that it finds.

    The loss is that of a mask which changes as many predictions to and fro as the one in question,
    and, beside these, makes some right predictions wrong, those of every class alike. The test
    compares the sum of the effects of all changes with the spread that it has if each change may as
    well be the other way round (swaps, as in `significance.randomization_test`; for accuracy, that
    is McNemar's test). Sums are taken as normal.

    Args:
      counted: The counts.
      level: The greatest p-value that counts as significant.
      power: The probability with which the test is to find the loss.

    Returns:
      The loss [M] at which the test is expected to reach its level, and the larger loss [M] that it
      finds with the given probability; NaN where not even a mask without a right prediction is
      found so often.
    """
    examples = counted.counts.sum(axis=1, keepdims=True)
    shares = counted.counts / examples
    (of_intact, of_mask), (per_intact, per_mask) = counted.numerators, counted.denominators
    numerator, denominator = shares @ of_intact, shares @ per_intact
    score = numerator / np.where(denominator > 0, denominator, 1)
    # What one example of each kind takes from the score, to first order and times the denominator.
    loss = (of_intact - of_mask) - score[:, None] * (per_intact - per_mask)
    kinds = np.arange(counted.counts.shape[1])
    # The lowest two bits of a kind say what the intact model and the mask answer.
    swapped = (kinds & ~3) | (kinds & 1) << 1 | (kinds & 2) >> 1
    to_and_fro = np.where(kinds != swapped, np.minimum(shares, shares[:, swapped]), 0)
    intact_right = shares + shares[:, kinds ^ 1]
    turned = np.where((kinds != swapped) & (loss > 0), intact_right, 0)

    def sums(share, order):
        """Return the expected sums of the losses to a power, with the signs of odd powers."""
        both = share[:, None] * turned + (1 + (-1) ** order) * to_and_fro
        return examples[:, 0] * (both * np.abs(loss) ** order * (turned > 0)).sum(axis=1)

    def ahead(share, wanted):
        """Return whether a share of lost right predictions is found as often as wanted."""
        one, two, three, four = (sums(share, order) for order in (1, 2, 3, 4))
        two = np.where(two > 0, two, 1)
        count = examples[:, 0]
        variance = two - one**2 / count
        with_two = three - one * two / count
        of_two = four - two**2 / count
        # The ratio one / sqrt(two) by the delta method.
        spread = (variance - one * with_two / two + (one / two) ** 2 * of_two / 4) / two
        reached = one / np.sqrt(two) - scipy.stats.norm.isf(level / 2)
        return reached >= scipy.stats.norm.ppf(wanted) * np.sqrt(np.maximum(spread, 0))

    found = []
    for wanted in (0.5, power):
        low, high = np.zeros(len(shares)), np.ones(len(shares))
        possible = ahead(high, wanted)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = ahead(middle, wanted)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        fewer = numerator - high * (turned @ (of_intact - of_mask))
        less = denominator - high * (turned @ (per_intact - per_mask))
        after = fewer / np.where(less > 0, less, 1)
        found.append(np.where(possible, score - after, np.nan))
    return found[0], found[1]


def smallest_effects_on_correlation(
    errors: PerMask, score: float, examples: int, *, level: float, power: float
) -> tuple[PerMask, PerMask]:
    """Return the losses of a correlation that a paired test calls significant, and that it finds.

    The loss is that of a mask which scatters as much about the intact model as the one in question,
    and, beside this, adds noise of its own to the predictions. If the noise lowers the correlation
    from S to S - d, it adds (1 - ((S - d) / S)^2) (1 - (S - d)^2) / E to the variance of the
    difference (to first order).

    Args:
      errors: [M] The standard error of each mask's difference.
      score: The correlation of the intact model.
      examples: The number of examples E.
      level, power: As in `smallest_effects`.

    Returns:
      As in `smallest_effects`; NaN where the correlation of the intact model is too small for it.
    """
    most = np.full(len(errors), max(score, 0.0))
    found = []
    for wanted in (0.5, power):
        needed = scipy.stats.norm.isf(level / 2) + scipy.stats.norm.ppf(wanted)

        def ahead(loss, needed=needed):
            left = most - loss
            share = np.divide(left, most, out=np.zeros_like(left), where=most > 0)
            added = (1 - share**2) * (1 - left**2) / examples
            return loss >= needed * np.sqrt(errors**2 + added)

        low, high = np.zeros(len(errors)), most
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = ahead(middle)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        found.append(np.where(ahead(most) & (most > 0), high, np.nan))
    return found[0], found[1]
