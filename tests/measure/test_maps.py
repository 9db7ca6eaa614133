"""Maps with their tokens, and what bertviz makes of them."""

import json
import re
import sys

import numpy as np
import pytest

import bert_secrets_jax as bs


@pytest.fixture
def pretrained(bert, params, tokenizer):
    return bs.Pretrained(bert, params, tokenizer)


def example(text_a, text_b=None):
    return bs.Example(text_a, text_b, id='own/0')


def test_maps_are_the_model_s_without_padding(pretrained):
    pairs = [
        example('the unlike cat', 'a dog ran .'),
        example('he saw the big red house and a small tree', 'she slept'),
    ]
    found = bs.attention_maps(pretrained, pairs, max_length=30)
    assert list(found[0].tokens) == '[CLS] the un ##like cat [SEP] a dog ran . [SEP]'.split()
    assert found[0].second == 6 and found[1].tokens[found[1].second] == 'she'
    for pair, maps in zip(pairs, found, strict=True):
        encoded = pretrained.tokenizer(pair.text_a, pair.text_b, return_tensors='np')
        expected = pretrained.bert.apply({'params': pretrained.params}, **encoded).attentions[0]
        np.testing.assert_allclose(maps.attentions, expected, atol=2e-6)
        assert maps.attentions.shape == (3, 4, len(maps.tokens), len(maps.tokens))


def test_a_single_sentence_has_no_second(pretrained):
    (maps,) = bs.attention_maps(pretrained, [example('the cat ran')])
    assert maps.second is None and len(maps.tokens) == 5
    (cut,) = bs.attention_maps(pretrained, [example('the cat ran and ran and ran')], max_length=6)
    assert len(cut.tokens) == 6


def test_strings_are_texts(pretrained, bert, unchecked):
    (plain,) = bs.attention_maps(pretrained, ['the cat ran'])
    (whole,) = bs.attention_maps(pretrained, [example('the cat ran')])
    np.testing.assert_array_equal(plain.attentions, whole.attentions)
    (two,) = bs.attention_maps(pretrained, [('the cat', 'a dog')])
    assert two.second == 4
    with pytest.raises(TypeError, match='this is a single str: give a list'):
        bs.attention_maps(pretrained, 'the cat')
    with pytest.raises(TypeError, match='Bert is not a model with weights and tokenizer'):
        bs.attention_maps(bert, ['the cat'])


def test_maps_between_words_have_them_as_they_are_written(pretrained):
    (maps,) = bs.attention_maps(pretrained, [example('the Unlike cat', 'a dog ran.')])
    whole = maps.of_words()
    assert list(whole.tokens) == '[CLS]|the|Unlike|cat|[SEP]|a|dog|ran|.|[SEP]'.split('|')
    assert whole.tokens[whole.second] == 'a'
    np.testing.assert_allclose(whole.attentions.sum(axis=-1), 1, atol=1e-5)
    # "unlike" is two wordpieces.
    to, back = maps.attentions[..., 1, 2:4].sum(axis=-1), maps.attentions[..., 2:4, 1].mean(axis=-1)
    np.testing.assert_allclose(whole.attentions[..., 1, 2], to, atol=1e-6)
    np.testing.assert_allclose(whole.attentions[..., 2, 1], back, atol=1e-6)


def test_words_and_their_numbers_come_together():
    square = np.ones((1, 1, 2, 2))
    with pytest.raises(ValueError, match='is not known: bs.attention_maps'):
        bs.TokenMaps(['a', 'b'], square).of_words()
    with pytest.raises(ValueError, match='give word and words, or neither'):
        bs.TokenMaps(['a', 'b'], square, word=np.array([0, 0]))
    for word in ([0], [0, 1]):
        with pytest.raises(ValueError, match='2 tokens need as many numbers of the 1 words'):
            bs.TokenMaps(['a', 'b'], square, word=np.array(word), words=['ab'])


def test_maps_of_other_tokens_are_refused():
    with pytest.raises(ValueError, match=r'must be \[layers, heads, 2, 2\], got \[1, 2, 3, 3\]'):
        bs.TokenMaps(['a', 'b'], np.ones((1, 2, 3, 3)))
    with pytest.raises(ValueError, match='leave the batch and padding out'):
        bs.TokenMaps(['a', 'b'], np.ones((1, 1, 2, 2, 2)))


def test_bertviz_gets_a_tensor_for_each_layer(pretrained):
    torch = pytest.importorskip('torch')
    (maps,) = bs.attention_maps(pretrained, [example('the cat', 'a dog')])
    given = bs.to_bertviz(maps)
    assert set(given) == {'attention', 'tokens', 'sentence_b_start'}
    assert len(given['attention']) == 3 and given['sentence_b_start'] == 4
    assert given['tokens'] == ['[CLS]', 'the', 'cat', '[SEP]', 'a', 'dog', '[SEP]']
    for layer, expected in zip(given['attention'], maps.attentions, strict=True):
        assert layer.dtype == torch.float32 and layer.shape == (1, 4, 7, 7)
        np.testing.assert_array_equal(layer[0].numpy(), expected)


# It leaves its own script open.
@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')
@pytest.mark.parametrize('view', ['head_view', 'model_view'])
def test_bertviz_draws_them(pretrained, view):
    bertviz = pytest.importorskip('bertviz')
    (maps,) = bs.attention_maps(pretrained, [example('the cat', 'a dog')])
    page = getattr(bertviz, view)(**bs.to_bertviz(maps), html_action='return').data
    (params,) = re.findall(r'const params = (\{.*?\}); // HACK', page, re.S)
    drawn = json.loads(params)['attention']
    assert [each['name'] for each in drawn][:3] == ['All', 'Sentence A -> Sentence A',
                                                    'Sentence B -> Sentence B']  # fmt: skip
    np.testing.assert_allclose(np.array(drawn[0]['attn']), maps.attentions, atol=1e-6)
    assert drawn[2]['left_text'] == ['a', 'dog', '[SEP]']


def test_without_pytorch_it_says_what_to_install(pretrained, monkeypatch):
    (maps,) = bs.attention_maps(pretrained, [example('the cat')])
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(ImportError, match='pip install bertviz torch'):
        bs.to_bertviz(maps)
