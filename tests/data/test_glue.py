"""GLUE from its TSV files and through tensorflow-datasets."""

import json
import time

import pytest
import tensorflow_datasets as tfds

from bert_secrets_jax.analyses.common.disabling import assessed_metrics
from bert_secrets_jax.data import glue
from bert_secrets_jax.data.tasks import GLUE, Example
from bert_secrets_jax.finetune.train import check_examples
from bert_secrets_jax.model.config import SEQUENCES
from tests.conftest import REAL_DATA

REAL = REAL_DATA / 'glue'
PAIRS = [('The bridge opened on Monday.', '"On Monday it opened.'), ('It “fell” ', 'It "rose".')]


def write_task(folder, name):
    """Write the dev file of a task, with a column more than it needs, and return its examples."""
    task = GLUE[name]
    # CoLA alone has no header.
    columns = task.columns or ('index', *task.text_columns, task.label_column)
    spelled = {3.8: '3.800', 0.0: '0.000'} if task.is_regression else dict(enumerate(task.labels))
    labels = list(spelled)[-2:]
    rows = [] if task.columns else [columns]
    for pair, label in zip(PAIRS, labels, strict=True):
        cells = dict(zip(task.text_columns, pair, strict=False))
        cells[task.label_column] = spelled[label]
        rows.append([cells.get(column, '-') for column in columns])
    file = 'dev_matched' if name == 'mnli' else 'dev'
    lines = ['\t'.join(row) + '\n' for row in rows]
    write(folder / task.title / f'{file}.tsv', ''.join(lines))
    return [
        Example(a, b if task.is_pair else None, label, f'{name}/dev/{number}')
        for number, ((a, b), label) in enumerate(zip(PAIRS, labels, strict=True))
    ]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def test_reads_train_and_a_lower_case_folder(tmp_path):
    write(tmp_path / 'sst-2/train.tsv', 'sentence\tlabel\nfine work\t1\n')
    (example,) = glue.read_glue(tmp_path, GLUE['sst-2'], 'train')
    assert example == Example('fine work', None, 1, 'sst-2/train/0')


def test_what_is_not_there_is_named_with_a_mend(tmp_path):
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match=r'prepare_tfds.*tfds build glue/mrpc --file'):
        glue.read_tfds('mrpc', 'dev', data_dir=tmp_path)
    assert time.monotonic() - start < 10 and not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="split='validation' must be 'train' or 'dev'"):
        glue.read_tfds('mrpc', 'validation', data_dir=tmp_path)
    (tmp_path / 'MRPC').mkdir()
    with pytest.raises(FileNotFoundError, match=r'Neither .*train\.tsv nor dev\.tsv'):
        glue.prepare_tfds(tmp_path, 'mrpc', data_dir=tmp_path)
    (tmp_path / 'MRPC' / 'train.tsv').touch()
    for task, fault in (
        ('mrpc', r'dev\.tsv not found.*holds: train\.tsv'),
        ('mnli', r'no folder MNLI.*MNLI/train\.tsv, MNLI/dev_match'),
    ):
        with pytest.raises(FileNotFoundError, match=fault):
            glue.read_glue(tmp_path, task)


@pytest.mark.parametrize('name', GLUE)
def test_files_of_every_task_and_the_same_from_tensorflow_datasets(tmp_path, name):
    examples = write_task(tmp_path, name)
    glue.prepare_tfds(tmp_path, GLUE[name], data_dir=tmp_path)
    for found in (
        glue.read_glue(tmp_path, GLUE[name]),
        glue.read_tfds(GLUE[name], data_dir=tmp_path),
    ):
        assert found == examples
        # What fine-tuning and analyses are told of the task is in the examples.
        *_, names, metrics = check_examples(found, found, SEQUENCES, None, None)
        assert metrics == GLUE[name].metrics
        assert assessed_metrics(len(names), found)[0] == metrics[0]


def test_plain_tensorflow_datasets_reads_what_was_prepared(tmp_path, glue_dir):
    folder = glue.prepare_tfds(glue_dir, GLUE['mrpc'], data_dir=tmp_path)
    assert folder.is_relative_to(tmp_path / 'glue' / 'mrpc')
    for split in ('train', 'dev'):
        examples = glue.read_tfds(GLUE['mrpc'], split, data_dir=tmp_path)
        assert examples == glue.read_glue(glue_dir, GLUE['mrpc'], split)
    source = tfds.data_source('glue/mrpc', data_dir=tmp_path, download=False, split='validation')
    rows = [row['idx'] for row in source]
    assert rows != sorted(rows), 'no shuffling: sorting by idx would go untested'
    assert source[0]['sentence1'].decode() == examples[rows[0]].text_a


@pytest.mark.parametrize('prepared', [False, True])
def test_skipped_rows_keep_their_numbers(tmp_path, prepared):
    write(tmp_path / 'SST-2/dev.tsv', 'sentence\tlabel\ngood\t1\nbad\nfine\t1\n')
    task = GLUE['sst-2']

    def read(**given):
        if not prepared:
            return glue.read_glue(tmp_path, task, **given)
        glue.prepare_tfds(tmp_path, task, data_dir=tmp_path, **given)
        return glue.read_tfds(task, data_dir=tmp_path)

    with pytest.raises(ValueError, match='1 of 3 rows are bad: line 3: 1 field, expected 2'):
        read()
    ids = [example.id for example in read(bad_rows='skip')]
    assert ids == ['sst-2/dev/0', 'sst-2/dev/2']


def test_what_is_prepared_is_kept_and_has_no_other_split_or_format(tmp_path):
    write_task(tmp_path, 'mrpc')
    folder = glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)
    with pytest.raises(FileExistsError, match=r'prepared already in .*Delete'):
        glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)
    with pytest.raises(ValueError, match="split='train' must be 'validation'"):
        glue.read_tfds(GLUE['mrpc'], 'train', data_dir=tmp_path)
    # As `tfds build` leaves it by default.
    for file in folder.glob('*.array_record-*'):
        file.rename(str(file).replace('array_record', 'tfrecord'))
    info = json.loads((folder / 'dataset_info.json').read_text())
    info['fileFormat'] = 'tfrecord'
    (folder / 'dataset_info.json').write_text(json.dumps(info))
    with pytest.raises(ValueError, match=r'in tfrecord format.*--file_format=array_r'):
        glue.read_tfds(GLUE['mrpc'], data_dir=tmp_path)


@pytest.mark.parametrize(
    ('name', 'count'),
    [('mrpc', 408), ('sts-b', 1500), ('sst-2', 872), ('rte', 277), ('qnli', 5463), ('mnli', 9815)],
)
def test_real_dev_sets_are_read_whole(name, count):
    if not REAL.is_dir():
        pytest.skip(f'no GLUE files in {REAL} (set BERT_SECRETS_DATA)')
    examples = glue.read_glue(REAL, GLUE[name])
    assert len(examples) == count
    assert examples[-1].id == f'{name}/dev/{count - 1}'
    if not GLUE[name].is_regression:
        assert {example.label for example in examples} == set(range(GLUE[name].num_labels))
