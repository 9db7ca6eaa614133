"""A whole run as a user starts it: its results, resuming, and what is computed again."""

import html
import json
import os
import re
import shutil

import pytest

from bert_secrets_jax.programs.sections import SECTIONS
from tests.experiments.conftest import check_lines, kept, read, run
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
        for file in part['files']
    }  # fmt: skip
    shown = [*workdir.glob('*.csv'), *workdir.glob('f*s/*.*')]
    assert listed == {file.relative_to(workdir).as_posix() for file in shown} and len(listed) > 150
    log = (workdir / 'log.txt').read_text()
    for file in (workdir / 'figures').iterdir():
        assert file.stat().st_size > 1000
    # One pass for all sections, one for classes of patterns, and one for each fine-tuned model.
    assert log.count('Attention: 20/20 examples') == 2
    assert log.count('Change (seed 0): 20/20') == log.count('Change (seed 1): 20/20') == 1
    assert 'Section 22 of 22: claims' in log and 'failed' not in log
    page = (workdir / 'report.html').read_text()
    assert 'on 20 examples of MRPC dev' in page and 'of the paper are digitised' in page
    assert '87.9 / 82.3' in page and 'fine-tuned on 20 examples of MRPC train' in page
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
    named = {name for name, section in SECTIONS.items() if section.asked == 'name'}
    assert {*lines} == {*SECTIONS} - named - {'masked_lm'}
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


def explored(page):
    """Return the data of the explorer, which stands behind those of the atlas and of grids."""
    (text,) = re.findall(
        r'class="bs-explorer">.*?<script type="application/json">(.*?)</script>', page, re.S
    )
    return json.loads(text)


def test_the_explorer_has_both_models_and_what_is_known_of_each_head(finished):
    """How exact its maps are is tested in tests/report; here, that they are of these models."""
    workdir, _ = finished
    data = explored((workdir / 'report.html').read_text())
    assert data['shape'] == [3, 4] and data['models'][1] == 'fine-tuned'
    assert [len(sentence['kinds'][0]['maps']) for sentence in data['sentences']] == [2] * 3
    notes = dict(data['notes'])
    effects = [row for row in read(workdir / 'ablation_heads.csv') if row['metric'] == 'f1']
    for row, text in zip(effects, notes['F1 without it'], strict=True):
        assert text.startswith(f'{100 * float(row["difference"]):+.2f} points (')
    sep = [row for row in read(workdir / 'features_heads.csv') if row['statistic'] == '[SEP]']
    assert notes['attention to [SEP]'][6].startswith(f'{float(sep[6]["mean"]):.4f} ±')


def _log_since(workdir, start: int) -> str:
    return (workdir / 'log.txt').read_text()[start:]


def _shown(page: str) -> str:
    """Return the page without figures, prices, whose commands name the folder, and its seal."""
    page = re.sub(r'<details class="offers">.*?</details>', '', page, flags=re.S)
    return re.sub(r'src="data:image[^"]*"|<!-- made of .*? -->', '', page)


# The pace of the machine, and the prices of what the page lacks, are kept with other results.
WITH_THE_PAGE = {'pace', 'offers'}


@pytest.mark.slow
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

    # Other training: nothing of the model as it is; what was made from the former is gone.
    new, log = again('finetune', '--config.train.epochs=1')
    assert new - WITH_THE_PAGE <= {'finetuning'}
    assert 'Fine-tuning' in log and 'Attention: ' not in log and 'Frames: ' not in log
    left = {file.name.partition('_')[0].partition('.')[0] for file in copied.glob('*.csv')}
    assert left == {
        'special', 'relations', 'frames', 'finetuning', 'look', 'clusters', 'syntax', 'probes',
        'claims',
    }  # fmt: skip
    figures = {file.name.partition('_')[0] for file in (copied / 'figures').iterdir()}
    assert not {'ablation', 'attention', 'patterns', 'features', 'cls'} & figures
    assert not (copied / 'findings' / 'ablation.csv').exists()
    # Gradients are of the classifier that the model came with, and not of a fine-tuned one.
    assert (copied / 'look_at_gradients.csv').exists()
    verdicts = [row['verdict'] for row in read(copied / 'claims.csv')]
    assert verdicts.count('not measured') > 3

    # The first settings find all of it again, and the same page.
    new, log = again('reproduce')
    assert new <= WITH_THE_PAGE and read(copied / 'ablation_heads.csv') == uniform
    for what in ('Attention: ', 'Change (', 'Fine-tuning', 'Frames: ', 'Ablation'):
        assert what not in log
    assert first <= kept(copied)
    assert _shown((copied / 'report.html').read_text()) == _shown(page)
