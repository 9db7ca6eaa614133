"""Makers of findings, one for each kind of question that many results answer."""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_secrets_jax.names import head_name
from bert_secrets_jax.paper import rank_correlation
from bert_secrets_jax.runs.result import Finding, framed

if TYPE_CHECKING:
    import pandas

Number = float | int | np.number
# A number with the ends of its interval.
Interval = tuple[float, float, float]
# A number alone, or with the ends of its interval.
Measured = Number | Sequence[Number] | np.ndarray
_FIELDS = {field.name for field in dataclasses.fields(Finding)}


def measured(name: str, number: Measured, **fields: Any) -> Finding:
    """Return the finding of a number, which may have a 95 % interval.

    Fields that no `Finding` has are further numbers and names for its sentence.
    """
    if isinstance(number, np.ndarray):
        number = number.tolist()
    ends = number if isinstance(number, Sequence) else (number, np.nan, np.nan)
    estimate, low, high = map(float, ends)
    return told(name, estimate=estimate, low=low, high=high, **fields)


def told(name: str, numbers: Mapping[str, Any] = MappingProxyType({}), **fields: Any) -> Finding:
    """Return a finding; fields that it does not have are numbers and names for its sentence."""
    known = {key: fields.pop(key) for key in _FIELDS & fields.keys()}
    return Finding(name=name, numbers={**numbers, **fields}, **known)


def extreme(name: str, head: tuple[int, int], number: Measured, **fields: Any) -> Finding:
    """Return the finding of the head (from 0) in which a number is greatest or least."""
    return measured(name, number, where=head_name(*head), **fields)


def how_many(name: str, those: np.ndarray, kind: str = 'heads', **fields: Any) -> Finding:
    """Return the finding of how many of some things are so, such as significant."""
    count = int(np.count_nonzero(those))
    return told(name, estimate=count, unit=f'of {np.size(those):,} {kind}', **fields)


def agreement_of_grids(
    name: str, ours: np.ndarray, theirs: np.ndarray | None, **fields: Any
) -> list[Finding]:
    """Return how two grids [L, N] agree, over heads and over layers; nothing of other shapes."""
    rank, (layers, heads) = rank_correlation(ours, theirs), ours.shape
    if rank is None:
        return []
    found = {
        name: {'estimate': rank.heads, 'sample': layers * heads, 'sample_of': 'heads'},
        f'{name}, by layer': {'estimate': rank.layers, 'sample': layers, 'sample_of': 'layers'},
    }
    return [
        Finding(name=label, unit='rank correlation', **numbers, **fields)
        for label, numbers in found.items()
        if not math.isnan(numbers['estimate'])
    ]


def noted(notes: Mapping[str, object]) -> list[str]:
    """Return the notes, which come with whether they apply, that do."""
    return [note for note, applies in notes.items() if applies]


def findings_frame(findings: Sequence[Finding]) -> 'pandas.DataFrame':
    """Return a frame with a row for each finding, of which a person reads some of the columns."""
    fields = (
        'name', 'where', 'estimate', 'low', 'high', 'unit', 'p', 'sample', 'sample_of', 'source',
        'sentence',
    )  # fmt: skip
    columns = ('finding', *fields[1:])
    frame = framed(columns, list(map(operator.attrgetter(*fields), findings)))
    frame.attrs['shown'] = list(columns[:-2])
    return frame
