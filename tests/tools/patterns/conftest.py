"""The study of a tiny model, as the tests of programs have it, and labelled maps for it."""

import pathlib

import numpy as np

from bert_secrets_jax.files import write_csv
from bert_secrets_jax.patterns.classes import CLASSES
from tests.experiments.conftest import checkpoint  # noqa: F401
from tests.programs.conftest import study  # noqa: F401
from tools.patterns.sample import (
    COLUMNS,
    LABELS_FILE,
    MAPS_FILE,
    read_annotated,
    row_of,
    write_maps,
)


def write_annotated(folder: pathlib.Path, count: int) -> None:
    """Write the first so many maps of each class that ship, with their labels."""
    maps, labels = read_annotated()
    classes = range(len(CLASSES))
    chosen = np.concatenate([np.flatnonzero(labels == each)[:count] for each in classes])
    maps = maps.take(chosen)
    write_maps(folder / MAPS_FILE, maps)
    named = enumerate(CLASSES[label] for label in labels[chosen])
    write_csv(folder / LABELS_FILE, COLUMNS, [row_of(maps, *each) for each in named])
