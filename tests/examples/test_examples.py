"""The scripts of `examples/` run, are short, and encoders in one file are the library's."""

import dataclasses
import runpy

import jax
import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.model.bert import Bert
from tests.conftest import ROOT, forward, random_inputs, random_params, real_checkpoint, relative

EXAMPLES = ROOT / 'examples'
# The most lines of a script, and of an encoder.
_SCRIPT, _ENCODER = 40, 300
_XLARGE = {'conv_kernel_size': 3, 'conv_groups': 2, 'conv_act': 'gelu', 'embedding_size': 16}
_PLAIN = {'relative_attention': False, 'position_biased_input': True, 'share_att_key': False}


def encoder(name):
    return runpy.run_path(str(EXAMPLES / f'{name}_in_one_file.py'))


@pytest.mark.parametrize(
    ('model_type', 'changes'),
    [('bert', {}), ('deberta-v2', {}), ('deberta-v2', _XLARGE), ('deberta-v2', _PLAIN)],
    ids=['bert', 'deberta', 'with a convolution', 'without distances'],
)
def test_the_encoder_in_one_file_is_the_librarys(config, tokenizer, tmp_path, model_type, changes):
    bert = Bert(dataclasses.replace(relative(config, model_type), **changes))
    pretrained = bs.Pretrained(bert, random_params(bert), tokenizer)
    bs.save_pretrained(pretrained, tmp_path / 'model')
    inputs = random_inputs(bert.config, lengths=(9, 4, 6), length=9, seed=1)
    mask = np.ones((3, 4), np.float32)
    mask[0, 1], mask[2] = 0, 0.25
    file = encoder(model_type.removesuffix('-v2'))
    # The file is written as its readers write.
    with jax.numpy_rank_promotion('allow'):
        found = file['run'](*file['load'](tmp_path / 'model'), *inputs.values(), head_mask=mask)
    expected = forward(bert, pretrained.params, inputs, head_mask=mask)
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
    if model_type == 'bert':
        np.testing.assert_allclose(found.pooled, expected.pooled, atol=2e-6)


@pytest.mark.parametrize('name', ['bert', 'deberta'])
def test_another_model_is_refused(name, tmp_path):
    (tmp_path / 'config.json').write_text('{"model_type": "roberta"}')
    with pytest.raises(ValueError, match='is no .* with GELU'):
        encoder(name)['load'](tmp_path)


def test_scripts_are_short():
    scripts = sorted(EXAMPLES.glob('*.py'))
    assert len(scripts) == 7
    for script in scripts:
        lines = script.read_text().splitlines()
        assert len(lines) <= (_ENCODER if 'in_one_file' in script.name else _SCRIPT)
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
