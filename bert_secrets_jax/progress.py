"""Progress of long work: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import tqdm
from absl import logging

T = TypeVar('T')
_SECONDS_BETWEEN_LINES = 10


def progress(
    items: Sequence[T], what: str, *, size: Callable[[T], int], unit: str = 'examples'
) -> Iterator[T]:
    """Yield the items and show how many units are done, how fast, and the time left.

    Args:
      items: the work, in pieces.
      what: what is being done, as it stands before the numbers.
      size: units in a piece, such as the examples of a batch.
      unit: what is counted.
    """
    total = sum(map(size, items))
    if sys.stderr.isatty():
        with tqdm.tqdm(total=total, desc=what, unit=f' {unit}') as bar:
            for item in items:
                yield item
                bar.update(size(item))
        return
    start = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += size(item)
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES or done == total:
            last = now
            rate = done / max(now - start, 1e-9)
            logging.info(
                '%s: %d/%d %s, %.1f/s, %.0f s left',
                what, done, total, unit, rate, (total - done) / rate if rate else 0,
            )  # fmt: skip
