"""Tests of the differences between ablated models and the intact one.

Axes: M masks (each makes one ablated model), E examples, R resamples or rounds, F sums from which a
metric is computed, Q quantities. The "baseline" is the intact model here.

Predictions are class ids for 'accuracy' and 'f1', values for 'pearson' and 'spearman'. All tests
are paired: every mask and the baseline answer the same examples. A difference is the mask's score
minus the baseline's. Where a correlation is undefined, its difference and p-value are NaN.
"""

import dataclasses
import warnings

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Real

from bert_secrets_jax.measure.flips import sign_flip_test as sign_flip_test

METRICS = ('accuracy', 'f1', 'pearson', 'spearman')

# Numbers in one block of resamples or masks: 8 MB, for any number of examples.
_BLOCK = 1_000_000
# The greatest rounding error of float64 sums that are exactly 0: relative to the mean square for
# variances, absolute for scores.
_ROUNDING = 1e-12

Predictions = Real[np.ndarray, 'M E']
PerExample = Real[np.ndarray, ' E']
PerMask = Float[np.ndarray, ' M']
Weights = Real[np.ndarray, 'R E'] | Bool[np.ndarray, 'R E']


@dataclasses.dataclass(frozen=True)
class SelectedGain:
    """The gain of the best mask, with and without the luck of having been chosen.

    Attributes:
      naive: The difference of the best mask on the examples on which it was chosen.
      honest: The mean difference on the half of the examples on which the best mask was not chosen.
      honest_low: The lower end of the central 95 % of these differences over random halves. Where
        one mask is always the best, this range is about as wide as its bootstrap interval, because
        a half drawn without replacement varies as much as a resample of all examples.
      honest_high: The upper end of the same range.
      chosen: [M] The share of the halves on which each mask was the best.
    """

    naive: float
    honest: float
    honest_low: float
    honest_high: float
    chosen: PerMask


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Every mask compared with the baseline.

    Attributes:
      baseline_score: The score of the intact model.
      score: [M] The score of each mask.
      difference: [M] `score` minus `baseline_score`.
      low: [M] The lower end of the 95 % bootstrap interval of `difference`.
      high: [M] The upper end of this interval.
      p_value: [M] The two-sided p-value of the hypothesis that there is no difference.
      holm: [M] The p-values adjusted for M tests by Holm's method.
      benjamini_hochberg: [M] The p-values adjusted by Benjamini and Hochberg's method.
      test: The name of the test that `p_value` comes from.
    """

    baseline_score: float
    score: PerMask
    difference: PerMask
    low: PerMask
    high: PerMask
    p_value: PerMask
    holm: PerMask
    benjamini_hochberg: PerMask
    test: str

    def significant(self, level: float = 0.05, correction: str = 'holm') -> tuple[int, int]:
        """Return the numbers of masks that significantly lower the score and that raise it.

        Args:
          level: The greatest adjusted p-value that counts as significant.
          correction: 'holm' bounds the chance of any error, 'benjamini_hochberg' the expected
            share of errors among the masks that are counted, and 'none' bounds neither.

        Raises:
          ValueError: The correction is unknown.
        """
        corrected = {'none': self.p_value, 'holm': self.holm}
        corrected['benjamini_hochberg'] = self.benjamini_hochberg
        if correction not in corrected:
            raise ValueError(f'Unknown correction {correction!r}: one of {", ".join(corrected)}.')
        found = self.difference[corrected[correction] <= level]
        return int(np.sum(found < 0)), int(np.sum(found > 0))


def assess(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    resamples: int = 2000,
    rounds: int = 10_000,
    seed: int = 0,
) -> Assessment:
    """Compute the score, the interval and the p-values of every mask.

    Args:
      metric: One of METRICS.
      predictions: [M, E] The predictions under each mask.
      baseline: [E] The predictions of the intact model.
      labels: [E] The true labels.
      resamples: The number of resamples of the bootstrap.
      rounds: The number of rounds of the randomization test, which accuracy does not need. Take
        more than M / level, because otherwise Holm's correction can find nothing.
      seed: The seed of the bootstrap and of the randomization test.

    Raises:
      ValueError: The metric is unknown, the shapes do not fit, or predictions are not finite.
    """
    _check(metric, predictions, labels, baseline)
    given = metric, predictions, baseline, labels
    models = np.concatenate([baseline[None], predictions])
    scores = weighted_scores(metric, models, labels, np.ones((1, len(labels))))[0]
    low, high = paired_bootstrap(*given, resamples=resamples, seed=seed)
    if metric == 'accuracy':
        test, p_value = 'exact McNemar', mcnemar(*given[1:])
    else:
        test = 'paired randomization'
        p_value = randomization_test(*given, rounds=rounds, seed=seed)
    return Assessment(
        baseline_score=float(scores[0]),
        score=scores[1:],
        difference=scores[1:] - scores[0],
        low=low,
        high=high,
        p_value=p_value,
        holm=holm(p_value),
        benjamini_hochberg=benjamini_hochberg(p_value),
        test=test,
    )


def weighted_scores(
    metric: str, predictions: Predictions, labels: PerExample, weights: Weights
) -> Float[np.ndarray, 'R M']:
    """Score every mask on every resample, as `finetune.metrics` scores repeated examples.

    Args:
      metric: One of METRICS.
      predictions: [M, E] The predictions under each mask.
      labels: [E] The true labels.
      weights: [R, E] The number of times that each resample contains each example; 0 and 1 choose a
        part of the examples.

    Returns:
      [R, M] The scores; NaN where a correlation is undefined. Pearson's is undefined where the
      variance in a resample is below 1e-12 times its mean square about the mean of all examples.

    Raises:
      ValueError: The metric is unknown, the shapes do not fit, weights are negative, or predictions
        are not finite.
    """
    _check(metric, predictions, labels)
    if weights.ndim != 2 or weights.shape[1] != len(labels):
        raise ValueError(f'Weights must be [R, {len(labels)}], got {list(weights.shape)}.')
    weights = weights.astype(np.float64)
    if not (weights >= 0).all():
        raise ValueError('Weights must not be negative.')
    if metric == 'spearman':
        return _spearman(predictions, labels, weights)
    scores = []
    for start, stop in _blocks(*predictions.shape):
        block = predictions[start:stop]
        features = _features(metric, block, labels, block.mean(axis=1, keepdims=True))
        scores.append(_score(metric, [weights @ feature.T for feature in features]))
    return np.concatenate(scores, axis=1)


def paired_bootstrap(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[PerMask, PerMask]:
    """Return percentile intervals of the differences (Efron and Tibshirani 1993, chapter 13).

    All masks and the baseline are scored on the same resamples, so that the interval of a mask does
    not depend on the other masks. Resamples in which a difference is undefined are left out.

    Args:
      metric, predictions, baseline, labels, resamples, seed: As in `assess`.
      level: The nominal coverage of the intervals.

    Returns:
      The lower ends [M] and the upper ends [M].

    Raises:
      ValueError: `assess` would refuse the arguments.
    """
    _check(metric, predictions, labels, baseline)
    rng = np.random.default_rng(seed)
    examples = len(labels)
    differences = []
    for start, stop in _blocks(resamples, examples):
        drawn = rng.integers(examples, size=(stop - start, examples))
        # One bincount serves the whole block, because each row counts in its own range.
        drawn += np.arange(stop - start)[:, None] * examples
        weights = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        differences.append(_differences(metric, predictions, baseline, labels, weights))
    tail = (1 - level) / 2
    low, high = _quietly(np.nanquantile, np.concatenate(differences), [tail, 1 - tail], axis=0)
    return low, high


def mcnemar(predictions: Predictions, baseline: PerExample, labels: PerExample) -> PerMask:
    """Return exact two-sided p-values [M] of equal accuracy (McNemar 1947).

    Only those examples matter that either the mask or the baseline has right, but not both. If the
    two are equally good, each of them is the right one with probability 1/2. The p-value is 1 where
    there is no such example.

    Args:
      predictions, baseline, labels: As in `assess`.

    Raises:
      ValueError: `assess` would refuse the arguments.
    """
    _check('accuracy', predictions, labels, baseline)
    right, baseline_right = predictions == labels[None], (baseline == labels)[None]
    gained = np.sum(right & ~baseline_right, axis=1)
    lost = np.sum(~right & baseline_right, axis=1)
    tail = scipy.stats.binom.cdf(np.minimum(gained, lost), gained + lost, 0.5)
    return np.minimum(2 * tail, 1)


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

    If a mask changes nothing, its predictions and the baseline's may be swapped, example by
    example. The p-value is the share of swaps after which the two differ at least as much as
    observed. It is taken over all possible swaps where there are at most `rounds` of them, and
    otherwise over `rounds` random swaps and the observed predictions.

    A correlation does not depend on the scale or the offset of predictions. So predictions are
    standardized before they are swapped (for Pearson's) or replaced by their ranks (for
    Spearman's). Otherwise a mask that rescales the output would mix two scales in every swap, which
    would hide its effect on the order.

    Spearman's is slow, because every swap is ranked again: about 0.4 ms per round and mask for
    1,500 examples, so 10 minutes for 144 heads and the default number of rounds.

    Args:
      metric, predictions, baseline, labels, rounds, seed: As in `assess`.

    Returns:
      The p-values [M], each independent of the other masks; NaN where the difference is undefined.

    Raises:
      ValueError: `assess` would refuse the arguments.
    """
    _check(metric, predictions, labels, baseline)
    everything = np.ones((1, len(labels)))
    observed = _differences(metric, predictions, baseline, labels, everything)[0]
    p_values = np.full(len(predictions), np.nan)
    for k in np.flatnonzero(~np.isnan(observed)):
        pair = _in_own_units(metric, np.stack([predictions[k], baseline]))
        differs = pair[0] != pair[1]
        count = int(differs.sum())
        exact = 2**count <= rounds
        # Ranks need all examples of every swap, sums only those that differ.
        width = len(labels) if metric == 'spearman' else max(count, 1)
        rng = np.random.default_rng(seed)
        extreme = total = 0
        for start, stop in _blocks(2**count if exact else rounds, width):
            if exact:
                swaps = (np.arange(start, stop)[:, None] >> np.arange(count)) & 1 == 1
            else:
                swaps = rng.integers(2, size=(stop - start, count), dtype=bool)
            found = _swapped_difference(metric, pair, labels, differs, swaps)
            # An undefined difference counts as extreme, which makes the p-value conservative.
            extreme += int(np.sum(~(np.abs(found) < abs(observed[k]) - _ROUNDING)))
            total += len(swaps)
        p_values[k] = extreme / total if exact else (1 + extreme) / (1 + total)
    return p_values


def holm(p_values: PerMask) -> PerMask:
    """Return p-values [M] adjusted for all M tests (Holm 1979).

    If p-values up to a level count as significant, the chance of any error among them is at most
    that level, whatever the dependence between the tests. A p-value that is NaN stays NaN, and
    counts as a test.

    Raises:
      ValueError: A p-value is outside [0, 1].
    """
    known = _known(p_values)
    order = np.argsort(known)
    steps = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(steps, 1)
    return np.where(np.isnan(p_values), np.nan, adjusted)


def benjamini_hochberg(p_values: PerMask) -> PerMask:
    """Return p-values [M] adjusted for all M tests (Benjamini and Hochberg 1995).

    If p-values up to a level count as significant, the expected share of errors among them is at
    most that level. This holds for independent and for positively dependent tests (Benjamini and
    Yekutieli 2001). A p-value that is NaN stays NaN, and counts as a test.

    Raises:
      ValueError: A p-value is outside [0, 1].
    """
    adjusted = scipy.stats.false_discovery_control(_known(p_values))
    return np.where(np.isnan(p_values), np.nan, adjusted)


def selected_gain(
    metric: str,
    predictions: Predictions,
    baseline: PerExample,
    labels: PerExample,
    *,
    splits: int = 1000,
    seed: int = 0,
) -> SelectedGain:
    """Compute the gain of the best mask on the examples on which it was chosen, and on others.

    The best of many masks is partly the luckiest one. So the examples are halved at random, many
    times: the mask that is best on one half is scored on the other half, and the other way round.
    Ties for the best mask are broken at random.

    Args:
      metric, predictions, baseline, labels, seed: As in `assess`.
      splits: The number of random halvings.

    Raises:
      ValueError: `assess` would refuse the arguments, or there are fewer than two examples.
    """
    _check(metric, predictions, labels, baseline)
    masks, examples = predictions.shape
    if examples < 2:
        raise ValueError('One example cannot be halved.')

    def difference(weights):
        return _differences(metric, predictions, baseline, labels, weights)

    rng = np.random.default_rng(seed)
    gains, chosen = [], np.zeros(masks)
    for start, stop in _blocks(splits, examples):
        half = np.tile(np.arange(examples) < examples // 2, (stop - start, 1))
        half = rng.permuted(half, axis=1)
        differences = np.stack([difference(half), difference(~half)])  # [2, R, M]
        best = _best(differences, rng)
        chosen += np.bincount(best.ravel(), minlength=masks)
        gains.append(np.take_along_axis(differences[::-1], best[..., None], axis=2).ravel())
    gains = np.concatenate(gains)
    low, high = _quietly(np.nanquantile, gains, [0.025, 0.975])
    return SelectedGain(
        naive=float(_quietly(np.nanmax, difference(np.ones((1, examples))))),
        honest=float(_quietly(np.nanmean, gains)),
        honest_low=float(low),
        honest_high=float(high),
        chosen=chosen / chosen.sum(),
    )


def _check(metric, predictions, labels, baseline=None):
    if metric not in METRICS:
        raise ValueError(f'Unknown metric {metric!r}: one of {", ".join(METRICS)}.')
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f'Labels must be [E], at least one, got {list(labels.shape)}.')
    if predictions.ndim != 2 or predictions.shape[1] != len(labels) or not len(predictions):
        raise ValueError(
            f'Predictions must be [M, {len(labels)}] like the labels, at least one mask, got '
            f'{list(predictions.shape)}.'
        )
    if baseline is not None and baseline.shape != labels.shape:
        raise ValueError(f'The baseline must be [{len(labels)}], got {list(baseline.shape)}.')
    given = [predictions, labels] if baseline is None else [predictions, labels, baseline]
    if not all(np.isfinite(values).all() for values in given):
        raise ValueError('Some predictions or labels are not finite.')


def _blocks(rows: int, width: int) -> list[tuple[int, int]]:
    """Return start and stop of blocks of rows, of which several fit into memory at once."""
    if rows < 1:
        raise ValueError(f'Resamples, rounds and splits must be at least 1, got {rows}.')
    most = max(1, _BLOCK // width)
    return [(start, min(start + most, rows)) for start in range(0, rows, most)]


def _differences(metric, predictions, baseline, labels, weights) -> np.ndarray:
    scores = weighted_scores(metric, predictions, labels, weights)
    return scores - weighted_scores(metric, baseline[None], labels, weights)


def _features(metric, predictions, labels, centre) -> list[np.ndarray]:
    """Return F arrays, [M, E] or [1, E], from whose sums over examples the metric follows."""
    x, y = predictions, labels[None]
    every = np.ones(y.shape)
    if metric == 'accuracy':
        features = every, x == y
    elif metric == 'f1':
        features = (x == 1) & (y == 1), (x == 1) != (y == 1)
    else:
        # Without centring, the variances below would be small differences of large numbers.
        x, y = x.astype(np.float64) - centre, y - y.mean(dtype=np.float64)
        features = every, x, y, x * x, y * y, x * y
    # NumPy multiplies booleans without BLAS, which is slow.
    return [feature.astype(np.float64, copy=False) for feature in features]


def _score(metric, sums) -> np.ndarray:
    """Return the metric from the sums of its features, for any number of models at a time."""
    with np.errstate(divide='ignore', invalid='ignore'):
        if metric == 'accuracy':
            count, right = sums
            return right / count
        if metric == 'f1':
            right, wrong = sums
            return np.where(right > 0, 2 * right / (2 * right + wrong), 0)
        count, x, y, xx, yy, xy = sums
        variance_x, variance_y = xx - x * x / count, yy - y * y / count
        found = (xy - x * y / count) / np.sqrt(variance_x * variance_y)
        defined = (variance_x > _ROUNDING * xx) & (variance_y > _ROUNDING * yy)
        return np.clip(np.where(defined, found, np.nan), -1, 1)


def _spearman(predictions, labels, weights) -> np.ndarray:
    y = _ranks(labels, weights)
    scores = []
    for values in predictions:
        x = _ranks(values, weights)
        xy, xx, yy = (np.einsum('RE,RE->R', weights * a, b) for a, b in ((x, y), (x, x), (y, y)))
        with np.errstate(invalid='ignore'):
            scores.append(np.clip(xy / np.sqrt(xx * yy), -1, 1))
    return np.stack(scores, axis=1)


def _ranks(values, weights) -> np.ndarray:
    """Return the average ranks [R, E] in each resample minus their mean, sorting values once."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes) - 1
    upto = np.cumsum(weights[:, np.argsort(group)], axis=1)[:, ends]
    # Equal values share the middle of their ranks. The mean of all ranks is half their number.
    middle = upto - np.diff(upto, axis=1, prepend=0) / 2
    return (middle - upto[:, -1:] / 2)[:, group]


def _in_own_units(metric, pair) -> np.ndarray:
    """Return the predictions [2, E] without scale and offset if the metric ignores these."""
    match metric:
        case 'pearson':
            # SciPy warns about predictions that are constant except for rounding.
            return _quietly(scipy.stats.zscore, pair.astype(np.float64), axis=1)
        case 'spearman':
            return scipy.stats.rankdata(pair, axis=1)
        case _:
            return pair


def _swapped_difference(metric, pair, labels, differs, swaps) -> np.ndarray:
    """Return the differences [R] between mask and baseline after swaps.

    Args:
      metric: One of METRICS.
      pair: [2, E] Predictions of mask and baseline.
      labels: [E] The right answers.
      differs: [E] Where the two predictions differ.
      swaps: [R, number of such examples] Which of these each round swaps.
    """
    if metric == 'spearman':
        swapped = np.zeros((len(swaps), len(labels)), bool)
        swapped[:, differs] = swaps
        everything = np.ones((1, len(labels)))

        def score(here, there):
            return weighted_scores(
                'pearson',
                scipy.stats.rankdata(np.where(swapped, there, here), axis=1),
                scipy.stats.rankdata(labels),
                everything,
            )[0]

        return score(*pair) - score(*pair[::-1])
    # The sums of the other metrics are linear in the swaps. Mask and baseline are centred alike, so
    # that swapping does not change a value.
    features = np.stack(np.broadcast_arrays(*_features(metric, pair, labels, pair.mean())))
    mask, baseline = features.sum(axis=2).T[..., None]  # [F, 1] each
    change = (features[:, 1] - features[:, 0])[:, differs]
    moved = change @ swaps.T.astype(np.float64)
    return _score(metric, mask + moved) - _score(metric, baseline - moved)


def _best(differences, rng) -> np.ndarray:
    """Return the index [2, R] of the largest of [2, R, M]; ties are broken at random."""
    known = np.where(np.isnan(differences), -np.inf, differences)
    ties = known == known.max(axis=-1, keepdims=True)
    return np.where(ties, rng.random(ties.shape), -1).argmax(axis=-1)


def _known(p_values) -> np.ndarray:
    known = np.nan_to_num(p_values, nan=1.0)
    if p_values.ndim != 1 or not ((known >= 0) & (known <= 1)).all():
        raise ValueError('P-values must be [M] within 0 and 1.')
    return known


def _quietly(function, values, *args, **kwargs):
    """Call a function whose result is NaN where it would warn."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)
        return function(values, *args, **kwargs)
