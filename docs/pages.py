"""Pages that only the site has: the API, and the notebook with its outputs (a hook of mkdocs)."""

import ast
import json
import pathlib

from mkdocs.structure.files import File, Files

PACKAGE = pathlib.Path(__file__).parents[1] / 'bert_secrets_jax'
NOTEBOOK = pathlib.Path('tutorials') / 'first_notebook.ipynb'


def on_files(files: Files, config) -> Files:
    """Add both pages to the files of the site."""
    text = notebook((pathlib.Path(config.docs_dir) / NOTEBOOK).read_text('utf-8'))
    pages = {'reference/api.md': api(), str(NOTEBOOK.with_suffix('.md')): text}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Lead links to the notebook to its page."""
    return markdown.replace(f'{NOTEBOOK.name})', f'{NOTEBOOK.stem}.md)')


def api() -> str:
    """Return the page of all public names, grouped as they are reached."""
    lines = ['# API\n']
    for group in ('', '.analyses', '.plots', '.masks'):
        lines.append(f'\n## bs{group}\n')
        lines += [f'\n::: {name}\n' for name in _names(PACKAGE, f'bert_secrets_jax{group}')]
    return ''.join(lines)


def _names(package: pathlib.Path, name: str) -> list[str]:
    """Return where the public functions and classes of a package are written."""
    if name.endswith('.masks'):
        return ['bert_secrets_jax.ablation.masks']
    tree = ast.parse(package.joinpath(*name.split('.')[1:], '__init__.py').read_text('utf-8'))
    found = [
        (line.module, alias.name)
        for line in ast.walk(tree)
        if isinstance(line, ast.ImportFrom) and line.module.startswith('bert_secrets_jax.')
        for alias in line.names
    ]
    folders = {
        (module, member): package.joinpath(*module.split('.')[1:]) for module, member in found
    }
    names = [
        each
        for each, folder in folders.items()
        if not any((folder / f'{each[1]}{ending}').exists() for ending in ('', '.py'))
    ]
    return ['.'.join(each) for each in sorted(names, key=lambda each: each[1].lower())]


def notebook(text: str) -> str:
    """Return a notebook as Markdown, with its pictures and tables."""
    lines = []
    for cell in json.loads(text)['cells']:
        source = ''.join(cell['source'])
        lines.append(source if cell['cell_type'] == 'markdown' else f'```python\n{source}\n```')
        lines += [_shown(output) for output in cell.get('outputs', [])]
    return '\n\n'.join(lines)


def _shown(output: dict) -> str:
    data = output.get('data', {})
    if 'image/png' in data:
        return f'<img alt="" src="data:image/png;base64,{"".join(data["image/png"]).strip()}">'
    if 'text/html' in data:
        # A blank line would end the block of HTML.
        return '\n'.join(filter(str.strip, ''.join(data['text/html']).splitlines()))
    said = ''.join(output.get('text') or data.get('text/plain', ''))
    return f'```text\n{said}\n```'
