"""A whole report from Python: `bs.report`."""

import copy
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from bert_secrets_jax.cache import enable_cache
from bert_secrets_jax.checks import check_enough
from bert_secrets_jax.configs import base
from bert_secrets_jax.data.tasks import Example, Text, as_examples
from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.finetune.metrics import metrics_for
from bert_secrets_jax.model.weights import Pretrained, save_pretrained
from bert_secrets_jax.programs.conversation import open_studies
from bert_secrets_jax.programs.report import write_report
from bert_secrets_jax.programs.sections import SECTIONS
from bert_secrets_jax.programs.settings import assign, set_texts
from bert_secrets_jax.runs.folder import open_folder
from bert_secrets_jax.runs.result import Result


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
