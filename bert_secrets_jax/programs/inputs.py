"""Texts and labels, read as the settings say."""

import pathlib
from typing import Any

from ml_collections import ConfigDict

from bert_secrets_jax.data.corpus import LABELS, read_corpus
from bert_secrets_jax.data.glue import read_glue, read_tfds
from bert_secrets_jax.data.questions import Question, read_questions
from bert_secrets_jax.data.segments import read_segments
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tagged import Tagged, read_conllu, read_tagged
from bert_secrets_jax.data.tasks import Example, Task, get_task


def glue_task(data: ConfigDict) -> Task | None:
    """Return the task of GLUE that the settings `data` name; None for other texts."""
    return get_task(data.task) if data.source == 'glue' else None


def read_texts(data: ConfigDict, split: str) -> list[Example] | list[Tagged] | list[Question]:
    """Read all texts of a split, with what is to be learnt from them.

    Args:
      data: The settings `data`.
      split: The name of the split: 'train', or another one that the source has.

    Raises:
      FileNotFoundError: The texts are not there.
      ValueError: The texts cannot be read, or the source is unknown.
    """
    match data.source:
        case 'corpus':
            return read_corpus(split)
        case 'glue' if data.glue_dir is not None:
            return read_glue(data.glue_dir, get_task(data.task), split, bad_rows=data.bad_rows)
        case 'glue':
            try:
                return read_tfds(get_task(data.task), split, data_dir=data.tfds_dir)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    'Name the folder of the original TSV files (setting data.glue_dir), or prepare '
                    f'them: {error}'
                ) from error
        case 'tags':
            _refuse(data, 'text_b', 'columns')
            return _read_tags(_file(data, split), data)
        case 'questions':
            _refuse(data, 'text_b', 'columns', 'label', 'labels')
            return read_questions(_file(data, split), bad_rows=data.bad_rows)
        case _:
            return read_table(
                _file(data, split),
                text_a=data.text_a,
                text_b=data.text_b,
                label=data.label,
                labels=data.labels or None,
                bad_rows=data.bad_rows,
                columns=data.columns or None,
            )


def read_running_text(data: ConfigDict, tokenizer: Any, *, max_length: int) -> list[Example]:
    """Read segments of running text, as Clark et al. (2019, section 3) took them.

    Without a file, they are those of the text that comes with the package.

    Args:
      data: The settings `data`.
      tokenizer: The model's tokenizer, by which the segments are as long as may be.
      max_length: The greatest number of tokens.

    Raises:
      FileNotFoundError: The file is not there.
      ValueError: It has no segment, or a setting means nothing for it.
    """
    _refuse(data, 'text_b', 'columns', 'label', 'labels', 'train_file')
    return read_segments(data.file, tokenizer, max_length=max_length, count=0)


def _refuse(data: ConfigDict, *names: str) -> None:
    """Refuse settings that mean nothing for this source."""
    for name in names:
        if data[name]:
            raise ValueError(
                f'The setting data.{name} means nothing with data.source={data.source}: leave it '
                'out.'
            )


def _read_tags(file: str, data: ConfigDict) -> list[Tagged]:
    match pathlib.PurePath(file).suffix.lower():
        case '.conllu':
            return read_conllu(file, column=data.label or 'upos', bad_rows=data.bad_rows)
        case '.jsonl':
            pass
        case suffix:
            raise ValueError(
                f'{file}: words with tags are read from .jsonl and .conllu (Universal '
                'Dependencies, other tags in a column such as misc.NER), not from '
                f'{suffix or "a file without an ending"}.'
            )
    return read_tagged(
        file,
        # The default is the name of a text, and not of a list of words.
        words='tokens' if data.text_a == 'text_a' else data.text_a,
        tags=data.label or 'tags',
        names=data.labels or None,
        bad_rows=data.bad_rows,
    )


def text_name(data: ConfigDict, split: str) -> str:
    """Return the name of the texts of a split, for sentences and captions.

    Args:
      data: The settings `data`.
      split: The name of the split.
    """
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


def metrics(data: ConfigDict) -> tuple[str, ...]:
    """Return the names of the metrics that the settings `data` name; none stand for the task's."""
    return tuple(name.strip() for name in data.metrics.split(',')) if data.metrics else ()


def label_names(data: ConfigDict) -> tuple[str, ...] | None:
    """Return the names of the classes, a single name for regression; None if labels are numbers.

    Args:
      data: The settings `data`.

    Raises:
      ValueError: The texts are a table, and no column of labels is named.
    """
    match data.source:
        case 'corpus':
            return LABELS
        case 'glue':
            return get_task(data.task).labels or ('score',)
    if data.source == 'questions':
        return None
    if data.label is None and data.source != 'tags':
        raise ValueError('Fine-tuning needs labels: name their column (setting data.label).')
    return tuple(data.labels) or None


def _file(data: ConfigDict, split: str) -> str:
    """Return the table that a split is read from."""
    name = 'train_file' if split == 'train' else 'file'
    if data[name] is None:
        kinds = {
            'tags': '.conllu or .jsonl',
            'questions': '.json or .jsonl',
        }
        kind = kinds.get(data.source, '.tsv, .csv or .jsonl')
        raise ValueError(f'The setting data.{name} is not given: name a {kind}.')
    return data[name]
