"""Dataclasses come back from their files as they were, and damaged files say so."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_secrets_jax.measure.tables import HeadTable
from bert_secrets_jax.runs import store


@dataclasses.dataclass(frozen=True)
class Inner:
    values: np.ndarray
    name: str


@dataclasses.dataclass(frozen=True)
class Outer:
    number: float
    count: int
    maybe: Inner | None
    by_name: Mapping[str, Inner]
    rows: tuple[tuple[str, ...], ...]
    places: Mapping[str, tuple[int, int]]
    history: list[dict[str, Any]]
    tables: Mapping[str, Mapping[str, HeadTable]]


def example(**changes) -> Outer:
    inner = Inner(np.arange(6.0).reshape(2, 3), 'é "quoted" \n')
    table = HeadTable(np.ones((1, 2), np.float32), np.full((1, 2), np.nan, np.float32), 3.0)
    values = {
        'number': 0.1,
        'count': 3,
        'maybe': None,
        'by_name': {'a/b': inner, '': inner},
        'rows': (('a', 'b'), ()),
        'places': {'L1-H2': (0, 1)},
        'history': [{'seed': 0, 'loss': 0.5, 'split': 'dev'}, {}],
        'tables': {'0': {'[CLS]': table}},
    }
    return Outer(**values | changes)


def test_what_was_written_is_read(tmp_path):
    before = example(maybe=Inner(np.array(['x', 'yz']), 'n'))
    store.write(tmp_path / 'a.npz', before)
    after = store.read(tmp_path / 'a.npz', Outer)
    np.testing.assert_equal(dataclasses.asdict(after), dataclasses.asdict(before))
    assert after.rows == before.rows and after.places == before.places
    table = after.tables['0']['[CLS]']
    assert isinstance(table, HeadTable) and table.mean.dtype == np.float32


@given(st.floats(allow_nan=False), st.integers(-(2**62), 2**62), st.text())
@settings(max_examples=50)
def test_numbers_and_texts_come_back_exactly(tmp_path_factory, number, count, text):
    path = tmp_path_factory.mktemp('store') / 'a.npz'
    store.write(path, example(number=number, count=count, maybe=Inner(np.zeros(0), text)))
    after = store.read(path, Outer)
    assert (after.number, after.count, after.maybe.name) == (number, count, text)


def test_what_cannot_be_stored_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"Outer.by_name\['x'\].*function"):
        store.write(tmp_path / 'a.npz', example(by_name={'x': example}))
    assert not (tmp_path / 'a.npz').exists()


def test_another_class_or_version_is_refused(tmp_path):
    path = tmp_path / 'a.npz'
    store.write(path, Inner(np.zeros(1), 'n'))
    with pytest.raises(ValueError, match='holds Inner, not Outer'):
        store.read(path, Outer)
    with pytest.raises(ValueError, match='is of another version'):
        store.read(path, type('Inner', (Inner,), {'FORMAT': 2}))
