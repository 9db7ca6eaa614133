"""How texts and labels are read, as the settings say."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.data.corpus import LABELS
from bert_secrets_jax.data.tasks import get_task

_QUESTIONS = {
    'mrpc': 'Do two sentences mean the same?',
    'sts-b': 'How alike are two sentences?',
    'sst-2': 'Does a reviewer like the film?',
    'qqp': 'Do two questions ask the same?',
    'rte': 'Does the first text imply the second?',
    'qnli': 'Does a sentence answer the question?',
    'mnli': 'Does the first sentence imply the second?',
    'cola': 'Is a sentence grammatical?',
    'wnli': 'Does the first sentence imply the second?',
}


@dataclasses.dataclass(frozen=True)
class Reading:
    """The call that reads the texts of a split: the name in `bs`, and its arguments."""

    function: str
    given: tuple[str | None, ...]
    named: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def reading(data: ConfigDict, split: str) -> Reading:
    """Return the call that reads all texts of a split, with what is to be learnt from them."""
    bad_rows = {'bad_rows': data.bad_rows}
    match data.source:
        case 'corpus':
            return Reading('read_corpus', (split,))
        case 'glue' if data.glue_dir is None:
            return Reading('read_tfds', (data.task,), {'split': split, 'data_dir': data.tfds_dir})
        case 'glue':
            return Reading('read_glue', (data.glue_dir, data.task), {'split': split, **bad_rows})
        case 'segments':
            # As Clark et al. (2019, section 3) took them. Without a file, they are of the text that
            # comes with the package. The tokenizer tells how long they may be.
            _refuse(data, 'text_b', 'columns', 'label', 'labels', 'train_file')
            return Reading('read_segments', (data.file,), {'count': 0})
        case 'tags':
            _refuse(data, 'text_b', 'columns')
            return _tags(_file(data, split), data)
        case 'questions':
            _refuse(data, 'text_b', 'columns', 'label', 'labels')
            return Reading('read_questions', (_file(data, split),), bad_rows)
    columns = {name: data[name] for name in ('text_a', 'text_b', 'label')}
    names = {name: tuple(data[name]) or None for name in ('labels', 'columns')}
    return Reading('read_table', (_file(data, split),), {**columns, **names, **bad_rows})


def _refuse(data: ConfigDict, *names: str) -> None:
    """Refuse settings that mean nothing for this source."""
    for name in names:
        if data[name]:
            setting = f'data.{name} means nothing with data.source={data.source}'
            raise ValueError(f'The setting {setting}: leave it out.')


def _tags(file: str, data: ConfigDict) -> Reading:
    bad_rows = {'bad_rows': data.bad_rows}
    match pathlib.PurePath(file).suffix.lower():
        case '.conllu':
            return Reading('read_conllu', (file,), {'column': data.label or 'upos', **bad_rows})
        case '.jsonl':
            # The default is the name of a text, and not of a list of words.
            words = 'tokens' if data.text_a == 'text_a' else data.text_a
            names = {'tags': data.label or 'tags', 'names': tuple(data.labels) or None}
            return Reading('read_tagged', (file,), {'words': words, **names, **bad_rows})
        case suffix:
            raise ValueError(
                f'{file}: words with tags are read from .jsonl and .conllu (Universal '
                'Dependencies, other tags in a column such as misc.NER), not from '
                f'{suffix or "a file without an ending"}.'
            )


def text_name(data: ConfigDict, split: str) -> str:
    """Return the name of the texts of a split, for sentences and captions."""
    if data.name is not None:
        return f'{data.name}, train' if split == 'train' else data.name
    match data.source:
        case 'glue':
            task = get_task(data.task)
            return f'{task.title} {split}' + ('' if task.in_paper else ' (not in the paper)')
        case 'corpus':
            return f'embedded corpus, {split}'
        case 'segments' if data.file is None:
            return 'embedded prose'
        case _:
            return pathlib.PurePath(_file(data, split)).name


def question_of(data: ConfigDict) -> str:
    """Return what a model is asked about a text, as a question; empty for texts of one's own."""
    if data.source == 'corpus':
        return 'Does a comment welcome the news?'
    return _QUESTIONS.get(get_task(data.task).name, '') if data.source == 'glue' else ''


def metrics(data: ConfigDict) -> tuple[str, ...]:
    """Return the names of the metrics of the settings; none stand for those of the task."""
    return tuple(name.strip() for name in data.metrics.split(',')) if data.metrics else ()


def label_names(data: ConfigDict) -> tuple[str, ...] | None:
    """Return the names of the classes, one name for regression; None if labels are numbers."""
    match data.source:
        case 'corpus':
            return LABELS
        case 'glue':
            return get_task(data.task).labels or ('score',)
        case 'questions':
            return None
    if data.label is None and data.source != 'tags':
        raise ValueError('Fine-tuning needs labels: name their column (setting data.label).')
    return tuple(data.labels) or None


def _file(data: ConfigDict, split: str) -> str:
    """Return the table that a split is read from."""
    name = 'train_file' if split == 'train' else 'file'
    if data[name] is None:
        kinds = {'tags': '.conllu or .jsonl', 'questions': '.json or .jsonl'}
        kind = kinds.get(data.source, '.tsv, .csv or .jsonl')
        raise ValueError(f'The setting data.{name} is not given: name a {kind}.')
    return data[name]
