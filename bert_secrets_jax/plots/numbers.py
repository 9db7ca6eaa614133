"""The numbers that figures show, so that a page can draw them to be pointed at."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Grids:
    """A number of each head.

    Attributes:
      values: The values [L, N] of each grid, by its title; all are on one colour scale.
      label: The name of the values, with the unit.
      low: The value at the lower end of the colour scale.
      high: The value at the upper end of the colour scale.
      centred: Whether the colours are those of a change, with none of them at 0.
      circles: For some of the grids, the circles [L, N] on heads: 1 is open, 2 filled, 0 is none.
    """

    values: Mapping[str, np.ndarray]
    label: str
    low: float
    high: float
    centred: bool = False
    circles: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Classes:
    """The class of each head, that of the greatest share.

    Attributes:
      shares: The shares [L, N, C] of the classes of each head, by the title of the grid.
      names: The names of the classes [C].
    """

    shares: Mapping[str, np.ndarray]
    names: Sequence[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Several numbers of each head of one layer.

    Attributes:
      values: The values [N, F] of each matrix, by its title; all are on one colour scale.
      names: The names of the features [F].
      layer: The layer of the heads, from 0.
      label: The name of the values, with the unit.
      high: The value at the upper end of the colour scale, which begins at 0.
    """

    values: Mapping[str, np.ndarray]
    names: Sequence[str]
    layer: int
    label: str
    high: float


@dataclasses.dataclass(frozen=True, eq=False)
class Layers:
    """A number of each layer.

    Attributes:
      values: The values [L] of each panel, by its title; all are on one axis.
      label: The name of the values, with the unit.
      ends: The lower and the upper ends [L] of what is drawn around the values of a panel.
      ends_name: The name of these ends, such as 'interval'.
      published: Published values [L'] of some of the panels. Where L' is not L, they are stretched
        over the same depth.
      published_name: The name of the published values.
    """

    values: Mapping[str, np.ndarray]
    label: str
    ends: Mapping[str, tuple[np.ndarray, np.ndarray]]
    ends_name: str = 'interval'
    published: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    published_name: str = ''


@dataclasses.dataclass(frozen=True, eq=False)
class Points:
    """Heads as points on planes.

    Attributes:
      values: The height [L, N] of each head, for each panel by its title and there by a name; all
        are on one axis. A name has one colour in all panels.
      label: The name of the heights, with the unit; empty where only distances mean something.
      across: The places [L, N] on the horizontal axis of each panel, by its title; empty if heads
        stand above the number of their layer.
      across_label: The name of these places.
      kinds: A word for each head [L, N], which colours it; None colours by name or, where there is
        only one, by layer.
      levels: Heights by their names that are drawn as lines.
      published: Published means of layers [L] by the name of ours; NaN where nothing was published.
      published_name: The name of the published means.
    """

    values: Mapping[str, Mapping[str, np.ndarray]]
    label: str
    across: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    across_label: str = ''
    kinds: np.ndarray | None = None
    levels: Mapping[str, float] = dataclasses.field(default_factory=dict)
    published: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    published_name: str = ''


# The numbers of one figure.
Numbers = Grids | Classes | Features | Layers | Points
