"""The comparison of a folder with `transformers`: it finds the first step that differs."""

import dataclasses

import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

import bert_secrets_jax as bs
from tests.conftest import RELATIVES, random_params, relative
from tools import family_check

pytest.importorskip('torch')
PLACES = {
    'embeddings/norm/bias': 'embeddings',
    'layers/attention/key/kernel': 'maps of layer 2',
    'layers/output/bias': 'output of layer 2',
    'classifier/bias': 'logits',
}


@pytest.fixture
def told(tmp_path, capsys, tokenizer_of):
    """Return what saves a random model and compares it: the exit status and what is printed."""

    def tell(config):
        bert = bs.Bert(config)
        model = bs.Pretrained(bert, random_params(bert), tokenizer_of(config.model_type))
        bs.save_pretrained(model, tmp_path)
        return family_check.main([str(tmp_path)]), capsys.readouterr().out

    return tell


@pytest.mark.parametrize('model_type', RELATIVES)
def test_every_family_is_equal(config, told, model_type):
    mine = relative(config, model_type)
    status, said = told(mine)
    ends = 'has no JinaBertForSequenceClassification.\n' if mine.family.code else 'all is equal.\n'
    assert said.endswith(ends) and status == 2 * bool(mine.family.code)
    assert said.count('equal   ') == (0 if mine.family.code else 2 + 2 * 3)


def test_other_heads_and_none(config, told):
    bare = dataclasses.replace(config, label_names=(), add_pooler=False)
    for mine in (bare, dataclasses.replace(bare, head='masked_lm')):
        status, said = told(mine)
        assert status == 0 and ('logits' in said) == mine.has_head
    assert family_check.main(['nothing']) == 2


def test_the_first_difference_is_named(config, told, params, tokenizer, monkeypatch):
    leaves = flatten_dict(params, sep='/')
    for path, first in PLACES.items():
        changed = leaves[path].at[(1, 0)[: leaves[path].ndim]].add(0.3)
        wrong = bs.Pretrained(bs.Bert(config), unflatten_dict(leaves | {path: changed}, '/'), None)
        monkeypatch.setattr(bs, 'from_pretrained', lambda _, wrong=wrong: wrong)
        status, said = told(config)
        assert status == 1 and said.endswith(f'The first difference: {first}.\n')
        # Before it, all is equal.
        assert 'equal' not in said[said.index('DIFFERS') :]
