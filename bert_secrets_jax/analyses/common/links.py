"""The shared parts of results about links: their tables, sentences, texts and figures."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.common import marks
from bert_secrets_jax.analyses.common.tables import (
    OF_SHARES,
    Tables,
    grids_frame,
    heads_frame,
    interval_of,
    table,
    tops,
)
from bert_secrets_jax.analyses.verdicts.claims import FRAMES
from bert_secrets_jax.measure.catalogue import notebook
from bert_secrets_jax.measure.links import (
    CLASSES,
    ELSEWHERE,
    KINDS,
    MOVED,
    POSITIONS,
    LinkTest,
    offset_histogram,
)
from bert_secrets_jax.measure.places import PLACES
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import (
    Finding,
    HeadMarks,
    Result,
    drawn,
    extreme,
    framed,
    how_many,
    told,
)

UNIT = 'share of attention'
# The reasons why a head may do no better than at such places.
_REASONS = {ELSEWHERE: 'chance', MOVED: 'distance', POSITIONS: 'position', CLASSES: 'word class'}
_CIRCLES = 'Circles: more than between unlinked words of like distance, position and class.'
# So many are named in a sentence.
_NAMED = 3
# The attribute of a test in each column.
_COLUMNS = {
    **{name: name for name in ('score', 'mean', 'percentile_99', 't', 'p')},
    'p_familywise': 'familywise',
    'detectable_excess': 'detectable',
}
Tests = Mapping[str, LinkTest]


class Linked(Result):
    """The attention along links between words.

    Attributes:
      SOURCE: The publication and section that the question comes from.
      NAMES: The names of the figure, of the frame of the best heads, and of that of both readings.
      FIGURE: The figure of the paper that shows the same, as a caption has it; empty for none.
      tests: The attention along the links compared with other places, by direction ('verb to
        subject'). Directions along which no text has a link are left out.
      tables: The tables of the same attention by direction, in the readings of the paper and, where
        there is one, of the notebook ('verb to subject (notebook)').
    """

    SOURCE: ClassVar[str]
    NAMES: ClassVar[tuple[str, str, str]]
    FIGURE: ClassVar[str] = ''

    tests: Tests
    tables: Tables

    def figures(self):
        return drawn(self, **{self.NAMES[0]: _draw_grids} if self.tests else {})

    def findings(self):
        return findings_of(self.tests, self.SOURCE)

    def head_marks(self):
        return mark_links(self.tests)


def kinds_of(test: LinkTest) -> list[str]:
    """Return the kinds of random links that a test has, in the order of `KINDS`."""
    return [kind for kind in KINDS if kind in test.nulls]


def beyond(kinds: Sequence[str]) -> str:
    """Return what heads are beyond that are above these kinds of places, as words."""
    position = 'position' if MOVED in kinds or POSITIONS in kinds else ''
    return ' and '.join(filter(None, [position, 'word class' if CLASSES in kinds else ''])) or (
        'chance'
    )


def links_frames(found: Linked):
    """Return the frames of a result by name, with a row per direction, place or head.

    The best head of each direction is compared with an ideal one and, where there is one, that of
    the notebook.
    """
    (_, best, readings), every = found.NAMES, list(found.tests.values())
    theirs = [found.tables.get(notebook(title)) for title in found.tests]
    return {
        best: table(
            'The best heads compared with one that always looks at one offset.',
            link=list(found.tests),
            examples=[test.table.count for test in every],
            top_head=tops(test.table for test in every),
            ideal_head_at_one_offset=[
                '{1:.3f} (offset {0:+d})'.format(*test.ideal) for test in every
            ],
            p_familywise=[test.familywise[test.top] for test in every],
            heads_above_all_places=[int(test.real.sum()) for test in every],
            beyond=[beyond(kinds_of(test)) for test in every],
            notebook_top_head=['–' if each is None else tops([each])[0] for each in theirs],
        ),
        'nulls': nulls_frame(found.tests),
        'heads': tests_frame(found.tests),
        readings: heads_frame(found.tables, UNIT, 'Both readings of every head.'),
    }


def tests_frame(tests: Tests):
    """Return the scores and tests of all heads, with a row per direction, layer and head.

    Layers and heads count from 1. All tests have the same kinds of places.
    """
    every = list(tests.values())
    kinds = kinds_of(every[0]) if every else []
    p_values = [f'{name}_{kind}' for kind in kinds for name in ('p', 'p_familywise')]
    grids = {
        'examples': [np.full(test.real.shape, test.table.count) for test in every],
        'attention': [test.table.mean for test in every],
    }
    for kind in kinds:
        for column, name in _COLUMNS.items():
            if (kind, name) != (CLASSES, 'percentile_99'):  # there are no draws
                grids[f'{column}_{kind}'] = [getattr(test.nulls[kind], name) for test in every]
        nulls = [test.nulls[kind] for test in every]
        preferences = [each.preference for each in nulls if each.preference is not None]
        if preferences:  # all have one, or none
            grids['preference_logits'] = [each.mean for each in preferences]
            grids['preference_standard_error'] = [each.standard_error for each in preferences]
    grids['p_familywise_all'] = [test.familywise for test in every]
    grids['above_all'] = [test.real.astype(int) for test in every]
    return grids_frame(
        grids,
        'Attention along the links (score), and at the places that they are compared with (mean).',
        by={'link': list(tests)},
        sure={'attention': ('examples', *p_values, 'p_familywise_all'), 'above_all': ('examples',)},
        shown=('attention', 'above_all'),
    )


def nulls_frame(tests: Tests):
    """Return what links were compared with: a row per direction and kind of places."""
    rows = []
    for title, test in tests.items():
        total, top = int(offset_histogram(test.links)[1].sum()), test.top
        for kind in kinds_of(test):
            null = test.nulls[kind]
            rows.append(
                (
                    title, PLACES[kind], null.links, total, null.possible, null.score[top],
                    null.mean[top], null.familywise[top], int(null.above.sum()),
                    float(np.median(null.detectable)),
                )
            )  # fmt: skip
    return framed(
        (
            'link', 'places', 'links_compared', 'links', 'places_of_a_link_median',
            'top_head_along_the_links', 'top_head_at_the_places', 'p_familywise', 'heads_above',
            'detectable_excess_median',
        ),
        rows,
        'Places that links were compared with, without those that have none. Half of the heads '
        'would be found at the detectable excess, in four of five samples.',
    )  # fmt: skip


def findings_of(tests: Tests, source: str) -> list[Finding]:
    """Return the head with the most attention along the links, and how many heads follow them."""
    if not tests:
        said = 'No link was found in these texts.'
        return [told('links', estimate=0, unit='links', source=source, template=said)]
    found = []
    for title, test in tests.items():
        of = {'title': title, 'source': source, 'sample': int(test.table.count)}
        top, follow = _top(test, of), _following(test, of)
        # Another head may follow the link although the one with the most attention does not.
        found += [follow, top] if follow.estimate else [top, follow]
    return found


def _top(test: LinkTest, of: Mapping[str, Any]) -> Finding:
    head, nulls = test.top, {_REASONS[kind]: test.nulls[kind] for kind in kinds_of(test)}
    numbers, template = {}, '{where} looks from {title} ({estimate:.2f})'
    known = [why for why, null in nulls.items() if null.links and not np.isnan(null.mean[head])]
    if known:
        why = max(known, key=lambda why: nulls[why].familywise[head])
        template += f', {{more}} than {why} explains ({{mean:.2f}})'
        more = 'more' if nulls[why].above[head] else 'not clearly more'
        numbers = {'more': more, 'mean': float(nulls[why].mean[head])}
    return extreme(
        f'{of["title"]}: top head',
        head,
        interval_of(test.table, head, OF_SHARES),
        unit=UNIT,
        p=float(test.familywise[head]),
        tests=test.real.size,
        template=f'{template}.',
        **numbers,
        **of,
    )


def _following(test: LinkTest, of: Mapping[str, Any]) -> Finding:
    compared, (ending, about) = beyond(kinds_of(test)), _named(test)
    return how_many(
        f'{of["title"]}: heads beyond {compared}',
        test.real,
        template='{estimate:head|heads} {estimate:|links|link} {title} more than {compared} '
        f'{{explain}}{ending}.',
        compared=compared,
        explain='explain' if ' and ' in compared else 'explains',
        **about,
        **of,
    )


def _named(test: LinkTest) -> tuple[str, dict[str, Any]]:
    """Return which heads were found, or what would have been, as a sentence's end, and numbers."""
    if test.real.any():
        heads = sorted(np.argwhere(test.real).tolist(), key=lambda head: -test.table.mean[*head])
        first = (head_name(*head) for head in heads[:_NAMED])
        return '. First by attention: {first}', {'first': ', '.join(first)}
    if CLASSES in test.nulls and not test.nulls[CLASSES].links:
        return ', which decide where these links stand', {}
    detectable = float(np.median(test.detectable))
    if np.isnan(detectable):
        return ', and these texts cannot tell', {}
    said = '; a typical head would be found with {detectable:.3f} more attention'
    return said, {'detectable': detectable}


def mark_links(tests: Tests) -> list[HeadMarks]:
    """Mark heads that attend along links clearly more than at places of all kinds.

    Significantly is not enough: the difference must be one that the claims on links ask for.
    """
    if not tests:
        return []
    found = []
    for title, test in tests.items():
        excess = np.min([null.excess.mean for null in test.nulls.values()], axis=0)
        for head in map(tuple, np.argwhere(test.real).tolist()):
            score = float(test.table.mean[head])
            said = (
                f'Attends {score:.2f} from {title}, more than {beyond(kinds_of(test))} explains '
                f'(corrected p = {test.familywise[head]:.2g}).'
            )
            found.append((head, said, title, score * (excess[head] >= FRAMES.threshold)))
    bound = f'at least {FRAMES.threshold:.2f} more of its attention to a link than elsewhere'
    marked = marks.strongest(next(iter(tests.values())).real.shape, found)
    return [HeadMarks('follows a link', *marked, rank=marks.LINK, bound=bound)]


def _draw_grids(result: Linked):
    """Draw the attention of all heads along the links, with circles on those above random links."""
    return plots.head_grids(
        {name: test.table.mean for name, test in result.tests.items()},
        label='attention along the link',
        marked={name: test.real for name, test in result.tests.items()},
    ).captioned(
        f'The attention along each link{result.FIGURE}. {_CIRCLES}',
        plots.Source('heads', 'attention'),
    )
