"""Claims about links of words, and about heads and probes that find dependency relations.

Shapes: R seeds of a probe, E sentences.
"""

import operator
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float32

from bert_secrets_jax.analyses.verdicts import claims, verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Verdict
from bert_secrets_jax.measure.links import MOVED, POSITIONS, LinkTest
from bert_secrets_jax.measure.places import PLACES
from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.names import head_name
from bert_secrets_jax.probes.evaluation import scores
from bert_secrets_jax.runs.result import Interval
from bert_secrets_jax.runs.verdict import MOST_PROBES, THESE_PROBES, THIS_MODEL
from bert_secrets_jax.stats import over_runs
from bert_secrets_jax.stats.over_runs import Contrasts


def heads_follow_links(test: LinkTest) -> Verdict:
    """Test FRAMES: whether a head is above all kinds of places by more than the threshold.

    It holds where a head is, after a correction for all heads (Bonferroni), and also by the link
    test itself. It does not hold where every head is less than that above one kind of places,
    whichever the data choose.

    The estimate is the attention of a head along the links minus that at the places where this is
    least. The head is the one that is farthest above its places, among those significantly above
    all kinds if there are any. The interval is of this head alone, although it is chosen.
    """
    nulls, claim = test.nulls, claims.FRAMES
    parts = [_beyond(null.excess) for null in nulls.values()]
    p_of_more = len(parts) * np.fmin.reduce([part.below for part in parts], axis=0)
    # Above every kind of places, by both tests; what is not known shows nothing.
    p_of_less = [
        np.maximum(null.familywise, test.real.size * part.above)
        for null, part in zip(nulls.values(), parts, strict=True)
    ]
    p_of_less = np.nan_to_num(np.max(p_of_less, axis=0), nan=1.0)
    p_values = p_of_less.min(), p_of_more.max()
    known = np.array([np.nan_to_num(part.difference, nan=np.inf) for part in parts])
    beyond = known.min(axis=0)
    order = np.where(test.real, beyond + 1, np.where(np.isinf(beyond), -np.inf, beyond))
    best = np.unravel_index(order.argmax(), order.shape)
    nearest = int(np.argmin(known[:, *best]))
    places = PLACES[list(nulls)[nearest]]
    what = f'attention of {head_name(*best)} along the links minus that {places}'
    interval = parts[nearest].interval(best, offset=claim.threshold)
    return _on_head(claim, p_values, interval, what, test.table.count)


def position_explains(claim: Claim, tests: Mapping[str, LinkTest]) -> Verdict:
    """Test VERB_SUBJECT or NOUN_PRONOUN: the head with the highest score, in each direction.

    The estimate is the attention of such a head along the links minus that at the same distances
    elsewhere, or at the same positions of other inputs, whichever is less. It is below the
    threshold in each direction if the claim holds, and of the direction that is
    least in favour of it. The interval is of this head alone, although it is chosen.
    """
    rows, threshold = [], claims.FRAMES.threshold
    for direction, test in tests.items():
        top = test.top
        # One kind of places that is as good is enough for the claim; the data choose which.
        parts = [
            _beyond(test.nulls[kind].excess)
            for kind in (MOVED, POSITIONS)
            if kind in test.nulls and not np.isnan(test.nulls[kind].mean[top])
        ]
        p_holds = len(parts) * np.min([part.below[top] for part in parts] or np.nan)
        p_fails = np.max([part.above[top] for part in parts] or np.nan)
        intervals = [part.interval(top, offset=threshold) for part in parts]
        nearest = min(intervals, key=operator.itemgetter(0), default=(np.nan,) * 3)
        rows.append((p_holds, p_fails, nearest, f'{head_name(*top)} from {direction}'))
    p_holds, p_fails, intervals, names = zip(*rows, strict=True)
    heads = sum(test.table.mean.size for test in tests.values())
    # The heads were chosen among all on the same examples, so their being above is corrected.
    p_values = np.max(p_holds), np.fmin.reduce(p_fails) * heads
    # The greatest excess over the threshold, in widths of its interval if these are known.
    estimate, low, high = np.transpose(intervals)
    excess = (estimate - threshold) / (high - low)
    excess = estimate if np.isnan(excess).all() else excess
    least = int(np.argmax(np.nan_to_num(excess, nan=-np.inf)))
    what = f'attention of {names[least]} along the links minus that elsewhere'
    sample = min(test.table.count for test in tests.values())
    return _on_head(claim, p_values, intervals[least], what, sample)


def _on_head(
    claim: Claim,
    p_values: tuple[float, float],
    interval: Interval,
    what: str,
    sample: over_runs.Count,
) -> Verdict:
    nowhere = 'The links have no places to be compared with.' * bool(np.isnan(interval[0]))
    return verdict.verdict_of(
        claim, p_values, interval, nowhere, what=what, sample=sample, population=THIS_MODEL
    )


def _beyond(excess: HeadTable) -> Contrasts:
    """Return what each head [L, N] has more than the threshold above its places."""
    each = [(excess.mean - claims.FRAMES.threshold, verdict.error_of(excess))]
    return over_runs.contrasts(each, excess.count)


def relations_have_heads(gains: Mapping[str, tuple[float, float, int]]) -> Verdict:
    """Test RELATION_HEADS.

    Args:
      gains: By the name of each relation, the share of links that its head finds minus that of the
        best offset, on other texts than both were chosen on; its standard error over texts; and the
        number of texts with such links. Relations in fewer than FEWEST texts do not count.
    """
    known = {name: gain for name, gain in gains.items() if gain[2] >= over_runs.FEWEST}
    sample = float(max((texts for _, _, texts in gains.values()), default=0))
    if len(known) < 2:
        why = "{known} of Clark et al.'s relations have enough links in these texts."
        return verdict.nothing_to_test(claims.RELATION_HEADS, why, sample, known=len(known))
    found = _leads(np.array(list(known.values())), claims.RELATION_HEADS)
    half = -(-len(known) // 2)
    # The one on which it hangs: if it is above, half of them are.
    hinge = int(np.argsort(-found.difference, kind='stable')[half - 1])
    return verdict.verdict_on(
        claims.RELATION_HEADS,
        found,
        'what the head of the decisive relation finds more than the offset',
        '{reached} of {known} relations have such a head; the claim needs {half}. In the decisive '
        'one, {decisive}, the lead is {number}.',
        p_values=over_runs.so_many_above(found, half),
        interval=found.interval(hinge, offset=claims.RELATION_HEADS.threshold),
        reached=(found.difference >= 0).sum(),
        known=len(known),
        half=half,
        decisive=list(known)[hinge],
        sample=sample,
        sample_of='texts',
    )


def no_head_for_all(gain: float, error: float, texts: int) -> Verdict:
    """Test NO_HEAD_FOR_ALL on the links of all relations together."""
    found = _leads(np.array([(gain, error, texts)]), claims.NO_HEAD_FOR_ALL)
    what = 'share of all links that the best head finds minus that of the best offset'
    return verdict.verdict_on(claims.NO_HEAD_FOR_ALL, found, what, sample_of='texts')


def uas_contrasts(
    words: Float32[np.ndarray, ' E'],
    right: Float32[np.ndarray, 'R E'],
    other: Float32[np.ndarray, '_ E'] | None = None,
    *,
    threshold: float | int = 0,
) -> Contrasts:
    """Return the UAS of a probe, or its lead over another one on the same sentences, in points.

    Sentences are the sample, and from FEWEST_RUNS seeds on, seeds are one, too.

    Args:
      words: The number of words of each sentence that count.
      right: The number of those whose head the probe finds.
      other: The same of the other probe, with as many seeds or one; None for the UAS itself.
    """
    value, error = scores(right if other is None else right - other, words)
    # A probe that is never wrong has no error, and is right by no more than rounding.
    bounds = 100 * (error + over_runs.ROUNDING)
    return over_runs.contrasts(
        zip(100 * value, bounds, strict=True), float(len(words)), above=threshold
    )


def probe_leads(
    claim: Claim,
    words: Float32[np.ndarray, ' E'],
    right: Float32[np.ndarray, 'R E'],
    other: Float32[np.ndarray, '_ E'],
) -> Verdict:
    """Test PROBE_BEYOND_WORDS or ATTENTION_BEYOND_RANDOM.

    The estimate is the difference of the two scores, above the threshold if the claim holds. The
    arguments are those of `uas_contrasts`.
    """
    found = uas_contrasts(words, right, other, threshold=claim.threshold)
    several = found.runs >= over_runs.FEWEST_FOR_MOST
    return verdict.verdict_on(
        claim,
        found,
        'UAS of the first probe minus that of the second',
        population=MOST_PROBES if several else THESE_PROBES,
    )


def _leads(gains: np.ndarray, claim: Claim) -> Contrasts:
    """Return the parts of a claim on gains, errors and texts [P, 3] (Student's t over texts)."""
    gain, error, texts = gains.astype(np.float64).T
    above = gain - claim.threshold
    above = above if claim.side == 'more' else -above
    return Contrasts(above, error, np.maximum(texts - 1, 1), above[None], examples=texts.min())
