"""Files that are either complete or not there."""

import csv
import io
import os
import pathlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np


def write_atomically(path: pathlib.Path, data: bytes) -> None:
    """Write a file so that a run killed in the middle leaves the former one, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Named after the process, so that two that write the same file do not share the half of it.
    partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays (.npz) as `write_atomically` does."""
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    write_atomically(path, data.getvalue())


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote.

    Raises:
      FileNotFoundError: There is no such file.
      ValueError: The file is damaged, or no such archive.
    """
    try:
        # Opened here: of a damaged archive NumPy leaves the file open.
        with path.open('rb') as data, np.load(data) as arrays:
            return dict(arrays)
    except FileNotFoundError:
        raise
    # Whatever the readers of a damaged archive happen to raise; an array that was loaded
    # by itself (.npy) is no mapping.
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, KeyError, OSError,
            NotImplementedError) as error:  # fmt: skip
        raise ValueError(f'{path} is damaged: delete it to compute it again.') from error


def write_csv(path: pathlib.Path, columns: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write a table as `write_atomically` does; floats keep every digit that float32 has.

    Args:
      path: The file to write.
      columns: Names for the first line.
      rows: One sequence of values per row, in the order of the columns.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator='\n')
    writer.writerow(columns)
    for row in rows:
        writer.writerow(
            [f'{value:.9g}' if isinstance(value, float | np.floating) else value for value in row]
        )
    write_atomically(path, text.getvalue().encode())
