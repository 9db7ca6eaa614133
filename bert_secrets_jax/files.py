"""Files that are either complete or not there."""

import io
import pathlib
import zipfile
from collections.abc import Mapping

import numpy as np


def write_atomically(path: pathlib.Path, data: bytes) -> None:
    """Write a file so that a run killed in the middle leaves the former one, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + '.partial')
    partial.write_bytes(data)
    partial.replace(path)


def write_arrays(path: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays (.npz) as `write_atomically` does."""
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)
    write_atomically(path, data.getvalue())


def read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Read what `write_arrays` wrote.

    Raises:
      ValueError: when the file is damaged.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (zipfile.BadZipFile, EOFError, ValueError) as error:
        raise ValueError(f'{path} is damaged: delete it to measure anew.') from error
