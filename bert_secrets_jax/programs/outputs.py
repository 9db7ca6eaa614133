"""The files of a section: its frames as CSV, its figures as PDF, SVG and PNG."""

import pathlib
from collections.abc import Iterable

from absl import logging

from bert_secrets_jax import plots
from bert_secrets_jax.files import differing, sealed, sha256, write_csv, write_json
from bert_secrets_jax.report.page import Part, Picture, figure_numbers, file_name
from bert_secrets_jax.runs import store
from bert_secrets_jax.runs.folder import MANIFEST, describe_versions, read_manifest
from bert_secrets_jax.runs.result import Result, findings_frame
from bert_secrets_jax.runs.run import digest


def write_part(folder: pathlib.Path, part: Part, state: str) -> Part:
    """Write the files of a part, whose result depends on a `state`, and remove earlier ones."""
    result, pictures = part.result, []
    tables = {file_name(part.name, name): frame for name, frame in result.frames().items()}
    tables[f'findings/{part.name}'] = findings_frame(result.findings())
    for name, frame in tables.items():
        write_csv(folder / f'{name}.csv', list(frame.columns), frame.itertuples(index=False))
    files, figures = [f'{name}.csv' for name in tables], result.figures()
    for name in figures:
        figure, stem = figures[name], file_name(part.name, name)
        svg = plots.save(figure, folder / 'figures', stem)
        files += [f'figures/{stem}.{suffix}' for suffix in ('pdf', 'svg', 'png')]
        if name in figures.shown():
            numbers = figure_numbers(figure, part.name)
            pictures.append(Picture(stem, svg.read_text('utf-8'), figure.caption, numbers))
    manifest = read_manifest(folder)
    former = manifest.get(part.name, {}).get('sha256_of', {})
    about = {
        'pictures': [[picture.name, picture.caption] for picture in pictures],
        'numbers': {each.name: each.numbers for each in pictures if each.numbers},
        'used': _state(result, state),
        'sha256_of': {file: sha256(folder / file) for file in files},
    }
    _remove(folder, former.keys() - files)
    _write_manifest(folder, manifest | {part.name: about})
    return part.with_pictures(pictures)


def read_part(folder: pathlib.Path, part: Part, state: str) -> Part:
    """Return a part with the pictures written for the same result, or write its files."""
    written = read_manifest(folder).get(part.name, {})
    if written.get('used') != _state(part.result, state):
        return write_part(folder, part, state)
    changed = differing(folder, written['sha256_of'])
    for file in changed:
        logging.warning('%s is missing or was changed: written again.', file)
    if changed:
        return write_part(folder, part, state)
    numbers, pictures = written.get('numbers', {}), []
    for name, caption in written['pictures']:
        svg = (folder / 'figures' / f'{name}.svg').read_text('utf-8')
        pictures.append(Picture(name, svg, caption, numbers.get(name)))
    return part.with_pictures(pictures)


def remove_parts(folder: pathlib.Path, names: Iterable[str]) -> None:
    """Remove the files of parts that belong to other settings, so that nothing stale is left."""
    manifest = read_manifest(folder)
    for name in names:
        _remove(folder, manifest.pop(name, {}).get('sha256_of', {}))
    _write_manifest(folder, manifest)


def _write_manifest(folder: pathlib.Path, parts: dict[str, dict]) -> None:
    write_json(folder / MANIFEST, {name: sealed(part) for name, part in parts.items()})


def _state(result: Result, state: str) -> str:
    """Return what the files of a result depend on: its own state, its names, this code."""
    versions = describe_versions()
    code = [versions[name] for name in ('bert_secrets_jax', 'commit')]
    return digest([state, str(result.subject), store.version_of(type(result)), code])


def _remove(folder: pathlib.Path, files: Iterable[str]) -> None:
    for file in files:
        (folder / file).unlink(missing_ok=True)
