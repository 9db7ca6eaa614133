"""The CSV files of a run as pandas frames, and the record of what was written."""

import csv
import io
import pathlib
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_secrets_jax.checks import check_rules
from bert_secrets_jax.files import (
    differing,
    from_cell,
    long_fields,
    of_kind,
    read_json,
    read_text,
    unsealed,
)

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

    if (workdir / 'config.json').exists():
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
    runs = sorted(path.parent for path in workdir.glob('*/config.json'))
    if not runs:
        raise FileNotFoundError(
            f'{workdir} is not the folder of a run, nor a folder of some: no config.json there.'
        )
    parts = {}
    for run in runs:
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
        case {
            'files': [*files],
            'pictures': [*pictures],
            'sha256_of': {**sums},
            'numbers': dict(),
            'used': str(),
        } if all(isinstance(each, list) and len(each) == 2 for each in pictures):
            names = [*files, *sums, *(name for name, _ in pictures)]
            texts = [*names, *(caption for _, caption in pictures)]
            return all(isinstance(each, str) for each in texts) and all(map(_is_within, names))
    return False


def _is_within(name: str) -> bool:
    """Whether a path is relative, and stays within the folder that it is relative to."""
    path = pathlib.PurePath(name)
    return not path.is_absolute() and '..' not in path.parts and '\0' not in name
