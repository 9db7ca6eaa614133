"""Progress of long work: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import tqdm
from absl import logging

from bert_secrets_jax import processes

T = TypeVar('T')
_SECONDS_BETWEEN_LINES = 10
_COMPILING = 'compiling the first batch'


def progress(
    items: Sequence[T],
    what: str,
    *,
    size: Callable[[T], int],
    unit: str = 'examples',
    compiles: bool = True,
) -> Iterator[T]:
    """Yield the items, and show how many units are done, how fast, and how long the rest takes.

    Args:
      items: The work, in pieces.
      what: What is being done; stands in front of the numbers.
      size: Returns how many units a piece has, such as the number of examples in a batch.
      unit: What is counted.
      compiles: Whether the first piece waits for a compilation, which is then said, because nothing
        moves before the first piece is done.
    """
    if not processes.is_first():
        yield from items
        return
    total = sum(map(size, items))
    shown = _bar if sys.stderr.isatty() else _lines
    yield from shown(items, what, size, unit, total, _COMPILING if compiles else '')


def _bar(items, what, size, unit, total, before_first):
    with tqdm.tqdm(total=total, desc=what, unit=f' {unit}', postfix=before_first or None) as bar:
        for index, item in enumerate(items):
            yield item
            if index == 0:
                bar.set_postfix_str('', refresh=False)
            bar.update(size(item))


def _lines(items, what, size, unit, total, before_first):
    if not items:
        return
    logging.info(
        '%s: 0/%d %s%s', what, total, unit, f', {before_first} ...' if before_first else ''
    )
    start = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += size(item)
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and done < total:
            last = now
            rate = done / max(now - start, 1e-9)
            left = f'{(total - done) / rate:.0f} s left' if rate else 'time left unknown'
            logging.info('%s: %d/%d %s, %.1f/s, %s', what, done, total, unit, rate, left)
    seconds = time.monotonic() - start
    logging.info(
        '%s: %d/%d %s, %.1f/s, done in %.0f s',
        what, done, total, unit, done / max(seconds, 1e-9), seconds,
    )  # fmt: skip
