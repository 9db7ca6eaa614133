"""Heads on an encoder: equal to PyTorch, and written so that `transformers` reads them."""

import dataclasses
import itertools
import logging

import numpy as np
import pytest

import bert_secrets_jax as bs
from bert_secrets_jax.model.bert import Bert
from bert_secrets_jax.model.config import ANSWER, MASKED_LM, QUESTIONS, SEQUENCES, TOKENS
from bert_secrets_jax.model.families import FAMILIES
from bert_secrets_jax.model.weights import from_pretrained, save_pretrained, with_classifier
from tests.conftest import as_torch, forward, fresh_params, random_inputs, random_params, relative
from tests.model.conftest import assert_equal, in_pytorch, of_real_tokens, rewrite

# A share of the greatest logit, where that is above 1: rounding is relative to what is summed.
TOLERANCE = 5e-6
NAMES = {TOKENS: ('O', 'B-PER', 'I-PER'), QUESTIONS: ANSWER, MASKED_LM: ()}
# Camembert and XLM-RoBERTa are RoBERTa in all but name, and these have no head for answers.
_NO_ANSWERS = ('esm', 'nomic_bert', 'eurobert')
CASES = [
    (name, head, {})
    for name, head in itertools.product(FAMILIES, NAMES)
    if name not in ('xlm-roberta', 'camembert') and not (name in _NO_ANSWERS and head == QUESTIONS)
]
CASES += [
    ('bert', MASKED_LM, {'tie_word_embeddings': False}),
    ('bert', SEQUENCES, {'label_names': ('a', 'b'), 'add_pooler': True, 'multi_label': True}),
]


def with_head(config, model_type, head, **changes):
    """Return the config of a small model with a head and without what it does not need."""
    config = relative(config, model_type)
    about = {'label_names': NAMES.get(head), 'add_pooler': config.family.pools_tokens} | changes
    return dataclasses.replace(config, head=head, **about)


def assert_close(found, expected):
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=TOLERANCE * max(1, np.abs(expected).max())
    )


def said(model, config, inputs):
    torch = pytest.importorskip('torch')
    with torch.no_grad():
        output = model(**as_torch(config, inputs))
    if config.head == QUESTIONS:
        return torch.stack([output.start_logits, output.end_logits], dim=-1).numpy()
    return output.logits.numpy()


@pytest.mark.parametrize(('model_type', 'head', 'changes'), CASES)
def test_equals_pytorch_there_and_back(config, tokenizer_of, tmp_path, model_type, head, changes):
    config = with_head(config, model_type, head, **changes)
    inputs = random_inputs(config, lengths=(11, 4, 7, 1), length=11, seed=5)
    for scale in (0.02, 0.3):
        scaled = dataclasses.replace(config, initializer_range=scale)
        model = in_pytorch(scaled, tmp_path, tokenizer_of(model_type))
        ours = from_pretrained(tmp_path)
        for name in ('head', 'label_names', 'tie_word_embeddings', 'multi_label'):
            assert getattr(ours.config, name) == getattr(config, name)
        assert ('several at once' in repr(ours)) == config.multi_label
        expected = said(model, config, inputs)
        assert expected.shape[-1] == (config.num_labels or config.vocab_size)
        found = np.asarray(forward(ours.bert, ours.params, inputs).logits)
        both = found, expected
        assert_close(*(both if found.ndim < 3 else of_real_tokens(config, inputs, *both)))
    save_pretrained(ours, tmp_path / 'again')
    again = from_pretrained(tmp_path / 'again')
    assert again.config == ours.config
    assert_equal(again.params, ours.params)
    if config.family.code:
        return
    # PyTorch reads what we write without a tensor too few or too many.
    theirs, report = type(model).from_pretrained(tmp_path / 'again', output_loading_info=True)
    missing = {name for name in report['missing_keys'] if 'contact_head' not in name}
    assert not (missing or report['unexpected_keys'] or report['mismatched_keys'])
    assert theirs.config.problem_type == model.config.problem_type
    # Each implementation decides what padding sees.
    real = inputs['attention_mask'].astype(bool) if expected.ndim == 3 else ...
    assert_close(said(theirs.eval(), config, inputs)[real], expected[real])


@pytest.fixture
def saved(config, tokenizer_of, tmp_path):
    """Return a function that saves a random model with a head, and returns it and its folder."""

    def save(head, model_type='bert', **changes):
        bert = Bert(with_head(config, model_type, head, **changes))
        model = bs.Pretrained(bert, random_params(bert), tokenizer_of(model_type))
        save_pretrained(model, tmp_path)
        return model, tmp_path

    return save


def test_spellings_of_a_masked_lm(saved, caplog):
    """Old files have the embeddings twice, or the bias under one of two names."""
    model, directory = saved(MASKED_LM)
    bias = np.asarray(model.params['lm']['bias'])
    words = np.asarray(model.params['embeddings']['word']['embedding'])
    first, second = 'cls.predictions.decoder.bias', 'cls.predictions.bias'
    changes = (
        lambda t: t | {'cls.predictions.decoder.weight': words},
        lambda t: {name: tensor for name, tensor in t.items() if name != first},
        lambda t: {name: tensor for name, tensor in t.items() if name != second} | {first: bias},
        lambda t: t | {'cls.seq_relationship.weight': np.zeros((2, 24), np.float32)},
    )
    for change in changes:
        rewrite(directory, change)
        loaded = from_pretrained(directory)
        assert loaded.config == model.config
        assert_equal(loaded.params, model.params)
    rewrite(directory, lambda t: t | {second: bias + 1})
    with caplog.at_level(logging.WARNING):
        loaded = from_pretrained(directory)
    assert 'cls.predictions.bias is not the same' in caplog.text
    np.testing.assert_array_equal(loaded.params['lm']['bias'], bias)


@pytest.mark.parametrize('model_type', ['bert', 'modernbert'])
def test_a_masked_lm_as_a_model_for_fine_tuning(saved, model_type):
    """Its head is left out for a classifier; from the file and from memory this is the same."""
    model, directory = saved(MASKED_LM, model_type)
    assert 'lm' in from_pretrained(directory).params
    bare = from_pretrained(directory, label_names=())
    assert 'lm' not in bare.params and not bare.config.has_head
    for head, names in ((SEQUENCES, ('a', 'b')), (TOKENS, ('a', 'b', 'c')), (QUESTIONS, ANSWER)):
        loaded = from_pretrained(directory, label_names=names, head=head, seed=3)
        made = with_classifier(model, names, head=head, seed=3)
        assert loaded.config == made.config and loaded.config.head == head
        assert_equal(loaded.params, made.params)
        if model_type == 'modernbert':
            # Its layer under the head stands under classifiers, too.
            kernels = [each.params['pooler']['kernel'] for each in (made, model)]
            np.testing.assert_array_equal(*kernels)


def test_a_pooler_of_another_head_is_left_out(config, tokenizer_of):
    """RoBERTa's pooler is part of its classifier of inputs; no head of tokens has one."""
    bert = Bert(relative(config, 'roberta'))
    model = bs.Pretrained(bert, fresh_params(bert, 0), tokenizer_of('roberta'))
    made = with_classifier(model, ('a', 'b'), head=TOKENS)
    assert 'pooler' not in made.params and not made.config.add_pooler
    assert 'pooler' in with_classifier(made, ('a', 'b')).params


@pytest.mark.parametrize('head', [TOKENS, MASKED_LM, 'several labels'])
def test_what_needs_one_label_says_so(config, tokenizer, head):
    if head == 'several labels':
        config = dataclasses.replace(config, multi_label=True)
    else:
        config = with_head(config, 'bert', head)
    model = bs.Pretrained(Bert(config), fresh_params(Bert(config), 0), tokenizer)
    batches = bs.encode(tokenizer, ['the cat', 'a dog'])
    if head == TOKENS:
        assert bs.sweep(model, batches, np.ones((1, 3, 4))).logits.shape[-1] == 3
    else:
        refusal = 'gives several at once' if head == 'several labels' else 'bs.mask_words'
        with pytest.raises(ValueError, match=refusal):
            bs.sweep(model, batches, np.ones((1, 3, 4)))
    with pytest.raises(ValueError, match='fine-tuned'):
        bs.analyses.ablation(model, [bs.Example('the cat', label=1)])
