"""The study of a tiny model, as the tests of programs have it."""

from tests.experiments.conftest import checkpoint  # noqa: F401
from tests.programs.conftest import study  # noqa: F401
