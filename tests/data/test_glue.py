"""GLUE from its TSV files and through tensorflow-datasets."""

import json
import os
import pathlib
import time

import pytest
import tensorflow_datasets as tfds

from bert_secrets_jax.data import glue
from bert_secrets_jax.data.tasks import GLUE, Example

ROOT = pathlib.Path(__file__).parents[2]
REAL = pathlib.Path(os.environ.get('BERT_SECRETS_DATA', ROOT.parent / 'shared' / 'data')) / 'glue'
MNLI_HEADER = (
    'index promptID pairID genre sentence1_binary_parse sentence2_binary_parse '
    'sentence1_parse sentence2_parse sentence1 sentence2 label1 label2 label3 label4 '
    'label5 gold_label'
)
# One file of two rows per task, written after the headers of the original files.
LAYOUTS = {
    'mrpc': (
        'MRPC/dev.tsv',
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n'
        '1\t11\t12\tThe bridge opened on Monday.\t"On Monday the bridge opened.\n'
        '0\t13\t14\tShares fell.\tThe weather was "mixed".\n',
        [
            ('The bridge opened on Monday.', '"On Monday the bridge opened.', 1),
            ('Shares fell.', 'The weather was "mixed".', 0),
        ],
    ),
    'sts-b': (
        'STS-B/dev.tsv',
        'index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2'
        '\tscore\n'
        '0\tg\tf\t2012\t1\tnone\tnone\tA boy runs.\tA child is running.\t3.800\n'
        '1\tg\tf\t2012\t2\tnone\tnone\tA boy runs.\tOil is dear.\t0.000\n',
        [
            ('A boy runs.', 'A child is running.', 3.8),
            ('A boy runs.', 'Oil is dear.', 0.0),
        ],
    ),
    'sst-2': (
        'SST-2/dev.tsv',
        'sentence\tlabel\na bright , quick film \t1\nit never ends \t0\n',
        [('a bright , quick film ', None, 1), ('it never ends ', None, 0)],
    ),
    'qqp': (
        'QQP/dev.tsv',
        'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
        '5\t1\t2\tHow do I knit?\tHow can I learn to knit?\t1\n'
        '9\t3\t4\tWhat is rust?\tIs Rust fast?\t0\n',
        [
            ('How do I knit?', 'How can I learn to knit?', 1),
            ('What is rust?', 'Is Rust fast?', 0),
        ],
    ),
    'rte': (
        'RTE/dev.tsv',
        'index\tsentence1\tsentence2\tlabel\n'
        '0\tThe old mill burned down in May.\tA mill burned.\tentailment\n'
        '1\tThe mayor met the press.\tThe mayor resigned.\tnot_entailment\n',
        [
            ('The old mill burned down in May.', 'A mill burned.', 0),
            ('The mayor met the press.', 'The mayor resigned.', 1),
        ],
    ),
    'qnli': (
        'QNLI/dev.tsv',
        'index\tquestion\tsentence\tlabel\n'
        '0\tWho built it?\tIt was built by monks.\tentailment\n'
        '1\tWho built it?\tIt stands on a hill.\tnot_entailment\n',
        [
            ('Who built it?', 'It was built by monks.', 0),
            ('Who built it?', 'It stands on a hill.', 1),
        ],
    ),
    'mnli': (
        'MNLI/dev_matched.tsv',
        MNLI_HEADER.replace(' ', '\t')
        + '\n0'
        + '\t-' * 7
        + '\tHe sold it.\tIt was his.'
        + '\t-' * 5
        + '\tneutral\n1'
        + '\t-' * 7
        + '\tHe sold it.\tHe kept it.'
        + '\t-' * 5
        + '\tcontradiction\n',
        [('He sold it.', 'It was his.', 1), ('He sold it.', 'He kept it.', 2)],
    ),
    # Without a header.
    'cola': (
        'CoLA/dev.tsv',
        'gj04\t1\t\tThe ship sank slowly.\nks08\t0\t*\tShe slept the "bed.\n',
        [('The ship sank slowly.', None, 1), ('She slept the "bed.', None, 0)],
    ),
    'wnli': (
        'WNLI/dev.tsv',
        'index\tsentence1\tsentence2\tlabel\n'
        '0\tThe jug fell off the shelf as it was round.\tThe jug was round.\t1\n'
        '1\tThe jug fell off the shelf as it was round.\tThe shelf was round.\t0\n',
        [
            ('The jug fell off the shelf as it was round.', 'The jug was round.', 1),
            ('The jug fell off the shelf as it was round.', 'The shelf was round.', 0),
        ],
    ),
}


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def write_mrpc(glue_dir, split, count, start=0):
    rows = [
        f'{row % 2}\t{row}\t{row}\tSentence {row} says “naïve”.\tAnd {row} "more\n'
        for row in range(start, start + count)
    ]
    header = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n'
    write(glue_dir / f'MRPC/{split}.tsv', header + ''.join(rows))


def write_stsb(glue_dir, split, count):
    rows = [f'A cat {row}.\tA dog\u2028{row}.\t{5 * row / count:.3f}\n' for row in range(count)]
    write(glue_dir / f'STS-B/{split}.tsv', 'sentence1\tsentence2\tscore\n' + ''.join(rows))


@pytest.mark.parametrize('name', GLUE)
def test_reads_the_layout_of_every_task(tmp_path, name):
    file, text, rows = LAYOUTS[name]
    write(tmp_path / file, text)
    assert glue.read_glue(tmp_path, GLUE[name]) == [
        Example(text_a, text_b, label, f'{name}/dev/{row}')
        for row, (text_a, text_b, label) in enumerate(rows)
    ]


def test_reads_train_and_a_lower_case_folder(tmp_path):
    write(tmp_path / 'sst-2/train.tsv', 'sentence\tlabel\nfine work\t1\n')
    assert glue.read_glue(tmp_path, GLUE['sst-2'], 'train') == [
        Example('fine work', None, 1, 'sst-2/train/0')
    ]


def test_unknown_split(tmp_path):
    write_mrpc(tmp_path, 'dev', 1)
    with pytest.raises(ValueError, match="'test'; known: train, dev"):
        glue.read_glue(tmp_path, GLUE['mrpc'], 'test')
    with pytest.raises(ValueError, match="'validation'; known: train, dev"):
        glue.read_tfds(GLUE['mrpc'], 'validation', data_dir=tmp_path)


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('mnli', r'no folder MNLI.*MNLI/train\.tsv, MNLI/dev_matched\.tsv'),
        ('mrpc', r'dev\.tsv not found.*holds: train\.tsv'),
    ],
)
def test_what_is_missing_and_what_is_there_are_named(tmp_path, name, message):
    write_mrpc(tmp_path, 'train', 1)
    with pytest.raises(FileNotFoundError, match=message):
        glue.read_glue(tmp_path, GLUE[name])


@pytest.mark.parametrize(('name', 'write_split'), [('mrpc', write_mrpc), ('sts-b', write_stsb)])
def test_tensorflow_datasets_gives_back_the_tsv(tmp_path, name, write_split):
    task = GLUE[name]
    write_split(tmp_path, 'train', 40)
    write_split(tmp_path, 'dev', 23)
    folder = glue.prepare_tfds(tmp_path, task, data_dir=tmp_path / 'tfds')
    assert folder.is_relative_to(tmp_path / 'tfds' / 'glue' / task.tfds_config)
    for split, count in (('train', 40), ('dev', 23)):
        examples = glue.read_tfds(task, split, data_dir=tmp_path / 'tfds')
        assert len(examples) == count
        assert examples == glue.read_glue(tmp_path, task, split)


@pytest.mark.parametrize('name', GLUE)
def test_tensorflow_datasets_round_trip_of_every_task(tmp_path, name):
    file, text, _ = LAYOUTS[name]
    write(tmp_path / file, text)
    glue.prepare_tfds(tmp_path, GLUE[name], data_dir=tmp_path)
    assert glue.read_tfds(GLUE[name], data_dir=tmp_path) == glue.read_glue(tmp_path, GLUE[name])


def test_scores_come_back_in_float32(tmp_path):
    text = 'sentence1\tsentence2\tscore\nRain.\tSnow.\t2.11111111111111\n'
    write(tmp_path / 'STS-B/dev.tsv', text)
    glue.prepare_tfds(tmp_path, GLUE['sts-b'], data_dir=tmp_path)
    (example,) = glue.read_tfds(GLUE['sts-b'], data_dir=tmp_path)
    assert example.label == pytest.approx(2.11111111111111, rel=1e-7)


def test_plain_tensorflow_datasets_reads_what_was_prepared(tmp_path):
    write_mrpc(tmp_path, 'dev', 23)
    glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)
    source = tfds.data_source('glue/mrpc', data_dir=tmp_path, download=False, split='validation')
    rows = [row['idx'] for row in source]
    assert rows != sorted(rows), 'no shuffling: sorting by idx would go untested'
    assert sorted(rows) == list(range(23))
    assert {row['label'] for row in source} == {0, 1}
    assert source[0]['sentence1'].decode() == f'Sentence {rows[0]} says “naïve”.'


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


def test_preparing_nothing(tmp_path):
    (tmp_path / 'MRPC').mkdir()
    with pytest.raises(FileNotFoundError, match=r'Neither .*train\.tsv nor dev\.tsv'):
        glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)


def test_not_prepared_fails_at_once_and_says_what_to_do(tmp_path):
    start = time.monotonic()
    with pytest.raises(FileNotFoundError, match=r'prepare_tfds.*tfds build glue/mrpc --file'):
        glue.read_tfds(GLUE['mrpc'], 'dev', data_dir=tmp_path)
    assert time.monotonic() - start < 10
    assert not list(tmp_path.iterdir())


def test_what_is_prepared_is_kept_and_has_no_other_split_or_format(tmp_path):
    write_mrpc(tmp_path, 'dev', 2)
    folder = glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)
    with pytest.raises(FileExistsError, match=r'prepared already in .*Delete'):
        glue.prepare_tfds(tmp_path, GLUE['mrpc'], data_dir=tmp_path)
    with pytest.raises(ValueError, match="no split 'train'; it has: validation"):
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
    [
        ('mrpc', 408),
        ('sts-b', 1500),
        ('sst-2', 872),
        ('rte', 277),
        ('qnli', 5463),
        ('mnli', 9815),
    ],
)
def test_real_dev_sets_are_read_whole(name, count):
    if not REAL.is_dir():
        pytest.skip(f'no GLUE files in {REAL} (set BERT_SECRETS_DATA)')
    examples = glue.read_glue(REAL, GLUE[name])
    assert len(examples) == count
    assert examples[-1].id == f'{name}/dev/{count - 1}'
    if not GLUE[name].is_regression:
        assert {example.label for example in examples} == set(range(GLUE[name].num_labels))
