"""Reading input that is broken: within limits, and with an outcome that is one of a few."""

import contextlib
import dataclasses
import faulthandler
import functools
import io
import json
import logging
import math
import os
import pathlib
import resource
import signal
import socket
import sys
import tempfile
import unicodedata
import unittest.mock
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import hypothesis
import jaxtyping
import numpy as np

# Hostile input tries to make this file in the current folder.
MARKER = 'EXECUTED'
FOLDER = pathlib.Path('broken')
# Seconds, and bytes of address space beyond what the process has, that reading may take.
SECONDS, MEMORY = 20, 2 * 2**30


def _socket(file: pathlib.Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(file))


def _pipe_beside(file: pathlib.Path) -> None:
    os.mkfifo('pipe')
    file.symlink_to(pathlib.Path('pipe').resolve())


def _sparse(file: pathlib.Path) -> None:
    file.touch()
    os.truncate(file, 10**11)


# How to make what is no readable file, or one of 100 GB.
KINDS: Mapping[str, Callable[[pathlib.Path], Any]] = {
    'missing': lambda file: None,
    'sparse': _sparse,
    'pipe': os.mkfifo,
    'folder': os.mkdir,
    'socket': _socket,
    'no permission': lambda file: file.touch(0),
    'link to a pipe': _pipe_beside,
    'link to a folder': lambda file: file.symlink_to(FOLDER.resolve()),
    'link to itself': lambda file: file.symlink_to(file.name),
    'link to nothing': lambda file: file.symlink_to('nothing'),
    'link to /dev/zero': lambda file: file.symlink_to('/dev/zero'),
    'link to /dev/null': lambda file: file.symlink_to('/dev/null'),
}
# Files by their names within the folder: their bytes, or one of `KINDS`.
Files = Mapping[str, bytes | str]


class Hang(KeyboardInterrupt):
    """Reading took too long. Whoever catches everything else lets this through."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of input.

    Attributes:
      make: Writes a valid sample into `FOLDER`.
      read: Reads the folder with the package. What it returns is compared by `canonical`.
      oracle: Returns what a plain reader says that `read` should return. It raises whatever it
        likes if that should have been refused. None if nothing but the pristine value is right.
      names: Names of which an error may contain one, beside those of the files.
      told: Whether it is enough that a warning names a file that is read otherwise.
    """

    make: Callable[[pathlib.Path], Any]
    read: Callable[[pathlib.Path], Any]
    oracle: Callable[[pathlib.Path], Any] | None = None
    names: tuple[str, ...] = ()
    told: bool = False

    def check(self, changed: Files) -> None:
        """Read a sample of which some files are others, and hold the reader to its promise."""
        outcome = self._outcome(changed)
        if hypothesis.currently_in_test_context():
            hypothesis.event(outcome)

    def _outcome(self, changed: Files) -> str:
        pristine = _pristine(self)
        with folder_of(sample(self.make) | dict(changed)), logged() as lines:
            names = [FOLDER.name, *(path.name for path in FOLDER.rglob('*')), *self.names]
            try:
                with within_limits():
                    value = canonical(self.read(FOLDER))
            except (ValueError, OSError) as error:
                assert any(name in str(error) for name in names), f'it names nothing: {error!r}'
                return 'refused'
            # Panics of Rust and SystemExit are no `Exception`.
            except BaseException as error:
                if type(error) is KeyboardInterrupt:
                    raise
                raise AssertionError(f'neither read nor refused: {error!r:.300}') from error
            if value == pristine:
                return 'read as it was'
            if self.told and any(name in line for name in names for line in lines):
                return 'told'
            assert value == self._expected(), 'silently read wrong'
            return 'read as it is written'

    def _expected(self) -> Any:
        assert self.oracle is not None, 'only the pristine value is right'
        paths = FOLDER.rglob('*')
        odd = [at for at in paths if at.is_symlink() or not (at.is_file() or at.is_dir())]
        assert not odd, f'silently read: {odd}'
        with within_limits():
            return canonical(self.oracle(FOLDER))


@functools.cache
def sample(make: Callable[[pathlib.Path], Any]) -> dict[str, bytes]:
    """Return the files of a valid sample."""
    with folder_of({}):
        make(FOLDER)
        files = sorted(path for path in FOLDER.rglob('*') if path.is_file())
        return {str(path.relative_to(FOLDER)): path.read_bytes() for path in files}


@functools.cache
def _pristine(kind: Format) -> Any:
    """Return what is read of the sample, which the plain reader must agree with."""
    with folder_of(sample(kind.make)):
        value = canonical(kind.read(FOLDER))
        assert kind.oracle is None or value == canonical(kind.oracle(FOLDER))
        return value


@contextlib.contextmanager
def folder_of(files: Files) -> Iterator[None]:
    """Stand above a folder of these files; whoever asks to execute something is told yes.

    Raises:
      AssertionError: Something was executed.
    """
    with (
        tempfile.TemporaryDirectory(prefix='fuzz-') as home,
        contextlib.chdir(home),
        unittest.mock.patch('sys.stdin', io.StringIO('y\n' * 1000)),
        warnings.catch_warnings(action='ignore'),
    ):
        FOLDER.mkdir()
        for name, content in files.items():
            file = FOLDER / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                KINDS[content](file)
            else:
                file.write_bytes(content)
        # Users call functions whose types nobody checks.
        before = jaxtyping.config.jaxtyping_disable
        jaxtyping.config.update('jaxtyping_disable', True)
        try:
            yield
        finally:
            jaxtyping.config.update('jaxtyping_disable', before)
            assert not pathlib.Path(MARKER).exists(), 'something was executed'


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the warnings of the log."""
    handler, logger = _Lines(), logging.getLogger('absl')
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def within_limits() -> Iterator[None]:
    """Raise Hang, or MemoryError, where too much is taken."""

    def stop(*_):
        raise Hang(f'over {SECONDS} s')

    before = signal.signal(signal.SIGALRM, stop)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
    most = pages * os.sysconf('SC_PAGE_SIZE') + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, limits[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    # What is not written in Python hears no signal: then the process ends.
    faulthandler.dump_traceback_later(2 * SECONDS, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def canonical(value: Any) -> Any:
    """Return a value as texts, lists and pairs, so that equal values are equal, NaN too."""
    if isinstance(value, np.generic):
        value = value.item()
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value) if field.compare]
        return [(name, canonical(getattr(value, name))) for name in fields]
    if isinstance(value, Mapping):
        return sorted((repr(key), canonical(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if hasattr(value, '__array__'):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in 'biufc':
            return [array.shape, canonical(array.tolist())]
        return [array.dtype.str, array.shape, array.tobytes()]
    return repr(value)


def plain_json(text: str | bytes) -> Any:
    """Return the value of JSON in which no key occurs twice and every number is finite."""

    def unique(pairs):
        require(len(dict(pairs)) == len(pairs), 'a key occurs twice')
        return dict(pairs)

    def finite(text):
        return number(float(text))

    return json.loads(text, object_pairs_hook=unique, parse_float=finite)


def require(condition: Any, what: object = '') -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(f'the plain reader refuses: {what}')


def integer(value: Any, least: int = 0, most: int = 2**31 - 1) -> int:
    """Return a whole number in a range; neither a truth value nor a float is one."""
    require(type(value) is int and least <= value <= most, value)
    return value


def number(value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """Return a finite number in a range as a float."""
    require(type(value) in (int, float) and least <= value <= most, value)
    require(math.isfinite(value), value)
    return float(value)


def filled(text: Any) -> str:
    """Return a text that is more than spaces. What nobody sees is told when it is tokenised."""
    require(isinstance(text, str) and text.strip(), text)
    text.encode()  # Half of a surrogate pair raises.
    return text


def visible(text: Any) -> str:
    """Return a text that a person can see something of."""
    require(any(unicodedata.category(letter)[0] not in 'ZC' for letter in filled(text)), repr(text))
    return text
