"""The size of the package and of its tests, in nodes of the syntax tree and in lines.

    python -m tools.size           # what they are, and what they may be
    python -m tools.size --lower   # write what they are to size.toml, where it is less

Neither formatting nor docstrings nor imports change the number of nodes.
"""

import argparse
import ast
import pathlib
import tomllib
from typing import NamedTuple

FILE = pathlib.Path(__file__).with_name('size.toml')
ROOT = FILE.parents[1]


class Size(NamedTuple):
    """A number of nodes, statements and expressions, and a number of lines."""

    nodes: int
    lines: int


def size_of(folder: pathlib.Path) -> Size:
    """Return the size of all Python files in a folder."""
    texts = [file.read_text('utf-8') for file in sorted(folder.rglob('*.py'))]
    return Size(sum(map(_nodes, texts)), sum(text.count('\n') for text in texts))


def allowed() -> dict[str, Size]:
    """Return what the size of each folder may be at most."""
    return {name: Size(**most) for name, most in tomllib.loads(FILE.read_text('utf-8')).items()}


def _nodes(text: str) -> int:
    count, left = 0, [ast.parse(text)]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        count += isinstance(node, ast.stmt | ast.expr)
        children = list(ast.iter_child_nodes(node))
        has_docstring = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and ast.get_docstring(node, clean=False)
        left += [each for each in children if not (has_docstring and each is node.body[0])]
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--lower', action='store_true', help='write what is less to size.toml')
    # The comment above the numbers stays.
    lower, texts = parser.parse_args().lower, [FILE.read_text('utf-8').partition('\n\n')[0] + '\n']
    for name, most in allowed().items():
        found = size_of(ROOT / name)
        print(f'{name}: {found.nodes:,} nodes of {most.nodes:,}; {found.lines:,} lines of '
              f'{most.lines:,}')  # fmt: skip
        least = Size(*map(min, found, most))
        texts.append(f'[{name}]\nnodes = {least.nodes:_}\nlines = {least.lines:_}\n')
    if lower:
        FILE.write_text('\n'.join(texts), 'utf-8')


if __name__ == '__main__':
    main()
