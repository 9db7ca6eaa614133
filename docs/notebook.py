"""Run the notebook of the tutorials, and write it with its outputs: `python docs/notebook.py`."""

import pathlib
import tempfile

import nbclient
import nbformat

NOTEBOOK = pathlib.Path(__file__).parent / 'tutorials' / 'first_notebook.ipynb'


def executed(folder: str) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a run in a folder."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {'metadata': {'path': folder}}
    nbclient.NotebookClient(
        notebook, timeout=1800, kernel_name='python3', resources=resources
    ).execute()
    return notebook


def shown(output: nbformat.NotebookNode) -> bool:
    """Return whether a code host shows it: no progress bars, and no pages that need scripts."""
    return output.get('name') != 'stderr' and '<script' not in output.get('data', {}).get(
        'text/html', ''
    )


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as folder:
        done = executed(folder)
    for cell in done.cells:
        cell.metadata.pop('execution', None)
        if cell.cell_type == 'code':
            cell.outputs = [*filter(shown, cell.outputs)]
            for output in cell.outputs:
                # Names and addresses of objects say nothing where there is a picture.
                if 'image/png' in output.get('data', {}):
                    output.data.pop('text/plain', None)
    nbformat.write(done, NOTEBOOK)
