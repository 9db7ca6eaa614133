"""Attention along links, and what chance and position explain of it (`relations`, `frames`)."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping

import numpy as np

import bert_secrets_jax as bs
from bert_secrets_jax.data.encoding import Encoded
from bert_secrets_jax.files import read_arrays, write_arrays
from bert_secrets_jax.measure.links import NullTest, null_summary, places, random_links, turned
from bert_secrets_jax.report import figures, tables

# What links are held against: the same ones elsewhere in the input, as far apart as they were
# (what position explains), or at random places that are not adjacent (chance).
MOVED, ELSEWHERE = 'moved', 'elsewhere'
PLACES = {MOVED: 'at the same distances elsewhere', ELSEWHERE: 'at random places'}


@dataclasses.dataclass(frozen=True)
class LinkTest:
    """One way along the links of a relation.

    Attributes:
      table: attention along the links.
      links: [E, P, 3], the query first.
      nulls: what random links give, by their kind.
      excess: by the same kinds, what the links get beyond random ones. Of moved ones some stay
        where they are: it is enlarged by the share of these, and NaN where all stay.
      places: median number of places that a link could be moved to, its own included.
    """

    table: bs.HeadTable
    links: np.ndarray
    nulls: Mapping[str, NullTest]
    excess: Mapping[str, bs.HeadTable]
    places: float

    @property
    def real(self) -> np.ndarray:
        """[L, N] heads above every kind of random links, at 5 % corrected for all heads."""
        return np.all([null.familywise <= 0.05 for null in self.nulls.values()], axis=0)

    @property
    def top(self) -> tuple[int, int]:
        """Layer and head, from 0, with the most attention along the links."""
        layer, head = np.unravel_index(self.table.mean.argmax(), self.table.mean.shape)
        return int(layer), int(head)

    @property
    def ideal(self) -> str:
        """What a head would get that puts all its attention at the best one offset."""
        offset, score = next(iter(bs.links.offset_baseline(self.links).items()))
        return f'{score:.3f} (offset {offset:+d})'


def directions(relations: Iterable[str]) -> dict[str, tuple[str, bool]]:
    """Return, for relations named 'source-target', the two ways of attention along their links.

    Returns:
      Title ('source to target', 'target to source') to the relation and whether it is reversed.

    Raises:
      ValueError: when two relations have the same ends.
    """
    titles = {}
    for relation in relations:
        source, _, target = relation.partition('-')
        source, target = source or 'source', target or 'target'
        for title, reverse in ((f'{source} to {target}', False), (f'{target} to {source}', True)):
            if title in titles:
                raise ValueError(
                    f'The relations {titles[title][0]!r} and {relation!r} both say {title!r}: '
                    'rename one of them.'
                )
            titles[title] = (relation, reverse)
    return titles


def with_random(
    encoded: Encoded, relations: Iterable[str], kinds: Iterable[str], *, draws: int, seed: int
) -> tuple[Encoded, dict[tuple[str], bs.statistics.Statistic]]:
    """Add random links to the marks, and return the statistics of attention along them."""
    marks, statistics = dict(encoded.marks), {}
    for title, (relation, reverse) in directions(relations).items():
        for kind in kinds:
            random = f'{relation}, {kind}'
            if random not in marks:
                marks[random] = random_links(
                    encoded.marks[relation],
                    encoded.text,
                    draws=draws,
                    seed=seed,
                    same_distance=kind == MOVED,
                )
            statistics[_null(title, kind),] = bs.statistics.attention_of_random_links(
                random, links=relation, reverse=reverse
            )
    return dataclasses.replace(encoded, marks=marks), statistics


def write(
    path: pathlib.Path,
    encoded: Encoded,
    relations: Iterable[str],
    measured: Mapping[tuple[str, ...], bs.HeadTable],
) -> None:
    """Keep links and scores along random ones, of which `read` makes tests."""
    relations = list(relations)
    arrays = {'relations': np.array(relations)}
    for number, relation in enumerate(relations):
        links = encoded.marks[relation]
        arrays[f'links/{number}'] = links
        arrays[f'places/{number}'] = places(links, encoded.text)
    for (name, *_), table in measured.items():
        if name.startswith('null/'):
            arrays[name] = table.mean[..., :-1]
            arrays[_excess(name)] = np.stack([table.mean[..., -1], table.variance[..., -1]])
    write_arrays(path, arrays)


def read(path: pathlib.Path, measured: Mapping[str, bs.HeadTable]) -> dict[str, LinkTest]:
    """Return the tests by title, of those relations that any example has.

    Raises:
      ValueError: for a file of an earlier version.
    """
    arrays = read_arrays(path)
    if any(name.startswith('null/') and _excess(name) not in arrays for name in arrays):
        raise ValueError(f'{path} is from another version: delete it to measure anew.')
    relations = arrays['relations'].tolist()
    tests = {}
    for title, (relation, reverse) in directions(relations).items():
        table, number = measured[title], relations.index(relation)
        links = arrays[f'links/{number}']
        if not table.count:
            continue
        kinds = [kind for kind in (MOVED, ELSEWHERE) if _null(title, kind) in arrays]
        counts = arrays[f'places/{number}']
        stay = {MOVED: (1 / counts).mean(), ELSEWHERE: 0.0}
        excess = {}
        for kind in kinds:
            mean, variance = arrays[_excess(_null(title, kind))]
            # Where all stay, nothing is left to enlarge.
            others = 1 - stay[kind] or np.nan
            excess[kind] = bs.HeadTable(mean / others, variance / others**2, table.count)
        tests[title] = LinkTest(
            table=table,
            links=turned(links) if reverse else links,
            nulls={kind: null_summary(table.mean, arrays[_null(title, kind)]) for kind in kinds},
            excess=excess,
            places=float(np.median(counts)),
        )
    return tests


def write_heads(path: pathlib.Path, tests: Mapping[str, LinkTest]) -> None:
    """Write scores and tests of all heads, a row per title, layer and head (both from 1)."""
    kinds = list(next(iter(tests.values())).nulls)
    columns = [
        f'{column}_{kind}'
        for kind in kinds
        for column in ('mean', 'percentile_99', 'z', 'p', 'familywise')
    ]
    tables.write_csv(
        path,
        ('link', 'layer', 'head', 'examples', 'score', *columns),
        (
            (title, head[0] + 1, head[1] + 1, test.table.count, test.table.mean[head],
             *(getattr(test.nulls[kind], column)[head]
               for kind in kinds
               for column in ('mean', 'percentile_99', 'z', 'p', 'familywise')))
            for title, test in tests.items()
            for head in np.ndindex(test.table.mean.shape)
        ),
    )  # fmt: skip


def compared(test: LinkTest, kind: str) -> str:
    """Say how the top head does beside random links of a kind."""
    null, top = test.nulls[kind], test.top
    relation = 'more than' if null.familywise[top] <= 0.05 else 'not significantly more than'
    return f'{relation} {PLACES[kind]} ({null.mean[top]:.3f})'


def top_name(test: LinkTest) -> str:
    """Return the name of the top head."""
    return figures.head_name(*test.top)


def _null(title: str, kind: str) -> str:
    return f'null/{kind}/{title}'


def _excess(null: str) -> str:
    return f'excess of {null}'
