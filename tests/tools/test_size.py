"""The package and the tests are no larger than they may be."""

import pytest

from tools import size

SOURCE = '''"""A docstring."""
import os

def double(x):
    """Another one."""
    return 2 * x
'''


@pytest.mark.parametrize('name', ['bert_secrets_jax', 'tests'])
def test_nothing_grows(name):
    found, most = size.size_of(size.ROOT / name), size.allowed()[name]
    assert found.nodes <= most.nodes and found.lines <= most.lines, (
        f'{name} has {found}, and may have {most}: delete as much as you add.'
    )


def test_a_fifth_of_an_analysis_presents_it():
    lines, whole = size.presentation(size.ROOT / 'bert_secrets_jax/analyses')
    assert 0.1 * whole < lines <= 0.2 * whole


def test_docstrings_imports_and_formatting_are_no_nodes(tmp_path):
    (tmp_path / 'one.py').write_text(SOURCE)
    # The function, `return`, the product and its two factors.
    assert size.size_of(tmp_path) == (5, 6)
    (tmp_path / 'one.py').write_text('def double(x): return (2 *\n x)\n')
    assert size.size_of(tmp_path) == (5, 2)
