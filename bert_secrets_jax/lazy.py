"""Public names that load their module when they are first used (PEP 562).

JAX alone takes seconds to import on a small machine, Matplotlib, spaCy and tensorflow-datasets as
many again, and nobody uses all of them in one session.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def attach(
    package: str,
    *,
    members: Mapping[str, Sequence[str]] = {},
    modules: Mapping[str, str] = {},
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for the `__init__.py` of a package.

    Args:
      package: The package, its `__name__`.
      members: Module, relative to the package, to the names that are taken from it.
      modules: Public name to the module, relative to the package, that it stands for.

    Raises:
      ValueError: A name occurs twice.
    """
    homes = {name: (module, name) for module, names in members.items() for name in names}
    homes |= {name: (module, None) for name, module in modules.items()}
    count = sum(map(len, members.values())) + len(modules)
    if len(homes) < count:
        raise ValueError(f'{package} has a public name with two homes.')

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        module, member = homes[name]
        loaded = importlib.import_module(f'{package}.{module}')
        value = loaded if member is None else getattr(loaded, member)
        # The next use finds it without coming here.
        setattr(sys.modules[package], name, value)
        return value

    def listing() -> list[str]:
        special = [name for name in vars(sys.modules[package]) if name.startswith('__')]
        return sorted({*special, *homes})

    return load, listing, sorted(homes)
