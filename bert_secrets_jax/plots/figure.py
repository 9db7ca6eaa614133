"""The class, the style and the colours that all figures share, their numbers, and their files."""

import contextlib
import dataclasses
import io
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import matplotlib
import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.plots import texts

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Black on the colours of a map: on a dark page, what is '#000000' turns light, and this does not.
INK = '#111111'
# The colour map of attention maps and of all numbers from less to more: dark is much.
MAPS = 'magma_r'
COLOURS = ('#1f77b4', '#d62728', '#2ca02c', '#9467bd', '#ff7f0e', '#17becf')
MARKERS = 'osD^vPX*'
# A dollar sign is one, whatever the user's own settings say.
_NO_FORMULAS: 'dict[RcKeyType, Any]' = {
    'text.usetex': False,
    'text.parse_math': False,
    'axes.formatter.use_mathtext': False,
}
STYLE: 'dict[RcKeyType, Any]' = {
    'font.family': 'DejaVu Sans',
    'font.size': 9,
    'axes.titlesize': 10,
    'axes.spines.top': False,
    'axes.spines.right': False,
    **_NO_FORMULAS,
    # Text stays text, in SVG and in PDF: searchable and editable in a paper.
    'svg.fonttype': 'none',
    'pdf.fonttype': 42,
    # The same numbers give the same file.
    'svg.hashsalt': 'bert_secrets_jax',
}
# Decorates the functions that draw.
styled = matplotlib.rc_context(STYLE)
_DPI = 200
# Arrays by the names that a figure has for them.
Arrays = Mapping[str, np.ndarray]
# Numbers, and the lower and upper ends of their intervals, all of one shape.
Ends = tuple[np.ndarray, np.ndarray, np.ndarray]


class Source(NamedTuple):
    """The column of a frame that a figure shows, or a panel of it.

    Attributes:
      frame, column: The names of the frame in `Result.frames()` and of its column.
      of: The name of the set of rows (`measure.colours.Colours.by`), without its seed: of several
        fine-tunings, the figure shows the mean. '{}' stands for the name of the numbers or the
        panel.
      times: The number by which the column is multiplied, such as 100 for points.
      start: The number to which that is added: a change is 1 - 1 * the similarity.
    """

    frame: str
    column: str
    of: str = '{}'
    times: float = 1
    start: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """A panel of a figure.

    Attributes:
      title: The title.
      values: The numbers by their names: of each head [L, N], of each layer [L], or of the heads of
        one layer [N]. The only ones may have an empty name.
      beside: Further arrays. For heads: `circles` [L, N], 1 open, 2 filled. For layers: `ends`,
        lower and upper [L], and `published` [L']. For points: `across` [L, N] (empty if heads stand
        above their layer), `kinds` [L, N], a word for each head, and `published`, means of layers
        [L].
    """

    title: str
    values: Arrays
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of a figure, whose panels share their colours or axes.

    Attributes:
      kind: A number of each head ('heads'), several shares of which the greatest is drawn
        ('classes'), several numbers of the heads of one layer ('features'), a number of each layer
        ('layers'), or heads as points on planes ('points').
      label: The name of the numbers, with the unit; empty where only distances mean something.
      scale: Values for all panels. For heads and features: `low` and `high`; of changes, `low` is
        the red end, as far from 0 as the other. For features also `layer`, from 0. For layers:
        `ends` and `published`, the names of these. For points: `across` and `published`, such
        names, and `levels`, names and heights of lines.
    """

    kind: Literal['heads', 'classes', 'features', 'layers', 'points']
    label: str
    panels: Sequence[Panel]
    scale: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Figure(matplotlib.figure.Figure):
    """A Matplotlib figure that notebooks show, with or without `%matplotlib inline`.

    Attributes:
      caption: A caption of a sentence or two, for the page that shows the figure.
      numbers: The numbers of heads or layers that it shows; None if it shows other things.
      source: The column of a frame that it shows, or that each panel shows: by the title of the
        panel, or by the title and the name of its numbers.
    """

    caption: str = ''
    numbers: Numbers | None = None
    source: Source | Mapping[str | tuple[str, str], Source] | None = None

    def captioned(
        self, caption: str, source: Source | Mapping[str | tuple[str, str], Source] | None = None
    ) -> 'Figure':
        """Set the caption and the source, as in the attributes, and return the figure."""
        self.caption, self.source = caption, source
        return self

    def numbered(self, kind: Any, label: str, panels: Iterable[Panel], **scale: Any) -> 'Figure':
        """Set the numbers that are drawn, as `Numbers` has them, and return the figure."""
        self.numbers = Numbers(kind, label, list(panels), scale)
        return self

    def named(self, entries: Mapping[str, Any], place: str, **layout: Any) -> None:
        """Name what is drawn in a legend outside the axes, by its names.

        Matplotlib by itself leaves out names that begin with an underscore.
        """
        layout = {'frameon': False, 'fontsize': 7, 'loc': f'outside {place}'} | layout
        self.legend(list(entries.values()), list(entries), **layout)

    # Every way to a file or to the screen leads here, or to the next method.
    def draw(self, renderer):
        with self._as_drawn():
            super().draw(renderer)

    def get_tightbbox(self, renderer=None, **arguments):
        with self._as_drawn():
            return super().get_tightbbox(renderer, **arguments)

    @contextlib.contextmanager
    def _as_drawn(self):
        # Only numbers beside an axis are made this late.
        numbers: dict[RcKeyType, Any] = {**_NO_FORMULAS, 'text.parse_math': True}
        is_svg = isinstance(self.canvas, FigureCanvasSVG)
        with matplotlib.rc_context(numbers), texts.as_drawn(self, svg=is_svg):
            yield

    # Where `%matplotlib inline` is on, IPython has a printer for Matplotlib's class and does not
    # ask for this one. Figures are not known to pyplot, so that nothing else draws them.
    def _repr_png_(self) -> bytes:
        return _render(self, 'png', dpi='figure')


def figure_of(
    width: float,
    height: float,
    panels: Sequence[str] | Mapping[str, Any] = ('',),
    *,
    across: int | None = None,
    beside: float = 0.0,
    below: float = 0.0,
    title_size: int = 10,
    xlabel: str = '',
    ylabel: str = '',
    grid: str | None = 'y',
    **shared: Any,
) -> tuple[Figure, list[Axes]]:
    """Return a figure and the axes of its panels, row by row.

    Args:
      width, height: The inches that each panel takes.
      panels: The titles of the panels, or what is drawn in them by title.
      across: The most panels side by side; None is all of them.
      beside, below: The inches beside and below all panels, such as those of a legend.
      title_size: The size of the titles, in points.
      xlabel, ylabel: The labels of each horizontal axis, and of the first vertical one.
      grid: The axis across which there are lines, 'x', 'y' or 'both'; None draws none.
      **shared: Further arguments of `Figure.subplots`, such as `sharey`.
    """
    columns = min(across or len(panels), len(panels))
    rows = -(-len(panels) // columns)
    size = width * columns + beside, height * rows + below
    figure = Figure(figsize=size, layout='constrained')
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, title in zip(axes, panels, strict=False):
        axis.set_title(title, fontsize=title_size)
        axis.set_xlabel(xlabel)
    axes[0].set_ylabel(ylabel)
    for axis in axes if grid else ():
        axis.grid(axis=grid, alpha=0.3)
    return figure, axes[: len(panels)]


def colour_of(index: int) -> str:
    """Return the colour of a line; they come again where they run out."""
    return COLOURS[index % len(COLOURS)]


def style_of(index: int) -> dict[str, Any]:
    """Return the colour and the marker of a line or of points, likewise."""
    return {'color': colour_of(index), 'marker': MARKERS[index % len(MARKERS)]}


def dashed(axis: Axes, level: float) -> Line2D:
    """Draw a level, such as the score of the whole model, and return the line."""
    return axis.axhline(level, color='0.4', linestyle='--', linewidth=0.9)


def name_rows(axis: Axes, names: Sequence[str], *, size: int = 8) -> None:
    """Name the rows of an axis, the first of which is the highest."""
    axis.set_yticks(range(len(names)), names, fontsize=size)
    axis.invert_yaxis()


def count_ticks(set_ticks: Callable[..., Any], count: int) -> None:
    """Number ticks from 1, in the way of an axis (`Axes.set_xticks` or `set_yticks`)."""
    set_ticks(range(count), map(str, range(1, count + 1)), fontsize=6)


def layers_down_heads_across(axis: Axes, layers: int, heads: int) -> None:
    """Number the layers and heads of a grid on an axis without lines."""
    axis.set(xlabel='head', ylabel='layer')
    count_ticks(axis.set_xticks, heads)
    count_ticks(axis.set_yticks, layers)
    without_lines(axis)


def framed(axis: Axes) -> None:
    """Draw a thin frame without ticks around a map."""
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(visible=True, linewidth=0.3, color='0.7')


def without_lines(axis: Axes) -> None:
    """Draw neither the lines of ticks nor those of the frame."""
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def svg(figure: matplotlib.figure.Figure) -> str:
    """Return a figure as the text of an SVG file.

    A new figure of the same numbers gives the same text. Drawing the same figure again moves it by
    a fraction of a point, since Matplotlib's layout starts from the former one.
    """
    images = figure.findobj(AxesImage)
    before = [image.get_interpolation() for image in images]
    # One pixel for each cell, which browsers keep sharp at any size; some viewers of PDF would
    # blur it.
    for image in images:
        image.set_interpolation('none')
    try:
        return _render(figure, 'svg', metadata={'Date': None}).decode()
    finally:
        for image, interpolation in zip(images, before, strict=True):
            image.set_interpolation(interpolation)


def save(
    figure: matplotlib.figure.Figure, directory: str | pathlib.Path, name: str
) -> pathlib.Path:
    """Write a figure as PDF, SVG and PNG (200 dpi) with one name, and return the path of the SVG.

    The folder is made if it is missing. The figure may be Matplotlib's.
    """
    directory = pathlib.Path(directory)
    layout = figure.get_layout_engine()
    files = {}
    try:
        files['svg'] = svg(figure).encode()
        # The others have the layout of the first: another one would take as long as drawing.
        if not texts.differs_in_svg(figure):
            figure.set_layout_engine(None)
        files['pdf'] = _render(figure, 'pdf', metadata={'CreationDate': None})
        figure.set_layout_engine(None)
        files['png'] = _render(figure, 'png')
    finally:
        figure.set_layout_engine(layout)
    for suffix, data in files.items():
        write_atomically(directory / f'{name}.{suffix}', data)
    return directory / f'{name}.svg'


def _render(
    figure: matplotlib.figure.Figure,
    kind: str,
    *,
    dpi: int | str = _DPI,
    metadata: dict | None = None,
) -> bytes:
    data, drawn = io.BytesIO(), contextlib.nullcontext()
    style: dict[RcKeyType, Any] = STYLE
    if not isinstance(figure, Figure):
        # Its formulas are meant, those of logarithmic axes, for one.
        style = {name: value for name, value in STYLE.items() if name not in _NO_FORMULAS}
        drawn = texts.as_drawn(figure, svg=kind == 'svg')
    with matplotlib.rc_context(style), drawn:
        figure.savefig(data, format=kind, dpi=dpi, metadata=metadata)
    return data.getvalue()
