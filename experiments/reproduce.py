"""All sections for one model, on one task or several, and the report on them.

    python -m experiments.reproduce --config=configs/quickstart.py --workdir=results/quickstart
    python -m experiments.reproduce --config=configs/paper.py:mrpc,rte \\
        --config.data.glue_dir=... --workdir=results/paper

Several tasks have a folder each (results/paper/mrpc, ...) and one report. `--sections=maps,ablate`
runs only these, and what they need. A section that fails is reported and does not stop the others;
the exit code is then 1, and the same command tries it again.
"""

import dataclasses
import functools
import json
import pathlib
import traceback
from collections.abc import Callable, Mapping

from absl import flags, logging

from bert_secrets_jax.report.html import Section, write_report
from bert_secrets_jax.workdir import flatten
from experiments import (
    ablate,
    attention_change,
    claims,
    cls_tokens,
    features,
    finetune,
    frames,
    maps,
    overview,
    patterns,
    relations,
    special_tokens,
)
from experiments.study import MENDABLE, Study, launch_all, one_line

# In the order they run. Claims read what the others have left, and stand first in the report.
SECTIONS = {
    'finetune': finetune.section,
    'patterns': patterns.section,
    'special_tokens': special_tokens.section,
    'relations': relations.section,
    'frames': frames.section,
    'attention_change': attention_change.section,
    'features': features.section,
    'cls_tokens': cls_tokens.section,
    'ablate': ablate.section,
    # Shows of each head what the others have found.
    'maps': maps.section,
    'claims': claims.section,
}
_CHOSEN = flags.DEFINE_list('sections', list(SECTIONS), f'Which of {", ".join(SECTIONS)} to run.')


def main(studies: list[Study]) -> None:
    """Run what is not finished yet and write `report.html`.

    Raises:
      ValueError: unknown sections or texts.
      SystemExit: some section has failed; says which and why, one line for each error.
    """
    unknown = set(_CHOSEN.value) - set(SECTIONS)
    if unknown or not _CHOSEN.value:
        raise ValueError(
            f'--sections are {", ".join(SECTIONS)}, not {", ".join(sorted(unknown)) or "none"}.'
        )
    chosen = {name: SECTIONS[name] for name in SECTIONS if name in _CHOSEN.value}
    texts = ', '.join(study.text_name(study.config.data.split) for study in studies)
    first, several = studies[0], len(studies) > 1
    path = (first.workdir.parent if several else first.workdir) / 'report.html'
    sections, failures, details = [], {}, {}
    for study in studies:
        task = f'{study.glue_task.title}: ' if several else ''
        # Another object, so that what one task loads is gone when the next one begins.
        sections += run(Study(study.config, study.workdir), chosen, task, failures)
        versions = json.loads((study.workdir / 'versions.json').read_text())
        details[f'{task}Settings of this run'] = flatten(study.config.to_dict())
        details[f'{task}Versions'] = {
            name: version for name, version in versions.items() if version != 'not installed'
        }
    if several:
        make = lambda: overview.section(studies)
        sections.insert(0, _attempt('overview', make, path.parent, failures))
    write_report(
        path,
        title=f'What the heads of {first.model_name} attend to',
        lead=f'Texts: {texts}. Layers and heads count from 1.',
        sections=sections,
        details=details,
    )
    print(f'Report: {path.resolve()}')
    if failures:
        raise SystemExit(
            '\n'.join(f'error: {error} ({", ".join(names)})' for error, names in failures.items())
        )


def run(
    study: Study,
    chosen: Mapping[str, Callable[[Study], Section]],
    task: str,
    failures: dict[str, list[str]],
) -> list[Section]:
    """Run sections of a task, and return them in the order of the report.

    Args:
      study: of the task.
      chosen: sections by name, in the order they run.
      task: what their titles begin with.
      failures: errors, and the sections that failed with them; the new ones are added.
    """
    done = {}
    for name, make in chosen.items():
        make = functools.partial(make, study)
        done[name] = _attempt(name, make, study.workdir, failures, task)
    first = [done.pop('claims')] if 'claims' in done else []
    return first + list(done.values())


def _attempt(
    name: str,
    make: Callable[[], Section],
    workdir: pathlib.Path,
    failures: dict[str, list[str]],
    task: str = '',
) -> Section:
    """Make a section, or one that says why it failed; `failures` learns of it."""
    try:
        section = make()
    except Exception as error:
        message = _describe(error, workdir)
        names = failures.setdefault(message, [])
        names.append(task + name)
        logging.warning('%s%s failed: %s', task, name, message)
        why = f'It failed: {message}' if len(names) == 1 else f'It failed as {names[0]} did.'
        section = Section(f'{name} (failed)', [why], [])
    return dataclasses.replace(section, title=task + section.title)


def _describe(error: Exception, workdir: pathlib.Path) -> str:
    """Return an error in one line; where it arose goes to the log if nobody can mend it there."""
    if isinstance(error, MENDABLE):
        logging.debug('%s', traceback.format_exc())
        return one_line(error, workdir)
    logging.error('%s', traceback.format_exc())
    return f'{type(error).__name__}: {error} (unexpected; log.txt has where)'


if __name__ == '__main__':
    launch_all(main)
