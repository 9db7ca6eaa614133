"""The training loop: whatever is learnt, it can be killed at any time.

A step is a function of the state and of what the step is about, so that a checkpoint of the state
is a checkpoint of everything.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import flax.struct
import jax
import numpy as np
import optax
from absl import logging

from bert_secrets_jax.devices import fetch
from bert_secrets_jax.finetune.checkpoints import Memory, Record
from bert_secrets_jax.progress import progress

# A checkpoint is written when the last one is this old, whatever the step, ...
CHECKPOINT_SECONDS = 120
# ... unless writing would take more than this share of the time: many seeds are gigabytes.
CHECKPOINT_SHARE = 0.05

Rows = list[dict[str, Any]]


@flax.struct.dataclass
class TrainState:
    """The state that a step changes.

    Attributes:
      step: The number of steps done so far.
      params: The parameters.
      optimizer: The state of the optimiser.
    """

    step: Any
    params: Any
    optimizer: Any


class NonFiniteLossError(FloatingPointError):
    """The loss became infinite or NaN. Checkpoints hold only the state before that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """The rows that a training notes as it goes on.

    Attributes:
      rows: A function of steps and their losses that returns a row for all of them together.
      fault: A function of a step, the place of a loss among those of the step and the loss, which
        is not finite, that returns the text of the error.
      log_every: The number of steps between two rows. There is also one at the end of each stage.
      checkpoint_every: The number of steps between two checkpoints. There is also one at the end of
        each stage.
      stage: The number of steps of a stage.
      evaluate: A function of the state, the number of the stage and the rows so far that returns
        further rows; it is called at the end of each stage, and before the first step with 0. None
        evaluates nothing.
    """

    rows: Callable[[Sequence[int], np.ndarray], Rows]
    fault: Callable[[int, int, float], str]
    log_every: int
    checkpoint_every: int
    stage: int
    evaluate: Callable[[TrainState, int, Rows], Rows] | None = None


def train(
    take: Callable[[TrainState, Any], tuple[TrainState, Any]],
    state: TrainState,
    work: Sequence[Any],
    *,
    what: str,
    size: Callable[[Any], int],
    unit: str = 'examples',
    curve: Curve | None = None,
    checkpoints: Memory | None = None,
) -> tuple[TrainState, Record]:
    """Take one step after the other. A call after an interruption goes on, with the same result.

    Args:
      take: A step: a function of the state and a piece of the work that returns the next state and
        an array of losses.
      state: The state before the first step.
      work: What each step is about.
      what: The name of the training in the progress.
      size: A function of a piece of the work that returns how many units it has.
      unit: The name of these units.
      curve: The rows that are noted; None notes the losses of each step.
      checkpoints: Where the state is kept; None keeps it in memory alone.

    Returns:
      The state after the last step, and the record: the rows of the curve, or, in `pending`, the
      losses of all steps.

    Raises:
      NonFiniteLossError: A loss of a training with a curve is not finite.
    """
    with Memory() if checkpoints is None else checkpoints as kept:
        state, record = kept.restore_latest(state)
        if int(state.step):
            logging.info('%s: %d of %d steps are done.', what, int(state.step), len(work))
        if curve is not None and curve.evaluate is not None and not record.history:
            record.history += curve.evaluate(state, 0, record.history)
            kept.save(state, record)
        saved_at, took, previous = time.monotonic(), 0.0, None
        left = range(int(state.step), len(work))
        for step in progress(left, what, size=lambda step: size(work[step]), unit=unit):
            state, losses = take(state, work[step])
            # The device may be one step behind, not twenty: what waits holds its memory, and the
            # time and the progress that are shown are those of steps that are done.
            jax.block_until_ready(previous)
            previous = losses
            record.pending.append((step, losses))
            if curve is not None:
                _note(curve, state, record, step + 1)
            is_planned = _is_planned(curve, step + 1, len(work))
            if is_planned or (kept.at_any_step and is_due(saved_at, took)):
                record.pending[:] = _plain(record.pending, curve)
                started = time.monotonic()
                kept.save(state, record)
                saved_at = time.monotonic()
                took = saved_at - started
    record.pending[:] = _plain(record.pending, curve)
    return state, record


def _note(curve: Curve, state: TrainState, record: Record, done: int) -> None:
    """Note the rows that are due after so many steps."""
    is_end = done % curve.stage == 0
    if is_end or done % curve.log_every == 0:
        steps, losses = zip(*_plain(record.pending, curve), strict=True)
        record.history += curve.rows(steps, np.array(losses, np.float32))
        record.pending.clear()
    if is_end and curve.evaluate is not None:
        record.history += curve.evaluate(state, done // curve.stage, record.history)


def _is_planned(curve: Curve | None, done: int, total: int) -> bool:
    """Return whether there is a checkpoint after so many steps, however long they took."""
    if curve is None:
        return done == total
    return done % curve.stage == 0 or done % curve.checkpoint_every == 0


def is_due(saved_at: float, took: float) -> bool:
    """Return whether the last checkpoint, whose writing took so many seconds, is old.

    Args:
      saved_at: The time at which it was written (`time.monotonic`).
      took: How many seconds writing took.
    """
    return time.monotonic() - saved_at >= max(CHECKPOINT_SECONDS, took / CHECKPOINT_SHARE)


def _plain(pending: Sequence[tuple[int, Any]], curve: Curve | None) -> list[tuple[int, Any]]:
    """Return steps and losses as plain numbers; refuse losses of a curve that are not finite."""
    found = []
    for step, losses in pending:
        losses = np.asarray(fetch(losses), np.float32)
        wrong = np.flatnonzero(~np.isfinite(losses))
        if curve is not None and wrong.size:
            raise NonFiniteLossError(curve.fault(step, int(wrong[0]), float(losses[wrong[0]])))
        # A float32 is the same number again when it comes back as a Python float.
        found.append((step, losses.tolist()))
    return found


def grouped(
    groups: Mapping[str, optax.GradientTransformation],
) -> optax.GradientTransformationExtraArgs:
    """Return an optimiser of groups of parameters, each of which has an optimiser of its own.

    Args:
      groups: The optimisers, by the names of the groups. Parameters may lack some of the groups.
    """
    groups = {name: optax.with_extra_args_support(each) for name, each in groups.items()}

    def init(params):
        return {name: groups[name].init(part) for name, part in params.items()}

    def update(gradients, state, params, **given):
        found = {
            name: groups[name].update(part, state[name], params[name], **given)
            for name, part in gradients.items()
        }
        return tuple({name: each[place] for name, each in found.items()} for place in (0, 1))

    return optax.GradientTransformationExtraArgs(init, update)
