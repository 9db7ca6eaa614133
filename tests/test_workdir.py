"""A run's folder keeps its config and refuses another one's."""

import json
import logging

import pytest

from bert_secrets_jax.files import write_atomically
from bert_secrets_jax.workdir import describe_versions, open_workdir, remember_input

CONFIG = {'model': {'name': 'a', 'dtype': 'float32'}, 'seed': 0, 'tasks': ('x',)}
OTHER = {'model': {'name': 'b', 'dtype': 'float32'}, 'seed': 1, 'tasks': ('x',)}


def test_config_and_versions_are_kept(tmp_path):
    path = open_workdir(tmp_path / 'run', CONFIG)
    assert json.loads((path / 'config.json').read_text())['model']['name'] == 'a'
    versions = json.loads((path / 'versions.json').read_text())
    assert versions['jax'][0].isdigit() and {'python', 'device', 'commit'} <= set(versions)


def test_results_of_another_config_are_refused(tmp_path):
    path = open_workdir(tmp_path / 'run', CONFIG)
    (path / 'heads.csv').write_text('results')
    open_workdir(path, CONFIG)
    with pytest.raises(ValueError, match=r"model.name was 'a', is 'b'; seed was 0, is 1"):
        open_workdir(path, OTHER)
    assert json.loads((path / 'config.json').read_text())['seed'] == 0


def test_free_parts_may_change(tmp_path):
    path = open_workdir(tmp_path / 'run', CONFIG)
    (path / 'heads.csv').write_text('results')
    open_workdir(path, CONFIG | {'tasks': ('y',)}, free=('tasks',))
    assert json.loads((path / 'config.json').read_text())['tasks'] == ['y']
    with pytest.raises(ValueError, match='seed was 0, is 1'):
        open_workdir(path, CONFIG | {'seed': 1}, free=('tasks',))
    elsewhere = CONFIG | {'model': {'name': 'b', 'dtype': 'float32'}, 'tasks': ('y',)}
    with pytest.raises(ValueError, match='model.name was'):
        open_workdir(path, elsewhere, free=('model.nam', 'tasks'))
    open_workdir(path, elsewhere, free=('model.name', 'tasks'))
    assert json.loads((path / 'config.json').read_text())['model']['name'] == 'b'


def test_a_run_that_came_to_nothing_blocks_nothing(tmp_path):
    path = open_workdir(tmp_path / 'run', CONFIG)
    for name in ('log.txt', 'error.txt', 'report.html', 'claims.csv'):
        (path / name).write_text('it failed')
    open_workdir(path, OTHER)
    assert json.loads((path / 'config.json').read_text())['seed'] == 1


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / 'thesis.tex').write_text('mine')
    with pytest.raises(ValueError, match='holds files of no run'):
        open_workdir(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ['thesis.tex']


def test_versions_are_those_of_all_results(tmp_path, caplog):
    path = open_workdir(tmp_path / 'run', CONFIG)
    now = json.loads((path / 'versions.json').read_text())
    (path / 'heads.csv').write_text('results')
    versions = json.loads((path / 'versions.json').read_text()) | {'jax': '0.1'}
    (path / 'versions.json').write_text(json.dumps(versions))
    for _ in range(2):
        with caplog.at_level(logging.WARNING, logger='absl'):
            open_workdir(path, CONFIG)
    assert caplog.text.count("jax was '0.1', is") == 1
    expected = now | {'jax': f'0.1, then {now["jax"]}'}
    assert json.loads((path / 'versions.json').read_text()) == expected
    # Another one that changes later takes nothing away.
    (path / 'versions.json').write_text(json.dumps(expected | {'commit': 'abc'}))
    open_workdir(path, CONFIG)
    expected |= {'commit': f'abc, then {now["commit"]}'}
    assert json.loads((path / 'versions.json').read_text()) == expected


def test_another_content_under_the_same_name_is_refused(tmp_path):
    remember_input(tmp_path, 'weights', 'abc')
    remember_input(tmp_path, 'texts', 'def')
    remember_input(tmp_path, 'weights', 'abc')
    with pytest.raises(ValueError, match='The weights are not those'):
        remember_input(tmp_path, 'weights', 'xyz')


def test_no_git_and_no_clone(monkeypatch):
    monkeypatch.setenv('PATH', '/nowhere')
    assert describe_versions()['commit'] == 'unknown'


def test_a_write_that_fails_leaves_the_former_file(tmp_path):
    path = tmp_path / 'folder' / 'table.csv'
    write_atomically(path, b'before')
    with pytest.raises(TypeError):
        write_atomically(path, 'not bytes')
    assert path.read_bytes() == b'before'
