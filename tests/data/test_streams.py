"""Corpora of any size: what is read, how faults are named, and that nothing is held."""

import gzip
import lzma
import threading
import weakref

import numpy as np
import pytest
from absl import logging
from array_record.python.array_record_module import ArrayRecordWriter

import bert_secrets_jax as bs
from bert_secrets_jax.data import streams, tables
from bert_secrets_jax.data.tasks import Example
from tests.fuzz.test_texts import table_text
from tests.probes.conftest import LETTERS

TEXTS = ['the cat ran .', 'a dog saw the cat', 'he ran']


def text_file(path, texts=TEXTS):
    path.write_text('\n'.join(texts) + '\n', encoding='utf-8')
    return path


def record_file(path, records):
    writer = ArrayRecordWriter(str(path), 'group_size:2')
    for record in records:
        writer.write(record)
    writer.close()
    return path


def sentences(count, *, seed=0, longest=9):
    rng = np.random.default_rng(seed)
    return [' '.join(rng.choice(LETTERS, rng.integers(1, longest))) for _ in range(count)]


def read(path, **options):
    return [example.text_a for example in bs.stream_texts(path, **options)]


@pytest.mark.parametrize(
    ('suffix', 'packed'), [('', bytes), ('.gz', gzip.compress), ('.xz', lzma.compress)]
)
def test_each_line_is_a_text(tmp_path, suffix, packed):
    path = tmp_path / f'some.txt{suffix}'
    path.write_bytes(packed('\ufeffthe cat \r\n\n \t\nA \u2028 dog\u0085\nlast'.encode()))
    texts = bs.stream_texts(path)
    read = ['the cat ', 'A \u2028 dog\u0085', 'last']
    assert list(texts) == [Example(text, id=f'some/{row}') for row, text in enumerate(read)]
    assert [example.where for example in texts] == [f'{path}, line {n}' for n in (1, 4, 5)]


@pytest.mark.parametrize('kind', ['tsv', 'csv', 'jsonl'])
def test_tables_are_read_as_by_read_table(tmp_path, kind):
    rows = [['1', 'the "cat"', 'ran, twice', '-'], ['2', 'a dog', 'saw\u2028it', '-']]
    path = tmp_path / f'x.{kind}.gz'
    path.write_bytes(gzip.compress(table_text(kind, rows).encode()))
    columns = {'text_a': 'sentence', 'text_b': 'label'}
    found = list(bs.stream_texts(path, **columns))
    assert [list(example.texts) for example in found] == [row[1:3] for row in rows]
    assert found == bs.read_table(path, **columns)


def test_a_table_without_a_header(tmp_path):
    path = text_file(tmp_path / 'bare.tsv', ['1\tthe cat'])
    assert read(path, text_a='text', columns=('id', 'text')) == ['the cat']


def test_records_are_texts_or_examples_of_tensorflow(tmp_path):
    from tensorflow_datasets.proto import tf_example_pb2

    path = record_file(tmp_path / 'x.array_record', [text.encode() for text in TEXTS])
    texts = list(bs.stream_texts(path, name='mine'))
    assert [example.text_a for example in texts] == TEXTS
    assert texts[2].id == 'mine/2' and texts[2].where == f'{path}, record 3'

    def serialized(**texts):
        example = tf_example_pb2.Example()
        for name, text in texts.items():
            example.features.feature[name].bytes_list.value.append(text.encode())
        example.features.feature['label'].int64_list.value.append(1)
        return example.SerializeToString()

    records = [serialized(s=text, t=text.upper()) for text in TEXTS]
    path = record_file(tmp_path / 'y.array_record', records)
    found = list(bs.stream_texts(path, text_a='t', text_b='s'))
    assert [example.texts for example in found] == [(text.upper(), text) for text in TEXTS]
    plain = record_file(tmp_path / 'z.array_record', [b'the cat'])
    for file, column, fault in (
        (path, 'u', "no feature 'u', but label, s, t"),
        (path, 'label', "the feature 'label' is not one text"),
        (plain, 't', 'no tf.train.Example'),
    ):
        with pytest.raises(ValueError, match=f'record 1: {fault}'):
            bs.stream_texts(file, text_a=column)


@pytest.mark.parametrize(
    ('name', 'content', 'fault', 'columns'),
    [
        ('empty.txt', b'', 'empty.txt has nothing to read', {}),
        ('blank.txt', b'\n \n', 'blank.txt has nothing to read', {}),
        ('latin.txt', b'fine\ncaf\xe9\n', 'latin.txt: not UTF-8 at line 2, byte 8', {}),
        ('x.txt.gz', b'plain', 'x.txt.gz is damaged, or no .gz file', {}),
        ('x.txt.xz', lzma.compress(b'the cat\n' * 9)[:-9], 'is damaged, or no .xz file', {}),
        ('x.txt.gz', gzip.compress(b'the cat\n' * 9, mtime=0)[:20] + b'\xff' * 20, 'or no .gz', {}),
        ('x.txt.zst', b'', '.zst is not read. Unpack it, or compress it as .gz or .xz', {}),
        ('x.csv', b's\nthe cat\n', 'x.csv is a table: name the column of its texts, text_a=', {}),
        ('x.txt', b'the cat', "x.txt has no columns, and text_a='s' names one", {'text_a': 's'}),
        ('x.csv', b's\nthe cat\n', 'name the first one', {'text_b': 's'}),
        ('x.csv', b's\n"the cat\n', 'x.csv: line 2: .*Correct the quotes', {'text_a': 's'}),
        ('x.jsonl', b'{"s": "a"}\n{}\n', "line 2: no 's'. Correct it", {'text_a': 's'}),
        ('x.array_record', b'nothing', 'x.array_record is damaged, or no .array_record', {}),
        ('x.array_record', None, 'is a folder, and a file is needed', {}),
        ('x.csv', b's\n"' + b'the ' * 50, 'x.csv: line 2: field larger than', {'text_a': 's'}),
    ],
)
def test_faults_name_the_file_and_the_line(tmp_path, monkeypatch, name, content, fault, columns):
    monkeypatch.setattr(tables, 'LONGEST', 100)
    path = tmp_path / name
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=fault):
        read(path, **columns)


def test_bad_rows_can_be_left_out_and_are_told(tmp_path, caplog):
    path = text_file(tmp_path / 'x.tsv', ['s\tt', 'a cat\t1', *['the'] * 6, 'a dog\t1'])
    texts = bs.stream_texts(path, text_a='s', bad_rows='skip')
    found = [(example.text_a, example.id) for example in texts]
    assert found == [('a cat', 'x/0'), ('a dog', 'x/7')]
    assert '6 of 8 rows are bad: line 3: 1 field' in caplog.text
    assert 'and 1 more. Left out.' in caplog.text
    path = record_file(tmp_path / 'x.array_record', [b'\xff', b'a cat', b' '])
    assert read(path, bad_rows='skip') == ['a cat']
    assert '2 of 3 rows are bad: record 1: not UTF-8; record 3: ' in caplog.text
    path = text_file(tmp_path / 'y.tsv', ['s\tt', 'the'])
    with pytest.raises(ValueError, match='1 of 1 rows are bad.* No good row is left'):
        bs.stream_texts(path, text_a='s', bad_rows='skip')


def rows_of(batches):
    """Return the wordpieces, segments and numbers of words of each example, by its number."""
    found = {}
    for batch in batches:
        for row in np.flatnonzero(batch.example >= 0):
            real = batch.attention_mask[row] == 1
            parts = (batch.input_ids, batch.token_type_ids, *batch.marks.values())
            number = int(batch.example[row])
            assert number not in found
            found[number] = [np.asarray(part[row][real]).tolist() for part in parts]
    return found


@pytest.mark.parametrize('together', [3, 512])
@pytest.mark.parametrize('pairs', [False, True])
def test_batches_have_the_rows_of_encode(tokenizer, monkeypatch, together, pairs):
    monkeypatch.setattr(streams, '_TEXTS', together)
    texts = sentences(300)
    if pairs:
        texts = list(zip(texts, sentences(300, seed=1), strict=True))
    options = {'max_length': 14, 'buckets': (4, 8), 'tokens_per_batch': 64, 'batch_multiple': 3}
    batches = list(bs.stream_batches(tokenizer, texts, **options))
    assert rows_of(batches) == rows_of(bs.encode(tokenizer, texts, **options))
    assert sorted(rows_of(batches)) == list(range(300))
    # A shape for each length, as many rows as its tokens allow, and few that are empty.
    shapes = {batch.input_ids.shape for batch in batches}
    assert shapes <= {(15, 4), (6, 8), (3, 14)} and len(shapes) > 1
    last = {batch.input_ids.shape: batch for batch in batches}
    for batch in batches:
        assert batch.size == len(batch.example) or batch is last[batch.input_ids.shape]
        empty = batch.example < 0
        assert not batch.attention_mask[empty].any() and (batch.marks['word'][empty] == -1).all()


def test_few_texts_of_a_length_go_with_longer_ones(tokenizer):
    texts = ['the cat', *['the cat saw a big red dog and ran'] * 3]
    for fewest, lengths in ((1, {8, 16}), (2, {16})):
        batches = bs.stream_batches(tokenizer, texts, max_length=16, buckets=(8,), fewest=fewest)
        assert {batch.input_ids.shape[1] for batch in batches} == lengths


def test_each_iteration_begins_anew(tokenizer, tmp_path):
    texts = bs.stream_texts(text_file(tmp_path / 'x.txt'))
    batches = bs.stream_batches(tokenizer, texts, max_length=16)
    assert rows_of(batches) == rows_of(batches)
    once = bs.stream_batches(tokenizer, iter(TEXTS), max_length=16)
    assert len(rows_of(once)) == 3
    with pytest.raises(ValueError, match='There are no texts to encode'):
        list(once)


def test_what_is_lost_is_told_once_for_all(tokenizer, monkeypatch, tmp_path, caplog):
    # Importing TensorFlow Datasets, in another test, may set another level.
    caplog.set_level('INFO', logger='absl')
    monkeypatch.setattr(streams, '_TEXTS', 2)
    told = []
    for level in ('info', 'warning'):
        monkeypatch.setattr(logging, level, lambda text, *values: told.append(text % values))
    texts = ['the cat ran', 'the cat'] * 40 + ['\u4e2d', '\u200b', 'a ' * 30, 'the \u6587'] * 2
    path = tmp_path / 'x.txt'
    text_file(path, texts)
    list(bs.stream_batches(tokenizer, bs.stream_texts(path), max_length=16))
    assert [line for line in told if not line.startswith('Texts: ')] == [
        '2 of 88 examples were cut to 16 tokens.',
        f'2 of 88 texts (text_a) have no wordpiece, the first one in {path}, line 82: is the '
        'tokenizer made for them?',
        f'2 of 88 texts (text_a) have no wordpiece but [UNK], the first one in {path}, line 81: is '
        'the tokenizer made for them?',
        "2 % of the wordpieces (4 of 234) are [UNK], such as '\u4e2d', '\u6587'. Is the tokenizer "
        'made for these texts?',
    ]
    assert any(line.startswith('Texts: 88 texts, ') for line in told)
    with pytest.raises(ValueError, match='100 % of the wordpieces.*is not made for these texts'):
        next(iter(bs.stream_batches(tokenizer, ['\u4e2d \u6587'] * 9, max_length=16)))


def test_wrong_arguments_and_faults_in_the_middle(tokenizer, tmp_path, untyped, monkeypatch):
    for wrong in ('the cat', tmp_path, Example('the cat'), 3):
        with pytest.raises(TypeError, match='bs.stream_texts'):
            bs.stream_batches(tokenizer, wrong)
    for error, fault, texts in (
        (TypeError, 'Text 1 is a int', ['the cat', 3]),
        (ValueError, 'have one text and the others two', ['the cat', ('the', 'cat')]),
    ):
        with pytest.raises(error, match=fault):
            list(bs.stream_batches(tokenizer, texts))
    with pytest.raises(TypeError, match='is no tokenizer'):
        bs.stream_batches('tokenizer', ['the cat'])
    monkeypatch.setattr(streams, '_TEXTS', 2)
    path = tmp_path / 'x.txt'
    path.write_bytes(b'the cat\n' * 9 + b'\xe9\n')
    batches = iter(bs.stream_batches(tokenizer, bs.stream_texts(path), tokens_per_batch=32))
    next(batches)
    with pytest.raises(ValueError, match='not UTF-8 at line 10'):
        list(batches)


def test_a_stream_that_is_left_ends_its_thread(tokenizer, monkeypatch):
    monkeypatch.setattr(streams, '_TEXTS', 2)
    taken = 0

    def endless():
        nonlocal taken
        while True:
            taken += 1
            yield 'the cat'

    before = threading.active_count()
    batches = iter(bs.stream_batches(tokenizer, endless(), tokens_per_batch=32))
    next(batches)
    batches.close()
    assert threading.active_count() == before
    # No more than waits for the device, and what was being made.
    assert 2 <= taken <= 2 * (streams._WAITING + 3)


def test_nothing_of_a_corpus_is_kept(pretrained, tmp_path, monkeypatch):
    """Neither texts nor batches, but for those that are made ahead."""
    monkeypatch.setattr(streams, '_TEXTS', 8)
    seen, most = {'texts': [], 'batches': []}, {'texts': 0, 'batches': 0}

    def watched(kind, given):
        for each in given:
            seen[kind].append(weakref.ref(each))
            alive = sum(other() is not None for other in seen[kind])
            most[kind] = max(most[kind], alive)
            yield each

    texts = watched('texts', bs.stream_texts(text_file(tmp_path / 'x.txt', sentences(1_000))))
    options = {'max_length': 16, 'buckets': (), 'tokens_per_batch': 64}
    batches = bs.stream_batches(pretrained.tokenizer, texts, **options)
    table = bs.collect(pretrained, watched('batches', batches), ['[SEP]'])['[SEP]']
    assert table.count == len(seen['texts']) == 1_000 and len(seen['batches']) == 250
    assert most['texts'] < 100 and most['batches'] < 10
