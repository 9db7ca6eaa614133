"""One self-contained page of results: everything is in the file, and nothing is requested.

Everything but the explorer can be read without the page's scripts, which sort tables and draw maps.
The page uses only the methods that all results have (`runs.result.Result`).
"""

import dataclasses
import html
import math
import numbers
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_secrets_jax.files import write_text
from bert_secrets_jax.names import visible
from bert_secrets_jax.report.atlas import atlas
from bert_secrets_jax.report.explorer import Explorer
from bert_secrets_jax.runs.result import LEGIBLE_ROWS, Result, image

if TYPE_CHECKING:
    import pandas

# The length above which a page is slow to open and to send.
_LARGE = 15_000_000
# Whatever a text, a name or a token says, a browser asks no server for anything.
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'"
)
# What a browser shows as a space.
_SPACES = '\t\n'


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of a page.

    Attributes:
      name: The name of its files without their suffix.
      svg: The text of the SVG.
      caption: The caption.
    """

    name: str
    svg: str
    caption: str


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the page: a result, or the reason why there is none.

    Attributes:
      name: The short name, with which the names of its files begin.
      result: The result; None if there is none yet.
      message: The reason why there is no result, such as an error.
      group: The beginning of the titles, such as the name of a task; empty for none.
      pictures: The figures of the result.
    """

    name: str
    result: Result | None = None
    message: str = ''
    group: str = ''
    pictures: tuple[Picture, ...] = ()

    def with_pictures(self, pictures: Sequence[Picture]) -> 'Part':
        """Return the same part with these pictures."""
        return dataclasses.replace(self, pictures=tuple(pictures))

    @property
    def title(self) -> str:
        """The heading of the part."""
        title = f'{self.name} (failed)' if self.result is None else self.result.title
        return f'{self.group}: {title}' if self.group else title


def write_page(
    path: pathlib.Path,
    *,
    title: str,
    lead: str,
    parts: Sequence[Part],
    details: Mapping[str, Mapping[str, Any]],
    to_come: Sequence[str] = (),
) -> None:
    """Write the page.

    Args:
      path: The HTML file.
      title: The title of the page.
      lead: One paragraph under the title.
      parts: The parts, in the order of the page.
      details: The settings or versions under each heading at the end of the page, by name.
      to_come: The names of the parts that are still being computed.
    """
    contents = ''.join(
        f'<li><a href="#part{index}">{_escape(part.title)}</a></li>'
        for index, part in enumerate(parts, 1)
    )
    body = ''.join(
        f'<section id="part{index}"><h2>{_escape(part.title)}</h2>{_part(part, parts)}</section>'
        for index, part in enumerate(parts, 1)
    )
    closing = ''.join(
        f'<details><summary>{_escape(heading)}</summary>'
        f'{_table("", ("setting", "value"), list(values.items()))}</details>'
        for heading, values in details.items()
    )
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{_escape(title)}</title><style>{_STYLE}</style></head><body><main>'
        f'<h1>{_escape(title)}</h1><p class="lead">{_escape(lead)}</p>'
        f'{_first(parts, to_come)}{_atlases(parts)}'
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>{body}{closing}'
        f'</main><script>{_SCRIPT}</script></body></html>\n'
    )
    write_text(path, text)
    if len(text) > _LARGE:
        size = len(text) / 1e6
        logging.warning('%s has %.0f MB: fewer example sentences make it smaller.', path, size)


def _first(parts: Sequence[Part], to_come: Sequence[str]) -> str:
    """What must be read first: warnings, and that the page is not complete yet."""
    warnings = [
        f'{_name(part.group)}: {_escape(finding.sentence)}'
        if part.group
        else _escape(finding.sentence)
        for part in parts
        if part.result is not None
        for finding in part.result.findings()
        if finding.warning
    ]
    boxes = [f'<p class="warning" role="note">{text}</p>' for text in warnings]
    if to_come:
        text = f'Still to come, reload the page then: {", ".join(to_come)}.'
        boxes.append(f'<p class="note">{_escape(text)}</p>')
    return ''.join(boxes)


def _atlases(parts: Sequence[Part]) -> str:
    """Return the atlas of each model or task, before everything else."""
    groups: dict[str, list[Result]] = {}
    for part in parts:
        if part.result is not None:
            groups.setdefault(part.group, []).append(part.result)
    found = []
    for group, results in groups.items():
        title = 'All heads at a glance'
        prefix = _slug(group)
        fragment = atlas(results, prefix=prefix)
        if fragment:
            title = f'{group}: {title.lower()}' if group else title
            heading = f'<h2 id="{prefix}heads">{_escape(title)}</h2>'
            found.append(f'<section>{heading}{fragment}</section>')
    return ''.join(found)


def _slug(group: str) -> str:
    """Return the beginning of the addresses of heads, such as 'mrpc-'; empty without a group."""
    words = re.sub(r'[^a-z0-9]+', '-', group.lower()).strip('-')
    return f'{words}-' if words else ''


def _part(part: Part, parts: Sequence[Part]) -> str:
    if part.result is None:
        return f'<p>{_escape(part.message)}</p>'
    result = part.result
    body = ''.join(f'<p>{_escape(each.sentence)}</p>' for each in result.findings())
    body += ''.join(f'<p class="note">{_escape(note)}</p>' for note in result.notes())
    maps = result.token_maps()
    if maps:
        notes = {
            name: texts
            for other in parts
            if other.result is not None and other.group == part.group
            for name, texts in other.result.head_notes().items()
        }
        body += Explorer(maps, notes, address=_slug(part.group)).html()
    body += ''.join(map(_picture, part.pictures))
    tables, files = [], []
    for name, frame in result.frames().items():
        if len(frame) <= LEGIBLE_ROWS:
            tables.append(_frame(frame))
        else:
            file = f'{file_name(part.name, name)}.csv'
            files.append(f'{_name(file)} ({len(frame):,} rows)')
    listing = f'<p class="file">More in {", ".join(files)}.</p>' if files else ''
    return ''.join([body, *tables, listing])


def file_name(part: str, name: str) -> str:
    """Return the name, without suffix, of the file of a frame or figure.

    Args:
      part: The name of the part of the report. The name of the file begins with it.
      name: The name of the frame or figure.
    """
    return name if name.startswith(part) else f'{part}_{name}'


def _picture(picture: Picture) -> str:
    caption = visible(picture.caption, keep=_SPACES)
    file = f'{picture.name}.{{pdf,svg,png}}'
    return (
        f'<figure>{image(picture.svg, caption)}<figcaption>{_name(caption)} <span class="file">'
        f'{_name(file)}</span></figcaption></figure>'
    )


def _frame(frame: 'pandas.DataFrame') -> str:
    shown = frame[frame.attrs['shown']] if 'shown' in frame.attrs else frame
    rows = [[_cell(value) for value in row] for row in shown.itertuples(index=False, name=None)]
    columns = [str(column).replace('_', ' ') for column in shown.columns]
    # A column without any value, such as that of runs that there are not, is in its file alone.
    told = [
        place
        for place in range(len(columns))
        if not rows or any(row[place] not in ('', '–') for row in rows)
    ]
    columns, *rows = ([row[place] for place in told] for row in (columns, *rows))
    return _table(frame.attrs.get('caption', ''), columns, rows)


def _cell(value: Any) -> str:
    """Return a cell as a person reads it: three digits that count, a dash for nothing."""
    if isinstance(value, numbers.Integral | str):
        return str(value)
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return '–'
    if isinstance(value, numbers.Real):
        value = float(value)
        if value == int(value) and abs(value) >= 1:
            return f'{value:,.0f}'
        return f'{value:.3f}' if 0.001 <= abs(value) < 100 or not value else f'{value:.3g}'
    return str(value)


def _name(text: str) -> str:
    """Return a text within a line, which turns nothing beside it if it is Hebrew or Arabic."""
    return f'<bdi dir="ltr">{_escape(text)}</bdi>'


def _escape(text: str) -> str:
    return html.escape(visible(text, keep=_SPACES))


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = ''.join(f'<th scope="col">{_escape(str(name))}</th>' for name in columns)
    body = ''.join(
        '<tr>' + ''.join(f'<td>{_escape(str(cell))}</td>' for cell in row) + '</tr>' for row in rows
    )
    title = f'<caption>{_escape(caption)}</caption>' if caption else ''
    # Numbers are read from the right, sentences from the left.
    longest = max((len(str(cell)) for row in rows for cell in row), default=0)
    words = ' class="words"' if longest > 50 else ''
    return (
        f'<div class="table"><table{words}>{title}<thead><tr>{head}</tr></thead>'
        f'<tbody>{body}</tbody></table></div>'
    )


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; overflow-wrap: break-word; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { font-size: 1.1rem; }
.warning { border: 2px solid #d62728; border-radius: 4px; padding: .6rem .8rem; font-weight: 600; }
.note { opacity: .8; }
nav ol { columns: 20rem; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 4px; }
figcaption, caption { text-align: left; font-size: .9rem; padding: .3rem 0; }
.file { opacity: .65; font-family: ui-monospace, monospace; font-size: .8rem; }
.table { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, .words th, .words td { text-align: left; }
.words td { vertical-align: top; max-width: 50rem; }
thead th { background: var(--soft); }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; }
th button:hover { cursor: pointer; text-decoration: underline; }
th button:focus-visible { outline: 2px solid; outline-offset: 2px; }
th button:empty::before { content: '↕'; }
[aria-sort=ascending] button::after { content: ' ▲'; }
[aria-sort=descending] button::after { content: ' ▼'; }
details { margin: 1rem 0; } details td { text-align: left; word-break: break-word; }
summary { cursor: pointer; }
/* Maps want more width than text. */
main .bs-explorer {
  width: min(100vw - 2rem, 80rem); position: relative; left: 50%; translate: -50%;
}
@media print {
  figure, .table { break-inside: avoid; }
  main .bs-explorer { width: auto; left: 0; translate: none; }
}
"""

# A click on a heading sorts its table by that column: ascending, descending, as it was. Numbers go
# by their value, "L2-H12 0.75" by 0.75; what has none stands after them, and an empty cell or a
# dash last of all.
_SCRIPT = r"""
// Settings and versions are part of what is printed.
addEventListener('beforeprint', () => {
  for (const each of document.querySelectorAll('details')) each.open = true;
});
const beginning = /^(?:L\d+(?:-H\d+)?\s+)?([<>~]?)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)/i;
function keyOf(cell) {
  const text = cell.textContent.trim().replace(/[−–](?=[\d.])/g, '-');
  const [, sign, number] = text.replace(/,(?=\d{3})/g, '').match(beginning) ?? [];
  // "<.001" stands before .001, and ">.999" after .999.
  const value = Number(number) + ({'<': -1e-9, '>': 1e-9}[sign] ?? 0);
  return {text, value, kind: number ? 0 : /^[–-]?$|^nan$/i.test(text) ? 2 : 1};
}
function compare(a, b) {
  return a.kind === 0 && a.value - b.value || a.text.localeCompare(b.text, 'en', {numeric: true});
}
for (const table of document.querySelectorAll('.table > table')) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    if (!head.textContent) button.setAttribute('aria-label', 'sort');
    button.append(...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const next = {ascending: 'descending', descending: 'none'};
      const order = next[head.getAttribute('aria-sort')] ?? 'ascending';
      heads.forEach(each => each.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', order);
      const sign = {ascending: 1, descending: -1, none: 0}[order];
      const keyed = rows.map(row => ({row, key: keyOf(row.cells[column])}));
      if (sign) keyed.sort(({key: a}, {key: b}) => a.kind - b.kind || sign * compare(a, b));
      body.append(...keyed.map(each => each.row));
    };
  });
}
"""
