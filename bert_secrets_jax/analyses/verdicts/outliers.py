"""The claim that a masked LM needs its outlier dimensions (Kovaleva et al. 2021).

Shapes: R draws of random dimensions.
"""

import numpy as np
from jaxtyping import Float

from bert_secrets_jax.analyses.verdicts.verdict import (
    FEWEST,
    ROUNDING,
    TOO_FEW,
    UNDECIDED,
    Claim,
    Contrasts,
    Verdict,
    all_above,
    between,
    margin,
    verdict_of,
)
from bert_secrets_jax.pruning.outliers import rank_p

# Nats per hidden wordpiece: the perplexity is greater by a tenth.
LOSS_OF_OUTLIERS = 0.1

OUTLIERS_NEEDED = Claim(
    'Without outlier dimensions of LayerNorm, the masked LM loses more than '
    f'{LOSS_OF_OUTLIERS:g} nats per hidden wordpiece beyond what random dimensions cost it.',
    'Kovaleva et al. 2021, abstract',
    bound='Ours, a perplexity greater by a tenth: the abstract has no number.',
    limits='Which of several outliers is needed, and what a task loses.',
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
      random: The change without each of at least two sets of random dimensions.
      beyond: The loss without the outliers less the mean of the losses without random sets, and the
        ends of its 95 % interval over texts, by Student's t.
      outliers: The number of outliers.
      texts: The number of texts.
    """
    found = _beyond_random(random, beyond, texts)
    p_if_false, p_if_true = all_above(found)
    p_value = rank_p(together, random)
    interval = found.interval(0, offset=LOSS_OF_OUTLIERS)
    return verdict_of(
        OUTLIERS_NEEDED,
        (np.maximum(p_if_false, p_value), p_if_true),
        f'Without the {{outliers:outlier|outliers}}, the loss changes by {{estimate:+z.3f}} nats'
        f'{between(interval, "+z.3f")} more than without random dimensions; more than '
        '{threshold:g} is claimed, and {as_much} of {draws} draws do as much.',
        interval,
        what='loss without the outliers minus that without random dimensions',
        unit='nats per hidden wordpiece',
        threshold=LOSS_OF_OUTLIERS,
        population=found.population,
        sample=texts,
        otherwise=TOO_FEW if texts < FEWEST else UNDECIDED,
        numbers={
            'outliers': outliers,
            'draws': len(random),
            'as_much': int((random >= together).sum()),
        },
    )


def _beyond_random(
    random: Float[np.ndarray, ' R'], beyond: tuple[float, float, float], texts: int
) -> Contrasts:
    """Return what outliers do beyond the mean of random sets, less what is claimed."""
    estimate, low, high = beyond
    few, draws = max(texts - 1.0, 1.0), len(random)
    of_texts = ((high - low) / 2 / margin(few)) ** 2
    of_draws = random.var(ddof=1) / draws
    squared = of_texts + of_draws + ROUNDING**2
    # Satterthwaite's degrees of freedom.
    freedom = squared**2 / ((of_texts + ROUNDING**2) ** 2 / few + of_draws**2 / (draws - 1))
    return Contrasts(
        difference=np.array([estimate - LOSS_OF_OUTLIERS]),
        error=np.array([np.sqrt(squared)]),
        freedom=np.array([freedom]),
        examples=float(texts),
        runs=1,
    )
