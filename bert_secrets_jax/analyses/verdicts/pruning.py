"""The claims that many heads can go, and that gradients tell which (Michel et al. 2019)."""

import numpy as np

from bert_secrets_jax.analyses.verdicts.verdict import (
    ROUNDING,
    Claim,
    Contrasts,
    Verdict,
    all_above,
    between,
    margin,
    verdict_of,
)

# The share of heads that can go on MNLI, the least of the published ones.
SHARE_THAT_CAN_GO = 0.4
# A score that is lower by a point is lower.
NOTICEABLE = 0.01

HEADS_CAN_GO = Claim(
    f'{100 * SHARE_THAT_CAN_GO:.0f} % of the heads can be removed, in the order of the gradient of '
    f'the mask, without the score falling by more than {100 * NOTICEABLE:.0f} point.',
    'Michel et al. 2019, section 4.2',
    bound='The share is the published one for MNLI; on other tasks more heads can go. The point is '
    'ours: the paper speaks of no noticeable effect.',
    limits='How many heads could go in a better order, or if the model were trained again.',
)
ORDER_TELLS = Claim(
    'Removed in the order of the gradient of the mask, heads are missed less than in random '
    'orders.',
    'Michel et al. 2019, section 4.1',
    bound='On average over all steps, from a tenth to nine tenths of the heads in the default.',
    limits='Whether another score tells more.',
)


def heads_can_go(
    change: tuple[float, float, float], *, kept: int, heads: int, runs: int, examples: int
) -> Verdict:
    """Test HEADS_CAN_GO.

    Args:
      change: The change of the score, and the ends of its 95 % interval.
      kept: The number of heads that are left.
      heads: The number of all heads.
      runs: The number of fine-tunings, which are a sample if there are several.
      examples: The number of examples.
    """
    found = _contrast(change, offset=NOTICEABLE, runs=runs, examples=examples)
    interval = found.interval(0, offset=-NOTICEABLE)
    return verdict_of(
        HEADS_CAN_GO,
        all_above(found),
        'With {kept} of {heads} heads left, the score changes by {points:+z.2f} points'
        f'{between(tuple(100 * each for each in interval), "+z.2f")}, where a loss of '
        '{noticeable:.0f} is allowed, on {sample:,} examples.',
        interval,
        what='change of the score',
        unit='score',
        threshold=-NOTICEABLE,
        population=found.population,
        sample=examples,
        numbers={
            'kept': kept,
            'heads': heads,
            'points': 100 * interval[0],
            'noticeable': 100 * NOTICEABLE,
        },
    )


def order_tells(
    lead: tuple[float, float, float], *, of_draws: float, draws: int, runs: int, examples: int
) -> Verdict:
    """Test ORDER_TELLS.

    Args:
      lead: The score in this order less that in the random ones, on average over steps, and the
        ends of its 95 % interval.
      of_draws: The variance of the mean over random orders.
      draws: The number of random orders.
      runs: The number of fine-tunings, which are a sample if there are several.
      examples: The number of examples.
    """
    found = _contrast(lead, offset=0.0, runs=runs, examples=examples, further=of_draws)
    interval = found.interval(0)
    return verdict_of(
        ORDER_TELLS,
        all_above(found),
        'On average over all steps, the score is {points:+z.2f} points above that in {draws} '
        f'random orders{between(tuple(100 * each for each in interval), "+z.2f")}, on {{sample:,}} '
        'examples.',
        interval,
        what='score in this order minus that in random ones',
        unit='score',
        threshold=0.0,
        population=found.population,
        sample=examples,
        numbers={'points': 100 * interval[0], 'draws': draws},
    )


def _contrast(
    estimate: tuple[float, float, float],
    *,
    offset: float,
    runs: int,
    examples: int,
    further: float = 0.0,
) -> Contrasts:
    """Return an estimate with its interval as a part of a claim, above 0 where the claim holds."""
    middle, low, high = estimate
    # Over several fine-tunings, these are the sample with the fewest.
    freedom = float(max((runs if runs > 1 else examples) - 1, 1))
    error = np.sqrt(((high - low) / 2 / margin(freedom)) ** 2 + further + ROUNDING**2)
    return Contrasts(
        difference=np.array([middle + offset]),
        error=np.array([error]),
        freedom=np.array([freedom]),
        examples=float(examples),
        runs=runs,
    )
