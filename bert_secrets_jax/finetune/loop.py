"""The training loop: whatever is learnt, it can be killed at any time.

A step is a function of the state and of what the step is about, so that a checkpoint of the state
is a checkpoint of everything.
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Container, Sequence
from typing import Any

import flax.struct
import jax
import numpy as np
from absl import logging

from bert_secrets_jax.compute import fetch
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingCurve:
    """The rows that a training notes as it goes on, and its checkpoints, also at the end of stages.

    `rows` makes those of the steps since the last rows, with their losses; `evaluate` those of the
    end of a stage and, as stage 0, of the beginning; `fault` the text of an error from a step, the
    place of a loss in it, and the loss, which is not finite.
    """

    rows: Callable[[TrainState, Sequence[int], Sequence[Any]], Rows] = lambda *_: []
    fault: Callable[[int, int, float], str] = lambda step, _, loss: (
        f'The loss of step {step + 1} is {loss}.'
    )
    rows_after: Container[int] = ()
    checkpoint_every: int | float = math.inf
    stage: int | float = math.inf
    evaluate: Callable[[TrainState, int, Rows], Rows] = lambda *_: []


def train(
    take: Callable[[TrainState, Any], tuple[TrainState, Any]],
    state: TrainState,
    work: Sequence[Any],
    *,
    what: str,
    size: Callable[[Any], int],
    unit: str = 'examples',
    curve: TrainingCurve | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[TrainState, Record]:
    """Take one step after the other. A call after an interruption goes on, with the same result.

    `take` is a step: a function of the state and a piece of the work, of `size` units, that returns
    the next state and an array of losses. Returned are the last state, and the rows together with
    the losses that have none: all, without a curve. Without a folder nothing is written.
    """
    curve = curve or TrainingCurve()
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
    """Return whether the last checkpoint is old; several processes go by the step alone."""
    old = max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)
    return jax.process_count() == 1 and time.monotonic() - saved_at >= old


def _plain(pending: Sequence[tuple[int, Any]], curve: TrainingCurve) -> list[tuple[int, Any]]:
    """Return steps and losses as plain numbers; refuse losses that are not finite."""
    found = []
    for step, losses in pending:
        losses = np.asarray(fetch(losses))
        for place in np.flatnonzero(~np.isfinite(losses)):
            raise NonFiniteLossError(curve.fault(step, int(place), float(losses.flat[place])))
        # A float32 is the same number again when it comes back as a Python float.
        found.append((step, losses.tolist()))
    return found
