"""Files that are either complete or not there."""

import pathlib


def write_atomically(path: pathlib.Path, data: bytes) -> None:
    """Write a file so that a run killed in the middle leaves the former one, or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + '.partial')
    partial.write_bytes(data)
    partial.replace(path)
