"""The study of a tiny model, as the tests of programs have it, and labelled maps for it."""

import numpy as np
import pytest

from tests.programs.conftest import study  # noqa: F401
from tools.patterns.maps import MapSample

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
