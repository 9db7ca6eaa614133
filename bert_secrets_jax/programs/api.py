"""A whole report from Python, `bs.report`, and finished runs side by side, `bs.compare_runs`."""

import copy
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging
from flax.traverse_util import flatten_dict

from bert_secrets_jax.analyses.claims import Comparison, comparison
from bert_secrets_jax.checks import MENDABLE, check_enough, check_rules, summary
from bert_secrets_jax.compute import enable_cache
from bert_secrets_jax.configs import base
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.extras import require
from bert_secrets_jax.files import read_json, write_atomically
from bert_secrets_jax.finetune.metrics import metrics_for
from bert_secrets_jax.model.weights import Pretrained, save_pretrained
from bert_secrets_jax.programs.given import Given, Study
from bert_secrets_jax.programs.outputs import write_part
from bert_secrets_jax.programs.report import (
    LAST,
    PAGE,
    SECTIONS,
    headlines,
    open_studies,
    write_report,
)
from bert_secrets_jax.programs.settings import assign, set_texts
from bert_secrets_jax.report.page import Part, write_page
from bert_secrets_jax.runs.folder import open_folder, read_manifest, run_folders
from bert_secrets_jax.runs.result import Result

_CONFIG = 'config.json'


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of `report`.

    Attributes:
      path: The HTML page.
      results: A dictionary from names of sections to their results.
    """

    path: pathlib.Path
    results: Mapping[str, Result]

    def _repr_html_(self) -> str:
        return f'<a href="{self.path.as_uri()}">{self.path}</a>'


def report(
    model: str | pathlib.Path | Pretrained,
    texts: str | pathlib.Path | Sequence[Text],
    *,
    out: str | pathlib.Path = 'results',
    train: str | pathlib.Path | Sequence[Text] | None = None,
    text_a: str = 'text_a',
    text_b: str | None = None,
    label: str | None = None,
    labels: Sequence[str] = (),
    sections: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Answer the questions of the paper for a model and texts, on one HTML page with its files.

    Without labelled texts to train on, nothing is fine-tuned, and the sections that need a
    fine-tuned model are left out. A second call with the same folder goes on from there, and
    computes again only those results that depend on a changed setting.

    Args:
      model: A model, its folder, or its name on the Hugging Face hub.
      texts: The texts, as a list or as the path of a table (.csv, .tsv or .jsonl).
      out: The folder of the results.
      train: The texts to fine-tune on, in the same form as `texts`; None fine-tunes nothing.
      text_a: The column of the first or only text of a table.
      text_b: The column of the second text; None if there is only one.
      label: The column of the label; None if there are no labels.
      labels: The names of the classes in the order of their ids; without, words are sorted.
      sections: The names of the sections; ['all'] takes all whose inputs are given, and None those
        of the paper, which take minutes.
      settings: Any other settings by their dotted names, such as {'train.epochs': 2}; `bert-secrets
        settings` lists them.

    Raises:
      ValueError, OSError: The model, the texts or the settings are wrong; the error says how.
      SystemExit: Some section failed. The page and the other sections are written.
    """
    enable_cache()
    config = base.get_config()
    # First, so that nothing is written into a folder of something else.
    out = open_folder(out, config.to_dict())
    if isinstance(model, Pretrained):
        # Its tokenizer would save the lengths of its last inputs.
        tokenizer = copy.deepcopy(model.tokenizer)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        save_pretrained(dataclasses.replace(model, tokenizer=tokenizer), out / 'model')
        model = out / 'model'
    config.model.name = str(model)
    columns = {'text_a': text_a, 'text_b': text_b, 'label': label, 'labels': labels}
    read = []
    for name, table in {'texts': texts, 'train': train}.items():
        if table is None or isinstance(table, str | pathlib.Path):
            read.append((table and str(table), columns))
        else:
            examples = as_examples(table)
            read.append(_table(examples, out / f'{name}.jsonl'))
            # No table has the metrics of a task. Those of STS-B are the default of regressions.
            tasks = {each.metrics for each in examples} - {metrics_for(1)}
            config.data.metrics = ','.join(tasks.pop()) if len(tasks) == 1 else ''
    (texts, about), (train, of_train) = read
    if train is not None and about != of_train:
        raise ValueError(
            'texts and train must be of one kind: two tables, or two lists that both have second '
            'texts and labels, or both have not.'
        )
    set_texts(config, texts, train=train, **about)
    for name, value in (settings or {}).items():
        assign(config, name, value)
    config.lock()
    (answers,) = write_report(open_studies(config, out), sections)
    return Report((out / 'report.html').resolve(), answers.results_of(SECTIONS))


def _table(examples: Sequence[Example], path: pathlib.Path) -> tuple[str, dict[str, Any]]:
    """Write examples as a table, and return its name and its columns."""
    check_enough('texts to report on', examples)
    every = ('text_a', 'text_b', 'label')
    there = [name for name in every if getattr(examples[0], name) is not None]
    rows = [{name: getattr(each, name) for name in there} for each in examples]
    write_atomically(path, ''.join(json.dumps(row) + '\n' for row in rows).encode())
    columns = {name: name if name in there else None for name in every}
    return str(path), columns | {'labels': ()}


class FinishedRun(Result):
    """The findings of a run, at a glance: results by sections, and what is missing now."""

    folder: pathlib.Path
    model: str
    texts: str
    settings: dict[str, Any]
    results: dict[str, Result]
    missing: tuple[str, ...]

    @property
    def title(self) -> str:
        return 'Maps of this run' if self.token_maps() else 'This run'

    @property
    def compared(self) -> list[Result]:
        """The results that are not about other results."""
        return [result for name, result in self.results.items() if name not in LAST]

    def findings(self):
        # Only warnings, which must be read first; the page of the run itself has the rest.
        return [each for each in self._all('findings') if each.warning]

    def notes(self):
        return [f'All that was found in this run is in {self.folder / PAGE}.']

    def head_marks(self):
        return self._all('head_marks')

    def head_notes(self):
        return {k: v for each in self.results.values() for k, v in each.head_notes().items()}

    def badges(self):
        return self._all('badges')

    def token_maps(self):
        return {k: v for each in self.results.values() for k, v in each.token_maps().items()}

    def _all(self, method: str) -> list[Any]:
        return [each for result in self.results.values() for each in getattr(result, method)()]


def compare_runs(
    runs: Sequence[str | pathlib.Path], *, out: str | pathlib.Path | None = None
) -> Comparison:
    """Put finished runs side by side: headline numbers, claims, and whether heads do alike.

    The results are read from the folders of the runs, and nothing is computed on a model.

        compared = bs.compare_runs(['results/mrpc', 'results/rte'], out='results/compared')
        compared.frames()['agreement']  # rank correlations of every statistic of heads

    Args:
      runs: The folders of the runs. A folder with a run for each of several tasks stands for all
        of them.
      out: The folder in which a page (`report.html`) is written with its tables and figures: the
        heads of all runs at a glance, then the comparison. None writes nothing.

    Raises:
      FileNotFoundError: A folder is that of no run.
      ValueError: There are fewer than two runs, one is given twice, one has nothing that this
        version can read, the runs have nothing in common, or `out` holds something else.
    """
    folders = run_folders(runs)
    if out is not None:
        require('matplotlib')
        out = pathlib.Path(out)
        # Its page would be replaced.
        has_run = (out / _CONFIG).exists() or any(out.glob(f'*/{_CONFIG}'))
        choose = 'choose another folder for the comparison.'
        check_rules(
            (out.exists() and not out.is_dir(), f'{out} is a file: {choose}'),
            (has_run, f'{out} holds a run: {choose}'),
        )
    read = [read_run(folder) for folder in folders]
    named = dict(zip(_names(read), read, strict=True))
    pairs = itertools.combinations(read, 2)
    if not any(one.results.keys() & other.results.keys() for one, other in pairs):
        has = '; '.join(f'{name} has {", ".join(run.results)}' for name, run in named.items())
        raise ValueError(
            f'The runs have no section in common: {has}. Run the same sections in both folders.'
        )
    compared = comparison(
        {name: run.compared for name, run in named.items()},
        missing={name: run.missing for name, run in named.items()},
    )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        part = write_part(out, Part('comparison', compared), '')
        names = dict.fromkeys(name for run in read for name in run.settings)
        differ = [name for name in names if len({repr(run.settings.get(name)) for run in read}) > 1]
        write_page(
            out / PAGE,
            title='Runs side by side',
            lead=f'Runs: {"; ".join(named)}. Layers and heads count from 1.',
            parts=[part, *(Part('run', run, group=name) for name, run in named.items())],
            told={name: headlines(run.results, run.texts) for name, run in named.items()},
            details={
                f'{title}: settings that differ': {'folder': run.folder}
                | {name: run.settings.get(name) for name in differ}
                for title, run in named.items()
            },
        )
    return compared


def read_run(folder: pathlib.Path) -> FinishedRun:
    """Return all of a run that is kept and that this version can read; ValueError if nothing."""
    study = _study(folder)
    results: dict[str, Result] = {}
    missing = []
    # By the names of sections: their files may have others.
    written = read_manifest(folder)
    for name, section in SECTIONS.items():
        others = {other: each for other, each in results.items() if other not in LAST}
        found, why = None, ''
        try:
            found = Given(study, others).finished(name)
        except MENDABLE as error:
            logging.debug('%s of %s is not read: %s', name, folder, error)
            why = f' ({summary(error)})'
        if found is not None:
            results[name] = found
        elif section.files in written:
            missing.append(f'{name}{why}')
    if not set(results) - set(LAST):
        try:
            noted = read_json(folder / 'versions.json')
            versions = f'{noted["bert_secrets_jax"]}, commit {noted["commit"]}'
        except (OSError, ValueError, KeyError, TypeError):
            versions = 'an unknown version'
        raise ValueError(
            f'{folder} has nothing that this version can read (it was made by {versions}): the '
            'command that made it computes again what is of another version.'
            if written
            else f'{folder} has no finished section: the command that made it goes on.'
        )
    settings = flatten_dict(study.config.to_dict(), sep='.')
    run = FinishedRun(folder, study.model_name, study.corpus, settings, results, tuple(missing))
    study.release()
    return run


def _study(folder: pathlib.Path) -> Study:
    """Return a study that only reads, with the settings that the run last had."""
    file = folder / _CONFIG
    stored = read_json(file)
    config = base.get_config()
    if not isinstance(stored, dict) or not {'model', 'data', 'encoding'} <= stored.keys():
        raise ValueError(f'{file} has not the settings of a run: give the folder of one.')
    try:
        # Settings that are newer than the run have their defaults.
        config.update(stored)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f'{file} has settings of another version ({summary(error)}): the command that made '
            'the run writes it again.'
        ) from error
    return Study(config, folder, writable=False)


def _names(runs: Sequence[FinishedRun]) -> list[str]:
    """Return names that tell runs apart: by model, by texts, by both, or also by their folders."""
    models, texts = [run.model for run in runs], [run.texts for run in runs]
    both = [f'{model}, {text}' for model, text in zip(models, texts, strict=True)]
    ways = [models if len(set(texts)) == 1 else texts if len(set(models)) == 1 else both]
    for places in ([run.folder.name for run in runs], [str(run.folder) for run in runs]):
        ways.append([f'{each} ({folder})' for each, folder in zip(both, places, strict=True)])
    return next(names for names in ways if len(set(names)) == len(names))
