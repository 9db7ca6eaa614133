"""Progress of long work: a bar on a terminal or in a notebook, plain lines elsewhere."""

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

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
    shown = _bar if sys.stderr.isatty() or _in_notebook() else _lines
    yield from shown(items, what, size, unit, total, _COMPILING if compiles else '', share)


def _in_notebook() -> bool:
    return type(sys.stderr).__module__.startswith('ipykernel')


def _bar(items, what, size, unit, total, before_first, share):
    with warnings.catch_warnings():
        # Without ipywidgets, the bar in a notebook is text, and nobody needs to be warned.
        warnings.simplefilter('ignore')
        from tqdm.auto import tqdm
    postfix, leave = before_first or None, not _in_notebook()
    with tqdm(total=total, desc=what, unit=f' {unit}', postfix=postfix, leave=leave) as bar:
        for index, item in enumerate(items):
            yield item
            if index == 0:
                bar.set_postfix_str('', refresh=False)
            if share is not None and (done := share(item)) is not None:
                bar.set_postfix_str(f'{done:.0%}', refresh=False)
            bar.update(size(item))


def _say(line: str, *values) -> None:
    """Log a line; in a script that has not set up absl's log, it goes to stderr."""
    if logging.vlog_is_on(logging.INFO):
        logging.info(line, *values)
    elif logging.get_verbosity() == logging.WARNING:
        print(line % values, file=sys.stderr, flush=True)


def _lines(items, what, size, unit, total, before_first, share):
    if total is not None and not items:
        return
    of = f' {unit}' if total is None else f'/{total} {unit}'
    _say('%s: 0%s%s', what, of, f', {before_first} ...' if before_first else '')
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
            _say('%s: %d%s, %.1f/s, %s', what, done, of, done / seconds, left)
    seconds = time.monotonic() - start
    _say(
        '%s: %d%s, %.1f/s, done in %.0f s',
        what, done, of, done / max(seconds, 1e-9), seconds,
    )  # fmt: skip
