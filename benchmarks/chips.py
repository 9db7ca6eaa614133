"""The speed and memory of an accelerator, by its maker's data sheet."""

import dataclasses
import types
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Machine:
    """Several chips of one kind.

    Attributes:
      chips: How many.
      memory: Bytes of main memory of a chip.
      bandwidth: Bytes per second between a chip and its main memory.
      peak: Operations per second of a chip's bfloat16 matrix products.
      passes: How many times as long as such a product a float32 one takes.
      clock: Cycles per second, where the compiler counts in them.
      topology: The name of these chips in JAX, where its compiler is at hand.
    """

    chips: int
    memory: float
    bandwidth: float
    peak: float
    passes: float
    clock: float | None = None
    topology: str | None = None

    def operations_per_second(self, dtype: str) -> float:
        """Return the operations per second of a chip's matrix products of a type."""
        return self.peak / (self.passes if dtype == 'float32' else 1)


# Google Cloud's pages of v5e and v5p, and NVIDIA's data sheet of the H200 (dense products). A TPU
# makes a float32 product of six bfloat16 ones. Its clock is the peak over what its units of 128 x
# 128 multiply-adds do in a cycle: four in a v5e, eight in a v5p, whose names count two cores each.
_V5E = {
    'memory': 16e9, 'bandwidth': 819e9, 'peak': 197e12, 'passes': 6.0,
    'clock': 197e12 / (2 * 4 * 128**2),
}  # fmt: skip
_V5P = {
    'memory': 95e9, 'bandwidth': 2765e9, 'peak': 459e12, 'passes': 6.0,
    'clock': 459e12 / (2 * 8 * 128**2),
}  # fmt: skip
MACHINES: Mapping[str, Machine] = types.MappingProxyType(
    {
        'v5e-8': Machine(chips=8, topology='v5e:2x4', **_V5E),
        'v5p-8': Machine(chips=4, topology='v5p:2x2x1', **_V5P),
        '8 x H200': Machine(chips=8, memory=141e9, bandwidth=4.8e12, peak=989e12, passes=989 / 67),
    }
)
