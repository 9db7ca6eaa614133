"""Ways to do the same, timed in turns: on a noisy machine only what ran side by side compares."""

import dataclasses
import functools
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from bert_secrets_jax.model.config import BertConfig
from bert_secrets_jax.model.parts import matmul_precision


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to do the work of a question.

    Attributes:
      prepare: Loads what is needed, and returns the function to time. That function returns when it
        is done.
      scale: The number that its seconds are multiplied by. A way may do a part of the work, such
        as four heads of 72, where every part costs the same.
      operations: The multiply-adds of the whole work, None where they are not counted.
      in_pytorch: Whether it needs PyTorch; it is left out where that is not installed.
      peer: Whether the first way is compared with it: it does the same on the same inputs. The
        fastest of these is what a user would take instead.
    """

    prepare: Callable[[], Callable[[], Any]]
    scale: float = 1.0
    operations: float | None = None
    in_pytorch: bool = False
    peer: bool = False


@dataclasses.dataclass(frozen=True)
class Question:
    """Work that is done in several ways, and a check that they agree.

    Attributes:
      name: The name of the work.
      unit: The name of what is counted, such as 'examples'.
      amount: How many of these the whole work has.
      ways: The ways by name, ours first.
      agree: A function of what each way returned. It raises an AssertionError where they differ,
        and returns what is worth telling.
      about: The inputs, in words.
    """

    name: str
    unit: str
    amount: float
    ways: Mapping[str, Way]
    agree: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda found: {}
    about: str = ''


PEAK = 'matrix product'


def measured(
    question: Question, *, rounds: int, matrix: int, dtype: str = 'float32'
) -> dict[str, Any]:
    """Check that all ways agree, then time them in turns.

    Args:
      question: The question.
      rounds: The number of rounds that count. One more comes before them, which compiles.
      matrix: The side of the square matrices whose product takes a turn too: what the machine can
        do at that moment.
      dtype: The type of that product, as in `bs.BertConfig`.

    Returns:
      The entry for the file of results: the facts of the question, and numbers of each way. These
      are the seconds of its rounds, scaled to the whole work, and its multiply-adds.
    """
    runs = {name: way.prepare() for name, way in question.ways.items()}
    told = question.agree({name: run() for name, run in runs.items()})
    runs[PEAK] = product(matrix, dtype)
    runs[PEAK]()
    seconds = interleaved(runs, rounds=rounds)
    ways = dict(question.ways) | {PEAK: Way(lambda: None, operations=matrix**3)}
    return {
        'question': question.name,
        'unit': question.unit,
        'amount': question.amount,
        'about': question.about,
        'told': dict(told),
        'ways': [
            {
                'name': name,
                'seconds': [each * way.scale for each in seconds[name]],
                'operations': way.operations,
                'peer': way.peer,
            }
            for name, way in ways.items()
        ],
    }


def interleaved(
    ways: Mapping[str, Callable[[], Any]], *, rounds: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Return the seconds of each way in rounds in which all of them run once.

    Args:
      ways: The functions by name.
      rounds: The number of rounds that count. Every other one goes backwards, so that none always
        comes after the same one.
      warm_up: The number of rounds before these.
    """
    seconds = {name: [] for name in ways}
    for count in range(-warm_up, rounds):
        for name, way in list(ways.items())[:: -1 if count % 2 else 1]:
            start = time.perf_counter()
            way()
            if count >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def first_result(way: Way) -> dict[str, float]:
    """Return the seconds and MiB of the first run of a way: compilation is part of both.

    Call it in a process that has done nothing else.
    """
    run = way.prepare()
    before = held_bytes(in_pytorch=way.in_pytorch, peak=False)
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    peak = held_bytes(in_pytorch=way.in_pytorch, peak=True)
    return {'first': seconds, 'MiB': (peak - before) / 2**20}


def held_bytes(*, in_pytorch: bool, peak: bool) -> int:
    """Return the memory held now, or at most since then (on accelerators: ever)."""
    if jax.default_backend() == 'cpu':
        # Not ru_maxrss: a child inherits its parent's, and loading may hold more than the work.
        if not peak:
            pathlib.Path('/proc/self/clear_refs').write_text('5')
        status = pathlib.Path('/proc/self/status').read_text()
        return int(re.search(r'VmHWM:\s+(\d+)', status)[1]) * 1024
    if in_pytorch:
        import torch

        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()
    return jax.devices()[0].memory_stats()['peak_bytes_in_use' if peak else 'bytes_in_use']


def processor() -> str:
    """Return what the device is called, and of a CPU how many cores this process may use."""
    kind = jax.devices()[0].device_kind
    if jax.default_backend() != 'cpu':
        return kind
    return f'{kind}, {len(os.sched_getaffinity(0))} cores'


@functools.lru_cache(maxsize=1)
def product(side: int, dtype: str) -> Callable[[], jax.Array]:
    config = BertConfig(dtype=dtype)
    # Equal numbers would be multiplied faster: a GPU takes less power for them.
    square = jax.random.normal(jax.random.key(0), (side, side)).astype(config.array_dtype)
    multiply = jax.jit(functools.partial(jnp.dot, precision=matmul_precision(config)))
    return lambda: jax.block_until_ready(multiply(square, square))
