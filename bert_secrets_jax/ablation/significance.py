"""Which differences between an ablated model and the intact one are real.

Shapes: K masks (one model each), E examples, R resamples or rounds, F sums that make up a metric.
Predictions are class ids for 'accuracy' and 'f1', values for 'pearson' and 'spearman'. Everything
is paired: mask and baseline answer the same examples. A difference is the mask's score less the
baseline's; where a correlation is undefined, so are its difference and p-value: NaN.
"""

import dataclasses
import warnings

import numpy as np
import scipy.stats

METRICS = ('accuracy', 'f1', 'pearson', 'spearman')

# Numbers in one block of resamples or masks: 8 MB each, for any number of examples.
_BLOCK = 1_000_000
# Relative for variances, absolute for scores: what float64 sums leave of an exact zero.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class SelectedGain:
    """What the best mask gains, with and without the luck of having been chosen.

    Attributes:
      naive: the best difference on the examples it was chosen on.
      honest: mean difference on the half of the examples that the best mask was not chosen on.
      honest_low, honest_high: the central 95 % of these differences over random halves. Where one
        mask is always the best, about as wide as its bootstrap interval: a half drawn without
        replacement varies as much as a resample of all.
      chosen: [K] how often each mask was the best of a half, as a share.
    """

    naive: float
    honest: float
    honest_low: float
    honest_high: float
    chosen: np.ndarray


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Every mask against the baseline.

    Attributes:
      baseline_score: score of the intact model.
      score: [K] score of each mask.
      difference: [K] score less `baseline_score`.
      low, high: [K] 95 % bootstrap interval of `difference`.
      p_value: [K] two-sided, of no difference.
      holm, benjamini_hochberg: [K] p-values adjusted for K tests.
      test: name of the test behind `p_value`.
    """

    baseline_score: float
    score: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray
    p_value: np.ndarray
    holm: np.ndarray
    benjamini_hochberg: np.ndarray
    test: str

    def significant(self, level: float = 0.05, correction: str = 'holm') -> tuple[int, int]:
        """Count the masks that lower the score and those that raise it, beyond chance.

        Args:
          level: adjusted p-values up to it count.
          correction: 'holm' bounds the chance of any error, 'benjamini_hochberg' the expected
            share of errors among those counted, 'none' neither.

        Raises:
          ValueError: unknown correction.
        """
        corrected = {'none': self.p_value, 'holm': self.holm}
        corrected['benjamini_hochberg'] = self.benjamini_hochberg
        if correction not in corrected:
            raise ValueError(f'Unknown correction {correction!r}: one of {", ".join(corrected)}.')
        found = self.difference[corrected[correction] <= level]
        return int(np.sum(found < 0)), int(np.sum(found > 0))


def assess(
    metric: str,
    predictions: np.ndarray,
    baseline: np.ndarray,
    labels: np.ndarray,
    *,
    resamples: int = 2000,
    rounds: int = 10_000,
    seed: int = 0,
) -> Assessment:
    """Score, interval and p-values of every mask.

    Args:
      metric: one of METRICS.
      predictions: [K, E] of the masks.
      baseline: [E] of the intact model.
      labels: [E].
      resamples: of the bootstrap.
      rounds: of the randomization test, which accuracy does not need. More than K / level, or
        Holm's correction can find nothing.
      seed: of both.

    Raises:
      ValueError: unknown metric, shapes that do not fit, or predictions that are not finite.
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
    metric: str, predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Score every mask on every resample, as `finetune.metrics` does on repeated examples.

    Args:
      metric: one of METRICS.
      predictions: [K, E].
      labels: [E].
      weights: [R, E], how often each example occurs; 0 and 1 choose a part of them.

    Returns:
      [R, K]. NaN where a correlation is undefined; Pearson's is where a resample's variance is
      below 1e-12 of its mean square about the mean of all examples.

    Raises:
      ValueError: unknown metric, shapes that do not fit, negative weights, or predictions that are
        not finite.
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
    predictions: np.ndarray,
    baseline: np.ndarray,
    labels: np.ndarray,
    *,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of each mask's difference (Efron and Tibshirani 1993, chapter 13).

    Masks and baseline are scored on the same resamples, whatever the other masks. Resamples
    without a defined difference are left out.

    Args:
      metric, predictions, baseline, labels, resamples, seed: as in `assess`.
      level: nominal coverage.

    Returns:
      low [K], high [K].

    Raises:
      ValueError: as `assess`.
    """
    _check(metric, predictions, labels, baseline)
    rng = np.random.default_rng(seed)
    examples = len(labels)
    differences = []
    for start, stop in _blocks(resamples, examples):
        drawn = rng.integers(examples, size=(stop - start, examples))
        # One bincount for the block: each row counts in a range of its own.
        drawn += np.arange(stop - start)[:, None] * examples
        weights = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        differences.append(_differences(metric, predictions, baseline, labels, weights))
    tail = (1 - level) / 2
    low, high = _defined(np.nanquantile, np.concatenate(differences), [tail, 1 - tail], axis=0)
    return low, high


def mcnemar(predictions: np.ndarray, baseline: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Exact two-sided p-value of equal accuracy, [K] (McNemar 1947).

    Only the examples that one of mask and baseline has right matter; if both are as good, either
    is the right one with probability 1/2. 1 where there is none.

    Raises:
      ValueError: as `assess`.
    """
    _check('accuracy', predictions, labels, baseline)
    right, baseline_right = predictions == labels[None], (baseline == labels)[None]
    gained = np.sum(right & ~baseline_right, axis=1)
    lost = np.sum(~right & baseline_right, axis=1)
    tail = scipy.stats.binom.cdf(np.minimum(gained, lost), gained + lost, 0.5)
    return np.minimum(2 * tail, 1)


def randomization_test(
    metric: str,
    predictions: np.ndarray,
    baseline: np.ndarray,
    labels: np.ndarray,
    *,
    rounds: int = 10_000,
    seed: int = 0,
) -> np.ndarray:
    """Two-sided p-value of no difference, [K] (Noreen 1989; Yeh 2000).

    If a mask changes nothing, its predictions and the baseline's may be swapped, example by
    example. The p-value is the share of swaps that differ at least as much as observed: of all
    swaps where there are at most `rounds`, else of `rounds` random ones and the observed one.

    A correlation sees neither scale nor offset of predictions, so these are swapped in units of
    their own: standardized for Pearson's, ranks for Spearman's. Otherwise a mask that rescales the
    output would mix two scales in every swap, and hide what it does to the order.

    Spearman's is slow, as every swap is ranked again: about 0.4 ms a round and mask for 1,500
    examples, so 10 minutes for 144 heads and the default rounds.

    Args:
      metric, predictions, baseline, labels, rounds, seed: as in `assess`.

    Returns:
      [K], the same for a mask whatever the other masks; NaN where the difference is.

    Raises:
      ValueError: as `assess`.
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
            # An undefined difference counts as extreme, on the safe side.
            extreme += int(np.sum(~(np.abs(found) < abs(observed[k]) - _ROUNDING)))
            total += len(swaps)
        p_values[k] = extreme / total if exact else (1 + extreme) / (1 + total)
    return p_values


def sign_flip_test(
    values: np.ndarray, *, rounds: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Two-sided p-values of zero mean, each alone and corrected for all together.

    If a quantity scatters evenly about zero over examples, the sign of an example's values may be
    turned. The same signs are turned for all quantities, so that the greatest |t| of all shows what
    the strongest of many reaches by chance, whatever their dependence (Westfall and Young 1993;
    Romano and Wolf 2005). Skewed values of few examples make it find too much.

    Args:
      values: [Q, E] per quantity and example.
      rounds: random turns of signs.
      seed: of the turns.

    Returns:
      p-values [Q] of Student's t, and [Q] corrected: the chance that any of the quantities reaches
      as great a |t|. 1 for a quantity that is 0 everywhere.

    Raises:
      ValueError: when values are not [Q, E] with two examples or more, or not finite.
    """
    values = np.asarray(values, np.float64)
    if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
        raise ValueError(
            f'Values must be finite [quantities, examples], two examples at least, got '
            f'{list(values.shape)}.'
        )
    examples = values.shape[1]
    # Turning signs leaves the sum of squares as it is.
    square = (values**2).mean(axis=1)

    def t(mean):
        variance = np.maximum(square - mean**2, _ROUNDING * square) / (examples - 1)
        return np.abs(mean) / np.sqrt(np.where(square > 0, variance, 1))

    observed = t(values.mean(axis=1))
    rng = np.random.default_rng(seed)
    as_great = np.zeros(len(values))
    for start, stop in _blocks(rounds, max(values.shape)):
        signs = rng.integers(2, size=(stop - start, examples)) * 2.0 - 1
        greatest = t(signs @ values.T / examples).max(axis=1)
        # What rounding leaves of equal values counts as equal.
        as_great += (greatest[:, None] >= observed * (1 - _ROUNDING)).sum(axis=0)
    p_values = 2 * scipy.stats.t.sf(observed, examples - 1)
    return p_values, (1 + as_great) / (1 + rounds)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Adjusted p-values, [K]: at most `level` chance of any error among those <= level (Holm 1979).

    Valid for any dependence between the tests. An undefined p-value stays so and counts as a test.

    Raises:
      ValueError: p-values outside [0, 1].
    """
    known = _known(p_values)
    order = np.argsort(known)
    steps = np.maximum.accumulate(known[order] * np.arange(len(known), 0, -1))
    adjusted = np.empty_like(steps)
    adjusted[order] = np.minimum(steps, 1)
    return np.where(np.isnan(p_values), np.nan, adjusted)


def benjamini_hochberg(p_values: np.ndarray) -> np.ndarray:
    """Adjusted p-values, [K]: errors are at most a share `level` of those <= level, in expectation.

    For independent or positively dependent tests (Benjamini and Hochberg 1995; Benjamini and
    Yekutieli 2001). An undefined p-value stays so and counts as a test.

    Raises:
      ValueError: p-values outside [0, 1].
    """
    adjusted = scipy.stats.false_discovery_control(_known(p_values))
    return np.where(np.isnan(p_values), np.nan, adjusted)


def selected_gain(
    metric: str,
    predictions: np.ndarray,
    baseline: np.ndarray,
    labels: np.ndarray,
    *,
    splits: int = 1000,
    seed: int = 0,
) -> SelectedGain:
    """What disabling the best head gains, on the examples it was chosen on and on others.

    The best of many masks is partly the luckiest one. So the examples are halved at random, many
    times: the mask that is best on one half is scored on the other, and the other way round.

    Args:
      metric, predictions, baseline, labels, seed: as in `assess`. Ties are broken at random.
      splits: number of halvings.

    Raises:
      ValueError: as `assess`, or fewer than two examples.
    """
    _check(metric, predictions, labels, baseline)
    masks, examples = predictions.shape
    if examples < 2:
        raise ValueError('One example cannot be halved.')
    difference = lambda weights: _differences(metric, predictions, baseline, labels, weights)
    rng = np.random.default_rng(seed)
    gains, chosen = [], np.zeros(masks)
    for start, stop in _blocks(splits, examples):
        half = np.tile(np.arange(examples) < examples // 2, (stop - start, 1))
        half = rng.permuted(half, axis=1)
        differences = np.stack([difference(half), difference(~half)])  # [2, R, K]
        best = _best(differences, rng)
        chosen += np.bincount(best.ravel(), minlength=masks)
        gains.append(np.take_along_axis(differences[::-1], best[..., None], axis=2).ravel())
    gains = np.concatenate(gains)
    low, high = _defined(np.nanquantile, gains, [0.025, 0.975])
    return SelectedGain(
        naive=float(_defined(np.nanmax, difference(np.ones((1, examples))))),
        honest=float(_defined(np.nanmean, gains)),
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
            f'Predictions must be [K, {len(labels)}] like the labels, at least one mask, got '
            f'{list(predictions.shape)}.'
        )
    if baseline is not None and baseline.shape != labels.shape:
        raise ValueError(f'The baseline must be [{len(labels)}], got {list(baseline.shape)}.')
    given = [predictions, labels] if baseline is None else [predictions, labels, baseline]
    if not all(np.isfinite(values).all() for values in given):
        raise ValueError('Some predictions or labels are not finite.')


def _blocks(rows: int, width: int) -> list[tuple[int, int]]:
    """Start and stop of blocks of rows that are small enough to hold several of."""
    if rows < 1:
        raise ValueError(f'Resamples, rounds and splits must be at least 1, got {rows}.')
    most = max(1, _BLOCK // width)
    return [(start, min(start + most, rows)) for start in range(0, rows, most)]


def _differences(metric, predictions, baseline, labels, weights) -> np.ndarray:
    scores = weighted_scores(metric, predictions, labels, weights)
    return scores - weighted_scores(metric, baseline[None], labels, weights)


def _features(metric, predictions, labels, centre) -> list[np.ndarray]:
    """F arrays, [K, E] or [1, E], whose sums over examples make up the metric."""
    x, y = predictions, labels[None]
    every = np.ones(y.shape)
    if metric == 'accuracy':
        features = every, x == y
    elif metric == 'f1':
        features = (x == 1) & (y == 1), (x == 1) != (y == 1)
    else:
        # Centred, or the variances below would be small differences of large numbers.
        x, y = x.astype(np.float64) - centre, y - y.mean(dtype=np.float64)
        features = every, x, y, x * x, y * y, x * y
    # Products with booleans would pass BLAS by.
    return [feature.astype(np.float64, copy=False) for feature in features]


def _score(metric, sums) -> np.ndarray:
    """The metric from the sums of its features, any number at a time."""
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
    """[R, E] average ranks in each resample less their mean; the values are sorted only once."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes) - 1
    upto = np.cumsum(weights[:, np.argsort(group)], axis=1)[:, ends]
    # Equal values share the middle of the places they take; the mean of all is half their number.
    middle = upto - np.diff(upto, axis=1, prepend=0) / 2
    return (middle - upto[:, -1:] / 2)[:, group]


def _in_own_units(metric, pair) -> np.ndarray:
    """[2, E] predictions without what the metric does not see."""
    match metric:
        case 'pearson':
            return scipy.stats.zscore(pair.astype(np.float64), axis=1)
        case 'spearman':
            return scipy.stats.rankdata(pair, axis=1)
        case _:
            return pair


def _swapped_difference(metric, pair, labels, differs, swaps) -> np.ndarray:
    """[R] difference of mask and baseline, `pair` [2, E], after swaps [R, D]."""
    if metric == 'spearman':
        swapped = np.zeros((len(swaps), len(labels)), bool)
        swapped[:, differs] = swaps
        everything = np.ones((1, len(labels)))
        score = lambda here, there: weighted_scores(
            'pearson',
            scipy.stats.rankdata(np.where(swapped, there, here), axis=1),
            scipy.stats.rankdata(labels),
            everything,
        )[0]
        return score(*pair) - score(*pair[::-1])
    # The sums of the other metrics are linear in the swaps. Mask and baseline share a centre, so
    # that a swapped value stays the same value.
    features = np.stack(np.broadcast_arrays(*_features(metric, pair, labels, pair.mean())))
    mask, baseline = features.sum(axis=2).T[..., None]  # [F, 1] each
    change = (features[:, 1] - features[:, 0])[:, differs]
    moved = change @ swaps.T.astype(np.float64)
    return _score(metric, mask + moved) - _score(metric, baseline - moved)


def _best(differences, rng) -> np.ndarray:
    """[2, R] index of the largest of [2, R, K]; ties at random, whatever the order of masks."""
    known = np.where(np.isnan(differences), -np.inf, differences)
    ties = known == known.max(axis=-1, keepdims=True)
    return np.where(ties, rng.random(ties.shape), -1).argmax(axis=-1)


def _known(p_values) -> np.ndarray:
    known = np.nan_to_num(p_values, nan=1.0)
    if p_values.ndim != 1 or not ((known >= 0) & (known <= 1)).all():
        raise ValueError('P-values must be [K] within 0 and 1.')
    return known


def _defined(function, values, *args, **kwargs):
    with warnings.catch_warnings():
        # Where nothing is defined, NaN says so.
        warnings.simplefilter('ignore', RuntimeWarning)
        return function(values, *args, **kwargs)
