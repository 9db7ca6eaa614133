"""Tests of the differences between ablated models and the intact one.

Axes: M masks (each makes one ablated model), E examples, R rounds, F sums from which a
metric is computed. The "baseline" is the intact model here.

Predictions are class ids for the metrics of `stats.confusion`, values for 'pearson' and
'spearman'. All tests are paired: every mask and the baseline answer the same examples. A difference
is the mask's score minus the baseline's; it and its p-value are NaN where a correlation is
undefined.
"""

from collections.abc import Sequence

import numpy as np

from bert_secrets_jax.arguments import checked
from bert_secrets_jax.checks import check_name
from bert_secrets_jax.stats import confusion, influence
from bert_secrets_jax.stats.confusion import score_of_sums, summands
from bert_secrets_jax.stats.corrections import benjamini_hochberg as benjamini_hochberg
from bert_secrets_jax.stats.corrections import holm as holm
from bert_secrets_jax.stats.corrections import max_t
from bert_secrets_jax.stats.effects import MARGIN as MARGIN
from bert_secrets_jax.stats.effects import Effects, Outcome
from bert_secrets_jax.stats.intervals import against_margin, count, score_limits
from bert_secrets_jax.stats.power import (
    critical_of_mcnemar,
    smallest_effects,
    smallest_effects_on_correlation,
)
from bert_secrets_jax.stats.resampling import coin_falls
from bert_secrets_jax.stats.resampling import sign_flip_test as sign_flip_test
from bert_secrets_jax.stats.scores import METRICS as METRICS
from bert_secrets_jax.stats.scores import (
    ROUNDING,
    PerExample,
    PerMask,
    Predictions,
    check,
    differences,
    weighted_scores,
)
from bert_secrets_jax.stats.selection import Answers as Answers
from bert_secrets_jax.stats.selection import ChosenElsewhere as ChosenElsewhere
from bert_secrets_jax.stats.selection import SelectedGain as SelectedGain
from bert_secrets_jax.stats.selection import gain_of_choice as gain_of_choice
from bert_secrets_jax.stats.selection import selected_gain as selected_gain
from bert_secrets_jax.stats.student import LEVEL, p_even

# In fewer examples, little is known of the tails of what a correlation is made from.
FEWEST_FOR_CORRELATIONS = 50


@checked
def assess(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    names: Sequence[str] = (),
    rounds: int = 10_000,
    seed: int = 0,
) -> Effects:
    """Compute the effect of every mask on a score, with its interval and its p-values.

    Intervals of metrics of classes are score intervals (see `intervals`), which hold where few
    predictions change, too. Those of correlations, and their p-values, are made from the part that
    each example has in them (see `influence`). `critical` keeps the changes to and fro of the mask,
    or the spread of its correlation (see `power`). The metric is one of METRICS.

    Args:
      predictions, baseline, labels: [M, E], [E] and [E] Under each mask, of the intact model, and
        true.
      names: The names of the masks [M].
      rounds: The number of rounds of the randomization test, which neither accuracy nor
        correlations need. With fewer than M / level, Holm's correction can find nothing.

    Raises:
      ValueError: The metric is unknown, the shapes do not fit, or predictions are not finite.
    """
    check(metric, predictions, labels, baseline)
    given = metric, predictions, baseline, labels
    models = np.concatenate([baseline[None], predictions])
    scores = weighted_scores(metric, models, labels)[0]
    difference = scores[1:] - scores[0]
    # A correlation that does not change is told from a small change by its rounding alone.
    difference = np.where(np.abs(difference) < ROUNDING, 0, difference)
    level = LEVEL / len(predictions)
    if metric in confusion.METRICS:
        counted = count(*given)
        low, high = score_limits(counted, below=0.025, above=0.025)
        critical, detectable = smallest_effects(counted, level=level)
        tost, beyond = against_margin(counted, MARGIN)
        if metric in ('accuracy', 'f1_micro'):
            test, p_value = 'exact McNemar', mcnemar(*given[1:])
            critical = critical_of_mcnemar(counted, level=level)
        else:
            test = 'paired randomization'
            p_value = randomization_test(*given, rounds=rounds, seed=seed)
    else:
        parts = influence.parts_of_difference(*given)
        of_one = influence.unseen(metric, baseline, labels)
        low, high = influence.limits(difference, parts, of_one=of_one)
        error = parts.std(axis=1, ddof=1) / np.sqrt(len(labels))
        critical, detectable = smallest_effects_on_correlation(
            error, float(scores[0]), len(labels), level=level
        )
        # A loss is found against what unseen texts may gain.
        least = of_one[1] * influence.share_unseen(level / 2, len(labels))
        critical, detectable = np.maximum(critical, least), np.maximum(detectable, least)
        tost = influence.p_matters(difference, parts, MARGIN, of_one=of_one)
        test = "Student's t, by parts"
        p_value = influence.p_within(difference, parts, of_one=of_one)
        beyond = influence.p_within(difference, parts, MARGIN, of_one=of_one)
    corrected = holm(p_value)
    return Effects(
        names=names,
        difference=difference,
        low=low,
        high=high,
        p_value=p_value,
        corrected=corrected,
        sample=len(labels),
        outcome=Outcome(metric, margin=MARGIN),
        intact=float(scores[0]),
        test=test,
        benjamini_hochberg=benjamini_hochberg(p_value),
        critical=critical,
        detectable=detectable,
        changed=np.sum(predictions != baseline, axis=1).astype(np.float64),
        beyond=np.maximum(holm(beyond), corrected),
        tost=tost,
        equivalent=holm(tost),
        unseen=unseen_change(metric, baseline, labels),
    )


@checked
def unseen_change(metric: str, baseline: PerExample, labels: PerExample) -> float:
    """Return how far the interval of a mask that changes no prediction reaches.

    Changes that occur in none of E examples may still occur in others. For accuracy this is about
    3.8 / E, and for a correlation r about 3.7 (1 + |r|) / E. For one of fewer than 50
    examples, of which intervals are too narrow, it is infinite. Arguments are those of `assess`.
    """
    if metric not in confusion.METRICS:
        reach = max(influence.unseen(metric, baseline, labels))
        few = len(labels) < FEWEST_FOR_CORRELATIONS
        return np.inf if few else reach * influence.share_unseen(LEVEL / 2, len(labels))
    counted = count(metric, baseline[None], baseline, labels)
    low, high = score_limits(counted, below=LEVEL / 2, above=LEVEL / 2)
    return float(max(-low[0], high[0]))


@checked
def mcnemar(predictions: Predictions, baseline: PerExample, labels: PerExample) -> PerMask:
    """Return exact two-sided p-values [M] of equal accuracy (McNemar 1947).

    Only those examples matter that the mask or the baseline alone has right. The p-value is 1 where
    there is none. Arguments and errors are those of `assess`.
    """
    check('accuracy', predictions, labels, baseline)
    right, baseline_right = predictions == labels[None], (baseline == labels)[None]
    gained = np.sum(right & ~baseline_right, axis=1)
    lost = np.sum(~right & baseline_right, axis=1)
    return p_even(np.minimum(gained, lost), gained + lost)


@checked
def randomization_test(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    rounds: int = 10_000,
    seed: int = 0,
) -> PerMask:
    """Return two-sided p-values [M] of no difference (Noreen 1989; Yeh 2000).

    The p-value is the share of swaps of predictions with the baseline's, example by example, after
    which the two differ at least as much as observed: of all swaps where there are at most
    `rounds`, and otherwise of `rounds` random ones and the observed predictions.

    The metric is one of classes; other arguments and errors are those of `assess`.
    """
    check_name('metric', metric, confusion.METRICS)
    check(metric, predictions, labels, baseline)
    observed = differences(metric, predictions, baseline, labels)[0]
    changes = (predictions != baseline).sum(axis=1)
    p_values = np.empty(len(predictions))
    # Masks with equally many changes share their swaps, which take longer to draw than to use.
    for number in np.unique(changes).tolist():
        masks = np.flatnonzero(changes == number)
        # NumPy multiplies booleans without BLAS, which is slow.
        exact, choices = coin_falls(number, rounds, width=max(number, 1), seed=seed, dtype=bool)
        swapped = [
            [_swapped_difference(metric, predictions[k], baseline, labels, swaps) for k in masks]
            for swaps in (each.astype(np.float64) for each in choices)
        ]
        for k, found in zip(masks, np.abs(np.concatenate(swapped, axis=1)), strict=True):
            bar = np.abs(observed[[k]]) - ROUNDING
            p_values[k] = max_t(bar, found, all_of_them=exact)[0]
    return p_values


def _swapped_difference(metric, of_mask, baseline, labels, swaps) -> np.ndarray:
    """Return the differences [R] between mask and baseline [E] after swaps of differing ones."""
    pair = np.stack([of_mask, baseline])
    differs = of_mask != baseline
    # The sums are linear in the swaps.
    features = summands(metric, pair, labels)
    features = np.stack(np.broadcast_arrays(*features)).astype(np.float64, copy=False)
    one, other = features.sum(axis=2).T[..., None]  # [F, 1] each
    change = (features[:, 1] - features[:, 0])[:, differs]
    moved = np.zeros((len(features), len(swaps)))
    moves = change.any(axis=1)  # not the number of examples, nor what depends on labels alone
    moved[moves] = change[moves] @ swaps.T
    return score_of_sums(metric, one + moved) - score_of_sums(metric, other - moved)
