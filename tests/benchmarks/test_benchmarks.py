"""Benchmarks run, their sides compute the same, and the documents show what was measured.

Each question compares its sides itself, before it times them. Nothing is timed here.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import cases, exactness, table
from benchmarks.timing import PEAK, Question, Way, interleaved, measured
from tests.conftest import ROOT

PARTS = (
    'products', 'forward', 'statistics', 'sweep', 'training', 'patterns', 'clusters', 'norms',
    'removal', 'paths', 'growth',
)  # fmt: skip


def test_differences_are_those_of_the_precision(tmp_path):
    pytest.importorskip('torch')
    case = cases.prepare('tiny', tmp_path, cases.SMOKE)
    (batch,) = exactness.batch_of(case, 32)
    expected = exactness.theirs(case, batch, 'float64', 'highest')
    found = [exactness.ours(case, batch, dtype) for dtype in ('float32', 'bfloat16')]
    fine, rough = (exactness.differences(each, expected, batch) for each in found)
    assert max(fine) < 1e-6
    assert all(100 * a < b < 0.1 for a, b in zip(fine, rough, strict=True))


@pytest.mark.slow
def test_all_benchmarks(tmp_path, glue_dir):
    pytest.importorskip('torch')
    command = [sys.executable, '-m', 'benchmarks', '--smoke', '--nomemory']
    environment = os.environ | {'JAX_PLATFORMS': 'cpu'}
    said = subprocess.check_output(
        [*command, f'--results={tmp_path}', f'--glue_dir={glue_dir}'],
        cwd=ROOT, env=environment, text=True, timeout=600,
    )  # fmt: skip
    (file,) = tmp_path.glob('cpu-*.json')
    results = json.loads(file.read_text())
    assert {each['part'] for each in results} == set(PARTS)
    for each in results:
        assert each['question'] in said
        assert len({len(way['seconds']) for way in each['ways']}) == 1
        assert (table.fastest_peer(each) is None) == (each['part'] == 'growth')
    assert str(glue_dir) not in json.dumps(results)


def test_the_document_shows_the_results():
    results = table.newest(sorted(table.RESULTS.glob('*.json')))
    document = table.DOCUMENT.read_text('utf-8')
    assert table.inserted(document, results) == document
    for result in results:
        row = f'| {result["question"]} | {result["model"]} | '
        assert row in document or 'sizes' in result['told']


def test_ways_take_turns():
    calls = []
    ways = {name: lambda name=name: calls.append(name) for name in 'ab'}
    seconds = interleaved(ways, rounds=3, warm_up=1)
    assert calls == [*'ba', *'ab', *'ba', *'ab']
    assert [len(rounds) for rounds in seconds.values()] == [3, 3]


def test_ways_that_differ_are_not_timed():
    def agree(found):
        np.testing.assert_array_equal(found['ours'], found['theirs'])
        return {'equal to': 0}

    def question(other):
        ways = {
            'ours': Way(lambda: lambda: 1, operations=6),
            'theirs': Way(lambda: lambda: other, scale=1e9, peer=True),
        }
        return Question('adding', 'sums', 3, ways, agree)

    found = measured(question(1), rounds=2, matrix=4)
    assert found['told'] == {'equal to': 0}
    assert [way['name'] for way in found['ways']] == ['ours', 'theirs', PEAK]
    ours, theirs, product = found['ways']
    assert product['operations'] == 64
    # Nothing takes a second, but a thousand million times that does.
    assert max(ours['seconds']) < 1 < min(theirs['seconds'])
    with pytest.raises(AssertionError, match='not equal'):
        measured(question(2), rounds=2, matrix=4)


def _result(**seconds) -> dict:
    return {
        'part': 'forward', 'question': 'a pass', 'about': 'two texts', 'model': 'tiny',
        'device': 'cpu', 'date': '2026-01-01', 'unit': 'examples', 'amount': 2, 'told': {},
        'load': 0.5,
        'ways': [
            {
                'name': name.replace('_', ' '), 'seconds': each, 'operations': 2e12 * index,
                'peer': name.startswith('their'), 'MiB': 3, 'first': 1,
            }
            for index, (name, each) in enumerate(seconds.items(), 1)
        ],
    }  # fmt: skip


def test_numbers_of_a_table():
    result = _result(
        ours=[1, 2, 3], theirs=[2, 6, 6], their_other=[9, 1, 9], matrix_product=[1, 1, 1]
    )
    # The median of the ratios of rounds, not the ratio of the medians.
    assert str(table.ratio(result, 'theirs', 'ours')) == '2.00 (2.00 to 3.00)'
    assert table.fastest_peer(result) == 'theirs'
    assert table.tflops(result, 'ours') == 2
    assert table.share_of_peak(result, 'ours') == 0.125
    assert '2.00 (2.00 to 3.00)' in table.as_text(result)
    place, *_, row = table.as_markdown([result]).splitlines()
    assert place == 'cpu, 2026-01-01:'
    assert row == '| a pass | tiny | 1 examples/s | 2.00 (2.00 to 3.00) |'
