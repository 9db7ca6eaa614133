"""Curves of the score against the heads that are left, in several orders, and their intervals.

Shapes: O orders, D draws, K numbers of heads that are removed, S seeds, E examples, L layers,
N heads.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int, Real, Shaped

from bert_secrets_jax.ablation.resumable import sweep_examples
from bert_secrets_jax.ablation.sweep import Swept
from bert_secrets_jax.compute import Compute
from bert_secrets_jax.data.tasks import Example, labels_of
from bert_secrets_jax.model.weights import Pretrained
from bert_secrets_jax.pruning.scores import GRADIENT, HeadScores, head_scores
from bert_secrets_jax.pruning.steps import SHARES, nested_masks
from bert_secrets_jax.stats import confusion
from bert_secrets_jax.stats.influence import interval, mean_effect, per_example
from bert_secrets_jax.stats.scores import quietly
from bert_secrets_jax.stats.seeds import crossed_variance
from bert_secrets_jax.stats.significance import weighted_scores
from bert_secrets_jax.stats.student import mean_interval

# The gradient of each head as it is without those that are gone.
ANEW = 'gradient, anew'
RANDOM = 'random'
# Scores that differ by less are the same.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class PrunedModel:
    """One model whose heads are removed step by step, in several orders, by their names.

    Attributes:
      masks: [D, K, L, N] One draw of each order, and several of the random one. The first removes
        none.
      predictions: [D, K, E] The predictions under the masks.
      intact: [E] The predictions with all heads.
      choosing: [K] The score on the examples that the order was made from; the random one has none.
      classes: The number of classes; 1 for a regression.
    """

    masks: Mapping[str, np.ndarray]
    predictions: Mapping[str, np.ndarray]
    intact: np.ndarray
    choosing: Mapping[str, np.ndarray]
    classes: int


def prune_model(
    tuned: Pretrained,
    examples: Sequence[Example],
    measured_on: Sequence[Example],
    scores: HeadScores,
    metric: str,
    *,
    shares: Sequence[float | int] = SHARES,
    anew: bool = True,
    draws: int = 10,
    seed: int = 0,
    compute: Compute = Compute(),
) -> PrunedModel:
    """Remove the heads of a model step by step, in the order of each score and at random.

    The scores were measured on `measured_on`, labelled examples. `shares` are as in
    `steps.removed_heads`; a step that removes no head always comes first. `anew` adds an order in
    which gradients are measured again after each step, `draws` is the number of random orders.
    """
    shape = next(iter(scores.of.values())).shape
    # All changes are from the whole model.
    shares = shares if shares[0] == 0 else (0.0, *shares)

    def in_order(score: np.ndarray) -> np.ndarray:
        return nested_masks(lambda mask: score, shape, shares=shares)

    masks = {method: in_order(each)[None] for method, each in scores.of.items()}
    if anew and GRADIENT in masks:
        masks[ANEW] = masks_by_gradients(
            tuned, measured_on, norm=scores.norm, shares=shares, compute=compute
        )[None]
    if draws:
        rng = np.random.default_rng(seed)
        masks[RANDOM] = np.stack([in_order(rng.random(shape)) for _ in range(draws)])
    every = np.concatenate([each.reshape(-1, *shape) for each in masks.values()])
    here = sweep_examples(tuned, examples, every, baseline='zero', compute=compute)
    # Random orders choose nothing.
    named = {name: each for name, each in masks.items() if name != RANDOM}
    of_named = sum(each.shape[0] * each.shape[1] for each in named.values())
    _, reached = scores_without(tuned, measured_on, every[:of_named], metric, compute=compute)
    predictions = _by_order(masks, here.predictions)
    return PrunedModel(
        masks=masks,
        predictions=predictions,
        intact=next(iter(predictions.values()))[0, 0],
        choosing={name: each[0] for name, each in _by_order(named, reached).items()},
        classes=here.logits.shape[-1],
    )


def masks_by_gradients(
    tuned: Pretrained,
    examples: Sequence[Example],
    *,
    norm: str = 'layer',
    shares: Sequence[float | int] = SHARES,
    compute: Compute = Compute(),
) -> Float[np.ndarray, 'K L N']:
    """Return masks that remove heads by the gradient of the mask, anew after each step."""
    how = {'methods': (GRADIENT,), 'norm': norm, 'compute': compute}

    def score(mask: np.ndarray) -> np.ndarray:
        return head_scores(tuned, examples, head_mask=mask, **how).of[GRADIENT]

    shape = tuned.config.num_hidden_layers, tuned.config.num_attention_heads
    return nested_masks(score, shape, shares=shares)


def scores_without(
    tuned: Pretrained,
    examples: Sequence[Example],
    masks: Float[np.ndarray, 'K L N'],
    metric: str,
    *,
    compute: Compute = Compute(),
) -> tuple[Swept, Float[np.ndarray, ' K']]:
    """Return what a model answers to labelled examples without heads, and its scores."""
    swept = sweep_examples(tuned, examples, masks, baseline='zero', compute=compute)
    labels = labels_of(examples, tuned.config)
    return swept, weighted_scores(metric, swept.predictions, labels)[0]


def _by_order(masks: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, np.ndarray]:
    """Cut values of all masks [O D K, ...] into those of each order [D, K, ...]."""
    ends = np.cumsum([each.shape[0] * each.shape[1] for each in masks.values()])
    return {
        name: part.reshape(*each.shape[:2], *values.shape[1:])
        for (name, each), part in zip(masks.items(), np.split(values, ends[:-1]), strict=True)
    }


@dataclasses.dataclass(frozen=True)
class Curve:
    """The change of the score against all heads as heads are removed, mean over draws and seeds.

    The 95 % interval is over seeds and examples, or over examples of a single model. It is NaN
    where a score is undefined (constant predictions). `draws` are of each model and each draw.
    """

    difference: Float[np.ndarray, ' K']
    low: Float[np.ndarray, ' K']
    high: Float[np.ndarray, ' K']
    draws: Float[np.ndarray, 'S D K']


def curve_of(
    metric: str,
    predictions: Real[np.ndarray, 'S D K E'],
    intact: Real[np.ndarray, 'S E'],
    labels: Real[np.ndarray, ' E'],
) -> Curve:
    """Return the change of the score at each number of heads, with its interval."""
    seeds, draws, steps, examples = predictions.shape
    scores = weighted_scores(metric, predictions.reshape(-1, examples), labels)[0]
    whole = weighted_scores(metric, intact, labels)[0]
    differences = scores.reshape(seeds, draws, steps) - whole[:, None, None]
    difference = differences.mean(axis=(0, 1))
    if seeds > 1:
        values = per_example(metric, predictions, labels).mean(axis=1)
        values = values - per_example(metric, intact, labels)[:, None]
        half = crossed_variance(values, counts=metric in confusion.METRICS).half_width
        low, high = difference - half, difference + half
    elif draws > 1:
        means = [
            mean_effect(metric, predictions[0, :, step], intact[0], labels) for step in range(steps)
        ]
        low, high = (np.array([getattr(each, end) for each in means]) for end in ('low', 'high'))
    else:
        low, high = interval(metric, predictions[0, 0], intact[0], labels)
    low, high = np.where(np.isnan(difference), np.nan, (low, high))
    return Curve(difference, low, high, differences)


def lead_over_random(
    metric: str,
    ordered: Real[np.ndarray, 'S K E'],
    random: Real[np.ndarray, 'S D K E'],
    labels: Real[np.ndarray, ' E'],
) -> tuple[float, float, float]:
    """Return the score in one order less that in random ones, a mean over steps, with its interval.

    It is over seeds and examples (`influence.per_example`); the random orders are fixed.
    """
    values = per_example(metric, ordered, labels).mean(axis=1)
    values = values - per_example(metric, random, labels).mean(axis=(1, 2))
    if len(values) < 2:
        return mean_interval(values[0])
    estimate = float(values.mean())
    variance = crossed_variance(values[:, None], counts=metric != 'pearson')
    half = float(variance.half_width[0])
    return estimate, estimate - half, estimate + half


def sparsest(
    choosing: Float[np.ndarray, ' K'], kept: Int[np.ndarray, ' K'], *, tolerance: float
) -> int:
    """Return the step with the fewest heads whose score is within a tolerance of the full one.

    Where the full score is undefined (NaN), no other step is as good.
    """
    # In floating point, 0.07 - 0.01 is more than 0.06.
    enough = choosing >= choosing[0] - tolerance - _ROUNDING
    enough[0] = True
    return int(np.flatnonzero(enough)[np.argmin(kept[enough])])


def over_steps(curve: Curve, kept: Int[np.ndarray, ' K']) -> Float[np.ndarray, 'S D']:
    """Return the change of the score of each model and draw of an order, mean over removals."""
    return quietly(np.nanmean, curve.draws[:, :, kept < kept[0]], axis=2)


def fleiss_kappa(kept: Shaped[np.ndarray, 'S H']) -> float:
    """Return how far models agree on which heads are left, beyond chance (Fleiss 1971).

    It is 1 for the same heads, 0 for chance; NaN for a single model, or if all are left or none.
    """
    models = len(kept)
    share = np.asarray(kept, np.float64).mean()
    if models < 2 or share in (0, 1):
        return np.nan
    votes = np.asarray(kept, np.float64).sum(axis=0)
    agreeing = votes * (votes - 1) + (models - votes) * (models - votes - 1)
    observed = (agreeing / (models * (models - 1))).mean()
    expected = share**2 + (1 - share) ** 2
    return float((observed - expected) / (1 - expected))
