"""A run's folder says with which settings and versions its results were made."""

import json

import pytest

from bert_secrets_jax.runs.folder import describe_versions, open_folder
from tests.fuzz.broken import logged

CONFIG = {'model': {'name': 'a', 'dtype': 'float32'}, 'seed': 0, 'tasks': ('x',)}


def read(path, name):
    return json.loads((path / f'{name}.json').read_text())


def test_config_and_versions_are_kept_and_settings_may_change(tmp_path):
    path = open_folder(tmp_path / 'run', CONFIG)
    assert read(path, 'config') == CONFIG | {'tasks': ['x']}
    versions = read(path, 'versions')
    assert versions['jax'][0].isdigit() and {'python', 'device', 'commit'} <= set(versions)
    (path / 'heads.csv').write_text('results')
    open_folder(path, CONFIG | {'seed': 1})
    assert read(path, 'config')['seed'] == 1 and (path / 'heads.csv').exists()


def test_versions_are_those_of_all_results(tmp_path):
    path = open_folder(tmp_path / 'run', CONFIG)
    now = expected = read(path, 'versions')
    # Another one that changes later takes nothing away.
    for name in ('jax', 'commit'):
        (path / 'versions.json').write_text(json.dumps(expected | {name: '0.1'}))
        with logged() as lines:
            for _ in range(2):
                open_folder(path, CONFIG)
        assert ' '.join(lines).count(f"{name} was '0.1', is") == 1
        expected = expected | {name: f'0.1, then {now[name]}'}
        assert read(path, 'versions') == expected


def test_a_run_without_its_config_goes_on_and_says_so(tmp_path):
    path = open_folder(tmp_path / 'run', CONFIG)
    (path / 'kept').mkdir()
    (path / 'config.json').unlink()
    with logged() as lines:
        open_folder(path, CONFIG | {'seed': 1})
    assert len(lines) == 1 and f'{path} has lost its config.json' in lines[0]
    assert read(path, 'config')['seed'] == 1
    for name in ('config.json', 'versions.json'):
        (path / name).unlink()
    with pytest.raises(ValueError, match='holds files of no run'):
        open_folder(path, CONFIG)


def test_no_git_and_no_clone(monkeypatch):
    monkeypatch.setenv('PATH', '/nowhere')
    describe_versions.cache_clear()
    try:
        assert describe_versions()['commit'] == 'unknown'
    finally:
        describe_versions.cache_clear()


def test_the_folder_of_a_model_is_no_folder_of_a_run(tmp_path):
    (tmp_path / 'config.json').write_text('{"model_type": "bert"}')
    (tmp_path / 'model.safetensors').touch()
    with pytest.raises(ValueError, match='holds a model'):
        open_folder(tmp_path, {})
    assert (tmp_path / 'config.json').read_text() == '{"model_type": "bert"}'


@pytest.mark.parametrize('damaged', ['', '[]', '{"jax": 1}', '{', '\0'])
def test_damaged_versions_are_told_and_written_again(tmp_path, damaged):
    open_folder(tmp_path, {'a': 1})
    whole = (tmp_path / 'versions.json').read_text()
    (tmp_path / 'versions.json').write_text(damaged)
    open_folder(tmp_path, {'a': 1})
    assert (tmp_path / 'versions.json').read_text() == whole
