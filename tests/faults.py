"""Faults on purpose: a run that is killed at a write, a disk that is full."""

import contextlib
import pathlib
from collections.abc import Callable

import pytest

from bert_secrets_jax.finetune import checkpoints


class Killed(BaseException):
    """Stands for a kill; nothing in the package may catch it."""


def kill_at(
    number: int, call: Callable[[], object], error: BaseException | None = None
) -> list[str]:
    """Call something, kill it at a write, before the file is in place; writes count from 0.

    A write is a file that `files.write_atomically` puts in place, or a checkpoint. Another `error`
    than a kill comes through. Returns the names of what was written before, so that a run that is
    not killed tells how many there are.
    """
    written: list[str] = []
    replace, save = pathlib.Path.replace, checkpoints.Checkpoints.save

    def count(name: str) -> None:
        if len(written) == number:
            raise error or Killed
        written.append(name)

    def counted_replace(path, target):
        if path.suffix == '.partial':
            count(pathlib.Path(target).name)
        return replace(path, target)

    def counted_save(self, state, record):
        count('checkpoint')
        return save(self, state, record)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
        patch.setattr(pathlib.Path, 'replace', counted_replace)
        patch.setattr(checkpoints.Checkpoints, 'save', counted_save)
        call()
    return written
