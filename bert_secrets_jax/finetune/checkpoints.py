"""Checkpoints of a training, and its curves as JSON lines and CSV.

This is the only module that knows Orbax, which takes a second to import and is loaded when a folder
is opened.
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import logging

from bert_secrets_jax import files, processes
from bert_secrets_jax.extras import require

_KEYS = ('split', 'seed', 'step', 'epoch')


@dataclasses.dataclass
class Record:
    """The rows of the training curves, and the losses of the steps that have no row yet."""

    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    pending: list[tuple[int, Any]] = dataclasses.field(default_factory=list)


class Memory:
    """Stands in for `Checkpoints` where nothing is to be written."""

    def save(self, state: Any, record: Record) -> None:
        pass

    def restore_latest(self, state: Any) -> tuple[Any, Record]:
        return state, Record()


class Checkpoints:
    """The last checkpoint of a training, in `checkpoints` of its folder; a context manager.

    A checkpoint whose writing was interrupted does not count, and the one before it is still there.
    The curves are in `curve.jsonl` and `curve.csv`.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        require('orbax')
        import orbax.checkpoint

        self._orbax = orbax.checkpoint
        self._folder = pathlib.Path(folder).absolute()
        self._noted = self._folder / 'checkpoint.json'
        processes.on_first(self._remove_damaged)
        self._manager = self._orbax.CheckpointManager(
            self._folder / 'checkpoints',
            options=self._orbax.CheckpointManagerOptions(
                max_to_keep=1, enable_async_checkpointing=False, cleanup_tmp_directories=True
            ),
        )

    def __enter__(self) -> 'Checkpoints':
        return self

    def __exit__(self, *_) -> None:
        self._manager.close()

    @property
    def latest_step(self) -> int | None:
        """The step of the last checkpoint; None if there is none."""
        return self._manager.latest_step()

    def save(self, state: Any, record: Record) -> None:
        """Save the state, under its step, together with the record; write the curves."""
        args = self._orbax.args
        self._manager.save(
            int(state.step),
            args=args.Composite(
                state=args.StandardSave(_with_numbers(state)),
                record=args.JsonSave(dataclasses.asdict(record)),
            ),
        )
        step = str(int(state.step))
        processes.on_first(lambda: self._note(step, record))

    def _note(self, step: str, record: Record) -> None:
        sums = files.checksums(self._folder / 'checkpoints' / step)
        files.write_record(self._noted, {'step': step, 'files': sums})
        self._write_curves(record.history)

    def _remove_damaged(self) -> None:
        """Remove a checkpoint whose files are not those that were written."""
        folder = self._folder / 'checkpoints'
        if not folder.exists():
            return
        try:
            noted = files.read_record(self._noted)
            step = folder / noted['step']
            later = [
                path.name.isdigit() and int(path.name) > int(step.name) for path in folder.iterdir()
            ]
            if any(later):
                # Killed after a checkpoint was complete, and before its checksums were: the one
                # before it is being removed.
                shutil.rmtree(step, ignore_errors=True)
                self._noted.unlink()
                return
            damaged = files.differing(step, noted['files']) if step.exists() else []
            fault = f'{damaged[0]} is missing or damaged' if damaged else ''
        except FileNotFoundError:
            # The same with the first checkpoint.
            fault = ''
        except (NotADirectoryError, ValueError) as error:
            fault = str(error)
        if fault:
            logging.warning('The training begins again, since a file of it is damaged: %s', fault)
            if folder.is_file():
                folder.unlink()
            else:
                shutil.rmtree(folder, ignore_errors=True)
            self._noted.unlink(missing_ok=True)

    def restore_latest(self, state: Any) -> tuple[Any, Record]:
        """Return the state and the record of the last checkpoint; without one, the given state."""
        step = self.latest_step
        if step is None:
            return state, Record()
        args = self._orbax.args
        written = _with_numbers(state)
        abstract = jax.tree.map(self._orbax.utils.to_shape_dtype_struct, written)
        restored = self._manager.restore(
            step,
            args=args.Composite(state=args.StandardRestore(abstract), record=args.JsonRestore()),
        )
        pending = [(done, losses) for done, losses in restored['record']['pending']]
        # A run that was killed after its checkpoint may not have come to them.
        processes.on_first(lambda: self._write_curves(restored['record']['history']))
        full = jax.tree.leaves(restored['state'])
        found = [full.pop(0) if leaf.size else leaf for leaf in jax.tree.leaves(state)]
        state = jax.tree.unflatten(jax.tree.structure(state), found)
        return state, Record(restored['record']['history'], pending)

    def _write_curves(self, history: Sequence[dict[str, Any]]) -> None:
        for name, text in curves(history).items():
            files.write_text(self._folder / name, text)


def curves(history: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the texts of the files of training curves, the same for rows that were read again."""
    cells = (
        (*(row[key] for key in _KEYS), name, value)
        for row in history
        for name, value in sorted(row.items())
        if name not in _KEYS
    )
    return {
        'curve.jsonl': ''.join(json.dumps(row, sort_keys=True) + '\n' for row in history),
        'curve.csv': files.csv_text((*_KEYS, 'metric', 'value'), cells),
    }


def _with_numbers(state: Any) -> Any:
    """Return a state without empty arrays, those of layers without heads, which Orbax refuses."""

    def kept(leaf):
        if not leaf.size:
            return None
        # Arrays that each of several processes has for itself are written by the first of them.
        is_own = jax.process_count() > 1 and leaf.is_fully_addressable
        return np.asarray(leaf) if is_own else leaf

    return jax.tree.map(kept, state)
