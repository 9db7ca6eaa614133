"""The numbers that figures show, so that a page can draw them to be pointed at."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np


class Source(NamedTuple):
    """The column of a frame that a figure shows, or a panel of it.

    Attributes:
      frame: The name of the frame in `Result.frames()`.
      column: The name of the column.
      of: The name of the set of rows (`measure.colours.Colours.by`), without its seed: of several
        fine-tunings, the figure shows the mean. '{}' stands for the name of the numbers or, where
        they have none, the title of their panel.
      times: The number by which the column is multiplied, such as 100 for points.
    """

    frame: str
    column: str
    of: str = '{}'
    times: int = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """A panel of a figure.

    Attributes:
      title: The title.
      values: The numbers by their names: of each head [L, N], of each layer [L], or of the heads of
        one layer [N]. The only ones may have an empty name.
      beside: Further arrays that the panel shows. For heads: `circles` [L, N], where 1 is open, 2
        filled, and 0 is none. For layers: `ends`, the lower and the upper ones [L], and `published`
        [L'], which are stretched over the same depth. For points: `across` [L, N], the places on
        the horizontal axis (empty if heads stand above their layer), `kinds` [L, N], a word for
        each head, and `published`, means of layers [L] by the names of ours.
    """

    title: str
    values: Mapping[str, np.ndarray]
    beside: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Numbers:
    """The numbers of a figure, whose panels share their colours or axes.

    Attributes:
      kind: A number of each head ('heads'), several shares of which the greatest is drawn
        ('classes'), several numbers of the heads of one layer ('features'), a number of each layer
        ('layers'), or heads as points on planes ('points').
      label: The name of the numbers, with the unit; empty where only distances mean something.
      panels: The panels.
      scale: What holds for all panels. For heads and features: `low` and `high`, the ends of the
        colour scale, and `centred`, whether no colour is at 0; for features also `layer`, from 0.
        For layers: `ends` and `published`, the names of what has these. For points: `across` and
        `published`, such names, and `levels`, names and heights of lines.
    """

    kind: Literal['heads', 'classes', 'features', 'layers', 'points']
    label: str
    panels: Sequence[Panel]
    scale: Mapping[str, Any] = dataclasses.field(default_factory=dict)
