"""The texts of a figure as they are drawn: as they are, whatever they are, and not too long."""

import contextlib
import logging
import re
import unicodedata
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from matplotlib import cbook, font_manager, ticker
from matplotlib.axis import Axis
from matplotlib.figure import FigureBase
from matplotlib.legend import Legend
from matplotlib.text import Text

from bert_secrets_jax.names import code_point, visible

# The most letters of a text, of a label of a tick or an entry of a legend, and of a small label,
# which stands in a row of many, such as tokens. A Chinese character counts as two letters.
LONGEST, LONGEST_LABEL, LONGEST_SMALL = 60, 40, 20
# The greatest size, in points, of a small label.
_SMALL = 7
_MOST_LINES = 3

# Fonts for the characters that the font of a figure lacks. The first that this machine has, and
# that has the character, draws it. Fonts of coloured pictures are missing: Matplotlib draws nothing
# in their place.
_FALLBACKS = (
    'DejaVu Sans',
    'Noto Sans CJK SC', 'Noto Sans CJK JP', 'Noto Sans CJK TC', 'Noto Sans CJK KR',
    'Source Han Sans SC', 'Source Han Sans CN', 'Source Han Sans', 'Source Han Sans JP',
    'PingFang SC', 'PingFang TC', 'Hiragino Sans GB', 'Hiragino Sans', 'Apple SD Gothic Neo',
    'Microsoft YaHei', 'Microsoft JhengHei', 'Yu Gothic', 'MS Gothic', 'Malgun Gothic', 'SimSun',
    'WenQuanYi Zen Hei', 'WenQuanYi Micro Hei', 'Droid Sans Fallback', 'IPAGothic', 'NanumGothic',
    'Noto Sans', 'Noto Sans Hebrew', 'Noto Sans Arabic', 'Noto Sans Devanagari',
    'Noto Sans Bengali', 'Noto Sans Tamil', 'Noto Sans Telugu', 'Noto Sans Thai',
    'Noto Sans Ethiopic', 'Noto Sans Symbols', 'Noto Sans Symbols 2', 'Noto Sans Symbols2',
    'Segoe UI', 'Nirmala UI', 'Leelawadee UI', 'Ebrima', 'Segoe UI Symbol', 'Noto Emoji',
    'Segoe UI Emoji', 'Arial Unicode MS', 'FreeSans', 'Symbola', 'Unifont', 'Unifont Upper',
)  # fmt: skip


class _Drawn(NamedTuple):
    """How a text is drawn, its further fonts, and the characters that are in none."""

    text: str
    families: tuple[str, ...] = ()
    lacking: frozenset[str] = frozenset()


@contextlib.contextmanager
def as_drawn(figure: FigureBase, *, svg: bool) -> Iterator[None]:
    """Give a figure the texts that are drawn, and take them back afterwards.

    Texts that are too long end in '…', and characters that nobody sees are spelt as their code
    points. Those that no font of this machine has are spelt so too, except in SVG, whose readers
    have fonts of their own. Formulas stay as they are.
    """
    changed, of_axes = _changes(figure, svg)
    with contextlib.ExitStack() as undo:
        for text, drawn in changed.items():
            families = text.get_fontfamily()
            undo.callback(text.set, text=text.get_text(), fontfamily=families)
            text.set(text=drawn.text, fontfamily=[*families, *drawn.families])
        for axis, labels in of_axes.items():
            # An axis writes its labels anew whenever it is drawn.
            undo.callback(axis.set_major_formatter, axis.get_major_formatter())
            axis.set_major_formatter(ticker.FixedFormatter(labels))
        if any(drawn.families for drawn in changed.values()):
            undo.enter_context(_without_remarks())
        if any(drawn.lacking for drawn in changed.values()):
            # Matplotlib only measures them: it is the browser that draws an SVG.
            undo.enter_context(warnings.catch_warnings())
            warnings.filterwarnings('ignore', r'Glyph \d+ ')
        yield


def differs_in_svg(figure: FigureBase) -> bool:
    """Return whether SVG has other texts than PDF and PNG, which then take other room."""
    return _changes(figure, True) != _changes(figure, False)


def _changes(figure: FigureBase, svg: bool) -> tuple[dict[Text, _Drawn], dict[Axis, list[str]]]:
    """Return texts that are drawn otherwise, also of ticks; all labels of axes with such ticks."""
    changed, of_axes, of_ticks = {}, {}, set()
    for axis in figure.findobj(Axis):
        ticks = axis.get_major_ticks()
        of_axis = [
            label
            for tick in [*ticks, *axis.get_minor_ticks()]
            for label in (tick.label1, tick.label2)
        ]
        of_ticks.update(of_axis)
        formatter = axis.get_major_formatter()
        if not (
            isinstance(axis.get_major_locator(), ticker.FixedLocator)
            and isinstance(formatter, ticker.FixedFormatter | ticker.FuncFormatter)
        ):
            # Its labels are numbers: powers, on an axis that somebody makes logarithmic.
            for label in of_axis:
                label.set_parse_math(True)
            continue
        labels = list(map(str, formatter.format_ticks(axis.get_majorticklocs().tolist())))
        for index, tick in enumerate(ticks):
            small = float(tick.label1.get_fontsize()) <= _SMALL
            most = LONGEST_SMALL if small else LONGEST_LABEL
            drawn = _drawn(labels[index], tick.label1, most, svg, breaks=False)
            if drawn:
                labels[index] = drawn.text
                changed[tick.label1] = drawn
                of_axes[axis] = labels
    of_legends = {text for legend in figure.findobj(Legend) for text in legend.get_texts()}
    for text in figure.findobj(Text):
        if text not in of_ticks:
            most = LONGEST_LABEL if text in of_legends else LONGEST
            drawn = _drawn(text.get_text(), text, most, svg)
            if drawn:
                changed[text] = drawn
    return changed, of_axes


def _drawn(
    written: str, style: Text, most: int, svg: bool, *, breaks: bool = True
) -> _Drawn | None:
    """Return how a text is drawn; None if it is drawn as it is written, in its own font."""
    if len(written) <= most and written.isascii() and written.isprintable():
        return None
    kept = '\n' if breaks else ''
    if style.get_usetex() or (style.get_parse_math() and cbook.is_math_text(written)):
        shown = visible(written, keep=kept)
        return None if shown == written else _Drawn(shown)
    # No more than this has room.
    shown = visible(written[: most + 1], keep=kept)
    if not svg:
        _, lacking = _further_fonts(shown, style)
        shown = ''.join(code_point(each) if each in lacking else each for each in shown)
    text = _cut(shown, most)
    if not svg:
        text = '\n'.join(map(_from_the_left, text.split('\n')))
    drawn = _Drawn(text, *_further_fonts(text, style))
    return None if drawn == _Drawn(written) else drawn


def _cut(text: str, most: int) -> str:
    """Return as many characters, or whole code points, as there is room for; the rest is '…'."""
    kept = re.findall(r'⟨U\+[0-9A-F]+⟩|.', text, re.DOTALL)
    if _fits(kept, most):
        return text
    while not _fits([*kept, '…'], most):
        kept.pop()
    return ''.join([*kept, '…'])


def _fits(pieces: list[str], most: int) -> bool:
    text = ''.join(pieces)
    wide = sum(unicodedata.east_asian_width(character) in 'WF' for character in text)
    return len(text) + wide <= most and text.count('\n') < _MOST_LINES


def _from_the_left(line: str) -> str:
    """Return a line that Matplotlib reads from the left, as SVG does, if it begins in Hebrew."""
    for index, character in enumerate(line):
        direction = unicodedata.bidirectional(character)
        if direction == 'L':
            break
        if direction in ('R', 'AL'):
            # Right before the word: before '##', Matplotlib 3.11 would misplace that in a PDF.
            return f'{line[:index]}\u200e{line[index:]}'
    return line


def _further_fonts(text: str, style: Text) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the fonts for what a style's own lack, and the characters that no font has."""
    lacking, families = set(text) - {'\n'}, []
    for family in style.get_fontfamily():
        lacking -= _in_font(lacking, family, style)
    known = set(font_manager.get_font_names()) if lacking else ()
    for family in _FALLBACKS:
        found = _in_font(lacking, family, style) if family in known else set()
        if found:
            families.append(family)
            lacking -= found
    return tuple(families), frozenset(lacking)


def _in_font(characters: set[str], family: str, style: Text) -> set[str]:
    """Return those of some characters that are in the font of a family with a style's weight."""
    properties = style.get_fontproperties().copy()
    properties.set_family(family)
    try:
        with _without_remarks():
            path = font_manager.findfont(properties, fallback_to_default=False)
    except ValueError:
        # There is no such family; Matplotlib takes the next one.
        return set()
    font = font_manager.get_font(path)
    return {character for character in characters if font.get_char_index(ord(character))}


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """Keep Matplotlib from remarking that a font which helps out has no bold letters."""
    logger = logging.getLogger('matplotlib.font_manager')
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
