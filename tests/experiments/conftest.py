"""The shared parts of the tests of programs: running them, a tiny checkpoint, a tiny GLUE."""

import contextlib
import csv
import functools
import io
import os
import pathlib
import subprocess
import sys
import types

import pytest
from absl import logging

from bert_secrets_jax.files import csv_text
from bert_secrets_jax.plots import figure
from bert_secrets_jax.programs import cli, conversation
from bert_secrets_jax.programs.given import Study
from bert_secrets_jax.programs.report import SECTIONS
from bert_secrets_jax.programs.settings import assign
from bert_secrets_jax.report.page import file_name
from tests.conftest import ROOT


def run(program, *arguments, ok=True, package='experiments', **environment):
    environment = os.environ | {'JAX_PLATFORMS': 'cpu'} | environment
    result = subprocess.run(
        [sys.executable, '-m', f'{package}.{program}', *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert (result.returncode == 0) == ok, result.stderr[-3000:]
    return result


@pytest.fixture
def run_here(monkeypatch):
    """Return `run` within this process, which shares what is compiled; figures are empty."""
    empty = b'<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt"></svg>'
    monkeypatch.setattr(figure, '_render', lambda *_, **given: empty)
    monkeypatch.setattr(conversation, 'enable_cache', str)
    # Programs of their own have one device.
    monkeypatch.setattr(Study, 'mesh_with', lambda *_: None)
    # And were started in the clone, whose commands the page shows.
    started = types.SimpleNamespace(name='experiments.reproduce')
    monkeypatch.setattr(sys.modules['__main__'], '__spec__', started)
    monkeypatch.chdir(ROOT)

    def run_here(program, *arguments, ok=True):
        given = dict(each.removeprefix('--').split('=', 1) for each in map(str, arguments))
        file, _, variant = given.pop('config').partition(':')
        workdir, sections = given.pop('workdir'), given.pop('sections', '')
        chosen = sections.split(',') if sections else None if program == 'reproduce' else [program]
        config = cli.CONFIGS[pathlib.Path(file).stem](*[variant] * bool(variant))
        for name, value in given.items():
            assign(config, name.removeprefix('config.'), value)
        said, stopped = io.StringIO(), ''

        level = logging.get_absl_logger().level
        logging.get_absl_logger().setLevel('INFO')
        try:
            with contextlib.redirect_stdout(said):
                answer = functools.partial(conversation.answer, chosen=chosen)
                conversation.run_in(workdir, config, answer)
        except SystemExit as error:
            stopped = str(error)
        finally:
            logging.get_absl_logger().setLevel(level)
        assert (not stopped) == ok, stopped
        return subprocess.CompletedProcess(program, bool(stopped), said.getvalue(), stopped)

    return run_here


def error_line(result) -> str:
    """Return the error; what stands before it are lines of the log, and no traceback."""
    assert 'Traceback' not in result.stderr
    return result.stderr.strip().splitlines()[-1]


def settings(checkpoint, glue_dir, workdir, config='configs/paper.py:mrpc'):
    return (
        f'--config={config}',
        f'--config.model.name={checkpoint}',
        f'--config.data.glue_dir={glue_dir}',
        '--config.encoding.max_length=24',
        # Sixty wordpieces know few of the embedded sentences.
        '--config.model.allow_unknown=True',
        '--config.treebank.max_train=40',
        '--config.treebank.max_dev=40',
        '--config.probe.epochs=1',
        "--config.train.starts=('pretrained',)",
        '--config.train.num_seeds=2',
        '--config.train.batch_size=8',
        '--config.train.learning_rate=1e-3',
        f'--workdir={workdir}',
    )


def read(path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def check_lines(names, lines, workdir):
    """Run the names and lines of Python that a page shows; each gives the same CSV files again."""
    space = {}
    exec(names, space)
    for section in SECTIONS:
        if section not in lines:
            continue
        exec(lines[section], space)
        frames = space[section].frames()
        # Maps of sentences are no table.
        assert frames or section == 'maps'
        for name, frame in frames.items():
            if section == 'prune' and name in ('speed', 'times'):
                # Seconds of this time.
                continue
            file = f'{file_name(SECTIONS[section].files, name)}.csv'
            again = csv_text(list(frame.columns), frame.itertuples(index=False))
            assert again == (workdir / file).read_text(), file


def kept(workdir) -> set[str]:
    """Return the names of the results that a run keeps, each with what it depends on."""
    return {file.stem for file in (workdir / 'kept').glob('*.npz')}


def checkpoints(workdir, start='pretrained') -> pathlib.Path:
    """Return the folder of the one fine-tuning of a run."""
    (folder,) = (path for path in (workdir / 'finetune').glob(f'{start}-*') if path.is_dir())
    return folder
