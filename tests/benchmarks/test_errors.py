"""How often methods err: the table is of the command, keeps its promise, and comes out again."""

import dataclasses

import numpy as np
import pytest

from benchmarks import errors, worlds
from bert_secrets_jax.stats import student
from tests.words import longest_sentence

QUESTIONS = errors.read()
# Those whose worlds take a few milliseconds.
CHEAP = [
    'best', 'decided', 'few decided', 'most', 'random head', 'ratio', 'share',
    'agreement', 'statistics', 'tuned accuracy', 'tuned correlation', 'tuned F1',
]  # fmt: skip


def test_the_table_is_as_the_command_writes_it(tmp_path, monkeypatch, capsys):
    text = errors.TABLE.read_text('utf-8')
    assert errors.as_toml(QUESTIONS) == text and list(QUESTIONS) == list(worlds.DRAWS)
    copy = tmp_path / 'table.toml'
    copy.write_text(text, 'utf-8')
    monkeypatch.setattr('sys.argv', ['errors', '--worlds=7', '--only=share', f'--table={copy}'])
    errors.main()
    written = errors.read(copy)
    assert [each.worlds for each in written['share'].cells] == [7, 7]
    assert {**written, 'share': QUESTIONS['share']} == QUESTIONS
    assert 'normal, 300: covered ' in capsys.readouterr().out


@pytest.mark.parametrize('name', QUESTIONS)
def test_methods_err_as_seldom_as_they_promise_or_say_why(name):
    for cell in QUESTIONS[name].cells:
        assert cell.worlds >= 100 and cell.rates.keys() <= set(errors.RATES)
        assert cell.within != bool(cell.exception), cell
        assert not cell.exception or longest_sentence(cell.exception) <= 25


def simulated_again(name, most):
    """Return where another simulation of a method says something else, or breaks the promise."""
    wrong = []
    for cell in QUESTIONS[name].cells:
        found = errors.measured(name, cell, min(most, cell.worlds))
        wrong += errors.beyond_chance(found, cell)
        if not (found.within or cell.exception):
            wrong.append(f'{found.world}, {found.size}: beyond the limits')
    return wrong


@pytest.mark.parametrize('name', CHEAP)
def test_cheap_methods_err_as_the_table_says(name):
    assert not simulated_again(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize('name', QUESTIONS)
def test_methods_err_as_the_table_says(name):
    """In as many worlds as the table has: after a change of a method, all numbers are new."""
    assert not simulated_again(name, 1000)


@pytest.mark.parametrize('name', ['share', 'ratio'])
def test_a_method_that_errs_is_noticed(name, monkeypatch):
    """Intervals half as wide."""
    reach = student.reach
    monkeypatch.setattr(student, 'reach', lambda *given, **how: reach(*given, **how) / 2)
    assert simulated_again(name, 100)


def test_what_chance_can_do_is_no_difference():
    cell = errors.Cell('normal', 300, 1000, {'error': 0.05, 'covered': 1.0})
    near = dataclasses.replace(cell, worlds=200, rates={'error': 0.09, 'covered': 0.99})
    far = dataclasses.replace(cell, worlds=200, rates={'error': 0.13, 'covered': 0.95})
    assert not [*errors.beyond_chance(near, cell)]
    assert [each.split(': ')[1].split()[0] for each in errors.beyond_chance(far, cell)] == [
        'error', 'covered',
    ]  # fmt: skip


def test_the_truth_of_worlds():
    """Changes have a mean of 0, and about the same variance."""
    rng = np.random.default_rng(0)
    for world in ('normal', 'skewed', 'lognormal', 'masks are alike', *worlds.SHARES):
        values = worlds.changes(rng, world, (4, 200_000))
        np.testing.assert_allclose(values.mean(), 0, atol=0.02)
        np.testing.assert_allclose(values.var(), 1, atol=0.15)
