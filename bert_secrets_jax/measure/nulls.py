"""The outcome of comparing attention along links with what something else explains.

Shapes: L layers, N heads.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.stats.student import LEVEL, detectable


@dataclasses.dataclass(frozen=True)
class NullTest:
    """The scores of heads on links, compared with their scores at places of one kind.

    Only links that have such places are compared. Arrays are NaN if there are none of these, or in
    fewer than two examples.

    Of `CLASSES`, the score is the attention to linked words, and the mean is what a head without a
    preference for them would give them: see `measure/choices.py`. Then there are no draws.

    Attributes:
      score: [L, N] The mean attention along the links that are compared: over the links of an
        example, then over examples.
      mean: [L, N] The same mean of the attention at the places of each link.
      percentile_99: [L, N] The 99th percentile of this mean over the draws; NaN without draws.
      excess: The table of `score` minus `mean`, over the examples with links or places.
      p: [L, N] The one-sided p-value of the hypothesis that the head does no better on the links
        (Student's t), not corrected for the number of heads.
      familywise: [L, N] The p-value corrected for the number of heads
        (`resampling.sign_flip_test`).
      links: The number of links that are compared.
      possible: The median number of places that those of a link were drawn from, or of words that a
        head can choose from; NaN if none.
      preference: The table of the preference for linked words in logits; None for other kinds.
    """

    score: Float[np.ndarray, 'L N']
    mean: Float[np.ndarray, 'L N']
    percentile_99: Float[np.ndarray, 'L N']
    excess: HeadTable
    p: Float[np.ndarray, 'L N']
    familywise: Float[np.ndarray, 'L N']
    links: int
    possible: float
    preference: HeadTable | None = None

    @property
    def t(self) -> np.ndarray:
        """[L, N] The excess in units of its standard error; 0 where both are 0."""
        error = self.excess.standard_error
        return self.excess.mean / np.where(error == 0, 1, error)

    @property
    def above(self) -> Bool[np.ndarray, 'L N']:
        """Whether a head is above its places, at 5 % for all heads."""
        return np.nan_to_num(self.familywise, nan=1.0) <= LEVEL

    @property
    def detectable(self) -> Float[np.ndarray, 'L N']:
        """[L, N] The excess at which a head is found with a probability of 80 %.

        The bar is Bonferroni's, which the test is below: what is said to be found is found.
        """
        freedom = max(self.excess.count - 1, 1)
        return detectable(self.excess.standard_error, freedom, LEVEL / self.p.size)
