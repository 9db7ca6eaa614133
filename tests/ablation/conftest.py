"""What the tests of this folder share."""

import jaxtyping
import pytest


@pytest.fixture
def untyped():
    """Call functions as users do: annotated shapes are executed in tests alone."""
    jaxtyping.config.update('jaxtyping_disable', True)
    yield
    jaxtyping.config.update('jaxtyping_disable', False)
