"""The training loop: whatever is learnt, it can be killed at any time.

A step is a function of the state and of what the step is about, so that a checkpoint of the state
is a checkpoint of everything.
"""

import contextlib
import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Container, Sequence
from typing import Any

import flax.struct
import jax
import numpy as np
from absl import logging

from bert_secrets_jax.devices import fetch
from bert_secrets_jax.finetune.checkpoints import Checkpoints, Memory, Record
from bert_secrets_jax.progress import progress

# A checkpoint is written when the last one is this old, whatever the step, ...
CHECKPOINT_SECONDS = 120
# ... unless writing would take more than this share of the time: many seeds are gigabytes.
CHECKPOINT_SHARE = 0.05

Rows = list[dict[str, Any]]


@flax.struct.dataclass
class TrainState:
    """The number of steps done, the parameters, and the state of the optimiser."""

    step: Any
    params: Any
    optimizer: Any


class NonFiniteLossError(FloatingPointError):
    """The loss became infinite or NaN. Checkpoints hold only the state before that."""


def _no_rows(*_) -> Rows:
    return []


def _fault(step: int, _: int, loss: float) -> str:
    return f'The loss of step {step + 1} is {loss}.'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """The rows that a training notes as it goes on.

    Attributes:
      rows: A function of the state, the steps since the last rows and their losses that returns
        rows for all of them together.
      fault: A function of a step, the place of a loss among those of the step and the loss, which
        is not finite, that returns the text of the error.
      rows_after: The numbers of steps after which there are rows, and not at the ends of stages
        alone.
      checkpoint_every: The number of steps between two checkpoints, besides those at the ends of
        stages.
      stage: The number of steps of a stage.
      evaluate: A function of the state, the number of the stage and the rows so far that returns
        further rows; it is called at the end of each stage, and before the first step with 0.
    """

    rows: Callable[[TrainState, Sequence[int], Sequence[Any]], Rows] = _no_rows
    fault: Callable[[int, int, float], str] = _fault
    rows_after: Container[int] = ()
    checkpoint_every: int | float = math.inf
    stage: int | float = math.inf
    evaluate: Callable[[TrainState, int, Rows], Rows] = _no_rows


def train(
    take: Callable[[TrainState, Any], tuple[TrainState, Any]],
    state: TrainState,
    work: Sequence[Any],
    *,
    what: str,
    size: Callable[[Any], int],
    unit: str = 'examples',
    curve: Curve | None = None,
    folder: pathlib.Path | None = None,
) -> tuple[TrainState, Record]:
    """Take one step after the other. A call after an interruption goes on, with the same result.

    Args:
      take: A step: a function of the state and a piece of the work that returns the next state and
        an array of losses.
      state: The state before the first step.
      work: The subject of each step, such as a batch.
      what: The name of the training in the progress.
      size: A function of a piece of the work that returns how many units it has.
      unit: The name of these units.
      curve: The rows that are noted, and when; None keeps the losses of all steps.
      folder: The folder of checkpoints and curves; None writes nothing.

    Returns:
      The state after the last step, and the rows together with the losses that have none.

    Raises:
      NonFiniteLossError: A loss is not finite.
    """
    curve = curve or Curve()
    opened = contextlib.nullcontext(Memory()) if folder is None else Checkpoints(folder)
    with opened as checkpoints:
        state, record = checkpoints.restore_latest(state)
        if int(state.step):
            logging.info('%s: %d of %d steps are done.', what, int(state.step), len(work))
        if not record.history and (rows := curve.evaluate(state, 0, [])):
            record.history += rows
            checkpoints.save(state, record)
        saved_at, took, previous = time.monotonic(), 0.0, None
        left = range(int(state.step), len(work))
        for step in progress(left, what, size=lambda step: size(work[step]), unit=unit):
            state, losses = take(state, work[step])
            # The device may be one step behind, not twenty: what waits holds its memory, and the
            # time and the progress that are shown are those of steps that are done.
            jax.block_until_ready(previous)
            previous = losses
            record.pending.append((step, losses))
            done = step + 1
            is_end = done % curve.stage == 0
            if is_end or done in curve.rows_after:
                steps, found = zip(*_plain(record.pending, curve), strict=True)
                record.history += curve.rows(state, steps, found)
                record.pending.clear()
            if is_end:
                record.history += curve.evaluate(state, int(done / curve.stage), record.history)
            if is_end or done % curve.checkpoint_every == 0 or is_due(saved_at, took):
                record.pending[:] = _plain(record.pending, curve)
                started = time.monotonic()
                checkpoints.save(state, record)
                saved_at = time.monotonic()
                took = saved_at - started
    record.pending[:] = _plain(record.pending, curve)
    return state, record


def is_due(saved_at: float, took: float) -> bool:
    """Return whether the last checkpoint is old, by when it was written and how long that took.

    Several processes write a checkpoint together, and their clocks differ: they write by step only.
    """
    old = max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)
    return jax.process_count() == 1 and time.monotonic() - saved_at >= old


def _plain(pending: Sequence[tuple[int, Any]], curve: Curve) -> list[tuple[int, Any]]:
    """Return steps and losses as plain numbers; refuse losses that are not finite."""
    found = []
    for step, losses in pending:
        losses = np.asarray(fetch(losses))
        for place in np.flatnonzero(~np.isfinite(losses)):
            raise NonFiniteLossError(curve.fault(step, int(place), float(losses.flat[place])))
        # A float32 is the same number again when it comes back as a Python float.
        found.append((step, losses.tolist()))
    return found
