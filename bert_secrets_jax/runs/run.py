"""The folder of a run: results are kept, and found again by everything that they depend on."""

import contextlib
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from absl import logging

from bert_secrets_jax import processes
from bert_secrets_jax.files import locked, parse_json
from bert_secrets_jax.runs import store

T = TypeVar('T')
_SECONDS_BETWEEN_LINES = 60
_SECONDS_BETWEEN_TRIES = 0.2


def digest(depends_on: Any) -> str:
    """Return a short name for the inputs of a result, the same for the same JSON values."""
    text = json.dumps(depends_on, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Run:
    """A folder in which results are kept; one that is not `writable` is only read.

    The name of a kept file is made from everything that the result depends on. So when a setting
    changes, the results that depend on it have other files, and with the former setting the former
    files are read. Files are complete or missing; a damaged file is set aside, and its result
    computed again. Of two processes in a folder, the second waits while the first computes.
    """

    def __init__(self, folder: str | pathlib.Path, *, writable: bool = True):
        self.folder = pathlib.Path(folder)
        self.writable = writable
        self._memory: dict[pathlib.Path, Any] = {}

    def keep(
        self, name: str, kind: type[T], depends_on: Mapping[str, Any], compute: Callable[[], T]
    ) -> T:
        """Return a kept result, or compute it and keep it.

        Args:
          name: The name of the result, which becomes part of the name of its file.
          kind: The dataclass of the result.
          depends_on: All that it depends on besides the code, as JSON values: settings, and
            digests of weights and texts.
          compute: Returns the result. It is called if nothing is kept.
        """
        return self.keep_each(kind, {name: depends_on}, lambda _: {name: compute()})[name]

    def keep_each(
        self,
        kind: type[T],
        depends_on: Mapping[str, Mapping[str, Any]],
        compute: Callable[[Sequence[str]], Mapping[str, T]],
        *,
        wanted: Sequence[str] | None = None,
    ) -> dict[str, T]:
        """Return several results that are computed together; only missing ones are computed.

        Args:
          kind: The dataclass of each result.
          depends_on: All that each result depends on, by its name, as for `keep`.
          compute: Takes the names of the missing results and returns these by name.
          wanted: The names of the results to return; None returns all. If one is missing, the
            others are computed with it.
        """
        wanted = list(depends_on if wanted is None else wanted)
        files = {name: self._file(name, kind, each) for name, each in depends_on.items()}
        kept: dict[str, T | None] = {}

        def lacking(names: Iterable[str]) -> list[str]:
            kept.update((name, self._read(files[name], kind)) for name in names)
            return [name for name in names if kept[name] is None]

        missing = lacking(wanted) and lacking(files)
        if missing and not self.writable:
            kept |= compute(missing)
        elif missing:
            with self.alone(files[missing[0]]):
                # Another process may have computed some in the meantime.
                missing = lacking(missing)
                computed = compute(missing) if missing else {}
                for name in missing:
                    self._memory[files[name]] = kept[name] = computed[name]

                def write() -> None:
                    for name in missing:
                        store.write(files[name], computed[name], key=files[name].stem)

                processes.on_first(write)
        return {name: each for name in wanted if (each := kept[name]) is not None}

    def kept(self, name: str, kind: type[T], depends_on: Mapping[str, Any]) -> T | None:
        """Return what `keep` has kept; None if it is not computed yet."""
        return self._read(self._file(name, kind, depends_on), kind)

    def forget(self) -> None:
        """Free the memory of the results; their files stay."""
        self._memory.clear()

    def folder_for(self, name: str, depends_on: Mapping[str, Any]) -> pathlib.Path:
        """Return a folder for files that belong to a result, such as checkpoints."""
        return self.folder / f'{name}-{digest(depends_on)}'

    def _file(self, name: str, kind: type, depends_on: Mapping[str, Any]) -> pathlib.Path:
        of_kind = {'class': kind.__name__, 'format': store.version_of(kind)}
        key = digest({'depends_on': depends_on, 'name': name} | of_kind)
        readable = ''.join(letter if letter.isalnum() else '_' for letter in name)[:60]
        return self.folder / 'kept' / f'{readable}-{key}.npz'

    def _read(self, file: pathlib.Path, kind: type[T]) -> T | None:
        """Return what is kept; None if nothing is, or only something damaged."""
        if file in self._memory or not processes.exists(file):
            return self._memory.get(file)
        try:
            self._memory[file] = store.read(file, kind, key=file.stem)
        except FileNotFoundError:
            pass
        except ValueError as error:
            if not self.writable:
                logging.warning('Not read: %s', error)
                return None
            aside = file.with_suffix('.damaged')
            if processes.is_first():
                with contextlib.suppress(FileNotFoundError):
                    file.replace(aside)
            logging.warning('Computing again; set aside as %s: %s', aside.name, error)
        return self._memory.get(file)

    @contextlib.contextmanager
    def alone(self, file: pathlib.Path) -> Iterator[None]:
        """Wait until no other process computes the same file or folder, and keep others out."""
        if not processes.is_first():
            # The first process waits for all.
            yield
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        path = file.with_suffix('.lock')
        if path.exists() and not path.is_file():
            raise ValueError(f'{path} is no file: remove it.')
        said = -math.inf

        def waiting(seconds: float) -> None:
            nonlocal said
            if seconds - said < _SECONDS_BETWEEN_LINES:
                return
            said, held = seconds, max(time.time() - path.stat().st_mtime, 0)
            try:
                owner = parse_json(path.read_text())
                name = f'Process {owner["process"]} on {owner["host"]}'
            except (ValueError, TypeError, KeyError):
                name = 'Another process'
            logging.info(
                '%s, since %s, computes %s: waiting for it (Ctrl-C stops only this run).',
                name, datetime.timedelta(seconds=round(held)), file.stem,
            )  # fmt: skip

        with locked(path, waiting=waiting, pause=_SECONDS_BETWEEN_TRIES) as lock:
            if lock is not None:
                lock.truncate(0)
                lock.write(json.dumps({'process': os.getpid(), 'host': platform.node()}))
                lock.flush()
            yield
