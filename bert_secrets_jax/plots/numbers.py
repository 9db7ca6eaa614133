"""The numbers that figures show, so that a page can draw them to be pointed at."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

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
