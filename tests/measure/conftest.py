"""Fixtures of the tests of measures."""

import jaxtyping
import pytest


@pytest.fixture
def unchecked():
    """Leave arguments to the library's own checks, as for users, who have no others."""
    jaxtyping.config.update('jaxtyping_disable', True)
    yield
    jaxtyping.config.update('jaxtyping_disable', False)
