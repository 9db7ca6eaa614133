"""One self-contained page: everything inside the file, and no request to anywhere.

All of it but the explorer can be read without its scripts, which sort tables and draw maps.
"""

import dataclasses
import html
import pathlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.report.explorer import Explorer

# Bytes of a page that is slow to open and to send.
_LARGE = 15_000_000


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure on the page; the files beside the SVG hold it as PDF and PNG."""

    file: pathlib.Path
    caption: str


@dataclasses.dataclass(frozen=True)
class Table:
    """A table on the page; cells are shown as given, and sorted by the numbers they begin with.

    "L2-H12  0.751 ± 0.004" is sorted by 0.751, and "L3 +2.9" by 2.9.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the report: what was found, in words, and what shows it."""

    title: str
    paragraphs: Sequence[str]
    blocks: Sequence[Picture | Table | Explorer]


def write_report(
    path: pathlib.Path,
    *,
    title: str,
    lead: str,
    sections: Sequence[Section],
    details: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the page.

    Args:
      path: of the HTML file.
      title: of the page.
      lead: one paragraph under the title.
      sections: in their order.
      details: heading to settings, at the end of the page: config, versions.
    """
    contents = ''.join(
        f'<li><a href="#part{index}">{html.escape(section.title)}</a></li>'
        for index, section in enumerate(sections, 1)
    )
    body = ''.join(_section(index, section) for index, section in enumerate(sections, 1))
    closing = ''.join(
        f'<details><summary>{html.escape(heading)}</summary>'
        f'{_table(Table("", ("setting", "value"), list(values.items())))}</details>'
        for heading, values in details.items()
    )
    data = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body><main>'
        f'<h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>'
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>{body}{closing}'
        f'</main><script>{_SCRIPT}</script></body></html>\n'
    ).encode()
    write_atomically(path, data)
    if len(data) > _LARGE:
        size = len(data) / 1e6
        logging.warning('%s has %.0f MB: fewer --config.maps.examples make it smaller.', path, size)


def _section(index: int, section: Section) -> str:
    paragraphs = ''.join(f'<p>{html.escape(text)}</p>' for text in section.paragraphs)
    blocks = ''.join(map(_block, section.blocks))
    return (
        f'<section id="part{index}"><h2>{html.escape(section.title)}</h2>{paragraphs}{blocks}'
        '</section>'
    )


def _block(block: Picture | Table | Explorer) -> str:
    match block:
        case Picture():
            return _picture(block)
        case Table():
            return _table(block)
        case Explorer():
            return block.html()


def _picture(picture: Picture) -> str:
    # As an image and not inline: the ids of two SVGs on one page would collide.
    # What HTML or an address would misread is escaped; base64 would be a quarter longer.
    data = urllib.parse.quote(picture.file.read_text('utf-8'), safe=" !$&'()*+,-./:;=?@[]^_`{|}~")
    caption = html.escape(picture.caption)
    return (
        f'<figure><img alt="{caption}" src="data:image/svg+xml,{html.escape(data)}">'
        f'<figcaption>{caption} <span class="file">{html.escape(picture.file.stem)}'
        '.{pdf,svg,png}</span></figcaption></figure>'
    )


def _table(table: Table) -> str:
    head = ''.join(f'<th scope="col">{html.escape(str(name))}</th>' for name in table.columns)
    rows = ''.join(
        '<tr>' + ''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row) + '</tr>'
        for row in table.rows
    )
    caption = f'<caption>{html.escape(table.caption)}</caption>' if table.caption else ''
    # Numbers are read from the right, sentences from the left.
    longest = max((len(str(cell)) for row in table.rows for cell in row), default=0)
    words = ' class="words"' if longest > 50 else ''
    return (
        f'<div class="table"><table{words}>{caption}<thead><tr>{head}</tr></thead>'
        f'<tbody>{rows}</tbody></table></div>'
    )


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { font-size: 1.1rem; }
nav ol { columns: 20rem; }
figure { margin: 1.5rem 0; }
figure img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 4px; }
figcaption, caption { text-align: left; font-size: .9rem; padding: .3rem 0; }
.file { opacity: .65; font-family: ui-monospace, monospace; font-size: .8rem; }
.table { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child, .words th, .words td { text-align: left; }
.words td { vertical-align: top; }
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
