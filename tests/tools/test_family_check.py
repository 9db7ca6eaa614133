"""The comparison of a folder with `transformers`: it finds the first step that differs."""

import dataclasses

import jax
import pytest

import bert_secrets_jax as bs
from tests.conftest import RELATIVES, random_params, relative
from tools import family_check

pytest.importorskip('torch')


def save(config, model_type, tokenizer, folder, **changes):
    mine = dataclasses.replace(relative(config, model_type), **changes)
    bert = bs.Bert(mine)
    bs.save_pretrained(bs.Pretrained(bert, random_params(bert), tokenizer), folder)


@pytest.mark.parametrize('model_type', RELATIVES)
def test_every_family_is_equal(config, tokenizer_of, tmp_path, capsys, model_type):
    save(config, model_type, tokenizer_of(model_type), tmp_path)
    status, told = family_check.main([str(tmp_path)]), capsys.readouterr().out
    if relative(config, model_type).family.code:
        assert status == 2 and 'has no JinaBertForSequenceClassification' in told
    else:
        assert status == 0 and told.endswith(': all is equal.\n')
        assert told.count('equal   ') == 2 + 2 * 3


@pytest.mark.parametrize(
    ('path', 'first'),
    [
        ('embeddings/norm/bias', 'embeddings'),
        ('layers/attention/key/kernel', 'maps of layer 2'),
        ('layers/output/bias', 'output of layer 2'),
        ('classifier/bias', 'logits'),
    ],
)
def test_the_first_difference_is_named(
    config, tokenizer, tmp_path, capsys, monkeypatch, path, first
):
    save(config, 'bert', tokenizer, tmp_path)
    model = bs.from_pretrained(tmp_path)

    def change(at, leaf):
        if '/'.join(key.key for key in at) != path:
            return leaf
        return leaf.at[(1, 0)[: leaf.ndim]].add(0.3)

    wrong = jax.tree_util.tree_map_with_path(change, model.params)
    monkeypatch.setattr(bs, 'from_pretrained', lambda _: dataclasses.replace(model, params=wrong))
    assert family_check.main([str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert told.endswith(f'The first difference: {first}.\n')
    # Before it, all is equal.
    assert 'equal' not in told[told.index('DIFFERS') :]


@pytest.mark.parametrize('head', ['masked_lm', 'question_answering', 'none'])
def test_other_heads(config, tokenizer, tmp_path, capsys, head):
    names = {'question_answering': ('start', 'end')}.get(head, ())
    kind = 'sequence_classification' if head == 'none' else head
    save(config, 'bert', tokenizer, tmp_path, head=kind, label_names=names, add_pooler=False)
    assert family_check.main([str(tmp_path)]) == 0
    assert ('logits' in capsys.readouterr().out) == (head != 'none')


def test_what_cannot_be_read_is_said(tmp_path, capsys):
    assert family_check.main([str(tmp_path / 'nothing')]) == 2
    assert 'nothing' in capsys.readouterr().out
