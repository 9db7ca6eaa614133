"""Public names that load their module when they are first used (PEP 562).

JAX alone takes seconds to import on a small machine, Matplotlib, spaCy and tensorflow-datasets as
many again, and nobody uses all of them in one session.
"""

import ast
import functools
import importlib
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

from bert_secrets_jax import extras
from bert_secrets_jax.arguments import checked

# A function with two public names is the same under both.
_checked = functools.cache(checked)


def door(package: str, value: Any) -> Any:
    """Return a public value; if it is a function, as one that checks what users give it.

    The package itself imports from modules, where nothing is checked again.
    """
    if isinstance(value, types.FunctionType):
        value = _checked(value)
        # By this name it is found again where it is pickled.
        value.__module__ = package
    return value


def public_names(file: str | pathlib.Path) -> dict[str, tuple[str, str]]:
    """Return the module and the member that each public name of an `__init__.py` stands for."""
    return {
        alias.asname or alias.name: (line.module, alias.name)
        for block in ast.parse(pathlib.Path(file).read_text(encoding='utf-8')).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == 'TYPE_CHECKING'
        for line in block.body
        if isinstance(line, ast.ImportFrom) and line.module is not None
        for alias in line.names
    }


def attach(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, by its name and `__init__.py`.

    The public names are those that this file imports under `if TYPE_CHECKING:`, for editors and
    type checkers. Python skips these imports; each happens when its name is first used.

    A function stays a function where a module of the package has its name, as `finetune` and the
    folder that it is made of. Python binds a module to its name in the package as soon as it is
    imported, and the function would depend on what was imported before.
    """
    homes = public_names(file)

    class Package(types.ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            is_module = isinstance(value, types.ModuleType)
            if not (is_module and name in homes and value.__name__ != '.'.join(homes[name])):
                super().__setattr__(name, value)

    sys.modules[package].__class__ = Package

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        module, member = homes[name]
        if module == package:
            value = importlib.import_module(f'{package}.{member}')
        else:
            try:
                # As `from module import member` does, whose member may be a module, too.
                value = getattr(__import__(module, fromlist=[member]), member)
            except ModuleNotFoundError as error:
                # The package of matplotlib.axes is matplotlib.
                extras.require(str(error.name).partition('.')[0])
                raise
            # Figures are drawn of numbers that have been computed.
            if not package.endswith('.plots'):
                value = door(package, value)
        # The next use finds it without coming here.
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        special = [name for name in vars(sys.modules[package]) if name.startswith('__')]
        return sorted({*special, *homes})

    return load, listing, sorted(homes)
