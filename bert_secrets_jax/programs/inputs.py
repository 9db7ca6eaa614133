"""Texts and labels, read as the settings say."""

import pathlib

from ml_collections import ConfigDict

from bert_secrets_jax.data.corpus import LABELS, read_corpus
from bert_secrets_jax.data.glue import read_glue, read_tfds
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example, Task, get_task


def glue_task(data: ConfigDict) -> Task | None:
    """Return the task of GLUE that the settings `data` name; None for other texts."""
    return get_task(data.task) if data.source == 'glue' else None


def read_texts(data: ConfigDict, split: str) -> list[Example]:
    """Read all texts of a split.

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


def text_name(data: ConfigDict, split: str) -> str:
    """Return the name of the texts of a split, for sentences and captions.

    Args:
      data: The settings `data`.
      split: The name of the split.
    """
    match data.source:
        case 'glue':
            return f'{get_task(data.task).title} {split}'
        case 'corpus':
            return f'embedded corpus, {split}'
        case _:
            file = pathlib.PurePath(_file(data, split)).name
            if data.name is None:
                return file
            return f'{data.name}, train' if split == 'train' else data.name


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
    if data.label is None:
        raise ValueError('Fine-tuning needs labels: name their column (setting data.label).')
    return tuple(data.labels) or None


def _file(data: ConfigDict, split: str) -> str:
    """Return the table that a split is read from."""
    if data.source != 'file':
        raise ValueError(f"data.source is 'glue', 'corpus' or 'file', not {data.source!r}.")
    name = 'train_file' if split == 'train' else 'file'
    if data[name] is None:
        raise ValueError(f'The setting data.{name} is not given: name a .tsv, .csv or .jsonl.')
    return data[name]
