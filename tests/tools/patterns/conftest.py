"""The study of a tiny model, as the tests of programs have it, and labelled maps for it."""

import pathlib

import numpy as np
import pytest

from bert_secrets_jax.files import write_csv
from bert_secrets_jax.patterns.classes import CLASSES
from bert_secrets_jax.patterns.fit import MapSample
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

LENGTHS = (5, 7, 6, 4)


@pytest.fixture
def maps():
    """Four maps, with names that a table must quote."""
    rng = np.random.default_rng(0)
    return MapSample(
        values=[rng.dirichlet(np.ones(length), length) for length in LENGTHS],
        first_text=np.array([5, 3, 4, 4]),
        source=np.array(['a, b', 'a, b', 'é', 'c']),
        example=np.array(['own/0', 'own/1', 'own/10', '=3']),
        layer=np.array([0, 1, 2, 0]),
        head=np.array([3, 0, 1, 11]),
        text=np.arange(4),
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
