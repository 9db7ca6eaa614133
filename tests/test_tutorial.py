"""The notebook runs as it stands, shows its pictures, and its tasks take at most five lines."""

import ast
import json
import re
import runpy

import pytest

from tests.conftest import ROOT

PATH = ROOT / 'docs' / 'tutorials' / 'first_notebook.ipynb'
# The most lines of code in a task, and bytes of a picture (as Base64).
LINES, PICTURE = 5, 80_000


@pytest.fixture(scope='module')
def cells() -> list[dict]:
    return json.loads(PATH.read_text('utf-8'))['cells']


def tasks_of(cells):
    """Return the kinds of outputs of each cell of code, by the number of its task."""
    tasks, number = {}, 0
    for cell in cells:
        if heading := re.match(r'## (\d+)\. ', ''.join(cell['source'])):
            tasks[number := int(heading[1])] = set()
        for output in cell.get('outputs', []):
            assert output['output_type'] != 'error'
            tasks[number] |= output.get('data', {}).keys()
    return tasks


def test_tasks_are_short_and_import_the_package_alone(cells):
    assert list(tasks_of(cells)) == list(range(1, 10))
    for cell in cells:
        code = ''.join(cell['source'])
        if cell['cell_type'] == 'code':
            lines = [line for line in code.splitlines() if line.strip()]
            assert len(lines) <= LINES and max(map(len, lines)) <= 120, code
            for node in ast.walk(ast.parse(code)):
                assert not isinstance(node, ast.ImportFrom), code
                if isinstance(node, ast.Import):
                    assert {each.name for each in node.names} == {'bert_secrets_jax'}, code


def test_it_is_committed_with_pictures(cells):
    for cell in cells:
        for output in cell.get('outputs', []):
            data = output.get('data', {})
            assert len(''.join(data.get('image/png', ''))) <= PICTURE
            assert '<script' not in ''.join(data.get('text/html', ''))
            assert output.get('name') != 'stderr'
    shown = tasks_of(cells)
    assert all('image/png' in shown[task] for task in (2, 4, 5, 7, 8))
    assert all('text/html' in shown[task] for task in (3, 8))


@pytest.mark.slow
def test_it_runs(tmp_path):
    pytest.importorskip('nbclient')
    notebook = runpy.run_path(str(ROOT / 'docs' / 'notebook.py'))['executed'](str(tmp_path))
    shown = tasks_of(notebook.cells)
    assert all('image/png' in shown[task] for task in (2, 4, 5, 7, 8))
    # The explorer, and frames.
    assert all('text/html' in shown[task] for task in (2, 3, 8))
    assert {path.name for path in tmp_path.iterdir()} >= {'ablated.npz', 'my_model'}
