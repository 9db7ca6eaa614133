"""The price of work: tokens through the model, programs to compile, seconds of the host.

The weights are rough: they are of one machine's quickstart.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

Number = float | int
# A step of training in passes over its examples: forward, backward, and the optimiser.
TRAINED = 5.0
# A mask that leaves out one head, in passes (`ablation.sweep`), and one that leaves out many.
HEAD, MANY = 0.4, 0.9
# So many seconds of work say little of how well an estimate fits.
_LITTLE = 30.0


@dataclasses.dataclass(frozen=True)
class Cost:
    """The work of a part of a section, which several sections may share.

    Attributes:
      tokens: The tokens that go through all layers, once forward.
      programs: The number of programs that are compiled, in units of a forward pass with maps.
      seconds: The seconds that no model computes: annotation, resampling, drawing.
    """

    tokens: Number = 0.0
    programs: Number = 0.0
    seconds: Number = 0.0


# By names that sections share.
Costs = dict[str, Cost]


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast this machine runs a model: seconds of a token, forward, and of compiling a pass."""

    token: float
    program: float

    def seconds(self, costs: Iterable[Cost]) -> float:
        return math.fsum(
            each.tokens * self.token + each.programs * self.program + each.seconds for each in costs
        )

    def left(self, sections: Sequence[Mapping[str, Cost]], done: int, passed: float) -> float:
        """Return about how many seconds sections take, of which so many took the time `passed`."""
        before, every = (
            self.seconds({k: v for parts in some for k, v in parts.items()}.values())
            for some in (sections[:done], sections)
        )
        return (every - before) * (passed + _LITTLE) / (before + _LITTLE)


def in_words(seconds: Number) -> str:
    """Return a duration as a person says it.

    >>> in_words(0), in_words(54), in_words(228), in_words(40000)
    ('5 s', '55 s', '4 min', '11 h')
    """
    if seconds < 55:
        return f'{max(round(seconds / 5) * 5, 5)} s'
    return f'{max(round(seconds / 60), 1)} min' if seconds < 5400 else f'{round(seconds / 3600)} h'
