"""Orbax checkpoints of a training, and its curves as JSON lines and CSV."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import orbax.checkpoint as ocp

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.report.tables import write_csv


class Checkpoints:
    """The last checkpoint of a training in `directory/checkpoints`; a context manager.

    A checkpoint killed while it is written counts for nothing, and the one before is there still.
    """

    def __init__(self, directory: str | pathlib.Path):
        self._directory = pathlib.Path(directory).absolute()
        self._manager = ocp.CheckpointManager(
            self._directory / 'checkpoints',
            options=ocp.CheckpointManagerOptions(
                max_to_keep=1, enable_async_checkpointing=False, cleanup_tmp_directories=True
            ),
        )

    def __enter__(self) -> 'Checkpoints':
        return self

    def __exit__(self, *_) -> None:
        self._manager.close()

    def save(self, state: Any, history: Sequence[dict[str, Any]]) -> None:
        """Save the state under its step, and the history with it; write the curves."""
        self._manager.save(
            int(state.step),
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), history=ocp.args.JsonSave(list(history))
            ),
        )
        self._write_curves(history)

    def restore_latest(self, state: Any) -> tuple[Any, list[dict[str, Any]]]:
        """Return the last checkpoint's state and history; the given state and [] without one.

        Args:
          state: of the right structure, shapes and placement on devices.
        """
        step = self._manager.latest_step()
        if step is None:
            return state, []
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), history=ocp.args.JsonRestore()
            ),
        )
        return restored.state, list(restored.history)

    def _write_curves(self, history: Sequence[dict[str, Any]]) -> None:
        lines = ''.join(json.dumps(row) + '\n' for row in history)
        write_atomically(self._directory / 'curve.jsonl', lines.encode())
        keys = ('split', 'seed', 'step', 'epoch')
        write_csv(
            self._directory / 'curve.csv',
            (*keys, 'metric', 'value'),
            (
                (*(row[key] for key in keys), name, value)
                for row in history
                for name, value in row.items()
                if name not in keys
            ),
        )
