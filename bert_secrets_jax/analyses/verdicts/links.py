"""Claims about links: from frame elements to their target, verb and subject, noun and pronoun."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.links import PLACES
from bert_secrets_jax.analyses.populations import THIS_MODEL
from bert_secrets_jax.analyses.verdicts import verdict
from bert_secrets_jax.analyses.verdicts.verdict import Claim, Contrasts, Verdict
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import MOVED, POSITIONS, LinkTest
from bert_secrets_jax.names import head_name

# A share of attention: a quarter of what the paper's two frame heads have, 0.20.
PRACTICAL_SHARE = 0.05

_QUARTER = "A quarter of the attention that the paper's two frame heads give, 0.20."
FRAMES = Claim(
    'Some heads attend from frame elements to their target, more than '
    f'{PRACTICAL_SHARE:g} beyond chance, position and word class.',
    'section 4.2, Figure 3: two of 144 heads',
    bound=_QUARTER,
    limits='That these heads know frames: which words occur together is not held fixed.',
    short='Some heads look from frame elements to their target',
)
VERB_SUBJECT = Claim(
    'Heads that attend most between verb and subject look at a position, not at the relation: '
    f'they give as much at like positions elsewhere, within {PRACTICAL_SHARE:g}.',
    'section 4.5',
    bound=_QUARTER,
    limits='Heads that attend less along these links.',
    short='The top heads between verb and subject only follow position',
)
NOUN_PRONOUN = Claim(
    'Heads that attend most between noun and pronoun look at a position, not at the relation: '
    f'they give as much at like positions elsewhere, within {PRACTICAL_SHARE:g}.',
    'section 4.5',
    bound=_QUARTER,
    limits='Whether heads follow coreference: all nouns before a pronoun are linked to it.',
    short='The top heads between noun and pronoun only follow position',
)


_OF_LINKS = {'unit': 'share of attention', 'threshold': PRACTICAL_SHARE, 'population': THIS_MODEL}


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
    kind = list(nulls)[nearest]
    interval = parts[nearest].interval(best, offset=PRACTICAL_SHARE)
    template = verdict.decisive(interval)
    if not np.isfinite(beyond[best]):
        template = 'The links have no places to be compared with.'
    return verdict.verdict_of(
        FRAMES,
        p_values,
        template,
        interval,
        what=f'attention of {head_name(*best)} along the links minus that {PLACES[kind]}',
        sample=test.table.count,
        **_OF_LINKS,
    )


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
    least = _least_in_favour(intervals)
    interval = intervals[least]
    template = verdict.decisive(interval, 'less')
    if np.isnan(interval[0]):
        template = 'The links have no places to be compared with.'
    return verdict.verdict_of(
        claim,
        p_values,
        template,
        interval,
        what=f'attention of {names[least]} along the links minus that elsewhere',
        **_OF_LINKS,
        sample=min(test.table.count for test in tests.values()),
    )


def _beyond(excess: HeadTable) -> Contrasts:
    """Return what each head [L, N] has more than PRACTICAL_SHARE above its places."""
    return verdict.contrasts(
        [excess.mean - PRACTICAL_SHARE], [verdict.error_of(excess)], excess.count
    )


def _least_in_favour(intervals: Sequence[tuple[float, float, float]]) -> int:
    """Return the index of the greatest excess over the threshold, in widths of its interval."""
    estimate, low, high = np.transpose(intervals)
    for values in ((estimate - PRACTICAL_SHARE) / (high - low), estimate):
        if not np.isnan(values).all():
            return int(np.nanargmax(values))
    return 0
