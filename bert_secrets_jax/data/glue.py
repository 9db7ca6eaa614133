"""GLUE from its original TSV files and from tensorflow-datasets without TensorFlow."""

import dataclasses
import operator
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_secrets_jax.checks import check_name
from bert_secrets_jax.data.rows import AnyPath
from bert_secrets_jax.data.tables import read_table
from bert_secrets_jax.data.tasks import Example, Task, get_task
from bert_secrets_jax.extras import require


def read_glue(
    glue_dir: AnyPath, task: Task | str, split: str = 'dev', *, bad_rows: str = 'error'
) -> list[Example]:
    """Read one split of a task from GLUE's original layout, `MRPC/dev.tsv` and so on.

    Args:
      glue_dir: The folder that holds one folder per task, perhaps spelled in lower case.
      task: The task or its name. The ids of its examples are such as 'mrpc/dev/17', and its metrics
        go with them.
      split: 'train' or 'dev' (for MNLI, the matched one). GLUE's test split has no labels.
      bad_rows: As in `read_table`.

    Raises:
      FileNotFoundError: The folder or the file is missing.
      ValueError: The split is unknown, some rows are bad, or the file is not like the task's.
    """
    task = get_task(task)
    examples = read_table(
        _tsv_path(glue_dir, task, split),
        text_a=task.text_columns[0],
        text_b=task.text_columns[1] if task.is_pair else None,
        label=task.label_column,
        labels=task.labels,
        bad_rows=bad_rows,
        name=f'{task.name}/{split}',
        columns=task.columns or None,
    )
    return [dataclasses.replace(each, metrics=task.metrics) for each in examples]


def read_tfds(
    task: Task | str, split: str = 'dev', *, data_dir: AnyPath | None = None
) -> list[Example]:
    """Read one split of a task that tensorflow-datasets has prepared; nothing is downloaded.

    The data must be in array_record format, the one that can be read without TensorFlow. The number
    in the id of an example is tensorflow-datasets' `idx`, the row in the TSV file, and examples are
    sorted by it, so that reading what `prepare_tfds` wrote gives the same as `read_glue`, but for
    two things. Scores have the precision of float32; 15 of the 7,249 scores of STS-B have more
    digits. And if tensorflow-datasets itself built MRPC, both splits come from one file.

    Args:
      task, split: As in `read_glue`.
      data_dir: The folder in which tensorflow-datasets keeps its data; None is its own default.

    Raises:
      FileNotFoundError: The task is not prepared.
      ValueError: The split is unknown or was not prepared, or the format is another one.
    """
    require('tensorflow_datasets')
    # Imported late because it is slow. Without TensorFlow the name 'glue' is unknown to
    # tensorflow-datasets until this import.
    from tensorflow_datasets.text.glue import Glue

    task = get_task(task)
    tfds_split = _by_split(split, train='train', dev=task.tfds_dev_split)
    builder = Glue(config=task.tfds_config, data_dir=data_dir)
    name = f'glue/{task.tfds_config}'
    if not builder.is_prepared():
        raise FileNotFoundError(
            f'{name} is not prepared in {builder.data_path}. Prepare it from the TSV '
            'files with bs.prepare_tfds, or where TensorFlow '
            f'is installed: tfds build {name} --file_format=array_record'
        )
    check_name(f'{name} in {builder.data_path}: split', tfds_split, builder.info.splits)
    try:
        source = builder.as_data_source(split=tfds_split)  # pyright: ignore[reportCallIssue]
    except NotImplementedError as error:
        form = builder.info.file_format
        raise ValueError(
            f'{name} in {builder.data_path} needs TensorFlow to be read: it is in '
            f'{form.value if form else "another"} format. Prepare it in another data_dir: '
            f'tfds build {name} --file_format=array_record'
        ) from error
    # In one request: six times as fast as iterating.
    rows = source.__getitems__(range(len(source)))
    return [_from_tfds(task, split, row) for row in sorted(rows, key=operator.itemgetter('idx'))]


def prepare_tfds(
    glue_dir: AnyPath, task: Task | str, *, data_dir: AnyPath | None = None, bad_rows: str = 'error'
) -> pathlib.Path:
    """Write the TSV files of a task as the data set `glue/...` of tensorflow-datasets.

    Train and dev, whichever of them exist, are written in array_record format and without
    TensorFlow. `read_tfds` reads them, and so does plain tensorflow-datasets:

        from tensorflow_datasets.text.glue import Glue  # makes the name known
        tfds.data_source('glue/mrpc', data_dir=..., download=False)

    The arguments are as in `read_glue` and `read_tfds`. The folder that was written is returned.

    Raises:
      FileExistsError: The task is prepared already.
      FileNotFoundError: There is neither train nor dev.
      ValueError: Some rows are bad.
    """
    require('tensorflow_datasets')
    from tensorflow_datasets.text.glue import Glue

    task = get_task(task)
    files = {split: _tsv_path(glue_dir, task, split) for split in ('train', 'dev')}
    names = {'train': 'train', 'dev': task.tfds_dev_split}
    examples = {
        names[split]: read_glue(glue_dir, task, split, bad_rows=bad_rows)
        for split, file in files.items()
        if file.is_file()
    }
    if not examples:
        raise FileNotFoundError(f'Neither {files["train"]} nor {files["dev"].name} found.')

    # Features, version and paths stay those of tensorflow-datasets; only the source of
    # the rows is ours, where the original would download.
    class GlueFromTsv(Glue, skip_registration=True):
        name = 'glue'

        def _split_generators(self, dl_manager):
            return {split: _to_tfds(task, rows) for split, rows in examples.items()}

    builder = GlueFromTsv(config=task.tfds_config, data_dir=data_dir, file_format='array_record')
    folder = pathlib.Path(builder.data_path)
    if builder.is_prepared():
        raise FileExistsError(
            f'glue/{task.tfds_config} is prepared already in {folder}. Delete that folder to '
            'prepare it anew.'
        )
    builder.download_and_prepare()
    return folder


def _by_split(split: str, **names: str) -> str:
    check_name('split', split, names)
    return names[split]


def _tsv_path(glue_dir: AnyPath, task: Task, split: str) -> pathlib.Path:
    stem = _by_split(split, train=task.train_file, dev=task.dev_file)
    for name in (task.title, task.title.lower()):
        folder = pathlib.Path(glue_dir) / name
        if folder.is_dir():
            return folder / f'{stem}.tsv'
    raise FileNotFoundError(
        f'{glue_dir} has no folder {task.title}. It should be laid out like the original GLUE: '
        f'{task.title}/{task.train_file}.tsv, {task.title}/{task.dev_file}.tsv.'
    )


def _to_tfds(task: Task, examples: list[Example]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield keys and rows as tensorflow-datasets' own GLUE builder makes them."""
    for example in examples:
        row = int(example.id.rpartition('/')[2])
        texts = (example.text_a, example.text_b)[: len(task.tfds_text_features)]
        named = dict(zip(task.tfds_text_features, texts, strict=True))
        yield row, {**named, 'label': example.label, 'idx': row}


def _from_tfds(task: Task, split: str, row: dict[str, Any]) -> Example:
    texts = [row[feature].decode('utf-8') for feature in task.tfds_text_features]
    label = row['label']
    # Scores are stored in float32. Its shortest decimal is what the TSV says: 3.8, where the plain
    # conversion is 3.799999952316284.
    label = float(str(np.float32(label))) if task.is_regression else int(label)
    identity = f'{task.name}/{split}/{row["idx"]}'
    names = {'classes': task.labels, 'metrics': task.metrics}
    return Example(*texts, label=label, id=identity, **names)
