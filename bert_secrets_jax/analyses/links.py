"""The shared parts of results about links: their tables, sentences, texts and figures."""

from collections.abc import Mapping

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.analyses.tables import column_of, half_width, notes_of, with_error
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.links import (
    CLASSES,
    ELSEWHERE,
    KINDS,
    MOVED,
    POSITIONS,
    LinkTest,
    offset_histogram,
)
from bert_secrets_jax.names import head_name
from bert_secrets_jax.runs.result import Finding, framed

UNIT = 'share of attention'
PLACES = {
    ELSEWHERE: 'at random places',
    MOVED: 'at the same distances elsewhere',
    POSITIONS: 'at the same positions of other inputs',
    CLASSES: 'at the same parts of speech and distances',
}
_COLUMNS = ('score', 'mean', 'percentile_99', 't', 'p', 'familywise')
Tests = Mapping[str, LinkTest]


def kinds_of(test: LinkTest) -> list[str]:
    """Return the kinds of random links that a test has, in the order of `KINDS`."""
    return [kind for kind in KINDS if kind in test.nulls]


def beyond(test: LinkTest) -> str:
    """Return what heads are beyond that are above all kinds of places of a test, as words."""
    kinds = kinds_of(test)
    position = 'position' if MOVED in kinds or POSITIONS in kinds else ''
    return ' and '.join(filter(None, [position, 'word class' if CLASSES in kinds else ''])) or (
        'chance'
    )


def tests_frame(tests: Tests):
    """Return the scores and tests of all heads, with a row per direction, layer and head.

    Layers and heads count from 1.

    Args:
      tests: The tests, by direction. All have the same kinds of places.
    """
    kinds = kinds_of(next(iter(tests.values()))) if tests else []
    columns = [f'{column_of(column)}_{kind}' for kind in kinds for column in _COLUMNS]
    p_values = [f'{name}_{kind}' for kind in kinds for name in ('p', 'p_familywise')]
    sure = ('examples', *p_values, 'p_familywise_all')
    rows = [
        (
            title, head[0] + 1, head[1] + 1, test.table.count, test.table.mean[head],
            *(getattr(test.nulls[kind], column)[head] for kind in kinds for column in _COLUMNS),
            test.familywise[head], int(test.real[head]),
        )
        for title, test in tests.items()
        for head in np.ndindex(test.table.mean.shape)
    ]  # fmt: skip
    return framed(
        (
            'link', 'layer', 'head', 'examples', 'attention', *columns, 'p_familywise_all',
            'above_all',
        ),
        rows,
        'Attention along the links and, for each kind of places, along the links that have such '
        'places (score), at these places (mean, and 99th percentile of the draws), the '
        'difference in standard errors (t), its p-value, and the p-value corrected for all heads '
        '(p_familywise); at the end the greatest corrected p-value, and whether a head is above '
        'all kinds.',
        colours=Colours('heads', {'attention': sure, 'above_all': sure[:1]}, by=('link',)),
    )  # fmt: skip


def nulls_frame(tests: Tests):
    """Return what links were compared with: a row per direction and kind of places.

    Args:
      tests: The tests, by direction.
    """
    rows = []
    for title, test in tests.items():
        total, top = _count_links(test), test.top
        for kind in kinds_of(test):
            null = test.nulls[kind]
            rows.append(
                (
                    title, PLACES[kind], null.links, total, null.possible, null.score[top],
                    null.mean[top], null.familywise[top], int(null.above.sum()),
                )
            )  # fmt: skip
    return framed(
        (
            'link', 'places', 'links_compared', 'links', 'places_of_a_link_median',
            'top_head_along_the_links', 'top_head_at_the_places', 'p_familywise', 'heads_above',
        ),
        rows,
        'What links were compared with. A link without such a place is compared with nothing, so '
        'that each kind has links of its own; of the last kind, the closest two wordpieces of a '
        'link are compared.',
    )  # fmt: skip


def at_places(test: LinkTest, kind: str, head: tuple[int | np.integer, int | np.integer]) -> str:
    """Return what a head attends at places of a kind as text, 'at random places (0.031)'.

    Where not all links have such places, it also has what the head attends along those that do.

    Args:
      test: The test.
      kind: The kind of places, as in `measure.links.KINDS`.
      head: The layer and the head, from 0.
    """
    null = test.nulls.get(kind)
    if null is None or not null.links or np.isnan(null.mean[head]):
        return f'{PLACES[kind]} (there are none)'
    total, text = _count_links(test), f'{null.mean[head]:.3f}'
    if null.links < total:
        # Along fewer links, the head may have another score.
        text += f', where the {null.links} of {total} links that have such places get '
        text += f'{null.score[head]:.3f}'
    return f'{PLACES[kind]} ({text})'


def _count_links(test: LinkTest) -> int:
    return int(offset_histogram(test.links)[1].sum())


def finding_of(title: str, test: LinkTest, source: str) -> Finding:
    """Return the finding on the head with the most attention along the links.

    Args:
      title: The direction of the links, such as 'verb to subject'.
      test: The attention along the links, compared with random links.
      source: The publication and section that the question comes from.
    """
    top, kinds = test.top, kinds_of(test)
    half = half_width(test.table, top)
    compared = []
    for kind in kinds:
        null = test.nulls[kind]
        if not null.links or np.isnan(null.mean[top]):
            compared.append(f'not comparable {PLACES[kind]}, for there are too few')
            continue
        words = 'more than' if null.above[top] else 'not significantly more than'
        compared.append(f'{words} {at_places(test, kind, top)}')
    return Finding(
        name=f'{title}: top head',
        estimate=float(test.table.mean[top]),
        low=float(test.table.mean[top]) - half,
        high=float(test.table.mean[top]) + half,
        unit=UNIT,
        sample=int(test.table.count),
        source=source,
        p=float(test.familywise[top]),
        template=(
            'From {title}: {head} attends most along the link ({estimate:.3f} in '
            '{sample:example|examples}): {compared}; {real} of {heads} heads '
            '{real:|is|are} beyond {beyond}, above each of these after correction for all heads.'
        ),
        numbers={
            'title': title,
            'head': head_name(*top),
            'compared': ', '.join(compared),
            'real': int(test.real.sum()),
            'heads': test.real.size,
            'beyond': beyond(test),
        },
    )


def notes_of_tests(tests: Tests) -> dict[str, np.ndarray]:
    """Return a text about each head for the explorer: its score beside those on random links.

    Args:
      tests: The tests, by direction.

    Returns:
      The texts [L, N], by their title.
    """
    notes = {}
    for title, test in tests.items():
        texts = notes_of([test.table])
        for kind in kinds_of(test):
            random = np.char.mod(f', {PLACES[kind]} %.4f', test.nulls[kind].mean)
            texts = np.char.add(texts, random)
        notes[f'attention from {title}, model as it is'] = texts
    return notes


def ideal_of(test: LinkTest) -> str:
    """Return the score of an ideal head as text, '0.345 (offset -1)'.

    The ideal head puts all its attention at the single offset that is best.
    """
    offset, score = test.ideal
    return f'{score:.3f} (offset {offset:+d})'


def top_of(test: LinkTest) -> str:
    """Return the name, score and standard error of the head with the most attention, as text."""
    return with_error(test.table, test.top)


def draw_grids(tests: Tests, caption: str):
    """Draw the attention of all heads along the links, with circles on those above random links."""
    figure = plots.head_grids(
        {name: test.table.mean for name, test in tests.items()},
        label='attention along the link',
        marked={name: test.real for name, test in tests.items()},
    )
    figure.source = plots.Source('heads', 'attention')
    figure.caption = caption
    return figure


def draw_distances(tests: Tests):
    """Draw the histograms of the distances between linked tokens."""
    figure = plots.distance_histograms(
        {name: offset_histogram(test.links) for name, test in tests.items()}
    )
    figure.caption = 'How far apart linked tokens are: key less query position, closest wordpieces.'
    return figure
