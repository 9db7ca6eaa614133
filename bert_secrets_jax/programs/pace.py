"""The pace of this machine, measured on one batch of the texts of a run, and what takes how long.

Work is counted in tokens that go through all layers, once forward. All else of a part of a section,
such as its programs to compile, counts alike for every part. The weights are rough.
"""

import dataclasses
import math
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import numpy as np

from bert_secrets_jax.data.encoding import bucket, tokenize
from bert_secrets_jax.measure.stream import learned_maps, maps_in
from bert_secrets_jax.programs.given import Given, some

# A part compiles about so many programs, in units of a pass with maps, and computes so many seconds
# without a model.
_PROGRAMS, _SECONDS = 10, 5.0
# So many seconds of work say little of how well an estimate fits.
_LITTLE = 30.0


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast this machine runs a model: seconds of a token, and of all else of a part."""

    FORMAT: ClassVar[int] = 2

    token: float
    part: float

    def seconds(self, tokens: Iterable[float | int]) -> float:
        """Return how many seconds parts take, by their tokens."""
        return math.fsum(each * self.token + self.part for each in tokens)

    def left(
        self, sections: Sequence[Mapping[str, float | int]], done: int, passed: float
    ) -> float:
        """Return about how many seconds sections take, of which so many took the time `passed`."""
        before, every = (
            self.seconds({k: v for parts in some for k, v in parts.items()}.values())
            for some in (sections[:done], sections)
        )
        return (every - before) * (passed + _LITTLE) / (before + _LITTLE)


def in_words(seconds: float | int) -> str:
    """Return a duration as a person says it.

    >>> in_words(0), in_words(54), in_words(228), in_words(40000)
    ('5 s', '55 s', '4 min', '11 h')
    """
    if seconds < 55:
        return f'{max(round(seconds / 5) * 5, 5)} s'
    return f'{max(round(seconds / 60), 1)} min' if seconds < 5400 else f'{round(seconds / 3600)} h'


def pace_of(given: Given) -> Pace:
    """Measure how fast the model of a run runs here, on one batch of its texts."""
    model, compute = given.value('pretrained'), given.study.compute()
    some_texts = some(given.value('texts'))
    encoded = tokenize(model.tokenizer, some_texts, max_length=compute.max_length)
    batch = bucket(encoded, **compute.encoding)[0]
    batch = jax.device_put(dataclasses.replace(batch, marks={}))

    def seconds() -> float:
        start = time.perf_counter()
        # The program of every pass over these texts. Where JAX has kept it, it is read, as are then
        # most of the others.
        maps = maps_in(learned_maps, model.bert, 'uniform', model.params, batch, None)
        jax.block_until_ready(maps)
        return time.perf_counter() - start

    first, second = seconds(), min(seconds() for _ in range(2))
    part = _SECONDS + _PROGRAMS * max(first - second, 0.0)
    return Pace(second / np.size(batch.input_ids), part)


def machine() -> dict[str, Any]:
    """Return by which names a machine is known whose pace was measured."""
    return {'host': platform.node(), 'devices': str(jax.devices()), 'cores': os.cpu_count()}
