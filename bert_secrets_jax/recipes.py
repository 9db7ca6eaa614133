"""Settings that functions take as keyword arguments, and hand on whole."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar('T')


def recipe(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return the settings that a function was given.

    Args:
      kind: A frozen dataclass of all settings.
      given: Some of them by name; the others have their defaults.

    Raises:
      TypeError: A setting is unknown, or one without a default is missing.
      ValueError: A setting is out of range.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    unknown = [name for name in given if name not in known]
    if unknown:
        raise TypeError(
            f'There is no setting {", ".join(map(repr, unknown))}: choose among {", ".join(known)}.'
        )
    return kind(**given)
