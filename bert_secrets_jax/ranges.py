"""Ranges of numbers that are stated once, checked, and named in errors."""

import dataclasses
import numbers
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from bert_secrets_jax.checks import shortened


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that something may be, from `least` to `most`.

    Attributes:
      whole: Whether only whole numbers are meant. A boolean is none.
      without: One of the ends that is itself out of range; None if both are in it.
      optional: Whether None is allowed, too.
    """

    least: int | float
    most: int | float
    whole: bool = True
    without: int | float | None = None
    optional: bool = False

    def __contains__(self, value: Any) -> bool:
        if value is None:
            return self.optional
        kind = numbers.Integral if self.whole else numbers.Real
        is_number = issubclass(type(value), kind) and not issubclass(type(value), bool)
        # NaN is not between any two numbers.
        return is_number and self.least <= value <= self.most and value != self.without

    def __str__(self) -> str:
        kind = 'a whole number' if self.whole else 'a number'
        but = '' if self.without is None else f', but not {self.without:,g}'
        none = ', or nothing' if self.optional else ''
        return f'{kind} from {_spelled(self.least)} to {_spelled(self.most)}{but}{none}'


# Numbers of several arguments.
Count = Annotated[int, Range(1, 1_000_000_000)]
CountOrZero = Annotated[int, Range(0, 1_000_000_000)]
Positive = Annotated[float, Range(0.0, 1e30, whole=False, without=0.0)]
# A share of something that is neither nothing nor all of it.
Part = Annotated[float, Range(1e-6, 1 - 1e-6, whole=False)]


def _spelled(number: int | float) -> str:
    return f'{number:,}' if isinstance(number, int) else f'{number:g}'


def ranges_of(kind: Any) -> dict[str, Range]:
    """Return the ranges that stand on the fields of a dataclass, by name."""
    return {
        field.name: typing.get_args(field.type)[1]
        for field in dataclasses.fields(kind)
        if typing.get_origin(field.type) is Annotated
    }


def check_ranges(given: Any, ranges: Mapping[str, Range] | None = None) -> None:
    """Refuse settings, given as attributes, that are out of range, with an error that names one.

    Ranges are given by name, or stand on the fields of the dataclass.
    """
    for name, allowed in (ranges_of(given) | dict(ranges or {})).items():
        if getattr(given, name) not in allowed:
            raise ValueError(f'{name}={shortened(getattr(given, name))} must be {allowed}.')
