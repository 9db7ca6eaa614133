"""Tables of heads in results: the descriptions of their statistics, and means over runs.

Shapes: L layers, N heads.
"""

import dataclasses
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float

from bert_secrets_jax.measure.catalogue import SHARE, Described, limits_of
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.measure.tables import COLOURS, HeadTable, to_frame, top_heads
from bert_secrets_jax.runs.result import Finding, Interval, Result, framed, measured
from bert_secrets_jax.stats.corrections import holm
from bert_secrets_jax.stats.seeds import means_variance
from bert_secrets_jax.stats.student import LEVEL, interval, p_zero, within

if TYPE_CHECKING:
    import pandas

Tables = Mapping[str, HeadTable]
# A number of each head, and whether something is so of each.
Grid = Float[np.ndarray, 'L N']
Which = Bool[np.ndarray, 'L N']
# The limits of shares.
OF_SHARES = 0.0, 1.0
# The ends of the names of columns of a number and of its interval.
_ENDS = ('', '_low', '_high')


@dataclasses.dataclass(frozen=True)
class Description:
    """The fields of `measure.catalogue.Described` for readers: a statistic without its function."""

    name: str
    title: str
    unit: str
    least_first: bool
    source: str
    reading: str


def describe(statistics: Iterable[Described]) -> tuple[Description, ...]:
    """Return the descriptions of statistics, without the functions."""
    read = operator.attrgetter(*(field.name for field in dataclasses.fields(Description)))
    return tuple(Description(*read(each)) for each in statistics)


def over_seeds(runs: Sequence[Tables], names: Iterable[str]) -> dict[str, HeadTable]:
    """Return the mean of several runs' tables of some statistics.

    Their variance is over examples (the mean of the runs' variances), so their standard error does
    not tell how far the runs differ.
    """
    return {
        name: HeadTable(
            mean=np.mean([run[name].mean for run in runs], axis=0),
            variance=np.mean([run[name].variance for run in runs], axis=0),
            count=runs[0][name].count,
        )
        for name in names
    }


class BeforeAndAfter(Result):
    """Statistics of a model as it is, and fine-tuned.

    Attributes:
      unit, source: The unit of the statistics, and where the question comes from.
      before: The tables of the model before fine-tuning, by the name of the statistic.
      runs: The tables of each fine-tuned model by its seed: the same statistics, and their changes
        example by example ('change of noun'). Empty if no fine-tuned model was measured.
    """

    unit: ClassVar[str] = SHARE
    source: ClassVar[str]

    before: Tables
    runs: Mapping[str, Tables]

    @property
    def by_model(self) -> dict[str, list[Tables]]:
        """The tables of the model 'pre-trained', and of each model 'fine-tuned' if there is one."""
        models = {'pre-trained': [self.before], 'fine-tuned': list(self.runs.values())}
        return {name: runs for name, runs in models.items() if runs}

    @property
    def models(self) -> list[Tables]:
        """The tables of the fine-tuned models; of the model before if there are none."""
        return list(self.runs.values()) or [self.before]

    @property
    def after(self) -> Tables:
        """The tables of the fine-tuned models, mean over seeds (`over_seeds`); none without any."""
        return over_seeds(list(self.runs.values()), self.before) if self.runs else {}

    def mean(self, name: str, statistic: str, heads: Any = ..., **fields: Any) -> Finding:
        """Return the finding of `mean_over_runs`, of the fine-tuned models if there are any."""
        of = {'unit': self.unit, 'source': self.source} | fields
        return mean_finding(name, self.models, [statistic], heads, **of)


@dataclasses.dataclass(frozen=True)
class OverRuns:
    """The mean of a number over one model or several, with its 95 % interval.

    The interval is over seeds and examples; over examples alone if there is a single model. It is
    NaN for a single model and a single example. Its ends stay within the limits of the number;
    `half` is half its length without these.
    """

    mean: float
    low: float
    high: float
    half: float
    models: int

    @property
    def interval(self) -> Interval:
        """The mean and the ends of its interval."""
        return self.mean, self.low, self.high

    @property
    def sample_of(self) -> str:
        """The sample of the interval, as `Finding.sample_of`: examples, and models if several."""
        return 'examples' if self.models < 2 else f'examples, in {self.models} models'


def mean_over_runs(
    runs: Sequence[Tables],
    names: Sequence[str],
    where: Any = ...,
    *,
    limits: tuple[float, float] | None = None,
) -> OverRuns:
    """Return the mean of statistics over heads and over models fine-tuned by one recipe.

    Models are a sample, and so are examples (`stats.seeds.means_variance`). How the errors of
    heads depend on each other is unknown; at worst they add up.

    It is of the sum of the named statistics, which are parts of one whole, and over the heads at
    the index `where` in [L, N]. Without `limits`, those of the catalogue hold.
    """
    count, half = max(float(runs[0][name].count) for name in names), np.nan
    means, errors = (
        np.array([[sum(np.mean(each(run[name])[where]) for name in names)] for run in runs], float)
        for each in map(operator.attrgetter, ('mean', 'standard_error'))
    )  # [models, 1]
    if count > 1:
        (half,) = means_variance(means, errors, int(count)).half_width
    ends = within(float(means.mean()), float(half), limits or limits_of(names[0]))
    return OverRuns(*ends, float(half), len(runs))


def mean_finding(
    name: str,
    runs: Sequence[Tables],
    statistics: Sequence[str],
    heads: Any = ...,
    limits: Any = None,
    **fields: Any,
) -> Finding:
    """Return the finding of `mean_over_runs`, with its interval and its sample."""
    mean = mean_over_runs(runs, statistics, heads, limits=limits)
    sample = {'sample': int(runs[0][statistics[0]].count), 'sample_of': mean.sample_of}
    return measured(name, mean.interval, **sample, **fields)


def top_head(values: np.ndarray) -> tuple[int, int]:
    """Return the layer and the head, from 0, with the greatest of the values [L, N]."""
    if np.isnan(values).all():
        raise FloatingPointError(
            'Every head has NaN: the model gives no numbers for these texts. Are its weights '
            'broken?'
        )
    layer, head = np.unravel_index(np.nanargmax(values), values.shape)
    return int(layer), int(head)


def interval_of(table: HeadTable, head: tuple[int, int], limits: tuple[float, float]) -> Interval:
    """Return a head's mean and its 95 % interval within limits; NaN below two examples."""
    mean, error = float(table.mean[head]), float(table.standard_error[head])
    return interval(mean, error, table.count - 1, limits)


def means_of(tables: Sequence[HeadTable], when: str) -> dict[str, list]:
    """Return columns of the mean of each table over all heads, and of the head with most."""
    return {when: [each.mean.mean() for each in tables], f'{when}_top_head': tops(tables)}


def tops(tables: Iterable[HeadTable]) -> list[str]:
    """Return the head with the greatest mean of each table: 'L3-H8  0.512 ± 0.011'."""
    return [head for each in tables for head in top_heads(each, 1)]


def significant_changes(runs: Sequence[HeadTable]) -> tuple[float | int, ...]:
    """Count the heads that rise from one model to another in each run, and those that fall.

    By a t-test, after correction for all heads (Holm); NaN below two examples.
    """
    if runs[0].count < 2:
        return np.nan, np.nan
    moved = []
    for each in runs:
        mean, error = (grid.astype(np.float64).ravel() for grid in (each.mean, each.standard_error))
        t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 0)
        moved.append(np.sign(mean) * (holm(p_zero(t, each.count - 1)) <= LEVEL))
    up, down = ((sign * np.array(moved) > 0).all(axis=0) for sign in (1, -1))
    return int(up.sum()), int(down.sum())


def heads_frame(tables: Tables, units: Mapping[str, str] | str, caption: str = ''):
    """Return a tidy frame with a row per statistic, layer and head. Layers and heads count from 1.

    Tables and units go by the names of the statistics; a single unit is that of all.
    """
    frame = seeds_frame({'0': tables}, units, caption).drop(columns='seed')
    frame.attrs['colours'] = COLOURS
    return frame


def seeds_frame(runs: Mapping[str, Tables], units: Mapping[str, str] | str, caption: str = ''):
    """Return a frame of several runs, by seed, as `heads_frame` but with `seed` as first column."""
    import pandas

    frame = pandas.concat([to_frame(each).assign(seed=int(seed)) for seed, each in runs.items()])
    frame.insert(0, 'seed', frame.pop('seed'))
    of = dict.fromkeys(frame['statistic'], units) if isinstance(units, str) else units
    frame['unit'] = [of.get(name, '') for name in frame['statistic']]
    colours = dataclasses.replace(COLOURS, by=('seed', *COLOURS.by))
    rows = list(frame.itertuples(index=False, name=None))
    return framed(list(frame), rows, caption, colours=colours)


def heads_frames(found: BeforeAndAfter, names: Iterable[str] = ()) -> 'dict[str, pandas.DataFrame]':
    """Return the frames `heads` of a model as it is, and `heads_finetuned`, if there is one.

    They have the statistics of these names; without names, all.
    """

    def chosen(tables: Tables) -> Tables:
        return {name: tables[name] for name in names or tables if name in tables}

    caption = 'Every head of the model as it is.'
    frames = {'heads': heads_frame(chosen(found.before), found.unit, caption)}
    if found.runs:
        caption = 'Every head of the fine-tuned models, and what changed.'
        runs = {seed: chosen(tables) for seed, tables in found.runs.items()}
        frames['heads_finetuned'] = seeds_frame(runs, found.unit, caption)
    return frames


def greatest(
    names: Sequence[str], grids: Sequence[np.ndarray] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the name of the greatest of some grids at each head [L, N], and its number there."""
    return np.array(names)[np.argmax(grids, axis=0)], np.max(grids, axis=0)


def worded(template: str, *grids: Any) -> np.ndarray:
    """Return a text for each head [L, N]: a template with what each of the grids has there.

    What is no grid is the same for all heads.
    """
    return np.vectorize(template.format, otypes=[str])(*grids)


def grids_frame(
    grids: Mapping[str, Sequence | np.ndarray],
    caption: str,
    *,
    by: Mapping[str, Sequence | np.ndarray] = MappingProxyType({}),
    sure: Mapping[str, Sequence[str]] = MappingProxyType({}),
    shown: Sequence[str] = (),
    red: Mapping[tuple[str, str], float] = MappingProxyType({}),
) -> 'pandas.DataFrame':
    """Return a frame with a row for each head, or layer. Layers and heads count from 1.

    Args:
      grids: Numbers or texts of heads [L, N], or of layers [L], by the names of their columns. With
        `by` there are several sets of heads, and their axis is the first.
      by: The columns that tell the sets apart, with a value for each set. They stand first.
      sure: For some columns, those that tell how sure they are, such as their interval.
      shown: The columns by which a page may colour; none means all that are not in `sure`.
      red: As in `Colours`.
    """
    shape = np.shape(next(iter(grids.values())))[bool(by) :]
    # Without any set, there are no rows.
    counts = [np.arange(1, count + 1) for count in shape or (0, 0)]
    sets = {name: np.reshape(each, [-1, *(1 for _ in counts)]) for name, each in by.items()}
    heads = dict(zip(('layer', 'head'), np.ix_(*counts), strict=False))
    beside = {name for names in sure.values() for name in names}
    coloured = shown or [name for name in grids if name not in beside]
    frame = table(caption, **sets, **heads, **grids)
    frame.attrs['colours'] = Colours(
        'layers' if len(shape) == 1 else 'heads',
        {name: sure.get(name, ()) for name in coloured},
        tuple(by),
        dict(red),
    )
    return frame


def beside_published(
    frames: 'dict[str, pandas.DataFrame]', published: Mapping[str, np.ndarray | None]
) -> 'dict[str, pandas.DataFrame]':
    """Return frames of which `layers` has the means of published grids of models as deep, too."""
    layers = frames['layers']
    for name, each in published.items():
        if each is not None and len(each) == len(layers):
            layers[name] = each.mean(axis=1)
            colours = layers.attrs['colours']
            columns = {**colours.columns, name: ()}
            layers.attrs['colours'] = dataclasses.replace(colours, columns=columns)
    return frames


def table(
    caption: str,
    by: Mapping[str, Sequence | np.ndarray] = MappingProxyType({}),
    /,
    **columns: Sequence | np.ndarray,
) -> 'pandas.DataFrame':
    """Return a frame with a row for each place of its columns, from arrays.

    Args:
      by: The values along each axis, by the name of their column, which stand first.
      columns: The numbers or texts by the names of their columns. They broadcast to these axes, or
        to each other.
    """
    axes = np.ix_(*map(np.asarray, by.values())) if by else ()
    arrays = np.broadcast_arrays(*axes, *map(np.asarray, columns.values()))
    rows = zip(*(each.flat for each in arrays), strict=True)
    return framed((*by, *columns), list(rows), caption)


def records(
    caption: str, rows: Iterable[Mapping[str, Any]], *, missing: Any = np.nan
) -> 'pandas.DataFrame':
    """Return a frame of records, under all columns that any of them has, in their order."""
    rows = list(rows)
    columns = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
    return framed(columns, [[row.get(name, missing) for name in columns] for row in rows], caption)


def with_ends(name: str, intervals: Any) -> dict[str, Any]:
    """Return columns of a number, or of several, and of the ends of their intervals, by name."""
    columns = (f'{name}{end}' for end in _ENDS)
    return dict(zip(columns, np.transpose(intervals).tolist(), strict=True))


def ends_of(
    rows: Iterable[Mapping[str, Any]], name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the numbers [R] of records, and the ends of their intervals [R] (`with_ends`)."""
    values, low, high = (np.array([row[f'{name}{end}'] for row in rows]) for end in _ENDS)
    return values, low, high
