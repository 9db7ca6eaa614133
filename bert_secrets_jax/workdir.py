"""The folder of one run: its config and versions, so that results stay explained and can resume."""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import jax

from bert_secrets_jax.files import write_atomically

_PACKAGES = (
    'bert_secrets_jax',
    'jax',
    'jaxlib',
    'flax',
    'numpy',
    'transformers',
    'tokenizers',
)


def open_workdir(path: str | pathlib.Path, config: Mapping[str, Any]) -> pathlib.Path:
    """Create the folder of a run, or open it again to resume.

    Writes `config.json` (the resolved config) and `versions.json` (packages, device, commit).

    Args:
      path: the folder.
      config: all settings, JSON values only.

    Raises:
      ValueError: when the folder holds results of another config; names the settings that differ.
    """
    path = pathlib.Path(path)
    file = path / 'config.json'
    text = json.dumps(config, indent=2, sort_keys=True) + '\n'
    if file.exists():
        before, now = flatten(json.loads(file.read_text())), flatten(json.loads(text))
        changed = [
            f'{key} was {before.get(key)!r}, is {now.get(key)!r}'
            for key in sorted(before | now)
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise ValueError(
                f'{path} holds results of another config ({"; ".join(changed)}): choose another '
                '--workdir, or delete that one.'
            )
    write_atomically(file, text.encode())
    versions = json.dumps(describe_versions(), indent=2, sort_keys=True) + '\n'
    write_atomically(path / 'versions.json', versions.encode())
    return path


def describe_versions() -> dict[str, str]:
    """Return what a result depends on besides its config."""
    versions = {
        'python': platform.python_version(),
        'device': jax.devices()[0].device_kind,
    }
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = 'not installed'
    # The commit of the clone this package runs from; an installed package has none.
    git = subprocess.run(
        ['git', 'describe', '--always', '--dirty', '--abbrev=12'],
        cwd=pathlib.Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    versions['commit'] = git.stdout.strip() or 'unknown'
    return versions


def flatten(tree: Mapping[str, Any], prefix: str = '') -> dict[str, Any]:
    """Return nested settings by dotted name.

    >>> flatten({'model': {'name': 'bert'}})
    {'model.name': 'bert'}
    """
    flat = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f'{prefix}{key}.')
        else:
            flat[prefix + key] = value
    return flat
