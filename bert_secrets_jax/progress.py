"""Progress of long work: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import tqdm
from absl import logging

from bert_secrets_jax import processes

T = TypeVar('T')
_SECONDS_BETWEEN_LINES = 10
_COMPILING = 'compiling the first batch'


def progress(
    items: Iterable[T],
    what: str,
    *,
    size: Callable[[T], int],
    unit: str = 'examples',
    compiles: bool = True,
    share: Callable[[T], float | None] | None = None,
) -> Iterator[T]:
    """Yield the items, and show how many units are done, how fast, and how long the rest takes.

    Args:
      items: The work, in pieces; a list or another sequence, unless there is a `share`.
      what: The name of the work, which stands in front of the numbers.
      size: Returns how many units a piece has, such as the number of examples in a batch.
      unit: The name of what is counted.
      compiles: Whether to say that the first piece waits for a compilation.
      share: Where nobody knows the number of units: returns the share of the work that is done
        after a piece, or None.
    """
    if not processes.is_first():
        yield from items
        return
    total = sum(map(size, items)) if share is None else None
    shown = _bar if sys.stderr.isatty() else _lines
    yield from shown(items, what, size, unit, total, _COMPILING if compiles else '', share)


def _bar(items, what, size, unit, total, before_first, share):
    with tqdm.tqdm(total=total, desc=what, unit=f' {unit}', postfix=before_first or None) as bar:
        for index, item in enumerate(items):
            yield item
            if index == 0:
                bar.set_postfix_str('', refresh=False)
            if share is not None and (done := share(item)) is not None:
                bar.set_postfix_str(f'{done:.0%}', refresh=False)
            bar.update(size(item))


def _lines(items, what, size, unit, total, before_first, share):
    if total is not None and not items:
        return
    of = f' {unit}' if total is None else f'/{total} {unit}'
    logging.info('%s: 0%s%s', what, of, f', {before_first} ...' if before_first else '')
    start = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += size(item)
        now = time.monotonic()
        if now - last >= _SECONDS_BETWEEN_LINES and done != total:
            last = now
            seconds = max(now - start, 1e-9)
            part = share(item) if total is None else done / total
            left = f'{seconds * (1 - part) / part:.0f} s left' if part else 'time left unknown'
            if part and total is None:
                left = f'{part:.0%}, {left}'
            logging.info('%s: %d%s, %.1f/s, %s', what, done, of, done / seconds, left)
    seconds = time.monotonic() - start
    logging.info(
        '%s: %d%s, %.1f/s, done in %.0f s',
        what, done, of, done / max(seconds, 1e-9), seconds,
    )  # fmt: skip
