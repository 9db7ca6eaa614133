"""Finished runs are read from their folders and put side by side; what is none is refused."""

import json
import re

import numpy as np
import pandas
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.configs import base
from bert_secrets_jax.measure.colours import Colours
from bert_secrets_jax.programs import cli
from bert_secrets_jax.runs.result import HeadMarks, Result, framed
from tests.programs.conftest import fake

SHAPE = (3, 4)


class Heads(Result):
    """A statistic of heads, and what it says of each at a glance."""

    grid: np.ndarray

    def frames(self):
        layer, head = np.indices(SHAPE).reshape(2, -1) + 1
        rows = zip(layer, head, self.grid.ravel(), strict=True)
        colours = Colours('heads', {'mean': ()})
        return {'heads': framed(('layer', 'head', 'mean'), list(rows), colours=colours)}

    def head_marks(self):
        marks = np.where(self.grid > 0, 'more', 'less')
        return [HeadMarks(title='is', drawn='colour', marks=marks, sentences=marks)]


class Later(Heads):
    """The same after its fields have changed."""

    FORMAT = 2


def measured(kind):
    def heads(*, seed) -> kind:
        return kind(np.random.default_rng(seed).normal(size=SHAPE))

    return fake(heads, file='one')


@pytest.fixture
def run(answer, tmp_path):
    """Return a function that makes a run with a section 'one', and returns its folder."""

    def run(name, *, model='tiny', task='mrpc', seed=0, **known):
        known = known or {'one': measured(Heads)}
        answer(known, folder=name, tasks=[task], seed=seed, **{'model.name': model})
        return tmp_path / name

    return run


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob('*') if path.is_file()}


def test_runs_are_read_and_put_side_by_side(run, tmp_path):
    folders = [run('a', seed=0), run('b', seed=1, task='rte')]
    before = [files(folder) for folder in folders]
    compared = bs.compare_runs(folders, out=tmp_path / 'out')
    (found,) = compared.agreements.values()
    assert 'RTE' in compared.rows and found['heads'] == 12
    assert [files(folder) for folder in folders] == before
    page = (tmp_path / 'out' / 'report.html').read_text()
    headings = re.findall('<h[23][^>]*>(.*?)</h[23]>', page)
    assert headings[:2] + headings[3:] == [
        'MRPC: all heads at a glance', 'RTE: all heads at a glance',
        'MRPC: This run', 'RTE: This run', 'How this page was made',
    ]  # fmt: skip
    assert '<small>Side by side</small>' in page
    # The differences are told: the seed and the task.
    assert page.count('<td>data.task</td>') == page.count('<td>seed</td>') == 2
    assert '<td>train.epochs</td>' not in page
    table = pandas.read_csv(tmp_path / 'out' / 'comparison_agreement.csv')
    assert table['within_layers'].tolist() == pytest.approx([found['within_layers']])


def test_names_tell_runs_apart(run, tmp_path):
    (tmp_path / 'x').mkdir()
    folders = [
        run('a', model='m1', seed=0), run('b', model='m2', seed=1),
        run('c', model='m2', task='rte', seed=2), run('x/a', model='m1', seed=3),
    ]  # fmt: skip

    def named(*chosen):
        return list(bs.compare_runs([folders[at] for at in chosen]).claims)

    assert named(0, 1) == ['m1', 'm2']
    assert named(1, 2) == ['MRPC', 'RTE']
    assert named(0, 2) == ['m1, MRPC', 'm2, RTE']
    assert named(0, 1, 3)[0] == f'm1, MRPC ({folders[0]})'
    # A folder of several runs, as of several tasks, stands for them.
    assert len(bs.compare_runs([tmp_path]).claims) == 3


def test_what_is_of_another_version_is_told_or_refused(run, use):
    known = {'one': measured(Heads), 'two': measured(Heads)}
    folders = [run('a', **known), run('b', model='other', seed=1, **known)]
    use({'one': measured(Heads), 'two': measured(Later)})
    told = bs.compare_runs(folders).notes()
    assert [note for note in told if note.startswith('Not compared')] == [
        'Not compared, since it is of another version or other inputs: two of '
        f'{run}. The command that made the run computes it again.'
        for run in ('tiny', 'other')
    ]
    use({'one': measured(Later), 'two': measured(Later)})
    with pytest.raises(ValueError, match=r'a has nothing that this version can read \(it was made'):
        bs.compare_runs(folders)


def test_nothing_in_common_is_refused(run, use):
    folders = [run('a', one=measured(Heads)), run('b', model='other', two=measured(Later))]
    use({'one': measured(Heads), 'two': measured(Later)})
    with pytest.raises(ValueError, match='no section in common: tiny has one; other has two. Run'):
        bs.compare_runs(folders)


def test_mistakes_are_one_line_that_says_how_to_mend_it(run, tmp_path):
    folder = run('a')
    settings = json.dumps(base.get_config().to_dict())
    for name, text in {
        'model': '{"model_type": "bert"}',
        'fresh': settings,
        'old': settings.replace('"seed": 0', '"seed": "a"'),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / 'config.json').write_text(text)
    for given, message in (
        ([folder], ' 1 given, at least 2 needed: give their folders'),
        ([folder, tmp_path / '.' / 'a'], ' twice: give each once.'),
        ([folder, tmp_path / 'none'], 'none is not the folder of a run'),
        ([folder, tmp_path / 'model'], 'has not the settings of a run'),
        ([folder, tmp_path / 'fresh'], 'has no finished section: the command that made it goes'),
        ([folder, tmp_path / 'old'], 'has settings of another version'),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(['compare', *map(str, given), f'--out={tmp_path / "out"}'])
        line = str(stopped.value)
        assert line.startswith('error: ') and message in line and len(line.splitlines()) == 1
    assert not (tmp_path / 'out').exists()
    other = run('b', seed=1)
    for out in (folder, tmp_path):
        with pytest.raises(ValueError, match='holds a run: choose another folder'):
            bs.compare_runs([folder, other], out=out)
    with pytest.raises(ValueError, match='runs is a list of folders'):
        bs.compare_runs(str(folder))


def test_the_command(run, tmp_path, capsys):
    folders = [str(run('a', seed=0)), str(run('b', seed=1, task='rte'))]
    cli.main(['compare', *folders, f'--out={tmp_path / "out"}'])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith('Heads of MRPC and RTE agree by a rank correlation of ')
    assert said[-1] == f'Report: {tmp_path / "out" / "report.html"}'
    with pytest.raises(SystemExit, match="error: unknown argument of compare '--model'"):
        cli.main(['compare', *folders, '--model=m'])
    with pytest.raises(SystemExit, match='error: unknown argument of report'):
        cli.main(['report', *folders])
