"""Claims about what can go: many heads, and gradients tell which, but no outlier dimensions.

They are those of Michel et al. (2019), and of Kovaleva et al. (2021) on outliers.

Shapes: R draws of random orders or dimensions.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Verdict
from bert_secrets_jax.pruning.outliers import FEWEST_DRAWS, rank_p

# The share of heads that can go on MNLI, the least of the published ones.
SHARE_THAT_CAN_GO = 0.4
# A score that is lower by a point is lower.
NOTICEABLE = 0.01
# Nats per hidden wordpiece: the perplexity is greater by a tenth.
LOSS_OF_OUTLIERS = 0.1

HEADS_CAN_GO = Claim(
    f'{100 * SHARE_THAT_CAN_GO:.0f} % of the heads, least gradient of the mask first, can go '
    f'without the score falling by more than {100 * NOTICEABLE:.0f} point.',
    'Michel et al. 2019, section 4.2',
    bound='Their share for MNLI, the least of their tasks. The point is ours.',
    limits='How many heads could go in a better order, or if the model were trained again.',
    short='Two in five heads can go',
    section='prune',
    unit='points',
    threshold=-100 * NOTICEABLE,
)
ORDER_TELLS = Claim(
    'Removed in the order of the gradient of the mask, heads are missed less than in random '
    'orders.',
    'Michel et al. 2019, section 4.1',
    bound='Fewer than one in twenty random orders do as well, on average over all steps.',
    limits='Whether another score tells more.',
    short='Removing heads by gradient beats removing them at random',
    section='prune',
    unit='points',
)
OUTLIERS_NEEDED = Claim(
    'Without outlier dimensions of LayerNorm, the masked LM loses more than '
    f'{LOSS_OF_OUTLIERS:g} nats per hidden wordpiece beyond what random dimensions cost it.',
    'Kovaleva et al. 2021, abstract',
    bound='Ours, a perplexity greater by a tenth: the abstract has no number.',
    limits='Which of several outliers is needed, and what a task loses.',
    short='The masked LM needs its outlier dimensions',
    section='outliers',
    unit='nats per hidden wordpiece',
    threshold=LOSS_OF_OUTLIERS,
)


def heads_can_go(
    change: tuple[float, float, float],
    each: Float[np.ndarray, ' S'],
    *,
    kept: int,
    heads: int,
    examples: int,
) -> Verdict:
    """Test HEADS_CAN_GO on the change of the score with so many of the heads kept.

    The change has the ends of its 95 % interval. `each` is that of each fine-tuning [S]: several
    are a sample.
    """
    found = verdict.contrast_of(change, offset=NOTICEABLE, each=each, examples=examples)
    interval = tuple(100 * np.array(found.typical(0, offset=-NOTICEABLE)))
    return verdict.verdict_on(
        HEADS_CAN_GO,
        found,
        f'change of the score with {kept} of {heads} heads left',
        interval=interval,
        **_sampled(examples),
    )


def order_tells(
    lead: tuple[float, float, float],
    ordered: Float[np.ndarray, ' S'],
    random: Float[np.ndarray, 'S R'],
    *,
    examples: int,
) -> Verdict:
    """Test ORDER_TELLS.

    The estimate is the lead over the mean of random orders. Examples (and fine-tunings) are its
    sample, and so are the random orders. That it is above 0 is not enough: half of all orders that
    tell nothing are above the mean. So fewer than one in twenty random orders may do as well, which
    the rank among them tests; and for the contrary, fewer than one in twenty may do as badly.

    Args:
      lead: The score in this order less the mean of random ones, and its 95 % interval.
      ordered, random: The change of the score in this order [S], and in each random one [S, R], of
        each fine-tuning.
    """
    draws, each = random.shape[1], ordered - random.mean(axis=1)
    if draws < FEWEST_DRAWS:
        needs = f'pruning in at least {FEWEST_DRAWS} random orders'
        return verdict.not_measured(ORDER_TELLS, needs)
    own, others = float(ordered.mean()), random.mean(axis=0)
    found = verdict.contrast_of(lead, each=each, examples=examples, random=others)
    p_if_false, p_if_true = verdict.all_above(found)
    rank = rank_p(own, others)
    interval = tuple(100 * np.array(found.typical(0)))
    return verdict.verdict_on(
        ORDER_TELLS,
        found,
        'score in this order minus that in random ones',
        f'The score is {verdict.with_interval(ORDER_TELLS, interval)} above that in random orders. '
        'As good as this order: {as_well} of {draws} random ones.',
        # An unknown p-value (NaN) stays unknown.
        p_values=(np.maximum(p_if_false, rank), np.maximum(p_if_true, rank_p(-own, -others))),
        interval=interval,
        numbers={'draws': draws, 'as_well': (others >= own).sum()},
        **_sampled(examples),
    )


def outliers_are_needed(
    together: float,
    random: Float[np.ndarray, ' R'],
    beyond: tuple[float, float, float],
    *,
    outliers: int,
    texts: int,
) -> Verdict:
    """Test OUTLIERS_NEEDED.

    The estimate is what the outliers do beyond the mean of random sets. Texts are its sample, and
    so are the random sets, as there are many more of them. That it is above the threshold is not
    enough: most random sets may do nothing and a few may do as much. So fewer than one in twenty
    sets may do as much as the outliers, which the rank among them tests.

    Args:
      together: The change of the loss without all outliers, in nats per hidden wordpiece.
      random: [R] The change without each of at least two sets of random dimensions.
      beyond: The loss without the outliers less the mean of the losses without random sets, and the
        ends of its 95 % interval over texts, by Student's t.
    """
    found = verdict.contrast_of(beyond, offset=-LOSS_OF_OUTLIERS, examples=texts, random=random)
    p_if_false, p_if_true = verdict.all_above(found)
    interval = found.interval(0, offset=LOSS_OF_OUTLIERS)
    return verdict.verdict_on(
        OUTLIERS_NEEDED,
        found,
        'loss without the outliers minus that without random dimensions',
        'Without the {outliers:outlier|outliers}, the loss is '
        f'{verdict.with_interval(OUTLIERS_NEEDED, interval)} nats above that without random '
        'dimensions. The claim needs more than {threshold:g}. As harmful: {as_much} of {draws} '
        'random sets.',
        p_values=(np.maximum(p_if_false, rank_p(together, random)), p_if_true),
        numbers={'outliers': outliers, 'draws': len(random), 'as_much': (random >= together).sum()},
    )


def _sampled(examples: int) -> dict[str, Any]:
    """Return the sample of a curve, whose interval is over examples, too."""
    return {'sample': examples, 'sample_of': 'examples'}
