"""Faults on purpose: a run that is killed at a write, a disk that is full."""

import contextlib
import errno
import pathlib
from collections.abc import Iterator

import pytest

from bert_secrets_jax.finetune import checkpoints


class Killed(BaseException):
    """Stands for a kill; nothing in the package may catch it."""


@contextlib.contextmanager
def killed_at(number: int) -> Iterator[list[str]]:
    """Kill what runs inside at a write, before the file is in place; writes count from 0.

    A write is a file that `files.write_atomically` puts in place, or a checkpoint. Yields the names
    of what was written, so that a run that is not killed tells how many there are.
    """
    written: list[str] = []
    replace, save = pathlib.Path.replace, checkpoints.Checkpoints.save

    def count(name: str) -> None:
        if len(written) == number:
            raise Killed
        written.append(name)

    def counted_replace(path, target):
        if path.suffix == '.partial':
            count(pathlib.Path(target).name)
        return replace(path, target)

    def counted_save(self, state, record):
        count('checkpoint')
        return save(self, state, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pathlib.Path, 'replace', counted_replace)
        patch.setattr(checkpoints.Checkpoints, 'save', counted_save)
        yield written


def kill_at(number: int, call) -> list[str]:
    """Call something, kill it at a write, and return what was written before."""
    with killed_at(number) as written, contextlib.suppress(Killed):
        call()
    return written


@contextlib.contextmanager
def full_disk(after: int = 0) -> Iterator[None]:
    """Let the disk be full after some writes."""
    replace, seen = pathlib.Path.replace, []

    def fail(path, target):
        if path.suffix == '.partial':
            seen.append(target)
            if len(seen) > after:
                raise OSError(errno.ENOSPC, 'No space left on device')
        return replace(path, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pathlib.Path, 'replace', fail)
        yield
