"""What the tests of programs share: running them, a tiny checkpoint, a tiny GLUE."""

import csv
import os
import pathlib
import re
import subprocess
import sys

import pytest

import bert_secrets_jax as bs
from tests.conftest import ROOT


def run(program, *arguments, ok=True, package='experiments', **environment):
    environment = os.environ | {'JAX_PLATFORMS': 'cpu'} | environment
    result = subprocess.run(
        [sys.executable, '-m', f'{package}.{program}', *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert (result.returncode == 0) == ok, result.stderr[-3000:]
    return result


def error_line(result) -> str:
    """Return the error; what stands before it are lines of the log, and no traceback."""
    *log, line = result.stderr.strip().splitlines()
    assert all(re.match(r'[IW]\d{4} ', before) for before in log), result.stderr
    return line


@pytest.fixture(scope='session')
def checkpoint(tmp_path_factory, bert, params, tokenizer):
    directory = tmp_path_factory.mktemp('checkpoint')
    bs.save_pretrained(bs.Pretrained(bert, params, tokenizer), directory)
    return directory


def settings(checkpoint, glue_dir, workdir, config='configs/paper.py:mrpc'):
    return (
        f'--config={config}',
        f'--config.model.name={checkpoint}',
        f'--config.data.glue_dir={glue_dir}',
        '--config.encoding.max_length=24',
        "--config.train.starts=('pretrained',)",
        '--config.train.num_seeds=2',
        '--config.train.batch_size=8',
        '--config.train.learning_rate=1e-3',
        f'--workdir={workdir}',
    )


def read(path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def kept(workdir) -> set[str]:
    """Return the names of the results that a run keeps, each with what it depends on."""
    return {file.stem for file in (workdir / 'kept').glob('*.npz')}


def checkpoints(workdir, start='pretrained') -> pathlib.Path:
    """Return the folder of the one fine-tuning of a run."""
    (folder,) = (path for path in (workdir / 'finetune').glob(f'{start}-*') if path.is_dir())
    return folder
