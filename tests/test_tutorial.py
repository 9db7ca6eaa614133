"""The tutorial runs as it stands, and each of its tasks takes at most five lines from `bs`."""

import ast
import json
import re

import pytest

from tests.conftest import ROOT

PATH = ROOT / 'docs' / 'tutorial.ipynb'
TASKS = 15
LINES = 5


@pytest.fixture(scope='module')
def cells() -> list[dict]:
    return json.loads(PATH.read_text('utf-8'))['cells']


def code_of(cells: list[dict]) -> list[str]:
    return [''.join(cell['source']) for cell in cells if cell['cell_type'] == 'code']


def test_it_has_fifteen_tasks_of_at_most_five_lines(cells):
    """Each begins with a heading and a sentence, and has code."""
    lines = {}
    for cell in cells:
        text = ''.join(cell['source'])
        if text.startswith('##'):
            number = re.match(r'## (\d+)\. .+\n\n.*[.:]$', text, re.DOTALL)[1]
            lines[int(number)] = []
        # Writing a file that a reader has already is no part of a task.
        elif cell['cell_type'] == 'code' and not text.startswith("with open('mine.csv', 'w'"):
            lines[next(reversed(lines))] += [line for line in text.splitlines() if line.strip()]
    assert list(lines) == list(range(1, TASKS + 1))
    for task, code in lines.items():
        assert 0 < len(code) <= LINES, task
        assert all(len(line) <= 120 for line in code), task


def test_nothing_below_the_package_is_imported(cells):
    for code in code_of(cells):
        for node in ast.walk(ast.parse(code)):
            assert not isinstance(node, ast.ImportFrom), code
            if isinstance(node, ast.Import):
                names = {each.name for each in node.names}
                assert names <= {'bert_secrets_jax', 'jax', 'jax.numpy', 'numpy'}, code
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith('_'), code


def test_it_is_committed_without_outputs(cells):
    for cell in cells:
        if cell['cell_type'] == 'code':
            assert not cell['outputs'] and cell['execution_count'] is None


@pytest.mark.slow
def test_it_runs(tmp_path):
    nbformat = pytest.importorskip('nbformat')
    nbclient = pytest.importorskip('nbclient')
    notebook = nbformat.read(PATH, as_version=4)
    resources = {'metadata': {'path': str(tmp_path)}}
    client = nbclient.NotebookClient(
        notebook, timeout=1800, kernel_name='python3', resources=resources
    )
    client.execute()
    frames, pictures, views = set(), set(), set()
    for cell in notebook.cells:
        heading = re.match(r'## (\d+)', cell.source)
        if heading:
            task = int(heading[1])
        for output in cell.get('outputs', []):
            assert output.output_type != 'error'
            data = output.get('data', {})
            if 'image/png' in data:
                pictures.add(task)
            elif 'class="dataframe"' in data.get('text/html', ''):
                frames.add(task)
            elif 'text/html' in data:
                views.add(task)
    assert frames >= {3, 5, 6, 7, 10, 11, 12, 15}
    assert pictures >= {2, 4, 8, 9, 14}
    # The explorer.
    assert views >= {2}
    # Files that the reader finds afterwards.
    files = {path.name for path in tmp_path.iterdir()}
    assert files >= {'l1h2.pdf', 'mine.csv', 'ablated.npz', 'my_model'}
