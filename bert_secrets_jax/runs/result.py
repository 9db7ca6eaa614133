"""What every analysis returns: numbers, and the frames, figures and sentences made from them."""

import dataclasses
import html
import math
import pathlib
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_secrets_jax import plots
from bert_secrets_jax.runs import store

if TYPE_CHECKING:
    import pandas

    from bert_secrets_jax.measure.maps import TokenMaps
    from bert_secrets_jax.plots import Figure

# Rows of a table that a person reads; longer ones are files.
LEGIBLE_ROWS = 32


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a result is about, as it is called in sentences and captions.

    Attributes:
      model: Name of the model.
      texts: Name of the texts, such as 'MRPC dev'.
      task: A task of the paper ('mrpc', ...), whose published numbers are shown beside one's own;
        None, or any other task, has none.
    """

    model: str = 'the model'
    texts: str = 'the texts'
    task: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One number that was found, and the sentence that says it.

    Attributes:
      name: What the number is, different for each finding of a result.
      estimate: The number.
      unit: Its unit.
      low: Lower end of its 95 % interval; NaN where there is none.
      high: Upper end.
      sample: Size of the sample.
      sample_of: What the sample consists of.
      source: Where in the literature the question comes from.
      template: The sentence, with the fields and `numbers` in braces (`str.format`). It holds no
        digit of its own, so that no sentence says a number that is not a field.
      numbers: Further numbers and names that the sentence needs.
      warning: Whether it must be read before everything else, such as that nothing was learnt.
    """

    name: str
    estimate: float | int
    unit: str
    template: str
    source: str
    low: float = math.nan
    high: float = math.nan
    sample: int = 0
    sample_of: str = 'examples'
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    warning: bool = False

    @property
    def sentence(self) -> str:
        """The sentence."""
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ('template', 'numbers', 'warning')
        }
        return self.template.format(**fields, **self.numbers)


class Figures(Mapping):
    """Figures by name, each drawn when it is asked for.

    Args:
      drawings: Name to a function without arguments that draws the figure.
      only_files: Names of those that are written to files, and not shown on a page.
    """

    def __init__(
        self, drawings: Mapping[str, Callable[[], 'Figure']], only_files: Iterable[str] = ()
    ):
        self._drawings = dict(drawings)
        self.only_files = frozenset(only_files)

    def __getitem__(self, name: str) -> 'Figure':
        try:
            drawing = self._drawings[name]
        except KeyError:
            known = ', '.join(self._drawings) or 'none'
            raise KeyError(f'There is no figure {name!r}; there are: {known}.') from None
        return drawing()

    def __iter__(self) -> Iterator[str]:
        return iter(self._drawings)

    def __len__(self) -> int:
        return len(self._drawings)

    def __contains__(self, name: object) -> bool:
        return name in self._drawings

    def shown(self) -> list[str]:
        """Names of the figures that are shown on a page."""
        return [name for name in self if name not in self.only_files]

    def __repr__(self) -> str:
        return f'Figures({", ".join(self._drawings)})'


class Result:
    """Base of what analyses return: a frozen dataclass of documented arrays and numbers.

    Everything that a person sees of a result is made from these methods: report, explorer, CSV
    files, notebook views and the comparison of runs know no analysis by name.

    Attributes:
      FORMAT: Version of the fields; raised whenever an older file no longer fits.
    """

    FORMAT: ClassVar[int] = 1

    @property
    def title(self) -> str:
        """What the result answers, as a heading."""
        return re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', type(self).__name__).capitalize()

    def frames(self) -> 'dict[str, pandas.DataFrame]':
        """Name to a tidy pandas frame; layers and heads count from 1.

        `frame.attrs['caption']` says what it shows.
        """
        return {}

    def figures(self) -> Figures:
        """Name to a figure, drawn when it is asked for; `figure.caption` says what it shows."""
        return Figures({})

    def findings(self) -> list[Finding]:
        """What was found, each a number with its unit, interval, sample and sentence."""
        return []

    def notes(self) -> list[str]:
        """How the numbers are to be read: sentences without numbers."""
        return []

    def head_notes(self) -> dict[str, np.ndarray]:
        """What is known of each head: its name to texts [L, N], for the explorer."""
        return {}

    def token_maps(self) -> 'dict[str, Sequence[TokenMaps]]':
        """Maps to explore: name of a model to its maps of some sentences."""
        return {}

    def save(self, path: str | pathlib.Path) -> None:
        """Write the result to one file (.npz), whole or not at all."""
        store.write(pathlib.Path(path), self)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> 'Result':
        """Read what `save` wrote.

        Raises:
          FileNotFoundError: There is no such file.
          ValueError: The file is damaged, of another version, or holds another result.
        """
        return store.read(pathlib.Path(path), cls)

    def __str__(self) -> str:
        return '\n'.join([self.title, *(finding.sentence for finding in self.findings())])

    def __repr__(self) -> str:
        frames = ', '.join(self.frames())
        return f'{type(self).__name__}(frames: {frames}; figures: {", ".join(self.figures())})'

    def _repr_html_(self) -> str:
        parts = [f'<h3>{html.escape(self.title)}</h3>']
        parts += [f'<p>{html.escape(finding.sentence)}</p>' for finding in self.findings()]
        parts += [f'<p>{html.escape(note)}</p>' for note in self.notes()]
        figures = self.figures()
        for name in figures.shown():
            figure = figures[name]
            shown, caption = image(plots.svg(figure), figure.caption), html.escape(figure.caption)
            parts.append(f'<figure>{shown}<figcaption>{caption}</figcaption></figure>')
        for name, frame in self.frames().items():
            caption = html.escape(frame.attrs.get('caption', '') or name)
            if len(frame) <= LEGIBLE_ROWS:
                parts.append(f'<p>{caption}</p>{frame.to_html(index=False, na_rep="–")}')
            else:
                parts.append(
                    f"<p>frames()['{html.escape(name)}']: {len(frame):,} rows. {caption}</p>"
                )
        return ''.join(parts)


def image(svg: str, caption: str) -> str:
    """Return an HTML image of the text of an SVG, that needs no file."""
    # As an image and not inline: the identifiers of two SVGs on one page would collide. What HTML
    # or an address would misread is escaped; base64 would be a quarter longer.
    data = urllib.parse.quote(svg, safe=" !$&'()*+,-./:;=?@[]^_`{|}~")
    return f'<img alt="{html.escape(caption)}" src="data:image/svg+xml,{html.escape(data)}">'


def framed(
    columns: Sequence[str], rows: Iterator[Sequence] | Sequence[Sequence], caption: str = ''
) -> 'pandas.DataFrame':
    """Return a frame with a caption."""
    import pandas

    frame = pandas.DataFrame([tuple(row) for row in rows], columns=list(columns))
    frame.attrs['caption'] = caption
    return frame
