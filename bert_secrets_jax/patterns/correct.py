"""Shares of classes, corrected for what the classifier mistakes.

A classifier that takes one heterogeneous map in ten for a vertical one finds too many vertical maps
where many are heterogeneous. Rogan and Gladen (1978, American Journal of Epidemiology 107) correct
one share by the error rates of a test. Here the shares of several classes, never below 0, are those
under which the predicted ones are most likely, with the error rates of the confusion matrix. These
differ between models. So the confusion of each labelled model is a draw from a
Dirichlet-multinomial distribution (Mosimann 1962, Biometrika 49), and that of the model whose
shares are corrected is another.

Shapes: G labelled models, C classes, D draws.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.special
from jaxtyping import Float, Int

from bert_secrets_jax.stats.resampling import drawn_interval

_STEPS = 1000  # of the EM algorithm; after a tenth of them it moves by less than 1e-4
# How alike models may be: from one map's worth of evidence to all but the same.
_CONCENTRATIONS = np.geomspace(1, 1e5, 101)


@dataclasses.dataclass(frozen=True, eq=False)
class Corrected:
    """Shares of classes [C], which sum to 1, and draws of them [D, C].

    The draws are as likely, given the sampling of the maps, that of the labelled ones, and the
    differences between models in what is mistaken for what.
    """

    shares: np.ndarray
    drawn: np.ndarray

    def together(self, classes: Sequence[int]) -> tuple[float, float, float]:
        """Return the share of some classes together, and the ends of its 95 % interval."""
        classes = list(classes)
        share = float(self.shares[classes].sum())
        return drawn_interval(share, self.drawn[:, classes].sum(axis=1))


def corrected(
    found: Float[np.ndarray, ' C'],
    confusions: Int[np.ndarray, 'G C C'],
    *,
    size: float | int,
    draws: int = 1000,
    seed: int = 0,
) -> Corrected | None:
    """Correct the shares of predicted classes, of `size` independent maps, for what is mistaken.

    The confusions are the numbers of labelled maps of each model by label (rows) and prediction
    (columns), predicted without any map of the same model. The interval is of draws of the shares,
    and of the error rates of a model that is none of the labelled ones. None is returned if some
    class has no labelled map, whose errors nobody knows.
    """
    confusions = np.asarray(confusions)
    confusion, numbers = confusions.sum(axis=0), confusions.sum(axis=-1)
    if (confusion.sum(axis=1) == 0).any():
        return None
    rng = np.random.default_rng(seed)
    alike = concentrations(confusions, draws, rng)[:, None, None]
    # So many independent maps tell as much of the mean of models as those that share a model.
    independent = (numbers * (alike + 1) / (alike + np.maximum(numbers, 1))).sum(axis=1)  # [D, C]
    means = _dirichlet(independent[..., None] * _smoothed(confusion), rng)
    rates = _dirichlet(alike * means, rng)
    shares = _dirichlet(np.broadcast_to(found * size + 1e-3, (draws, len(found))), rng)
    best = most_likely(found, confusion / confusion.sum(axis=1, keepdims=True))
    return Corrected(best, most_likely(shares, rates))


def concentrations(
    confusions: Int[np.ndarray, 'G C C'], draws: int, rng: np.random.Generator
) -> Float[np.ndarray, ' D']:
    """Draw how alike models are in what is mistaken for what, as likely as the confusions say.

    It is the concentration of a Dirichlet distribution, which all classes share.
    """
    mean = _smoothed(confusions.sum(axis=0))
    numbers = confusions.sum(axis=-1)
    likelihoods = []
    for each in _CONCENTRATIONS:
        rows = scipy.special.gammaln(each) - scipy.special.gammaln(each + numbers)
        cells = scipy.special.gammaln(each * mean + confusions)
        likelihoods.append(rows.sum() + (cells - scipy.special.gammaln(each * mean)).sum())
    # Before anything is known, each standard deviation between models is as likely as another
    # (Gelman 2006), and it falls with the root of the concentration.
    likely = np.array(likelihoods) - np.log(_CONCENTRATIONS) / 2
    chances = np.exp(likely - likely.max())
    drawn = rng.choice(_CONCENTRATIONS, draws, p=chances / chances.sum())
    # The mean of models is estimated, too, and closer to each of them than the true one is.
    return drawn * max(len(confusions) - 1, 1) / len(confusions)


def most_likely(
    found: Float[np.ndarray, '*D C'], rates: Float[np.ndarray, '*D C C']
) -> Float[np.ndarray, '*D C']:
    """Return the shares of classes that make predicted shares most likely, by the error rates."""
    # EM: each predicted class is divided among those that it may be.
    shares = np.full(np.shape(found), 1 / np.shape(found)[-1])
    for _ in range(_STEPS):
        expected = np.einsum('...T,...TP->...P', shares, rates)
        shares = shares * np.einsum('...TP,...P->...T', rates, found / np.maximum(expected, 1e-300))
    return shares / shares.sum(axis=-1, keepdims=True)


def _smoothed(confusion: Int[np.ndarray, 'C C']) -> Float[np.ndarray, 'C C']:
    """Return the error rates, with one map more in each row, spread evenly."""
    counts = confusion + 1 / len(confusion)
    return counts / counts.sum(axis=1, keepdims=True)


def _dirichlet(concentrations: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    drawn = np.maximum(rng.standard_gamma(concentrations), 1e-300)
    return drawn / drawn.sum(axis=-1, keepdims=True)


def f1_of(confusions: np.ndarray) -> np.ndarray:
    """Return the F1 of each class from confusions [..., C, C]; NaN for one that never occurs."""
    both = confusions.sum(axis=-1) + confusions.sum(axis=-2)
    right = np.einsum('...CC->...C', confusions)
    return np.where(both > 0, 2 * right / np.maximum(both, 1), np.nan)
