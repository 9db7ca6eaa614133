"""Programs within this process: no cache of compiled programs, no loggers that others would see."""

import pytest

from bert_secrets_jax.programs import api, launch
from tests.experiments.conftest import checkpoint  # noqa: F401


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Leave the settings of JAX and of logging as they are."""
    monkeypatch.setattr(launch, 'enable_cache', str)
    monkeypatch.setattr(api, 'enable_cache', str)
    monkeypatch.setattr(launch, 'set_up_logging', str)
