"""Tokenizers from a vocabulary, and the folders that have them then."""

import dataclasses
import re

import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.finetune.train import digests
from bert_secrets_jax.model.weights import from_pretrained, save_pretrained
from tests.conftest import random_params, relative
from tests.model.test_real_models import SMILES
from tools.convert.vocabulary import (
    convert_vocabulary,
    function_tokenizer,
    letter_tokenizer,
    regex_tokenizer,
)

CHEMISTRY = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'C', 'Cl', 'c', 'N', 'O', '=', '(',
             ')', '1', '>>', '.', '[nH]']  # fmt: skip
# As many as the small model has.
SIXTY = CHEMISTRY + [f'[unused{number}]' for number in range(60 - len(CHEMISTRY))]
PROTEIN = ['<cls>', '<pad>', '<eos>', '<unk>', 'A', 'L', 'G', '<mask>']


def pieces(tokenizer, *texts):
    return tokenizer.convert_ids_to_tokens(tokenizer(*texts)['input_ids'])


def test_a_regular_expression_over_a_vocabulary(tmp_path):
    tokenizer = regex_tokenizer(CHEMISTRY, SMILES)
    assert pieces(tokenizer, 'CCl.c1c[nH]1>>ClC(=O)') == [
        '[CLS]', 'C', 'Cl', '.', 'c', '1', 'c', '[nH]', '1', '>>', 'Cl', 'C', '(', '=', 'O', ')',
        '[SEP]',
    ]  # fmt: skip
    # Text that no match covers is unknown, and not left out; offsets are those of the text.
    encoded = bs.tokenize(tokenizer, ['C üü Br N', 'N'])
    assert tokenizer.convert_ids_to_tokens(encoded.input_ids[0]) == [
        '[CLS]', 'C', '[UNK]', '[UNK]', 'N', '[SEP]',
    ]  # fmt: skip
    assert encoded.offsets[0].tolist() == [[0, 0], [0, 1], [2, 4], [5, 7], [8, 9], [0, 0]]
    pair = bs.tokenize(tokenizer, [('CN', 'O')])
    assert pair.token_type_ids[0].tolist() == [0, 0, 0, 0, 1, 1]
    assert pair.text[0].tolist() == [-1, 0, 0, -1, 1, -1]
    file = tmp_path / 'vocab.txt'
    file.write_text('\n'.join(CHEMISTRY) + '\n')
    for vocabulary in (file, dict(zip(CHEMISTRY, range(99), strict=False))):
        assert regex_tokenizer(vocabulary, SMILES)('C')['input_ids'] == [2, 5, 3]
    same = function_tokenizer(CHEMISTRY, lambda text: re.findall(SMILES, text))
    assert pieces(same, 'CCl.c1[nH]') == pieces(tokenizer, 'CCl.c1[nH]')
    tokenizer = function_tokenizer(CHEMISTRY, lambda text: ['O'])
    with pytest.raises(Exception, match="'O', which does not stand in 'CC'"):
        tokenizer('CC')


def test_what_is_made_of_an_expression_goes_to_files_and_back(bert, params, tmp_path):
    tokenizer = regex_tokenizer(SIXTY, SMILES)
    save_pretrained(bs.Pretrained(bert, params, tokenizer), tmp_path)
    loaded = from_pretrained(tmp_path).tokenizer
    assert pieces(loaded, 'CCl>>[nH]') == pieces(tokenizer, 'CCl>>[nH]')
    mine = function_tokenizer(SIXTY, list)
    mine = bs.Pretrained(bert, params, mine)
    for write in (save_pretrained, lambda *_: digests(mine, [], [], 'pretrained')):
        with pytest.raises(ValueError, match=r'cannot be written.*pre_tokenizers\.Split'):
            write(mine, tmp_path / 'mine')


@pytest.mark.parametrize(
    ('arguments', 'special', 'match'),
    [
        ((CHEMISTRY, 'C*'), {}, 'matches the empty text'),
        ((CHEMISTRY[:1] + CHEMISTRY[2:], 'C'), {}, r'no \[UNK\] or <unk>: give unk_token='),
        (([*CHEMISTRY, 'C'], 'C'), {}, "'C' twice"),
    ],
)
def test_vocabularies_that_do_not_do(arguments, special, match):
    with pytest.raises(ValueError, match=match):
        regex_tokenizer(*arguments, **special)
    with pytest.raises(TypeError, match=r"not \['start'\]"):
        letter_tokenizer(PROTEIN, start='A')


def test_proteins_come_with_a_list_of_letters(config, tmp_path):
    """ESM's published folders have a vocabulary and a class that is not fast."""
    mine = dataclasses.replace(relative(config, 'esm'), label_names=(), add_pooler=False)
    bert = bs.Bert(mine)
    words = ['<cls>', '<pad>', '<eos>', '<unk>', *'LAGVSERTIDPKQNFYMHWCXBUZO.-', '<mask>']
    words += [f'<null_{number}>' for number in range(60 - len(words))]
    model = bs.Pretrained(bert, random_params(bert), letter_tokenizer(words))
    save_pretrained(model, tmp_path / 'esm')
    (tmp_path / 'esm' / 'tokenizer.json').unlink()
    about = tmp_path / 'esm' / 'tokenizer_config.json'
    about.write_text('{"tokenizer_class": "EsmTokenizer"}')
    (tmp_path / 'esm' / 'vocab.txt').write_text('\n'.join(words))
    with pytest.raises(ValueError, match=r'tools\.convert\.vocabulary .*esm FOLDER` copies'):
        from_pretrained(tmp_path / 'esm')
    convert_vocabulary(tmp_path / 'esm', tmp_path / 'ordinary')
    found = from_pretrained(tmp_path / 'ordinary').tokenizer
    transformers = pytest.importorskip('transformers')
    theirs = transformers.EsmTokenizer(str(tmp_path / 'esm' / 'vocab.txt'))
    for text in ('MLAG', 'MK<mask>W', 'LJA'):
        assert found(text)['input_ids'] == theirs(text)['input_ids']
    with pytest.raises(FileExistsError):
        convert_vocabulary(tmp_path / 'esm', tmp_path / 'ordinary')


def test_models_of_chemistry_come_with_a_list_of_tokens(bert, params, tmp_path):
    made = regex_tokenizer(SIXTY, SMILES)
    save_pretrained(bs.Pretrained(bert, params, made), tmp_path / 'old')
    (tmp_path / 'old' / 'tokenizer.json').unlink()
    (tmp_path / 'old' / 'vocab.txt').write_text('\n'.join(SIXTY))
    convert_vocabulary(tmp_path / 'old', tmp_path / 'new', SMILES)
    found = from_pretrained(tmp_path / 'new').tokenizer
    assert pieces(found, 'CCl>>[nH]') == pieces(made, 'CCl>>[nH]')
