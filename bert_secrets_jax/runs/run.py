"""The folder of a run: what was computed once is kept, and found again by what it depends on."""

import contextlib
import hashlib
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.runs import store

try:
    import fcntl
except ImportError:  # There is none on Windows: two processes there do the same work twice.
    fcntl = None

T = TypeVar('T')


class NotKept(LookupError):
    """A run that only reads was asked for something that is not computed yet."""


def digest(depends_on: Any) -> str:
    """Return a short name for what something depends on: the same for the same JSON values.

    Raises:
      TypeError: It is not made of JSON values.
    """
    text = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """Keeps results in a folder.

    A kept file is named after what it depends on. So a changed setting has a file of its own,
    whatever does not depend on it is found again, and the former setting finds its former file.
    Files are complete or not there; one that is damaged is computed again. Two processes may share
    a folder: the second waits for what the first is computing.

    Attributes:
      folder: The folder.
      read_only: Whether to raise `NotKept` instead of computing anything.
      used: Names of the kept files that were read or written since somebody emptied it.
    """

    def __init__(self, folder: str | pathlib.Path, *, read_only: bool = False):
        self.folder = pathlib.Path(folder)
        self.read_only = read_only
        self.used: set[str] = set()
        self._memory: dict[pathlib.Path, Any] = {}

    def keep(
        self, name: str, kind: type[T], depends_on: Mapping[str, Any], compute: Callable[[], T]
    ) -> T:
        """Return what was kept, or compute it and keep it.

        Args:
          name: What it is called; part of the name of the file.
          kind: The dataclass that it is.
          depends_on: Everything that it depends on besides the code, as JSON values: settings, and
            digests of weights and texts.
          compute: Called when nothing is kept.
        """
        (found,) = self.keep_each(
            kind, {name: depends_on}, lambda names: {name: compute()}
        ).values()
        return found

    def keep_each(
        self,
        kind: type[T],
        depends_on: Mapping[str, Mapping[str, Any]],
        compute: Callable[[Sequence[str]], Mapping[str, T]],
        *,
        wanted: Sequence[str] | None = None,
    ) -> dict[str, T]:
        """Return several that are computed together; only those that are missing are.

        Args:
          kind: The dataclass that each of them is.
          depends_on: Name to everything that this one depends on, as for `keep`.
          compute: Called with the names that are missing, if any; returns these by name.
          wanted: The names that are returned; the others are only computed with them. By default
            all.
        """
        wanted = list(depends_on if wanted is None else wanted)
        files = {name: self._file(name, kind, each) for name, each in depends_on.items()}
        kept = {name: self._read(files[name], kind) for name in wanted}
        missing = [name for name, value in kept.items() if value is None]
        if missing:
            kept |= {name: self._read(file, kind) for name, file in files.items()}
            missing = [name for name, value in kept.items() if value is None]
        if missing:
            self.check_may_compute(missing[0])
            with self.alone(files[missing[0]]):
                # Another process may have computed some in the meantime.
                kept |= {name: self._read(files[name], kind) for name in missing}
                missing = [name for name in missing if kept[name] is None]
                # What computing reads shows in what these depend on: whoever finds them kept does
                # not read it, and used the same.
                used = set(self.used)
                computed = compute(missing) if missing else {}
                self.used = used
                for name in missing:
                    store.write(files[name], computed[name])
                    self._memory[files[name]] = kept[name] = computed[name]
        self.used.update(files[name].name for name in wanted)
        return {name: kept[name] for name in wanted}

    def check_may_compute(self, name: str) -> None:
        """Refuse to compute something in a run that only reads.

        Raises:
          NotKept: The run only reads.
        """
        if self.read_only:
            raise NotKept(f'{name} is not computed yet.')

    def forget(self) -> None:
        """Free the memory that results take; their files stay."""
        self._memory.clear()

    def folder_for(self, name: str, depends_on: Mapping[str, Any]) -> pathlib.Path:
        """Return the folder for files that belong to what is kept, such as checkpoints.

        Another one for whatever depends on something else.
        """
        return self.folder / f'{name}-{digest(depends_on)}'

    def _file(self, name: str, kind: type, depends_on: Mapping[str, Any]) -> pathlib.Path:
        of_kind = {'class': kind.__name__, 'format': getattr(kind, 'FORMAT', 1)}
        key = digest({'depends_on': depends_on, 'name': name} | of_kind)
        readable = ''.join(letter if letter.isalnum() else '_' for letter in name)[:60]
        return self.folder / 'kept' / f'{readable}-{key}.npz'

    def _read(self, file: pathlib.Path, kind: type[T]) -> T | None:
        """Return what is kept; None if nothing is, or only something damaged."""
        if file in self._memory:
            return self._memory[file]
        try:
            self._memory[file] = store.read(file, kind)
            return self._memory[file]
        except FileNotFoundError:
            return None
        except ValueError as error:
            aside = file.with_suffix('.damaged')
            with contextlib.suppress(FileNotFoundError):
                file.replace(aside)
            logging.warning('Computing again; set aside as %s: %s', aside.name, error)
            return None

    @contextlib.contextmanager
    def alone(self, file: pathlib.Path) -> Iterator[None]:
        """Wait until no other process computes the same file or folder, and keep others out."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if fcntl is None:
            yield
            return
        with file.with_suffix('.lock').open('w') as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logging.info('Another process computes %s: waiting for it.', file.stem)
                fcntl.flock(lock, fcntl.LOCK_EX)
            # The lock goes with the process, even one that is killed.
            yield


def remove(folder: pathlib.Path) -> None:
    """Remove a folder of unfinished parts, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def write_json(path: pathlib.Path, values: Any) -> None:
    """Write JSON that a person can read, whole or not at all."""
    write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + '\n').encode())
