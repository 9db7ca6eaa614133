"""Results of analyses: numbers, findings, and the frames, figures and sentences of these."""

import collections
import dataclasses
import functools
import html
import math
import operator
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from bert_secrets_jax import paper, plots
from bert_secrets_jax.checks import check_different, check_name, meant
from bert_secrets_jax.measure.colours import Colours, head_tables
from bert_secrets_jax.names import counted, filled, head_name, readable, two_digits, visible
from bert_secrets_jax.paper import rank_correlation
from bert_secrets_jax.runs import store

if TYPE_CHECKING:
    import pandas

    from bert_secrets_jax.measure.token_maps import TokenMaps
    from bert_secrets_jax.plots import Figure
    from bert_secrets_jax.runs.verdict import Verdict

Kind = TypeVar('Kind', bound='Result')


# How an atlas draws the marks of heads.
DRAWN = ('colour', 'ring', 'corner')
# The most rows of a table that is shown; longer tables are only written to files.
LEGIBLE_ROWS = 32
# The columns with names of heads or layers, and the name of one.
_NAMES = ('disabled', 'head_left', 'name')
# The most words of a headline; a number is no word.
_IN_A_TITLE = 14
# With fewer texts, their number is said. The words are those of `Finding.sample_of`.
_FEW_TEXTS = 30
_TEXTS = re.compile('(example|text|sentence|pair)s')
_ONE = r'^L(?P<layer>\d+)(?:-H(?P<head>\d+))?$'


@dataclasses.dataclass(frozen=True)
class Subject:
    """The model and the texts of a result, as sentences and captions name them.

    Attributes:
      model: The name of the model.
      texts: The name of the texts, such as 'MRPC dev'.
      task: The name of a task of the paper ('mrpc', ...), whose published numbers are shown beside
        one's own; None and other tasks have no published numbers.
    """

    model: str = 'the model'
    texts: str = 'the texts'
    task: str | None = None

    def as_in(self, figure: str) -> str:
        """Return how a caption refers to a figure, 'Figure 8', whose texts may be others."""
        return figure if paper.title(self.task) else f'in the manner of {figure}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One number of a result, and at most one sentence about it.

    Attributes:
      name: The label, which no other finding of the result has.
      estimate: The number.
      unit: The unit of the number.
      source: The publication and section that the question comes from.
      where: The head, layer or method that the number belongs to; empty for the whole model.
      low: The lower end of its 95 % interval; NaN if there is no interval.
      high: The upper end of its 95 % interval; NaN if there is no interval.
      sample: The size of the sample.
      sample_of: The things that the sample consists of, such as 'examples'.
      null: The estimate if there were nothing to find, such as 0 for a change; NaN if the question
        is not whether there is something.
      p: The p-value of that hypothesis, corrected for all among which the finding was chosen; NaN
        where it was not tested.
      tests: The number of tests that this p-value is corrected for.
      template: The sentence, of at most 25 words, with names of fields and of `numbers` in braces
        (`names.filled`). It has no digits of its own, so that every number in the sentence is one
        of them. Without one, the label and the number (`record`) are the sentence.
      numbers: Further numbers and names for the sentence, by their names in the template.
      warning: Whether the sentence must be read before everything else, such as that nothing was
        learnt.
    """

    name: str
    estimate: float | int
    unit: str
    source: str
    where: str = ''
    low: float = math.nan
    high: float = math.nan
    sample: int = 0
    sample_of: str = 'examples'
    null: float = math.nan
    p: float = math.nan
    tests: int = 1
    template: str = ''
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warning: bool = False

    @property
    def sentence(self) -> str:
        """The sentence, with its numbers filled in."""
        return filled(
            self.template or '{record}', {'record': self.record, **vars(self), **self.numbers}
        )

    @property
    def headline(self) -> str:
        """The beginning of the sentence as a title; of a long one, 14 words without brackets."""
        title = ''
        for text in (self.sentence, re.sub(r' \([^()]*\)', '', self.sentence)):
            title = re.split(r'(?<=[.!?]) (?=[A-Z])|; ', text)[0].removesuffix('.')
            if _words(title) <= _IN_A_TITLE and title.count('(') == title.count(')'):
                return title
        while _words(title) > _IN_A_TITLE:
            title = title.rpartition(' ')[0]
        return f'{title.rstrip(",:")} …'

    @property
    def rest(self) -> str:
        """The sentence without its headline; all of it if the headline is shortened."""
        title = self.headline
        rest = self.sentence.removeprefix(title).lstrip('.; ')
        rest = re.sub(r'^\(([^()]*)\)\.$', r'\1.', rest)
        return f'{rest[:1].upper()}{rest[1:]}' if self.sentence.startswith(title) else self.sentence

    @property
    def certainty(self) -> str:
        """How sure the number is: its interval, p-value and sample; then its source."""
        parts = []
        if not math.isnan(self.low):
            parts.append(f'95 % interval: {two_digits(self.low)} to {two_digits(self.high)}')
        if self.p >= 0:
            parts.append(f'p = {self.p:.1g}{self._corrected}')
        if self.sample > 0:
            parts.append(f'{self.sample:,} {self.sample_of}')
        return '. '.join([*parts, self.source])

    @property
    def record(self) -> str:
        """The label and the number with its unit, interval and p-value, in a line."""
        where = f' ({self.where})' if self.where else ''
        parts = []
        if not math.isnan(self.low):
            parts.append(f'{readable(self.low)} to {readable(self.high)}')
        if not math.isnan(self.p):
            parts.append(f'p = {self.p:.2g}{self._corrected}')
        certain = f' ({", ".join(parts)})' if parts else ''
        label = f'{self.name[:1].upper()}{self.name[1:]}'
        return f'{label}{where}: {readable(self.estimate)} {self.unit}{certain}.'

    @property
    def _corrected(self) -> str:
        # The interval beside it is that of this one alone.
        return f' after correction for {self.tests:,} tests' * (self.tests > 1)


@dataclasses.dataclass(frozen=True, eq=False)
class HeadMarks:
    """Marks by which an atlas of all heads shows at a glance what a result says of each.

    Attributes:
      title: The meaning of the marks, such as 'attends most to'.
      marks: [L, N] The mark of each head, such as 'previous token'; empty where there is none.
      sentences: [L, N] The sentence that says it with its numbers; empty where nothing is known.
      drawn: How a mark is drawn: as the 'colour' of the head (what it does), as a 'ring' (what
        losing it does) or in a 'corner' (what changed it).
      bound: The least that a head with a mark has, such as '50% of attention'; empty for none.
      rank: The place of a colour among those of other results. A head has that of the lowest rank.
      model: The name of the model that a colour is of, if that is not the model as it is, such as
        'fine-tuned'. An atlas puts it beside the colours of the same title of the model as it is.
    """

    title: str
    marks: np.ndarray
    sentences: np.ndarray
    drawn: str = 'colour'
    bound: str = ''
    rank: int = 0
    model: str = ''

    def __post_init__(self):
        check_name('drawn', self.drawn, DRAWN)
        shapes = sorted({np.shape(each) for each in (self.marks, self.sentences)})
        if len(shapes) > 1 or len(shapes[0]) != 2:
            raise ValueError(
                f'Marks and sentences of {self.title!r} must all be [layers, heads], got '
                f'{", ".join(str(list(shape)) for shape in shapes)}.'
            )


@dataclasses.dataclass(frozen=True)
class Badge:
    """A verdict such as 'holds', the claim in a line, that which decides, and the whole claim."""

    verdict: str
    text: str
    evidence: str
    whole: str = ''


def _words(text: str) -> int:
    return len(re.findall(r'\S*[^\W\d_]\S*', text))


class Figures(collections.UserDict[str, Any]):
    """A mapping from names to figures, each drawn when it is asked for; some are only for files."""

    def __init__(
        self, drawings: Mapping[str, Callable[[], 'Figure']], only_files: Iterable[str] = ()
    ):
        super().__init__(drawings)
        self.only_files = frozenset(only_files)

    def __getitem__(self, key: str) -> 'Figure':
        if key not in self.data:
            known = ', '.join(self) or 'none'
            near = f'There is no figure {key!r}; there are: {known}. {meant(key, self)}'
            raise KeyError(near.rstrip())
        return self.data[key]()

    def shown(self) -> list[str]:
        """Return the names of the figures that are shown on a page."""
        return [name for name in self if name not in self.only_files]

    def __repr__(self) -> str:
        return f'Figures({", ".join(self)})'


def drawn(result: object, **drawings: Callable[[Any], 'Figure']) -> Figures:
    """Return the figures of a result, from a function that draws each from it."""
    return Figures({name: functools.partial(draw, result) for name, draw in drawings.items()})


def class_title(kind: type) -> str:
    """Return the name of a class in words, such as 'Special tokens'."""
    return re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', kind.__name__).capitalize()


@dataclasses.dataclass(frozen=True)
class Labelled:
    """A table of a result: its columns with their names, as it is kept and as a pandas frame.

    Attributes:
      columns: The numbers or texts of all rows, by the name of the column.
      caption: The sentence that describes the table.
      colours: The columns by which a page may colour heads or layers, if any.
      shown: The columns that a person reads, if not all.
    """

    columns: Mapping[str, Any]
    caption: str = ''
    colours: Colours | None = None
    shown: Sequence[str] = ()

    @classmethod
    def of(cls, frame: 'pandas.DataFrame') -> 'Labelled':
        """Return the table of a frame; ValueError if a column stands twice, or attrs has more."""
        check_different('The columns of a table', map(str, frame.columns))
        for name in frame.attrs:
            check_name('frame.attrs', name, ('caption', 'colours', 'shown'))
        columns = {
            str(name): each.to_numpy() if each.dtype.kind in 'biuf' else each.tolist()
            for name, each in frame.items()
        }
        about = {str(name): each for name, each in frame.attrs.items()}
        return cls(columns, **about)

    def frame(self) -> 'pandas.DataFrame':
        """Return the pandas frame, whose `attrs` have the caption and the colours."""
        import pandas

        # Columns without rows have no numbers by which their kind could be known.
        kind = None if any(map(len, self.columns.values())) else object
        frame = pandas.DataFrame(dict(self.columns), dtype=kind)
        about = {'caption': self.caption, 'colours': self.colours, 'shown': list(self.shown)}
        frame.attrs.update(
            {name: each for name, each in about.items() if each or name == 'caption'}
        )
        return frame


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Result:
    """The base class of results: each that inherits from it is a frozen dataclass.

    Reports, the explorer, CSV files, notebooks and the comparison of runs only use these methods,
    and need no code for a particular analysis.

    Attributes:
      FORMAT: The version of what the fields mean, to be raised where their names stay the same.
      title: The heading of the result; the name of the class in words, if it has no other.
      subject: The names of the model, the texts and the task, for sentences and captions.
      labelled: The tables of the result by name, which `with_frames` gives it.
    """

    FORMAT: ClassVar[int] = 1
    title: ClassVar[str] = ''

    subject: Subject = dataclasses.field(default=Subject(), kw_only=True)
    labelled: Mapping[str, Labelled] = dataclasses.field(default_factory=dict, kw_only=True)

    def __init_subclass__(cls, **settings: Any):
        super().__init_subclass__(**settings)
        if 'title' not in vars(cls):
            cls.title = class_title(cls)
        dataclasses.dataclass(frozen=True, repr=False, eq=False)(cls)

    def frames(self) -> 'dict[str, pandas.DataFrame]':
        """Return tidy pandas frames by name. Layers and heads count from 1.

        `frame.attrs['caption']` describes the frame.
        """
        return {name: each.frame() for name, each in self.labelled.items()}

    def with_frames(self: Kind, frames: 'Mapping[str, pandas.DataFrame]') -> Kind:
        """Return the result with its tables by name, as the analysis that made it labels them."""
        labelled = {name: Labelled.of(frame) for name, frame in frames.items()}
        return dataclasses.replace(self, labelled={**self.labelled, **labelled})

    def figures(self) -> Figures:
        """Return the figures by name. Each is drawn on demand; `figure.caption` describes it.

        That of a name is drawn by the method `_draw_NAME`, if there is one.
        """
        return Figures(self._methods('_draw_'))

    def findings(self) -> list[Finding]:
        """Return the findings: numbers with unit, interval, sample and sentence.

        Each method `_say_NAME` returns one, a list of them, or None, in the order of the page.
        """
        said = [say() for say in self._methods('_say_').values()]
        found = [each if isinstance(each, list) else [each] for each in said]
        return [each for some in found for each in some if each is not None]

    def _methods(self, prefix: str) -> dict[str, Callable[[], Any]]:
        """Return the methods that begin so, by the rest of their names, in their order."""
        names = dict.fromkeys(name for kind in type(self).__mro__[::-1] for name in vars(kind))
        return {
            name.removeprefix(prefix): getattr(self, name)
            for name in names
            if name.startswith(prefix)
        }

    def notes(self) -> list[str]:
        """Return sentences without numbers on how to read the result."""
        return []

    def all_notes(self) -> list[str]:
        """Return the notes, with the number of texts first where there are few."""
        samples = [each.sample for each in self.findings() if _TEXTS.match(each.sample_of)]
        most = max(samples, default=0)
        few = f'Measured on {counted(most, "example")} only: intervals of so few are rough.'
        return [few] * (0 < most < _FEW_TEXTS) + self.notes()

    def head_notes(self) -> dict[str, np.ndarray]:
        """Return notes about the heads for the explorer: the sentences [L, N] of their marks."""
        marks = self.head_marks()
        return {f'{each.title}, {each.model}'.rstrip(', '): each.sentences for each in marks}

    def head_tables(self) -> dict[str, np.ndarray]:
        """Return the numbers [L, N] that a page may colour heads by, as the frames declare them."""
        return head_tables(self.frames())

    def head_marks(self) -> list[HeadMarks]:
        """Return what the result says of each head at a glance."""
        return []

    def badges(self) -> list[Badge]:
        """Return verdicts, each of which is a line of the page."""
        return []

    def verdicts(self) -> 'list[Verdict]':
        """Return the verdicts on the claims of papers that this result alone is about."""
        return []

    def gives(self) -> dict[str, Any]:
        """Return by name what analyses of several results take from it, such as 'stays'."""
        return {}

    def at_a_glance(self) -> dict[str, str]:
        """Return headline numbers as texts, by the columns of a table with a row per run."""
        return {}

    def token_maps(self) -> 'dict[str, Sequence[TokenMaps]]':
        """Return maps of some sentences for the explorer, by the names of the models."""
        return {}

    def save(self, path: str | pathlib.Path) -> None:
        """Write the result to one file (.npz). The file is written completely or not at all."""
        store.write(pathlib.Path(path), self)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> 'Result':
        """Read a result that `save` wrote.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: The file is damaged, of another version, or has another result.
        """
        return store.read(pathlib.Path(path), cls)

    def __str__(self) -> str:
        return '\n'.join([self.title, *(finding.sentence for finding in self.findings())])

    def __repr__(self) -> str:
        frames = ', '.join(self.frames())
        return f'{type(self).__name__}(frames: {frames}; figures: {", ".join(self.figures())})'

    def _repr_html_(self) -> str:
        parts = [f'<h3>{_shown(self.title)}</h3>']
        parts += [f'<p>{_shown(finding.sentence)}</p>' for finding in self.findings()]
        parts += [f'<p>{_shown(note)}</p>' for note in self.all_notes()]
        figures = self.figures()
        for name in figures.shown():
            figure = figures[name]
            shown, caption = image(plots.svg(figure), figure.caption), _shown(figure.caption)
            parts.append(f'<figure>{shown}<figcaption>{caption}</figcaption></figure>')
        for name, frame in self.frames().items():
            caption = _shown(frame.attrs.get('caption', '') or name)
            if len(frame) <= LEGIBLE_ROWS:
                parts.append(f'<p>{caption}</p>{frame.to_html(index=False, na_rep="–")}')
            else:
                parts.append(f"<p>frames()['{_shown(name)}']: {len(frame):,} rows. {caption}</p>")
        return ''.join(parts)


def given_by(results: Iterable[Result], name: str) -> list[Any]:
    """Return what results give under a name, in their order (`Result.gives`)."""
    return [given[name] for each in results if name in (given := each.gives())]


def _shown(text: str) -> str:
    """Return a text for HTML, in which hidden characters are seen and none is a tag."""
    return html.escape(visible(text))


def image(svg: str, caption: str) -> str:
    """Return an HTML image that has its picture (SVG) inside and needs no file."""
    # As an image and not inline: the identifiers of two SVGs on one page would collide. What HTML
    # or an address would misread is escaped; base64 would be a quarter longer.
    data = urllib.parse.quote(svg, safe=" !$&'()*+,-./:;=?@[]^_`{|}~")
    return f'<img alt="{_shown(caption)}" src="data:image/svg+xml,{html.escape(data)}">'


def framed(
    columns: Sequence[str],
    rows: Iterator[Sequence] | Sequence[Sequence],
    caption: str = '',
    *,
    colours: Colours | None = None,
) -> 'pandas.DataFrame':
    """Return a pandas frame; `attrs` have its caption, and the columns that colour heads.

    If each row names one head, or one layer, its numbers follow in columns `layer` and `head`.
    """
    import pandas

    table = [tuple(map(_encodable, row)) for row in rows]
    frame = pandas.DataFrame(table, columns=list(map(_encodable, columns)))
    for name in set(_NAMES) & set(frame):
        places = frame[name].astype(str).str.extract(_ONE).dropna(axis=1, how='all')
        if 'layer' not in frame and places.notna().all(axis=None):
            for place in reversed(places.columns):
                frame.insert([*frame].index(name) + 1, place, places[place].astype(int))
    frame.attrs['caption'] = caption
    if colours is not None:
        frame.attrs['colours'] = colours
    return frame


def _encodable(value: Any) -> Any:
    """Return a value for a frame; half of a surrogate pair, which pandas refuses, as its number."""
    if isinstance(value, str) and not value.isascii():
        return value.encode(errors='backslashreplace').decode()
    return value


Number = float | int | np.number
# A number with the ends of its interval.
Interval = tuple[float, float, float]
# A number alone, or with the ends of its interval.
Measured = Number | Sequence[Number] | np.ndarray
_FIELDS = {field.name for field in dataclasses.fields(Finding)}


def measured(name: str, number: Measured, **fields: Any) -> Finding:
    """Return the finding of a number, which may have a 95 % interval.

    Fields that no `Finding` has are further numbers and names for its sentence.
    """
    numbers = np.asarray(number, float).ravel().tolist()
    estimate, low, high = numbers if len(numbers) > 1 else (*numbers, np.nan, np.nan)
    return told(name, estimate=estimate, low=low, high=high, **fields)


def told(name: str, numbers: Mapping[str, Any] = MappingProxyType({}), **fields: Any) -> Finding:
    """Return a finding; fields that it does not have are numbers and names for its sentence."""
    known = {key: fields.pop(key) for key in _FIELDS & fields.keys()}
    return Finding(name=name, numbers={**numbers, **fields}, **known)


def extreme(name: str, head: tuple[int, int], number: Measured, **fields: Any) -> Finding:
    """Return the finding of the head (from 0) in which a number is greatest or least."""
    return measured(name, number, where=head_name(*head), **fields)


def how_many(name: str, those: np.ndarray, kind: str = 'heads', **fields: Any) -> Finding:
    """Return the finding of how many of some things are so, such as significant."""
    count = int(np.count_nonzero(those))
    return told(name, estimate=count, unit=f'of {np.size(those):,} {kind}', **fields)


def agreement_of_grids(
    name: str, ours: np.ndarray, theirs: np.ndarray | None, **fields: Any
) -> list[Finding]:
    """Return how two grids [L, N] agree, over heads and over layers; nothing of other shapes."""
    rank, (layers, heads) = rank_correlation(ours, theirs), ours.shape
    if rank is None:
        return []
    found = {
        name: {'estimate': rank.heads, 'sample': layers * heads, 'sample_of': 'heads'},
        f'{name}, by layer': {'estimate': rank.layers, 'sample': layers, 'sample_of': 'layers'},
    }
    return [
        Finding(name=label, unit='rank correlation', **numbers, **fields)
        for label, numbers in found.items()
        if not math.isnan(numbers['estimate'])
    ]


def noted(notes: Mapping[str, object]) -> list[str]:
    """Return the notes, which come with whether they apply, that do."""
    return [note for note, applies in notes.items() if applies]


def findings_frame(findings: Sequence[Finding]) -> 'pandas.DataFrame':
    """Return a frame with a row for each finding, of which a person reads some of the columns."""
    fields = (
        'name', 'where', 'estimate', 'low', 'high', 'unit', 'p', 'sample', 'sample_of', 'source',
        'sentence',
    )  # fmt: skip
    columns = ('finding', *fields[1:])
    frame = framed(columns, list(map(operator.attrgetter(*fields), findings)))
    frame.attrs['shown'] = list(columns[:-2])
    return frame
