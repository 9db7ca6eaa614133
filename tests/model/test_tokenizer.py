"""Tokenizers of a user's own, models without one, and texts that a tokenizer does not know."""

import dataclasses
import json
import logging
import sys
import types

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

import bert_secrets_jax as bs
from bert_secrets_jax.finetune.train import digests
from bert_secrets_jax.model.weights import from_pretrained, save_pretrained
from tests.conftest import forward, make_byte_tokenizer, random_params, relative
from tests.model.test_real_models import SMILES
from tests.tools.convert.test_vocabulary import CHEMISTRY, SIXTY, pieces
from tools.convert.vocabulary import regex_tokenizer


def test_a_tokenizer_of_ones_own(directory, tokenizer):
    """A tokenizer of `transformers` stays as it is; a bare one gets special tokens it spells."""
    assert from_pretrained(directory, tokenizer=tokenizer).tokenizer is tokenizer
    bare = tokenizers.Tokenizer(models.WordLevel(tokenizer.get_vocab(), unk_token='[UNK]'))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    found = from_pretrained(directory, tokenizer=bare).tokenizer
    assert found.is_fast and found.mask_token == '[MASK]'
    assert found('the cat', add_special_tokens=False)['input_ids'] == bare.encode('the cat').ids
    with pytest.raises(TypeError, match=r'tokenizer=str must be a fast tokenizer'):
        from_pretrained(directory, tokenizer='bert-base-uncased')


def test_a_model_without_a_tokenizer_takes_ids(directory, caplog):
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        (directory / name).unlink()
    with caplog.at_level(logging.WARNING):
        model = from_pretrained(directory)
    assert 'takes ids and no texts' in caplog.text and 'no tokenizer' in repr(model)
    ids = np.array([[2, 5, 3]])
    names = ('input_ids', 'token_type_ids', 'attention_mask')
    given = dict(zip(names, (ids, np.zeros_like(ids), np.ones_like(ids)), strict=True))
    output = forward(model.bert, model.params, given)
    assert output.attentions.shape == (1, 3, 4, 3, 3)
    with pytest.raises(ValueError, match=r'came without a tokenizer.*tokenizer=\.\.\.'):
        bs.encode(model.tokenizer, ['the cat'])
    save_pretrained(model, directory / 'again')
    assert from_pretrained(directory / 'again').tokenizer is None


def test_mostly_unknown_texts_are_refused_unless_they_are_meant(directory, caplog):
    model = from_pretrained(directory)
    strange = ['xyz vwq the', 'qqq']
    with pytest.raises(ValueError, match=r'75 %.*\(3 of 4\) are \[UNK\], such as .*allow_unknown'):
        bs.encode(model.tokenizer, strange)
    allowed = from_pretrained(directory, allow_unknown=True)
    with caplog.at_level(logging.WARNING):
        assert len(bs.tokenize(allowed.tokenizer, strange).lengths) == 2
    assert '75 % of the wordpieces' in caplog.text
    # Through files, too: a fine-tuned model reads what the model before it read.
    save_pretrained(allowed, directory / 'again')
    bs.tokenize(from_pretrained(directory / 'again').tokenizer, strange)


def test_words_that_lower_case_makes_unknown_are_told(caplog):
    tokenizer = regex_tokenizer(CHEMISTRY, r'\w+')
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    with pytest.raises(ValueError, match='2 of them are in the vocabulary as they are written'):
        bs.tokenize(tokenizer, ['Cl N c'])
    with caplog.at_level(logging.WARNING):
        bs.tokenize(tokenizer, ['c c c Cl'])
    assert '25 % of the wordpieces (1 of 4)' in caplog.text and 'lower case' in caplog.text


def test_capitals_that_no_text_can_have_are_told(bert, params, tmp_path, caplog):
    """As models of chemistry came: with capitals, and without saying that case is kept."""
    save_pretrained(bs.Pretrained(bert, params, regex_tokenizer(SIXTY, SMILES)), tmp_path)
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        (tmp_path / name).unlink()
    (tmp_path / 'vocab.txt').write_text('\n'.join(SIXTY))
    with caplog.at_level(logging.WARNING):
        from_pretrained(tmp_path)
    assert "wordpieces have capitals, such as 'C'" in caplog.text


def test_words_of_several_letters_in_chinese(config, tmp_path, monkeypatch):
    """RoFormer's tokenizer knows them as soon as it is read, and fine-tuning can describe it."""

    def cut(text, hmm):
        return [(word, text.index(word), text.index(word) + len(word)) for word in ('非常', '好')]

    monkeypatch.setitem(sys.modules, 'rjieba', types.SimpleNamespace(tokenize=cut))
    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '非', '常', '好', '非常', *SIXTY[9:]]
    mine = dataclasses.replace(relative(config, 'roformer'), label_names=(), add_pooler=False)
    bert = bs.Bert(mine)
    save_pretrained(bs.Pretrained(bert, random_params(bert), None), tmp_path)
    (tmp_path / 'vocab.txt').write_text('\n'.join(words))
    for _ in range(2):
        model = from_pretrained(tmp_path)
        assert pieces(model.tokenizer, '非常好') == ['[CLS]', '非常', '好', '[SEP]']
        save_pretrained(model, tmp_path)
    assert digests(model, [], [], 'pretrained')['tokenizer']


def test_a_tokenizer_that_ends_texts_with_padding(config, tmp_path):
    """EuroBERT's names no [CLS] and no [SEP], and its <pad> is what ends texts."""
    from tokenizers import processors

    kind = make_byte_tokenizer(tmp_path, 'PreTrainedTokenizerFast')
    kind.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single='<s> $A </s>', pair='<s> $A </s> $B </s>', special_tokens=[('<s>', 0), ('</s>', 2)]
    )
    about = {'bos_token': '<s>', 'eos_token': '</s>', 'pad_token': '</s>', 'mask_token': '<mask>'}
    mine = dataclasses.replace(relative(config, 'eurobert'), vocab_size=400, pad_token_id=2)
    bert = bs.Bert(mine)
    bs.save_pretrained(bs.Pretrained(bert, random_params(bert), kind), tmp_path)
    about |= {'tokenizer_class': 'PreTrainedTokenizerFast'}
    (tmp_path / 'tokenizer_config.json').write_text(json.dumps(about))
    for _ in range(2):
        model = bs.from_pretrained(tmp_path)
        batches = bs.encode(model.tokenizer, ['the cat', 'the cat saw a dog and ran'], buckets=())
        (batch,) = batches
        assert batch.marks['sep'].sum(axis=1).tolist() == batch.marks['cls'].sum(axis=1).tolist()
        assert batch.marks['sep'].sum() == 2 and (batch.input_ids == 2).sum() > 2
        swept = bs.sweep(model, batches, bs.masks.single_heads(mine))
        assert np.ptp(swept.logits, axis=0).max() > 1e-3
        bs.save_pretrained(model, tmp_path)
