"""The outcome of comparing attention along links with what something else explains.

Shapes: L layers, N heads, H = L x N heads of all layers, X examples, S sums, C numbered places.
"""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int

from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.stats.resampling import sign_flip_test
from bert_secrets_jax.stats.student import LEVEL, detectable, reach

OfHeads = Float[np.ndarray, 'L N']
ROUNDING = 1e-6  # scores are means in float32: less than this apart, they are the same
_ROUNDS = 2000  # sign flips: the least corrected p-value is 1 / (rounds + 1)


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

    score: OfHeads
    mean: OfHeads
    percentile_99: OfHeads
    excess: HeadTable
    p: OfHeads
    familywise: OfHeads
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
    def detectable(self) -> OfHeads:
        """[L, N] The excess at which a head is found with a probability of 80 %.

        The bar is Bonferroni's, which the test is below: what is said to be found is found.
        """
        freedom = max(self.excess.count - 1, 1)
        return detectable(self.excess.standard_error, reach(freedom, LEVEL / self.p.size))


class Sums:
    """Adds up the product of a sparse matrix [S, C] and numbers [C, H] that come in parts.

    The parts that come to nothing take no time, and only the sums any memory.
    """

    def __init__(self, matrix: Any):
        self._matrix, self._total = matrix.tocsc(), None

    def add(self, columns: Int[np.ndarray, ' P'], values: Float[np.ndarray, 'P H']) -> None:
        if self._total is None:
            self._total = np.zeros((self._matrix.shape[0], values.shape[1]), self._matrix.dtype)
        part = self._matrix[:, columns].tocsr()
        rows = np.flatnonzero(np.diff(part.indptr))
        self._total[rows] += part[rows] @ values

    def split(self, *heights: int) -> list[Float[np.ndarray, '_ H']]:
        """Return the sums in float64, so many at a time, and all others last."""
        assert self._total is not None
        return np.split(self._total.astype(np.float64), np.cumsum(heights))


def indicator(rows: Int[np.ndarray, ' P'], height: int, values: Any = 1.0) -> Any:
    """Return a sparse matrix [height, P] that has in each column one value, in one of the rows."""
    columns = np.arange(len(rows))
    entries = np.broadcast_to(values, rows.shape), (rows, columns)
    return scipy.sparse.csr_array(entries, shape=(height, len(rows)))


def null_test(
    shape: tuple[int, ...],
    flipped: Float[np.ndarray, 'X H'],
    excess: Float[np.ndarray, 'X H'],
    *,
    seed: int,
    links: int,
    possible: float,
    preference: tuple[np.ndarray, np.ndarray] | None = None,
    **of_heads: Float[np.ndarray, ' H'],
) -> NullTest:
    """Return the outcome of a test, from what each example contributes to scores and to the excess.

    The signs of the first are flipped. A preference is its size [H] and the contributions to it [X,
    H]. `of_heads` are the other arrays of a `NullTest`, heads one after the other.
    """
    p, familywise = sign_flip_test(flipped.T, alternative='greater', rounds=_ROUNDS, seed=seed)

    def shaped(values):
        return values.reshape(shape).astype(np.float32)

    def table(mean, contributed):
        variance = contributed.var(axis=0, ddof=1)
        return HeadTable(shaped(mean), shaped(variance), float(len(contributed)))

    return NullTest(
        **{name: shaped(values) for name, values in of_heads.items()},
        excess=table(excess.mean(axis=0), excess),
        p=p.reshape(shape),
        familywise=familywise.reshape(shape),
        links=links,
        possible=possible,
        preference=preference and table(*preference),
    )


def no_test(shape: tuple[int, ...], examples: int, links: int) -> NullTest:
    """Return the outcome where nothing can be compared, in so many examples: all is NaN."""
    none = np.full(shape, np.nan, np.float32)
    table = HeadTable(none, none, float(examples))
    return NullTest(none, none, none, table, none, none, links, np.nan)
