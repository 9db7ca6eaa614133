"""The scripts of `examples/` run, are short, and the encoder in one file is the library's."""

import runpy

import jax
import numpy as np
import pytest

from tests.conftest import ROOT, forward, random_inputs, real_checkpoint

EXAMPLES = ROOT / 'examples'
# The most lines of a script, and of the encoder.
_SCRIPT, _ENCODER = 40, 250


@pytest.fixture(scope='module')
def encoder():
    return runpy.run_path(str(EXAMPLES / 'bert_in_one_file.py'))


def test_the_encoder_in_one_file_is_the_librarys(encoder, pretrained, checkpoint, config):
    inputs = random_inputs(config, lengths=(9, 4, 6), length=9, seed=1)
    mask = np.ones((3, 4), np.float32)
    mask[0, 1], mask[2] = 0, 0.25
    # The file is written as its readers write.
    with jax.numpy_rank_promotion('allow'):
        found = encoder['run'](*encoder['load'](checkpoint), *inputs.values(), head_mask=mask)
    expected = forward(pretrained.bert, pretrained.params, inputs, head_mask=mask)
    real = inputs['attention_mask'].astype(bool)
    states = np.moveaxis(np.asarray(found.hidden_states), 0, 1)
    assert states.shape == expected.hidden_states.shape
    kept = real[:, None, :, None]
    scale = np.abs(expected.hidden_states).max()
    np.testing.assert_allclose(
        np.where(kept, states, 0) / scale,
        np.where(kept, expected.hidden_states, 0) / scale,
        atol=1e-6,
    )
    maps = np.moveaxis(np.asarray(found.attentions), 0, 1)
    rows = real[:, None, None, :, None]
    np.testing.assert_allclose(
        np.where(rows, maps, 0), np.where(rows, expected.attentions, 0), atol=2e-6
    )
    np.testing.assert_allclose(found.pooled, expected.pooled, atol=2e-6)


def test_another_model_is_refused(encoder, tmp_path):
    (tmp_path / 'config.json').write_text('{"model_type": "roberta"}')
    with pytest.raises(ValueError, match='is no BERT with GELU'):
        encoder['load'](tmp_path)


def test_scripts_are_short():
    scripts = sorted(EXAMPLES.glob('*.py'))
    assert len(scripts) == 6
    for script in scripts:
        lines = script.read_text().splitlines()
        assert len(lines) <= (_ENCODER if script.name == 'bert_in_one_file.py' else _SCRIPT)
        assert f'`{script.name}`' in (EXAMPLES / 'README.md').read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ('name', 'given', 'said'),
    [
        ('maps', {'figure': '{folder}/map.svg'}, 'attends most to the next token'),
        ('sweep', {}, 'the vectors move by'),
        ('finetune_and_disable', {'pairs': 12, 'epochs': 1}, 'p_holm'),
        ('own_statistic', {'texts': 4}, 'earlier tokens'),
        ('own_analysis', {'texts': 4, 'file': '{folder}/found.npz'}, 'looks back most'),
    ],
)
def test_scripts_run(name, given, said, tmp_path, capsys):
    real_checkpoint('all-MiniLM-L6-v2')
    script = runpy.run_path(str(EXAMPLES / f'{name}.py'))
    given = {
        key: value.format(folder=tmp_path) if isinstance(value, str) else value
        for key, value in given.items()
    }
    script['main'](**given)
    assert said in capsys.readouterr().out
