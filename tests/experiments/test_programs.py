"""A whole run as a user starts it: its results, resuming, and what is computed again."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.programs.report import SECTIONS
from tests.conftest import ROOT
from tests.experiments.conftest import check_lines, checkpoints, kept, read, run
from tests.experiments.conftest import settings as of_default_sections

# A run of all sections takes minutes, whatever is then asked of it.
pytestmark = pytest.mark.slow


def settings(*given):
    """Return the settings of a run of all sections and all sets of masks."""
    sets = "--config.ablation.sets=('heads', 'layers', 'one_head_left')"
    return (*of_default_sections(*given), sets, '--sections=all')


@pytest.fixture(scope='module')
def finished(tmp_path_factory, checkpoint, glue_dir):
    workdir = tmp_path_factory.mktemp('run') / 'mrpc'
    return workdir, run('reproduce', *settings(checkpoint, glue_dir, workdir))


@pytest.fixture
def copied(finished, tmp_path):
    """The folder of a finished run, to go on with."""
    return shutil.copytree(finished[0], tmp_path / 'mrpc')


def test_results_are_files(finished):
    workdir, result = finished
    assert result.stdout.strip().splitlines()[-1] == f'Report: {workdir / "report.html"}'
    assert {'config.json', 'versions.json', 'log.txt'} <= set(os.listdir(workdir))
    # Every table and figure belongs to a section, which takes it away when it is stale.
    listed = {
        file for part in json.loads((workdir / 'outputs.json').read_text()).values()
        for file in part['sha256_of']
    }  # fmt: skip
    shown = [*workdir.glob('*.csv'), *workdir.glob('f*s/*.*')]
    assert listed == {file.relative_to(workdir).as_posix() for file in shown} and len(listed) > 150
    log = (workdir / 'log.txt').read_text()
    # One pass for all sections, one for classes of patterns, and one for each fine-tuned model.
    assert log.count('Attention: 20/20 examples') == 2
    assert log.count('Change (seed 0): 20/20') == log.count('Change (seed 1): 20/20') == 1
    assert 'Section 22 of 22: claims' in log and 'failed' not in log
    page = (workdir / 'report.html').read_text()
    assert 'Texts: MRPC dev.' in page
    assert '87.9 / 82.3' in page and 'Fine-tuned on 20 examples from pre-trained' in page
    assert 'Still to come' not in page
    # Nothing that others want to say at the same place.
    assert 'PyTorch' not in result.stderr and 'Warning' not in result.stderr


@pytest.mark.slow
def test_the_lines_of_python_on_the_page_make_the_same_again(finished):
    """Each is run as it stands on the page, after the names that stand at its end."""
    workdir, _ = finished
    page = (workdir / 'report.html').read_text()
    *found, names = map(html.unescape, re.findall('Python[^:<]*: <code>(.*?)</code>', page))
    lines = {line.partition(' = ')[0]: line for line in found}
    # The others are run by tests/programs/test_calls.py.
    named = {name for name, section in SECTIONS.items() if section.report == 'name'}
    # The model predicts no words, and does not say how it pools.
    assert {*lines} == {*SECTIONS} - named - {'masked_lm', 'similarity', 'retrieval'}
    check_lines(names, lines, workdir)


def test_a_finished_run_is_read_and_not_computed_again(finished, checkpoint, glue_dir, tmp_path):
    """The texts and the checkpoint are gone, and yet the same report comes out."""
    workdir, first = finished
    before = (workdir / 'report.html').read_text()
    (workdir / 'report.html').unlink()
    results = [*workdir.rglob('*.csv'), *(workdir / 'figures').iterdir()]
    results += (workdir / 'kept').iterdir()
    written = {file: file.stat().st_mtime_ns for file in results}
    hidden = checkpoint.rename(tmp_path / 'checkpoint'), glue_dir.rename(tmp_path / 'glue')
    try:
        again = run('reproduce', *settings(checkpoint, glue_dir, workdir))
    finally:
        hidden[0].rename(checkpoint)
        hidden[1].rename(glue_dir)
    assert (workdir / 'report.html').read_text() == before
    assert again.stdout == first.stdout
    # Nothing was drawn or written again.
    assert {file: file.stat().st_mtime_ns for file in results} == written
    assert 'Not found any more: weights' in again.stderr


def _log_since(workdir, start: int) -> str:
    return (workdir / 'log.txt').read_text()[start:]


def _shown(page: str) -> str:
    """Return the page without figures, prices, whose commands name the folder, and its seal."""
    page = re.sub(r'<details class="offers">.*?</details>', '', page, flags=re.S)
    return re.sub(r'src="data:image[^"]*"|<!-- made of .*? -->', '', page)


# The pace of the machine, and the prices of what the page lacks, are kept with other results.
WITH_THE_PAGE = {'pace', 'offers'}


def test_a_changed_setting_computes_its_dependents_alone(copied, checkpoint, glue_dir, run_here):
    given = settings(checkpoint, glue_dir, copied)
    first, page = kept(copied), (copied / 'report.html').read_text()
    names = lambda results: {name.rpartition('-')[0] for name in results}

    def again(program, *changed):
        """Return the names of what is new, and what the log has to say."""
        before, start = kept(copied), (copied / 'log.txt').stat().st_size
        own = given if program == 'reproduce' else given[:-1]
        # A flag of a tuple that is given twice adds to it.
        again_given = tuple(each.partition('=')[0] + '=' for each in changed)
        own = [each for each in own if not each.startswith(again_given)]
        run_here(program, *own, *changed)
        # The former results stay, for their settings.
        assert before <= kept(copied)
        return names(kept(copied) - before), _log_since(copied, start)

    # More random links: the pass measures these alone, and nothing of a fine-tuned model.
    new, log = again('reproduce', '--config.links.draws=120')
    assert new - WITH_THE_PAGE == {'relations', 'frames', 'syntax_heads', 'roles'} | {
        f'random_links_from_{title}' for title in (
            'verb_to_subject', 'subject_to_verb', 'noun_to_pronoun', 'pronoun_to_noun',
        )
    }  # fmt: skip
    assert 'Change (' not in log and 'Fine-tuning' not in log and 'Ablation' not in log
    sections = re.findall(r'Section \d of \d: (\w+)', log)
    assert sections == ['relations', 'frames', 'syntax_heads', 'roles', 'maps', 'claims']

    # Another baseline, and only one section asked for: that is swept, and nothing else is done.
    uniform = read(copied / 'ablation_heads.csv')
    new, log = again(
        'ablate', '--config.ablation.baseline=zero', "--config.ablation.sets=('heads',)"
    )
    assert new - WITH_THE_PAGE == {'ablation'}
    assert 'Attention: ' not in log and 'Fine-tuning' not in log and 'Frames: ' not in log
    zero = read(copied / 'ablation_heads.csv')
    assert [row['disabled'] for row in zero] == [row['disabled'] for row in uniform]
    assert zero != uniform
    assert json.loads((copied / 'config.json').read_text())['ablation']['baseline'] == 'zero'
    # Its other sets are no longer asked for, and their files are gone.
    assert not (copied / 'ablation_layers.csv').exists()

    # The first settings find all of it again, and the same page.
    new, log = again('reproduce')
    assert new <= WITH_THE_PAGE and read(copied / 'ablation_heads.csv') == uniform
    for what in ('Attention: ', 'Change (', 'Fine-tuning', 'Ablation'):
        assert what not in log
    assert first <= kept(copied)
    assert _shown((copied / 'report.html').read_text()) == _shown(page)


OWN = '''
"""Attention to the first half of the tokens."""
import jax.numpy as jnp


def first_half(attentions, marks):
    tokens = marks['token']
    first = tokens & (jnp.cumsum(tokens) <= tokens.sum() / 2)
    received = (attentions * first[None, None, None]).sum(-1) * tokens[None, None]
    return received.sum(-1) / tokens.sum(), jnp.ones(())
'''


def test_a_statistic_of_ones_own(copied, checkpoint, glue_dir, tmp_path, run_here, monkeypatch):
    """Named in the settings, it is in the table, the frame, the page and the explorer."""
    (tmp_path / 'mymodule.py').write_text(OWN)
    given = (
        *settings(checkpoint, glue_dir, copied),
        "--config.statistics=('[SEP]','mymodule:first_half')",
    )
    before = kept(copied)
    monkeypatch.syspath_prepend(tmp_path)
    run_here('reproduce', *given)
    # It alone is measured, in the model as it is and in the fine-tuned ones.
    assert {name.rpartition('-')[0] for name in kept(copied) - before} - WITH_THE_PAGE == {
        'mymodule_first_half', 'change_of_mymodule_first_half',
        'special_tokens', 'attention_change',
    }  # fmt: skip
    name = 'mymodule:first_half'
    heads = bs.read_results(copied)['special_tokens_heads']
    assert heads['statistic'].unique().tolist() == ['[SEP]', name]
    page = (copied / 'report.html').read_text()
    # Its figure is on the page, and those that are not asked for are gone.
    assert 'href="figures/special_tokens_mymodule_first_half.pdf"' in page
    assert not (copied / 'figures' / 'special_tokens_entropy_nats.svg').exists()
    (text,) = re.findall(
        r'class="bs-explorer">.*?<script type="application/json">(.*?)</script>', page, re.S
    )
    data, mean = json.loads(text), heads.query('statistic == @name')['mean'].iloc[6]
    # Behind the data of the atlas and of grids: of both models.
    assert data['shape'] == [3, 4] and data['models'][1] == 'fine-tuned'
    # Heads are coloured by it.
    values, *_ = re.findall(r'"of":"mymodule:first half".*?"values":\[\[(.*?)\]', page)
    assert float(values.split(',')[6]) == pytest.approx(mean, rel=1e-4)


def test_a_checkpoint_that_is_fine_tuned_already(finished, glue_dir, tmp_path, run_here):
    """Ablated as it is; a list of heads too; and pairs of heads beyond the sum of two."""
    finetuned = checkpoints(finished[0]) / 'seed0' / 'last'
    given = (
        *settings(finetuned, glue_dir, tmp_path / 'run'),
        '--config.ablation.checkpoint=model',
        "--config.ablation.sets=('heads',)",
        '--config.ablation.together=L1-H2,L3-H1',
        '--config.ablation.pairs_of=L1-H2,L3-H1,L3-H2',
    )
    run_here('reproduce', *given, '--sections=ablate,interactions')
    assert not (tmp_path / 'run' / 'finetune').exists()
    heads = read(finished[0] / 'ablation_heads.csv')
    assert read(tmp_path / 'run' / 'ablation_heads.csv') == heads
    (both,) = (
        float(row['difference'])
        for row in read(tmp_path / 'run' / 'ablation_together.csv')
        if row['metric'] == 'f1'
    )
    alone = {row['disabled']: float(row['difference']) for row in heads if row['metric'] == 'f1'}
    pairs = read(tmp_path / 'run' / 'interactions.csv')
    assert [(row['head_a'], row['head_b']) for row in pairs] == [
        ('L1-H2', 'L3-H1'), ('L1-H2', 'L3-H2'), ('L3-H1', 'L3-H2'),
    ]  # fmt: skip
    beyond = both - alone['L1-H2'] - alone['L3-H1']
    assert float(pairs[0]['interaction_f1']) == pytest.approx(100 * beyond, abs=1e-6)


# In a background job of a shell Ctrl-C is ignored, by its children too.
_FINETUNE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = 'finetune'
runpy.run_module('experiments.finetune', run_name='__main__')
"""


def _stopped(arguments, workdir, step, how) -> tuple[int, str]:
    """Start a fine-tuning and stop it once there is a checkpoint of a step."""
    process = subprocess.Popen(
        [sys.executable, '-c', _FINETUNE, *map(str, arguments)],
        cwd=ROOT, env=os.environ | {'JAX_PLATFORMS': 'cpu'}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        written = f'finetune/pretrained-*/checkpoints/{step}/commit_success.txt'
        while not list(workdir.glob(written)):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert not (checkpoints(workdir) / 'outcome.json').exists()
    return process.returncode, said


def test_stopped_and_resumed_equals_uninterrupted(finished, checkpoint, glue_dir, tmp_path):
    """Ctrl-C after the first epoch, kill -9 after the second; the same command; the same bits."""
    workdir, _ = finished
    # Fine-tuning is one section.
    *arguments, _ = settings(checkpoint, glue_dir, tmp_path / 'run')
    # Checkpoints are named by their step: 0 before training, 3 after the first epoch.
    code, said = _stopped(arguments, tmp_path / 'run', 3, signal.SIGINT)
    assert code == 130 and 'Traceback' not in said
    assert said.splitlines()[-1] == 'stopped; the same command continues'
    code, said = _stopped(arguments, tmp_path / 'run', 6, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert 'The training begins again' not in said and 'stopped;' not in said
    run('finetune', *arguments)
    for seed in (0, 1):
        parts = (f'seed{seed}', 'last', 'model.safetensors')
        resumed, uninterrupted = (
            checkpoints(folder).joinpath(*parts).read_bytes()
            for folder in (tmp_path / 'run', workdir)
        )
        assert resumed == uninterrupted
    curves = [checkpoints(folder) / 'curve.jsonl' for folder in (tmp_path / 'run', workdir)]
    assert curves[0].read_text() == curves[1].read_text()
