"""A process that mutates, reads and judges; what it is asked to read may kill it."""

import dataclasses
import logging
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.fuzz.catalogue import TARGETS
from tests.fuzz.target import MARKER, Target, Unchecked, Unclear, canonical

# From the worst to the best.
BAD = ('executed', 'hang', 'memory', 'crash', 'traceback', 'unclear', 'silent', 'instrument')
OUTCOMES = (*BAD, 'unchecked', 'refused', 'identical', 'as_written', 'told')
# Seconds for making a mutant, and before that, once, its sample. Machines may be busy.
_MAKING = 240
# Bytes of address space beyond what the process has after its imports.
MEMORY = 2 * 2**30


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The fate of a mutant.

    Attributes:
      target, seed: The class of input and the seed, from which the mutant can be made again.
      damage: The damage that was done to the pristine sample.
      outcome: One of `OUTCOMES`.
      detail: The error that was raised, or how what was read differs from what the plain reader
        says.
      place: The file of the package and the function in which it was raised.
    """

    target: str
    seed: int
    damage: str
    outcome: str
    detail: str = ''
    place: str = ''

    @property
    def signature(self) -> tuple[str, ...]:
        """The common part of failures that are the same fault, as far as that can be told."""
        if self.outcome in ('silent', 'executed'):
            # The first part of the path of a value tells more than the others.
            damage = re.sub(r'(: \w+)\.[\w.]+', r'\1', self.damage)
            return self.target, self.outcome, re.sub(r'\d+', '#', damage)[:60]
        text = re.sub(r"'[^']*'|\"[^\"]*\"|\d+|0x\w+", '#', self.detail)
        return self.target, self.outcome, self.place, text[:60]


class Hang(KeyboardInterrupt):
    """Reading took too long. Whoever catches everything else lets this through."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_):
        raise Hang(f'over {seconds} s')

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def _empty(folder: pathlib.Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _sample(name: str) -> pathlib.Path:
    """Stand in a folder with the pristine sample of a class and another one; return the mutant's.

    Paths are relative, so that mutants and messages do not depend on where the folder lies.
    """
    target, folder = TARGETS[name], _HOME / name.rpartition('/')[2]
    made = _MADE.get(target.make)
    if made is None:
        made = _MADE[target.make] = _HOME / f'{folder.name}.made'
        folder.mkdir()
        os.chdir(folder)
        for number, variant in enumerate(('mutant', 'other')):
            # Made in the place where it is read: some samples know their folder.
            target.make(pathlib.Path('mutant'), number)
            made.mkdir(exist_ok=True)
            shutil.move('mutant', made / variant)
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    _empty(pathlib.Path('.'))
    for variant in ('mutant', 'other'):
        shutil.copytree(made / variant, variant)
    return pathlib.Path('mutant')


# Where the samples of each `Target.make` lie; several classes share some.
_MADE: dict[Callable, pathlib.Path] = {}
_HOME = pathlib.Path('.').resolve()


def mutate(name: str, seed: int) -> tuple[pathlib.Path, str]:
    """Make a mutant, which depends on its class and its seed alone."""
    folder = _sample(name)
    return folder, TARGETS[name].mutate(random.Random(f'{name}:{seed}'), folder)


def judge(target: Target, folder: pathlib.Path, pristine: Any, limit: float) -> tuple[str, ...]:
    """Read a mutant; return the outcome, its detail and its place."""
    log, logger = _Warnings(), logging.getLogger('absl')
    names = [name for name in target.names(folder) if name]
    # Whoever asks whether something may be executed is told yes.
    os.lseek(0, 0, os.SEEK_SET)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    logger.addHandler(log)
    try:
        with _limited(limit):
            value = canonical(target.read(folder))
    except Unchecked as error:
        return 'unchecked', str(error)
    except Unclear as error:
        return 'unclear', str(error)
    except MemoryError as error:
        return 'memory', _said(error), _place(error)
    except Hang as error:
        return 'hang', _said(error), _place(error)
    except (ValueError, OSError) as error:
        clear = any(name in str(error) for name in names)
        return 'refused' if clear else 'unclear', _said(error), _place(error)
    except BaseException as error:  # Panics of Rust and SystemExit are no `Exception`.
        return 'traceback', _said(error), _place(error)
    finally:
        logger.removeHandler(log)
    if value == pristine:
        return ('identical',)
    told = target.told and any(name in line for name in names for line in log.lines)
    try:
        if target.oracle is None:
            raise ValueError('only the pristine value is right')
        with _limited(limit):
            expected = canonical(target.oracle(folder))
    except Hang:
        return 'instrument', 'the plain reader hangs'
    # Damaged input makes a plain reader raise anything; it means that it should be refused.
    except Exception as error:
        return 'told' if told else 'silent', _said(error)
    if value == expected:
        return ('as_written',)
    return 'told' if told else 'silent', _difference(value, expected)


def _said(error: BaseException) -> str:
    return f'{type(error).__name__}: {str(error)[:300]}'


def _place(error: BaseException) -> str:
    """Return the innermost function of the package that an error went through."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if '/bert_secrets_jax/' in frame.filename
    ]
    if not frames:
        return ''
    frame = frames[-1]
    return f'{frame.filename.rpartition("/bert_secrets_jax/")[2]}:{frame.lineno} {frame.name}'


def _difference(value: Any, expected: Any) -> str:
    """Return the first place in which two values differ."""
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        if len(value) != len(expected):
            return f'{len(value)} parts, and the plain reader has {len(expected)}'
        for one, other in zip(value, expected, strict=True):
            if one != other:
                return _difference(one, other)
    return f'{str(value)[:80]} and the plain reader has {str(expected)[:80]}'


def serve(connection, home: str, limit: float, keep: str | None, keep_good: bool) -> None:
    """Answer messages (class, seed) with the damage, and then with a verdict.

    Args:
      connection: The connection to the parent.
      home: The folder of this process alone.
      limit: The seconds that reading may take.
      keep: A folder for the files of mutants that fail; None keeps none.
      keep_good: Whether to keep those that do not fail, too.
    """
    global _HOME
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _HOME = pathlib.Path(home).resolve()
    _quiet()
    warnings.simplefilter('ignore')
    import bert_secrets_jax

    pristine: dict[str, Any] = {}
    connection.send(('ready', bert_secrets_jax.__file__))
    while (job := connection.recv()) is not None:
        name, seed = job
        marker = pathlib.Path(MARKER)
        damage = 'not made'
        base = name.rpartition('/')[2]
        try:
            with _limited(_MAKING):
                if base not in pristine:
                    # Only now: a worker that replaces one that died has little time to lose.
                    pristine[base] = _check_pristine(base)
                folder, damage = mutate(name, seed)
        except BaseException as error:
            outcome = 'instrument', ''.join(traceback.format_exception(error))[-1000:]
        else:
            connection.send(('made', damage))
            _limit_memory(MEMORY)
            outcome = judge(TARGETS[name], folder, pristine[base], limit)
            _limit_memory(None)
            if marker.exists():
                outcome = 'executed', *outcome[1:]
        if keep and (keep_good or outcome[0] in BAD):
            keep_mutant(pathlib.Path(keep), name, seed, damage, outcome)
        connection.send(('judged', Verdict(name, seed, damage, *outcome)))


def keep_mutant(keep: pathlib.Path, name: str, seed: int, damage: str, outcome) -> None:
    """Copy the regular files of the mutant in the current folder, and write what became of it."""
    to = keep / f'{name.replace("/", "-")}-{seed}'
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    for path in pathlib.Path('mutant').rglob('*'):
        if path.is_file() and not path.is_symlink():
            (to / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, to / path)
    (to / 'verdict.txt').write_text('\n'.join([damage, *outcome]), errors='backslashreplace')


def _check_pristine(name: str) -> Any:
    """Return what is read of the pristine sample, which the plain reader must agree with."""
    target, folder = TARGETS[name], _sample(name)
    try:
        value = canonical(target.read(folder))
    except Unchecked:
        return None
    if target.oracle is not None:
        expected = canonical(target.oracle(folder))
        if value != expected:
            raise AssertionError(f'{name}, pristine: {_difference(value, expected)}')
    return value


def _quiet() -> None:
    """Send what libraries print to a file beside the folder, and answer every question with yes."""
    errors = os.open(_HOME / 'stderr', os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    (_HOME / 'stdin').write_text('y\n' * 1000)
    os.dup2(os.open(_HOME / 'stdin', os.O_RDONLY), 0)


def _limit_memory(more: int | None) -> None:
    """Allow so many bytes of address space more than there are now; None allows any number."""
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    pages = int(pathlib.Path('/proc/self/statm').read_text().split()[0])
    limit = most if more is None else pages * os.sysconf('SC_PAGE_SIZE') + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
