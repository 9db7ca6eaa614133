"""One self-contained page of results: everything is in the file, and nothing is requested.

Everything but the explorer can be read without the page's scripts, which sort tables and draw maps.
The page uses only the methods that all results have (`runs.result.Result`).
"""

import collections
import dataclasses
import functools
import hashlib
import math
import numbers
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from absl import logging
from markupsafe import Markup

from bert_secrets_jax.files import write_text
from bert_secrets_jax.measure.colours import Colours, sets_of
from bert_secrets_jax.names import two_digits
from bert_secrets_jax.plots.kinds import TABLE, in_words, plain_relation
from bert_secrets_jax.report.atlas import atlas, drawn_alike, kinds
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.report.templates import Fields, Heads, render
from bert_secrets_jax.runs.result import LEGIBLE_ROWS, Finding, Result, findings_frame, image

if TYPE_CHECKING:
    import pandas

# The length above which a page is slow to open and to send.
_LARGE = 15_000_000
# Whatever a text, a name or a token says, a browser asks no server for anything.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
# The last chapter, with the settings, the commands and what was not computed.
MADE = 'How this page was made'
# The attributes of a part that its section shows.
_SHOWN = ('title', 'heading', 'chapter', 'about', 'main', 'folder', 'made_by')
_NOTHING = Result()
# A text alternative is heard as a whole.
_SAID = 2
_PUBLISHED = re.compile(r'\bpublished\b|^paper: ')
_OF_NO_MEANING = frozenset('a and by for from in not of on or over that the to without'.split())
# Figures are drawn in black on white, for a paper. Where the screen is dark, so are they; what is
# written on the colours of a map is not black but nearly so, and stays (`plots.figure.INK`).
_DARK = """<style>@media screen and (prefers-color-scheme: dark) {
text:not([style*="fill:"]) { fill: #e8e8e8 }
[style*="stroke: #000000"] { stroke: #e8e8e8 !important }
path[style*="fill: #ffffff"] { fill: #16181c !important }
[style*="stroke: #4c4c4c"], [style*="stroke: #666666"] { stroke: #b0b0b0 !important }
[style*="fill: #4c4c4c"], [style*="fill: #666666"] { fill: #b0b0b0 !important }
[style*="fill: #d9d9d9"] { fill: #3a3d42 !important }
}</style>"""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of a page: the name of its files, its SVG, its caption and its numbers."""

    name: str
    svg: str
    caption: str
    numbers: Fields | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the page: a result, or the reason why there is none, such as an error (`message`).

    Attributes:
      name: The short name, with which the names of its files begin.
      group: The beginning of the titles, such as the name of a task; empty for none.
      chapter: The heading under which the page has it; empty for none.
      about: The texts that it is about; empty for none.
      main: Whether these are the texts that the first lines of the page name.
      folder: Where its files are, beside the page: '', or such as 'mrpc/'.
      made_by: Ways to make it again: pairs such as ('Shell', 'bert-secrets frames --model=...').
    """

    name: str
    result: Result | None = None
    message: str = ''
    group: str = ''
    chapter: str = ''
    about: str = ''
    main: bool = False
    pictures: tuple[Picture, ...] = ()
    folder: str = ''
    made_by: tuple[tuple[str, str], ...] = ()
    why: str = 'failed'

    def with_pictures(self, pictures: Sequence[Picture]) -> 'Part':
        """Return the same part with these pictures."""
        return dataclasses.replace(self, pictures=tuple(pictures))

    @property
    def found(self) -> Result:
        """The result; one without any content if there is none."""
        return self.result or _NOTHING

    @functools.cached_property
    def frames(self) -> 'dict[str, pandas.DataFrame]':
        """The frames of the result, by the names of their files without the suffix."""
        return {file_name(self.name, name): frame for name, frame in self.found.frames().items()}

    @functools.cached_property
    def grids(self) -> Callable[[Heads], list[Fields]]:
        """`grids` of the frames, which are searched once though a page is written often."""
        return functools.cache(functools.partial(grids, self.frames))

    @property
    def title(self) -> str:
        """The topic of the part."""
        return self._in_group(self.result.title if self.result else f'{self.name} ({self.why})')

    @property
    def heading(self) -> str:
        """The heading of the part: its first finding, if it has one."""
        return self._in_group(self.answers[0].headline) if self.answers else self.title

    def _in_group(self, title: str) -> str:
        return f'{self.group}: {title}' if self.group else title

    @functools.cached_property
    def answers(self) -> list[Finding]:
        """The findings of its result, but for warnings."""
        return [each for each in self.found.findings() if not each.warning]


class Offer(NamedTuple):
    """A part that is not computed, with its question, its time in words and its command."""

    name: str
    what: str
    price: str
    command: str


# The last line of a page.
_SEAL = '<!-- made of {}, sha256 {} -->'


def is_made_of(path: pathlib.Path, made_of: str) -> bool:
    """Return whether a page was made of things with this digest and is as it was written."""
    if not path.is_file():
        return False
    text, newline, seal = path.read_text('utf-8', errors='replace').rstrip().rpartition('\n')
    return seal == _SEAL.format(made_of, hashlib.sha256(f'{text}{newline}'.encode()).hexdigest())


def write_page(
    path: pathlib.Path,
    *,
    title: str,
    lead: str,
    parts: Sequence[Part],
    details: Mapping[str, Fields],
    told: Mapping[str, Sequence[str]] = MappingProxyType({}),
    to_come: Sequence[str] = (),
    offers: Sequence[Offer] = (),
    made_of: str = '',
) -> None:
    """Write the page: `lead` under the title, the parts in their chapters, and the rest around.

    `told` has the sentences above the heads of each group, `details` the settings or versions under
    each heading at the end, `to_come` the names of parts that are still being computed, `offers`
    those that are not computed. By `made_of`, the digest of everything on the page, `is_made_of`
    knows it again.
    """
    warnings = [
        (part.group, each.sentence)
        for part in parts
        for each in part.found.findings()
        if each.warning
    ]
    groups: dict[str, list[Result]] = {}
    for part in parts:
        if part.result is not None:
            groups.setdefault(part.group, []).append(part.result)
    heads = {group: _heads(group, results) for group, results in groups.items()}
    shown = [
        _section(part, groups.get(part.group, ()), heads.get(part.group)) | {'id': f'part{number}'}
        for number, part in enumerate(parts, 1)
    ]
    chapters: dict[str, list[Fields]] = {}
    for section in shown:
        if not section['explorer']:
            chapters.setdefault(section['chapter'], []).append(section)
    drawn, atlases = drawn_alike(groups.values()), []
    # Marks of heads that are from other texts than those of the page.
    elsewhere = {
        mark: part.about
        for part in parts
        if part.about and not part.main
        for each in part.found.head_marks()
        for mark in kinds(each)
    }
    for group, results in groups.items():
        prefix, sentences = _slug(group), told.get(group, ())
        fragment = atlas(results, prefix=prefix, drawn=drawn, elsewhere=elsewhere)
        # Where no head is marked, the sentences are alone.
        if fragment or sentences:
            heading = f'{group}: all heads at a glance' if group else 'All heads at a glance'
            about = {'prefix': prefix, 'title': heading, 'heads': heads[group]}
            atlases.append(about | {'fragment': fragment, 'told': sentences})
    text = render(
        'page.html',
        policy=_POLICY,
        title=title,
        lead=lead,
        warnings=warnings,
        to_come=list(to_come),
        offers=offers,
        atlases=atlases,
        explorers=[section for section in shown if section['explorer']],
        chapters=chapters | {MADE: chapters.pop(MADE, [])},
        marks=TABLE | {'kinds': TABLE['kinds'] | drawn.looks},
        details=[
            _table('', ('setting', 'value'), list(values.items()))
            | {'heading': heading, 'words': False}
            for heading, values in details.items()
        ],
    )
    text += '\n'
    seal = _SEAL.format(made_of, hashlib.sha256(text.encode()).hexdigest())
    write_text(path, f'{text}{seal}\n')
    if len(text) > _LARGE:
        size = len(text) / 1e6
        logging.warning('%s has %.0f MB: fewer example sentences make it smaller.', path, size)


def _heads(group: str, results: Sequence[Result]) -> Heads:
    """Return where heads of a model lead to: beginning of addresses, layers, heads in each."""
    for result in results:
        shapes = [marks.marks.shape for marks in result.head_marks()]
        shapes += [maps[0].attentions.shape[:2] for maps in result.token_maps().values() if maps]
        if shapes:
            return (_slug(group), *shapes[0])
    return None


def _slug(group: str) -> str:
    """Return the beginning of the addresses of heads, such as 'mrpc-'; empty without a group."""
    words = re.sub(r'[^a-z0-9]+', '-', group.lower()).strip('-')
    return f'{words}-' if words else ''


def _section(part: Part, results: Sequence[Result], heads: Heads) -> Fields:
    """Return what the page shows of a part, from all results of its group and where heads lead."""
    maps, findings, tables = part.found.token_maps(), part.found.findings(), part.frames
    prefix, found, explorer = _slug(part.group), part.grids(heads), None
    if maps:
        notes = {name: texts for each in results for name, texts in each.head_notes().items()}
        explorer = Markup(Explorer(maps, notes, address=prefix).html())
    return {
        **{name: getattr(part, name) for name in _SHOWN},
        'open': part.result is None or not part.chapter or bool(maps),
        'message': part.message if part.result is None else '',
        'prefix': prefix,
        'heads': heads,
        'explorer': explorer,
        'answer': next(iter(part.answers), None),
        'records': _frame(findings_frame(findings)) if findings else None,
        'badges': part.found.badges(),
        'pictures': _pictures(part, found, heads),
        'notes': part.found.all_notes(),
        'tables': [_frame(frame) for frame in tables.values() if len(frame) <= LEGIBLE_ROWS],
        'files': [(f'{name}.csv', len(frame)) for name, frame in tables.items()],
        'grids': found,
    }


def _pictures(part: Part, found: Sequence[Fields], heads: Heads) -> list[Fields]:
    """Return what the page shows of the figures of a part, one that can be pointed at first."""
    pictures = []
    for each in part.pictures:
        drawn = traced(each.numbers, found, heads)
        sets = [one for panel in drawn['panels'] for one in panel['sets']] if drawn else []
        files = sorted({found[at]['name'] for one in sets for at, *_ in one['rows']})
        svg = re.sub(r'<svg\b[^>]*>', lambda match: match[0] + _DARK, each.svg, count=1)
        pictures.append(
            {
                'name': each.name,
                'caption': each.caption,
                'image': Markup(image(svg, _said_by(each, part))),
                'numbers': drawn,
                'files': [f'{file}.csv' for file in files],
            }
        )
    return sorted(pictures, key=lambda each: each['numbers'] is None)


def _said_by(picture: Picture, part: Part) -> str:
    """Return what a figure shows in a sentence or two, for those who do not see it.

    Findings belong to it by words of their names in its name or in the titles of its grids; a
    figure without any shows what the result found first.
    """
    told = part.answers
    if not told:
        return picture.caption
    titles = [panel['title'] for panel in (picture.numbers or {'panels': ()})['panels']]
    words = _words(' '.join([picture.name.removeprefix(part.name), *titles]))
    shares: dict[float, list[str]] = collections.defaultdict(list)
    for each in told:
        own = _words(each.name)
        shares[len(own & words) / max(len(own), 1)].append(each.sentence)
    most = max(shares)
    return ' '.join(shares[most][: _SAID if most else 1])


def _words(text: str) -> set[str]:
    return set(re.findall(r'[^\W_]+', text.lower())) - _OF_NO_MEANING


def _frame(frame: 'pandas.DataFrame') -> Fields:
    shown = frame[frame.attrs['shown']] if 'shown' in frame.attrs else frame
    rows = [[_cell(value) for value in row] for row in shown.itertuples(index=False, name=None)]
    table = [list(map(in_words, shown.columns)), *rows]
    # A column without any value, such as that of runs that there are not, is in its file alone.
    told = [each for each in zip(*table, strict=True) if not rows or set(each[1:]) - {'', '–'}]
    columns, *rows = list(zip(*told, strict=True)) or [()]
    return _table(frame.attrs.get('caption', ''), columns, rows)


def _cell(value: Any) -> str:
    """Return a cell as a person reads it: two digits that matter, a dash for nothing."""
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        number = float(value)
        if math.isnan(number):
            return '–'
        return f'{number:z,.0f}' if number.is_integer() else two_digits(number)
    return '–' if value is None else str(value)


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Fields:
    rows = [[str(cell) for cell in row] for row in rows]
    # Numbers are read from the right, sentences from the left.
    longest = max((len(cell) for row in rows for cell in row), default=0)
    return {
        'caption': caption,
        'columns': list(columns),
        'rows': rows,
        'words': longest > 50,
        # Heads of a published model are none of this one's.
        'foreign': [at for at, name in enumerate(columns) if _PUBLISHED.search(name)],
    }


if TYPE_CHECKING:
    import pandas

    from bert_secrets_jax.plots import Figure

# Frames with more rows for each head, such as those of many fine-tuned models, are files alone.
_MOST_ROWS = 60


def file_name(part: str, name: str) -> str:
    """Return the name, without suffix, of the file of a frame or figure of a part."""
    return name if name.startswith(part) else f'{part}_{name}'


def grids(frames: 'Mapping[str, pandas.DataFrame]', heads: Heads) -> list[Fields]:
    """Return what a page draws of all frames that have rows for every head or for every layer.

    Returns:
      For each such frame its name and caption, `axis` ('heads' or 'layers'), the names of its
      columns of numbers, and `sets`: the name of each, such as '[SEP]', the numbers
      [column][head] or [column][layer], with None for NaN, and `alike`, the set of its source
      without the seed. `red` has `Colours.red` of each column, or 0. `about` has the places of the
      columns about heads; `beside` those of the columns that tell how sure each is. `classes` has
      for each set its columns of words.
    """
    if heads is None:
        return []
    found = (
        _drawn(name, frame, frame.attrs['colours'], heads[1:])
        for name, frame in frames.items()
        if 'colours' in frame.attrs
    )
    return [each for each in found if each is not None]


def _drawn(
    name: str, frame: 'pandas.DataFrame', colours: Colours, heads: tuple[int, int]
) -> Fields | None:
    """Return what `grids` returns of a frame; None if it is too long, or of another model."""
    shape = heads if colours.axis == 'heads' else heads[:1]
    count = int(np.prod(shape))
    sets = sets_of(frame)
    whole = [
        len(rows) == count and tuple(rows.index.to_frame().max()) == shape for _, _, rows in sets
    ]
    if not whole or not all(whole) or len(frame) > _MOST_ROWS * count:
        return None
    columns = [each for each in frame if each not in (*colours.by, *colours.places)]
    numbers = [each for each in columns if frame[each].dtype.kind in 'iuf']
    return {
        'name': name,
        'caption': frame.attrs.get('caption', ''),
        'axis': colours.axis,
        'columns': list(map(in_words, numbers)),
        'about': [place for place, each in enumerate(numbers) if each in colours.columns],
        'beside': [
            [numbers.index(other) for other in colours.columns.get(each, ())] for each in numbers
        ],
        'sets': [
            {
                'of': in_words(_plain_title(title) if 'relation' in colours.by else title),
                'alike': alike,
                'values': [_listed(rows[each].to_numpy()) for each in numbers],
                'red': [colours.red.get((each, alike), 0) for each in numbers],
                'classes': [
                    (in_words(each), list(map(str, rows[each])))
                    for each in colours.columns
                    if each not in numbers
                ],
            }
            for title, alike, rows in sets
        ],
    }


def _plain_title(title: str) -> str:
    """Return the title of a set whose first word is a relation, with the label of a subtype."""
    relation, *way = title.split(', ')
    label = f' ({relation})' if ':' in relation else ''
    return ', '.join([plain_relation(relation) + label, *way])


def figure_numbers(figure: 'Figure', part: str) -> Fields | None:
    """Return the numbers of a figure as a file keeps them, lists instead of arrays; None for none.

    There are the `kind` of what is drawn, what is said of all numbers, and `panels`, each with its
    title and `sets`: the names of its rows of numbers, their values, and their `source`: the file,
    the column, the set of rows, and what the column is multiplied by.
    """
    drawn = figure.numbers
    if drawn is None:
        return None
    return {
        'kind': drawn.kind,
        'label': drawn.label,
        **_plain(drawn.scale),
        'panels': [
            {
                'title': panel.title,
                'shape': list(np.shape(next(iter(panel.values.values())))),
                'sets': [
                    {
                        'of': name,
                        'values': _plain(values),
                        'source': _source(figure, part, panel.title, name),
                    }
                    for name, values in panel.values.items()
                ],
                **_plain(panel.beside),
            }
            for panel in drawn.panels
        ],
    }


def _source(figure: 'Figure', part: str, title: str, name: str) -> Fields | None:
    source = figure.source
    if isinstance(source, Mapping):
        source = source.get((title, name)) or source.get(title)
    if source is None:
        return None
    return source._asdict() | {
        'frame': file_name(part, source.frame),
        'of': source.of.replace('{}', name or title),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray):
        return _listed(value.ravel()) if value.dtype.kind in 'iuf' else value.ravel().tolist()
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def traced(figure: Fields | None, found: Sequence[Fields], heads: Heads) -> Fields | None:
    """Return the numbers of a figure, each set with the place in a frame that it is from.

    None if they are not of these heads or layers. `rows` of a set has the numbers of frame, set and
    column that it shows, or is the mean of (several fine-tunings); empty without such a frame.
    """
    if figure is None or heads is None:
        return None
    shape = {'layers': heads[1:2], 'features': heads[2:]}.get(figure['kind'], heads[1:])
    if not all(tuple(each['shape']) == tuple(shape) for each in figure['panels']):
        return None
    panels = [
        {**panel, 'sets': [_traced(each, found) for each in panel['sets']]}
        for panel in figure['panels']
    ]
    return {**figure, 'panels': panels}


def _traced(numbers: Fields, found: Sequence[Fields]) -> Fields:
    source = numbers['source'] or {'frame': None, 'times': 1, 'start': 0}
    rows = [
        (at, number, frame['columns'].index(in_words(source['column'])))
        for at, frame in enumerate(found)
        if frame['name'] == source['frame']
        for number, each in enumerate(frame['sets'])
        if each['alike'] in ('', source['of'])
    ]
    kept = {name: numbers[name] for name in ('of', 'values')}
    return {**kept, 'rows': rows, 'times': source['times'], 'start': source.get('start', 0)}


def _listed(values: 'pandas.Series | np.ndarray') -> list[float | None]:
    # Five digits are more than any of these numbers is known to.
    return [float(f'{each:.5g}') if np.isfinite(each) else None for each in values]
