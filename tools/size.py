"""The size of the package and of its tests, in nodes of the syntax tree and in lines.

    python -m tools.size           # what they are, and what they may be; and what presents results
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


def presentation(folder: pathlib.Path) -> tuple[int, int]:
    """Return the lines that present results in a folder of analyses, and all of its lines.

    They are the methods of classes, but for numbers that are public and documented, and the
    functions that only such methods call.
    """
    lines = whole = 0
    for file in sorted(folder.glob('*.py')):
        text = file.read_text('utf-8')
        body, whole = ast.parse(text).body, whole + text.count('\n')
        functions = {each.name: each for each in body if isinstance(each, ast.FunctionDef)}
        known, left = set(), [name for name in functions if not name.startswith('_')]
        while left:
            known.add(name := left.pop())
            called = {each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)}
            left += [each for each in called & functions.keys() if each not in known]
        methods = [
            each
            for kind in body
            if isinstance(kind, ast.ClassDef)
            for each in kind.body
            if isinstance(each, ast.FunctionDef)
            and (each.name.startswith('_') or not ast.get_docstring(each))
        ]
        shown = methods + [each for name, each in functions.items() if name not in known]
        for each in shown:
            first = min(part.lineno for part in [each, *each.decorator_list])
            lines += each.end_lineno - first + 1
    return lines, whole


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
    shown, whole = presentation(ROOT / 'bert_secrets_jax/analyses')
    print(f'analyses: {shown:,} of {whole:,} lines present results ({shown / whole:.1%})')
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
