"""Claims about links: from frame elements to their target, verb and subject, noun and pronoun."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert_secrets_jax.analyses.links import PLACES, at_places
from bert_secrets_jax.analyses.populations import THIS_MODEL
from bert_secrets_jax.analyses.verdicts.verdict import (
    DOES_NOT_HOLD,
    Claim,
    Contrasts,
    Verdict,
    between,
    capped,
    contrasts,
    decide,
    error_of,
    head_at,
    numbered,
    verdict_of,
)
from bert_secrets_jax.measure.collect import HeadTable
from bert_secrets_jax.measure.links import MOVED, POSITIONS, LinkTest

# A share of attention: a quarter of what the paper's two frame heads have, 0.20.
PRACTICAL_SHARE = 0.05

_QUARTER = "A quarter of the attention that the paper's two frame heads give, 0.20."
FRAMES = Claim(
    'Some heads attend from frame elements to their target, more than '
    f'{PRACTICAL_SHARE:g} beyond chance, position and word class.',
    'section 4.2, Figure 3: two of 144 heads',
    bound=_QUARTER,
    limits='That these heads know frames: other things that go with a link, such as which words '
    'occur together, are not held fixed.',
)
VERB_SUBJECT = Claim(
    'Heads that attend most between verb and subject look at a position, not at the relation: at '
    'the same distances elsewhere, or at the same positions of other texts, they give as much '
    f'attention, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
    bound=_QUARTER,
    limits='Heads that attend less along these links, and may yet follow them.',
)
NOUN_PRONOUN = Claim(
    'Heads that attend most between noun and pronoun look at a position, not at the relation: at '
    'the same distances elsewhere, or at the same positions of other texts, they give as much '
    f'attention, to within {PRACTICAL_SHARE:g}.',
    'section 4.5',
    bound=_QUARTER,
    limits='Whether heads follow coreference: unless the annotations are your own, a link goes '
    'from all nouns before a pronoun to the pronoun, whatever it refers to.',
)


def heads_follow_links(test: LinkTest) -> Verdict:
    """Test FRAMES: whether any head is PRACTICAL_SHARE above all kinds of places where the links
    could stand.

    It holds where a head is, after a correction for all heads (Bonferroni), and is also above them
    by the link test itself. It does not hold where every head is less than that above one kind of
    places; the data may choose which kind, and the test corrects for that, too.

    The estimate is the attention of a head along the links minus that at the places of the kind
    where this is least. The head is the one that is farthest above its places, among those that
    are significantly above all kinds if there are any. The estimate is above the threshold
    PRACTICAL_SHARE if the claim holds. Its interval is of this head alone, although it is chosen.

    Args:
      test: The attention along the links, compared with places.
    """
    real, score, nulls = test.real, test.table, test.nulls
    means = np.stack([null.excess.mean for null in nulls.values()])
    parts = [_beyond(null.excess) for null in nulls.values()]
    p_of_more = len(parts) * np.fmin.reduce([part.below for part in parts], axis=0)
    # Above every kind of places, by both tests; what is not known shows nothing.
    p_of_less = [
        np.maximum(null.familywise, real.size * part.above)
        for null, part in zip(nulls.values(), parts, strict=True)
    ]
    p_of_less = np.nan_to_num(np.max(p_of_less, axis=0), nan=1.0)
    p_values = capped(p_of_less.min()), capped(p_of_more.max())
    known = np.where(np.isnan(means), np.inf, means)
    beyond = known.min(axis=0)
    order = np.where(real, beyond + 1, np.where(np.isinf(beyond), -np.inf, beyond))
    best = np.unravel_index(order.argmax(), order.shape)
    nearest = int(np.argmin(known[(slice(None), *best)]))
    kind = list(nulls)[nearest]
    excess = nulls[kind].excess
    interval = _around(excess, best)
    pieces, numbers = [], {}
    for index, name in enumerate(nulls, start=1):
        piece, shown = numbered('{places}', index, {'places': at_places(test, name, best)})
        pieces.append(piece)
        numbers |= shown
    negligible, least = '', ''
    if np.isfinite(beyond[best]):
        least = (
            f' Its smallest difference is {{estimate:z.3f}}{between(interval)}, where more than '
            '{threshold:g} is claimed.'
        )
    if decide(*p_values) == DOES_NOT_HOLD:
        numbers['practical'] = PRACTICAL_SHARE
        negligible = ' No head is {practical:g} or more above one of these.'
    return verdict_of(
        FRAMES,
        p_values,
        'Of {heads} heads, {real_heads} {real_heads:|attends|attend} more along the links than at '
        f'all other kinds of places (each corrected for all heads).{negligible} The farthest '
        f'above them is {{head}}: {{score:.3f}} along the links, {", ".join(pieces)}.{least} '
        'This is measured in {sample:example|examples}.',
        interval,
        what=f'attention of {head_at(best)} along the links minus that {PLACES[kind]}',
        unit='share of attention',
        threshold=PRACTICAL_SHARE,
        population=THIS_MODEL,
        sample=score.count,
        numbers=numbers
        | {
            'heads': real.size,
            'real_heads': real.sum(),
            'head': head_at(best),
            'score': score.mean[best],
        },
    )


def position_explains(claim: Claim, tests: Mapping[str, LinkTest]) -> Verdict:
    """Test VERB_SUBJECT or NOUN_PRONOUN: the head with the highest score, in each direction.

    The estimate is the attention of such a head along the links minus that at the same distances
    elsewhere, or minus that at the same positions of other inputs, whichever is less. It is below
    the threshold PRACTICAL_SHARE in each direction if the claim holds; it is of the direction that
    is least in favour of the claim. The interval is of this head alone, although it is chosen.

    Args:
      claim: One of the two claims.
      tests: The attention along the links compared with places, by direction. Links without such
        places decide nothing.
    """
    p_holds, p_fails, intervals, names, counts, heads = [], [], [], [], [], 0
    pieces, numbers = [], {}
    for index, (direction, test) in enumerate(tests.items(), start=1):
        top = test.top
        shown = {'direction': direction, 'head': head_at(top), 'score': test.table.mean[top]}
        found = {
            kind: test.nulls[kind].excess
            for kind in (MOVED, POSITIONS)
            if kind in test.nulls and not np.isnan(test.nulls[kind].mean[top])
        }
        shown |= {kind: at_places(test, kind, top) for kind in (MOVED, POSITIONS)}
        piece, shown = numbered(
            f'From {{direction}}, {{head}} attends most: {{score:.3f}} along the links, '
            f'{{{MOVED}}} and {{{POSITIONS}}}.',
            index,
            shown,
        )
        pieces.append(piece)
        numbers |= shown
        heads += test.table.mean.size
        counts.append(test.table.count)
        names.append(f'{head_at(top)} from {direction}')
        # One kind of places that is as good is enough for the claim; the data choose which.
        parts = [_beyond(table) for table in found.values()]
        p_holds.append(len(parts) * np.min([part.below[top] for part in parts] or np.nan))
        p_fails.append(np.max([part.above[top] for part in parts] or np.nan))
        nearest = min(found.values(), key=lambda table, top=top: table.mean[top], default=None)
        intervals.append((np.nan,) * 3 if nearest is None else _around(nearest, top))
    count = min(counts)
    # The heads were chosen among all on the same examples, so their being above is corrected.
    p_values = capped(np.max(p_holds)), capped(np.fmin.reduce(p_fails) * heads)
    words = ' '.join(pieces)
    decisive = _least_in_favour(intervals)
    interval = intervals[decisive]
    if np.isnan(interval[0]):
        words += ' This is measured in {sample:example|examples}.'
    else:
        words += (
            f' The difference that is least in favour of the claim is {{estimate:z.3f}}'
            f'{between(interval)}, where less than {{threshold:g}} is claimed, in '
            '{sample:example|examples}.'
        )
    return verdict_of(
        claim,
        p_values,
        words,
        interval,
        what=f'attention of {names[decisive]} along the links minus that elsewhere',
        unit='share of attention',
        threshold=PRACTICAL_SHARE,
        population=THIS_MODEL,
        sample=count,
        numbers=numbers,
    )


def _beyond(excess: HeadTable) -> Contrasts:
    """Return what each head [L, N] has more than PRACTICAL_SHARE above its places."""
    return contrasts([excess.mean - PRACTICAL_SHARE], [error_of(excess)], excess.count)


def _around(excess: HeadTable, head: tuple) -> tuple[float, float, float]:
    """Return the excess of a head with its 95 % interval."""
    found = contrasts([excess.mean], [error_of(excess)], excess.count)
    return found.interval(head)


def _least_in_favour(intervals: Sequence[tuple[float, float, float]]) -> int:
    """Return the index of the greatest excess over the threshold, in widths of its interval."""
    estimate, low, high = np.transpose(intervals)
    for values in ((estimate - PRACTICAL_SHARE) / (high - low), estimate):
        if not np.isnan(values).all():
            return int(np.nanargmax(values))
    return 0
