"""Claims about links: from frame elements to their target, verb and subject, noun and pronoun."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from bert_secrets_jax.analyses.common.links import PLACES
from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Verdict
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import MOVED, POSITIONS, LinkTest
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.verdict import THIS_MODEL

# A share of attention: a quarter of what the paper's two frame heads have, 0.20.
PRACTICAL_SHARE = 0.05

_QUARTER = 'A quarter of what the two frame heads of Kovaleva et al. 2019 give, 0.20.'
FRAMES = Claim(
    'Some heads attend from frame elements to their target, more than '
    f'{PRACTICAL_SHARE:g} beyond chance, position and word class.',
    'Kovaleva et al. 2019, section 4.2, Figure 3: two of 144 heads',
    bound=_QUARTER,
    limits='That these heads know frames: which words occur together is not held fixed.',
    short='Some heads look from frame elements to their target',
    section='frames',
    unit='share of attention',
    threshold=PRACTICAL_SHARE,
)
VERB_SUBJECT = Claim(
    'Heads that attend most between verb and subject only follow position: elsewhere they give as '
    f'much at like positions, within {PRACTICAL_SHARE:g}.',
    'Kovaleva et al. 2019, section 4.5',
    bound=_QUARTER,
    limits='Heads that attend less along these links.',
    short='The top heads between verb and subject only follow position',
    section='relations',
    unit='share of attention',
    threshold=PRACTICAL_SHARE,
    side='less',
)
NOUN_PRONOUN = dataclasses.replace(
    VERB_SUBJECT,
    text=VERB_SUBJECT.text.replace('verb and subject', 'noun and pronoun'),
    limits='Whether heads follow coreference: all nouns before a pronoun are linked to it.',
    short='The top heads between noun and pronoun only follow position',
)


def heads_follow_links(test: LinkTest) -> Verdict:
    """Test FRAMES: whether a head is above all kinds of places by more than PRACTICAL_SHARE.

    It holds where a head is, after a correction for all heads (Bonferroni), and also by the link
    test itself. It does not hold where every head is less than that above one kind of places,
    whichever the data choose.

    The estimate is the attention of a head along the links minus that at the places where this is
    least. The head is the one that is farthest above its places, among those significantly above
    all kinds if there are any. The interval is of this head alone, although it is chosen.
    """
    real, nulls = test.real, test.nulls
    means = np.stack([null.excess.mean for null in nulls.values()])
    parts = [_beyond(null.excess) for null in nulls.values()]
    p_of_more = len(parts) * np.fmin.reduce([part.below for part in parts], axis=0)
    # Above every kind of places, by both tests; what is not known shows nothing.
    p_of_less = [
        np.maximum(null.familywise, real.size * part.above)
        for null, part in zip(nulls.values(), parts, strict=True)
    ]
    p_of_less = np.nan_to_num(np.max(p_of_less, axis=0), nan=1.0)
    p_values = verdict.capped(p_of_less.min()), verdict.capped(p_of_more.max())
    known = np.where(np.isnan(means), np.inf, means)
    beyond = known.min(axis=0)
    order = np.where(real, beyond + 1, np.where(np.isinf(beyond), -np.inf, beyond))
    best = np.unravel_index(order.argmax(), order.shape)
    nearest = int(np.argmin(known[(slice(None), *best)]))
    places = PLACES[list(nulls)[nearest]]
    what = f'attention of {head_name(*best)} along the links minus that {places}'
    interval = parts[nearest].interval(best, offset=PRACTICAL_SHARE)
    return _on_head(FRAMES, p_values, interval, what, test.table.count)


def position_explains(claim: Claim, tests: Mapping[str, LinkTest]) -> Verdict:
    """Test VERB_SUBJECT or NOUN_PRONOUN: the head with the highest score, in each direction.

    The estimate is the attention of such a head along the links minus that at the same distances
    elsewhere, or at the same positions of other inputs, whichever is less. It is below the
    threshold PRACTICAL_SHARE in each direction if the claim holds, and of the direction that is
    least in favour of it. The interval is of this head alone, although it is chosen.
    """
    rows = []
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
        interval = (np.nan,) * 3
        if parts:
            nearest = min(parts, key=lambda part, top=top: part.difference[top])
            interval = nearest.interval(top, offset=PRACTICAL_SHARE)
        rows.append((p_holds, p_fails, interval, f'{head_name(*top)} from {direction}'))
    p_holds, p_fails, intervals, names = zip(*rows, strict=True)
    heads = sum(test.table.mean.size for test in tests.values())
    # The heads were chosen among all on the same examples, so their being above is corrected.
    p_values = verdict.capped(np.max(p_holds)), verdict.capped(np.fmin.reduce(p_fails) * heads)
    # The greatest excess over the threshold, in widths of its interval if these are known.
    estimate, low, high = np.transpose(intervals)
    excess = (estimate - PRACTICAL_SHARE) / (high - low)
    excess = estimate if np.isnan(excess).all() else excess
    least = int(np.argmax(np.nan_to_num(excess, nan=-np.inf)))
    what = f'attention of {names[least]} along the links minus that elsewhere'
    sample = min(test.table.count for test in tests.values())
    return _on_head(claim, p_values, intervals[least], what, sample)


def _on_head(
    claim: Claim,
    p_values: tuple[float, float],
    interval: tuple[float, float, float],
    what: str,
    sample: verdict.Count,
) -> Verdict:
    nowhere = 'The links have no places to be compared with.' * bool(np.isnan(interval[0]))
    return verdict.verdict_of(
        claim, p_values, interval, nowhere, what=what, sample=sample, population=THIS_MODEL
    )


def _beyond(excess: HeadTable) -> Contrasts:
    """Return what each head [L, N] has more than PRACTICAL_SHARE above its places."""
    each = [(excess.mean - PRACTICAL_SHARE, verdict.error_of(excess))]
    return verdict.contrasts(each, excess.count)
