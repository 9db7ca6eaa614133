"""A fine-tuning whose files were damaged: each is named, and the same bits are computed again."""

import shutil

import jax
import numpy as np
import pytest

from bert_secrets_jax.files import checksums, write_record
from bert_secrets_jax.finetune.train import Finetuned, finetune, remove_unknown
from tests.finetune.test_train import DEV, SETTINGS, TRAIN
from tests.fuzz.broken import logged

FEW = SETTINGS | {'seeds': 1, 'epochs': 1}


@pytest.fixture(scope='module')
def finished(pretrained, tmp_path_factory):
    folder = tmp_path_factory.mktemp('finished') / 'run'
    return finetune(pretrained, TRAIN, DEV, folder=folder, **FEW)


@pytest.fixture
def folder(finished, tmp_path):
    return shutil.copytree(finished.folder, tmp_path / 'run')


@pytest.fixture
def told():
    """The warnings."""
    with logged() as lines:
        yield lines


DAMAGES = {
    'truncated': lambda data: data[: len(data) // 2],
    'emptied': lambda data: b'',
    'flipped': lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    'replaced': lambda data: b'{"settings": {}, "digests": {}}',
}


def damage(file, how):
    file.write_bytes(DAMAGES[how](file.read_bytes()))


def checkpoint(folder):
    """The largest file of the checkpoint, that of the numbers."""
    files = [path for path in (folder / 'checkpoints').rglob('*') if path.is_file()]
    return max(files, key=lambda path: path.stat().st_size)


FILES = [
    'outcome.json', 'seed0/last/model.safetensors', 'seed0/best/model.safetensors',
    'seed0/last/config.json', 'seed0/best.json',
]  # fmt: skip


@pytest.mark.parametrize('name', FILES)
def test_damaged_files_are_named_and_computed_again(pretrained, finished, folder, told, name):
    for how in DAMAGES if name in FILES[:2] else ('flipped',):
        file = folder / name
        before = file.read_bytes()
        damage(file, how)
        with pytest.raises(ValueError, match=file.name):
            Finetuned.load(folder)
        told.clear()
        again = finetune(pretrained, TRAIN, DEV, folder=folder, **FEW)
        assert any(file.name in line for line in told)
        assert again.history == finished.history
        jax.tree.map(
            np.testing.assert_array_equal, again.models[0].params, finished.models[0].params
        )
        if 'safetensors' in name:
            assert file.read_bytes() == before


@pytest.mark.parametrize(
    ('how', 'file'),
    [
        ('truncated', checkpoint),
        ('flipped', checkpoint),
        ('emptied', lambda folder: folder / 'checkpoint.json'),
    ],
)
def test_a_damaged_checkpoint_is_not_gone_on_from(pretrained, finished, folder, told, how, file):
    (folder / 'outcome.json').unlink()
    with pytest.raises(FileNotFoundError, match='no finished fine-tuning'):
        Finetuned.load(folder)
    name = file(folder).name
    damage(file(folder), how)
    again = finetune(pretrained, TRAIN, DEV, folder=folder, **FEW)
    assert any('The training begins again' in line and name in line for line in told)
    assert again.history == finished.history


def test_killed_while_the_checkpoint_before_is_removed(pretrained, finished, folder, told):
    """The newer one is complete, its checksums are not written: nothing begins again."""
    (folder / 'outcome.json').unlink()
    (latest,) = (folder / 'checkpoints').iterdir()
    files = shutil.copytree(latest, folder / 'checkpoints' / '0')
    write_record(folder / 'checkpoint.json', {'step': '0', 'files': checksums(files)})
    next(path for path in files.rglob('*') if path.is_file()).unlink()
    again = finetune(pretrained, TRAIN, DEV, folder=folder, **FEW)
    assert not told and again.history == finished.history
    assert [path.name for path in (folder / 'checkpoints').iterdir()] == [latest.name]


def test_nobody_goes_on_with_a_folder_of_unknown_inputs(pretrained, finished, folder):
    # An intact one is not removed.
    remove_unknown(folder)
    assert (folder / 'outcome.json').exists()
    damage(folder / 'inputs.json', 'truncated')
    with pytest.raises(ValueError, match=r'inputs\.json is damaged .* choose another folder'):
        finetune(pretrained, TRAIN, DEV, folder=folder, **FEW)
    # The programs, whose folder it is, compute it again.
    remove_unknown(folder)
    assert finetune(pretrained, TRAIN, DEV, folder=folder, **FEW).history == finished.history
