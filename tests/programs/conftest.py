"""Programs within this process: no cache of compiled programs, no loggers that others would see."""

import pytest

from bert_secrets_jax.programs import api, conversation
from tests.experiments.conftest import checkpoint  # noqa: F401


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Leave the settings of JAX and of logging as they are."""
    monkeypatch.setattr(conversation, 'enable_cache', str)
    monkeypatch.setattr(api, 'enable_cache', str)
    monkeypatch.setattr(conversation, 'set_up_logging', str)
