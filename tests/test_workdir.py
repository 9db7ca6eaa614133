"""A run's folder keeps its config and refuses another one's."""

import json

import pytest

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.workdir import open_workdir


def test_resume_with_the_same_config_only(tmp_path):
    config = {'model': {'name': 'a', 'dtype': 'float32'}, 'seed': 0, 'tasks': ('x',)}
    path = open_workdir(tmp_path / 'run', config)
    assert json.loads((path / 'config.json').read_text())['model']['name'] == 'a'
    versions = json.loads((path / 'versions.json').read_text())
    assert versions['jax'][0].isdigit() and {'python', 'device', 'commit'} <= set(versions)
    open_workdir(path, config)
    with pytest.raises(ValueError, match=r"model.name was 'a', is 'b'; seed was 0, is 1"):
        open_workdir(
            path,
            {'model': {'name': 'b', 'dtype': 'float32'}, 'seed': 1, 'tasks': ('x',)},
        )
    assert json.loads((path / 'config.json').read_text())['seed'] == 0


def test_a_write_that_fails_leaves_the_former_file(tmp_path):
    path = tmp_path / 'folder' / 'table.csv'
    write_atomically(path, b'before')
    with pytest.raises(TypeError):
        write_atomically(path, 'not bytes')
    assert path.read_bytes() == b'before'
